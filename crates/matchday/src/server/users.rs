//! Accounts, their restrictions and their sessions.

use std::{str::FromStr, sync::Arc};

use axum::{Json, extract::State};
use platform::clock::Clock;
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Path, SecondPath, ValidJson,
    fields::{FromJson, Moment, from_body},
    ids::UserId,
};

use crate::{
    chat::moderation::service::{Moderation, ModerationError},
    identity::{
        accounts::{
            restrictions::Restriction,
            service::{Account, Accounts, CurrentRestriction},
        },
        phone::Phone,
        server_keys::{
            Authorized,
            scopes::{UsersRead, UsersWrite},
        },
        sessions::service::{SessionError, Sessions},
    },
};

/// A body that is checked after the path, so that an unknown path is 404 whatever the body is.
pub(super) type LateJson<T> = Result<ValidJson<T>, ApiError>;

/// Finds the account that a path names, by user id or username.
pub(super) async fn named(accounts: &Accounts, user: &str) -> Result<Account, ApiError> {
    accounts.resolve(user).await?.ok_or_else(|| ApiError::not_found("The user"))
}

/// Reason of an action, stored in the audit log.
#[derive(Debug)]
pub(super) struct ReasonText(pub(super) String);

impl FromJson for ReasonText {
    const EXPECTED: &'static str = "must be a string of 1 to 500 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let text = value.as_str()?.trim();
        let fits = (1..=500).contains(&text.chars().count()) && !text.contains(|c: char| c.is_control() && c != '\n');
        fits.then(|| Self(text.to_owned()))
    }
}

/// Body of an action that needs nothing but a reason.
#[derive(ToSchema)]
#[schema(as = ActionReason)]
pub(super) struct ReasonBody {
    /// Stored in the audit log.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = r"^[\t-\r ]*[^\x00-\x09\x0b-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x09\x0b-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Stolen phone")]
    pub(super) reason: ReasonText,
}

from_body!(ReasonBody { reason });

#[derive(Serialize, ToSchema)]
#[schema(as = ServerUserResponse)]
pub(super) struct UserResponse {
    data: UserItem,
}

/// A user, without phone, email and date of birth.
#[derive(Serialize, ToSchema)]
#[schema(as = ServerUser)]
struct UserItem {
    id: UserId,
    #[schema(example = "ada")]
    username: String,
    #[schema(required, example = "Ada")]
    name: Option<String>,
    #[serde(with = "platform::timestamp")]
    created_at: OffsetDateTime,
    restrictions: Vec<RestrictionItem>,
}

#[derive(Serialize, ToSchema)]
#[schema(as = ServerUserRestriction)]
struct RestrictionItem {
    /// `ban` or `mute`.
    #[schema(example = "mute")]
    kind: &'static str,
    #[schema(example = "Spam")]
    reason: String,
    /// Null if it has no end.
    #[serde(with = "platform::timestamp::option")]
    #[schema(required)]
    until: Option<OffsetDateTime>,
    #[serde(with = "platform::timestamp")]
    created_at: OffsetDateTime,
}

impl From<CurrentRestriction> for RestrictionItem {
    fn from(CurrentRestriction { kind, reason, until, created_at }: CurrentRestriction) -> Self {
        Self { kind, reason, until, created_at }
    }
}

async fn shown(accounts: &Accounts, account: Account) -> Result<UserItem, ApiError> {
    let restrictions = accounts.restrictions(&account).await?.into_iter().map(Into::into).collect();
    let Account { id, username, name, created_at, .. } = account;
    Ok(UserItem { id, username: username.as_str().to_owned(), name, created_at, restrictions })
}

/// Get a user.
#[utoipa::path(get, path = "/api/server/v1/users/{user}", tag = "Users",
    params(("user" = String, Path, description = "User id or username", example = "12")),
    responses(
        (status = 200, body = UserResponse),
        (status = 404, description = "The user does not exist", body = ErrorBody),
    ))]
pub(super) async fn get_user(
    _: Authorized<UsersRead>,
    State(accounts): State<Accounts>,
    Path(user): Path<String>,
) -> Result<Json<UserResponse>, ApiError> {
    let account = named(&accounts, &user).await?;
    Ok(Json(UserResponse { data: shown(&accounts, account).await? }))
}

#[derive(ToSchema)]
#[schema(as = UserLookup)]
pub(super) struct LookupBody {
    /// In international format. It is in the body, because paths are logged.
    #[schema(value_type = String, pattern = r"^[ ().-]*\+[ ().-]*[1-9]([ ().-]*[0-9]){6,14}[ ().-]*$", max_length = 40, example = "+14155550100")]
    phone: Phone,
}

from_body!(LookupBody { phone });

/// Find a user by phone.
#[utoipa::path(post, path = "/api/server/v1/users/lookup", tag = "Users",
    request_body = LookupBody,
    responses(
        (status = 200, body = UserResponse),
        (status = 404, description = "No user has this phone", body = ErrorBody),
    ))]
pub(super) async fn look_up_user(
    _: Authorized<UsersRead>,
    State(accounts): State<Accounts>,
    ValidJson(LookupBody { phone }): ValidJson<LookupBody>,
) -> Result<Json<UserResponse>, ApiError> {
    let account = accounts.with_phone(&phone).await?.ok_or_else(|| ApiError::not_found("The user"))?;
    Ok(Json(UserResponse { data: shown(&accounts, account).await? }))
}

/// Kind of a restriction in the path.
#[derive(Clone, Copy, Debug, ToSchema)]
#[schema(rename_all = "snake_case")]
pub(super) enum Kind {
    Ban,
    Mute,
}

impl FromStr for Kind {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        match text {
            "ban" => Ok(Self::Ban),
            "mute" => Ok(Self::Mute),
            _ => Err(()),
        }
    }
}

