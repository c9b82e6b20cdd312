//! The swarm against a stub of the service: agents over TCP, keys, retries, refusals and the live stream.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, Mutex},
    time::Duration,
};

use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::{TcpListener, TcpStream},
    sync::watch,
};

use super::{
    action::Action,
    coordinator::{Deployment, Import, Moment, drive},
    remote,
    script::Course,
};

/// Requests that the stub received.
#[derive(Default)]
struct Seen {
    /// Attempts by idempotency key.
    keys: BTreeMap<String, u32>,
    tokens: BTreeSet<String>,
    etags: u32,
    resumed: u32,
}

/// A service that refuses the first attempt of each prediction, all deductions, and fails all rank look-ups.
struct Stub {
    seen: Mutex<Seen>,
    result: watch::Sender<bool>,
}

impl Stub {
    async fn start() -> (Arc<Self>, String) {
        let stub = Arc::new(Self { seen: Mutex::default(), result: watch::Sender::new(false) });
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("http://{}", listener.local_addr().expect("an address"));
        let serving = Arc::clone(&stub);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                tokio::spawn(Arc::clone(&serving).connection(stream));
            }
        });
        (stub, url)
    }

    async fn connection(self: Arc<Self>, mut stream: TcpStream) {
        let mut received = Vec::new();
        loop {
            let Some(head) = received.windows(4).position(|four| four == b"\r\n\r\n") else {
                match stream.read_buf(&mut received).await {
                    Ok(read) if read > 0 => continue,
                    _ => return,
                }
            };
            let text = String::from_utf8_lossy(&received[..head]).to_lowercase();
            let header = |name: &str| {
                text.lines().find_map(|line| Some(line.strip_prefix(name)?.strip_prefix(':')?.trim().to_owned()))
            };
            let length = header("content-length").map_or(0, |length| length.parse().expect("a number"));
            while received.len() < head + 4 + length {
                if stream.read_buf(&mut received).await.unwrap_or_default() == 0 {
                    return;
                }
            }
            received.drain(..head + 4 + length);
            let path = text.split(' ').nth(1).unwrap_or_default().to_owned();
            if path.starts_with("/api/auth/stream") {
                return self.stream(stream, header("last-event-id")).await;
            }
            let answer = self.answer(
                &path,
                header("authorization"),
                header("idempotency-key").as_ref(),
                header("if-none-match").as_ref(),
            );
            if stream.write_all(answer.as_bytes()).await.is_err() {
                return;
            }
        }
    }

    fn answer(&self, path: &str, token: Option<String>, key: Option<&String>, etag: Option<&String>) -> String {
        let mut seen = self.seen.lock().expect("the lock");
        seen.tokens.insert(token.expect("a token"));
        let attempts = key.map(|key| {
            let attempts = seen.keys.entry(key.clone()).or_default();
            *attempts += 1;
            *attempts
        });
        let with = |status: &str, headers: &str, body: &str| {
            format!("HTTP/1.1 {status}\r\ncontent-length: {}\r\n{headers}\r\n{body}", body.len())
        };
        match path {
            "/api/auth/events?per_page=20" if etag.is_some() => {
                seen.etags += 1;
                "HTTP/1.1 304 Not Modified\r\netag: \"one\"\r\n\r\n".to_owned()
            }
            "/api/auth/events?per_page=20" => with("200 OK", "etag: \"one\"\r\n", r#"{"data":[]}"#),
            "/api/auth/predictions" if attempts.expect("a key") == 1 => {
                with("503 Service Unavailable", "retry-after: 0\r\n", r#"{"message":"Busy.","code":"overloaded"}"#)
            }
            "/api/auth/predictions" => with("201 Created", "", r#"{"data":{"created_at":"now"}}"#),
            "/api/auth/coins/deduct" => {
                assert_eq!(attempts, Some(1), "a client does not wait longer than ten seconds");
                with("429 Too Many Requests", "retry-after: 60\r\n", r#"{"message":"Later.","code":"rate_limited"}"#)
            }
            _ => with("500 Internal Server Error", "", r#"{"message":"Failed.","code":"internal"}"#),
        }
    }

    /// Ends the first connection after an id; on the next, sends the result when it is there.
    async fn stream(&self, mut stream: TcpStream, last_id: Option<String>) {
        let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n";
        let _ = stream.write_all(format!("{head}id: 1-1\n\n").as_bytes()).await;
        if let Some(id) = last_id {
            assert_eq!(id, "1-1");
            self.seen.lock().expect("the lock").resumed += 1;
            let mut result = self.result.subscribe();
            let _ = result.wait_for(|there| *there).await;
            let _ = stream.write_all(b"event: result\ndata: {}\nid: 1-2\n\n").await;
            let mut rest = Vec::new();
            let _ = stream.read_to_end(&mut rest).await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn agents_share_a_schedule_and_count_what_happens() {
    let (stub, url) = Stub::start().await;
    let mut agents = Vec::new();
    for _ in 0..2 {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        agents.push(listener.local_addr().expect("an address").to_string());
        tokio::spawn(remote::listen(listener, vec![url.clone()]));
    }
    let deployment = Deployment {
        url: url.clone(),
        run: 7,
        tokens: (0..10).map(|fan| format!("token{fan}")).collect(),
        phones: None,
        event: 1,
        tournament: 1,
        rooms: Vec::new(),
        spread_addresses: false,
    };
    let length = Duration::from_secs(1);
    let steady = |action, arrivals| Course::steady(action, arrivals, length);
    let courses = [
        steady(Action::Matches, 60),
        steady(Action::Predict, 40),
        steady(Action::Deduct, 20),
        steady(Action::Rank, 10),
        Course::steady(Action::Listen, 4, Duration::from_millis(100)),
    ];
    // Listeners reconnect a second after their first connection was ended at once.
    let moments = [Moment { at: Duration::from_secs(6), kind: "result", document: "result".to_owned() }];
    let told = Arc::clone(&stub);
    let import: Import = Arc::new(move |document| {
        assert_eq!(document, "result");
        told.result.send_replace(true);
        Ok(())
    });
    let driven = drive(&agents, &deployment, &courses, Duration::from_secs(8), &moments, Some(&import));
    let (tally, _) = driven.await.expect("driven");

    let counts = |action: Action| (tally.rows[&action].due, tally.rows[&action].ok);
    assert_eq!(counts(Action::Matches), (60, 60));
    assert_eq!(counts(Action::Predict), (40, 40), "every prediction succeeds on the second attempt");
    assert_eq!(tally.rows[&Action::Predict].refused, BTreeMap::from([("overloaded".to_owned(), 40)]));
    assert_eq!(counts(Action::Deduct), (20, 0));
    assert_eq!(tally.rows[&Action::Deduct].refused, BTreeMap::from([("rate_limited".to_owned(), 20)]));
    assert_eq!(tally.rows[&Action::Rank].failed, BTreeMap::from([("500 internal".to_owned(), 10)]));
    assert_eq!(counts(Action::Listen), (4, 4));
    assert_eq!(counts(Action::Resume), (4, 4));
    assert_eq!(counts(Action::Deliver), (4, 4));
    assert_eq!(tally.received, BTreeMap::from([("result".to_owned(), 4)]));
    assert_eq!(tally.failures(), 10, "refusals are not failures");
    let seen = stub.seen.lock().expect("the lock");
    assert_eq!((seen.keys.len(), seen.tokens.len(), seen.resumed), (60, 10, 4));
    assert_eq!(seen.keys.values().filter(|attempts| **attempts == 2).count(), 40, "retries have the same key");
    assert!(seen.etags > 0, "fans who come back send the ETag: {}", seen.etags);
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_server_neither_slows_arrivals_nor_hides_its_delay() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                    let body = r#"{"data":{}}"#;
                    let answer = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n{body}", body.len());
                    let _ = stream.write_all(answer.as_bytes()).await;
                }
            });
        }
    });
    let deployment = Deployment {
        url,
        run: 8,
        tokens: vec!["token".to_owned()],
        phones: None,
        event: 1,
        tournament: 1,
        rooms: Vec::new(),
        spread_addresses: false,
    };
    let length = Duration::from_secs(1);
    let courses = [Course::steady(Action::Profile, 100, length)];
    let (tally, _) = drive(&[], &deployment, &courses, length, &[], None).await.expect("driven");
    let row = &tally.rows[&Action::Profile];
    assert_eq!((row.due, row.ok), (100, 100));
    assert!(row.latency.quantile(0.01) >= 500.0, "{}", row.latency.quantile(0.01));
}

#[tokio::test(flavor = "multi_thread")]
async fn agent_refuses_deployments_that_are_not_allowed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(remote::listen(listener, vec!["http://staging.example.org".to_owned()]));
    let deployment = Deployment {
        url: "http://127.0.0.1:1".to_owned(),
        run: 9,
        tokens: vec!["token".to_owned()],
        phones: None,
        event: 1,
        tournament: 1,
        rooms: Vec::new(),
        spread_addresses: false,
    };
    let driven = drive(&[address.to_string()], &deployment, &[], Duration::from_secs(1), &[], None).await;
    let error = driven.err().expect("refused").to_string();
    assert!(error.contains("does not drive http://127.0.0.1:1"), "{error}");
    assert!(remote::check_exposure("0.0.0.0:7700".parse().expect("an address"), &[]).is_err());
    assert!(remote::check_exposure(address, &[]).is_ok());
}
