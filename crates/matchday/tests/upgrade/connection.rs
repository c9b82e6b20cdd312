//! A connection that an app keeps open.

use bytes::Bytes;
use http::{Method, Request, header};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http1::{SendRequest, handshake};
use hyper_util::rt::TokioIo;
use matchday::testing::Answer;
use serde_json::Value;
use tokio::net::TcpStream;

/// One connection, used for one request after another. Clients that send again by themselves would hide what is looked
/// for here, so this one never does: a request that was not answered has failed.
pub(crate) struct Connection {
    address: String,
    sender: Option<SendRequest<Full<Bytes>>>,
    /// How often it had to be opened.
    pub(crate) opened: u64,
}

/// What is asked, and by whom.
pub(crate) struct Question<'a> {
    pub(crate) method: Method,
    pub(crate) path: &'a str,
    /// Empty for a stranger.
    pub(crate) token: &'a str,
    pub(crate) headers: &'a [(&'a str, &'a str)],
    pub(crate) body: Bytes,
}

impl<'a> Question<'a> {
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
    /// To this host and port, opened with the first request.
    pub(crate) fn to(address: &str) -> Self {
        Self { address: address.trim_start_matches("http://").to_owned(), sender: None, opened: 0 }
    }

    /// Asks once.
    pub(crate) async fn ask(&mut self, question: Question<'_>) -> Result<Answer, String> {
        let mut request = Request::builder()
            .method(question.method)
            .uri(question.path)
            .header(header::HOST, &self.address)
            .header(header::CONTENT_TYPE, "application/json");
        if !question.token.is_empty() {
            request = request.header(header::AUTHORIZATION, format!("Bearer {}", question.token));
        }
        for (name, value) in question.headers {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(question.body)).map_err(|error| error.to_string())?;
        let answer = self.exchange(request).await.map_err(|error| format!("no answer: {error}"));
        if answer.is_err() {
            self.sender = None;
        }
        answer
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<Answer, Box<dyn std::error::Error>> {
        // Waits until the connection can take a request: a moment, or for ever when the other end said that it closes.
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
