//! Hostile traffic: the service stays available to others under malformed input and under any number of clients.

#[path = "../stage/mod.rs"]
mod stage;

mod bytes;
mod flood;
mod slow;
mod smuggling;
mod strings;

pub(crate) use stage::{client, process, proof};

use std::time::{Duration, Instant};

/// Percentile of the times, in milliseconds with one decimal.
pub(crate) fn percentile(times: &mut [Duration], percent: usize) -> f64 {
    assert!(!times.is_empty(), "nothing was measured");
    times.sort_unstable();
    let place = (times.len() * percent / 100).min(times.len() - 1);
    (times[place].as_secs_f64() * 10_000.0).round() / 10.0
}

/// Sends GET requests one after another until the given time, expecting this status; returns the duration of each.
pub(crate) async fn measure_until(url: String, token: String, status: u16, until: Instant) -> Vec<Duration> {
    let web = reqwest::Client::builder().timeout(Duration::from_secs(10)).build().expect("a client");
    let mut times = Vec::new();
    while Instant::now() < until {
        let began = Instant::now();
        let answer = web.get(&url).bearer_auth(&token).send().await.unwrap_or_else(|error| panic!("{url}: {error:?}"));
        assert_eq!(answer.status(), status, "{url}");
        answer.bytes().await.expect("a complete response");
        times.push(began.elapsed());
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    times
}
