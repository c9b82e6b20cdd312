//! Tower layer that applies idempotency keys to routes.

use std::{
    convert::Infallible,
    marker::PhantomData,
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
use web::{ApiError, BodyLimit, ErrorCode, IDEMPOTENCY_KEY, RawBody, WebState, for_this_peer, overloaded, too_late};

use super::{
    rules::{self, KeyOwner, KeyedRequest, RequestKey},
    service::{Begun, Claim, Idempotency, Prior, StoredResponse},
};
use crate::identity::{
    server_keys::{Authorized, AuthorizesKeys, scopes::Needs},
    sessions::{Authenticates, Counted, CurrentUser},
};

/// Marks a replayed response.
pub(crate) const REPLAYED: HeaderName = HeaderName::from_static("idempotency-replayed");

/// Processes a POST request with an idempotency key only once. The layer must be inside the compression layer, because
/// it stores responses uncompressed.
pub(crate) struct IdempotencyLayer<T, C = Users> {
    state: T,
    stored: Stored,
    body_limit: Option<BodyLimit>,
    callers: PhantomData<fn() -> C>,
}

/// Callers of a route, who own the keys of their requests.
pub(crate) trait Callers<T>: 'static {
    /// Whether a POST request without a key is refused.
    const NEED_KEY: bool;

    /// Returns the owner of the request's key; `None` if the request is processed without its key.
    fn identify(parts: &mut Parts, state: &T) -> impl Future<Output = Result<Option<KeyOwner>, ApiError>> + Send;
}

/// Users with a token, who may send a key.
pub(crate) enum Users {}

impl<T: Authenticates> Callers<T> for Users {
    const NEED_KEY: bool = false;

    async fn identify(parts: &mut Parts, state: &T) -> Result<Option<KeyOwner>, ApiError> {
        // Keys belong to users, so a request without a valid token goes to the handler, which refuses it or serves it
        // anonymously.
        match CurrentUser::from_request_parts(parts, state).await {
            Ok(user) => {
                // The handler extracts the user again, which must not count a second time.
                parts.extensions.insert(Counted);
                Ok(Some(user.id.into()))
            }
            Err(error) if matches!(error.status(), StatusCode::UNAUTHORIZED | StatusCode::FORBIDDEN) => Ok(None),
            // The caller could not be identified. The handler's own check might succeed and process the request without
            // its key.
            Err(error) => Err(error),
        }
    }
}

/// Backends whose server key has the scope `N`. They must send an idempotency key.
pub(crate) struct Backends<N>(PhantomData<fn() -> N>);

impl<T: AuthorizesKeys, N: Needs> Callers<T> for Backends<N> {
    const NEED_KEY: bool = true;

    async fn identify(parts: &mut Parts, state: &T) -> Result<Option<KeyOwner>, ApiError> {
        Ok(Some(Authorized::<N>::from_request_parts(parts, state).await?.id().into()))
    }
}

/// What is stored with a key.
#[derive(Clone, Copy)]
enum Stored {
    Response,
    ResponseWithoutClaim,
    Effect,
}

impl<T, C> IdempotencyLayer<T, C> {
    fn new(state: T, stored: Stored) -> Self {
        Self { state, stored, body_limit: None, callers: PhantomData }
    }

    /// Accepts larger or smaller bodies than other routes.
    #[must_use]
    pub(crate) fn with_body_limit(self, bytes: usize) -> Self {
        Self { body_limit: Some(BodyLimit(bytes)), ..self }
    }

    /// For any route: a request claims its key, and its response is stored.
    pub(crate) fn storing_responses(state: T) -> Self {
        Self::new(state, Stored::Response)
    }

    /// For routes that have the same effect if they are processed twice: a request does not claim its key, which saves two
    /// transactions if it is refused for now. A stored response is replayed.
    pub(crate) fn without_claims(state: T) -> Self {
        Self::new(state, Stored::ResponseWithoutClaim)
    }

    /// For routes whose feature stores the key with its effect, in one transaction: the handler takes
    /// `Option<KeyedRequest>` and marks its response with a [`KeyOutcome`]. The layer stores responses without this
    /// mark, such as the refusal of an invalid body, or replays the one that is stored already.
    pub(crate) fn storing_with_effect(state: T) -> Self {
        Self::new(state, Stored::Effect)
    }
}

impl<T: Clone, C> Clone for IdempotencyLayer<T, C> {
    fn clone(&self) -> Self {
        Self { state: self.state.clone(), ..*self }
    }
}

impl<S, T: Clone, C> Layer<S> for IdempotencyLayer<T, C> {
    type Service = IdempotencyService<S, T, C>;

    fn layer(&self, inner: S) -> IdempotencyService<S, T, C> {
        IdempotencyService { inner, layer: self.clone() }
    }
}

/// Marks the response of a feature that stores keys with its effects.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum KeyOutcome {
    /// The key was stored with the effect of this request.
    Stored,
    /// The response repeats that of an earlier request with the key.
    Replayed,
}

