//! Rate limit headers: a handler states its limit once, and [`LimitHeadersLayer`] adds it to the response, whether it
//! is a success or an error.
//!
//! The limit is a task-local and not a request extension, so extractors and handlers can state it without an
//! argument. The layer must be inside of any layer that runs requests in a separate task.

use std::{
    cell::Cell,
    convert::Infallible,
    task::{Context, Poll},
};

use axum::{extract::Request, response::Response};
use futures_util::{FutureExt as _, future::Map};
use http::{HeaderMap, HeaderName, HeaderValue};
use platform::rate_limit::Decision;
use tokio::task::futures::TaskLocalFuture;
use tower::{Layer, Service};

use super::error::ApiError;

const LIMIT: HeaderName = HeaderName::from_static("x-ratelimit-limit");
const REMAINING: HeaderName = HeaderName::from_static("x-ratelimit-remaining");

tokio::task_local! {
    static STATED: Cell<Option<Decision>>;
}

/// States the limit that the response of the current request reports.
pub fn state_limit(decision: Decision) {
    // Outside of the layer, no response can carry the limit.
    let _ = STATED.try_with(|stated| stated.set(Some(decision)));
}

/// States the endpoint's limit, and refuses the request with 429 if the limit is used up.
pub fn permitted(decision: Decision) -> Result<(), ApiError> {
    state_limit(decision);
    if decision.allowed { Ok(()) } else { Err(ApiError::rate_limited(decision)) }
}

pub(super) fn insert_headers(headers: &mut HeaderMap, decision: Decision) {
    headers.insert(LIMIT, HeaderValue::from(decision.limit));
    headers.insert(REMAINING, HeaderValue::from(decision.remaining));
}

/// Adds headers with the limit that the handler or one of its extractors stated.
#[derive(Clone, Copy, Debug)]
pub struct LimitHeadersLayer;

impl<S> Layer<S> for LimitHeadersLayer {
    type Service = LimitHeaders<S>;

    fn layer(&self, inner: S) -> LimitHeaders<S> {
        LimitHeaders(inner)
    }
}

/// The service created by [`LimitHeadersLayer`].
#[derive(Clone, Debug)]
pub struct LimitHeaders<S>(S);

type Answer = Result<Response, Infallible>;

impl<S: Service<Request, Response = Response, Error = Infallible>> Service<Request> for LimitHeaders<S> {
    type Response = Response;
    type Error = Infallible;
    // A named type instead of a box, because most requests state no limit.
    type Future = TaskLocalFuture<Cell<Option<Decision>>, Map<S::Future, fn(Answer) -> Answer>>;

    fn poll_ready(&mut self, context: &mut Context<'_>) -> Poll<Result<(), Infallible>> {
        self.0.poll_ready(context)
    }

    fn call(&mut self, request: Request) -> Self::Future {
        STATED.scope(Cell::new(None), self.0.call(request).map(with_headers as fn(Answer) -> Answer))
    }
}

fn with_headers(answer: Answer) -> Answer {
    answer.map(|mut response| {
        // An error caused by another limit already reports that limit.
        if let Some(decision) = STATED.with(Cell::get).filter(|_| !response.headers().contains_key(LIMIT)) {
            insert_headers(response.headers_mut(), decision);
        }
        response
    })
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use axum::{Router, body::Body, routing::get};
    use http::StatusCode;

    use super::*;

    fn decision(limit: u32, remaining: u32) -> Decision {
        let allowed = remaining > 0;
        let retry_after = if allowed { Duration::ZERO } else { Duration::from_secs(7) };
        Decision { allowed, limit, remaining, retry_after }
    }

    fn router() -> Router {
        let error = || ApiError::not_found("The room");
        Router::new()
            .route("/unlimited", get(async || "fine"))
            .route("/succeeds", get(async || permitted(decision(5, 4)).map(|()| "fine")))
            .route("/fails", get(async move || permitted(decision(5, 3)).and_then(|()| Err::<(), _>(error()))))
            .route("/used-up", get(async || permitted(decision(5, 0))))
            .route("/other-limit", get(async || permitted(decision(5, 2)).and_then(|()| permitted_elsewhere())))
            .layer(LimitHeadersLayer)
    }

    fn permitted_elsewhere() -> Result<(), ApiError> {
        Err(ApiError::rate_limited(decision(60, 0)))
    }

    async fn get_limits(path: &str) -> (StatusCode, [Option<String>; 3]) {
        let request = Request::get(path).body(Body::empty()).expect("a request");
        let response = router().call(request).await.expect("a response");
        let header = |name| response.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
        (response.status(), ["x-ratelimit-limit", "x-ratelimit-remaining", "retry-after"].map(header))
    }

    #[tokio::test]
    async fn stated_limit_is_on_successes_and_errors() {
        for (path, status, headers) in [
            ("/unlimited", 200, [None, None, None]),
            ("/succeeds", 200, [Some("5"), Some("4"), None]),
            ("/fails", 404, [Some("5"), Some("3"), None]),
            ("/used-up", 429, [Some("5"), Some("0"), Some("7")]),
            ("/other-limit", 429, [Some("60"), Some("0"), Some("7")]),
        ] {
            let expected = headers.map(|value| value.map(str::to_owned));
            assert_eq!(get_limits(path).await, (StatusCode::from_u16(status).expect("a status"), expected), "{path}");
        }
    }

    #[test]
    fn limit_stated_outside_of_a_request_is_ignored() {
        state_limit(decision(5, 4));
    }
}
