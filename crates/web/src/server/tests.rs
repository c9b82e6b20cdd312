use std::{
    net::SocketAddr,
    sync::atomic::{AtomicBool, Ordering},
};

use axum::response::IntoResponse as _;
use bytes::Bytes;
use futures_util::{Stream, stream};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    sync::mpsc,
    time::timeout,
};

use super::*;

/// Upper bound for everything that must happen.
const PATIENCE: Duration = Duration::from_secs(20);
/// Longer than a connection keeps its buffers after a request.
const IDLE: Duration = Duration::from_secs(1);

/// Responds to `/stream` with the chunks of a channel, and to everything else with the path.
#[derive(Clone)]
struct Paths {
    chunks: Arc<tokio::sync::Mutex<Option<mpsc::Receiver<&'static str>>>>,
    is_listener_gone: Arc<AtomicBool>,
}

/// Notes that the body of a stream was dropped.
struct Gone(Arc<AtomicBool>);

impl Drop for Gone {
    fn drop(&mut self) {
        self.0.store(true, Ordering::SeqCst);
    }
}

impl Answers for Paths {
    async fn answer(&self, request: Request<Body>) -> Response {
        if request.uri().path() != "/stream" {
            return request.uri().path().to_owned().into_response();
        }
        let chunks = self.chunks.lock().await.take().expect("one stream");
        let gone = Gone(Arc::clone(&self.is_listener_gone));
        let mut response = Response::new(Body::from_stream(received(chunks, gone)));
        response.extensions_mut().insert(Endless);
        response
    }
}

fn received(chunks: mpsc::Receiver<&'static str>, gone: Gone) -> impl Stream<Item = Result<Bytes, Infallible>> {
    stream::unfold((chunks, gone), async |(mut chunks, gone)| {
        let chunk = chunks.recv().await?;
        Some((Ok(Bytes::from_static(chunk.as_bytes())), (chunks, gone)))
    })
}

fn settings(address: SocketAddr) -> Http {
    Http {
        listen: address,
        private_listen: address,
        server_listen: None,
        max_connections: 100,
        max_in_flight: 100,
        user_burst: 0,
        user_requests_per_second: 0,
        deadline: Duration::from_secs(10),
        keep_alive: Duration::from_secs(75),
        body_limit: 1_000,
        cors_origins: Vec::new(),
        trusted_proxies: Vec::new(),
        public_url: None,
    }
}

struct Server {
    address: SocketAddr,
    chunks: Option<mpsc::Sender<&'static str>>,
    is_listener_gone: Arc<AtomicBool>,
    shutdown: Shutdown,
    ended: tokio::task::JoinHandle<()>,
}

impl Server {
    async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        let config = settings(address);
        let (sender, receiver) = mpsc::channel(100);
        let is_listener_gone = Arc::new(AtomicBool::new(false));
        let paths = Paths {
            chunks: Arc::new(tokio::sync::Mutex::new(Some(receiver))),
            is_listener_gone: Arc::clone(&is_listener_gone),
        };
        let shutdown = Shutdown::default();
        let ended = tokio::spawn(serve(listener, paths, config, shutdown.clone()));
        Self { address, chunks: Some(sender), is_listener_gone, shutdown, ended }
    }

    async fn connect(&self) -> Client {
        Client { stream: TcpStream::connect(self.address).await.expect("connected"), received: String::new() }
    }

    async fn send_chunk(&self, chunk: &'static str) {
        self.chunks.as_ref().expect("an open stream").send(chunk).await.expect("a listener");
    }
}

struct Client {
    stream: TcpStream,
    received: String,
}

impl Client {
    async fn send(&mut self, text: &str) {
        self.stream.write_all(text.as_bytes()).await.expect("sent");
    }

    /// Reads until the text has arrived; returns everything up to its end.
    async fn read_until(&mut self, text: &str) -> String {
        while !self.received.contains(text) {
            assert!(self.read().await > 0, "closed before {text:?}: {:?}", self.received);
        }
        let end = self.received.find(text).expect("it has arrived") + text.len();
        self.received.drain(..end).collect()
    }

    /// Reads until the connection closes; returns everything.
    async fn read_to_end(&mut self) -> String {
        while self.read().await > 0 {}
        std::mem::take(&mut self.received)
    }

    async fn read(&mut self) -> usize {
        let mut bytes = [0; 1_000];
        let length = timeout(PATIENCE, self.stream.read(&mut bytes)).await.expect("data in time").expect("read");
        self.received.push_str(std::str::from_utf8(&bytes[..length]).expect("UTF-8"));
        length
    }