pub(crate) struct IdempotencyService<S, T, C> {
    inner: S,
    layer: IdempotencyLayer<T, C>,
}

impl<S: Clone, T: Clone, C> Clone for IdempotencyService<S, T, C> {
    fn clone(&self) -> Self {
        Self { inner: self.inner.clone(), layer: self.layer.clone() }
    }
}

impl<S, T, C> Service<Request> for IdempotencyService<S, T, C>
where
    T: WebState,
    C: Callers<T>,
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
        let has_key = C::NEED_KEY || request.headers().contains_key(IDEMPOTENCY_KEY);
        if request.method() != Method::POST || !has_key {
            return Either::Left(self.inner.call(request));
        }
        // Moves the service that is ready into the future and leaves a clone in its place.
        let clone = self.inner.clone();
        let (inner, layer) = (std::mem::replace(&mut self.inner, clone), self.layer.clone());
        Either::Right(Box::pin(async move {
            Ok(respond(layer, inner, request).await.unwrap_or_else(ApiError::into_response))
        }))
    }
}

/// A request with a valid key of a known caller.
struct Identified {
    request: KeyedRequest,
    parts: Parts,
    body: Bytes,
}

async fn respond<S, T, C>(
    IdempotencyLayer { state, stored, body_limit, .. }: IdempotencyLayer<T, C>,
    mut inner: S,
    request: Request,
) -> Result<Response, ApiError>
where
    T: WebState,
    C: Callers<T>,
    Idempotency: FromRef<T>,
    Shutdown: FromRef<T>,
    S: Service<Request, Response = Response, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
{
    let (mut parts, body) = request.into_parts();
    let Some(owner) = C::identify(&mut parts, &state).await? else {
        return Ok(inner.call(Request::from_parts(parts, body)).await.unwrap_or_else(|never| match never {}));
    };
    if !parts.headers.contains_key(IDEMPOTENCY_KEY) {
        return Err(ApiError::invalid_field("idempotency_key", "is required").called("idempotency_key_required"));
    }
    let key = rules::read_key(&parts.headers)
        .ok_or_else(|| ApiError::invalid_field("idempotency_key", "must be 1 to 255 visible ASCII characters"))?;
    let mut received = Request::new(body);
    if let Some(limit) = body_limit {
        received.extensions_mut().insert(limit);
        parts.extensions.insert(limit);
    }
    let RawBody(body) = RawBody::from_request(received, &state).await?;
    let digest = rules::request_digest(key, parts.uri.query(), &body);
    let request = KeyedRequest { owner, key: owner.request_key(parts.uri.path(), key), digest };
    parts.extensions.insert(request.key);
    parts.extensions.insert(request);
    let identified = Identified { request, parts, body };
    match stored {
        Stored::Response => respond_once(&state, inner, identified).await,
        Stored::ResponseWithoutClaim => respond_without_claim(&Idempotency::from_ref(&state), inner, identified).await,
        Stored::Effect => respond_with_effect(&Idempotency::from_ref(&state), inner, identified).await,
    }
}

/// Lets the feature store the key with its effect, and stores the response if there was no effect.
async fn respond_with_effect<S>(
    keys: &Idempotency,
    mut inner: S,
    Identified { request, parts, body }: Identified,
) -> Result<Response, ApiError>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    let response = inner.call(Request::from_parts(parts, Body::from(body))).await;
    let mut response = response.unwrap_or_else(|never| match never {});
    match response.extensions().get::<KeyOutcome>() {
        Some(KeyOutcome::Stored) => {
            count("first");
            return Ok(response);
        }
        Some(KeyOutcome::Replayed) => {
            count("replayed");
            response.headers_mut().insert(REPLAYED, HeaderValue::from_static("true"));
            return Ok(response);
        }
        None => {}
    }
    match response.extensions().get() {
        Some(&ErrorCode(KEY_USED)) => return respond_to_used_key(keys, request).await,
        Some(&ErrorCode(IN_PROGRESS)) => {
            count("in_progress");
            return Ok(response);
        }
        _ => {}
    }
    store_or_replay(keys, request, response).await
}

/// Replays the stored response, or processes the request and stores its response.
async fn respond_without_claim<S>(
    keys: &Idempotency,
    mut inner: S,
    Identified { request, parts, body }: Identified,
) -> Result<Response, ApiError>
where
    S: Service<Request, Response = Response, Error = Infallible>,
{
    match keys.find(request).await? {
        Some(Prior::Response(stored)) => {
            count("replayed");
            return Ok(replay(stored));
        }
        Some(Prior::Reused | Prior::Effect { .. }) => {
            count("reused");
            return Err(key_used());
        }
        None => {}
    }
    let response = inner.call(Request::from_parts(parts, Body::from(body))).await;
    store_or_replay(keys, request, response.unwrap_or_else(|never| match never {})).await
}

