//! Clients that take their time: they are ended, and nobody waits for them meanwhile.

use std::time::{Duration, Instant};

use matchday::testing::with_database;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    time::timeout,
};

use crate::{ask_while, percentile, process::Setting, proof::held};

/// How long a request may take in these tests.
const DEADLINE: Duration = Duration::from_secs(3);

/// What a slow client sends at once, and what it then sends a byte of every second. With nothing left it is silent.
#[derive(Clone, Copy)]
struct Manner {
    at_once: &'static str,
    bit_by_bit: bool,
}

const MANNERS: [Manner; 4] = [
    Manner { at_once: "GET /api/auth/events HTTP/1.1\r\nHost: x\r\nX-Slow: ", bit_by_bit: true },
    Manner { at_once: "GET /api/auth/events HTTP/1.1\r\nHost: x\r\nX-Silent: ", bit_by_bit: false },
    Manner { at_once: "POST /api/code/request HTTP/1.1\r\nHost: x\r\nContent-Length: 5000\r\n\r\n", bit_by_bit: true },
    Manner {
        at_once: "POST /api/code/request HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n10\r\n",
        bit_by_bit: false,
    },
];

/// Connects and dawdles; returns how long the service put up with it.
async fn dawdle(address: String, manner: Manner) -> Duration {
    let mut stream = TcpStream::connect(&address).await.expect("connected");
    let began = Instant::now();
    stream.write_all(manner.at_once.as_bytes()).await.expect("sent");
    let mut buffer = [0; 4_096];
    loop {
        match timeout(Duration::from_secs(1), stream.read(&mut buffer)).await {
            // An answer may come before the end.
            Ok(Ok(read)) if read > 0 => {}
            Ok(_) => return began.elapsed(),
            Err(_) if manner.bit_by_bit => {
                if stream.write_all(b"a").await.is_err() {
                    return began.elapsed();
                }
            }
            Err(_) => assert!(began.elapsed() < DEADLINE * 10, "nobody ends it"),
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn five_hundred_slow_clients_are_ended_and_nobody_waits_for_them() {
    with_database(async |options| {
        let setting =
            Setting::new(&options).with("MATCHDAY_HTTP__DEADLINE", "3s").with("MATCHDAY_MATRIX__TIMEOUT", "1s");
        // Fewer places than clients whose body does not come: those must not take any.
        let setting = setting.with("MATCHDAY_SMS__TIMEOUT", "1s").with("MATCHDAY_HTTP__MAX_IN_FLIGHT", "50");
        let process = setting.start(&["serve"]);
        let setting = Setting::new(&options);
        let token = setting.expect(&["sessions", "issue"], "");
        let address = process.public.trim_start_matches("http://").to_owned();
        let slow: Vec<_> =
            (0..500).map(|number| tokio::spawn(dawdle(address.clone(), MANNERS[number % MANNERS.len()]))).collect();
        let until = Instant::now() + DEADLINE + Duration::from_secs(1);
        let ask = |path: &str, token: &str| ask_while(format!("{}{path}", process.public), token.to_owned(), 200, until);
        let (mut health, mut list, mut ready) = tokio::join!(
            ask("/healthz", ""),
            ask("/api/auth/events", &token),
            ask_while(format!("{}/readyz", process.private), String::new(), 200, until)
        );
        let mut ends = Vec::new();
        for client in slow {
            ends.push(client.await.expect("it ended"));
        }
        let slowest = percentile(&mut ends, 100) / 1_000.0;
        // The deadline, a look at connections now and then, and a machine that does other things too.
        assert!(slowest < 10.0, "the last slow client was ended after {slowest} s");
        let (health, list, ready) = (percentile(&mut health, 99), percentile(&mut list, 99), percentile(&mut ready, 99));
        assert!(health < 1_000.0 && list < 1_000.0 && ready < 1_000.0, "health {health}, list {list}, ready {ready} ms");
        held(
            "hostile",
            "500 clients at once that send headers or a body one byte a second, or stop in the middle",
            &format!(
                "all ended, the last after {slowest:.1} s with a deadline of {} s; meanwhile p99 of health {health} ms, of readiness {ready} ms, of a list {list} ms, none refused",
                DEADLINE.as_secs()
            ),
        );
    })
    .await;
}

/// Sends headers, and the body after a while; returns the answer's head.
async fn post_in_two(stream: &mut TcpStream, path: &str, body: &[u8]) -> String {
    let head = format!("POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n", body.len());
    stream.write_all(head.as_bytes()).await.expect("sent");
    // Long enough for an answer that does not wait for the body.
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
            assert!(read > 0, "closed without an answer");
            continue;
        };
        let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
        if read == 0 || length.is_some_and(|length| length.parse() == Ok(rest.len())) {
            return head.to_owned();
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_is_refused_can_go_on_with_the_connection_or_is_told_that_it_ends() {
    with_database(async |options| {
        let process = Setting::new(&options).start(&["serve"]);
        let mut stream = TcpStream::connect(process.public.trim_start_matches("http://")).await.expect("connected");
        for _ in 0..3 {
            let head = post_in_two(&mut stream, "/api/auth/predictions", b"{\"event_id\": 1}").await;
            assert!(head.starts_with("http/1.1 401 ") && !head.contains("connection: close"), "{head}");
        }
        // More than anybody reads is not waited for.
        let head = post_in_two(&mut stream, "/api/auth/predictions", &vec![b' '; 100_000]).await;
        assert!(head.starts_with("http/1.1 401 ") && head.contains("connection: close"), "{head}");
        held(
            "hostile",
            "Requests that are refused before their body came",
            "the connection goes on with the next request; where the body is larger than anybody reads, the answer says that the connection ends",
        );
    })
    .await;
}
