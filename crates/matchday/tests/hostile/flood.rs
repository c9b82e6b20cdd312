//! More connections and more requests than there is room for: who is let in is served in time, the others hear at once
//! that they are not, and whoever looks after the process still reaches it.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use matchday::testing::{eventually, with_database};
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::Semaphore,
};

use crate::{ask_while, percentile, process::Setting, proof::held};

/// How many requests the process works on at once.
const PLACES: usize = 16;
/// How many clients ask for something all the time.
const CLIENTS: usize = 200;

/// One client with one connection; returns what it was answered, how fast, and what was wrong with it.
struct Asked {
    status: u16,
    took: Duration,
    may_return: bool,
}

async fn ask(stream: &mut TcpStream, request: &[u8]) -> Asked {
    let began = Instant::now();
    stream.write_all(request).await.expect("sent");
    let (mut answer, mut buffer) = (Vec::new(), [0; 8_192]);
    loop {
        let read = stream.read(&mut buffer).await.expect("an answer");
        assert!(read > 0, "the connection was closed in the middle of {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..read]);
        let Some(end) = answer.windows(4).position(|part| part == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
        if answer.len() >= end + 4 + length.unwrap_or(0_usize) {
            let status = head.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
            return Asked { status, took: began.elapsed(), may_return: head.contains("\r\nretry-after: ") };
        }
    }
}

async fn press(address: String, request: Arc<Vec<u8>>, until: Instant) -> Vec<Asked> {
    let mut stream = TcpStream::connect(&address).await.expect("connected");
    let mut all = Vec::new();
    while Instant::now() < until {
        all.push(ask(&mut stream, &request).await);
        // A client that asks again at once whatever it is told, but takes a moment to do so.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    all
}

async fn flood(idle: usize) {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_HTTP__MAX_IN_FLIGHT", &PLACES.to_string());
        let process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        let address = process.public.trim_start_matches("http://").to_owned();

        // Some at a time: the kernel's queue for new connections is finite.
        let (began, gate) = (Instant::now(), Arc::new(Semaphore::new(200)));
        let connections = (0..idle).map(|_| {
            let (address, gate) = (address.clone(), Arc::clone(&gate));
            tokio::spawn(async move {
                let _place = gate.acquire().await.expect("open");
                TcpStream::connect(&address).await.expect("connected")
            })
        });
        let mut held_open = Vec::new();
        for connection in connections.collect::<Vec<_>>() {
            held_open.push(connection.await.expect("connected"));
        }
        let connected = began.elapsed();
        // The kernel takes connections before the process does.
        let wanted = f64::from(u32::try_from(idle).expect("few"));
        eventually("all are accepted", async || process.counted("matchday_http_connections").await >= wanted).await;

        // It asks the database every time, and so holds its place for a while.
        let request =
            Arc::new(format!("GET /api/auth/coins HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n").into_bytes());
        let until = Instant::now() + Duration::from_secs(6);
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| tokio::spawn(press(address.clone(), Arc::clone(&request), until))).collect();
        let watch = |base: &str, path: &str| ask_while(format!("{base}{path}"), String::new(), 200, until);
        let (mut health, mut private, mut ready, mut metrics) = tokio::join!(
            watch(&process.public, "/healthz"),
            watch(&process.private, "/healthz"),
            watch(&process.private, "/readyz"),
            watch(&process.private, "/metrics"),
        );
        let (mut admitted, mut refused) = (Vec::new(), Vec::new());
        for client in clients {
            for asked in client.await.expect("it asked") {
                match asked.status {
                    200 => admitted.push(asked.took),
                    503 => {
                        assert!(asked.may_return, "a refusal says when to come again");
                        refused.push(asked.took);
                    }
                    other => panic!("answered {other}"),
                }
            }
        }
        assert!(refused.len() > 100, "only {} were refused: this was no flood", refused.len());
        assert!(admitted.len() > 100, "only {} were let in", admitted.len());
        let (good, p99) = (admitted.len(), percentile(&mut admitted, 99));
        let (bad, refusal_p50, refusal_p99) = (refused.len(), percentile(&mut refused, 50), percentile(&mut refused, 99));
        let watched = [&mut health, &mut private, &mut ready, &mut metrics].map(|times| percentile(times, 99));
        assert!(p99 < 3_000.0, "who was let in waited {p99} ms");
        assert!(refusal_p99 < 3_000.0, "who was refused waited {refusal_p99} ms");
        assert!(watched.iter().all(|&time| time < 3_000.0), "whoever looks after it waited {watched:?} ms");
        let [health, private, ready, metrics] = watched;
        held(
            "hostile",
            &format!("{idle} idle connections, and {CLIENTS} clients that press into {PLACES} places"),
            &format!(
                "connected in {:.1} s; {good} requests let in with p99 {p99} ms, {bad} refused with 503 and Retry-After (p50 {refusal_p50} ms, p99 {refusal_p99} ms); p99 of /healthz {health} ms, on the private listener /healthz {private} ms, /readyz {ready} ms, /metrics {metrics} ms",
                connected.as_secs_f64()
            ),
        );
        drop(held_open);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_thousand_idle_connections_and_a_flood_leave_the_process_within_reach() {
    flood(1_000).await;
}

/// Needs `ulimit -n 12000`; `just hostile` runs it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "it holds ten thousand connections"]
async fn ten_thousand_idle_connections_and_a_flood_leave_the_process_within_reach() {
    flood(10_000).await;
}
