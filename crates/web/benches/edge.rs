//! Compares the common processing of requests, written by hand ([`Edge`]), with the same work as a stack of layers:
//! `cargo bench -p web`. Both wrap the same router, which serves bytes from memory. Prints the time per request of the
//! bare router and of both, as the median of alternating rounds, because machines are noisy.

use std::{
    collections::HashMap,
    hint::black_box,
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes},
    error_handling::HandleErrorLayer,
    extract::Request,
    middleware::{self, Next},
    response::Response,
    routing::get,
};
use http::{HeaderName, HeaderValue, StatusCode};
use platform::telemetry::RequestLog;
use tower::{Service as _, ServiceBuilder};
use tower_http::{
    catch_panic::CatchPanicLayer,
    request_id::{MakeRequestId, PropagateRequestIdLayer, RequestId, SetRequestIdLayer},
    timeout::TimeoutLayer,
};
use web::{Edge, EdgeSettings, server::Answers as _};

const ROUNDS: usize = 7;
const REQUESTS: u32 = 100_000;
const PATH: &str = "/api/auth/events";
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
const DEADLINE: Duration = Duration::from_secs(10);
const MAX_IN_FLIGHT: usize = 1_000;

fn router() -> Router {
    let page = Bytes::from(vec![b'x'; 6_000]);
    Router::new().route(PATH, get(move || std::future::ready(page.clone())))
}

fn edge() -> Edge {
    let settings =
        EdgeSettings { max_in_flight: MAX_IN_FLIGHT, deadline: DEADLINE, log: RequestLog::Problems, traced: false };
    Edge::new(router(), settings, 7, vec![PATH.to_owned()], &[], HashMap::new())
}

#[derive(Clone, Default)]
struct Numbered(u64);

impl MakeRequestId for Numbered {
    fn make_request_id<B>(&mut self, _: &Request<B>) -> Option<RequestId> {
        self.0 += 1;
        HeaderValue::try_from(format!("{:032x}", self.0)).ok().map(RequestId::new)
    }
}

/// Records the latency by method, route and status.
async fn measured(request: Request, next: Next) -> Response {
    let (began, method) = (Instant::now(), request.method().clone());
    let response = next.run(request).await;
    let labels = [
        ("method", method.as_str().to_owned()),
        ("route", PATH.to_owned()),
        ("status", response.status().as_str().to_owned()),
    ];
    metrics::histogram!("matchday_http_seconds", &labels[..]).record(began.elapsed());
    response
}

fn layers() -> Router {
    router().layer(
        ServiceBuilder::new()
            .layer(SetRequestIdLayer::new(REQUEST_ID, Numbered::default()))
            .layer(PropagateRequestIdLayer::new(REQUEST_ID))
            .layer(middleware::from_fn(measured))
            .layer(HandleErrorLayer::new(async |_| StatusCode::SERVICE_UNAVAILABLE))
            .load_shed()
            .concurrency_limit(MAX_IN_FLIGHT)
            .layer(TimeoutLayer::with_status_code(StatusCode::SERVICE_UNAVAILABLE, DEADLINE))
            .layer(CatchPanicLayer::new()),
    )
}

async fn routed(router: &Router, request: Request) -> Response {
    router.clone().call(request).await.unwrap_or_else(|never| match never {})
}

/// Nanoseconds per request.
async fn time(answer: impl AsyncFn(Request) -> Response) -> f64 {
    let began = Instant::now();
    for _ in 0..REQUESTS {
        let request = Request::get(PATH).header("authorization", "Bearer token").body(Body::empty());
        let response = answer(request.expect("a request")).await;
        assert_eq!(response.status(), StatusCode::OK);
        black_box(response);
    }
    began.elapsed().as_secs_f64() * 1e9 / f64::from(REQUESTS)
}

fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures[figures.len() / 2]
}

#[tokio::main(flavor = "current_thread")]
#[expect(clippy::print_stdout, reason = "the result of a benchmark")]
async fn main() {
    platform::telemetry::metrics();
    let (bare, edge, layers) = (router(), edge(), layers());
    let [mut of_bare, mut of_edge, mut of_layers] = [const { Vec::new() }; 3];
    for _ in 0..ROUNDS {
        of_bare.push(time(async |request| routed(&bare, request).await).await);
        of_edge.push(time(async |request| edge.answer(request).await).await);
        of_layers.push(time(async |request| routed(&layers, request).await).await);
    }
    let (bare, edge, layers) = (median(of_bare), median(of_edge), median(of_layers));
    println!("router alone {bare:.0} ns, with the edge {edge:.0} ns, with layers {layers:.0} ns a request");
    println!("the edge adds {:.0} ns, layers add {:.0} ns", edge - bare, layers - bare);
}
