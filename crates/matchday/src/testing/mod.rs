//! What tests stand on: an application with a fresh database each, a clock that is moved by hand, and builders that
//! read like sentences.

#![expect(clippy::missing_panics_doc, reason = "a test that cannot have what it needs panics; that is its way to fail")]

mod app;
mod fixtures;
mod log;
mod receiver;

use std::{
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use redis::aio::ConnectionManager;
use sha2::{Digest as _, Sha256};
use time::OffsetDateTime;

pub use app::{Answer, TestApp, TestUser, as_service, with_database};
pub use fixtures::{MatchBuilder, TestFixtures};
pub use log::LogCapture;
pub use receiver::{Received, Receiver, Reply};

use crate::platform::{
    clock::Clock,
    config::{Config, Redis},
    random::Random,
    stream::Streams,
};

/// A clock that stands still until it is moved.
#[derive(Debug)]
pub struct MockClock(Mutex<OffsetDateTime>);

impl MockClock {
    /// A clock that shows this moment.
    pub fn at(moment: OffsetDateTime) -> Self {
        Self(Mutex::new(moment))
    }

    /// Lets time pass.
    pub fn advance(&self, by: time::Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for MockClock {
    fn now(&self) -> OffsetDateTime {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Bytes that look random and are the same in every run.
#[derive(Debug)]
pub struct SeededRandom {
    seed: u64,
    drawn: AtomicU64,
}

impl SeededRandom {
    /// A sequence of its own for each seed.
    pub fn new(seed: u64) -> Self {
        Self { seed, drawn: AtomicU64::new(0) }
    }
}

impl Random for SeededRandom {
    fn fill(&self, buffer: &mut [u8]) {
        for chunk in buffer.chunks_mut(32) {
            let drawn = self.drawn.fetch_add(1, Ordering::Relaxed);
            let block = Sha256::digest([self.seed.to_be_bytes(), drawn.to_be_bytes()].concat());
            chunk.copy_from_slice(&block[..chunk.len()]);
        }
    }
}

/// The configuration of the development parts, from the environment that `dev/up` writes, changed as tests need it.
pub fn test_config(changes: &[(&str, &str)]) -> Config {
    let ours = [
        ("MATCHDAY_ENV", "testing"),
        ("MATCHDAY_HTTP__LISTEN", "127.0.0.1:0"),
        ("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0"),
        ("MATCHDAY_CONSOLE__LISTEN", "127.0.0.1:0"),
        ("MATCHDAY_HTTP__TRUSTED_PROXIES", "127.0.0.0/8"),
    ];
    let mut variables: std::collections::BTreeMap<String, String> = std::env::vars().collect();
    variables.extend(ours.iter().chain(changes).map(|&(name, value)| (name.to_owned(), value.to_owned())));
    match Config::parse(variables, None) {
        Ok(loaded) => loaded.config,
        Err(faults) => panic!("run dev/up and source .dev/env first:\n{faults}"),
    }
}

/// A name that no other test has.
pub fn unique(stem: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Seconds first, so that leftovers of aborted runs can be told by age.
    #[expect(
        clippy::disallowed_methods,
        reason = "names of databases are told by their real age, whatever a test's clock shows"
    )]
    let seconds = OffsetDateTime::now_utc().unix_timestamp();
    format!("{stem}_{seconds}_{}_{number}", std::process::id())
}

/// The real Redis, under a prefix of the test's own.
pub fn redis_for_tests() -> (ConnectionManager, String) {
    let config = test_config(&[]);
    let redis = crate::app::redis(&config.redis).expect("a valid URL");
    (redis, unique("test"))
}

/// A Redis that is not there.
pub fn unreachable_redis() -> ConnectionManager {
    let config = test_config(&[("MATCHDAY_REDIS__URL", "redis://127.0.0.1:1"), ("MATCHDAY_REDIS__TIMEOUT", "200ms")]);
    let redis: &Redis = &config.redis;
    crate::app::redis(redis).expect("a valid URL")
}

/// The real NATS, with streams of the test's own. Call [`Streams::remove`] at the end.
pub async fn streams_for_tests() -> Streams {
    let config = test_config(&[("MATCHDAY_NATS__PREFIX", &unique("test"))]);
    let streams = Streams::connect(&config.nats).await.expect("NATS");
    streams.ensure().await.expect("streams");
    streams
}

/// Waits until something holds, for what happens in the background.
pub async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// The rows of a table in one of the documents, without its head, in cells: the first table after a line that begins so.
pub fn table_in(document: &str, before: &str) -> Vec<Vec<String>> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let path = std::path::Path::new(&package).join("../../docs").join(document);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    let rows: Vec<Vec<String>> = text
        .lines()
        .skip_while(|line| !line.starts_with(before))
        .skip_while(|line| !line.starts_with('|'))
        .take_while(|line| line.starts_with('|'))
        .skip(2)
        .map(|line| line.trim_matches('|').split('|').map(|cell| cell.trim().to_owned()).collect())
        .collect();
    assert!(!rows.is_empty(), "there is no table after {before}");
    rows
}

/// A number as people write it.
pub fn number_in(cell: &str) -> i64 {
    cell.replace('\u{2212}', "-").trim_start_matches('+').parse().unwrap_or_else(|_| panic!("no number: {cell}"))
}
