//! HTTP server that speaks HTTP/2 with prior knowledge and HTTP/1.1 on the same port.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::Bytes;
use h2::{Reason, RecvStream, server::SendResponse};
use http::{Request, Response, request::Parts};
use http_body_util::{BodyExt as _, Full};
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::mpsc,
    task::{AbortHandle, JoinSet},
};

const WINDOW: u32 = 1 << 20;

/// Limits of a stand-in.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// Streams that a client may have open on a connection.
    pub streams: u32,
    /// Whether the server speaks HTTP/2. It always speaks HTTP/1.1.
    pub http2: bool,
}

impl Default for Limits {
    fn default() -> Self {
        Self { streams: 1_000, http2: true }
    }
}

pub(super) enum Answer {
    Response(Response<Bytes>),
    Hang,
    Close,
    Refuse,
    GoAway(Response<Bytes>),
}

pub(super) trait Handler: Send + Sync + 'static {
    fn handle(&self, head: &Parts, body: &Bytes) -> Answer;
}

/// A running server. It stops when it is dropped.
#[derive(Debug)]
pub(super) struct Server {
    pub(super) address: SocketAddr,
    pub(super) gauge: Arc<Gauge>,
    task: AbortHandle,
}

/// Connections and streams.
#[derive(Debug, Default)]
pub(super) struct Gauge {
    pub(super) connections: AtomicUsize,
    streams: AtomicUsize,
    pub(super) peak: AtomicUsize,
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Server {
    pub(super) async fn start(handler: Arc<dyn Handler>, limits: Limits) -> std::io::Result<Self> {
        let listener = TcpListener::bind(("127.0.0.1", 0)).await?;
        let (address, gauge) = (listener.local_addr()?, Arc::new(Gauge::default()));
        let counted = gauge.clone();
        let serving = async move {
            let mut connections = JoinSet::new();
            while let Ok((stream, _)) = listener.accept().await {
                while connections.try_join_next().is_some() {}
                connections.spawn(serve(stream, handler.clone(), limits, counted.clone()));
            }
        };
        Ok(Self { address, gauge, task: tokio::spawn(serving).abort_handle() })
    }
}

async fn serve(stream: TcpStream, handler: Arc<dyn Handler>, limits: Limits, gauge: Arc<Gauge>) {
    let mut head = [0; 3];
    while let Ok(count) = stream.peek(&mut head).await {
        match count {
            0 => return,
            1 | 2 => tokio::task::yield_now().await,
            _ if limits.http2 && &head == b"PRI" => {
                gauge.connections.fetch_add(1, Ordering::Relaxed);
                let _ = serve_http2(stream, handler, limits, gauge).await;
                return;
            }
            _ => {
                serve_http1(stream, handler).await;
                return;
            }
        }
    }
}

async fn serve_http2(
    stream: TcpStream,
    handler: Arc<dyn Handler>,
    limits: Limits,
    gauge: Arc<Gauge>,
) -> Result<(), h2::Error> {
    let _ = stream.set_nodelay(true);
    let mut connection = h2::server::Builder::new()
        .max_concurrent_streams(limits.streams)
        .initial_connection_window_size(WINDOW)
        .handshake(stream)
        .await?;
    let (end, mut ends) = mpsc::unbounded_channel();
    let mut streams = JoinSet::new();
    loop {
        tokio::select! {
            accepted = connection.accept() => {
                let Some(accepted) = accepted else { return Ok(()) };
                let (request, respond) = accepted?;
                while streams.try_join_next().is_some() {}
                let open = OpenStream::new(gauge.clone());
                let (handler, end) = (handler.clone(), end.clone());
                streams.spawn(async move {
                    let _ = respond_http2(request, respond, open, &*handler, &end).await;
                });
            }
            Some(end) = ends.recv() => match end {
                End::Close => return Ok(()),
                End::GoAway => connection.graceful_shutdown(),
            },
        }
    }
}

enum End {
    Close,
    GoAway,
}

/// Counts a stream as open until it is dropped.
struct OpenStream(Arc<Gauge>);

impl OpenStream {
    fn new(gauge: Arc<Gauge>) -> Self {
        let now = gauge.streams.fetch_add(1, Ordering::Relaxed) + 1;
        gauge.peak.fetch_max(now, Ordering::Relaxed);
        Self(gauge)
    }
}

impl Drop for OpenStream {
    fn drop(&mut self) {
        self.0.streams.fetch_sub(1, Ordering::Relaxed);
    }
}

async fn respond_http2(
    request: Request<RecvStream>,
    mut respond: SendResponse<Bytes>,
    open: OpenStream,
    handler: &dyn Handler,
    end: &mpsc::UnboundedSender<End>,
) -> Result<(), h2::Error> {
    let (head, mut incoming) = request.into_parts();
    let mut body = Vec::new();
    while let Some(chunk) = incoming.data().await {
        let chunk = chunk?;
        incoming.flow_control().release_capacity(chunk.len())?;
        body.extend_from_slice(&chunk);
    }
    let response = match handler.handle(&head, &body.into()) {
        Answer::Response(response) => response,
        Answer::GoAway(response) => {
            let _ = end.send(End::GoAway);
            response
        }
        Answer::Hang => {
            // Until the client gives up.
            let _ = std::future::poll_fn(|context| respond.poll_reset(context)).await;
            return Ok(());
        }
        Answer::Close => {
            let _ = end.send(End::Close);
            std::future::pending::<()>().await;
            return Ok(());
        }
        Answer::Refuse => {
            drop(open);
            respond.send_reset(Reason::REFUSED_STREAM);
            return Ok(());
        }
    };
    // The client may open the next stream as soon as the response is on its way.
    drop(open);
    let (head, body) = response.into_parts();
    let mut sending = respond.send_response(Response::from_parts(head, ()), body.is_empty())?;
    if !body.is_empty() {
        sending.send_data(body, true)?;
    }
    Ok(())
}

async fn serve_http1(stream: TcpStream, handler: Arc<dyn Handler>) {
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let handler = handler.clone();
        async move {
            let (head, body) = request.into_parts();
            let body = body.collect().await.map(http_body_util::Collected::to_bytes).unwrap_or_default();
            match handler.handle(&head, &body) {
                Answer::Response(response) | Answer::GoAway(response) => Ok(response.map(Full::new)),
                Answer::Hang => std::future::pending().await,
                // An error of the service closes the connection.
                Answer::Close | Answer::Refuse => Err(std::io::Error::other("closed")),
            }
        }
    });
    let _ = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
}
