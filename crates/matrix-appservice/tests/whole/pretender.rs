//! A server that answers what a test tells it to, byte for byte, or not at all. A framework would refuse to send half
//! of what is needed here.

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

/// The token that every test with this server uses.
pub(crate) const AS_TOKEN: &str = "as-token-0123456789abcdef";

/// A request as it arrived.
#[derive(Clone, Debug)]
pub(crate) struct Received {
    pub(crate) method: String,
    pub(crate) url: Url,
    pub(crate) headers: String,
    pub(crate) body: String,
}

/// What the server does with every request.
#[derive(Clone)]
pub(crate) enum Answer {
    /// Sends these bytes and closes.
    Bytes(String),
    /// Sends these bytes and neither goes on nor closes.
    Stall(String),
}

impl Answer {
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

/// The server. It ends with the test's runtime.
pub(crate) struct Pretender {
    pub(crate) url: Url,
    answers: Arc<Mutex<Answers>>,
    received: Arc<Mutex<Vec<Received>>>,
}

/// Those of `first` come once each, in their order, and then always the same.
struct Answers {
    first: VecDeque<Answer>,
    always: Answer,
}

impl Pretender {
    pub(crate) async fn start(answer: Answer) -> Self {
        Self::start_with([], answer).await
    }

    pub(crate) async fn start_with(first: impl IntoIterator<Item = Answer>, always: Answer) -> Self {
        let answers = Answers { first: first.into_iter().collect(), always };
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = Url::parse(&format!("http://{}", listener.local_addr().unwrap())).unwrap();
        let server = Self { url, answers: Arc::new(Mutex::new(answers)), received: Arc::default() };
        let (answers, received) = (server.answers.clone(), server.received.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(serve(stream, answers.clone(), received.clone()));
            }
        });
        server
    }

    pub(crate) fn answers(&self, answer: Answer) {
        self.answers.lock().unwrap().always = answer;
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

async fn serve(stream: TcpStream, answers: Arc<Mutex<Answers>>, received: Arc<Mutex<Vec<Received>>>) {
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
        url: Url::parse(&format!("http://pretender{path}")).unwrap(),
        headers: headers.to_owned(),
        body: String::from_utf8(body).unwrap(),
    });

    let answer = {
        let mut answers = answers.lock().unwrap();
        answers.first.pop_front().unwrap_or_else(|| answers.always.clone())
    };
    // Whoever asked may be gone by now; that is part of some tests.
    match answer {
        Answer::Bytes(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
        }
        Answer::Stall(bytes) => {
            let _ = stream.write_all(bytes.as_bytes()).await;
            std::future::pending::<()>().await;
        }
    }
}
