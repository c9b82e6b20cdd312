//! HTTP/2 connections to one provider. Requests share few connections, because providers prefer this, and because a request
//! then costs no handshake.

use std::{
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::future::{Either, select};
use h2::{Ping, PingPong, Reason, SendStream, client::SendRequest};
use http::{HeaderValue, Request, StatusCode, header::RETRY_AFTER};
use rustls::{ClientConfig, pki_types::ServerName};
use rustls_platform_verifier::BuilderVerifierExt as _;
use time::{OffsetDateTime, format_description::well_known::Rfc2822};
use tokio::{
    io::{AsyncRead, AsyncWrite},
    net::TcpStream,
    sync::Semaphore,
    time::timeout,
};
use tokio_rustls::TlsConnector;
use url::Url;

use crate::{SettingsError, attempts::Attempts};

/// Streams per connection, if the provider allows more.
const MAX_STREAMS: usize = 1_000;
/// Number of times that a request is sent, if the provider refuses its stream.
const MAX_TRIES: u32 = 4;
/// Error responses are much shorter.
const MAX_BODY: usize = 8_192;
/// Small responses of many streams must not wait for each other's flow control.
const CONNECTION_WINDOW: u32 = 1 << 20;
/// Without traffic, a middlebox may drop the connection, and the next request would get no response.
const PING_INTERVAL: Duration = Duration::from_secs(30);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

/// A response with the start of its body.
#[derive(Debug)]
pub(crate) struct Reply {
    pub(crate) status: StatusCode,
    pub(crate) retry_after: Option<HeaderValue>,
    pub(crate) body: Vec<u8>,
}

impl Reply {
    /// Delay requested by `Retry-After`, given as seconds or as a date.
    pub(crate) fn retry_after(&self, now: OffsetDateTime) -> Option<Duration> {
        let text = self.retry_after.as_ref()?.to_str().ok()?.trim();
        if let Ok(seconds) = text.parse() {
            return Some(Duration::from_secs(seconds));
        }
        let moment = OffsetDateTime::parse(text, &Rfc2822).ok()?;
        Some(Duration::try_from(moment - now).unwrap_or_default())
    }
}

/// A request without a response.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Failure {
    /// The provider certainly did not process the request.
    #[error("not sent: {0}")]
    NotSent(String),
    /// The provider may have processed the request.
    #[error("no response in time")]
    TimedOut,
    /// The provider may have processed the request.
    #[error("the connection broke: {0}")]
    Broken(String),
}

/// Result of one try on one connection, apart from a response.
enum Fault {
    /// The provider refused the stream or is closing the connection. Another connection may be accepted.
    Refused(String),
    Final(Failure),
}

/// Pool of connections to the host of one URL.
pub(crate) struct Connections {
    host: String,
    port: u16,
    tls: Option<(TlsConnector, ServerName<'static>)>,
    timeout: Duration,
    slots: Vec<Slot>,
    next: AtomicUsize,
}

#[derive(Default)]
struct Slot {
    current: Mutex<Option<Arc<Connection>>>,
    connecting: Attempts,
}

struct Connection {
    sender: SendRequest<Bytes>,
    /// One permit for each stream that the provider allows, so that a request waits here and not after it was handed to
    /// the connection, where a timeout would leave open whether it was sent.
    streams: Semaphore,
    allowed: AtomicUsize,
    closed: AtomicBool,
    responses: AtomicU64,
}

impl Connections {
    pub(crate) fn new(url: &Url, timeout: Duration, count: usize) -> Result<Self, SettingsError> {
        let host = url.host_str().ok_or(SettingsError::Url)?;
        // URLs write IPv6 addresses in brackets.
        let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
        let tls = match url.scheme() {
            "https" => Some((tls()?, ServerName::try_from(host.clone()).map_err(|_| SettingsError::Url)?)),
            "http" => None,
            _ => return Err(SettingsError::Url),
        };
        Ok(Self {
            port: url.port_or_known_default().ok_or(SettingsError::Url)?,
            host,
            tls,
            timeout,
            slots: (0..count.max(1)).map(|_| Slot::default()).collect(),
            next: AtomicUsize::new(0),
        })
    }

    /// Sends a request. It is sent again only if the provider certainly did not process it.
    pub(crate) async fn send(&self, request: &Request<()>, body: &Bytes) -> Result<Reply, Failure> {
        let mut refusal = String::new();
        for _ in 0..MAX_TRIES {
            match self.try_send(request, body).await {
                Ok(reply) => return Ok(reply),
                Err(Fault::Refused(reason)) => refusal = reason,
                Err(Fault::Final(failure)) => return Err(failure),
            }
        }
        Err(Failure::NotSent(refusal))
    }

