//! HTTP handlers for blocks and the contact.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, Path, Query,
    ids::UserId,
    paging::{PageMeta, Paging},
    permitted,
};

use super::service::{Blocked, Moderation, ModerationError};
use crate::identity::{accounts::UserSegment, sessions::CurrentUser};

impl From<ModerationError> for ApiError {
    fn from(error: ModerationError) -> Self {
        match error {
            ModerationError::NoSuchUser => Self::not_found("The user"),
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
pub(super) struct ContactResponse {
    data: Contact,
}

#[derive(Serialize, ToSchema)]
struct Contact {
    /// Email address or URL for complaints about content.
    #[schema(example = "safety@example.org")]
    moderation: String,
}

/// Get the contact for complaints about content.
///
/// Needs no token, so that people without an account can complain too.
#[utoipa::path(get, path = "/api/contact", tag = "Safety",
    responses(
        (status = 200, body = ContactResponse),
        (status = 404, description = "The operator has set no contact", body = ErrorBody),
    ))]
pub(super) async fn get_contact(State(moderation): State<Moderation>) -> Result<Json<ContactResponse>, ApiError> {
    let contact = moderation.contact().ok_or_else(|| ApiError::not_found("The contact"))?;
    Ok(Json(ContactResponse { data: Contact { moderation: contact.to_owned() } }))
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
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
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
/// hide the user's messages. Neither user sees the other's profile. Follows between the two end.
#[utoipa::path(post, path = "/api/auth/blocks/{user}", tag = "Safety", security(("token" = [])),
    params(("user" = String, Path, description = "User id or username of the user to block", example = "12")),
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
    Path(other): Path<UserSegment>,
) -> Result<Json<BlockResponse>, ApiError> {
    permitted(moderation.permit_block(user.id).await)?;
    let other = moderation.at(&other).await?;
    moderation.block(user.id, other).await?;
    Ok(Json(BlockResponse { message: "This user is blocked." }))
}

/// Lift a block. Succeeds if the user is not blocked.
#[utoipa::path(delete, path = "/api/auth/blocks/{user}", tag = "Safety", security(("token" = [])),
    params(("user" = String, Path, description = "User id or username of the user to unblock", example = "12")),
    responses(
        (status = 200, body = BlockResponse),
        (status = 404, description = "The id is not a valid user id, or no user has this username", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn unblock_user(
    State(moderation): State<Moderation>,
    user: CurrentUser,
    Path(other): Path<UserSegment>,
) -> Result<Json<BlockResponse>, ApiError> {
    permitted(moderation.permit_block(user.id).await)?;
    let other = match other {
        // Also succeeds for an account that was deleted.
        UserSegment::Id(id) => id,
        named => moderation.at(&named).await?,
    };
    moderation.unblock(user.id, other).await?;
    Ok(Json(BlockResponse { message: "This user is no longer blocked." }))
}
