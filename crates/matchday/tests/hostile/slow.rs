//! Slow clients are disconnected, and other clients are not delayed by them.

use std::time::{Duration, Instant};

use matchday::testing::with_database;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{measure_until, percentile, process::Setting, proof::held};

/// `http.deadline` in these tests.
const DEADLINE: Duration = Duration::from_secs(3);

/// A slow client: it sends `at_once`, and then either one byte a second or nothing.
#[derive(Clone, Copy)]
struct SlowClient {
    at_once: &'static str,
    byte_by_byte: bool,
}

const SLOW_CLIENTS: [SlowClient; 4] = [
    SlowClient { at_once: "GET /api/auth/events HTTP/1.1\r\nHost: x\r\nX-Slow: ", byte_by_byte: true },
    SlowClient { at_once: "GET /api/auth/events HTTP/1.1\r\nHost: x\r\nX-Silent: ", byte_by_byte: false },
    SlowClient {
        at_once: "POST /api/code/request HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n",
        byte_by_byte: true,
    },
    SlowClient {
        at_once: "POST /api/code/request HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n",
        byte_by_byte: false,
    },
];

/// Connects and sends slowly; returns how long the service kept the connection open.
async fn connect_slowly(address: String, slow_client: SlowClient) -> Duration {
    let mut stream = TcpStream::connect(&address).await.expect("connected");
    let began = Instant::now();
    stream.write_all(slow_client.at_once.as_bytes()).await.expect("sent");
    let mut buffer = [0; 4_096];
    loop {
        match timeout(Duration::from_secs(1), stream.read(&mut buffer)).await {
            // A response may arrive before the connection closes.
            Ok(Ok(read)) if read > 0 => {}
            Ok(_) => return began.elapsed(),
            Err(_) if slow_client.byte_by_byte => {
                if stream.write_all(b"a").await.is_err() {
                    return began.elapsed();
                }
            }
            Err(_) => assert!(began.elapsed() < DEADLINE * 10, "the connection stays open"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn slow_clients_are_disconnected_without_delaying_others() {
    with_database(async |options| {
        let setting =
            Setting::new(&options).with("MATCHDAY_HTTP__DEADLINE", "3s").with("MATCHDAY_MATRIX__TIMEOUT", "1s");
        // Fewer request slots than clients whose body never arrives: such clients must not occupy a slot.
        let setting = setting.with("MATCHDAY_SMS__TIMEOUT", "1s").with("MATCHDAY_HTTP__MAX_IN_FLIGHT", "50");
        let process = setting.start(&["serve"]);
        let setting = Setting::new(&options);
        let token = setting.expect(&["sessions", "issue"], "");
        let address = process.public.trim_start_matches("http://").to_owned();
        let slow: Vec<_> =
            (0..500).map(|number| tokio::spawn(connect_slowly(address.clone(), SLOW_CLIENTS[number % SLOW_CLIENTS.len()]))).collect();
        let until = Instant::now() + DEADLINE + Duration::from_secs(1);
        let measure = |path: &str, token: &str| measure_until(format!("{}{path}", process.public), token.to_owned(), 200, until);
        let (mut health, mut list, mut ready) = tokio::join!(
            measure("/healthz", ""),
            measure("/api/auth/events", &token),
            measure_until(format!("{}/readyz", process.private), String::new(), 200, until)
        );
        let mut ends = Vec::new();
        for client in slow {
            ends.push(client.await.expect("a finished client"));
        }
        let slowest = percentile(&mut ends, 100) / 1_000.0;
        // The deadline, plus time for the periodic connection check and a busy machine.
        assert!(slowest < 10.0, "the last slow client was disconnected after {slowest} s");
        let (health, list, ready) = (percentile(&mut health, 99), percentile(&mut list, 99), percentile(&mut ready, 99));
        assert!(health < 1_000.0 && list < 1_000.0 && ready < 1_000.0, "health {health}, list {list}, ready {ready} ms");
        held("500 concurrent clients that send headers or a body at one byte a second, or stop midway",
            &format!(
                "all disconnected, the last after {slowest:.1} s with a deadline of {} s; during the attack p99 of health {health} ms, of readiness {ready} ms, of a list {list} ms, none refused",
                DEADLINE.as_secs()
            ),
        );
    })
    .await;
}

/// Sends the headers, and the body after a pause; returns the head of the response.
async fn post_in_two(stream: &mut TcpStream, path: &str, body: &[u8]) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.expect("sent");
    // Long enough for a response that does not wait for the body.
    let early = timeout(Duration::from_millis(200), stream.readable()).await;
    if early.is_err() {
        stream.write_all(body).await.expect("sent");
    }
    let (mut answer, mut buffer) = (Vec::new(), [0; 4_096]);
    loop {
        let read = timeout(Duration::from_secs(5), stream.read(&mut buffer)).await.expect("in time").expect("read");
        answer.extend_from_slice(&buffer[..read]);
        let text = String::from_utf8_lossy(&answer).to_lowercase();
        let Some((head, rest)) = text.split_once("\r\n\r\n") else {
            assert!(read > 0, "closed without a response");
            continue;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if read == 0 || length.is_some_and(|length| length.parse() == Ok(rest.len())) {
            return head.to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_request_keeps_connection_or_announces_close() {
    with_database(async |options| {
        let process = Setting::new(&options).start(&["serve"]);
        let mut stream = TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");
        for _ in 0..3 {
            let head = post_in_two(&mut stream, "/api/auth/predictions", b"{\"event_id\": 1}").await;
            assert!(head.starts_with("http/1.1 401 ") && !head.contains("connection: close"), "{head}");
        }
        // The service does not drain a body above its limit.
        let head = post_in_two(&mut stream, "/api/auth/predictions", &vec![b' '; 100_000]).await;
        assert!(head.starts_with("http/1.1 401 ") && head.contains("connection: close"), "{head}");
        held("Requests refused before their body arrived",
            "the connection stays usable for the next request; if the body exceeds the limit that the service drains, the response announces that the connection closes",
        );
    })
    .await;
}
