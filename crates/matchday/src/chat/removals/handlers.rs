//! HTTP handlers for removing messages.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, OptionalJson, Query, SecondPath,
    fields::from_body,
    paging::{PageMeta, Paging},
    permitted,
};

use super::service::{RemovalError, Removals, RemovedMessage};
use crate::{
    chat::{
        room_moderation::rules::ActReason,
        rooms::{
            ReadableRoom, RoomPath,
            service::{Action, Rooms},
        },
    },
    identity::sessions::CurrentUser,
};

impl From<RemovalError> for ApiError {
    fn from(error: RemovalError) -> Self {
        match error {
            RemovalError::Room(error) => error.into(),
            RemovalError::NoSuchMessage => Self::not_found("The message"),
            RemovalError::NoSuchUser => Self::not_found("The user"),
            RemovalError::NotAModerator => {
                let message = "Only the sender and moderators of this room may remove this message.";
                Self::new(StatusCode::FORBIDDEN, "not_a_moderator", message)
            }
            RemovalError::Restriction(error) => error.into(),
            RemovalError::Plan(error) => Self::internal(error),
            RemovalError::Database(error) => error.into(),
        }
    }
}

#[derive(ToSchema)]
#[schema(as = MessageRemoval)]
pub(super) struct RemovalWish {
    /// Shown in the room and to the sender.
    #[schema(value_type = Option<String>, max_length = 500, pattern = r"^[\t-\r ]*[^\x00-\x09\x0b-\x1f\x7f-\x9f]*[\t-\r ]*$", example = "Insults")]
    reason: Option<ActReason>,
}

from_body!(RemovalWish { reason });

#[derive(Serialize, ToSchema)]
pub(super) struct MessageRemoved {
    #[schema(example = "Message removed.")]
    message: &'static str,
    data: RemovedItem,
}

#[derive(Serialize, ToSchema)]
#[schema(as = RemovedChatMessage)]
struct RemovedItem {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: String,
    removed: bool,
}

/// Remove a message, as its sender, as a moderator of the room or as its creator.
///
/// Also works in encrypted rooms. Removing a removed message changes nothing.
#[utoipa::path(delete, path = "/api/auth/chat-rooms/{room}/messages/{event_id}", tag = "Chat rooms", security(("token" = [])),
    params(RoomPath, ("event_id" = String, Path, description = "The homeserver's id of the message, percent-encoded", example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")),
    request_body = Option<RemovalWish>,
    responses(
        (status = 200, body = MessageRemoved),
        (status = 403, description = "The caller neither sent the message nor moderates the room (`not_a_moderator`), or may not read the room", body = ErrorBody),
        (status = 404, description = "The room does not exist, or has no such message", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
        (status = 503, description = "Chat is unavailable (`chat_unavailable`); retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn remove_message(
    State(rooms): State<Rooms>,
    State(removals): State<Removals>,
    ReadableRoom { user, room }: ReadableRoom,
    SecondPath(event_id): SecondPath<String>,
    OptionalJson(wish): OptionalJson<RemovalWish>,
) -> Result<Json<MessageRemoved>, ApiError> {
    permitted(rooms.permit(Action::Move, user.id).await)?;
    removals.remove(user.id, &room, &event_id, wish.reason.unwrap_or_default().as_str()).await?;
    let data = RemovedItem { room_id: room.matrix_id.unwrap_or_default(), event_id, removed: true };
    Ok(Json(MessageRemoved { message: "Message removed.", data }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct RemovedList {
    data: Vec<RemovedListItem>,
    meta: PageMeta,
}

/// A message of the caller that was removed.
#[derive(Serialize, ToSchema)]
#[schema(as = RemovedMessageNotice)]
struct RemovedListItem {
    #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
    room_id: String,
    #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: String,
    /// `moderator`, `operator`, `filter`, `classifier` or `slow_mode`.
    #[schema(example = "moderator")]
    source: String,
    #[schema(example = "Insults")]
    reason: String,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:21:07.000Z")]
    removed_at: OffsetDateTime,
}

impl From<RemovedMessage> for RemovedListItem {
    fn from(removed: RemovedMessage) -> Self {
        let RemovedMessage { room, event_id, source, reason, removed_at } = removed;
        Self { room_id: room, event_id, source, reason, removed_at }
    }
}

/// List the caller's messages that were removed by others, latest first.
#[utoipa::path(get, path = "/api/auth/removed-messages", tag = "Safety", security(("token" = [])),
    params(Paging), responses(
        (status = 200, body = RemovedList),
        (status = 503, description = "Chat is not configured (`chat_unavailable`)", body = ErrorBody),
    ))]
pub(super) async fn list_removed_messages(
    State(removals): State<Removals>,
    user: CurrentUser,
    Query(paging): Query<Paging>,
) -> Result<Json<RemovedList>, ApiError> {
    let (removed, total) = removals.of_sender(user.id, paging).await?;
    Ok(Json(RemovedList { data: removed.into_iter().map(RemovedListItem::from).collect(), meta: paging.meta(total) }))
}