/// Stores a response if it is final, or replays an earlier response that is stored.
async fn store_or_replay(keys: &Idempotency, request: KeyedRequest, response: Response) -> Result<Response, ApiError> {
    let (response, stored) = match storable(response).await {
        Ok(both) => both,
        Err(response) => {
            count("unkept");
            return Ok(response);
        }
    };
    match keys.store(request, &stored).await {
        // The same request had an effect before and is refused now: a setting changed in between.
        None | Some(Prior::Effect { .. }) => {
            count("first");
            Ok(response)
        }
        Some(Prior::Response(stored)) => {
            count("replayed");
            Ok(replay(stored))
        }
        Some(Prior::Reused) => {
            count("reused");
            Err(key_used())
        }
    }
}

/// Responds to a request whose key the feature found in use: with the response that is stored for it, if there is one.
/// The refusal itself is not stored, because the key belongs to another request.
async fn respond_to_used_key(keys: &Idempotency, request: KeyedRequest) -> Result<Response, ApiError> {
    match keys.find(request).await? {
        Some(Prior::Response(stored)) => {
            count("replayed");
            Ok(replay(stored))
        }
        Some(Prior::Reused | Prior::Effect { .. }) | None => {
            count("reused");
            Err(key_used())
        }
    }
}

/// Claims the key, processes the request and stores its response; or replays the stored one.
async fn respond_once<S, T>(
    state: &T,
    inner: S,
    Identified { request, parts, body }: Identified,
) -> Result<Response, ApiError>
where
    T: WebState,
    Idempotency: FromRef<T>,
    Shutdown: FromRef<T>,
    S: Service<Request, Response = Response, Error = Infallible> + Send + 'static,
    S::Future: Send + 'static,
{
    let keys = Idempotency::from_ref(state);
    let permit = keys.permit().ok_or_else(overloaded)?;
    // The task starts with the claim and continues if the client disconnects: a client that lost the connection will
    // retry.
    let tasks = Shutdown::from_ref(state);
    let work = async move {
        let _permit = permit;
        // Measured from before the claim, because the claim must outlast the work.
        let deadline = Instant::now() + keys.deadline();
        match keys.begin(request).await? {
            Begun::First(claim) => {
                Ok(first(&keys, inner, Request::from_parts(parts, Body::from(body)), claim, deadline).await)
            }
            Begun::Finished(stored) => {
                count("replayed");
                Ok(replay(stored))
            }
            Begun::Reused => {
                count("reused");
                Err(key_used())
            }
            Begun::InProgress => {
                count("in_progress");
                Err(in_progress())
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
    match storable(response).await {
        Ok((response, stored)) => {
            count("first");
            keys.finish(claim, &stored).await;
            response
        }
        Err(response) => {
            release(keys, claim).await;
            response
        }
    }
}

/// Returns a response with what is stored of it, or `Err` with a response that must not be stored, such as that to a used
/// key, which would then refuse the request that used it.
async fn storable(response: Response) -> Result<(Response, StoredResponse), Response> {
    // Treat a response of unknown size as too large.
    let used = response.extensions().get() == Some(&ErrorCode(KEY_USED));
    let small = response.body().size_hint().upper().is_some_and(|size| size <= rules::LARGEST);
    if used || !small || !rules::is_storable(response.status(), response.headers()) {
        return Err(response);
    }
    let (parts, body) = response.into_parts();
    let body =
        axum::body::to_bytes(body, usize::MAX).await.map_err(|error| ApiError::internal(error).into_response())?;
    let content_type = parts.headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok());
    let stored = StoredResponse {
        status: parts.status.as_u16(),
        content_type: content_type.map(str::to_owned),
        body: body.to_vec(),
    };
    Ok((Response::from_parts(parts, Body::from(body)), stored))
}

async fn release(keys: &Idempotency, claim: Claim) {
    count("unkept");
    keys.release(claim).await;
}

/// Builds the response to a repeated request, marked with [`REPLAYED`].
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

const KEY_USED: &str = "idempotency_key_reused";

/// Returns the error for a key that was used before. If it was used for the same request, and that was refused, the
/// layer replaces this error with the stored refusal.
pub(crate) fn key_used() -> ApiError {
    ApiError::invalid_field("idempotency_key", "was used for another request").called(KEY_USED)
}

const IN_PROGRESS: &str = "idempotency_in_progress";

/// Returns the error for a key whose first request has no stored outcome yet.
pub(crate) fn in_progress() -> ApiError {
    let message = "A request with this idempotency key is still in progress. Try again shortly.";
    ApiError::new(StatusCode::CONFLICT, IN_PROGRESS, message).after(Duration::from_secs(1))
}

fn count(outcome: &'static str) {
    metrics::counter!("matchday_idempotent_requests_total", "outcome" => outcome).increment(1);
}

/// Handlers take `Option<RequestKey>` or `Option<KeyedRequest>`, because requests may have no key.
macro_rules! optional_extractor {
    ($type:ty) => {
        impl<S: Sync> OptionalFromRequestParts<S> for $type {
            type Rejection = Infallible;

            async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Option<Self>, Infallible> {
                Ok(parts.extensions.get().copied())
            }
        }
    };
}

optional_extractor!(RequestKey);
optional_extractor!(KeyedRequest);
