//! A server that stands for whoever is told something over HTTP.

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

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Received {
    /// The path, with what follows it.
    pub path: String,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// When.
    pub at: Instant,
}

impl Received {
    /// A header as text.
    pub fn header(&self, name: &str) -> &str {
        self.headers.get(name).and_then(|value| value.to_str().ok()).unwrap_or_default()
    }

    /// The body, which must be JSON.
    pub fn json(&self) -> serde_json::Value {
        serde_json::from_slice(&self.body).expect("JSON")
    }
}

/// What is answered.
#[derive(Clone, Debug)]
pub struct Reply {
    status: u16,
    headers: Vec<(String, String)>,
    body: String,
    after: Duration,
}

impl Reply {
    /// This status, and nothing else.
    pub fn status(status: u16) -> Self {
        Self { status, headers: Vec::new(), body: String::new(), after: Duration::ZERO }
    }

    /// Nothing at all.
    pub fn never() -> Self {
        Self::status(200).after(Duration::from_hours(1))
    }

    /// The same with a header.
    #[must_use]
    pub fn with(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// The same with a body.
    #[must_use]
    pub fn saying(mut self, body: &str) -> Self {
        body.clone_into(&mut self.body);
        self
    }

    /// The same, so much later.
    #[must_use]
    pub fn after(mut self, time: Duration) -> Self {
        self.after = time;
        self
    }
}

/// The server. It is gone when it is dropped.
pub struct Receiver {
    /// Where it is.
    pub url: Url,
    seen: Arc<Mutex<Vec<Received>>>,
    _server: AbortOnDropHandle<()>,
}

impl Receiver {
    /// A server whose answers are told by how many requests came before, and the request.
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

    /// What came so far.
    pub fn seen(&self) -> Vec<Received> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}