    async fn try_send(&self, request: &Request<()>, body: &Bytes) -> Result<Reply, Fault> {
        let slot = &self.slots[self.next.fetch_add(1, Ordering::Relaxed) % self.slots.len()];
        let not_sent = |reason: String| Fault::Final(Failure::NotSent(reason));
        let connection = self.connection(slot).await.map_err(not_sent)?;
        let permit = timeout(self.timeout, connection.streams.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(not_sent("no free stream in time".to_owned()));
        };
        if connection.closed.load(Ordering::Acquire) {
            return Err(Fault::Refused("the connection was closed".to_owned()));
        }
        let responses = connection.responses.load(Ordering::Relaxed);
        let result = timeout(self.timeout, connection.exchange(request, body)).await;
        match result {
            Ok(Ok(reply)) => {
                connection.responses.fetch_add(1, Ordering::Relaxed);
                connection.adjust();
                Ok(reply)
            }
            Ok(Err(fault)) => {
                connection.adjust();
                Err(fault)
            }
            Err(_) => {
                // Nothing arrived on the whole connection: it is probably dead, and others must not wait for it too.
                if connection.responses.load(Ordering::Relaxed) == responses {
                    connection.closed.store(true, Ordering::Release);
                }
                Err(Fault::Final(Failure::TimedOut))
            }
        }
    }

    /// Returns the connection of a slot. One caller opens it, and the others wait.
    async fn connection(&self, slot: &Slot) -> Result<Arc<Connection>, String> {
        if let Some(connection) = slot.usable() {
            return Ok(connection);
        }
        // Boxed, because it is rare and large, and part of the future of each notification.
        let connecting = Box::pin(async {
            let connection = self.connect().await?;
            *slot.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(connection.clone());
            Ok(connection)
        });
        // Half of the timeout: a failure to connect proves that nothing was sent.
        slot.connecting.share(self.timeout / 2, || slot.usable(), connecting).await
    }

    async fn connect(&self) -> Result<Arc<Connection>, String> {
        let stream = TcpStream::connect((&*self.host, self.port)).await.map_err(|error| error.to_string())?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        let Some((connector, name)) = &self.tls else {
            return Connection::start(stream).await;
        };
        let stream = connector.connect(name.clone(), stream).await.map_err(|error| error.to_string())?;
        if stream.get_ref().1.alpn_protocol() != Some(b"h2") {
            return Err("the server does not support HTTP/2".to_owned());
        }
        Connection::start(stream).await
    }
}

impl Slot {
    fn usable(&self) -> Option<Arc<Connection>> {
        let current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        current.as_ref().filter(|connection| !connection.closed.load(Ordering::Acquire)).cloned()
    }
}

impl Connection {
    async fn start(stream: impl AsyncRead + AsyncWrite + Send + Unpin + 'static) -> Result<Arc<Self>, String> {
        let (sender, mut connection) = h2::client::Builder::new()
            .enable_push(false)
            .initial_connection_window_size(CONNECTION_WINDOW)
            // APNs allows one stream until it has accepted the first token, and refuses more.
            .initial_max_send_streams(1)
            .handshake(stream)
            .await
            .map_err(|error| error.to_string())?;
        let started = Arc::new(Self {
            sender,
            streams: Semaphore::new(1),
            allowed: AtomicUsize::new(1),
            closed: AtomicBool::new(false),
            responses: AtomicU64::new(0),
        });
        let pings = connection.ping_pong();
        // A strong reference would keep the connection open after its pool was dropped.
        let weak = Arc::downgrade(&started);
        tokio::spawn(async move {
            let watch = std::pin::pin!(watch(pings));
            let error = match select(connection, watch).await {
                Either::Left((result, _)) => result.err().map(|error| error.to_string()),
                Either::Right(_) => Some("no response to a ping".to_owned()),
            };
            if let Some(started) = weak.upgrade() {
                started.closed.store(true, Ordering::Release);
            }
            tracing::debug!(error, "connection to push provider closed");
        });
        Ok(started)
    }

