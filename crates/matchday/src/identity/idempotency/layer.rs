//! Tower layer that applies idempotency keys to all routes.

use std::{
    convert::Infallible,
    panic::{AssertUnwindSafe, resume_unwind},
    pin::Pin,
    task::{Context, Poll},
    time::Duration,
};

use axum::{
    body::{Body, Bytes, HttpBody as _},
    extract::{FromRef, FromRequest as _, FromRequestParts as _, OptionalFromRequestParts, Request},
    response::{IntoResponse as _, Response},
};
use futures_util::{FutureExt as _, future::Either};
use http::{HeaderName, HeaderValue, Method, StatusCode, header, request::Parts};
use platform::{shutdown::Shutdown, telemetry};
use tokio::time::{Instant, timeout_at};
use tower::{Layer, Service};
use tracing::Instrument as _;
use web::{ApiError, IDEMPOTENCY_KEY, RawBody, for_this_peer, overloaded, too_late};

use super::{
    rules::{self, RequestKey},
    service::{Begun, Claim, Idempotency, StoredResponse},
};
use crate::identity::sessions::{Authenticates, Counted, CurrentUser};

/// Marks a replayed response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Processes a POST request with an idempotency key only once. The layer must be inside the compression layer, because
/// it stores responses uncompressed.
#[derive(Clone)]
pub(crate) struct IdempotencyLayer<T>(pub(crate) T);

impl<S, T: Clone> Layer<S> for IdempotencyLayer<T> {
    type Service = IdempotencyService<S, T>;

    fn layer(&self, inner: S) -> IdempotencyService<S, T> {
        IdempotencyService { inner, state: self.0.clone() }
    }
}

#[derive(Clone)]
pub(crate) struct IdempotencyService<S, T> {
    inner: S,
    state: T,
}

impl<S, T> Service<Request> for IdempotencyService<S, T>
where
    T: Authenticates,
    Idempotency: FromRef<T>,
    Shutdown: FromRef<T>,
    S: Service<Request, Response = Response, Error = Infallible> + Clone + Send + 'static,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Either<S::Future, Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        // Fast path for nearly all requests: it costs two comparisons.
        if request.method() != Method::POST || !request.headers().contains_key(IDEMPOTENCY_KEY) {
            return Either::Left(self.inner.call(request));
        }
        // Moves the service that is ready into the future and leaves a clone in its place.
        let clone = self.inner.clone();
        let (inner, state) = (std::mem::replace(&mut self.inner, clone), self.state.clone());
        Either::Right(Box::pin(async move {
            Ok(respond(state, inner, request).await.unwrap_or_else(ApiError::into_response))
        }))
    }
}

async fn respond<S, T>(state: T, mut inner: S, request: Request) -> Result<Response, ApiError>
where
    T: Authenticates,
    Idempotency: FromRef<T>,
    Shutdown: FromRef<T>,
    S: Service<Request, Response = Response, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    // Keys belong to users, so a request without a valid token goes to the handler, which refuses it or serves it
    // anonymously.
    let user = match CurrentUser::from_request_parts(&mut parts, &state).await {
        Ok(user) => user,
        Err(error) if matches!(error.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            return Ok(inner.call(Request::from_parts(parts, body)).await.unwrap_or_else(|never| match never {}));
        }
        // The caller could not be identified. The handler's own check might succeed and process the request without its
        // key.
        Err(error) => return Err(error),
    };
    // The handler extracts the user again, which must not count a second time.
    parts.extensions.insert(Counted);
    let key = rules::read_key(&parts.headers)
        .ok_or_else(|| ApiError::invalid_field("idempotency_key", "must be 1 to 255 visible ASCII characters"))?;
    let RawBody(body) = RawBody::from_request(Request::new(body), &state).await?;
    let digest = rules::request_digest(key, parts.uri.query(), &body);
    let key = RequestKey::of(parts.uri.path(), key);
    parts.extensions.insert(key);
    let keys = Idempotency::from_ref(&state);
    let permit = keys.permit().ok_or_else(overloaded)?;
    // The task starts with the claim and continues if the client disconnects: a client that lost the connection will
    // retry.
    let tasks = Shutdown::from_ref(&state);
    let work = async move {
        let _permit = permit;
        // Measured from before the claim, because the claim must outlast the work.
        let deadline = Instant::now() + keys.deadline();
        match keys.begin(user.id, key, digest).await? {
            Begun::First(claim) => {
                Ok(first(&keys, inner, Request::from_parts(parts, Body::from(body)), claim, deadline).await)
            }
            Begun::Finished(stored) => {
                count("replayed");
                Ok(replay(stored))
            }
            Begun::Reused => {
                count("reused");
                Err(ApiError::invalid_field("idempotency_key", "was used for another request")
                    .called("idempotency_key_reused"))
            }
            Begun::InProgress => {
                count("in_progress");
                let message = "The same request is still in progress. Try again shortly.";
                Err(ApiError::new(StatusCode::CONFLICT, "idempotency_in_progress", message)
                    .after(Duration::from_secs(1)))
            }
        }
    };
    let work = telemetry::in_this_request(for_this_peer(work)).in_current_span();
    match tasks.spawn(work).await {
        Ok(response) => response,
        // The outer layer handles this panic like any other.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(ApiError::unavailable("shutting_down", "The service is shutting down. Try again shortly.")),
        },
    }
}

/// Processes the request within the deadline, then stores the response or releases the claim.
async fn first<S>(keys: &Idempotency, mut inner: S, request: Request, claim: Claim, deadline: Instant) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let work = AssertUnwindSafe(async move { inner.call(request).await }).catch_unwind();
    let response = match timeout_at(deadline, work).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(panic)) => {
            release(keys, claim).await;
            resume_unwind(panic);
        }
        Err(_) => too_late().into_response(),
    };
    // Treat a response of unknown size as too large.
    let small = response.body().size_hint().upper().is_some_and(|size| size <= rules::LARGEST);
    if !small || !rules::is_storable(response.status(), response.headers()) {
        release(keys, claim).await;
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => {
            release(keys, claim).await;
            return ApiError::internal(error).into_response();
        }
    };
    count("first");
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let stored = StoredResponse {
        status: parts.status.as_u16(),
        content_type: content_type.map(str::to_owned),
        body: body.to_vec(),
    };
    keys.finish(claim, &stored).await;
    Response::from_parts(parts, Body::from(body))
}

async fn release(keys: &Idempotency, claim: Claim) {
    count("unkept");
    keys.release(claim).await;
}

fn replay(stored: StoredResponse) -> Response {
    let mut response = Response::new(Body::from(Bytes::from(stored.body)));
    *response.status_mut() = StatusCode::from_u16(stored.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(content_type) = stored.content_type.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn count(outcome: &'static str) {
    metrics::counter!("matchday_idempotent_requests_total", "outcome" => outcome).increment(1);
}

/// Handlers take `Option<RequestKey>`, because most requests have no key.
impl<S: Sync> OptionalFromRequestParts<S> for RequestKey {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().copied())
    }
}
