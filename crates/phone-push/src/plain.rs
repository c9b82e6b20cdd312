//! Plain HTTP for tests. FCM is documented for HTTP/1.1 and HTTP/2, so a local server may speak either.

use std::{sync::OnceLock, time::Duration};

use bytes::Bytes;
use http::{Request, header::RETRY_AFTER};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
};
use url::Url;

use crate::{
    SettingsError,
    attempts::Attempts,
    connection::{Connections, Failure, Reply},
};

/// Connection preface (RFC 9113, section 3.4) with an empty SETTINGS frame.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0";
const SETTINGS: u8 = 4;

/// Sends over HTTP/2, or over HTTP/1.1 to a plain server that does not speak HTTP/2.
pub(crate) struct AnyVersion {
    http2: Connections,
    http1: Option<Http1>,
}

struct Http1 {
    client: reqwest::Client,
    host: String,
    port: u16,
    timeout: Duration,
    probing: Attempts,
    speaks_http2: OnceLock<bool>,
}

impl AnyVersion {
    pub(crate) fn new(
        url: &Url,
        timeout: Duration,
        count: usize,
        client: reqwest::Client,
    ) -> Result<Self, SettingsError> {
        let http1 = (url.scheme() == "http").then(|| Http1 {
            client,
            host: url.host_str().unwrap_or_default().trim_matches(['[', ']']).to_owned(),
            port: url.port_or_known_default().unwrap_or(80),
            timeout,
            probing: Attempts::default(),
            speaks_http2: OnceLock::new(),
        });
        Ok(Self { http2: Connections::new(url, timeout, count)?, http1 })
    }

    pub(crate) async fn send(&self, request: &Request<()>, body: &Bytes) -> Result<Reply, Failure> {
        match &self.http1 {
            // Boxed, because these futures are large, and part of the future of each notification.
            Some(http1) if !http1.speaks_http2().await? => Box::pin(http1.send(request, body)).await,
            _ => self.http2.send(request, body).await,
        }
    }
}

impl Http1 {
    async fn speaks_http2(&self) -> Result<bool, Failure> {
        let known = || self.speaks_http2.get().copied();
        if let Some(known) = known() {
            return Ok(known);
        }
        // A server that does not answer in time is busy, and may speak either version. The next attempt probes it again.
        let probing = Box::pin(async {
            let answer = self.probe().await.map_err(|error| error.to_string())?;
            Ok(*self.speaks_http2.get_or_init(|| answer))
        });
        // As for a connection: a failed probe proves that nothing was sent.
        self.probing.share(self.timeout / 2, known, probing).await.map_err(Failure::NotSent)
    }

    async fn probe(&self) -> std::io::Result<bool> {
        let mut stream = TcpStream::connect((&*self.host, self.port)).await?;
        stream.write_all(PREFACE).await?;
        let mut head = [0; 9];
        // A server of HTTP/1.1 responds with an error or closes the connection.
        Ok(stream.read_exact(&mut head).await.is_ok() && head[3] == SETTINGS)
    }

    async fn send(&self, request: &Request<()>, body: &Bytes) -> Result<Reply, Failure> {
        let sending =
            self.client.post(request.uri().to_string()).headers(request.headers().clone()).body(body.clone()).send();
        let failed = |error: reqwest::Error| {
            if error.is_connect() {
                Failure::NotSent(error.without_url().to_string())
            } else if error.is_timeout() {
                Failure::TimedOut
            } else {
                Failure::Broken(error.without_url().to_string())
            }
        };
        let response = sending.await.map_err(failed)?;
        let (status, retry_after) = (response.status(), response.headers().get(RETRY_AFTER).cloned());
        Ok(Reply { status, retry_after, body: response.bytes().await.unwrap_or_default().to_vec() })
    }
}
