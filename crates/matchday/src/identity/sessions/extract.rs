//! Extractors that authenticate the caller of a handler.

use axum::extract::FromRequestParts;
use http::{HeaderMap, header::AUTHORIZATION, request::Parts};
use web::{
    ApiError,
    ids::{SessionId, UserId},
};

use super::{
    service::{Checked, Sessions},
    user_limit::UserLimit,
};
use crate::identity::callers::HasReads;

/// Router state that can authenticate callers by their tokens.
pub trait Authenticates: HasReads {
    fn sessions(&self) -> &Sessions;

    /// Per-user rate limit of this process, if one is configured.
    fn user_limit(&self) -> Option<&UserLimit>;
}

/// The authenticated caller of a request.
#[derive(Clone, Copy, Debug)]
pub struct CurrentUser {
    pub id: UserId,
    pub session: SessionId,
}

impl CurrentUser {
    async fn identify(parts: &Parts, state: &impl Authenticates) -> Result<Self, ApiError> {
        let token = token_of(&parts.headers).ok_or_else(ApiError::unauthenticated)?;
        Self::of(state.sessions().check(token).await?.ok_or_else(ApiError::unauthenticated)?)
    }

    fn of(session: Checked) -> Result<Self, ApiError> {
        match session.ban {
            Some(ban) => Err(ApiError::suspended(ban.until)),
            None => Ok(Self { id: session.user_id, session: session.id }),
        }
    }

    /// Authenticates and counts a request whose token is cached. Returns `None` if the token must be looked up.
    pub(crate) fn from_memory(headers: &HeaderMap, state: &impl Authenticates) -> Option<Result<Self, ApiError>> {
        let session = state.sessions().check_cached(token_of(headers)?)?;
        Some(Self::of(session).and_then(|user| user.counted(state)))
    }

    /// Counts a request against the user's rate limit. Responses do not carry this limit in their headers. Clients see
    /// it only when it refuses a request.
    fn counted(self, state: &impl Authenticates) -> Result<Self, ApiError> {
        match state.user_limit().map(|limit| limit.take(self.id)) {
            Some(decision) if !decision.allowed => Err(ApiError::rate_limited(decision)),
            _ => Ok(self),
        }
    }
}

/// Marks a request that already counts against its user's rate limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted;

/// Counts the request against the user's rate limit. A request marked `Counted` is not counted again.
impl<S: Authenticates> FromRequestParts<S> for CurrentUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let user = Self::identify(parts, state).await?;
        if parts.extensions.get::<Counted>().is_some() { Ok(user) } else { user.counted(state) }
    }
}

/// The caller of the live stream, which has separate limits.
#[derive(Clone, Copy, Debug)]
pub struct StreamUser(pub CurrentUser);

impl<S: Authenticates> FromRequestParts<S> for StreamUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        CurrentUser::identify(parts, state).await.map(Self)
    }
}

/// The caller of an endpoint where a token is optional. An invalid token is refused.
#[derive(Clone, Copy, Debug)]
pub struct MaybeUser(pub Option<CurrentUser>);

impl<S: Authenticates> FromRequestParts<S> for MaybeUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        if parts.headers.contains_key(AUTHORIZATION) {
            CurrentUser::from_request_parts(parts, state).await.map(|user| Self(Some(user)))
        } else {
            Ok(Self(None))
        }
    }
}

/// Returns the bearer token of the `Authorization` header.
pub(crate) fn token_of(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
