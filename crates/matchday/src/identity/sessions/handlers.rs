//! HTTP handlers for sessions.

use axum::{Json, extract::State, response::IntoResponse};
use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::{
    ApiError, ErrorBody, NO_STORE, Path, Query,
    ids::SessionId,
    paging::{PageMeta, Paging},
};

use super::service::{Session, SessionError, Sessions};
use crate::identity::sessions::CurrentUser;

#[derive(Serialize, ToSchema)]
pub(super) struct SessionEndedResponse {
    #[schema(example = "Logged out.")]
    message: &'static str,
}

#[derive(Serialize, ToSchema)]
pub(super) struct SessionList {
    data: Vec<SessionItem>,
    meta: PageMeta,
}

/// One of the caller's sessions.
#[derive(Serialize, ToSchema)]
#[schema(as = Session)]
struct SessionItem {
    id: SessionId,
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    created_at: OffsetDateTime,
    /// Time of the last use, accurate to a day.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-11-20T15:00:00.000Z")]
    last_used_at: OffsetDateTime,
    /// Time at which the session expires unless it is used again.
    #[serde(with = "platform::timestamp")]
    #[schema(example = "2026-12-20T15:00:00.000Z")]
    expires_at: OffsetDateTime,
    /// Whether this request was made with the session.
    current: bool,
    /// `User-Agent` header that the client sent at login.
    #[schema(example = "MatchdayApp/2.1 (Android 16)")]
    user_agent: String,
}

impl From<SessionError> for ApiError {
    fn from(error: SessionError) -> Self {
        match error {
            SessionError::Database(error) => error.into(),
            other => Self::internal(other),
        }
    }
}

/// End the current session.
#[utoipa::path(post, path = "/api/auth/logout", tag = "Sessions", security(("token" = [])),
    responses((status = 200, description = "The session has ended and its token is no longer valid", body = SessionEndedResponse)))]
pub(super) async fn log_out(
    State(sessions): State<Sessions>,
    user: CurrentUser,
) -> Result<impl IntoResponse, ApiError> {
    sessions.end(user.id, user.session).await?;
    // Not stored under an idempotency key: only another session could replay this response, and it would wrongly
    // conclude that it had been logged out.
    Ok(([NO_STORE], Json(SessionEndedResponse { message: "Logged out." })))
}

/// List the caller's sessions, newest first.
#[utoipa::path(get, path = "/api/auth/sessions", tag = "Sessions", security(("token" = [])),
    params(Paging), responses((status = 200, body = SessionList)))]
pub(super) async fn list_sessions(
    State(sessions): State<Sessions>,
    user: CurrentUser,
    Query(paging): Query<Paging>,
) -> Result<Json<SessionList>, ApiError> {
    let (sessions, total) = sessions.list(user.id, paging).await?;
    let item = |session: Session| SessionItem {
        current: session.id == user.session,
        id: session.id,
        created_at: session.created_at,
        last_used_at: session.last_used_at,
        expires_at: session.expires_at,
        user_agent: session.user_agent,
    };
    Ok(Json(SessionList { data: sessions.into_iter().map(item).collect(), meta: paging.meta(total) }))
}

/// End one of the caller's sessions.
#[utoipa::path(delete, path = "/api/auth/sessions/{id}", tag = "Sessions", security(("token" = [])),
    params(("id" = SessionId, Path, description = "Id from the list of sessions")),
    responses(
        (status = 200, description = "The session has ended and its token is no longer valid", body = SessionEndedResponse),
        (status = 404, description = "The caller has no such session", body = ErrorBody),
    ))]
pub(super) async fn end_session(
    State(sessions): State<Sessions>,
    user: CurrentUser,
    Path(id): Path<SessionId>,
) -> Result<Json<SessionEndedResponse>, ApiError> {
    if sessions.end(user.id, id).await? {
        Ok(Json(SessionEndedResponse { message: "Session ended." }))
    } else {
        Err(ApiError::not_found("The session"))
    }
}
