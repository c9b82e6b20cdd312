//! HTTP handlers for notifications.

use std::collections::BTreeMap;

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use url::Url;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Path, ValidJson,
    fields::{Body, BodyField as _, Change, FromBody, FromJson, from_body},
    ids::SubscriptionId,
};

use super::{
    kinds::{Kind, Kinds},
    rules::{LONGEST_ENDPOINT, PushKeys, QuietHours, TimeOfDay},
    service::{Notifications, Preferences, SettingsChange, SubscribeError, Subscription},
};
use crate::identity::sessions::CurrentUser;

#[derive(Serialize, ToSchema)]
pub(super) struct NotificationsAnswer {
    data: NotificationsItem,
}

/// Notification preferences of the caller.
#[derive(Serialize, ToSchema)]
#[schema(as = Notifications)]
struct NotificationsItem {
    /// Whether the caller is reminded, one hour before the start, of matches of their teams that they have not
    /// predicted.
    reminders: bool,
    /// Whether the caller is notified after a round of a tournament if they lost places in a league.
    league_ranks: bool,
    /// Hours in which no notification is sent; null if there are none.
    #[schema(required)]
    quiet_hours: Option<QuietItem>,
    /// Whether each kind of notification is sent to the caller's devices. `reminder` is the same setting as `reminders`.
    kinds: KindsItem,
    /// Push subscriptions of the caller's browsers, oldest first.
    push: Vec<PushItem>,
    /// Key that a browser needs to subscribe (`applicationServerKey`); null if web push is not configured.
    #[schema(
        required,
        example = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    )]
    vapid_public_key: Option<String>,
}

/// Kinds of notifications.
#[derive(Serialize, ToSchema)]
#[schema(as = NotificationKinds)]
#[expect(clippy::struct_excessive_bools, reason = "one switch for each kind")]
struct KindsItem {
    /// A match of the caller's teams starts soon, and the caller has not predicted it.
    reminder: bool,
    /// A predicted match was moved, postponed or cancelled.
    moved: bool,
    /// Points for a predicted match are known.
    result: bool,
    /// A corrected result changed the caller's points.
    correction: bool,
    /// A result lowered the caller's rank in a league.
    passed: bool,
    /// Invitation to a chat room.
    invitation: bool,
    /// A message in a chat room mentions the caller.
    mention: bool,
    /// The streak of daily bonuses ends at midnight UTC.
    streak: bool,
}

impl From<Kinds> for KindsItem {
    fn from(kinds: Kinds) -> Self {
        Self {
            reminder: kinds.has(Kind::Reminder),
            moved: kinds.has(Kind::Moved),
            result: kinds.has(Kind::Result),
            correction: kinds.has(Kind::Correction),
            passed: kinds.has(Kind::Passed),
            invitation: kinds.has(Kind::Invitation),
            mention: kinds.has(Kind::Mention),
            streak: kinds.has(Kind::Streak),
        }
    }
}

/// Hours in which no notification is sent, in the local time of a time zone.
#[derive(Serialize, ToSchema)]
#[schema(as = QuietHours)]
struct QuietItem {
    #[schema(example = "22:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    from: String,
    /// End of the quiet hours; before `from` if they span midnight.
    #[schema(example = "08:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    until: String,
    /// Name from the IANA time zone database.
    #[schema(example = "Europe/Berlin")]
    time_zone: String,
}

/// Push subscription of a browser.
#[derive(Serialize, ToSchema)]
#[schema(as = PushSubscription)]
struct PushItem {
    id: SubscriptionId,
    /// Host of the browser's push service.
    #[schema(example = "push.example.org")]
    host: String,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
}

impl From<&Subscription> for PushItem {
    fn from(subscription: &Subscription) -> Self {
        let host = subscription.endpoint.host_str().unwrap_or_default().to_owned();
        Self { id: subscription.id, host, created_at: subscription.created_at }
    }
}

impl From<&QuietHours> for QuietItem {
    fn from(hours: &QuietHours) -> Self {
        let time_zone = hours.time_zone().to_owned();
        Self { from: hours.from.to_string(), until: hours.until.to_string(), time_zone }
    }
}

