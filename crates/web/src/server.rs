//! Accepting connections.
//!
//! Written here rather than taken from axum, because a public listener needs what its server has no setting for: a
//! bound on connections, a deadline for requests to arrive that does not also end idle connections, an end of idle ones,
//! and a shutdown that waits for requests but not for idle clients. All of that is one look at each connection a few
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

/// How often connections are looked at, and so the unit in which their times are counted.
const TICK: Duration = Duration::from_millis(200);

/// What stands behind a listener.
pub trait Answers: Clone + Send + Sync + 'static {
    /// Answers a request, whatever happens.
    fn answer(&self, request: Request<Body>) -> impl Future<Output = Response> + Send;
}

/// Serves until the process closes, then until every request under way is answered. Before that, while it drains, whoever
/// gets an answer is asked to leave with it: a balancer that passes on connections, and knows nothing of requests, cannot
/// send somebody elsewhere who stays. When the listener closes, only connections are left that nobody uses.
pub async fn serve(listener: TcpListener, behind: impl Answers, config: Http, shutdown: Shutdown) {
    let closing = shutdown.closing().clone();
    let connections = Arc::new(Connections::new(&config, shutdown.draining().clone()));
    let places = Arc::new(Semaphore::new(config.max_connections));
    let tasks = TaskTracker::new();
    let looking = tokio::spawn(look(Arc::clone(&connections)));
    loop {
        // The place comes first: a connection that cannot be served is not accepted, and waits in the kernel's queue.
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
                // Out of file descriptors, most likely: pausing lets some be freed instead of spinning.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
    drop(listener);
    connections.drain();
    tasks.close();
    tasks.wait().await;
    looking.abort();
}

async fn look(connections: Arc<Connections>) {
    let mut ticks = tokio::time::interval(TICK);
    loop {
        ticks.tick().await;
        connections.look();
    }
}

async fn serve_connection(connections: &Connections, stream: TcpStream, behind: impl Answers) {
    // Answers are written whole; waiting for more to send only adds delay.
    let _ = stream.set_nodelay(true);
    let registered = connections.register();
    let (watch, body_limit) = (&registered.watch, connections.body_limit);
    let shared = Arc::new((behind, Arc::clone(watch)));
    let service = service_fn(move |request: Request<Incoming>| {
        let shared = Arc::clone(&shared);
        async move {
            let (behind, watch) = &*shared;
            let (request, is_whole) = hear(request, body_limit, watch).await;
            watch.answers();
            let mut answer = behind.answer(request).await;
            // Who sends more than anybody reads is told that the connection ends here: they must not send the next request
            // on it.
            if !is_whole || watch.order.load(Relaxed) == LEAVE {
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
            CUT => return Poll::Ready(Ok(())),
            DRAIN if !draining => {
                draining = true;
                connection.as_mut().graceful_shutdown();
            }
            _ => {}
        }
        connection.as_mut().poll(context)
    });
    if let Err(error) = ended.await {
        // Clients that vanish or talk nonsense are everyday life.
        tracing::debug!(%error, "a connection ended early");
    }
}

/// Waits for the body, if it is not too large to be wanted. So nobody holds a place among the requests under way while
/// their body trickles in, and a request that is refused leaves nothing unread behind, which would end its connection
/// without a warning. Returns the request, and whether its body is whole.
async fn hear(request: Request<Incoming>, limit: usize, watch: &Watch) -> (Request<Body>, bool) {
    if request.body().is_end_stream() {
        return (request.map(Body::new), true);
    }
    watch.hears();
    let (parts, mut body) = request.into_parts();
    let mut heard = Heard { chunks: VecDeque::new(), fault: None, rest: None };
    let mut length = 0;
    // Whoever asks before they send is not told to go ahead before somebody wants it.
    let is_unwanted = body.size_hint().exact().is_some_and(|length| length > limit as u64)
        || parts.headers.contains_key(header::EXPECT);
    while !is_unwanted && length <= limit {
        match body.frame().await {
            Some(Ok(frame)) => {
                // Nobody here reads trailers.
                if let Ok(chunk) = frame.into_data() {
                    length += chunk.len();
                    heard.chunks.push_back(chunk);
                }
            }
            Some(Err(fault)) => {
                heard.fault = Some(fault);
                return (Request::from_parts(parts, Body::new(heard)), false);
            }
            None => {
                let one = heard.chunks.pop_front().unwrap_or_default();
                let body = if heard.chunks.is_empty() { Body::from(one) } else { Body::new(heard.after(one)) };
                return (Request::from_parts(parts, body), true);
            }
        }
    }
    // Whoever wants it all the same can have it.
    heard.rest = Some(body);
    (Request::from_parts(parts, Body::new(heard)), false)
}

/// A body of which the beginning, or all, has been heard.
struct Heard {
    chunks: VecDeque<Bytes>,
    fault: Option<hyper::Error>,
    rest: Option<Incoming>,
}

impl Heard {
    fn after(mut self, first: Bytes) -> Self {
        self.chunks.push_front(first);
        self
    }
}

impl HttpBody for Heard {
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

const GO_ON: u8 = 0;
/// It ends with the next answer, whenever that is.
const LEAVE: u8 = 1;
/// It ends now, or after the answer that is under way.
const DRAIN: u8 = 2;
const CUT: u8 = 3;

/// What is known of one connection, and what it has been told. Times are in ticks.
#[derive(Debug)]
struct Watch {
    clock: Arc<AtomicU32>,
    /// A task has one waker for all its life.
    waker: OnceLock<Waker>,
    order: AtomicU8,
    answering: AtomicBool,
    /// When the first byte of a request came that is not complete; 0 for none.
    hearing_since: AtomicU32,
    last_active: AtomicU32,
}

impl Watch {
    fn now(&self) -> u32 {
        self.clock.load(Relaxed)
    }

    /// Bytes came in. While a request is answered they are the rest of a body that is too large to be waited for, which the
    /// request's own deadline covers.
    fn heard(&self) {
        if !self.answering.load(Relaxed) && self.hearing_since.load(Relaxed) == 0 {
            self.hearing_since.store(self.now(), Relaxed);
        }
    }

    fn said(&self) {
        self.last_active.store(self.now(), Relaxed);
    }

    /// The headers of a request are complete, its body is not.
    fn hears(&self) {
        if self.hearing_since.load(Relaxed) == 0 {
            self.hearing_since.store(self.now(), Relaxed);
        }
    }

    /// A request is complete, or as complete as it is waited for.
    fn answers(&self) {
        self.answering.store(true, Relaxed);
        self.hearing_since.store(0, Relaxed);
    }

    fn answered(&self) {
        self.answering.store(false, Relaxed);
        self.said();
    }

    fn tell(&self, order: u8) {
        self.order.fetch_max(order, Relaxed);
        // A connection that has not been polled yet sees the order when it is.
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// All open connections of a listener.
#[derive(Debug)]
struct Connections {
    /// Ticks since the start, from 1.
    clock: Arc<AtomicU32>,
    open: Mutex<(u64, HashMap<u64, Arc<Watch>>)>,
    /// For a request to be heard, in ticks.
    hearing_deadline: u32,
    /// For idle connections, in ticks.
    keep_alive: u32,
    /// The largest body that is waited for, in bytes.
    body_limit: usize,
    count: metrics::Gauge,
    /// Set once the process was told to end.
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
            hearing_deadline: ticks(config.deadline),
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
            order: AtomicU8::new(GO_ON),
            answering: AtomicBool::new(false),
            hearing_since: AtomicU32::new(0),
            last_active: AtomicU32::new(now),
        });
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        open.0 += 1;
        let id = open.0;
        open.1.insert(id, Arc::clone(&watch));
        self.count.increment(1);
        Registered { connections: self, id, watch }
    }

    /// Lets a tick pass and cuts off who has used up their time.
    fn look(&self) {
        let now = self.clock.fetch_add(1, Relaxed) + 1;
        let (leaving, draining) = (self.leaving.is_cancelled(), self.draining.load(Relaxed));
        for watch in self.open.lock().unwrap_or_else(PoisonError::into_inner).1.values() {
            let hearing_since = watch.hearing_since.load(Relaxed);
            let over = if watch.answering.load(Relaxed) {
                false
            } else if hearing_since > 0 {
                now.saturating_sub(hearing_since) > self.hearing_deadline
            } else {
                now.saturating_sub(watch.last_active.load(Relaxed)) > self.keep_alive
            };
            // Told again at every look: a connection that was just being registered may have missed it.
            if over {
                watch.tell(CUT);
            } else if draining {
                watch.tell(DRAIN);
            } else if leaving {
                watch.tell(LEAVE);
            }
        }
    }

    /// Every connection ends after the request it is answering.
    fn drain(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.draining.store(true, Relaxed);
        for watch in open.1.values() {
            watch.tell(DRAIN);
        }
    }
}

/// A connection's place in the map, for as long as it is served.
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

/// A stream that tells its watch when bytes move.
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
            self.watch.heard();
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for Watched {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.watch.said();
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.watch.said();
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
