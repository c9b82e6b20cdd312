//! Scenarios, one file each.

mod announcements;
mod answers;
mod backend_coins;
mod deduct;
mod devices;
mod events_list;
mod facts;
mod follows;
mod history;
mod idle;
mod idle_processes;
mod join_storm;
mod leagues;
mod login;
mod pgbouncer;
mod points;
mod predictions;
mod rank;
mod read_replica;
mod room_stats;
mod rule_sets;
mod scores;
mod seal;
mod session_lookups;
mod spectators;
mod stream;

use std::{
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicU64},
    time::Duration,
};

use anyhow::Context as _;
use serde_json::json;
use sqlx::{AssertSqlSafe, Executor as _, PgPool};

pub(crate) use self::idle::memory;

use crate::{
    environment::{
        Stage, people,
        pgbench::{self, Pgbench},
        service::{Service, Setting},
        until,
    },
    load::{self, Latency, Load, Requests, Target},
    outcome::{Latencies, Outcome},
    wire::{Connection, Protocol, write_http},
};

/// Function that measures one scenario.
type Run = for<'a> fn(&'a Stage) -> Pin<Box<dyn Future<Output = anyhow::Result<Vec<Outcome>>> + 'a>>;

pub(crate) struct Scenario {
    pub(crate) name: &'static str,
    pub(crate) run: Run,
}

/// All scenarios, in the order of the report.
pub(crate) const ALL: [Scenario; 28] = [
    Scenario { name: "events-list", run: |stage| Box::pin(events_list::run(stage)) },
    Scenario { name: "predict-burst", run: |stage| Box::pin(predictions::burst(stage)) },
    Scenario { name: "predict-lone", run: |stage| Box::pin(predictions::lone(stage)) },
    Scenario { name: "answers", run: |stage| Box::pin(answers::run(stage)) },
    Scenario { name: "points", run: |stage| Box::pin(points::run(stage)) },
    Scenario { name: "rank", run: |stage| Box::pin(rank::run(stage)) },
    Scenario { name: "room-stats", run: |stage| Box::pin(room_stats::run(stage)) },
    Scenario { name: "deduct", run: |stage| Box::pin(deduct::run(stage)) },
    Scenario { name: "backend-coins", run: |stage| Box::pin(backend_coins::run(stage)) },
    Scenario { name: "login", run: |stage| Box::pin(login::run(stage)) },
    Scenario { name: "join-storm", run: |stage| Box::pin(join_storm::run(stage)) },
    Scenario { name: "spectators", run: |stage| Box::pin(spectators::run(stage)) },
    Scenario { name: "announcements", run: |stage| Box::pin(announcements::run(stage)) },
    Scenario { name: "session-lookups", run: |stage| Box::pin(session_lookups::run(stage)) },
    Scenario { name: "idle", run: |stage| Box::pin(idle::run(stage)) },
    Scenario { name: "idle-processes", run: |stage| Box::pin(idle_processes::run(stage)) },
    Scenario { name: "read-replica", run: |stage| Box::pin(read_replica::run(stage)) },
    Scenario { name: "pgbouncer", run: |stage| Box::pin(pgbouncer::run(stage)) },
    Scenario { name: "stream", run: |stage| Box::pin(stream::run(stage)) },
    Scenario { name: "scores", run: |stage| Box::pin(scores::run(stage)) },
    Scenario { name: "seal", run: |stage| Box::pin(seal::run(stage)) },
    Scenario { name: "rule-sets", run: |stage| Box::pin(rule_sets::run(stage)) },
    Scenario { name: "leagues", run: |stage| Box::pin(leagues::run(stage)) },
    Scenario { name: "devices", run: |stage| Box::pin(devices::run(stage)) },
    Scenario { name: "facts", run: |stage| Box::pin(facts::run(stage)) },
    Scenario { name: "follows", run: |stage| Box::pin(follows::run(stage)) },
    Scenario { name: "history", run: |stage| Box::pin(history::predictions(stage)) },
    Scenario { name: "history-ledger", run: |stage| Box::pin(history::ledger(stage)) },
];

/// State of a match in the fixture document.
#[derive(Clone, Copy, Debug)]
struct Match {
    status: &'static str,
    start: &'static str,
    score: Option<(u8, u8)>,
}

/// A match that is open for predictions.
const OPEN: Match = Match { status: "scheduled", start: "2090-05-01T15:00:00Z", score: None };

/// Fixture document of one tournament with these matches, in order: the first gets id 1.
fn document(matches: &[Match]) -> String {
    let matches = matches.iter().enumerate().map(|(index, one)| {
        json!({"key": format!("m{index}"), "home": "rovers", "away": "city", "venue": "Park", "start_time": one.start,
            "status": one.status, "home_score": one.score.map(|score| score.0), "away_score": one.score.map(|score| score.1)})
    });
    json!({
        "sport": {"slug": "football", "name": "Football"},
        "tournament": {"slug": "cup", "name": "Cup", "logo": null},
        "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
        "matches": matches.collect::<Vec<_>>(),
    })
    .to_string()
}

