//! A server that sends exactly the bytes a test specifies, or none. An HTTP framework would refuse to send half of the
//! malformed responses needed here.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex},
};

use matrix_appservice::{Homeserver, Settings};
use tokio::{
    io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader},
    net::{TcpListener, TcpStream},
};
use url::Url;

/// Application service token in all tests with this server.
pub(crate) const AS_TOKEN: &str = "as-token-0123456789abcdef";

/// A request as the server received it.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) url: Url,
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// Behaviour of the server after it has read a request.
#[derive(Clone)]
pub(crate) enum Reply {
    /// Sends these bytes and closes the connection.
    Bytes(String),
    /// Sends these bytes, then neither sends more nor closes the connection.
    Stall(String),
}

impl Reply {
    pub(crate) fn json(status: u16, body: &str) -> Self {
        Self::with(status, "content-type: application/json\r\n", body)
    }

    pub(crate) fn html(status: u16) -> Self {
        Self::with(status, "content-type: text/html\r\n", "<html><h1>nginx</h1></html>")
    }

    pub(crate) fn with(status: u16, headers: &str, body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!(
            "HTTP/1.1 {status} X\r\n{headers}content-length: {length}\r\nconnection: close\r\n\r\n{body}"
        ))
    }

    pub(crate) fn silence() -> Self {
        Self::Stall(String::new())
    }
}

/// Fake homeserver that stops with the test's runtime.
pub(crate) struct FakeServer {
    pub(crate) url: Url,
    replies: Arc<Mutex<Replies>>,
    received: Arc<Mutex<Vec<Received>>>,
}

/// Sends each of `first` once, in order, and then always the same reply.
struct Replies {
    first: VecDeque<Reply>,
    always: Reply,
}

impl FakeServer {
    pub(crate) async fn start(reply: Reply) -> Self {
        Self::start_with([], reply).await
    }

    pub(crate) async fn start_with(first: impl IntoIterator<Item = Reply>, always: Reply) -> Self {
        let replies = Replies { first: first.into_iter().collect(), always };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let server = Self { url, replies: Arc::new(Mutex::new(replies)), received: Arc::default() };
        let (replies, received) = (server.replies.clone(), server.received.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, replies.clone(), received.clone()));
            }
        });
        server
    }

    pub(crate) fn set_reply(&self, reply: Reply) {
        self.replies.lock().unwrap().always = reply;
    }

    pub(crate) fn received(&self) -> Vec<Received> {
        self.received.lock().unwrap().clone()
    }

    pub(crate) fn settings(&self) -> Settings {
        Settings::new(self.url.clone(), "matrix.example".try_into().unwrap(), AS_TOKEN.into())
    }

    pub(crate) fn homeserver(&self) -> Homeserver {
        Homeserver::new(self.settings(), reqwest::Client::new())
    }
}

async fn serve(stream: TcpStream, replies: Arc<Mutex<Replies>>, received: Arc<Mutex<Vec<Received>>>) {
    let mut stream = BufReader::new(stream);
    let mut head = String::new();
    while !head.ends_with("\r\n\r\n") {
        if stream.read_line(&mut head).await.unwrap_or(0) == 0 {
            return;
        }
    }
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: ")).map_or(0, |n| n.parse().unwrap());
    let mut body = vec![0; length];
    stream.read_exact(&mut body).await.unwrap();

    let (first, headers) = head.split_once("\r\n").unwrap();
    let [method, path, _] = first.split(' ').collect::<Vec<_>>()[..] else { panic!("not a request: {first}") };
    received.lock().unwrap().push(Received {
        method: method.to_owned(),
        url: Url::parse(&format!("http://fake-server{path}")).unwrap(),
        headers: headers.to_owned(),
        body: String::from_utf8(body).unwrap(),
    });

    let reply = {
        let mut replies = replies.lock().unwrap();
        replies.first.pop_front().unwrap_or_else(|| replies.always.clone())
    };
    // Write errors are ignored, because some tests drop the connection.
    match reply {
        Reply::Bytes(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
        }
        Reply::Stall(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
            std::future::pending::<()>().await;
        }
    }
}
