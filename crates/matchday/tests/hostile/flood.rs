//! More connections and requests than the process has capacity for: admitted requests are served in time, the others
//! are refused immediately, and operators can still reach the process.

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

use crate::{measure_until, percentile, process::Setting, proof::held};

/// Requests that the process handles at the same time (`http.max_in_flight`).
const SLOTS: usize = 16;
/// Clients that send requests continuously.
const CLIENTS: usize = 200;

/// Status and duration of a request, and whether the response has `Retry-After`.
struct Sent {
    status: u16,
    took: Duration,
    has_retry_after: bool,
}

async fn send(stream: &mut TcpStream, request: &[u8]) -> Sent {
    let began = Instant::now();
    stream.write_all(request).await.expect("sent");
    let (mut answer, mut buffer) = (Vec::new(), [0; 8_192]);
    loop {
        let read = stream.read(&mut buffer).await.expect("a response");
        assert!(read > 0, "the connection was closed in the middle of {}", String::from_utf8_lossy(&answer));
        answer.extend_from_slice(&buffer[..read]);
        let Some(end) = answer.windows(4).position(|part| part == b"\r\n\r\n") else { continue };
        let head = String::from_utf8_lossy(&answer[..end]).to_ascii_lowercase();
        let length = head.split("content-length: ").nth(1).and_then(|rest| rest.lines().next()?.trim().parse().ok());
        if answer.len() >= end + 4 + length.unwrap_or(0_usize) {
            let status = head.get(9..12).and_then(|status| status.parse().ok()).expect("a status");
            return Sent { status, took: began.elapsed(), has_retry_after: head.contains("\r\nretry-after: ") };
        }
    }
}

async fn send_continuously(address: String, request: Arc<Vec<u8>>, until: Instant) -> Vec<Sent> {
    let mut stream = TcpStream::connect(&address).await.expect("connected");
    let mut all = Vec::new();
    while Instant::now() < until {
        all.push(send(&mut stream, &request).await);
        // Retry immediately regardless of `Retry-After`, apart from a short pause.
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    all
}

async fn flood(idle: usize) {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_HTTP__MAX_IN_FLIGHT", &SLOTS.to_string());
        let process = setting.start(&["serve"]);
        let token = setting.expect(&["sessions", "issue"], "");
        let address = process.public.trim_start_matches("http://").to_owned();

        // Connect 200 at a time: the kernel's accept queue is finite.
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
        // The kernel accepts connections before the process does.
        let wanted = f64::from(u32::try_from(idle).expect("few"));
        eventually("all connections are accepted", async || process.counted("matchday_http_connections").await >= wanted).await;

        // This endpoint queries the database every time, so each request occupies its slot for a while.
        let request =
            Arc::new(format!("GET /api/auth/coins HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer {token}\r\n\r\n").into_bytes());
        let until = Instant::now() + Duration::from_secs(6);
        let clients: Vec<_> =
            (0..CLIENTS).map(|_| tokio::spawn(send_continuously(address.clone(), Arc::clone(&request), until))).collect();
        let watch = |base: &str, path: &str| measure_until(format!("{base}{path}"), String::new(), 200, until);
        let (mut health, mut private, mut ready, mut metrics) = tokio::join!(
            watch(&process.public, "/healthz"),
            watch(&process.private, "/healthz"),
            watch(&process.private, "/readyz"),
            watch(&process.private, "/metrics"),
        );
        let (mut admitted, mut refused) = (Vec::new(), Vec::new());
        for client in clients {
            for sent in client.await.expect("a finished client") {
                match sent.status {
                    200 => admitted.push(sent.took),
                    503 => {
                        assert!(sent.has_retry_after, "a 503 must have Retry-After");
                        refused.push(sent.took);
                    }
                    other => panic!("unexpected status {other}"),
                }
            }
        }
        assert!(refused.len() > 100, "only {} were refused: not enough load", refused.len());
        assert!(admitted.len() > 100, "only {} were admitted", admitted.len());
        let (good, p99) = (admitted.len(), percentile(&mut admitted, 99));
        let (bad, refusal_p50, refusal_p99) = (refused.len(), percentile(&mut refused, 50), percentile(&mut refused, 99));
        let watched = [&mut health, &mut private, &mut ready, &mut metrics].map(|times| percentile(times, 99));
        assert!(p99 < 3_000.0, "admitted requests waited {p99} ms");
        assert!(refusal_p99 < 3_000.0, "refused requests waited {refusal_p99} ms");
        assert!(watched.iter().all(|&time| time < 3_000.0), "health, readiness and metrics took {watched:?} ms");
        let [health, private, ready, metrics] = watched;
        held(&format!("{idle} idle connections, and {CLIENTS} clients competing for {SLOTS} request slots"),
            &format!(
                "connected in {:.1} s; {good} requests admitted with p99 {p99} ms, {bad} refused with 503 and Retry-After (p50 {refusal_p50} ms, p99 {refusal_p99} ms); p99 of /healthz {health} ms, on the private listener /healthz {private} ms, /readyz {ready} ms, /metrics {metrics} ms",
                connected.as_secs_f64()
            ),
        );
        drop(held_open);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn flood_with_a_thousand_idle_connections_is_shed() {
    flood(1_000).await;
}

/// Needs `ulimit -n 12000`; `just hostile` runs it.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: holds ten thousand connections"]
async fn flood_with_ten_thousand_idle_connections_is_shed() {
    flood(10_000).await;
}
