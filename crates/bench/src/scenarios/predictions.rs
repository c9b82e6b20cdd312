//! Predicting: everybody in the last minutes, and one alone. Beside pgbench with the same upsert, one row a transaction.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use sqlx::PgPool;

use super::{OPEN, Side, easy_rate, http, latencies, prepare, quantiles};
use crate::{
    load::{self, Latency, Load, Target},
    outcome::{Goal, Latencies, Outcome},
    parts::{
        Stage, people,
        pgbench::{self, Pgbench},
        service::{Service, Setting},
    },
    wire::write_http,
};

/// Distinct users of one round: more than are through in five seconds, or second words would be measured.
const USERS: u64 = 250_000;
/// As many as a busy process may have open to one balancer.
const CONNECTIONS: usize = 256;
const CLIENTS: usize = 32;

/// The same table, the same columns; neither revisions nor tallies.
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

/// Writes the prediction of the user whose turn it is, for the match that is on.
fn predicting(service: &Service, tokens: &Arc<Vec<String>>, event: &Arc<AtomicU64>) -> Target {
    let (tokens, event) = (Arc::clone(tokens), Arc::clone(event));
    http(service.public, move |number, into| {
        let user = usize::try_from(number).unwrap_or_default() % tokens.len();
        let pick = ["home", "draw", "away"][user % 3];
        let body =
            format!(r#"{{"event_id":{},"prediction":"{pick}","confidence":{}}}"#, event.load(Relaxed), user % 101);
        write_http(into, "POST", "/api/auth/predictions", &tokens[user], &body);
    })
}

/// A request that does nothing but have its token checked and be answered: the page is in memory.
fn empty(service: &Service, tokens: &Arc<Vec<String>>) -> Target {
    let tokens = Arc::clone(tokens);
    http(service.public, move |number, into| {
        let user = usize::try_from(number).unwrap_or_default() % tokens.len();
        write_http(into, "GET", "/api/auth/events?per_page=20", &tokens[user], "");
    })
}

async fn set_up(
    stage: &Stage,
    name: &str,
    users: u64,
    matches: usize,
) -> anyhow::Result<(Setting, PgPool, Arc<Vec<String>>)> {
    // Sessions of everybody who opened the app in the last minutes are known to a process of the size of this test.
    let setting = Setting::on(name).with("MATCHDAY_SESSIONS__CACHE_ENTRIES", "500000");
    prepare(stage, &setting, name, &vec![OPEN; matches]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("{users} users with a session each"));
    people::make(&pool, users, users).await?;
    sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
    Ok((setting, pool, Arc::new((1..=users).map(people::token).collect())))
}

/// How many predictions a match has.
async fn predictions_of(pool: &PgPool, event: u64) -> anyhow::Result<f64> {
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
    let (ours, warming) = (predicting(&service, &tokens, &event), empty(&service, &tokens));
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
                    // Everybody once, from the first: distinct users.
                    let (numbers, mut target) = (Arc::new(AtomicU64::new(0)), ours.clone());
                    if cold {
                        // A process that has just started knows nobody.
                        let fresh = stage.serve(&setting, &["--no-workers"]).await?;
                        target = predicting(&fresh, &tokens, &event);
                        service_now = Some(fresh);
                    } else {
                        know(stage, &warming).await?;
                    }
                    let measured = load::run(&target, load, &numbers).await?;
                    // What counts is what is in the table.
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
            know(stage, &warming).await?;
            let numbers = Arc::default();
            let sides = ((Side::Requests(&ours, &numbers), CONNECTIONS), (Side::Pgbench(&pgbench), CLIENTS));
            outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
        }
        let tokens = if cold { "tokens looked up in the database" } else { "tokens known" };
        outcomes.push(Outcome {
            what: format!("Predictions of distinct users for one match, with revisions and tallies, {CONNECTIONS} connections, {tokens}"),
            beside: format!("pgbench, the same upsert a row at a time, {CLIENTS} clients"),
            goal: (!cold).then_some(Goal::AtLeast(2.0)),
            limit: cores,
            ..outcome
        });
    }
    stage.postgres.forget(name).await?;
    Ok(outcomes)
}

/// Lets the process know everybody's token, as after they opened the app.
async fn know(stage: &Stage, warming: &Target) -> anyhow::Result<()> {
    stage.say("everybody opens the app");
    let (numbers, step) = (Arc::new(AtomicU64::new(0)), Duration::from_secs(1));
    while numbers.load(Relaxed) < USERS {
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
    let (ours, nothing) = (predicting(&service, &tokens, &event), empty(&service, &tokens));
    // One at a time and by timetable: none is due before the one before it is long done.
    let load = Load { connections: 1, length: stage.length, rate: Some(400.0) };
    let (mut of_ours, mut of_bare, mut of_nothing) = (Latency::default(), Latency::default(), Latency::default());
    let numbers = Arc::default();
    stage.say("tokens become known");
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
        beside: "pgbench with one client, p50, and the p50 of a request that does nothing".to_owned(),
        unit: "ms".to_owned(),
        goal: Some(Goal::AtMost(1.5)),
        limit: format!(
            "the bare row takes {:.3} ms, the request that does nothing {:.3} ms; {cores}",
            of_bare.quantile(0.5),
            of_nothing.quantile(0.5)
        ),
        latency: Some(Latencies { rate: 400.0, ours: quantiles(&of_ours), bare: Some(quantiles(&of_bare)) }),
        ..Outcome::of("predict-lone", rounds)
    }])
}