#[derive(ToSchema)]
#[schema(as = UserRestriction)]
pub(super) struct RestrictionBody {
    /// Shown to operators and backends, and stored in the audit log.
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = r"^[\t-\r ]*[^\x00-\x09\x0b-\x1f\x7f-\x9f]*[^\s\x00-\x1f\x7f-\x9f][^\x00-\x09\x0b-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Spam")]
    reason: ReasonText,
    /// End of the restriction, in the future. Null or absent: until it is lifted.
    #[schema(value_type = Option<String>, format = DateTime, example = "2026-11-20T15:00:00.000Z")]
    until: Option<Moment>,
}

from_body!(RestrictionBody { reason, until });

#[derive(Serialize, ToSchema)]
#[schema(as = ServerUserChanged)]
pub(super) struct UserChanged {
    #[schema(example = "The user is muted.")]
    message: &'static str,
    data: UserItem,
}

/// Ban or mute a user.
///
/// Replaces a restriction of the same kind.
#[utoipa::path(put, path = "/api/server/v1/users/{user}/restrictions/{kind}", tag = "Users",
    params(
        ("user" = String, Path, description = "User id or username", example = "12"),
        ("kind" = inline(Kind), Path, description = "Kind of the restriction"),
    ),
    request_body = RestrictionBody,
    responses(
        (status = 200, body = UserChanged),
        (status = 404, description = "The user or the kind does not exist", body = ErrorBody),
    ))]
pub(super) async fn restrict_user(
    caller: Authorized<UsersWrite>,
    State(accounts): State<Accounts>,
    State(moderation): State<Moderation>,
    State(clock): State<Arc<dyn Clock>>,
    Path(user): Path<String>,
    SecondPath(kind): SecondPath<Kind>,
    body: LateJson<RestrictionBody>,
) -> Result<Json<UserChanged>, ApiError> {
    let account = named(&accounts, &user).await?;
    let ValidJson(RestrictionBody { reason: ReasonText(reason), until }) = body?;
    let until = until.map(|Moment(until)| until);
    if until.is_some_and(|until| until <= clock.now()) {
        return Err(ApiError::invalid_field("until", "must be in the future"));
    }
    let (restriction, message) = match kind {
        Kind::Ban => (Restriction::Ban, "The user is banned."),
        Kind::Mute => (Restriction::Mute, "The user is muted."),
    };
    moderation.replace(account.id, restriction, until, &caller.operator(reason)).await?;
    changed(&accounts, account.id, message).await
}

/// Lift the ban or the mute of a user.
///
/// Succeeds without a change if there is none.
#[utoipa::path(delete, path = "/api/server/v1/users/{user}/restrictions/{kind}", tag = "Users",
    params(
        ("user" = String, Path, description = "User id or username", example = "12"),
        ("kind" = inline(Kind), Path, description = "Kind of the restriction"),
    ),
    request_body = ReasonBody,
    responses(
        (status = 200, body = UserChanged),
        (status = 404, description = "The user or the kind does not exist", body = ErrorBody),
    ))]
pub(super) async fn lift_restriction(
    caller: Authorized<UsersWrite>,
    State(accounts): State<Accounts>,
    State(moderation): State<Moderation>,
    Path(user): Path<String>,
    SecondPath(kind): SecondPath<Kind>,
    body: LateJson<ReasonBody>,
) -> Result<Json<UserChanged>, ApiError> {
    let account = named(&accounts, &user).await?;
    let ValidJson(ReasonBody { reason: ReasonText(reason) }) = body?;
    let (restriction, message) = match kind {
        Kind::Ban => (Restriction::Unban, "The user is not banned."),
        Kind::Mute => (Restriction::Unmute, "The user is not muted."),
    };
    match moderation.restrict(account.id, restriction, &caller.operator(reason)).await {
        Ok(()) | Err(ModerationError::Unchanged) => changed(&accounts, account.id, message).await,
        Err(error) => Err(error.into()),
    }
}

async fn changed(accounts: &Accounts, user: UserId, message: &'static str) -> Result<Json<UserChanged>, ApiError> {
    let account = accounts.find(user).await?.ok_or_else(|| ApiError::not_found("The user"))?;
    Ok(Json(UserChanged { message, data: shown(accounts, account).await? }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct SessionsEnded {
    #[schema(example = "The sessions of the user have ended.")]
    message: &'static str,
    data: EndedItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = EndedSessions)]
struct EndedItem {
    #[schema(minimum = 0, example = 2)]
    ended: usize,
}

/// End all sessions of a user.
#[utoipa::path(delete, path = "/api/server/v1/users/{user}/sessions", tag = "Users",
    params(("user" = String, Path, description = "User id or username", example = "12")),
    request_body = ReasonBody,
    responses(
        (status = 200, body = SessionsEnded),
        (status = 404, description = "The user does not exist", body = ErrorBody),
    ))]
pub(super) async fn end_sessions(
    caller: Authorized<UsersWrite>,
    State(accounts): State<Accounts>,
    State(sessions): State<Sessions>,
    Path(user): Path<String>,
    body: LateJson<ReasonBody>,
) -> Result<Json<SessionsEnded>, ApiError> {
    let account = named(&accounts, &user).await?;
    let ValidJson(ReasonBody { reason: ReasonText(reason) }) = body?;
    let ended = match sessions.end_all_by(account.id, &caller.operator(reason)).await {
        Err(SessionError::NoSuchUser(_)) => return Err(ApiError::not_found("The user")),
        ended => ended?,
    };
    Ok(Json(SessionsEnded { message: "The sessions of the user have ended.", data: EndedItem { ended } }))
}
