//! What happens to every request, in one pass: an id, a place among those under way, a deadline, a net for panics, and
//! a record of how it went.
//!
//! It is one hand-written service and not a stack of layers because it runs before every cached page: as five layers
//! the same work cost four times as much as serving the page.

use std::{
    any::Any,
    collections::HashMap,
    convert::Infallible,
    panic::AssertUnwindSafe,
    pin::Pin,
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicU64, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    extract::{MatchedPath, Request},
    response::{IntoResponse as _, Response},
};
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::{HeaderMap, HeaderName, HeaderValue, Method, StatusCode};
use metrics::Histogram;
use tokio::sync::Semaphore;
use tower::{Layer, Service};
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::error::ApiError;
use crate::platform::{
    config::{Config, RequestLog},
    telemetry::{self, CurrentRequest},
};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// A request that took longer is logged, whatever its answer.
const SLOW: Duration = Duration::from_secs(1);

/// The layer around every route.
#[derive(Clone)]
pub(super) struct Edge(Arc<Shared>);

struct Shared {
    places: Semaphore,
    deadline: Duration,
    log: RequestLog,
    traced: bool,
    ids: RequestIds,
    times: Times,
}

impl Edge {
    /// `seed` makes this process's request ids its own.
    pub(super) fn new(config: &Config, seed: u64) -> Self {
        Self(Arc::new(Shared {
            places: Semaphore::new(config.http.max_in_flight),
            deadline: config.http.deadline,
            log: config.log.requests,
            traced: config.traces.endpoint.is_some(),
            ids: RequestIds { seed, next: AtomicU64::new(0) },
            times: Times::default(),
        }))
    }
}

impl<S> Layer<S> for Edge {
    type Service = EdgeService<S>;

    fn layer(&self, inner: S) -> EdgeService<S> {
        EdgeService { inner, shared: Arc::clone(&self.0) }
    }
}

/// A route behind the edge.
#[derive(Clone)]
pub(super) struct EdgeService<S> {
    inner: S,
    shared: Arc<Shared>,
}

impl<S> Service<Request> for EdgeService<S>
where
    S: Service<Request, Response = Response, Error = Infallible>,
    S::Future: Send + 'static,
{
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.inner.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        let began = Instant::now();
        let shared = Arc::clone(&self.shared);
        let current = CurrentRequest {
            id: shared.ids.choose(request.headers().get(REQUEST_ID)),
            method: request.method().clone(),
            route: request.extensions().get::<MatchedPath>().cloned(),
        };
        let span = if shared.traced { span(&current, request.headers()) } else { tracing::Span::none() };
        let answer = self.inner.call(request);
        let id = current.id.clone();
        let work = telemetry::CURRENT_REQUEST.scope(current, async move {
            let response = answer_in_time(&shared, answer).await;
            let took = began.elapsed();
            let _ = telemetry::CURRENT_REQUEST.try_with(|current| {
                shared.times.record(current, response.status(), took);
                tell(shared.log, response.status(), took);
            });
            response
        });
        Box::pin(async move {
            let mut response = if span.is_none() { work.await } else { work.instrument(span).await };
            response.headers_mut().insert(REQUEST_ID, id);
            Ok(response)
        })
    }
}

async fn answer_in_time(shared: &Shared, answer: impl Future<Output = Result<Response, Infallible>>) -> Response {
    let Ok(_place) = shared.places.try_acquire() else {
        metrics::counter!("matchday_http_shed_total").increment(1);
        return ApiError::unavailable("overloaded", "Too many requests are under way. Try again shortly.")
            .into_response();
    };
    match tokio::time::timeout(shared.deadline, AssertUnwindSafe(answer).catch_unwind()).await {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(panic)) => ApiError::internal(anyhow::anyhow!("panicked: {}", said(&*panic))).into_response(),
        Err(_) => ApiError::unavailable("deadline_exceeded", "The request took too long.").into_response(),
    }
}

fn said(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// A span that goes on with the caller's trace, if it has one.
fn span(current: &CurrentRequest, headers: &HeaderMap) -> tracing::Span {
    let name = format!("{} {}", current.method, current.route_name());
    let span = tracing::info_span!("request", otel.name = name, otel.kind = "server", request_id = current.id());
    if let Err(error) = span.set_parent(telemetry::remote_parent(headers)) {
        tracing::debug!(%error, "the caller's trace was not joined");
    }
    span
}

fn tell(log: RequestLog, status: StatusCode, took: Duration) {
    let problem = status.is_server_error() || took >= SLOW;
    let milliseconds = took.as_secs_f64() * 1_000.0;
    if problem && log != RequestLog::None {
        tracing::warn!(status = status.as_u16(), milliseconds, "answered");
    } else if log == RequestLog::All {
        tracing::info!(status = status.as_u16(), milliseconds, "answered");
    }
}

struct RequestIds {
    seed: u64,
    next: AtomicU64,
}

impl RequestIds {
    /// The client's id where it is a harmless one, or else a new one.
    fn choose(&self, given: Option<&HeaderValue>) -> HeaderValue {
        let harmless = |id: &&HeaderValue| {
            (1..=128).contains(&id.len())
                && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
        };
        given.filter(harmless).cloned().unwrap_or_else(|| {
            let number = self.next.fetch_add(1, Ordering::Relaxed);
            let mut text = [0; 32];
            let bytes = [self.seed.to_be_bytes(), number.to_be_bytes()].concat();
            let written = hex::encode_to_slice(bytes, &mut text).is_ok();
            let id = HeaderValue::from_maybe_shared(Bytes::copy_from_slice(&text)).ok().filter(|_| written);
            id.unwrap_or(HeaderValue::from_static("-"))
        })
    }
}

/// The histogram of answer times, with its handles at hand: finding one by its labels costs more than using it.
#[derive(Default)]
struct Times(RwLock<HashMap<(usize, &'static str, u16), Histogram>>);

impl Times {
    fn record(&self, current: &CurrentRequest, status: StatusCode, took: Duration) {
        let route = current.route_name();
        // A route's name is made once and lives as long as the router: its address tells it apart.
        let key = (route.as_ptr().addr(), known(&current.method), status.as_u16());
        let found = self.0.read().unwrap_or_else(PoisonError::into_inner).get(&key).map(|times| times.record(took));
        if found.is_none() {
            let labels = [("method", key.1.to_owned()), ("route", route.to_owned()), ("status", key.2.to_string())];
            let times = metrics::histogram!("matchday_http_seconds", &labels[..]);
            times.record(took);
            self.0.write().unwrap_or_else(PoisonError::into_inner).insert(key, times);
        }
    }
}

/// Clients can invent methods; metrics must not grow with their imagination.
fn known(method: &Method) -> &'static str {
    match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    }
}
