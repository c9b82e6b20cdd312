//! Sealing of a match with a million predictions: its duration and memory, compared with one statement that hashes and sorts
//! the same rows; and predictions and results of other matches meanwhile, compared with those without sealing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use sqlx::{AssertSqlSafe, Executor as _, PgPool};

use super::{
    Match, OPEN, document, fill_leaderboards, memory,
    predictions::{CONNECTIONS, empty, fill_cache, predicting, set_up},
    settle,
};
use crate::{
    environment::{
        Stage,
        service::{Service, Setting},
        until,
    },
    load::{self, Load},
    outcome::{Goal, Outcome},
};

/// Predictions of the match that is sealed.
const PREDICTIONS: u64 = 1_000_000;

/// Users of the other matches.
const USERS: u64 = 250_000;

const LIVE: Match = Match { status: "live", ..OPEN };
const PLAYED: Match = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((0, 0)) };
const OVER: Match = Match { status: "finished", score: Some((2, 1)), ..PLAYED };

/// The matches: first the one that is sealed, then those that get predictions, then those that get a result.
#[derive(Clone, Copy)]
struct Matches {
    predicted: usize,
    settled: usize,
}

impl Matches {
    fn of(stage: &Stage) -> Self {
        Self { predicted: 2 * stage.rounds + 1, settled: 2 * stage.rounds + 1 }
    }

    /// Number of matches before those that get a result.
    fn before_settled(self) -> usize {
        1 + self.predicted
    }

    fn document(self, first: Match, finished: usize) -> String {
        let of_settled = (0..self.settled).map(|number| if number < finished { OVER } else { PLAYED });
        let all: Vec<Match> = std::iter::once(first).chain(vec![OPEN; self.predicted]).chain(of_settled).collect();
        document(&all)
    }
}

/// The same rows, hashed and sorted by the database.
const BARE: &str = "select count(leaf) from (
    select sha256('\\x0001'::bytea || uuid_send(s.pseudonym) || uuid_send(p.salt) || int8send(p.event_id)
                  || int8send((extract(epoch from p.updated_at) * 1000000)::bigint)) as leaf
    from predictions p join pseudonyms s on s.user_id = p.user_id and s.tournament_id = 1
    where p.event_id = 1 order by 1) l";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_seal";
    let matches = Matches::of(stage);
    let (setting, pool, tokens) = set_up(stage, name, USERS, matches.before_settled() + matches.settled).await?;
    stage.say(format!("inserting {PREDICTIONS} predictions"));
    insert(&pool, matches).await?;
    let service = stage.serve(&setting, &[]).await?;
    stage.say("sealing the matches that get a result");
    stage.matchday(&setting, &["fixtures", "import", "--no-wait", "-"], &matches.document(OPEN, 0))?;
    until("the matches are sealed", Duration::from_mins(15), async || {
        let count = sqlx::query_scalar::<_, i64>("select count(*) from seals").fetch_one(&pool).await;
        count.is_ok_and(|count| usize::try_from(count).is_ok_and(|count| count >= matches.settled))
    })
    .await?;
    let mut peak: f64 = 0.0;
    let before = memory(&[service.id()])?;
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |round| {
                let began = kick_off(stage, &setting, matches, 0)?;
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
    let predicted = predict_beside(stage, &setting, &pool, &service, &tokens, matches).await?;
    let settled = settle_beside(stage, &setting, &pool, &service, matches).await?;
    pool.close().await;
    drop(service);
    stage.postgres.forget(name).await?;
    Ok(vec![sealed, predicted, settled])
}

