//! HTTP handlers for moderators, slow mode and mutes of a room.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, SecondPath, ValidJson, fields::from_body, ids::UserId, permitted};

use super::{
    rules::{ActReason, MuteSeconds, SlowMode, UserName},
    service::{Moderator, RoleError, RoomModeration},
};
use crate::chat::rooms::{
    ReadableRoom, RoomPath,
    service::{Action, Rooms},
};

impl From<RoleError> for ApiError {
    fn from(error: RoleError) -> Self {
        let forbidden = |code, message: &'static str| Self::new(StatusCode::FORBIDDEN, code, message);
        match error {
            RoleError::Room(error) => error.into(),
            RoleError::NotTheCreator => forbidden("not_the_creator", "Only the creator of this room may do this."),
            RoleError::NotAModerator => forbidden("not_a_moderator", "Only moderators of this room may do this."),
            RoleError::NoSuchMember => Self::not_found("The member"),
            RoleError::IsCreator => Self::invalid_field("user", "must not be the creator of the room"),
            RoleError::IsModerator => Self::invalid_field("user", "must not be a moderator of the room"),
            RoleError::TooMany => {
                let message = "The room has too many moderators. Dismiss another one first.";
                Self::new(StatusCode::CONFLICT, "too_many_moderators", message)
            }
            RoleError::Database(error) => error.into(),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct ModeratorList {
    data: Vec<ModeratorItem>,
}

/// A moderator of a room.
#[derive(Serialize, ToSchema)]
#[schema(as = RoomModerator)]
struct ModeratorItem {
    id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
}

impl From<Moderator> for ModeratorItem {
    fn from(Moderator { id, username }: Moderator) -> Self {
        Self { id, username }
    }
}

/// List the moderators of a room, its creator first.
#[utoipa::path(get, path = "/api/auth/chat-rooms/{room}/moderators", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath),
    responses(
        (status = 200, body = ModeratorList),
        (status = 403, description = "The room is private and the caller is not a member", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
    ))]
pub(super) async fn list_moderators(
    State(moderation): State<RoomModeration>,
    ReadableRoom { room, .. }: ReadableRoom,
) -> Result<Json<ModeratorList>, ApiError> {
    let moderators = moderation.moderators(&room).await?;
    Ok(Json(ModeratorList { data: moderators.into_iter().map(ModeratorItem::from).collect() }))
}

#[derive(Serialize, ToSchema)]
#[schema(as = RoomModerationDone)]
pub(super) struct Done {
    #[schema(example = "The user is a moderator of this room.")]
    message: &'static str,
}

/// Make a member a moderator of a room, as its creator.
///
/// Moderators remove messages, mute members and set slow mode. A moderator who leaves the room is dismissed.
#[utoipa::path(put, path = "/api/auth/chat-rooms/{room}/moderators/{user}", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath, ("user" = String, Path, description = "Id or username", example = "swift_winger")),
    responses(
        (status = 200, description = "Also if the user is a moderator already", body = Done),
        (status = 403, description = "The caller did not create the room (`not_the_creator`), or may not read it", body = ErrorBody),
        (status = 404, description = "The room does not exist, or the user is not a member", body = ErrorBody),
        (status = 409, description = "The room has 20 moderators already (`too_many_moderators`)", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn appoint_moderator(
    State(rooms): State<Rooms>,
    State(moderation): State<RoomModeration>,
    ReadableRoom { user, room }: ReadableRoom,
    SecondPath(named): SecondPath<UserName>,
) -> Result<Json<Done>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    moderation.appoint(user.id, &room, &named).await?;
    Ok(Json(Done { message: "The user is a moderator of this room." }))
}

/// Dismiss a moderator of a room, as its creator. Moderators may dismiss themselves.
#[utoipa::path(delete, path = "/api/auth/chat-rooms/{room}/moderators/{user}", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath, ("user" = String, Path, description = "Id or username", example = "swift_winger")),
    responses(
        (status = 200, description = "Also if the user is not a moderator", body = Done),
        (status = 403, description = "The caller did not create the room (`not_the_creator`), or may not read it", body = ErrorBody),
        (status = 404, description = "The room or the user does not exist", body = ErrorBody),
        (status = 422, description = "The user is the creator of the room", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn dismiss_moderator(
    State(rooms): State<Rooms>,
    State(moderation): State<RoomModeration>,
    ReadableRoom { user, room }: ReadableRoom,
    SecondPath(named): SecondPath<UserName>,
) -> Result<Json<Done>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    moderation.dismiss(user.id, &room, &named).await?;
    Ok(Json(Done { message: "The user is not a moderator of this room." }))
}

#[derive(ToSchema)]
#[schema(as = SlowModeRequest)]
pub(super) struct SlowModeWish {
    /// Shortest time between two messages of a member; 0 turns slow mode off.
    #[schema(value_type = i32, minimum = 0, maximum = 3600, example = 30)]
    seconds: SlowMode,
}

from_body!(SlowModeWish { seconds });

#[derive(Serialize, ToSchema)]
pub(super) struct SlowModeSet {
    #[schema(example = "Slow mode is on.")]
    message: &'static str,
    data: SlowModeItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RoomSlowMode)]
struct SlowModeItem {
    #[schema(example = 30)]
    seconds: i32,
}

/// Limit how often each member may write in a room, as a moderator. Moderators are exempt.
#[utoipa::path(put, path = "/api/auth/chat-rooms/{room}/slow-mode", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath), request_body = SlowModeWish,
    responses(
        (status = 200, body = SlowModeSet),
        (status = 403, description = "The caller is not a moderator (`not_a_moderator`), or may not read the room", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn set_slow_mode(
    State(rooms): State<Rooms>,
    State(moderation): State<RoomModeration>,
    ReadableRoom { user, room }: ReadableRoom,
    ValidJson(wish): ValidJson<SlowModeWish>,
) -> Result<Json<SlowModeSet>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    moderation.set_slow_mode(user.id, &room, wish.seconds).await?;
    let SlowMode(seconds) = wish.seconds;
    let message = if seconds == 0 { "Slow mode is off." } else { "Slow mode is on." };
    Ok(Json(SlowModeSet { message, data: SlowModeItem { seconds } }))
}

#[derive(ToSchema)]
#[schema(as = RoomMuteRequest)]
pub(super) struct MuteWish {
    #[schema(value_type = i64, minimum = 60, maximum = 604_800, example = 600)]
    seconds: MuteSeconds,
    #[schema(value_type = Option<String>, max_length = 500, pattern = r"^[\t-\r ]*[^\x00-\x09\x0b-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Spam")]
    reason: Option<ActReason>,
}

from_body!(MuteWish { seconds, reason });

#[derive(Serialize, ToSchema)]
pub(super) struct Muted {
    #[schema(example = "The user is muted in this room.")]
    message: &'static str,
    data: MuteItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RoomMute)]
struct MuteItem {
    user_id: UserId,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:31:07.000Z")]
    until: OffsetDateTime,
}

/// Mute a member in a room for a time, as a moderator.
#[utoipa::path(put, path = "/api/auth/chat-rooms/{room}/mutes/{user}", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath, ("user" = String, Path, description = "Id or username", example = "swift_winger")),
    request_body = MuteWish,
    responses(
        (status = 200, body = Muted),
        (status = 403, description = "The caller is not a moderator (`not_a_moderator`), or may not read the room", body = ErrorBody),
        (status = 404, description = "The room does not exist, or the user is not a member", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn mute_member(
    State(rooms): State<Rooms>,
    State(moderation): State<RoomModeration>,
    ReadableRoom { user, room }: ReadableRoom,
    SecondPath(named): SecondPath<UserName>,
    ValidJson(wish): ValidJson<MuteWish>,
) -> Result<Json<Muted>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    let reason = wish.reason.unwrap_or_default();
    let mute = moderation.mute(user.id, &room, &named, wish.seconds, reason.as_str()).await?;
    let data = MuteItem { user_id: mute.user_id, until: mute.until };
    Ok(Json(Muted { message: "The user is muted in this room.", data }))
}

/// End the mute of a user in a room, as a moderator.
#[utoipa::path(delete, path = "/api/auth/chat-rooms/{room}/mutes/{user}", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath, ("user" = String, Path, description = "Id or username", example = "swift_winger")),
    responses(
        (status = 200, description = "Also if the user is not muted", body = Done),
        (status = 403, description = "The caller is not a moderator (`not_a_moderator`), or may not read the room", body = ErrorBody),
        (status = 404, description = "The room or the user does not exist", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn unmute_member(
    State(rooms): State<Rooms>,
    State(moderation): State<RoomModeration>,
    ReadableRoom { user, room }: ReadableRoom,
    SecondPath(named): SecondPath<UserName>,
) -> Result<Json<Done>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    moderation.unmute(user.id, &room, &named).await?;
    Ok(Json(Done { message: "The user is not muted in this room." }))
}