impl NotificationsAnswer {
    fn new(settings: &Preferences, vapid_public_key: Option<String>) -> Self {
        let data = NotificationsItem {
            reminders: settings.reminders,
            league_ranks: settings.league_ranks,
            quiet_hours: settings.quiet_hours.as_ref().map(QuietItem::from),
            kinds: settings.kinds.into(),
            push: settings.subscriptions.iter().map(PushItem::from).collect(),
            vapid_public_key,
        };
        Self { data }
    }
}

#[derive(ToSchema)]
pub(super) struct NotificationsChange {
    /// Whether to send reminders. Unchanged if omitted or null.
    reminders: Option<bool>,
    /// Whether to notify of places lost in a league. Unchanged if omitted or null.
    league_ranks: Option<bool>,
    /// New quiet hours. Unchanged if omitted; null removes them.
    #[schema(value_type = Option<QuietItem>)]
    quiet_hours: Change<QuietHours>,
    /// Kinds to switch on or off; those not named stay unchanged. `reminder` must not contradict `reminders`.
    #[schema(value_type = Option<BTreeMap<String, bool>>)]
    kinds: Option<ChangedKinds>,
}

/// Kinds to switch on or off.
struct ChangedKinds(BTreeMap<Kind, bool>);

impl FromJson for ChangedKinds {
    const EXPECTED: &'static str = "must be an object of known kinds, each true or false, such as {\"result\": false}";

    fn from_json(value: &Value) -> Option<Self> {
        let kind = |(name, is_on): (&String, &Value)| Some((Kind::of_name(name)?, is_on.as_bool()?));
        value.as_object()?.iter().map(kind).collect::<Option<_>>().map(Self)
    }
}

impl FromBody for NotificationsChange {
    fn from_body(body: &mut Body) -> Option<Self> {
        let reminders: Option<Option<bool>> = body.optional("reminders");
        let league_ranks = body.optional("league_ranks");
        let quiet_hours = Change::read(body, "quiet_hours");
        let kinds: Option<Option<ChangedKinds>> = body.optional("kinds");
        if let (Some(Some(reminders)), Some(Some(ChangedKinds(kinds)))) = (reminders, &kinds)
            && kinds.get(&Kind::Reminder).is_some_and(|reminder| *reminder != reminders)
        {
            return body.fault("kinds", "must give reminder the same value as reminders");
        }
        Some(Self { reminders: reminders?, league_ranks: league_ranks?, quiet_hours: quiet_hours?, kinds: kinds? })
    }
}

impl From<NotificationsChange> for SettingsChange {
    fn from(NotificationsChange { reminders, league_ranks, quiet_hours, kinds }: NotificationsChange) -> Self {
        let kinds = kinds.map(|ChangedKinds(kinds)| kinds.into_iter().collect()).unwrap_or_default();
        Self { reminders, league_ranks, quiet_hours, kinds }
    }
}

impl FromJson for QuietHours {
    const EXPECTED: &'static str = "must have from and until, two times like 22:00, and a time_zone like Europe/Berlin";

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        let time = |name: &str| text(name).and_then(TimeOfDay::parse);
        Self::new(time("from")?, time("until")?, text("time_zone")?)
    }
}

/// Push subscription as a browser provides it (`PushSubscription.toJSON()`).
#[derive(ToSchema)]
pub(super) struct SubscriptionRequest {
    /// URL at which the browser's push service accepts messages.
    #[schema(value_type = String, max_length = 1000, pattern = r"^https://[A-Za-z0-9.-]+(:[0-9]{1,4})?/[!-~]*$", example = "https://push.example.org/send/dQw4w9WgXcQ")]
    endpoint: EndpointUrl,
    /// Keys for encrypting messages to the browser.
    keys: PushKeys,
}

from_body!(SubscriptionRequest { endpoint, keys });

struct EndpointUrl(Url);

impl FromJson for EndpointUrl {
    const EXPECTED: &'static str = "must be the address of a push service, of at most 1000 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let url: Url = value.as_str().filter(|text| text.len() <= LONGEST_ENDPOINT)?.parse().ok()?;
        (url.has_host() && url.as_str().len() <= LONGEST_ENDPOINT).then_some(Self(url))
    }
}

