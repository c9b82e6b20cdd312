//! A server that responds like football-data.org.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::Body,
    extract::{Request, State},
    http::{Response, header},
};
use serde_json::Value;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};

/// The token that the server accepts.
pub(super) const TOKEN: &str = "the-right-token";

/// A response of the server.
#[derive(Clone)]
pub(super) struct Answer {
    status: u16,
    headers: Vec<(&'static str, &'static str)>,
    body: String,
}

impl Answer {
    pub(super) fn new(status: u16, body: &str) -> Self {
        Self { status, headers: Vec::new(), body: body.to_owned() }
    }

    pub(super) fn ok(document: &Value) -> Self {
        Self::new(200, &document.to_string())
    }

    pub(super) fn with(mut self, name: &'static str, value: &'static str) -> Self {
        self.headers.push((name, value));
        self
    }
}

/// A request and the status of its response.
#[derive(Clone)]
pub(super) struct Seen {
    pub(super) path: String,
    pub(super) token: Option<String>,
    pub(super) etag: Option<String>,
    pub(super) status: u16,
}

/// The current response, and the requests so far.
type Shared = Arc<Mutex<(Answer, Vec<Seen>)>>;

/// Returns the same response until the test sets another one, and records all requests.
pub(super) struct Provider {
    pub(super) url: String,
    shared: Shared,
}

impl Provider {
    pub(super) async fn start() -> Self {
        let shared = Arc::new(Mutex::new((Answer::new(500, ""), Vec::new())));
        let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { url, shared }
    }

    /// Starts a server that reads requests, begins a response and never completes it.
    pub(super) async fn stuck() -> String {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{").await;
                open.push(stream);
            }
        });
        url
    }

    pub(super) fn says(&self, answer: Answer) {
        self.shared.lock().expect("not poisoned").0 = answer;
    }

    pub(super) fn seen(&self) -> Vec<Seen> {
        self.shared.lock().expect("not poisoned").1.clone()
    }
}

async fn answer(State(shared): State<Shared>, request: Request) -> Response<Body> {
    let text = |name: &str| request.headers().get(name).and_then(|value| value.to_str().ok()).map(str::to_owned);
    let (path, token, etag) = (request.uri().path().to_owned(), text("x-auth-token"), text("if-none-match"));
    let mut shared = shared.lock().expect("not poisoned");
    let mut answer = shared.0.clone();
    if token.as_deref() != Some(TOKEN) {
        let shown = token.as_deref().unwrap_or_default();
        answer = Answer::new(
            403,
            &format!("{{\"message\": \"The token {shown} is not one of ours.\", \"errorCode\": 403}}"),
        );
    }
    let current = answer.headers.iter().find(|(name, _)| *name == "ETag").map(|(_, value)| (*value).to_owned());
    if etag.is_some() && etag == current {
        (answer.status, answer.body) = (304, String::new());
    }
    shared.1.push(Seen { path, token, etag, status: answer.status });
    drop(shared);
    let mut response = Response::builder().status(answer.status).header(header::CONTENT_TYPE, "application/json");
    for (name, value) in answer.headers {
        response = response.header(name, value);
    }
    response.body(Body::from(answer.body)).expect("an answer")
}
