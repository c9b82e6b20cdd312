//! The caller as an argument: a handler that needs a user says so in its signature.

use axum::extract::FromRequestParts;
use http::{HeaderMap, header::AUTHORIZATION, request::Parts};
use web::{
    ApiError, WebState,
    ids::{SessionId, UserId},
};

use super::{service::Sessions, user_limit::UserLimit};

/// A router's state that knows callers by their tokens.
pub trait Authenticates: WebState {
    /// Checks tokens.
    fn sessions(&self) -> &Sessions;

    /// The limit of each user in this process, if there is one.
    fn user_limit(&self) -> Option<&UserLimit>;
}

/// The caller, known by a token.
#[derive(Clone, Copy, Debug)]
pub struct CurrentUser {
    /// Who.
    pub id: UserId,
    /// By which of their sessions.
    pub session: SessionId,
}

impl CurrentUser {
    async fn identify(parts: &Parts, state: &impl Authenticates) -> Result<Self, ApiError> {
        let token = token_of(&parts.headers).ok_or_else(ApiError::unauthenticated)?;
        let session = state.sessions().check(token).await?.ok_or_else(ApiError::unauthenticated)?;
        if let Some(ban) = session.ban {
            return Err(ApiError::suspended(ban.until));
        }
        Ok(Self { id: session.user_id, session: session.id })
    }
}

/// Marks a request that was taken from its user's limit.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Counted;

/// Takes the request from the user's limit, once however often the user is asked for.
impl<S: Authenticates> FromRequestParts<S> for CurrentUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let user = Self::identify(parts, state).await?;
        if let Some(limit) = state.user_limit()
            && parts.extensions.get::<Counted>().is_none()
        {
            // Not stated as the response's limit: clients see this one only when it refuses them.
            let decision = limit.take(user.id);
            if !decision.allowed {
                return Err(ApiError::rate_limited(decision));
            }
        }
        Ok(user)
    }
}

/// The caller of the live stream, which has limits of its own.
#[derive(Clone, Copy, Debug)]
pub struct StreamUser(pub CurrentUser);

impl<S: Authenticates> FromRequestParts<S> for StreamUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        CurrentUser::identify(parts, state).await.map(Self)
    }
}

/// The caller, where a token is optional. A token that is given must be good.
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

/// The token that a request shows.
pub(crate) fn token_of(headers: &HeaderMap) -> Option<&str> {
    let (scheme, token) = headers.get(AUTHORIZATION)?.to_str().ok()?.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}
