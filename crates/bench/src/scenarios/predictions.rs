//! Predictions: a burst by many users, and one at a time. Compared with pgbench doing the same upsert, one row per
//! transaction.

use std::{
    net::SocketAddr,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sqlx::PgPool;

use super::{OPEN, Side, easy_rate, http, latencies, prepare, quantiles};
use crate::{
    environment::{
        Stage, people,
        pgbench::{self, Pgbench},
        service::{Service, Setting},
    },
    load::{self, Latency, Load, Target},
    outcome::{Goal, Latencies, Outcome},
    wire::{write_http, write_post},
};

/// Distinct users per round: more than can predict in five seconds, because repeated predictions would be revisions.
const USERS: u64 = 250_000;
/// Typical number of connections from a balancer to a busy process.
pub(super) const CONNECTIONS: usize = 256;
pub(super) const CLIENTS: usize = 32;

/// The same table and columns, without revisions and tallies.
const UPSERT: &str = "\
\\set n :n + 1
\\set u :client_id * 7800 + :n
\\set c random(0, 100)
insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at) \
values (:u, :event, 'home', null, null, :c, 1, now(), now()) \
on conflict (user_id, event_id) do update set prediction = excluded.prediction, home_goals = excluded.home_goals, \
away_goals = excluded.away_goals, confidence = excluded.confidence, revision = predictions.revision + 1, \
updated_at = excluded.updated_at returning id, created_at;
";

