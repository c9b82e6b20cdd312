//! Accepts and serves connections.
//!
//! A custom server instead of axum's, because a public listener needs limits that axum does not offer: a maximum number
//! of connections, a deadline for requests to arrive that does not also close idle connections, a timeout for idle
//! connections, and a shutdown that waits for requests but not for idle clients. One task checks every connection a few
//! times a second, instead of timers that every request sets and cancels.

use std::{
    collections::{HashMap, VecDeque},
    convert::Infallible,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use axum::{body::Body, response::Response};
use bytes::Bytes;
use http::{HeaderValue, Request, header};
use http_body_util::BodyExt as _;
use hyper::{
    body::{Body as HttpBody, Frame, Incoming},
    server::conn::http1,
    service::service_fn,
};
use hyper_util::rt::TokioIo;
use platform::shutdown::Shutdown;
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};

use super::{client::PEER, settings::Http};

/// Interval at which connections are checked, and the unit of their timestamps.
const TICK: Duration = Duration::from_millis(200);

/// A service behind a listener.
pub trait Answers: Clone + Send + Sync + 'static {
    /// Responds to a request; never fails.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

/// Serves until shutdown closes the listener, then finishes the requests in progress. While the process drains, each
/// response closes its connection, because a load balancer that forwards connections instead of requests cannot move a
/// connected client to another process. When the listener closes, only idle connections are left.
pub async fn serve(listener: TcpListener, behind: impl Answers, config: Http, shutdown: Shutdown) {
    let closing = shutdown.closing().clone();
    let connections = Arc::new(Connections::new(&config, shutdown.draining().clone()));
    let places = Arc::new(Semaphore::new(config.max_connections));
    let tasks = TaskTracker::new();
    let ticking = tokio::spawn(tick(Arc::clone(&connections)));
    loop {
        // Acquire a slot first: a connection that cannot be served is not accepted and stays in the kernel's queue.
        let accepted = async {
            let place = Arc::clone(&places).acquire_owned().await;
            (place, listener.accept().await)
        };
        let (place, accepted) = tokio::select! {
            () = closing.cancelled() => break,
            accepted = accepted => accepted,
        };
        match accepted {
            Ok((stream, peer)) => {
                let (connections, behind) = (Arc::clone(&connections), behind.clone());
                tasks.spawn(async move {
                    PEER.scope(peer.ip(), serve_connection(&connections, stream, behind)).await;
                    drop(place);
                });
            }
            Err(error) => {
                // Probably out of file descriptors: pause until some are freed, instead of spinning.
                tracing::warn!(%error, "connection not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.drain();
    tasks.close();
    tasks.wait().await;
    ticking.abort();
}

async fn tick(connections: Arc<Connections>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        connections.tick();
    }
}

async fn serve_connection(connections: &Connections, stream: TcpStream, behind: impl Answers) {
    // Responses are written as a whole, so Nagle's algorithm would only add delay.
    let _ = stream.set_nodelay(true);
    let registered = connections.register();
    let (watch, body_limit) = (&registered.watch, connections.body_limit);
    let shared = Arc::new((behind, Arc::clone(watch)));
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let (behind, watch) = &*shared;
            let (request, is_whole) = receive(request, body_limit, watch).await;
            watch.answers();
            let mut answer = behind.answer(request).await;
            // After an unread body, the client must not send another request on this connection.
            if !is_whole || watch.order.load(Relaxed) == CLOSE_NEXT {
                answer.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
            }
            watch.answered();
            Ok::<Response, Infallible>(answer)
        }
    });
    let stream = TokioIo::new(Watched { stream, watch: Arc::clone(watch) });
    let mut connection = std::pin::pin!(http1::Builder::new().serve_connection(stream, service));
    let mut draining = false;
    let ended = std::future::poll_fn(|context| {
        watch.waker.get_or_init(|| context.waker().clone());
        match watch.order.load(Relaxed) {
            CLOSE_NOW => return Poll::Ready(Ok(())),
            DRAIN if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            _ => {}
        }
        connection.as_mut().poll(context)
    });
    if let Err(error) = ended.await {
        // Clients disconnect or send invalid data all the time.
        tracing::debug!(%error, "connection ended early");
    }
}