    async fn exchange(&self, request: &Request<()>, body: &Bytes) -> Result<Reply, Fault> {
        // Nothing has been sent yet, whatever the error is.
        let unsent = |error: h2::Error| {
            self.closed.store(true, Ordering::Release);
            Fault::Refused(error.to_string())
        };
        let mut sender = self.sender.clone().ready().await.map_err(unsent)?;
        let (response, mut stream) = sender.send_request(request.clone(), false).map_err(unsent)?;
        send_body(&mut stream, body)?;
        let response = response.await.map_err(|error| self.classify(&error))?;
        let (head, mut incoming) = response.into_parts();
        let mut body = Vec::new();
        while body.len() < MAX_BODY
            && let Some(chunk) = incoming.data().await
        {
            // The status has arrived; a lost body does not change what the provider did.
            let Ok(chunk) = chunk else { break };
            let _ = incoming.flow_control().release_capacity(chunk.len());
            body.extend_from_slice(&chunk);
        }
        Ok(Reply { status: head.status, retry_after: head.headers.get(RETRY_AFTER).cloned(), body })
    }

    /// RFC 9113, section 8.7: a stream above the last one that GOAWAY names, and a stream refused with `REFUSED_STREAM`,
    /// was not processed.
    fn classify(&self, error: &h2::Error) -> Fault {
        if error.is_go_away() && error.is_remote() {
            self.closed.store(true, Ordering::Release);
            return Fault::Refused(error.to_string());
        }
        if error.is_reset() && error.is_remote() && error.reason() == Some(Reason::REFUSED_STREAM) {
            return Fault::Refused(error.to_string());
        }
        if error.is_io() || error.is_go_away() {
            self.closed.store(true, Ordering::Release);
        }
        Fault::Final(Failure::Broken(error.to_string()))
    }

    /// Follows the number of streams that the provider allows, which it may change at any time.
    fn adjust(&self) {
        let allowed = self.sender.current_max_send_streams().clamp(1, MAX_STREAMS);
        let before = self.allowed.swap(allowed, Ordering::AcqRel);
        if allowed > before {
            self.streams.add_permits(allowed - before);
        } else if allowed < before {
            // Permits in use cannot be taken back. The next call tries again.
            let kept = before - allowed - self.streams.forget_permits(before - allowed);
            self.allowed.fetch_add(kept, Ordering::AcqRel);
        }
    }
}

/// Queues the body with `END_STREAM`. If this fails, the stream ended before, and h2 queued nothing. The provider then has
/// at most the header of a request that never becomes complete (RFC 9113, section 8.1), and cannot have processed it.
fn send_body(stream: &mut SendStream<Bytes>, body: &Bytes) -> Result<(), Fault> {
    stream.send_data(body.clone(), true).map_err(|error| Fault::Refused(error.to_string()))
}

/// Returns when the connection no longer responds.
async fn watch(pings: Option<PingPong>) {
    let Some(mut pings) = pings else {
        return std::future::pending().await;
    };
    loop {
        tokio::time::sleep(PING_INTERVAL).await;
        if !matches!(timeout(PING_TIMEOUT, pings.ping(Ping::opaque())).await, Ok(Ok(_))) {
            return;
        }
    }
}

fn tls() -> Result<TlsConnector, SettingsError> {
    let fault = |error: rustls::Error| SettingsError::Tls(error.to_string());
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .and_then(rustls::ConfigBuilder::with_platform_verifier)
        .map_err(fault)?
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    Ok(TlsConnector::from(Arc::new(config)))
}

#[cfg(test)]
mod tests {
    use std::future::poll_fn;

    use super::*;

    #[tokio::test]
    async fn request_without_its_body_is_not_processed() {
        let (near, far) = tokio::io::duplex(1 << 16);
        tokio::spawn(async move {
            let mut connection = h2::server::handshake(far).await.expect("a connection");
            let (_request, mut respond) = connection.accept().await.expect("a request").expect("a request");
            respond.send_reset(Reason::INTERNAL_ERROR);
            while connection.accept().await.is_some() {}
        });
        let connection = Connection::start(near).await.expect("a connection");
        let mut sender = connection.sender.clone().ready().await.expect("a free stream");
        let request = Request::post("http://push.example.org/").body(()).expect("a request");
        let (_response, mut stream) = sender.send_request(request, false).expect("sent");
        poll_fn(|context| stream.poll_reset(context)).await.expect("a reset");
        let fault = send_body(&mut stream, &Bytes::from_static(b"{}")).expect_err("the stream ended");
        assert!(matches!(fault, Fault::Refused(_)));
    }
}
