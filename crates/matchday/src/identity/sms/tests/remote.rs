//! HTTP server that simulates a provider.

use std::sync::{Arc, Mutex};

use axum::{
    Router,
    body::{Body, to_bytes},
    extract::Request,
    http::{HeaderMap, Response},
};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpListener,
};
use url::{Url, form_urlencoded};

/// A request as the provider received it.
pub(super) struct Seen {
    pub(super) method: String,
    pub(super) path: String,
    pub(super) headers: HeaderMap,
    pub(super) form: Vec<(String, String)>,
}

/// Simulated provider that sends the same response to all requests and records them.
pub(super) struct Remote {
    pub(super) base_url: Url,
    pub(super) seen: Arc<Mutex<Vec<Seen>>>,
}

impl Remote {
    pub(super) async fn responding(
        status: u16,
        headers: &'static [(&'static str, &'static str)],
        body: impl Into<String>,
    ) -> Self {
        let (body, seen) = (body.into(), Arc::new(Mutex::new(Vec::new())));
        let log = Arc::clone(&seen);
        let router = Router::new().fallback(async move |request: Request| {
            let (parts, received) = request.into_parts();
            let received = to_bytes(received, 100_000).await.expect("a body");
            log.lock().expect("not poisoned").push(Seen {
                method: parts.method.to_string(),
                path: parts.uri.to_string(),
                headers: parts.headers,
                form: form_urlencoded::parse(&received).into_owned().collect(),
            });
            let mut response = Response::builder().status(status);
            for (name, value) in headers {
                response = response.header(*name, *value);
            }
            response.body(Body::from(body)).expect("a response")
        });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = base_url(&listener);
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self { base_url, seen }
    }

    /// Reads the request, writes the start of a response, and then stalls.
    pub(super) async fn stuck_after(beginning: &'static str) -> Url {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let base_url = base_url(&listener);
        tokio::spawn(async move {
            let mut open = Vec::new();
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 4096]).await;
                let _ = stream.write_all(beginning.as_bytes()).await;
                open.push(stream);
            }
        });
        base_url
    }

    pub(super) fn only_request(&self) -> Seen {
        let mut seen = self.seen.lock().expect("not poisoned");
        assert_eq!(seen.len(), 1, "one request without retries");
        seen.remove(0)
    }
}

pub(super) fn base_url(listener: &TcpListener) -> Url {
    let address = listener.local_addr().expect("an address");
    format!("http://{address}").parse().expect("a URL")
}
