//! What happens to every request, in one pass: an id, a place among those under way, a deadline, and a record of how
//! it went.

use std::{
    cell::RefCell,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use axum::{
    extract::{MatchedPath, Request, State},
    middleware::Next,
    response::{IntoResponse as _, Response},
};
use http::{HeaderName, HeaderValue, Method};
use tokio::sync::Semaphore;
use tracing::Instrument as _;

use super::error::{ApiError, REQUEST_ID};
use crate::platform::config::RequestLog;

const REQUEST_ID_HEADER: HeaderName = HeaderName::from_static("x-request-id");

/// A request that took longer is logged, whatever its answer.
const SLOW: Duration = Duration::from_secs(1);

/// What the edge needs to know.
#[derive(Clone)]
pub(super) struct Edge {
    inner: Arc<Inner>,
}

struct Inner {
    places: Semaphore,
    deadline: Duration,
    log: RequestLog,
    ids: RequestIds,
}

impl Edge {
    /// At most `max_in_flight` requests at a time, each for at most `deadline`. `seed` makes this process's request
    /// ids its own.
    pub(super) fn new(max_in_flight: usize, deadline: Duration, log: RequestLog, seed: u64) -> Self {
        let ids = RequestIds { seed, next: AtomicU64::new(0) };
        Self { inner: Arc::new(Inner { places: Semaphore::new(max_in_flight), deadline, log, ids }) }
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
            HeaderValue::try_from(format!("{:016x}{number:010x}", self.seed)).unwrap_or(HeaderValue::from_static("-"))
        })
    }
}

/// The middleware.
pub(super) async fn edge(State(edge): State<Edge>, request: Request, next: Next) -> Response {
    let began = Instant::now();
    let inner = &*edge.inner;
    let id = inner.ids.choose(request.headers().get(REQUEST_ID_HEADER));
    let method = request.method().clone();
    let route = request.extensions().get::<MatchedPath>().cloned();
    let route_name = route.as_ref().map_or("unmatched", MatchedPath::as_str);
    let span = tracing::info_span!(
        "request",
        request_id = id.to_str().unwrap_or_default(),
        method = method.as_str(),
        route = route_name
    );
    let answer = async {
        let Ok(_place) = inner.places.try_acquire() else {
            metrics::counter!("matchday_http_shed_total").increment(1);
            return ApiError::unavailable("overloaded", "Too many requests are under way. Try again shortly.")
                .into_response();
        };
        let response = match tokio::time::timeout(inner.deadline, next.run(request)).await {
            Ok(response) => response,
            Err(_) => ApiError::unavailable("deadline_exceeded", "The request took too long.").into_response(),
        };
        record(inner.log, &method, route_name, &response, began.elapsed());
        response
    };
    let mut response = REQUEST_ID.scope(RefCell::new(id.clone()), answer.instrument(span)).await;
    response.headers_mut().insert(REQUEST_ID_HEADER, id);
    response
}

fn record(log: RequestLog, method: &Method, route: &str, response: &Response, took: Duration) {
    let status = response.status();
    let labels = [
        ("method", known(method)),
        ("route", std::borrow::Cow::Owned(route.to_owned())),
        ("status", std::borrow::Cow::Owned(status.as_str().to_owned())),
    ];
    metrics::histogram!("matchday_http_seconds", &labels[..]).record(took);
    let problem = status.is_server_error() || took >= SLOW;
    let wanted = match log {
        RequestLog::All => true,
        RequestLog::Problems => problem,
        RequestLog::None => false,
    };
    if wanted {
        let milliseconds = took.as_secs_f64() * 1_000.0;
        if problem {
            tracing::warn!(status = status.as_u16(), milliseconds, "answered");
        } else {
            tracing::info!(status = status.as_u16(), milliseconds, "answered");
        }
    }
}

/// Clients can invent methods; metrics must not grow with their imagination.
fn known(method: &Method) -> std::borrow::Cow<'static, str> {
    std::borrow::Cow::Borrowed(match *method {
        Method::GET => "GET",
        Method::POST => "POST",
        Method::PUT => "PUT",
        Method::DELETE => "DELETE",
        Method::HEAD => "HEAD",
        Method::OPTIONS => "OPTIONS",
        _ => "other",
    })
}
