//! Common processing of every request, in one pass: request id, limit of concurrent requests, deadline, panic handling,
//! metrics and logging.
//!
//! It is one hand-written step instead of a stack of layers, because it runs before every cached page. As layers, the
//! same work costs about seven times as much, and more than serving the page (`cargo bench -p web`).

use std::{
    any::Any,
    collections::HashMap,
    convert::Infallible,
    future::ready,
    panic::AssertUnwindSafe,
    pin::{Pin, pin},
    sync::{
        Arc, OnceLock,
        atomic::{AtomicU64, AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::Body,
    response::{IntoResponse as _, Response},
};
use futures_util::{FutureExt as _, future::Either, poll};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, StatusCode};
use metrics::Histogram;
use platform::telemetry::{self, CURRENT_REQUEST, CurrentRequest, RequestId, RequestLog};
use tower::Service;
use tracing::Instrument as _;
use tracing_opentelemetry::OpenTelemetrySpanExt as _;

use super::{error::ApiError, server::Answers};

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// Slower requests are logged, regardless of their status.
const SLOW: Duration = Duration::from_secs(1);

/// Limits of requests, and their logging and tracing.
#[derive(Clone, Copy, Debug)]
pub struct EdgeSettings {
    /// Maximum number of concurrent requests.
    pub max_in_flight: usize,
    /// Maximum duration of a request.
    pub deadline: Duration,
    /// Requests that get a log line.
    pub log: RequestLog,
    pub traced: bool,
}

/// Answers a request from memory, without waiting. Returns `None` to leave the request to the router.
pub type Shortcut = Box<dyn Fn(&Request<Body>) -> Option<Response> + Send + Sync>;

/// A router with the common processing.
#[derive(Clone)]
pub struct Edge {
    router: Router,
    shared: Arc<Shared>,
}

struct Shared {
    under_way: AtomicUsize,
    max_in_flight: usize,
    deadline: Duration,
    log: RequestLog,
    traced: bool,
    ids: RequestIds,
    routes: Routes,
}

impl Edge {
    /// Wraps a router with the routes `paths`. The routes in `unbounded` are exempt from the limit of concurrent
    /// requests. `seed` makes the request ids of this process unique. The `shortcuts` of some routes are asked before
    /// the router, whose extractors and boxed futures cost more than serving a cached page.
    pub fn new(
        router: Router,
        settings: EdgeSettings,
        seed: u64,
        paths: Vec<String>,
        unbounded: &[&str],
        shortcuts: HashMap<&str, Shortcut>,
    ) -> Self {
        let shared = Shared {
            under_way: AtomicUsize::new(0),
            max_in_flight: settings.max_in_flight,
            deadline: settings.deadline,
            log: settings.log,
            traced: settings.traced,
            ids: RequestIds { seed, next: AtomicU64::new(0) },
            routes: Routes::new(paths, unbounded, shortcuts),
        };
        Self { router, shared: Arc::new(shared) }
    }
}

impl Answers for Edge {
    // hyper moves the future of every request, so its size matters: the future of a routed request is boxed.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send {
        let began = Instant::now();
        let shared = &*self.shared;
        let route = shared.routes.find(request.uri().path());
        let id = shared.ids.choose(request.headers().get(REQUEST_ID));
        if let Some(response) = shared.shortcut(route, &request) {
            route.record(request.method(), response.status(), began.elapsed());
            return Either::Left(ready(with_id(response, id.to_header())));
        }
        Either::Right(self.route(request, route, id, began))
    }
}

impl Edge {
    fn route<'a>(
        &'a self,
        request: Request<Body>,
        route: &'a Route,
        id: RequestId,
        began: Instant,
    ) -> Pin<Box<dyn Future<Output = Response> + Send + 'a>> {
        let shared = &*self.shared;
        let current = CurrentRequest { id, method: request.method().clone(), route: Arc::clone(&route.name) };
        let span = if shared.traced { span(&current, request.headers()) } else { tracing::Span::none() };
        let place = Place::take(shared).filter(|_| !route.unbounded);
        let answer = (route.unbounded || place.is_some()).then(|| self.router.clone().call(request));
        let work = CURRENT_REQUEST.scope(current, async move {
            let response = match answer {
                Some(answer) => in_time(shared.deadline, pin!(answer)).await,
                None => overloaded().into_response(),
            };
            drop(place);
            let took = began.elapsed();
            let id = CURRENT_REQUEST.with(|current| {
                route.record(&current.method, response.status(), took);
                log_request(shared.log, response.status(), took);
                current.id.to_header()
            });
            with_id(response, id)
        });
        if span.is_none() { Box::pin(work) } else { Box::pin(work.instrument(span)) }
    }
}

