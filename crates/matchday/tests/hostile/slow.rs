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
        let process = setting.with("MATCHDAY_SMS__TIMEOUT", "1s").start(&["serve"]);
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
