//! State of open connections, and the limits of their times.

use std::{
    collections::HashMap,
    io,
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicU8, AtomicU32, Ordering::Relaxed},
    },
    task::{Context, Poll, Waker, ready},
    time::Duration,
};

use bytes::{Buf as _, Bytes};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_util::sync::CancellationToken;

use crate::settings::Http;

/// Interval at which connections are checked, and the unit of their timestamps.
pub(super) const TICK: Duration = Duration::from_millis(200);
/// Ticks without a request after which a connection releases its buffers.
const IDLE_AFTER: u32 = 2;

pub(super) const CONTINUE: u8 = 0;
/// Close after the next response, whenever that is.
pub(super) const CLOSE_NEXT: u8 = 1;
/// Close now, or after the response in progress.
pub(super) const DRAIN: u8 = 2;
pub(super) const CLOSE_NOW: u8 = 3;

/// State of one connection, and the order it was given. Times are in ticks. Only the connection's task writes it, except
/// for the order.
#[derive(Debug)]
pub(super) struct Watch {
    clock: Arc<AtomicU32>,
    /// A task keeps the same waker for its whole life.
    waker: OnceLock<Waker>,
    order: AtomicU8,
    answering: AtomicBool,
    /// Whether a response body is being sent.
    sending: AtomicBool,
    /// Whether the HTTP parser has no bytes left to write.
    flushed: AtomicBool,
    /// Tick at which the first byte of an incomplete request arrived; 0 for none.
    receiving_since: AtomicU32,
    last_active: AtomicU32,
}

impl Watch {
    fn now(&self) -> u32 {
        self.clock.load(Relaxed)
    }

    /// Remembers the waker of the connection's task, and returns the order.
    pub(super) fn poll_order(&self, context: &Context<'_>) -> u8 {
        self.waker.get_or_init(|| context.waker().clone());
        self.order()
    }

    pub(super) fn order(&self) -> u8 {
        self.order.load(Relaxed)
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
        self.flushed.store(false, Relaxed);
    }

    /// The headers of a request are complete, but not its body.
    pub(super) fn receiving_body(&self) {
        if self.receiving_since.load(Relaxed) == 0 {
            self.receiving_since.store(self.now(), Relaxed);
        }
    }

    /// The request is complete, or its handler reads the rest of the body.
    pub(super) fn answers(&self) {
        self.answering.store(true, Relaxed);
        self.receiving_since.store(0, Relaxed);
    }

    /// The response is complete, except for its body.
    pub(super) fn answered(&self) {
        self.answering.store(false, Relaxed);
        self.last_active.store(self.now(), Relaxed);
        self.sends(true);
    }

    /// A response body begins or ends.
    pub(super) fn sends(&self, sending: bool) {
        self.sending.store(sending, Relaxed);
    }

    pub(super) fn is_flushed(&self) -> bool {
        self.flushed.load(Relaxed)
    }

    /// Returns true if there has been no request for a while and no response is left to send.
    pub(super) fn is_idle(&self) -> bool {
        !self.answering.load(Relaxed)
            && !self.sending.load(Relaxed)
            && self.is_flushed()
            && self.receiving_since.load(Relaxed) == 0
            && self.now().saturating_sub(self.last_active.load(Relaxed)) >= IDLE_AFTER
    }

    fn set_order(&self, order: u8) {
        self.order.fetch_max(order, Relaxed);
        self.wake();
    }

    fn wake(&self) {
        // A connection that was not polled yet sees its state at its first poll.
        if let Some(waker) = self.waker.get() {
            waker.wake_by_ref();
        }
    }
}

/// All open connections of a listener.
#[derive(Debug)]
pub(super) struct Connections {
    /// Ticks since the start, beginning with 1.
    clock: Arc<AtomicU32>,
    open: Mutex<(u64, HashMap<u64, Arc<Watch>>)>,
    /// Maximum time to receive a request, in ticks.
    receive_deadline: u32,
    /// Timeout of idle connections, in ticks.
    keep_alive: u32,
    /// Maximum size of a buffered body, in bytes.
    pub(super) body_limit: usize,
    count: metrics::Gauge,
    /// Cancelled when shutdown starts.
    leaving: CancellationToken,
    /// Set when the listener is closed.
    draining: AtomicBool,
}

