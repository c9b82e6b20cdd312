//! Sealing of a match with a million predictions: its duration and memory, compared with one statement that hashes and sorts
//! the same rows; and predictions of another match meanwhile, compared with those without sealing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Executor as _, PgPool};

use super::{
    Match, OPEN, document, memory,
    predictions::{CONNECTIONS, empty, fill_cache, predicting, set_up},
};
use crate::{
    environment::{Stage, service::Setting, until},
    load::{self, Load},
    outcome::{Goal, Outcome},
};

/// Predictions of the match that is sealed.
const PREDICTIONS: u64 = 1_000_000;

/// Users of the other match.
const USERS: u64 = 250_000;

const LIVE: Match = Match { status: "live", ..OPEN };

/// The same rows, hashed and sorted by the database.
const BARE: &str = "select count(leaf) from (
    select sha256('\\x0001'::bytea || uuid_send(s.pseudonym) || uuid_send(p.salt) || int8send(p.event_id)
                  || int8send((extract(epoch from p.updated_at) * 1000000)::bigint)) as leaf
    from predictions p join pseudonyms s on s.user_id = p.user_id and s.tournament_id = 1
    where p.event_id = 1 order by 1) l";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_seal";
    let matches = 2 * stage.rounds + 2;
    let (setting, pool, tokens) = set_up(stage, name, USERS, matches).await?;
    stage.say(format!("inserting {PREDICTIONS} predictions"));
    insert(&pool).await?;
    let service = stage.serve(&setting, &[]).await?;
    let mut peak: f64 = 0.0;
    let before = memory(&[service.id()])?;
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |round| {
                let began = kick_off(stage, &setting, matches)?;
                let sealing = sealed(&pool, began, round + 1);
                let watching = async {
                    loop {
                        peak = peak.max(memory(&[service.id()]).unwrap_or_default());
                        tokio::time::sleep(Duration::from_millis(20)).await;
                    }
                };
                tokio::select! {
                    took = sealing => took,
                    never = watching => never,
                }
            },
            async |_| {
                let began = Instant::now();
                pool.execute(BARE).await?;
                Ok(began.elapsed().as_secs_f64() * 1_000.0)
            },
        )
        .await?;
    let sealed = Outcome {
        what: format!("Sealing a match with {PREDICTIONS} predictions, with its pauses"),
        beside: "one statement that hashes and sorts the same rows".to_owned(),
        unit: "ms".to_owned(),
        size: Some(PREDICTIONS),
        limit: format!("the process grew from {:.0} MB to at most {:.0} MB; {cores}", before / 1_000.0, peak / 1_000.0),
        ..Outcome::of("seal", rounds)
    };
    let beside = predict_beside(stage, &setting, &pool, &service, &tokens, matches).await?;
    pool.close().await;
    drop(service);
    stage.postgres.forget(name).await?;
    Ok(vec![sealed, beside])
}

/// Predictions of another match while the large one is being sealed, and without that.
async fn predict_beside(
    stage: &Stage,
    setting: &Setting,
    pool: &PgPool,
    service: &crate::environment::service::Service,
    tokens: &Arc<Vec<String>>,
    matches: usize,
) -> anyhow::Result<Outcome> {
    let event = Arc::new(AtomicU64::new(1));
    let (ours, warming) = (predicting(service.public, tokens, &event), empty(service, tokens));
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    fill_cache(stage, &warming, USERS).await?;
    let burst = async || {
        event.fetch_add(1, Relaxed);
        Ok::<f64, anyhow::Error>(load::run(&ours, load, &Arc::default()).await?.rate)
    };
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(service),
            async |round| {
                let began = kick_off(stage, setting, matches)?;
                let rate = burst().await?;
                sealed(pool, began, stage.rounds + round + 1).await?;
                Ok(rate)
            },
            async |_| burst().await,
        )
        .await?;
    Ok(Outcome {
        what: format!(
            "Predictions for another match while {PREDICTIONS} are being sealed, same process, {CONNECTIONS} connections"
        ),
        beside: "the same without sealing".to_owned(),
        goal: Some(Goal::AtLeast(0.95)),
        limit: cores,
        ..Outcome::of("seal-predict", rounds)
    })
}

/// Predictions of the first match, with the same distribution as real ones.
async fn insert(pool: &PgPool) -> anyhow::Result<()> {
    for statement in [
        format!(
            "insert into predictions (user_id, event_id, prediction, confidence, salt, revision, created_at, updated_at)
             select n, 1, (array['home', 'draw', 'away'])[1 + n % 3], n % 101, gen_random_uuid(), 1, now(), now()
             from generate_series(1, {PREDICTIONS}) n"
        ),
        format!("insert into pseudonyms select n, 1, gen_random_uuid() from generate_series(1, {PREDICTIONS}) n"),
        format!("insert into event_tallies values (1, 0, {PREDICTIONS}, 0, 0, 0)"),
        "vacuum analyze".to_owned(),
    ] {
        pool.execute(AssertSqlSafe(statement)).await?;
    }
    Ok(())
}

/// Opens and closes the match again. Returns the time at which it closed.
fn kick_off(stage: &Stage, setting: &Setting, matches: usize) -> anyhow::Result<Instant> {
    for first in [OPEN, LIVE] {
        let all: Vec<Match> = std::iter::once(first).chain(vec![OPEN; matches - 1]).collect();
        stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], &document(&all))?;
    }
    Ok(Instant::now())
}

/// Waits until the match is sealed for this time; returns the milliseconds since it closed.
async fn sealed(pool: &PgPool, began: Instant, time: usize) -> anyhow::Result<f64> {
    let wanted = i64::try_from(time)?;
    until("the match is sealed", Duration::from_mins(5), async || {
        let count = sqlx::query_scalar::<_, i64>("select count(*) from seals where event_id = 1").fetch_one(pool).await;
        count.is_ok_and(|count| count >= wanted)
    })
    .await?;
    let took = began.elapsed().as_secs_f64() * 1_000.0;
    let latest = "select count from seals where event_id = 1 order by sequence desc limit 1";
    let count: i64 = sqlx::query_scalar(latest).fetch_one(pool).await?;
    anyhow::ensure!(count >= i64::try_from(PREDICTIONS)?, "{count} predictions were sealed");
    Ok(took)
}
