//! HTTP for safety.

use axum::{Json, extract::State, response::IntoResponse};
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Path, Query, ValidJson,
    fields::from_body,
    ids::UserId,
    paging::{PageMeta, Paging},
    permitted,
};

use super::{
    rules::{MessageId, Reason},
    service::{Blocked, Moderation, ModerationError},
};
use crate::{
    chat::rooms::{ReadableRoom, RoomPath},
    identity::sessions::CurrentUser,
};

impl From<ModerationError> for ApiError {
    fn from(error: ModerationError) -> Self {
        match error {
            ModerationError::NoSuchUser => Self::not_found("The user"),
            ModerationError::NoSuchMessage => Self::invalid_field("event_id", "must be that of a message in this room"),
            ModerationError::Oneself => Self::invalid_field("user", "must be somebody else"),
            ModerationError::TooMany => {
                Self::new(StatusCode::CONFLICT, "too_many_blocks", "You block too many users already.")
            }
            ModerationError::InvalidLength => Self::invalid_field("for", "must be from one minute to ten years"),
            ModerationError::AlreadySo => Self::new(StatusCode::CONFLICT, "already_so", "It is so already."),
            ModerationError::Database(error) => error.into(),
            ModerationError::Message(error) => Self::internal(error),
        }
    }
}

#[derive(Serialize, ToSchema)]
pub(super) struct BlockList {
    data: Vec<BlockedItem>,
    meta: PageMeta,
}

/// Somebody whom the caller has blocked.
#[derive(Serialize, ToSchema)]
#[schema(as = BlockedUser)]
struct BlockedItem {
    id: UserId,
    #[schema(example = "swift_winger")]
    username: String,
    #[serde(with = "time::serde::rfc3339")]
    #[schema(example = "2026-11-20T15:00:00Z")]
    blocked_at: OffsetDateTime,
}

impl From<Blocked> for BlockedItem {
    fn from(blocked: Blocked) -> Self {
        Self { id: blocked.id, username: blocked.username, blocked_at: blocked.created_at }
    }
}

/// List whom the caller has blocked, the newest first.
#[utoipa::path(get, path = "/api/auth/blocks", tag = "Safety", security(("token" = [])),
    params(Paging), responses((status = 200, body = BlockList)))]
pub(super) async fn list_blocks(
    State(safety): State<Moderation>,
    user: CurrentUser,
    Query(paging): Query<Paging>,
) -> Result<Json<BlockList>, ApiError> {
    let (blocks, total) = safety.blocks(user.id, paging).await?;
    Ok(Json(BlockList { data: blocks.into_iter().map(BlockedItem::from).collect(), meta: paging.meta(total) }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct BlockAnswer {
    #[schema(example = "This user is blocked.")]
    message: &'static str,
}

/// Block a user.
///
/// Their predictions and rooms are not shown to the caller any more, their invitations are refused, and chat clients hide
/// what they say.
#[utoipa::path(post, path = "/api/auth/blocks/{user}", tag = "Safety", security(("token" = [])),
    params(("user" = UserId, Path, description = "Whom to block")),
    responses(
        (status = 200, body = BlockAnswer),
        (status = 404, description = "There is no such user", body = ErrorBody),
        (status = 409, description = "A thousand users are blocked already", body = ErrorBody),
        (status = 422, description = "Nobody blocks themselves", body = ErrorBody),
        (status = 429, description = "Too often; `Retry-After` says when to ask again", body = ErrorBody),
    ))]
pub(super) async fn block_user(
    State(safety): State<Moderation>,
    user: CurrentUser,
    Path(other): Path<UserId>,
) -> Result<Json<BlockAnswer>, ApiError> {
    permitted(safety.permit_block(user.id).await)?;
    safety.block(user.id, other).await?;
    Ok(Json(BlockAnswer { message: "This user is blocked." }))
}

/// Lift a block. That there is none is fine.
#[utoipa::path(delete, path = "/api/auth/blocks/{user}", tag = "Safety", security(("token" = [])),
    params(("user" = UserId, Path, description = "Whom to meet again")),
    responses(
        (status = 200, body = BlockAnswer),
        (status = 404, description = "That cannot be a user", body = ErrorBody),
        (status = 429, description = "Too often; `Retry-After` says when to ask again", body = ErrorBody),
    ))]
pub(super) async fn unblock_user(
    State(safety): State<Moderation>,
    user: CurrentUser,
    Path(other): Path<UserId>,
) -> Result<Json<BlockAnswer>, ApiError> {
    permitted(safety.permit_block(user.id).await)?;
    safety.unblock(user.id, other).await?;
    Ok(Json(BlockAnswer { message: "This user is not blocked any more." }))
}

#[derive(ToSchema)]
pub(super) struct ReportedMessage {
    /// The message, as the homeserver names it.
    #[schema(value_type = String, pattern = r"^\$[A-Za-z0-9._:/+-]+$", max_length = 255, example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: MessageId,
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$", example = "Insults")]
    reason: Reason,
}

from_body!(ReportedMessage { event_id, reason });

#[derive(Serialize, ToSchema)]
pub(super) struct ReportAnswer {
    #[schema(example = "Thank you. Somebody will look at it.")]
    message: &'static str,
}

/// Report a message.
///
/// It is kept for the operators with what it says, also if its sender takes it back. Of an encrypted one only the sender
/// and the time can be read, so let the reason say what it was. Reporting a message again changes nothing.
#[utoipa::path(post, path = "/api/auth/chat-rooms/{room}/reports", tag = "Safety", security(("token" = [])),
    params(RoomPath), request_body = ReportedMessage,
    responses(
        (status = 200, description = "The caller has reported it before", body = ReportAnswer),
        (status = 201, body = ReportAnswer),
        (status = 403, description = "A private room, and the caller is no member", body = ErrorBody),
        (status = 404, description = "There is no such room", body = ErrorBody),
        (status = 429, description = "Too often; `Retry-After` says when to ask again", body = ErrorBody),
    ))]
pub(super) async fn report_message(
    State(safety): State<Moderation>,
    looked_at: ReadableRoom,
    ValidJson(report): ValidJson<ReportedMessage>,
) -> Result<impl IntoResponse, ApiError> {
    let ReadableRoom { user, room } = looked_at;
    permitted(safety.permit_report(user.id).await)?;
    let is_new = safety.report(user.id, &room, &report.event_id, &report.reason).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let answer = ReportAnswer { message: "Thank you. Somebody will look at it." };
    Ok((status, Json(answer)))
}