impl Connections {
    pub(super) fn new(config: &Http, leaving: CancellationToken) -> Self {
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

    pub(super) fn register(&self) -> Registered<'_> {
        let now = self.clock.load(Relaxed);
        let watch = Arc::new(Watch {
            clock: Arc::clone(&self.clock),
            waker: OnceLock::new(),
            order: AtomicU8::new(CONTINUE),
            answering: AtomicBool::new(false),
            sending: AtomicBool::new(false),
            flushed: AtomicBool::new(true),
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
    pub(super) fn tick(&self) {
        let now = self.clock.fetch_add(1, Relaxed) + 1;
        let (leaving, draining) = (self.leaving.is_cancelled(), self.draining.load(Relaxed));
        for watch in self.open.lock().unwrap_or_else(PoisonError::into_inner).1.values() {
            let receiving_since = watch.receiving_since.load(Relaxed);
            let inactive = now.saturating_sub(watch.last_active.load(Relaxed));
            let over = if watch.answering.load(Relaxed) {
                false
            } else if receiving_since > 0 {
                now.saturating_sub(receiving_since) > self.receive_deadline
            } else {
                inactive > self.keep_alive
            };
            // Repeated at every tick, because a connection that was just being registered may have missed the order.
            if over {
                watch.set_order(CLOSE_NOW);
            } else if draining {
                watch.set_order(DRAIN);
            } else if leaving {
                watch.set_order(CLOSE_NEXT);
            } else if inactive == IDLE_AFTER && watch.is_idle() {
                watch.wake();
            }
        }
    }

    /// Closes every connection after its request in progress.
    pub(super) fn drain(&self) {
        let open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        self.draining.store(true, Relaxed);
        for watch in open.1.values() {
            watch.set_order(DRAIN);
        }
    }
}

/// Entry of a served connection in the map, removed when dropped.
pub(super) struct Registered<'a> {
    connections: &'a Connections,
    id: u64,
    pub(super) watch: Arc<Watch>,
}

impl Drop for Registered<'_> {
    fn drop(&mut self) {
        self.connections.open.lock().unwrap_or_else(PoisonError::into_inner).1.remove(&self.id);
        self.connections.count.decrement(1);
    }
}

/// A stream that records reads and writes in its connection's state.
pub(super) struct Watched {
    stream: TcpStream,
    watch: Arc<Watch>,
    /// Bytes that were read but not processed.
    unread: Bytes,
}

impl Watched {
    pub(super) fn new(stream: TcpStream, watch: Arc<Watch>) -> Self {
        Self { stream, watch, unread: Bytes::new() }
    }

    /// Puts bytes back that were read but not processed. They are copied, because even an empty part of hyper's buffer
    /// keeps all of it in memory.
    pub(super) fn with_unread(self, unread: &[u8]) -> Self {
        Self { unread: Bytes::copy_from_slice(unread), ..self }
    }

    /// Waits until the client has sent bytes or closed the connection.
    pub(super) fn poll_readable(&self, context: &mut Context<'_>) -> Poll<()> {
        // An error is found again by the next read.
        if self.unread.is_empty() { self.stream.poll_read_ready(context).map(drop) } else { Poll::Ready(()) }
    }

    /// Reads and discards a few bytes, which belong to no request. Returns their number; 0 if the client closed the
    /// connection.
    pub(super) fn poll_discard(&mut self, context: &mut Context<'_>) -> io::Result<Poll<usize>> {
        if !self.unread.is_empty() {
            return Ok(Poll::Ready(self.unread.len()));
        }
        let mut bytes = [0; 16];
        let mut buffer = ReadBuf::new(&mut bytes);
        Ok(match Pin::new(&mut self.stream).poll_read(context, &mut buffer)? {
            Poll::Ready(()) => Poll::Ready(buffer.filled().len()),
            Poll::Pending => Poll::Pending,
        })
    }
}

impl AsyncRead for Watched {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if !self.unread.is_empty() {
            let length = self.unread.len().min(buffer.remaining());
            buffer.put_slice(&self.unread[..length]);
            self.unread.advance(length);
            self.watch.bytes_read();
            return Poll::Ready(Ok(()));
        }
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

    /// hyper flushes the stream once its buffer is written.
    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.watch.flushed.store(true, Relaxed);
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}
