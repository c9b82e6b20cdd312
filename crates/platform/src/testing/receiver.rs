//! An HTTP server for tests that records requests and returns scripted responses.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use axum::{
    Router,
    body::{Body, Bytes, to_bytes},
    extract::Request,
    http::{HeaderMap, Response},
};
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;
use url::Url;

#[derive(Clone, Debug)]
pub struct Received {
    /// Path with the query.
    pub path: String,
    pub headers: HeaderMap,
    pub body: Bytes,
    pub at: Instant,
}

impl Received {
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// Parses the body, which must be JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    after: Duration,
}

impl Reply {
    /// Responds with this status and an empty body.
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new(), after: Duration::ZERO }
    }

    /// Never responds to the request.
    pub fn never() -> Self {
        Self::status(200).after(Duration::from_hours(1))
    }

    /// Adds a header to the response.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets the body of the response.
    #[must_use]
    pub fn saying(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    /// Delays the response by this time.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }
}

/// The server. It stops when dropped.
pub struct Receiver {
    pub url: Url,
    seen: Arc<Mutex<Vec<Received>>>,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    /// Starts a server. `answer` receives the number of earlier requests and the request.
    pub async fn start(answer: impl Fn(usize, &Received) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}/", listener.local_addr().expect("an address")).parse().expect("a URL");
        let seen = Arc::new(Mutex::new(Vec::new()));
        let (log, answer) = (Arc::clone(&seen), Arc::new(answer));
        let router = Router::new().fallback(async move |request: Request| {
            let (parts, body) = request.into_parts();
            let body = to_bytes(body, 1_000_000).await.expect("a body");
            let received = Received { path: parts.uri.to_string(), headers: parts.headers, body, at: Instant::now() };
            let reply = {
                let mut seen = log.lock().unwrap_or_else(PoisonError::into_inner);
                let reply = answer(seen.len(), &received);
                seen.push(received);
                reply
            };
            tokio::time::sleep(reply.after).await;
            let mut response = Response::builder().status(reply.status);
            for (name, value) in reply.headers {
                response = response.header(name, value);
            }
            response.body(Body::from(reply.body)).expect("an answer")
        });
        let server = tokio::spawn(async move {
            let _ = axum::serve(listener, router).await;
        });
        Self { url, seen, _server: AbortOnDropHandle::new(server) }
    }

    /// Requests received so far.
    pub fn seen(&self) -> Vec<Received> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