impl Shared {
    /// Response of the route's shortcut. The router answers requests that are traced or logged, and those whose
    /// shortcut panics.
    fn shortcut(&self, route: &Route, request: &Request<Body>) -> Option<Response> {
        let shortcut = route.shortcut.as_ref().filter(|_| !self.traced && self.log != RequestLog::All)?;
        std::panic::catch_unwind(AssertUnwindSafe(|| shortcut(request))).ok().flatten()
    }
}

fn with_id(mut response: Response, id: HeaderValue) -> Response {
    response.headers_mut().insert(REQUEST_ID, id);
    response
}

/// Lets layers wrap the edge.
impl Service<Request<Body>> for Edge {
    type Response = Response;
    type Error = Infallible;
    type Future = Pin<Box<dyn Future<Output = Result<Response, Infallible>> + Send>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let edge = self.clone();
        Box::pin(async move { Ok(edge.answer(request).await) })
    }
}

/// A slot among the concurrent requests, released when dropped.
struct Place<'a>(&'a AtomicUsize);

impl<'a> Place<'a> {
    fn take(shared: &'a Shared) -> Option<Self> {
        let before = shared.under_way.fetch_add(1, Ordering::AcqRel);
        let place = Self(&shared.under_way);
        (before < shared.max_in_flight).then_some(place)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::AcqRel);
    }
}

/// Response to a request above the limit of concurrent requests.
pub fn overloaded() -> ApiError {
    metrics::counter!("matchday_http_shed_total").increment(1);
    ApiError::unavailable("overloaded", "The server is overloaded. Try again shortly.")
}

/// Response to a request that exceeded its deadline.
pub fn too_late() -> ApiError {
    ApiError::unavailable("deadline_exceeded", "The request took too long.")
}

async fn in_time(
    deadline: Duration,
    answer: Pin<&mut (impl Future<Output = Result<Response, Infallible>> + Send)>,
) -> Response {
    let mut answer = AssertUnwindSafe(answer).catch_unwind();
    // Most responses are ready at the first poll and need no timer.
    let outcome = match poll!(&mut answer) {
        Poll::Ready(outcome) => Ok(outcome),
        Poll::Pending => tokio::time::timeout(deadline, answer).await,
    };
    match outcome {
        Ok(Ok(Ok(response))) => response,
        Ok(Err(panic)) => ApiError::internal(anyhow::anyhow!("panicked: {}", panic_message(&*panic))).into_response(),
        Err(_) => too_late().into_response(),
    }
}

fn panic_message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("no message")
}

/// Creates a span that continues the caller's trace, if there is one.
fn span(current: &CurrentRequest, headers: &HeaderMap) -> tracing::Span {
    let name = format!("{} {}", current.method, current.route);
    let span = tracing::info_span!("request", otel.name = name, otel.kind = "server", request_id = current.id.as_str());
    if let Err(error) = span.set_parent(telemetry::remote_parent(headers)) {
        tracing::debug!(%error, "caller's trace context not attached");
    }
    span
}

fn log_request(log: RequestLog, status: StatusCode, took: Duration) {
    let problem = status.is_server_error() || took >= SLOW;
    let milliseconds = rounded(took);
    if problem && log != RequestLog::None {
        tracing::warn!(status = status.as_u16(), milliseconds, "request finished");
    } else if log == RequestLog::All {
        tracing::info!(status = status.as_u16(), milliseconds, "request finished");
    }
}

/// Milliseconds, rounded to one decimal.
fn rounded(time: Duration) -> f64 {
    (time.as_secs_f64() * 10_000.0).round() / 10.0
}

struct RequestIds {
    seed: u64,
    next: AtomicU64,
}

