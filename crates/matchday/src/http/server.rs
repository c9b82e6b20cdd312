//! Accepting connections. Written here rather than taken from axum, because a public listener needs three things that
//! its server has no setting for: a bound on connections, a deadline for headers, and an end that waits for requests
//! but not for idle clients.

use std::{net::SocketAddr, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::ConnectInfo};
use http::Request;
use hyper::{body::Incoming, service::service_fn};
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
};
use tokio::{
    net::{TcpListener, TcpStream},
    sync::Semaphore,
};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use tower::Service as _;

/// Serves until `closing`, then until every request under way is answered.
pub async fn serve(
    listener: TcpListener,
    router: Router,
    max_connections: usize,
    header_deadline: Duration,
    closing: CancellationToken,
) {
    let places = Arc::new(Semaphore::new(max_connections));
    let connections = TaskTracker::new();
    let open = metrics::gauge!("matchday_http_connections");
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(header_deadline);
    builder.http2().timer(TokioTimer::new()).keep_alive_interval(Some(Duration::from_secs(30)));
    let builder = Arc::new(builder);
    loop {
        // The place comes first: a connection that cannot be served is not accepted, and waits in the kernel's queue.
        let place = tokio::select! {
            () = closing.cancelled() => break,
            place = Arc::clone(&places).acquire_owned() => place,
        };
        let accepted = tokio::select! {
            () = closing.cancelled() => break,
            accepted = listener.accept() => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            Err(error) => {
                // Out of file descriptors, most likely: pausing lets some be freed instead of spinning.
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(100)).await;
                continue;
            }
        };
        let (builder, router, closing, open) = (Arc::clone(&builder), router.clone(), closing.clone(), open.clone());
        connections.spawn(async move {
            open.increment(1);
            serve_connection(&builder, stream, peer, router, closing).await;
            open.decrement(1);
            drop(place);
        });
    }
    drop(listener);
    connections.close();
    connections.wait().await;
}

async fn serve_connection(
    builder: &auto::Builder<TokioExecutor>,
    stream: TcpStream,
    peer: SocketAddr,
    router: Router,
    closing: CancellationToken,
) {
    // Answers are written whole; waiting for more to send only adds delay.
    let _ = stream.set_nodelay(true);
    let service = service_fn(move |request: Request<Incoming>| {
        let mut request = request.map(Body::new);
        request.extensions_mut().insert(ConnectInfo(peer));
        // A router is always ready, so there is nothing to wait for before the call.
        router.clone().call(request)
    });
    let mut connection = std::pin::pin!(builder.serve_connection(TokioIo::new(stream), service));
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = closing.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        // Clients that vanish or talk nonsense are everyday life.
        tracing::debug!(%error, "a connection ended early");
    }
}