/// Receives the body before the request takes a slot, unless the body is too large. A slow body therefore does not
/// occupy a slot, and a refused request leaves no unread data, which would reset its connection. Returns the request,
/// and whether its body is complete.
async fn receive(request: Request<Incoming>, limit: usize, watch: &Watch) -> (Request<Body>, bool) {
    if request.body().is_end_stream() {
        return (request.map(Body::new), true);
    }
    watch.receiving_body();
    let (parts, mut body) = request.into_parts();
    let mut received = ReceivedBody { chunks: VecDeque::new(), fault: None, rest: None };
    let mut length = 0;
    // With `Expect: 100-continue`, the client sends the body only once a handler reads it.
    let is_deferred = body.size_hint().exact().is_some_and(|length| length > limit as u64)
        || parts.headers.contains_key(header::EXPECT);
    while !is_deferred && length <= limit {
        match body.frame().await {
            Some(Ok(frame)) => {
                // Trailers are ignored, because no handler reads them.
                if let Ok(chunk) = frame.into_data() {
                    length += chunk.len();
                    received.chunks.push_back(chunk);
                }
            }
            Some(Err(fault)) => {
                received.fault = Some(fault);
                return (Request::from_parts(parts, Body::new(received)), false);
            }
            None => {
                let one = received.chunks.pop_front().unwrap_or_default();
                let body = if received.chunks.is_empty() { Body::from(one) } else { Body::new(received.after(one)) };
                return (Request::from_parts(parts, body), true);
            }
        }
    }
    // A handler can still read the remaining body.
    received.rest = Some(body);
    (Request::from_parts(parts, Body::new(received)), false)
}

/// A body that was received completely or in part.
struct ReceivedBody {
    chunks: VecDeque<Bytes>,
    fault: Option<hyper::Error>,
    rest: Option<Incoming>,
}

impl ReceivedBody {
    fn after(mut self, first: Bytes) -> Self {
        self.chunks.push_front(first);
        self
    }
}

impl HttpBody for ReceivedBody {
    type Data = Bytes;
    type Error = hyper::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, hyper::Error>>> {
        if let Some(chunk) = self.chunks.pop_front() {
            return Poll::Ready(Some(Ok(Frame::data(chunk))));
        }
        if let Some(fault) = self.fault.take() {
            return Poll::Ready(Some(Err(fault)));
        }
        match &mut self.rest {
            Some(rest) => Pin::new(rest).poll_frame(context),
            None => Poll::Ready(None),
        }
    }

    fn is_end_stream(&self) -> bool {
        self.chunks.is_empty() && self.fault.is_none() && self.rest.as_ref().is_none_or(HttpBody::is_end_stream)
    }
}

const CONTINUE: u8 = 0;
/// Close after the next response, whenever that is.
const CLOSE_NEXT: u8 = 1;
/// Close now, or after the response in progress.
const DRAIN: u8 = 2;
const CLOSE_NOW: u8 = 3;

/// State of one connection, and the order it was given. Times are in ticks.
#[derive(Debug)]
struct Watch {
    clock: Arc<AtomicU32>,
    /// A task keeps the same waker for its whole life.
    waker: OnceLock<Waker>,
    order: AtomicU8,
    answering: AtomicBool,
    /// Tick at which the first byte of an incomplete request arrived; 0 for none.
    receiving_since: AtomicU32,
    last_active: AtomicU32,
}

impl Watch {
    fn now(&self) -> u32 {
        self.clock.load(Relaxed)
    }

    /// Bytes arrived. During a response, they belong to a body that is too large to be buffered, which the request's
    /// deadline covers.
    fn bytes_read(&self) {
        if !self.answering.load(Relaxed) && self.receiving_since.load(Relaxed) == 0 {
            self.receiving_since.store(self.now(), Relaxed);
        }
    }

    fn bytes_written(&self) {
        self.last_active.store(self.now(), Relaxed);
    }

    /// The headers of a request are complete, but not its body.
    fn receiving_body(&self) {
        if self.receiving_since.load(Relaxed) == 0 {
            self.receiving_since.store(self.now(), Relaxed);
        }
    }