/// Creates a database with these matches.
async fn prepare(stage: &Stage, setting: &Setting, name: &str, matches: &[Match]) -> anyhow::Result<()> {
    stage.say("creating the database and importing matches");
    stage.forget_in_redis(name)?;
    stage.forget_in_nats(name).await?;
    stage.postgres.create(name).await?;
    stage.matchday(setting, &["migrate"], "")?;
    stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], &document(matches))?;
    Ok(())
}

/// Inserts predictions of all users for matches 1 to `matches`, with a statement for each. Inserting millions of rows is
/// faster without indexes.
async fn insert_predictions(
    stage: &Stage,
    pool: &PgPool,
    matches: usize,
    predict: impl Fn(usize) -> String,
) -> anyhow::Result<()> {
    pool.execute("alter table predictions drop constraint predictions_pkey").await?;
    pool.execute("drop index predictions_by_event").await?;
    for event in 1..=matches {
        stage.say(format!("inserting predictions of match {event} of {matches}"));
        pool.execute(AssertSqlSafe(predict(event))).await?;
    }
    stage.say("creating indexes");
    pool.execute("alter table predictions add primary key (user_id, event_id)").await?;
    pool.execute("create index predictions_by_event on predictions (event_id, user_id)").await?;
    pool.execute("vacuum analyze").await?;
    Ok(())
}

/// Requests the leaderboards to which results are published, until they are available.
async fn fill_leaderboards(stage: &Stage, service: &Service) -> anyhow::Result<()> {
    stage.say("filling the leaderboards");
    let token = people::token(1);
    for board in ["", "?period=month", "?period=week", "?tournament_id=1"] {
        wait_for(service, &format!("/api/auth/leaderboards{board}"), &token).await?;
    }
    Ok(())
}

/// Sends a request until it succeeds.
async fn wait_for(service: &Service, path: &str, token: &str) -> anyhow::Result<()> {
    until("the response is available", Duration::from_mins(5), async || {
        send(service.public, "GET", path, token, "").await.is_ok_and(|(status, _)| status == 200)
    })
    .await
}

/// Imports a document with the result of a match; returns the seconds until it was on all leaderboards.
async fn settle(stage: &Stage, setting: &Setting, pool: &PgPool, document: &str, event: usize) -> anyhow::Result<f64> {
    stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], document)?;
    until("the result is applied", Duration::from_mins(30), async || {
        let left = sqlx::query_scalar::<_, i64>("select count(*) from event_results where applied_at is null");
        left.fetch_one(pool).await.is_ok_and(|left| left == 0)
    })
    .await?;
    let took = "select extract(epoch from applied_at - recorded_at)::float8 from event_results where event_id = $1 \
                order by revision desc limit 1";
    Ok(sqlx::query_scalar(took).bind(i64::try_from(event)?).fetch_one(pool).await?)
}

/// Sends one request; returns status and body.
async fn send(
    address: std::net::SocketAddr,
    method: &str,
    path: &str,
    token: &str,
    body: &str,
) -> anyhow::Result<(u16, String)> {
    let mut connection = Connection::open(address).await?;
    let mut request = Vec::new();
    write_http(&mut request, method, path, token, body);
    let status = connection.exchange(Protocol::Http, &request).await.with_context(|| format!("{method} {path}"))?;
    Ok((status, String::from_utf8(connection.body().to_vec())?))
}

/// HTTP target whose requests are generated one by one.
fn http(address: std::net::SocketAddr, write: impl Fn(u64, &mut Vec<u8>) + Send + Sync + 'static) -> Target {
    let requests: Requests = Arc::new(write);
    Target { address, protocol: Protocol::Http, requests, requests_a_unit: 1 }
}

/// One side of a comparison.
enum Side<'a> {
    /// Requests from this process.
    Requests(&'a Target, &'a Arc<AtomicU64>),
    Pgbench(&'a Pgbench),
}

impl Side<'_> {
    async fn take(&self, load: Load) -> anyhow::Result<load::Measured> {
        match self {
            Self::Requests(target, numbers) => load::run(target, load, numbers).await,
            Self::Pgbench(pgbench) => pgbench::run(pgbench, load).await,
        }
    }
}

/// Latencies of both sides at the same rate, measured alternately.
async fn latencies(
    stage: &Stage,
    (ours, our_connections): (Side<'_>, usize),
    (bare, bare_connections): (Side<'_>, usize),
    rate: f64,
) -> anyhow::Result<Latencies> {
    let (mut of_ours, mut of_bare) = (Latency::default(), Latency::default());
    let length = stage.length.max(Duration::from_secs(2));
    for round in 0..stage.rounds {
        stage.say(format!("latency at {rate:.0} a second, round {} of {}", round + 1, stage.rounds));
        let load = |connections| Load { connections, length, rate: Some(rate) };
        of_ours.add(&ours.take(load(our_connections)).await?.latency);
        of_bare.add(&bare.take(load(bare_connections)).await?.latency);
    }
    Ok(Latencies { rate, ours: quantiles(&of_ours), bare: Some(quantiles(&of_bare)) })
}

/// p50, p99 and p99.9 in milliseconds.
fn quantiles(latency: &Latency) -> [f64; 3] {
    [0.5, 0.99, 0.999].map(|share| latency.quantile(share))
}

/// A rate that both sides can sustain: half of the slower side's maximum.
fn easy_rate(outcome: &Outcome) -> f64 {
    (outcome.ours.min(outcome.bare) / 2.0).floor()
}
