//! Accepts and serves connections.
//!
//! A custom server instead of axum's, because a public listener needs limits that axum does not offer: a maximum number
//! of connections, a deadline for requests to arrive that does not also close idle connections, a timeout for idle
//! connections, and a shutdown that waits for requests but not for idle clients. One task checks every connection a few
//! times a second, instead of timers that every request sets and cancels.
//!
//! hyper parses requests and writes responses. Its buffers and state need about 20 KB per connection, so only a
//! connection with a recent request has them: an idle one releases them until the client sends its next bytes, and a
//! live stream after its headers are written ([`Endless`]).

mod endless;
pub mod open_files;
mod received;
#[cfg(test)]
mod tests;
mod watch;

use std::{convert::Infallible, pin::Pin, sync::Arc, task::Poll, time::Duration};

use axum::{body::Body, response::Response};
use http::{HeaderValue, Request, Version, header};
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::rt::TokioIo;
use platform::shutdown::Shutdown;
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::task::TaskTracker;

pub use self::endless::Endless;
use self::{
    endless::{Handover, Sending, Sends, send},
    received::receive,
    watch::{CLOSE_NEXT, CLOSE_NOW, Connections, DRAIN, TICK, Watch, Watched},
};
use super::{client::PEER, settings::Http};

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
    let behind = Arc::new(behind);
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
                let (connections, behind) = (Arc::clone(&connections), Arc::clone(&behind));
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

/// State that a connection shares with its requests.
struct Served<A> {
    behind: Arc<A>,
    watch: Arc<Watch>,
    body_limit: usize,
    handover: Handover,
}

impl<A: Answers> Sends for Served<A> {
    fn watch(&self) -> &Watch {
        &self.watch
    }

    fn handover(&self) -> &Handover {
        &self.handover
    }
}

/// Reason why hyper no longer serves a connection.
enum Outcome {
    Closed,
    /// There has been no request for a while.
    Idle(Watched),
    /// The headers of an endless response are written.
    Endless(Watched, Body),
}

async fn serve_connection<A: Answers>(connections: &Connections, stream: TcpStream, behind: Arc<A>) {
    // Responses are written as a whole, so Nagle's algorithm would only add delay.
    let _ = stream.set_nodelay(true);
    let registered = connections.register();
    let watch = Arc::clone(&registered.watch);
    let mut stream = Watched::new(stream, Arc::clone(&watch));
    let (body_limit, handover) = (connections.body_limit, Handover::default());
    let served = Arc::new(Served { behind, watch: Arc::clone(&watch), body_limit, handover });
    while is_readable(&stream, &watch).await {
        // Boxed, so that an idle connection does not keep the memory.
        match Box::pin(serve_requests(stream, &served)).await {
            Outcome::Closed => return,
            Outcome::Idle(idle) => stream = idle,
            Outcome::Endless(open, body) => {
                drop(served);
                if let Err(error) = send(open, body, &watch).await {
                    tracing::debug!(%error, "connection ended early");
                }
                return;
            }
        }
    }
}

/// Waits until the client has sent bytes; false if the connection must close.
async fn is_readable(stream: &Watched, watch: &Watch) -> bool {
    std::future::poll_fn(|context| match watch.poll_order(context) {
        DRAIN | CLOSE_NOW => Poll::Ready(false),
        _ => stream.poll_readable(context).map(|()| true),
    })
    .await
}

async fn serve_requests<A: Answers>(stream: Watched, served: &Arc<Served<A>>) -> Outcome {
    let service = service_fn({
        let served = Arc::clone(served);
        move |request| respond(Arc::clone(&served), request)
    });
    let mut connection = Some(http1::Builder::new().serve_connection(TokioIo::new(stream), service));
    let (watch, mut draining) = (&served.watch, false);
    std::future::poll_fn(|context| {
        let Some(open) = &mut connection else { return Poll::Ready(Outcome::Closed) };
        match watch.poll_order(context) {
            CLOSE_NOW => return Poll::Ready(Outcome::Closed),
            DRAIN if !draining => {
                draining = true;
                Pin::new(&mut *open).graceful_shutdown();
            }
            _ => {}
        }
        if let Poll::Ready(ended) = Pin::new(open).poll(context) {
            if let Err(error) = ended {
                // Clients disconnect or send invalid data all the time.
                tracing::debug!(%error, "connection ended early");
            }
            return Poll::Ready(Outcome::Closed);
        }
        // hyper can be removed only while it has nothing left to write.
        if !watch.is_flushed() {
            return Poll::Pending;
        }
        let endless = served.handover.take();
        if endless.is_none() && !watch.is_idle() {
            return Poll::Pending;
        }
        let Some(parts) = connection.take().map(http1::Connection::into_parts) else { return Poll::Pending };
        let stream = parts.io.into_inner().with_unread(&parts.read_buf);
        Poll::Ready(match endless {
            Some(body) => Outcome::Endless(stream, body),
            None => Outcome::Idle(stream),
        })
    })
    .await
}

async fn respond<A: Answers>(
    served: Arc<Served<A>>,
    request: Request<Incoming>,
) -> Result<Response<Sending<Served<A>>>, Infallible> {
    // Only HTTP/1.1 has chunks, in which an endless body is written.
    let has_chunks = request.version() == Version::HTTP_11;
    let (request, is_whole) = receive(request, served.body_limit, &served.watch).await;
    served.watch.answers();
    let mut response = served.behind.answer(request).await;
    let is_endless = has_chunks && response.extensions().get::<Endless>().is_some();
    // After an unread body, the client must not send another request on this connection.
    if !is_whole || is_endless || served.watch.order() == CLOSE_NEXT {
        response.headers_mut().insert(header::CONNECTION, HeaderValue::from_static("close"));
    }
    served.watch.answered();
    let sending = if is_endless { Sending::endless } else { Sending::of };
    Ok(response.map(|body| sending(body, served)))
}