impl RequestIds {
    /// Returns the client's request id if it is valid, otherwise a new one.
    fn choose(&self, given: Option<&HeaderValue>) -> RequestId {
        let valid = |id: &&HeaderValue| {
            (1..=128).contains(&id.len())
                && id.as_bytes().iter().all(|byte| byte.is_ascii_alphanumeric() || b"-_.:/+=".contains(byte))
        };
        match given.filter(valid) {
            Some(given) => RequestId::Given(given.clone()),
            None => RequestId::made(self.seed, self.next.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

/// Routes by path, for their names in logs and metrics.
struct Routes {
    by_path: matchit::Router<Route>,
    unmatched: Route,
}

impl Routes {
    fn new(paths: Vec<String>, unbounded: &[&str], mut shortcuts: HashMap<&str, Shortcut>) -> Self {
        let mut by_path = matchit::Router::new();
        for path in paths {
            let route = Route {
                shortcut: shortcuts.remove(path.as_str()),
                ..Route::new(&path, unbounded.contains(&path.as_str()))
            };
            if let Err(error) = by_path.insert(path, route) {
                tracing::warn!(%error, "invalid route; its requests are counted as unmatched");
            }
        }
        Self { by_path, unmatched: Route::new("unmatched", false) }
    }

    fn find(&self, path: &str) -> &Route {
        self.by_path.at(path).map_or(&self.unmatched, |found| found.value)
    }
}

const METHODS: [&str; 7] = ["GET", "POST", "PUT", "DELETE", "HEAD", "OPTIONS", "other"];
/// Statuses from 100 to 599.
const STATUSES: usize = 500;

/// A route with its latency histograms, because looking up a histogram by its labels costs more than using it.
struct Route {
    name: Arc<str>,
    unbounded: bool,
    shortcut: Option<Shortcut>,
    times: Vec<OnceLock<Histogram>>,
}

impl Route {
    fn new(name: &str, unbounded: bool) -> Self {
        let times = std::iter::repeat_with(OnceLock::new).take(METHODS.len() * STATUSES).collect();
        Self { name: name.into(), unbounded, shortcut: None, times }
    }

    fn record(&self, method: &Method, status: StatusCode, took: Duration) {
        // Clients can invent methods, and the number of metric series must stay bounded.
        let method = METHODS.iter().position(|&known| known == method.as_str()).unwrap_or(METHODS.len() - 1);
        let place = method * STATUSES + usize::from(status.as_u16()).saturating_sub(100).min(STATUSES - 1);
        let times = self.times[place].get_or_init(|| {
            let labels = [
                ("method", METHODS[method].to_owned()),
                ("route", self.name.as_ref().to_owned()),
                ("status", status.as_str().to_owned()),
            ];
            metrics::histogram!("matchday_http_seconds", &labels[..])
        });
        times.record(took);
    }
}

#[cfg(test)]
mod tests {
    use axum::routing::get;
    use http_body_util::BodyExt as _;

    use super::*;

    async fn panics() {
        panic!("a secret");
    }

    #[test]
    fn logged_milliseconds_have_one_decimal() {
        for (microseconds, expected) in [(633_745, "633.7"), (40, "0"), (51, "0.1"), (10_000_049, "10000")] {
            assert_eq!(rounded(Duration::from_micros(microseconds)).to_string(), expected);
        }
    }

    #[tokio::test]
    async fn panic_is_an_opaque_500_and_frees_its_slot() {
        let router = Router::new().route("/panics", get(panics)).route("/fine", get(async || "fine"));
        let settings = EdgeSettings {
            max_in_flight: 1,
            deadline: Duration::from_secs(10),
            log: RequestLog::Problems,
            traced: false,
        };
        let edge = Edge::new(router, settings, 7, vec!["/panics".to_owned()], &[], HashMap::new());
        let fetch = async |path: &str| edge.answer(Request::get(path).body(Body::empty()).expect("a request")).await;
        for _ in 0..3 {
            let answer = fetch("/panics").await;
            assert_eq!(answer.status(), StatusCode::INTERNAL_SERVER_ERROR);
            assert!(answer.headers()["x-request-id"].to_str().is_ok_and(|id| id.starts_with("0000000000000007")));
            let body = answer.into_body().collect().await.expect("a body").to_bytes();
            assert!(!String::from_utf8_lossy(&body).contains("secret"));
        }
        assert_eq!(fetch("/fine").await.status(), StatusCode::OK);
    }

    #[tokio::test]
    async fn shortcut_answers_unless_it_declines_or_panics() {
        let router = Router::new().route("/page", get(async || "routed"));
        let edge = |log| {
            let shortcut: Shortcut = Box::new(|request| match request.uri().query() {
                Some("decline") => None,
                Some("panic") => panic!("a fault"),
                _ => Some("direct".into_response()),
            });
            let deadline = Duration::from_secs(10);
            let settings = EdgeSettings { max_in_flight: 1, deadline, log, traced: false };
            let shortcuts = HashMap::from([("/page", shortcut)]);
            Edge::new(router.clone(), settings, 7, vec!["/page".to_owned()], &[], shortcuts)
        };
        let (usual, logging) = (edge(RequestLog::Problems), edge(RequestLog::All));
        for (edge, path, expected) in [
            (&usual, "/page", "direct"),
            (&usual, "/page?decline", "routed"),
            (&usual, "/page?panic", "routed"),
            (&logging, "/page", "routed"),
        ] {
            let response = edge.answer(Request::get(path).body(Body::empty()).expect("a request")).await;
            assert!(response.headers().contains_key("x-request-id"), "{path}");
            let body = response.into_body().collect().await.expect("a body").to_bytes();
            assert_eq!(body, expected, "{path}");
        }
    }
}
