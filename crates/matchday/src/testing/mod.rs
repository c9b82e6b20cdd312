//! Test helpers: an application with its own database, and builders for matches.

#![expect(clippy::missing_panics_doc, reason = "a test that lacks a dependency fails by a panic")]

mod app;
mod fixtures;

pub use platform::testing::{
    LogCapture, MockClock, Received, Receiver, Reply, SeededRandom, as_service, cluster_is_available, eventually,
    redis_for_tests, streams_for_tests, unique, unreachable_redis, with_database, with_plain_database,
};

pub use self::{
    app::{Answer, TestApp, TestUser},
    fixtures::{MatchBuilder, TestFixtures},
};
use crate::config::Config;

/// A PNG with one red pixel.
pub const TINY_PNG: &[u8] = include_bytes!("tiny.png");

/// Configuration for the development dependencies, from the environment that `dev/up` writes, with these changes.
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

/// Cells of a Markdown table in `docs`, without its header: the first table after a line that starts with `before`.
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
    assert!(!rows.is_empty(), "no table after {before}");
    rows
}

/// Parses a number with a typographic minus or a leading plus.
pub fn number_in(cell: &str) -> i64 {
    cell.replace('\u{2212}', "-").trim_start_matches('+').parse().unwrap_or_else(|_| panic!("not a number: {cell}"))
}