impl FromJson for PushKeys {
    const EXPECTED: &'static str = "must have p256dh and auth, as the browser provides them";

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        Self::parse(text("p256dh")?, text("auth")?)
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct SubscriptionAdded {
    #[schema(example = "Push subscription added.")]
    message: &'static str,
    data: PushItem,
}

#[derive(Serialize, ToSchema)]
pub(super) struct SubscriptionRemoved {
    #[schema(example = "Push subscription removed.")]
    message: &'static str,
}

impl From<SubscribeError> for ApiError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Address(_) => {
                Self::invalid_field("endpoint", "must be a public https address without a username or password")
            }
            SubscribeError::Service => {
                Self::invalid_field("endpoint", "must be an address of a push service that this server supports")
            }
            SubscribeError::NoPush => {
                Self::new(http::StatusCode::CONFLICT, "push_unavailable", "Web push is not configured on this server.")
            }
            SubscribeError::Database(error) => error.into(),
        }
    }
}

/// Show the caller's notification preferences.
#[utoipa::path(get, path = "/api/auth/me/notifications", tag = "Notifications", security(("token" = [])),
    responses((status = 200, body = NotificationsAnswer)))]
pub(super) async fn get_notifications(
    State(notifications): State<Notifications>,
    user: CurrentUser,
) -> Result<Json<NotificationsAnswer>, ApiError> {
    let settings = notifications.settings(user.id).await?;
    Ok(Json(NotificationsAnswer::new(&settings, notifications.public_key())))
}

/// Change the caller's notification preferences.
///
/// Omitted fields stay unchanged.
#[utoipa::path(put, path = "/api/auth/me/notifications", tag = "Notifications", security(("token" = [])),
    request_body = NotificationsChange, responses((status = 200, body = NotificationsAnswer)))]
pub(super) async fn save_notifications(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    ValidJson(change): ValidJson<NotificationsChange>,
) -> Result<Json<NotificationsAnswer>, ApiError> {
    notifications.change(user.id, change.into()).await?;
    let settings = notifications.settings(user.id).await?;
    Ok(Json(NotificationsAnswer::new(&settings, notifications.public_key())))
}

/// Add a push subscription.
///
/// The caller is then notified in that browser. A user has at most ten subscriptions; an eleventh replaces the oldest.
/// A subscription with a known endpoint gets the new keys.
#[utoipa::path(post, path = "/api/auth/me/notifications/push", tag = "Notifications", security(("token" = [])),
    request_body = SubscriptionRequest,
    responses(
        (status = 200, body = SubscriptionAdded),
        (
            status = 409,
            description = "Web push is not configured (`push_unavailable`), or the same request is in progress",
            body = ErrorBody,
        ),
    ))]
pub(super) async fn add_push_subscription(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    ValidJson(subscription): ValidJson<SubscriptionRequest>,
) -> Result<Json<SubscriptionAdded>, ApiError> {
    let SubscriptionRequest { endpoint: EndpointUrl(endpoint), keys } = subscription;
    let added = notifications.subscribe(user.id, endpoint, keys).await?;
    Ok(Json(SubscriptionAdded { message: "Push subscription added.", data: PushItem::from(&added) }))
}

/// Remove a push subscription.
#[utoipa::path(delete, path = "/api/auth/me/notifications/push/{id}", tag = "Notifications", security(("token" = [])),
    params(("id" = SubscriptionId, Path, description = "Id of the subscription, as returned with the preferences")),
    responses(
        (status = 200, body = SubscriptionRemoved),
        (status = 404, description = "The caller has no such subscription", body = ErrorBody),
    ))]
pub(super) async fn remove_push_subscription(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    Path(id): Path<SubscriptionId>,
) -> Result<Json<SubscriptionRemoved>, ApiError> {
    if !notifications.unsubscribe(user.id, id).await? {
        return Err(ApiError::not_found("The push subscription"));
    }
    Ok(Json(SubscriptionRemoved { message: "Push subscription removed." }))
}