/// Predictions of all users in turn, for the current match.
pub(super) fn predicting(address: SocketAddr, tokens: &Arc<Vec<String>>, event: &Arc<AtomicU64>) -> Target {
    let (tokens, event) = (Arc::clone(tokens), Arc::clone(event));
    http(address, move |number, into| {
        let user = usize::try_from(number).unwrap_or_default() % tokens.len();
        let pick = ["home", "draw", "away"][user % 3];
        let event = event.load(Relaxed);
        let body = format!(r#"{{"event_id":{event},"prediction":"{pick}","confidence":{}}}"#, user % 101);
        write_post(into, "/api/auth/predictions", &tokens[user], (event, number), &body);
    })
}

/// A minimal request: the service checks the token and responds from its cache.
pub(super) fn empty(service: &Service, tokens: &Arc<Vec<String>>) -> Target {
    let tokens = Arc::clone(tokens);
    http(service.public, move |number, into| {
        let user = usize::try_from(number).unwrap_or_default() % tokens.len();
        write_http(into, "GET", "/api/auth/events?per_page=20", &tokens[user], "");
    })
}

pub(super) async fn set_up(
    stage: &Stage,
    name: &str,
    users: u64,
    matches: usize,
) -> anyhow::Result<(Setting, PgPool, Arc<Vec<String>>)> {
    // Large enough for the sessions of all users, because active users are cached.
    let setting = Setting::on(name).with("MATCHDAY_SESSIONS__CACHE_ENTRIES", &(users * 2).max(500_000).to_string());
    prepare(stage, &setting, name, &vec![OPEN; matches]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {users} users with a session each"));
    people::make(&pool, users, users).await?;
    sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
    Ok((setting, pool, Arc::new((1..=users).map(people::token).collect())))
}

/// Number of predictions for a match.
pub(super) async fn predictions_of(pool: &PgPool, event: u64) -> anyhow::Result<f64> {
    let event = i64::try_from(event)?;
    let count: i64 =
        sqlx::query_scalar("select count(*) from predictions where event_id = $1").bind(event).fetch_one(pool).await?;
    #[expect(clippy::cast_precision_loss, reason = "less than a million")]
    let count = count as f64;
    Ok(count)
}

pub(super) async fn burst(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_burst";
    let matches = 4 * stage.rounds + 2;
    let (setting, pool, tokens) = set_up(stage, name, USERS, matches).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let mut pgbench = Pgbench::new(stage, name, UPSERT)?;
    pgbench.set("n", 0);

    let event = Arc::new(AtomicU64::new(0));
    let (ours, warming) = (predicting(service.public, &tokens, &event), empty(&service, &tokens));
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let mut outcomes = Vec::new();
    for cold in [false, true] {
        let mut service_now = None;
        let groups = stage.groups(&service);
        let (rounds, cores) = stage
            .alternate(
                &groups,
                async |_| {
                    event.fetch_add(1, Relaxed);
                    // Starts at the first user, so that all users are distinct.
                    let (numbers, mut target) = (Arc::new(AtomicU64::new(0)), ours.clone());
                    if cold {
                        // A new process has no cached sessions.
                        let fresh = stage.serve(&setting, &["--no-workers"]).await?;
                        target = predicting(fresh.public, &tokens, &event);
                        service_now = Some(fresh);
                    } else {
                        fill_cache(stage, &warming, USERS).await?;
                    }
                    let measured = load::run(&target, load, &numbers).await?;
                    // Only rows in the table count.
                    let there = predictions_of(&pool, event.load(Relaxed)).await?;
                    Ok(there.min(measured.rate * load.length.as_secs_f64()) / load.length.as_secs_f64())
                },
                async |_| {
                    pgbench.set("event", i64::try_from(event.fetch_add(1, Relaxed) + 1)?);
                    let load = Load { connections: CLIENTS, ..load };
                    Ok(pgbench::run(&pgbench, load).await?.rate)
                },
            )
            .await?;
        drop(service_now);
        let scenario = if cold { "predict-burst-cold" } else { "predict-burst" };
        let mut outcome = Outcome::of(scenario, rounds);
        if !cold {
            event.fetch_add(1, Relaxed);
            pgbench.set("event", i64::try_from(event.fetch_add(1, Relaxed) + 1)?);
            fill_cache(stage, &warming, USERS).await?;
            let numbers = Arc::default();
            let sides = ((Side::Requests(&ours, &numbers), CONNECTIONS), (Side::Pgbench(&pgbench), CLIENTS));
            outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
        }
        let tokens = if cold { "tokens looked up in the database" } else { "tokens cached" };
        outcomes.push(Outcome {
            what: format!("Predictions by distinct users for one match, with idempotency keys, revisions and tallies, {CONNECTIONS} connections, {tokens}"),
            beside: format!("pgbench, same upsert one row at a time, {CLIENTS} clients"),
            goal: Some(Goal::AtLeast(if cold { 1.3 } else { 2.0 })),
            limit: cores,
            ..outcome
        });
    }
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}

/// Fills the session cache, as if all users had opened the app.
pub(super) async fn fill_cache(stage: &Stage, warming: &Target, users: u64) -> anyhow::Result<()> {
    stage.say("filling the session cache");
    let (numbers, step) = (Arc::new(AtomicU64::new(0)), Duration::from_secs(1));
    while numbers.load(Relaxed) < users {
        load::run(warming, Load { connections: CONNECTIONS, length: step, rate: None }, &numbers).await?;
    }
    Ok(())
}

pub(super) async fn lone(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_lone";
    let users = 20_000;
    let (setting, _pool, tokens) = set_up(stage, name, users, 2 * stage.rounds + 2).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let mut pgbench = Pgbench::new(stage, name, UPSERT)?;
    pgbench.set("n", 0);
    let event = Arc::new(AtomicU64::new(0));
    let (ours, nothing) = (predicting(service.public, &tokens, &event), empty(&service, &tokens));
    // One at a time on a schedule: each request completes long before the next is due.
    let load = Load { connections: 1, length: stage.length, rate: Some(400.0) };
    let (mut of_ours, mut of_bare, mut of_nothing) = (Latency::default(), Latency::default(), Latency::default());
    let numbers = Arc::default();
    stage.say("filling the session cache");
    let all = Load { connections: 64, length: Duration::from_secs(1), rate: None };
    load::run(&nothing, all, &numbers).await?;
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |_| {
                event.fetch_add(1, Relaxed);
                let latency = load::run(&ours, load, &Arc::default()).await?.latency;
                of_ours.add(&latency);
                Ok(latency.quantile(0.5))
            },
            async |_| {
                pgbench.set("event", i64::try_from(event.fetch_add(1, Relaxed) + 1)?);
                let row = pgbench::run(&pgbench, load).await?.latency;
                let request = load::run(&nothing, load, &numbers).await?.latency;
                of_bare.add(&row);
                of_nothing.add(&request);
                Ok(row.quantile(0.5) + request.quantile(0.5))
            },
        )
        .await?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: "One prediction at a time, p50".to_owned(),
        beside: "p50 of pgbench with one client, plus p50 of a minimal request".to_owned(),
        unit: "ms".to_owned(),
        goal: Some(Goal::AtMost(1.5)),
        limit: format!(
            "the bare row takes {:.3} ms, the minimal request {:.3} ms; {cores}",
            of_bare.quantile(0.5),
            of_nothing.quantile(0.5)
        ),
        latency: Some(Latencies { rate: 400.0, ours: quantiles(&of_ours), bare: Some(quantiles(&of_bare)) }),
        ..Outcome::of("predict-lone", rounds)
    }])
}
