//! Token lookups per request, with eight processes behind a round-robin balancer.
//!
//! A process looks up a token when it is not in its cache. A user with *r* requests a second and *n* processes visits
//! each process every *n / r* seconds, so the share of requests with a lookup is about 1 ÷ (1 + *r* × `cache_for` ÷ *n*).
//! It depends only on the number of requests of a user during `cache_for`, so the scenario runs faster than reality: it
//! shortens `cache_for` and raises the rate by the same factor.

use std::{
    sync::{Arc, atomic::AtomicU64},
    time::{Duration, Instant},
};

use anyhow::ensure;
use futures_util::future::try_join_all;

use super::{OPEN, http, prepare};
use crate::{
    environment::{
        Stage, people,
        service::{Service, Setting},
    },
    load::{self, Load, Target},
    outcome::{Goal, Outcome},
    wire::{Connection, Protocol, write_http},
};

const PROCESSES: u32 = 8;
const USERS: u32 = 20_000;
/// Requests of a user during `sessions.cache_for`: 0.03 a second, as docs/capacity.md assumes, for two hours.
const REQUESTS_OF_USER: u32 = 216;
/// `sessions.cache_for` in this scenario: a thirtieth of the default.
const CACHE_FOR: Duration = Duration::from_mins(4);
const CONNECTIONS_PER_PROCESS: usize = 4;
const PATH: &str = "/api/auth/events?per_page=20";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_session_lookups";
    let setting = Setting::on(name).with("MATCHDAY_SESSIONS__CACHE_FOR", &format!("{}s", CACHE_FOR.as_secs()));
    prepare(stage, &setting, name, &[OPEN; 20]).await?;
    people::make(&stage.postgres.pool(name).await?, USERS.into(), USERS.into()).await?;
    let tokens: Arc<[String]> = (1..=USERS).map(|user| people::token(user.into())).collect();
    // Only the first process has workers. Its relay sends the pulses that all processes need.
    let mut processes = vec![Process::new(stage.serve(&setting, &[]).await?, &tokens, 0)];
    for place in 1..PROCESSES {
        processes.push(Process::new(stage.serve(&setting, &["--no-workers"]).await?, &tokens, place));
    }
    stage.say(format!("{USERS} users visit {PROCESSES} processes, spread over {} s", CACHE_FOR.as_secs()));
    try_join_all(processes.iter().map(|process| process.fill_cache(&tokens))).await?;
    let rate = f64::from(REQUESTS_OF_USER) * f64::from(USERS) / CACHE_FOR.as_secs_f64();
    stage.say(format!("waiting for a steady state at {rate:.0} requests a second"));
    send_requests(&processes, rate, CACHE_FOR / 8).await?;
    let mut rounds = Vec::new();
    for round in 0..stage.rounds {
        let before = lookups(&processes).await?;
        let (sent, seconds) = send_requests(&processes, rate, stage.length).await?;
        let looked_up = (lookups(&processes).await? - before) / seconds;
        stage.say(format!("round {} of {}: {looked_up:.0} lookups, {sent:.0} requests", round + 1, stage.rounds));
        rounds.push([looked_up, sent]);
    }
    drop(processes);
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    let expected = 1.0 / (1.0 + f64::from(REQUESTS_OF_USER) / f64::from(PROCESSES));
    Ok(vec![Outcome {
        what: format!(
            "Token lookups, {PROCESSES} processes round robin, {USERS} users with {REQUESTS_OF_USER} requests each \
             during `sessions.cache_for`"
        ),
        beside: "requests of the same run".to_owned(),
        size: Some(USERS.into()),
        goal: Some(Goal::AtMost(0.05)),
        limit: format!("computed: 1 ÷ (1 + {REQUESTS_OF_USER} ÷ {PROCESSES}) = {expected:.3} lookups per request"),
        ..Outcome::of("session-lookups", rounds)
    }])
}

/// One of the processes, with the requests that the balancer sends to it.
struct Process {
    service: Service,
    place: u32,
    target: Target,
    numbers: Arc<AtomicU64>,
}

impl Process {
    fn new(service: Service, tokens: &Arc<[String]>, place: u32) -> Self {
        let tokens = Arc::clone(tokens);
        let target = http(service.public, move |number, into| {
            let user = arbitrary(number) % u64::from(USERS);
            write_http(into, "GET", PATH, &tokens[usize::try_from(user).unwrap_or_default()], "");
        });
        // Requests continue with the next number in each round, and differ from those to other processes.
        Self { service, place, target, numbers: Arc::new(AtomicU64::new(u64::from(place) << 40)) }
    }

    /// Sends one request of each user, evenly over `CACHE_FOR`. Afterwards the tokens in the cache have all ages, as in
    /// a process that runs for long.
    async fn fill_cache(&self, tokens: &[String]) -> anyhow::Result<()> {
        let (mut connection, mut request) = (Connection::open(self.service.public).await?, Vec::new());
        let (began, pause) = (Instant::now(), CACHE_FOR / USERS);
        for number in 0..USERS {
            tokio::time::sleep_until((began + pause * number).into()).await;
            // Each process starts with another user.
            let user = usize::try_from((number + self.place * (USERS / PROCESSES)) % USERS)?;
            write_http(&mut request, "GET", PATH, &tokens[user], "");
            let status = connection.exchange(Protocol::Http, &request).await?;
            ensure!(status == 200, "{status} for the first request of a user");
        }
        Ok(())
    }
}

/// Sends requests to all processes. Returns their rate and the duration in seconds.
async fn send_requests(processes: &[Process], rate: f64, length: Duration) -> anyhow::Result<(f64, f64)> {
    let (began, rate) = (Instant::now(), Some(rate / f64::from(PROCESSES)));
    let load = Load { connections: CONNECTIONS_PER_PROCESS, length, rate };
    let loads = processes.iter().map(|process| load::run(&process.target, load, &process.numbers));
    let sent = try_join_all(loads).await?.iter().map(|measured| measured.rate).sum();
    Ok((sent, began.elapsed().as_secs_f64()))
}

/// Number of token lookups of all processes so far.
async fn lookups(processes: &[Process]) -> anyhow::Result<f64> {
    let counts = processes.iter().map(|process| process.service.counted("matchday_session_lookups_total", ""));
    Ok(try_join_all(counts).await?.iter().sum())
}

/// The finalizer of `SplitMix64`.
fn arbitrary(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}
