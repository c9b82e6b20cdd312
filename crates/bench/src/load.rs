//! Load generator: many connections in this process.
//!
//! **Latency without coordinated omission.** A client that waits for a slow response before it sends the next request
//! sends nothing while the service is slow, and so underreports the delay. When a scenario measures latency, requests
//! follow a schedule: each is due at a fixed time, regardless of earlier requests, and its latency counts from that
//! time. Only the lateness of the timer itself (at most a millisecond, on an idle connection) is excluded, because the
//! service does not cause it.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::{Context as _, bail};
use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};
use tokio::task::JoinSet;

use crate::wire::{Connection, Protocol};

/// Latencies are stored in tenths of a microsecond: Redis responds in about thirty of these units.
const UNITS_A_MILLISECOND: f64 = 10_000.0;
/// Ten minutes, longer than any request takes.
const LONGEST: u64 = 6_000_000_000;

/// Writes the request with this number into the buffer.
pub(crate) type Requests = Arc<dyn Fn(u64, &mut Vec<u8>) + Send + Sync>;

/// Destination and content of the requests.
#[derive(Clone)]
pub(crate) struct Target {
    pub(crate) address: SocketAddr,
    pub(crate) protocol: Protocol,
    pub(crate) requests: Requests,
    /// Number of consecutive requests that count as one unit.
    pub(crate) requests_a_unit: u64,
}

/// Size and duration of a load.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) connections: usize,
    pub(crate) length: Duration,
    /// Scheduled units per second, or `None` for the maximum.
    pub(crate) rate: Option<f64>,
}

pub(crate) struct Measured {
    /// Completed units per second.
    pub(crate) rate: f64,
    pub(crate) latency: Latency,
}

/// Serialised as pairs of value and count, so that histograms of several machines can be merged.
#[derive(Clone, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub(crate) struct Latency(Histogram<u64>);

impl From<Vec<(u64, u64)>> for Latency {
    fn from(recorded: Vec<(u64, u64)>) -> Self {
        let mut latency = Self::default();
        for (value, count) in recorded {
            latency.0.saturating_record_n(value, count);
        }
        latency
    }
}

impl From<Latency> for Vec<(u64, u64)> {
    fn from(latency: Latency) -> Self {
        latency.0.iter_recorded().map(|step| (step.value_iterated_to(), step.count_at_value())).collect()
    }
}

impl Default for Latency {
    fn default() -> Self {
        Self(Histogram::new_with_bounds(1, LONGEST, 3).expect("valid bounds"))
    }
}

impl Latency {
    pub(crate) fn record(&mut self, latency: Duration) {
        self.0.saturating_record(u64::try_from(latency.as_nanos() / 100).unwrap_or(LONGEST));
    }

    pub(crate) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("the same bounds");
    }

    /// Latency at this quantile, in milliseconds.
    #[expect(clippy::cast_precision_loss, reason = "far fewer units than a float has digits")]
    pub(crate) fn quantile(&self, share: f64) -> f64 {
        self.0.value_at_quantile(share) as f64 / UNITS_A_MILLISECOND
    }
}

/// Runs a load to its end. Any response that is not a success, and any broken connection, is an error: a rate of
/// refused requests would be meaningless.
pub(crate) async fn run(target: &Target, load: Load, numbers: &Arc<AtomicU64>) -> anyhow::Result<Measured> {
    let mut connections = Vec::with_capacity(load.connections);
    for _ in 0..load.connections {
        let connection = Connection::open(target.address).await;
        connections.push(connection.with_context(|| format!("connecting to {}", target.address))?);
    }
    let (began, places) = (Instant::now(), Arc::new(AtomicU64::new(0)));
    let mut tasks = JoinSet::new();
    for connection in connections {
        let (target, numbers, places) = (target.clone(), Arc::clone(numbers), Arc::clone(&places));
        tasks.spawn(async move { one_connection(connection, &target, load, began, (&numbers, &places)).await });
    }
    let (mut latency, mut answered) = (Latency::default(), 0_u32);
    while let Some(done) = tasks.join_next().await {
        let latencies = done.context("a connection's task")??;
        answered += u32::try_from(latencies.len()).unwrap_or(u32::MAX);
        for units in latencies {
            latency.record(Duration::from_nanos(u64::from(units) * 100));
        }
    }
    Ok(Measured { rate: f64::from(answered) / began.elapsed().as_secs_f64(), latency })
}

/// Sends requests on one connection; returns the latency of each unit.
async fn one_connection(
    mut connection: Connection,
    target: &Target,
    load: Load,
    began: Instant,
    (numbers, places): (&AtomicU64, &AtomicU64),
) -> anyhow::Result<Vec<u32>> {
    let (mut latencies, mut request) = (Vec::new(), Vec::with_capacity(512));
    loop {
        let counted_from = match load.rate {
            None => Instant::now(),
            Some(rate) => {
                #[expect(clippy::cast_precision_loss, reason = "a load has no more than some millions of requests")]
                let due = began + Duration::from_secs_f64(places.fetch_add(1, Relaxed) as f64 / rate);
                if due.duration_since(began) < load.length && due > Instant::now() {
                    tokio::time::sleep_until(due.into()).await;
                    Instant::now()
                } else {
                    due
                }
            }
        };
        if counted_from.duration_since(began) >= load.length {
            return Ok(latencies);
        }
        let first = numbers.fetch_add(target.requests_a_unit, Relaxed);
        for number in first..first + target.requests_a_unit {
            (target.requests)(number, &mut request);
            let status = connection.exchange(target.protocol, &request).await?;
            if !matches!(status, 200..=299) {
                let (sent, received) = (String::from_utf8_lossy(&request), String::from_utf8_lossy(connection.body()));
                bail!("{status} for {sent}: {received}");
            }
        }
        latencies.push(u32::try_from(counted_from.elapsed().as_nanos() / 100).unwrap_or(u32::MAX));
    }
}

#[cfg(test)]
mod tests {
    use tokio::{
        io::{AsyncReadExt as _, AsyncWriteExt as _},
        net::TcpListener,
    };

    use super::*;

    /// The server stalls once, for half a second.
    #[tokio::test(flavor = "multi_thread")]
    async fn stall_delays_every_request_due_during_it() {
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let address = listener.local_addr().expect("an address");
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.expect("a client");
            let (mut buffer, mut answered) = ([0; 1024], 0);
            while stream.read(&mut buffer).await.is_ok_and(|read| read > 0) {
                answered += 1;
                if answered == 20 {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                stream.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.expect("sent");
            }
        });
        let requests: Requests = Arc::new(|_, into| crate::wire::write_http(into, "GET", "/", "", ""));
        let target = Target { address, protocol: Protocol::Http, requests, requests_a_unit: 1 };
        let load = Load { connections: 1, length: Duration::from_secs(1), rate: Some(100.0) };
        let measured = run(&target, load, &Arc::default()).await.expect("answered");
        // Fifty of the hundred requests were due during the stall and waited 250 ms on average. Without the schedule
        // only one would have shown it.
        assert!(measured.latency.quantile(0.75) > 50.0, "{}", measured.latency.quantile(0.75));
        assert!(measured.latency.quantile(1.0) >= 490.0, "{}", measured.latency.quantile(1.0));
    }
}
