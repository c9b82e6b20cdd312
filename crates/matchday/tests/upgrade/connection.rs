//! A connection that an app keeps open.

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use matchday::testing::Answer;
use serde_json::Value;
use tokio::net::TcpStream;

/// One HTTP/1.1 connection for consecutive requests. It never retries: a retry would hide failures that these tests
/// must detect, so a request without a response has failed.
pub(crate) struct Connection {
    address: String,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// Number of times the connection was opened.
    pub(crate) opened: u64,
}

/// A request to the API.
pub(crate) struct Call<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    /// Empty for an unauthenticated request.
    pub(crate) token: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: Bytes,
}

impl<'a> Call<'a> {
    pub(crate) fn get(path: &'a str, token: &'a str) -> Self {
        Self { method: Method::GET, path, token, headers: &[], body: Bytes::new() }
    }

    pub(crate) fn post(path: &'a str, token: &'a str, body: &Value) -> Self {
        Self { method: Method::POST, path, token, headers: &[], body: body.to_string().into() }
    }

    pub(crate) fn with(self, headers: &'a [(&'a str, &'a str)]) -> Self {
        Self { headers, ..self }
    }
}

impl Connection {
    /// Targets this host and port. The first request opens the connection.
    pub(crate) fn to(address: &str) -> Self {
        Self { address: address.trim_start_matches("http://").to_owned(), sender: None, opened: 0 }
    }

    /// Sends the request once, without retries.
    pub(crate) async fn send(&mut self, call: Call<'_>) -> Result<Answer, String> {
        let mut request = Request::builder()
            .method(call.method)
            .uri(call.path)
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json");
        if !call.token.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", call.token));
        }
        for (name, value) in call.headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(call.body)).map_err(|error| error.to_string())?;
        let answer = self.exchange(request).await.map_err(|error| format!("no response: {error}"));
        if answer.is_err() {
            self.sender = None;
        }
        answer
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Box<dyn std::error::Error>> {
        // Fails if the other end has announced that it closes the connection.
        let is_open = match &mut self.sender {
            Some(sender) => sender.ready().await.is_ok(),
            None => false,
        };
        if !is_open {
            let stream = TcpStream::connect(&self.address).await?;
            stream.set_nodelay(true)?;
            let (sender, connection) = handshake(TokioIo::new(stream)).await?;
            tokio::spawn(connection);
            self.sender = Some(sender);
            self.opened += 1;
        }
        let sender = self.sender.as_mut().ok_or("no connection")?;
        let (head, body) = sender.send_request(request).await?.into_parts();
        let bytes = body.collect().await?.to_bytes().to_vec();
        Ok(Answer { status: head.status, headers: head.headers, bytes })
    }
}