    /// The request is complete, or its handler reads the rest of the body.
    fn answers(&self) {
        self.answering.store(true, Relaxed);
        self.receiving_since.store(0, Relaxed);
    }

    fn answered(&self) {
        self.answering.store(false, Relaxed);
        self.bytes_written();
    }

    fn set_order(&self, order: u8) {
        self.order.fetch_max(order, Relaxed);
        // A connection that was not polled yet sees the order at its first poll.
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// All open connections of a listener.
#[derive(Debug)]
struct Connections {
    /// Ticks since the start, beginning with 1.
    clock: Arc<AtomicU32>,
    open: Mutex<(u64, HashMap<u64, Arc<Watch>>)>,
    /// Maximum time to receive a request, in ticks.
    receive_deadline: u32,
    /// Timeout of idle connections, in ticks.
    keep_alive: u32,
    /// Maximum size of a buffered body, in bytes.
    body_limit: usize,
    count: metrics::Gauge,
    /// Cancelled when shutdown starts.
    leaving: CancellationToken,
    /// Set when the listener is closed.
    draining: AtomicBool,
}

impl Connections {
    fn new(config: &Http, leaving: CancellationToken) -> Self {
        let ticks = |time: Duration| u32::try_from(time.as_millis() / TICK.as_millis()).unwrap_or(u32::MAX).max(1);
        Self {
            clock: Arc::new(AtomicU32::new(1)),
            open: Mutex::default(),
            receive_deadline: ticks(config.deadline),
            keep_alive: ticks(config.keep_alive),
            body_limit: config.body_limit,
            count: metrics::gauge!("matchday_http_connections"),
            leaving,
            draining: AtomicBool::new(false),
        }
    }

    fn register(&self) -> Registered<'_> {
        let now = self.clock.load(Relaxed);
        let watch = Arc::new(Watch {
            clock: Arc::clone(&self.clock),
            waker: OnceLock::new(),
            order: AtomicU8::new(CONTINUE),
            answering: AtomicBool::new(false),
            receiving_since: AtomicU32::new(0),
            last_active: AtomicU32::new(now),
        });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0 += 1;
        let id = open.0;
        open.1.insert(id, Arc::clone(&watch));
        self.count.increment(1);
        Registered { connections: self, id, watch }
    }

    /// Advances the clock by one tick and closes connections that exceeded their time.
    fn tick(&self) {
        let now = self.clock.fetch_add(1, Relaxed) + 1;
        let (leaving, draining) = (self.leaving.is_cancelled(), self.draining.load(Relaxed));
        for watch in self.open.lock().unwrap_or_else(PoisonError::into_inner).1.values() {
            let receiving_since = watch.receiving_since.load(Relaxed);
            let over = if watch.answering.load(Relaxed) {
                false
            } else if receiving_since > 0 {
                now.saturating_sub(receiving_since) > self.receive_deadline
            } else {
                now.saturating_sub(watch.last_active.load(Relaxed)) > self.keep_alive
            };
            // Repeated at every tick, because a connection that was just being registered may have missed the order.
            if over {
                watch.set_order(CLOSE_NOW);
            } else if draining {
                watch.set_order(DRAIN);
            } else if leaving {
                watch.set_order(CLOSE_NEXT);
            }
        }
    }

    /// Closes every connection after its request in progress.
    fn drain(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.draining.store(true, Relaxed);
        for watch in open.1.values() {
            watch.set_order(DRAIN);
        }
    }
}

/// Entry of a served connection in the map, removed when dropped.
struct Registered<'a> {
    connections: &'a Connections,
    id: u64,
    watch: Arc<Watch>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.connections.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.id);
        self.connections.count.decrement(1);
    }
}

/// A stream that records reads and writes in its connection's state.
struct Watched {
    stream: TcpStream,
    watch: Arc<Watch>,
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        ready!(Pin::new(&mut self.stream).poll_read(context, buffer))?;
        if buffer.filled().len() > before {
            self.watch.bytes_read();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch.bytes_written();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.bytes_written();
        Pin::new(&mut self.stream).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
