//! What handlers take. Authority is an argument: a handler that needs a user says so in its signature.

use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use http::{HeaderMap, StatusCode, header::AUTHORIZATION, request::Parts};
use http_body_util::LengthLimitError;

use super::{
    error::{ApiError, permitted},
    fields::{Body, FromBody, FromParameters, Parameters},
};
use crate::{
    app::App,
    ids::{SessionId, UserId},
};

/// The caller, known by a token.
#[derive(Clone, Copy, Debug)]
pub struct CurrentUser {
    /// Who.
    pub id: UserId,
    /// By which of their sessions.
    pub session: SessionId,
}

impl CurrentUser {
    async fn identify(parts: &Parts, app: &App) -> Result<Self, ApiError> {
        let token = token_of(&parts.headers).ok_or_else(ApiError::unauthenticated)?;
        let session = app.sessions.check(token).await?.ok_or_else(ApiError::unauthenticated)?;
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
impl FromRequestParts<App> for CurrentUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        let user = Self::identify(parts, app).await?;
        if let Some(limit) = &app.user_limit
            && parts.extensions.get::<Counted>().is_none()
        {
            permitted(limit.take(user.id))?;
        }
        Ok(user)
    }
}

/// The caller of the live stream, which has limits of its own.
#[derive(Clone, Copy, Debug)]
pub struct StreamUser(pub CurrentUser);

impl FromRequestParts<App> for StreamUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        CurrentUser::identify(parts, app).await.map(Self)
    }
}

/// The caller, where a token is optional. A token that is given must be good.
#[derive(Clone, Copy, Debug)]
pub struct MaybeUser(pub Option<CurrentUser>);

impl FromRequestParts<App> for MaybeUser {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, app: &App) -> Result<Self, ApiError> {
        if parts.headers.contains_key(AUTHORIZATION) {
            CurrentUser::from_request_parts(parts, app).await.map(|user| Self(Some(user)))
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

/// The one identifier in the path. What cannot be one is 404, like one that does not exist.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: FromStr + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let segments = RawPathParams::from_request_parts(parts, state).await;
        let parsed = segments.ok().and_then(|segments| segments.iter().next().and_then(|(_, text)| text.parse().ok()));
        parsed.map(Self).ok_or_else(|| ApiError::not_found("What the path names"))
    }
}

/// Query parameters, all checked.
#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

impl<T: FromParameters, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Parameters::parse(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// A JSON body, all its fields checked.
#[derive(Clone, Debug)]
pub struct ValidJson<T>(pub T);

impl<T: FromBody> FromRequest<App> for ValidJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        let RawBody(bytes) = RawBody::from_request(request, app).await?;
        Body::parse(&bytes).map(Self)
    }
}

/// A body as it came.
#[derive(Clone, Debug)]
pub struct RawBody(pub bytes::Bytes);

impl FromRequest<App> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, app: &App) -> Result<Self, ApiError> {
        axum::body::to_bytes(request.into_body(), app.config.http.body_limit).await.map(Self).map_err(unread)
    }
}

fn unread(error: axum::Error) -> ApiError {
    if error.into_inner().is::<LengthLimitError>() {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large.")
    } else {
        ApiError::new(StatusCode::BAD_REQUEST, "body_unreadable", "The body could not be read to its end.")
    }
}
