//! Extractors that parse and validate the arguments of handlers.

use std::str::FromStr;

use axum::extract::{FromRequest, FromRequestParts, RawPathParams, Request};
use http::{StatusCode, request::Parts};
use http_body_util::LengthLimitError;

use super::{
    WebState,
    error::ApiError,
    fields::{Body, FromBody, FromParameters, Parameters},
};

/// The identifier in the path. An invalid identifier is 404, like an unknown one.
#[derive(Clone, Copy, Debug)]
pub struct Path<T>(pub T);

impl<T: FromStr + Send, S: Send + Sync> FromRequestParts<S> for Path<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let segments = RawPathParams::from_request_parts(parts, state).await;
        let parsed = segments.ok().and_then(|segments| segments.iter().next().and_then(|(_, text)| text.parse().ok()));
        parsed.map(Self).ok_or_else(|| ApiError::not_found("The resource"))
    }
}

/// The second identifier in the path, like [`Path`].
#[derive(Clone, Copy, Debug)]
pub struct SecondPath<T>(pub T);

impl<T: FromStr + Send, S: Send + Sync> FromRequestParts<S> for SecondPath<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, state: &S) -> Result<Self, ApiError> {
        let segments = RawPathParams::from_request_parts(parts, state).await;
        let parsed = segments.ok().and_then(|segments| segments.iter().nth(1).and_then(|(_, text)| text.parse().ok()));
        parsed.map(Self).ok_or_else(|| ApiError::not_found("The resource"))
    }
}

#[derive(Clone, Debug)]
pub struct Query<T>(pub T);

impl<T: FromParameters, S: Send + Sync> FromRequestParts<S> for Query<T> {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        Parameters::parse(parts.uri.query().unwrap_or_default()).map(Self)
    }
}

/// A JSON body with validated fields.
#[derive(Clone, Debug)]
pub struct ValidJson<T>(pub T);

impl<T: FromBody, S: WebState> FromRequest<S> for ValidJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        Body::parse(&bytes).map(Self)
    }
}

/// Like [`ValidJson`]; no body, or null, counts as an empty object.
#[derive(Clone, Debug)]
pub struct OptionalJson<T>(pub T);

impl<T: FromBody, S: WebState> FromRequest<S> for OptionalJson<T> {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let RawBody(bytes) = RawBody::from_request(request, state).await?;
        Body::parse(if matches!(&*bytes, b"" | b"null") { b"{}" } else { &bytes }).map(Self)
    }
}

/// Maximum size of the body of this request in bytes, in its extensions, if it differs from that of other requests.
#[derive(Clone, Copy, Debug)]
pub struct BodyLimit(pub usize);

/// The body as received.
#[derive(Clone, Debug)]
pub struct RawBody(pub bytes::Bytes);

impl<S: WebState> FromRequest<S> for RawBody {
    type Rejection = ApiError;

    async fn from_request(request: Request, state: &S) -> Result<Self, ApiError> {
        let limit = request.extensions().get().map_or_else(|| state.body_limit(), |&BodyLimit(limit)| limit);
        read_body(request.into_body(), limit).await.map(Self)
    }
}

/// Reads a body of at most this many bytes.
pub async fn read_body(body: axum::body::Body, limit: usize) -> Result<bytes::Bytes, ApiError> {
    axum::body::to_bytes(body, limit).await.map_err(unread)
}

fn unread(error: axum::Error) -> ApiError {
    if error.into_inner().is::<LengthLimitError>() {
        ApiError::new(StatusCode::PAYLOAD_TOO_LARGE, "body_too_large", "The body is too large.")
    } else {
        ApiError::new(StatusCode::BAD_REQUEST, "body_unreadable", "The body could not be read completely.")
    }
}
