//! HTTP for keys: what stands around the routes.

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
    service::{Begun, Claim, Idempotency, Kept},
};
use crate::sessions::{Authenticates, Counted, CurrentUser};

/// On an answer that was given before.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Makes a POST with a key happen once. It must stand inside of compression: what is kept is kept as it is.
#[derive(Clone)]
pub(crate) struct OnceLayer<T>(pub(crate) T);

impl<S, T: Clone> Layer<S> for OnceLayer<T> {
    type Service = Once<S, T>;

    fn layer(&self, inner: S) -> Once<S, T> {
        Once { inner, state: self.0.clone() }
    }
}

/// A service behind the layer.
#[derive(Clone)]
pub(crate) struct Once<S, T> {
    inner: S,
    state: T,
}

impl<S, T> Service<Request> for Once<S, T>
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
        // Nearly every request ends here, and pays for two comparisons.
        if request.method() != Method::POST || !request.headers().contains_key(IDEMPOTENCY_KEY) {
            return Either::Left(self.inner.call(request));
        }
        // The one that is ready goes along; a clone takes its place.
        let clone = self.inner.clone();
        let (inner, state) = (std::mem::replace(&mut self.inner, clone), self.state.clone());
        Either::Right(Box::pin(async move {
            Ok(answer(state, inner, request).await.unwrap_or_else(ApiError::into_response))
        }))
    }
}

async fn answer<S, T>(state: T, mut inner: S, request: Request) -> Result<Response, ApiError>
where
    T: Authenticates,
    Idempotency: FromRef<T>,
    Shutdown: FromRef<T>,
    S: Service<Request, Response = Response, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    // A stranger has nothing that a key could belong to, and gets the answer that strangers get.
    let user = match CurrentUser::from_request_parts(&mut parts, &state).await {
        Ok(user) => user,
        Err(error) if matches!(error.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => {
            return Ok(inner.call(Request::from_parts(parts, body)).await.unwrap_or_else(|never| match never {}));
        }
        // Nobody knows who it is. A second look might, and the request would be done as if it had no key.
        Err(error) => return Err(error),
    };
    // The handler asks for the user again.
    parts.extensions.insert(Counted);
    let key = rules::read_key(&parts.headers)
        .ok_or_else(|| ApiError::invalid_field("idempotency_key", "must be 1 to 255 visible ASCII characters"))?;
    let RawBody(body) = RawBody::from_request(Request::new(body), &state).await?;
    let digest = rules::request_digest(key, parts.uri.query(), &body);
    let key = RequestKey::of(parts.uri.path(), key);
    parts.extensions.insert(key);
    let keys = Idempotency::from_ref(&state);
    let place = keys.place().ok_or_else(overloaded)?;
    // In a task, from the claim on, which outlives whoever asked: that the client went away is why it will ask again.
    let tasks = Shutdown::from_ref(&state);
    let work = async move {
        let _place = place;
        // Counted from before the claim, which so lasts longer than the work.
        let deadline = Instant::now() + keys.deadline();
        match keys.begin(user.id, key, digest).await? {
            Begun::First(claim) => {
                Ok(first(&keys, inner, Request::from_parts(parts, Body::from(body)), claim, deadline).await)
            }
            Begun::Finished(kept) => {
                count("replayed");
                Ok(replay(kept))
            }
            Begun::Reused => {
                count("reused");
                Err(ApiError::invalid_field("idempotency_key", "was used for another request")
                    .called("idempotency_key_reused"))
            }
            Begun::UnderWay => {
                count("in_progress");
                let message = "The same request is still under way. Try again shortly.";
                Err(ApiError::new(StatusCode::CONFLICT, "idempotency_in_progress", message)
                    .after(Duration::from_secs(1)))
            }
        }
    };
    let work = telemetry::in_this_request(for_this_peer(work)).in_current_span();
    match tasks.spawn(work).await {
        Ok(answer) => answer,
        // The edge makes of it what it makes of every panic.
        Err(error) => match error.try_into_panic() {
            Ok(panic) => resume_unwind(panic),
            Err(_) => Err(ApiError::unavailable("shutting_down", "The service is ending. Try again shortly.")),
        },
    }
}

/// Does what was asked for, in time, and keeps the answer or gives the claim back.
async fn first<S>(keys: &Idempotency, mut inner: S, request: Request, claim: Claim, deadline: Instant) -> Response
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let work = AssertUnwindSafe(async move { inner.call(request).await }).catch_unwind();
    let response = match timeout_at(deadline, work).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(panic)) => {
            unkept(keys, claim).await;
            resume_unwind(panic);
        }
        Err(_) => too_late().into_response(),
    };
    // An answer of unknown size is larger than any.
    let small = response.body().size_hint().upper().is_some_and(|size| size <= rules::LARGEST);
    if !small || !rules::is_kept(response.status(), response.headers()) {
        unkept(keys, claim).await;
        return response;
    }
    let (parts, body) = response.into_parts();
    let body = match axum::body::to_bytes(body, usize::MAX).await {
        Ok(body) => body,
        Err(error) => {
            unkept(keys, claim).await;
            return ApiError::internal(error).into_response();
        }
    };
    count("first");
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let answer =
        Kept { status: parts.status.as_u16(), content_type: content_type.map(str::to_owned), body: body.to_vec() };
    keys.finish(claim, &answer).await;
    Response::from_parts(parts, Body::from(body))
}

async fn unkept(keys: &Idempotency, claim: Claim) {
    count("unkept");
    keys.release(claim).await;
}

fn replay(kept: Kept) -> Response {
    let mut response = Response::new(Body::from(Bytes::from(kept.body)));
    *response.status_mut() = StatusCode::from_u16(kept.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(content_type) = kept.content_type.and_then(|text| HeaderValue::try_from(text).ok()) {
        headers.insert(header::CONTENT_TYPE, content_type);
    }
    headers.insert(REPLAYED, HeaderValue::from_static("true"));
    response
}

fn count(outcome: &'static str) {
    metrics::counter!("matchday_idempotent_requests_total", "outcome" => outcome).increment(1);
}

/// A handler takes `Option<RequestKey>`: most requests have none.
impl<S: Sync> OptionalFromRequestParts<S> for RequestKey {
    type Rejection = Infallible;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
        Ok(parts.extensions.get().copied())
    }
}