/// Time until a result of another match is in the scores and on the leaderboards, while the large match is being sealed and
/// without that.
async fn settle_beside(
    stage: &Stage,
    setting: &Setting,
    pool: &PgPool,
    service: &Service,
    matches: Matches,
) -> anyhow::Result<Outcome> {
    fill_leaderboards(stage, service).await?;
    let result = async |first: Match, number: usize| {
        let event = matches.before_settled() + number;
        anyhow::Ok(1_000.0 * settle(stage, setting, pool, &matches.document(first, number), event).await?)
    };
    stage.say("first result, which inserts the scores");
    result(LIVE, 1).await?;
    let before = 2 * stage.rounds;
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(service),
            async |round| {
                let began = kick_off(stage, setting, matches, 2 * round + 1)?;
                let took = result(LIVE, 2 * round + 2).await?;
                let sealed_before = seals(pool).await? >= i64::try_from(before + round + 1)?;
                anyhow::ensure!(!sealed_before, "the match was sealed before the result of the other one was applied");
                sealed(pool, began, before + round + 1).await?;
                Ok(took)
            },
            async |round| result(LIVE, 2 * round + 3).await,
        )
        .await?;
    Ok(Outcome {
        what: format!(
            "Result with {USERS} predictions while {PREDICTIONS} predictions of another match are being sealed"
        ),
        beside: "the same without sealing".to_owned(),
        unit: "ms".to_owned(),
        goal: Some(Goal::AtMost(1.1)),
        size: Some(USERS),
        limit: cores,
        ..Outcome::of("seal-settle", rounds)
    })
}

/// Predictions of another match while the large one is being sealed, and without that.
async fn predict_beside(
    stage: &Stage,
    setting: &Setting,
    pool: &PgPool,
    service: &Service,
    tokens: &Arc<Vec<String>>,
    matches: Matches,
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
                let began = kick_off(stage, setting, matches, 0)?;
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

/// Predictions of the first match, and of those that get a result, with the same distribution as real ones.
async fn insert(pool: &PgPool, matches: Matches) -> anyhow::Result<()> {
    let insert = |event: usize, users: u64, made: &str| {
        format!(
            "insert into predictions (user_id, event_id, prediction, confidence, salt, revision, created_at, updated_at)
             select n, {event}, (array['home', 'draw', 'away'])[1 + n % 3], n % 101, gen_random_uuid(), 1, {made}, {made}
             from generate_series(1, {users}) n"
        )
    };
    pool.execute(AssertSqlSafe(insert(1, PREDICTIONS, "now()"))).await?;
    for statement in [
        format!("insert into pseudonyms select n, 1, gen_random_uuid() from generate_series(1, {PREDICTIONS}) n"),
        format!("insert into event_tallies values (1, 0, {PREDICTIONS}, 0, 0, 0)"),
    ] {
        pool.execute(AssertSqlSafe(statement)).await?;
    }
    for number in 1..=matches.settled {
        // Before the start of the match: later ones would not count.
        let made = "timestamptz '2026-04-30'";
        pool.execute(AssertSqlSafe(insert(matches.before_settled() + number, USERS, made))).await?;
    }
    pool.execute("vacuum analyze").await?;
    Ok(())
}

/// Opens and closes the first match again, with this number of results of others. Returns the time at which it closed.
fn kick_off(stage: &Stage, setting: &Setting, matches: Matches, finished: usize) -> anyhow::Result<Instant> {
    for first in [OPEN, LIVE] {
        let document = matches.document(first, finished);
        stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], &document)?;
    }
    Ok(Instant::now())
}

/// Number of seals of the first match.
async fn seals(pool: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar("select count(*) from seals where event_id = 1").fetch_one(pool).await
}

/// Waits until the match is sealed for this time; returns the milliseconds since it closed.
async fn sealed(pool: &PgPool, began: Instant, time: usize) -> anyhow::Result<f64> {
    let wanted = i64::try_from(time)?;
    until("the match is sealed", Duration::from_mins(5), async || seals(pool).await.is_ok_and(|count| count >= wanted))
        .await?;
    let took = began.elapsed().as_secs_f64() * 1_000.0;
    let latest = "select count from seals where event_id = 1 order by sequence desc limit 1";
    let count: i64 = sqlx::query_scalar(latest).fetch_one(pool).await?;
    anyhow::ensure!(count >= i64::try_from(PREDICTIONS)?, "{count} predictions were sealed");
    Ok(took)
}