    async fn get(&mut self, path: &str) {
        self.send(&format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n")).await;
        self.read_until(&format!("\r\n\r\n{path}")).await;
    }
}

#[tokio::test]
async fn idle_connection_serves_further_requests() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    tokio::time::sleep(IDLE).await;
    client.get("/first").await;
    client.get("/second").await;
    tokio::time::sleep(IDLE).await;
    client.get("/third").await;
    // A request that arrives in parts is not taken for an idle connection.
    client.send("GET /four").await;
    tokio::time::sleep(IDLE).await;
    client.send("th HTTP/1.1\r\nhost: x\r\nx-long: ").await;
    tokio::time::sleep(IDLE).await;
    client.send("yes\r\n\r\nGET /fifth HTTP/1.1\r\nhost: x\r\n\r\nGET /six").await;
    client.read_until("\r\n\r\n/fourth").await;
    client.read_until("\r\n\r\n/fifth").await;
    tokio::time::sleep(IDLE).await;
    client.send("th HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.read_until("\r\n\r\n/sixth").await;
    tokio::time::sleep(IDLE).await;
    server.shutdown.end(Duration::ZERO, PATIENCE).await;
    assert_eq!(client.read_to_end().await, "", "shutdown closes idle connections");
    timeout(PATIENCE, server.ended).await.expect("in time").expect("ended");
}

#[tokio::test]
async fn endless_response_is_sent_in_chunks_and_closes() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    // The first request is pipelined; the last one is not read, because the connection closes.
    client.send("GET /first HTTP/1.1\r\nhost: x\r\n\r\nGET /stream HTTP/1.1\r\nhost: x\r\n\r\nGET /last HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.read_until("\r\n\r\n/first").await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(head.starts_with("HTTP/1.1 200 OK\r\n"), "{head}");
    for header in ["transfer-encoding: chunked", "connection: close", "date: "] {
        assert!(head.contains(&format!("\r\n{header}")), "{header}: {head}");
    }
    server.send_chunk("one").await;
    assert_eq!(client.read_until("one\r\n").await, "3\r\none\r\n");
    tokio::time::sleep(IDLE).await;
    // Empty bytes must not look like the end.
    server.send_chunk("").await;
    server.send_chunk("two and three").await;
    assert_eq!(client.read_until("three\r\n").await, "d\r\ntwo and three\r\n");
    assert!(!server.is_listener_gone.load(Ordering::SeqCst));
    server.chunks = None;
    assert_eq!(client.read_until("0\r\n\r\n").await, "0\r\n\r\n");
}

#[tokio::test]
async fn endless_response_ends_when_client_disconnects() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.read_until("\r\n\r\n").await;
    drop(client);
    let gone = async {
        while !server.is_listener_gone.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    timeout(PATIENCE, gone).await.expect("the body is dropped");
}

#[tokio::test]
async fn endless_response_without_chunks_for_http_1_0() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /stream HTTP/1.0\r\n\r\n").await;
    let head = client.read_until("\r\n\r\n").await;
    assert!(!head.contains("transfer-encoding"), "{head}");
    server.send_chunk("one").await;
    server.send_chunk("two").await;
    server.chunks = None;
    assert_eq!(client.read_to_end().await, "onetwo");
}

#[tokio::test]
async fn head_request_for_endless_response_drops_the_body() {
    let server = Server::start().await;
    let mut client = server.connect().await;
    client.send("HEAD /stream HTTP/1.1\r\nhost: x\r\n\r\n").await;
    assert!(client.read_to_end().await.ends_with("\r\n\r\n"));
    assert!(server.is_listener_gone.load(Ordering::SeqCst));
}

#[tokio::test]
async fn slow_listener_receives_everything() {
    let mut server = Server::start().await;
    let mut client = server.connect().await;
    client.send("GET /stream HTTP/1.1\r\nhost: x\r\n\r\n").await;
    client.read_until("\r\n\r\n").await;
    // More than the socket buffers take, so that chunks are written in parts.
    let chunk: &'static str = "x".repeat(100_000).leak();
    let sent = tokio::spawn(async move {
        for _ in 0..100 {
            server.send_chunk(chunk).await;
        }
        server.chunks = None;
        server
    });
    tokio::time::sleep(IDLE).await;
    let body = client.read_to_end().await;
    let expected = format!("{}0\r\n\r\n", format!("186a0\r\n{chunk}\r\n").repeat(100));
    assert!(body == expected, "{} bytes instead of {}", body.len(), expected.len());
    sent.await.expect("sent");
}

/// An idle connection has this future and no other large allocation.
#[tokio::test]
async fn idle_connection_is_small() {
    let server = Server::start().await;
    let stream = TcpStream::connect(server.address).await.expect("connected");
    let paths = Paths { chunks: Arc::default(), is_listener_gone: Arc::default() };
    let connections = Connections::new(&settings(server.address), server.shutdown.draining().clone());
    let serving = serve_connection(&connections, stream, Arc::new(paths));
    let size = size_of_val(&serving);
    assert!(size <= 768, "{size} bytes");
}
