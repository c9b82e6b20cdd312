//! HTTP handlers for blocks and reports.

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
            ModerationError::NoSuchMessage => Self::invalid_field("event_id", "must name a message in this room"),
            ModerationError::SelfBlock => Self::invalid_field("user", "must name another user"),
            ModerationError::TooMany => {
                let message = "You have blocked too many users. Unblock another user first.";
                Self::new(StatusCode::CONFLICT, "too_many_blocks", message)
            }
            ModerationError::InvalidLength => Self::invalid_field("for", "must be from one minute to ten years"),
            ModerationError::Unchanged => {
                let message = "The restriction is already in effect or already lifted.";
                Self::new(StatusCode::CONFLICT, "already_restricted", message)
            }
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

/// A user whom the caller has blocked.
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

/// List the users whom the caller has blocked, newest first.
#[utoipa::path(get, path = "/api/auth/blocks", tag = "Safety", security(("token" = [])),
    params(Paging), responses((status = 200, body = BlockList)))]
pub(super) async fn list_blocks(
    State(moderation): State<Moderation>,
    user: CurrentUser,
    Query(paging): Query<Paging>,
) -> Result<Json<BlockList>, ApiError> {
    let (blocks, total) = moderation.blocks(user.id, paging).await?;
    Ok(Json(BlockList { data: blocks.into_iter().map(BlockedItem::from).collect(), meta: paging.meta(total) }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct BlockResponse {
    #[schema(example = "This user is blocked.")]
    message: &'static str,
}

/// Block a user.
///
/// The caller no longer sees the user's predictions and rooms, the user's invitations are declined, and chat clients
/// hide the user's messages.
#[utoipa::path(post, path = "/api/auth/blocks/{user}", tag = "Safety", security(("token" = [])),
    params(("user" = UserId, Path, description = "Id of the user to block")),
    responses(
        (status = 200, body = BlockResponse),
        (status = 404, description = "The user does not exist", body = ErrorBody),
        (status = 409, description = "The caller has already blocked a thousand users", body = ErrorBody),
        (status = 422, description = "The user is the caller", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn block_user(
    State(moderation): State<Moderation>,
    user: CurrentUser,
    Path(other): Path<UserId>,
) -> Result<Json<BlockResponse>, ApiError> {
    permitted(moderation.permit_block(user.id).await)?;
    moderation.block(user.id, other).await?;
    Ok(Json(BlockResponse { message: "This user is blocked." }))
}

/// Lift a block. Succeeds if the user is not blocked.
#[utoipa::path(delete, path = "/api/auth/blocks/{user}", tag = "Safety", security(("token" = [])),
    params(("user" = UserId, Path, description = "Id of the user to unblock")),
    responses(
        (status = 200, body = BlockResponse),
        (status = 404, description = "The id is not a valid user id", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn unblock_user(
    State(moderation): State<Moderation>,
    user: CurrentUser,
    Path(other): Path<UserId>,
) -> Result<Json<BlockResponse>, ApiError> {
    permitted(moderation.permit_block(user.id).await)?;
    moderation.unblock(user.id, other).await?;
    Ok(Json(BlockResponse { message: "This user is no longer blocked." }))
}

#[derive(ToSchema)]
pub(super) struct ReportedMessage {
    /// The homeserver's id of the message.
    #[schema(value_type = String, pattern = r"^\$[A-Za-z0-9._:/+-]+$", max_length = 255, example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
    event_id: MessageId,
    #[schema(value_type = String, min_length = 1, max_length = 500, pattern = r"^[^\x00]*[^\s\x00][^\x00]*$", example = "Insults")]
    reason: Reason,
}

from_body!(ReportedMessage { event_id, reason });

#[derive(Serialize, ToSchema)]
pub(super) struct ReportAnswer {
    #[schema(example = "Thank you. A moderator will review the message.")]
    message: &'static str,
}

/// Report a message to the operators.
///
/// The report keeps a copy of the message, even if the sender deletes it. The content of an encrypted message is not
/// readable, so describe it in `reason`; sender and time are still kept. Reporting the same message again changes
/// nothing.
#[utoipa::path(post, path = "/api/auth/chat-rooms/{room}/reports", tag = "Safety", security(("token" = [])),
    params(RoomPath), request_body = ReportedMessage,
    responses(
        (status = 200, description = "The caller has already reported the message", body = ReportAnswer),
        (status = 201, body = ReportAnswer),
        (status = 403, description = "The room is private and the caller is not a member", body = ErrorBody),
        (status = 404, description = "The room does not exist", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn report_message(
    State(moderation): State<Moderation>,
    readable: ReadableRoom,
    ValidJson(report): ValidJson<ReportedMessage>,
) -> Result<impl IntoResponse, ApiError> {
    let ReadableRoom { user, room } = readable;
    permitted(moderation.permit_report(user.id).await)?;
    let is_new = moderation.report(user.id, &room, &report.event_id, &report.reason).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let body = ReportAnswer { message: "Thank you. A moderator will review the message." };
    Ok((status, Json(body)))
}
