//! Bare HTTP/2 client, for comparison with the clients of this crate.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use bytes::Bytes;
use h2::client::SendRequest;
use http::{HeaderMap, HeaderName, Request, StatusCode};
use tokio::{net::TcpStream, task::JoinSet};

use super::Received;

/// Path, headers and body of a request.
type Parts = (String, HeaderMap, Bytes);

/// Repeats an accepted request on some connections, with `at_once` requests under way. Returns the time that it took.
pub async fn repeat(
    address: &str,
    received: &Received,
    connections: usize,
    at_once: usize,
    count: usize,
) -> std::io::Result<Duration> {
    let (path, headers) = (received.path.clone(), received.headers.clone());
    let body = Bytes::from(received.body.to_string());
    let parts = move |_| (path.clone(), headers.clone(), body.clone());
    send(address, parts, connections, at_once, count).await
}

/// Sends an accepted request to many devices: `token` returns the token of each. Each request to APNs has its own id.
pub async fn send_to(
    address: &str,
    received: &Received,
    token: impl Fn(usize) -> String + Clone + Send + 'static,
    (connections, at_once, count): (usize, usize, usize),
) -> std::io::Result<Duration> {
    let (accepted, path, body) = (received.token.clone(), received.path.clone(), received.body.to_string());
    let headers = received.headers.clone();
    let id = HeaderName::from_static("apns-id");
    let parts = move |number| {
        let token = token(number);
        let mut headers = headers.clone();
        if let Some(id) = headers.get_mut(&id)
            && let Ok(own) = format!("00000000-0000-4000-8000-{number:012x}").parse()
        {
            *id = own;
        }
        (path.replace(&accepted, &token), headers, Bytes::from(body.replace(&accepted, &token)))
    };
    send(address, parts, connections, at_once, count).await
}

async fn send(
    address: &str,
    parts: impl Fn(usize) -> Parts + Clone + Send + 'static,
    connections: usize,
    at_once: usize,
    count: usize,
) -> std::io::Result<Duration> {
    let url = format!("http://{address}");
    let mut senders = Vec::new();
    for _ in 0..connections {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let (sender, connection) = h2::client::handshake(stream).await.map_err(std::io::Error::other)?;
        tokio::spawn(connection);
        senders.push(sender);
    }
    let (next, started) = (Arc::new(AtomicUsize::new(0)), Instant::now());
    let mut workers = JoinSet::new();
    for worker in 0..at_once {
        let (sender, url, parts) = (senders[worker % connections].clone(), url.clone(), parts.clone());
        let next = next.clone();
        workers.spawn(async move {
            loop {
                let number = next.fetch_add(1, Ordering::Relaxed);
                if number >= count {
                    return Ok::<_, std::io::Error>(());
                }
                let (path, headers, body) = parts(number);
                let mut request = Request::post(format!("{url}{path}")).body(()).map_err(std::io::Error::other)?;
                *request.headers_mut() = headers;
                post(&sender, request, body).await.map_err(std::io::Error::other)?;
            }
        });
    }
    while let Some(finished) = workers.join_next().await {
        finished??;
    }
    Ok(started.elapsed())
}

async fn post(sender: &SendRequest<Bytes>, request: Request<()>, body: Bytes) -> Result<(), h2::Error> {
    let mut sender = sender.clone().ready().await?;
    let (response, mut stream) = sender.send_request(request, false)?;
    stream.send_data(body, true)?;
    let response = response.await?;
    if response.status() != StatusCode::OK {
        return Err(h2::Reason::REFUSED_STREAM.into());
    }
    let mut incoming = response.into_body();
    while let Some(chunk) = incoming.data().await {
        let length = chunk?.len();
        incoming.flow_control().release_capacity(length)?;
    }
    Ok(())
}
