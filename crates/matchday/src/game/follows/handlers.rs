//! HTTP handlers for follows.

use axum::{Json, extract::State};
use http::StatusCode;
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{ApiError, ErrorBody, Path, Query, permitted};

use super::{
    rules::FollowPaging,
    service::{Follow, FollowError, FollowList, FollowPage, Follows},
};
use crate::identity::{
    accounts::{PersonItem, UserSegment},
    avatars::AvatarUrls,
    callers::CallerReader,
    sessions::CurrentUser,
};

impl From<FollowError> for ApiError {
    fn from(error: FollowError) -> Self {
        match error {
            FollowError::NoSuchUser => Self::not_found("The user"),
            FollowError::SelfFollow => Self::invalid_field("user", "must name another user"),
            FollowError::TooMany => {
                let message = "You follow too many users. Unfollow another user first.";
                Self::new(StatusCode::CONFLICT, "too_many_follows", message)
            }
            FollowError::Database(error) => error.into(),
        }
    }
}

/// A follow between the caller and another user.
#[derive(Serialize, ToSchema)]
#[schema(as = Follow)]
struct FollowItem {
    /// The other user.
    user: PersonItem,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    followed_at: OffsetDateTime,
    /// Whether the caller follows the user.
    is_following: bool,
    /// Whether the user follows the caller.
    follows_me: bool,
}

impl FollowItem {
    fn new(follow: Follow, avatars: &AvatarUrls) -> Self {
        let Follow { person, followed_at, is_following, follows_me } = follow;
        Self { user: PersonItem::new(person, avatars), followed_at, is_following, follows_me }
    }
}

#[derive(Serialize, ToSchema)]
#[schema(as = FollowList)]
pub(super) struct FollowListResponse {
    data: Vec<FollowItem>,
    meta: FollowListMeta,
}

#[derive(Serialize, ToSchema)]
struct FollowListMeta {
    /// Cursor of the next page; null on the last page.
    #[schema(required, example = "AAY-QpYbQAAAAAAAAAAADA")]
    next_cursor: Option<String>,
    /// Number of users, including suspended users, whom the list leaves out.
    #[schema(minimum = 0, example = 51)]
    total: i64,
}

impl FollowListResponse {
    fn new(FollowPage { follows, next, total }: FollowPage, avatars: &AvatarUrls) -> Self {
        Self {
            data: follows.into_iter().map(|follow| FollowItem::new(follow, avatars)).collect(),
            meta: FollowListMeta { next_cursor: next.map(|cursor| cursor.to_string()), total },
        }
    }
}

/// List the users whom the caller follows, newest first.
#[utoipa::path(get, path = "/api/auth/follows", tag = "People", security(("token" = [])),
    params(FollowPaging), responses((status = 200, body = FollowListResponse)))]
pub(super) async fn list_follows(
    State(follows): State<Follows>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query(paging): Query<FollowPaging>,
) -> Result<Json<FollowListResponse>, ApiError> {
    let page = follows.list(&reader, user.id, FollowList::Following, paging).await?;
    Ok(Json(FollowListResponse::new(page, &avatars)))
}

/// List the users who follow the caller, newest first.
#[utoipa::path(get, path = "/api/auth/followers", tag = "People", security(("token" = [])),
    params(FollowPaging), responses((status = 200, body = FollowListResponse)))]
pub(super) async fn list_followers(
    State(follows): State<Follows>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    CallerReader(reader): CallerReader,
    Query(paging): Query<FollowPaging>,
) -> Result<Json<FollowListResponse>, ApiError> {
    let page = follows.list(&reader, user.id, FollowList::Followers, paging).await?;
    Ok(Json(FollowListResponse::new(page, &avatars)))
}

#[derive(Serialize, ToSchema)]
pub(super) struct FollowSaved {
    #[schema(example = "You follow this user.")]
    message: &'static str,
    data: FollowItem,
}

/// Follow a user. Repeating it changes nothing.
#[utoipa::path(put, path = "/api/auth/follows/{user}", tag = "People", security(("token" = [])),
    params(("user" = String, Path, description = "User id or username", example = "12")),
    responses(
        (status = 200, body = FollowSaved),
        (status = 404, description = "The user does not exist, is suspended, or one of the two has blocked the other", body = ErrorBody),
        (status = 409, description = "The caller follows too many users already (`too_many_follows`)", body = ErrorBody),
        (status = 422, description = "The user is the caller", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn follow_user(
    State(follows): State<Follows>,
    State(avatars): State<AvatarUrls>,
    user: CurrentUser,
    Path(other): Path<UserSegment>,
) -> Result<Json<FollowSaved>, ApiError> {
    permitted(follows.permit(user.id).await)?;
    let follow = follows.follow(user.id, &other).await?;
    Ok(Json(FollowSaved { message: "You follow this user.", data: FollowItem::new(follow, &avatars) }))
}

#[derive(Serialize, ToSchema)]
pub(super) struct FollowEnded {
    #[schema(example = "You do not follow this user.")]
    message: &'static str,
}

/// Unfollow a user. Succeeds if the caller does not follow the user.
#[utoipa::path(delete, path = "/api/auth/follows/{user}", tag = "People", security(("token" = [])),
    params(("user" = String, Path, description = "User id or username", example = "12")),
    responses(
        (status = 200, body = FollowEnded),
        (status = 404, description = "The user does not exist", body = ErrorBody),
        (status = 429, description = "Too many requests; retry after `Retry-After` seconds", body = ErrorBody),
    ))]
pub(super) async fn unfollow_user(
    State(follows): State<Follows>,
    user: CurrentUser,
    Path(other): Path<UserSegment>,
) -> Result<Json<FollowEnded>, ApiError> {
    permitted(follows.permit(user.id).await)?;
    follows.unfollow(user.id, &other).await?;
    Ok(Json(FollowEnded { message: "You do not follow this user." }))
}
