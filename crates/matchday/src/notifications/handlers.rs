//! HTTP for notifications.

use axum::{Json, extract::State};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use url::Url;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Path, ValidJson,
    fields::{Change, FromJson, from_body},
    ids::SubscriptionId,
};

use super::{
    rules::{LONGEST_ENDPOINT, PushKeys, QuietHours, TimeOfDay},
    service::{Notifications, Preferences, SettingsChange, SubscribeError, Subscription},
};
use crate::sessions::CurrentUser;

#[derive(Serialize, ToSchema)]
pub(super) struct NotificationsAnswer {
    data: NotificationsItem,
}

/// What the caller wants to be notified of, and where.
#[derive(Serialize, ToSchema)]
#[schema(as = Notifications)]
struct NotificationsItem {
    /// Whether the caller is reminded, an hour before, of matches of their teams that they have not predicted.
    reminders: bool,
    /// When nothing is sent; null is never.
    #[schema(required)]
    quiet_hours: Option<QuietItem>,
    /// The browsers that are notified, oldest first.
    push: Vec<PushItem>,
    /// What a browser needs to subscribe (`applicationServerKey`); null where this service notifies no browsers.
    #[schema(
        required,
        example = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4"
    )]
    vapid_public_key: Option<String>,
}

/// When nothing is sent, by the clocks of a time zone.
#[derive(Serialize, ToSchema)]
#[schema(as = QuietHours)]
struct QuietItem {
    #[schema(example = "22:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    from: String,
    /// Before `from` if midnight lies between.
    #[schema(example = "08:00", pattern = "^([01][0-9]|2[0-3]):[0-5][0-9]$")]
    until: String,
    /// A name of the time zone database.
    #[schema(example = "Europe/Berlin")]
    time_zone: String,
}

/// A browser that is notified.
#[derive(Serialize, ToSchema)]
#[schema(as = PushSubscription)]
struct PushItem {
    id: SubscriptionId,
    /// The host of its push service.
    #[schema(example = "push.example.org")]
    host: String,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-20T15:00:00Z")]
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
            quiet_hours: settings.quiet_hours.as_ref().map(QuietItem::from),
            push: settings.subscriptions.iter().map(PushItem::from).collect(),
            vapid_public_key,
        };
        Self { data }
    }
}

#[derive(ToSchema)]
pub(super) struct NotificationsChange {
    /// Left out or null it stays.
    reminders: Option<bool>,
    /// Left out they stay; null is none.
    #[schema(value_type = Option<QuietItem>)]
    quiet_hours: Change<QuietHours>,
}

from_body!(NotificationsChange { reminders, quiet_hours });

impl From<NotificationsChange> for SettingsChange {
    fn from(NotificationsChange { reminders, quiet_hours }: NotificationsChange) -> Self {
        Self { reminders, quiet_hours }
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

/// A subscription as a browser gives it (`PushSubscription.toJSON()`).
#[derive(ToSchema)]
pub(super) struct NewSubscription {
    /// Where the browser's push service takes messages for it.
    #[schema(value_type = String, max_length = 1000, pattern = r"^https://[A-Za-z0-9.-]+(:[0-9]{1,4})?/[!-~]*$", example = "https://push.example.org/send/dQw4w9WgXcQ")]
    endpoint: EndpointUrl,
    /// What messages are encrypted with.
    keys: PushKeys,
}

from_body!(NewSubscription { endpoint, keys });

/// The address of a push service.
struct EndpointUrl(Url);

impl FromJson for EndpointUrl {
    const EXPECTED: &'static str = "must be the address of a push service, of at most 1000 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let url: Url = value.as_str().filter(|text| text.len() <= LONGEST_ENDPOINT)?.parse().ok()?;
        (url.has_host() && url.as_str().len() <= LONGEST_ENDPOINT).then_some(Self(url))
    }
}

impl FromJson for PushKeys {
    const EXPECTED: &'static str = "must have p256dh and auth, as the browser gave them";

    fn from_json(value: &Value) -> Option<Self> {
        let text = |name: &str| value.get(name).and_then(Value::as_str);
        Self::parse(text("p256dh")?, text("auth")?)
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct SubscriptionAdded {
    #[schema(example = "This browser is notified from now on.")]
    message: &'static str,
    data: PushItem,
}

#[derive(Serialize, ToSchema)]
pub(super) struct SubscriptionRemoved {
    #[schema(example = "That browser is notified no more.")]
    message: &'static str,
}

impl From<SubscribeError> for ApiError {
    fn from(error: SubscribeError) -> Self {
        match error {
            SubscribeError::Address(_) => Self::invalid_field(
                "endpoint",
                "must be an https address on the internet, without a name or a password",
            ),
            SubscribeError::Service => {
                Self::invalid_field("endpoint", "must be an address of a push service that this server supports")
            }
            SubscribeError::NoPush => {
                Self::new(http::StatusCode::CONFLICT, "push_unavailable", "This service does not notify browsers.")
            }
            SubscribeError::Database(error) => error.into(),
        }
    }
}

/// Show what the caller wants to be notified of, and where.
#[utoipa::path(get, path = "/api/auth/me/notifications", tag = "Notifications", security(("token" = [])),
    responses((status = 200, body = NotificationsAnswer)))]
pub(super) async fn get_notifications(
    State(notifications): State<Notifications>,
    user: CurrentUser,
) -> Result<Json<NotificationsAnswer>, ApiError> {
    let settings = notifications.settings(user.id).await?;
    Ok(Json(NotificationsAnswer::new(&settings, notifications.public_key())))
}

/// Change what the caller wants to be notified of; what is not named stays.
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

/// Notify the caller in a browser.
///
/// A user has at most ten; an eleventh takes the place of the oldest. One with an endpoint that is there already gets its
/// new keys.
#[utoipa::path(post, path = "/api/auth/me/notifications/push", tag = "Notifications", security(("token" = [])),
    request_body = NewSubscription,
    responses(
        (status = 200, body = SubscriptionAdded),
        (status = 409, description = "This service notifies no browsers (`push_unavailable`), or the same request is under way", body = ErrorBody),
    ))]
pub(super) async fn add_push_subscription(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    ValidJson(subscription): ValidJson<NewSubscription>,
) -> Result<Json<SubscriptionAdded>, ApiError> {
    let NewSubscription { endpoint: EndpointUrl(endpoint), keys } = subscription;
    let added = notifications.subscribe(user.id, endpoint, keys).await?;
    Ok(Json(SubscriptionAdded { message: "This browser is notified from now on.", data: PushItem::from(&added) }))
}

/// Do not notify the caller in a browser any more.
#[utoipa::path(delete, path = "/api/auth/me/notifications/push/{id}", tag = "Notifications", security(("token" = [])),
    params(("id" = SubscriptionId, Path, description = "As listed")),
    responses(
        (status = 200, body = SubscriptionRemoved),
        (status = 404, description = "The caller has no such browser", body = ErrorBody),
    ))]
pub(super) async fn remove_push_subscription(
    State(notifications): State<Notifications>,
    user: CurrentUser,
    Path(id): Path<SubscriptionId>,
) -> Result<Json<SubscriptionRemoved>, ApiError> {
    if !notifications.unsubscribe(user.id, id).await? {
        return Err(ApiError::not_found("The browser"));
    }
    Ok(Json(SubscriptionRemoved { message: "That browser is notified no more." }))
}
