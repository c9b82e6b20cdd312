//! Requests to a database with past seasons, compared with the same requests to a new database with the same users.
//!
//! `MATCHDAY_BENCH_HISTORY` sets the number of past predictions, or of transactions; the ledger has two entries for each.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::{Duration, Instant},
};

use anyhow::Context as _;
use futures_util::{StreamExt as _, TryStreamExt as _, stream};
use sqlx::{AssertSqlSafe, PgPool};

use super::{Match, OPEN, http, prepare};
use crate::{
    environment::{
        Stage, people,
        service::{Service, Setting},
    },
    load::{self, Load, Target},
    outcome::{Goal, Outcome},
    wire::{write_http, write_post},
};

/// Distinct users, each with a session and a wallet.
const USERS: u64 = 250_000;
/// Past matches, over five partitions of predictions. Every user predicted some of them.
const PAST_MATCHES: usize = 5_000;
const PAST: Match = Match { status: "finished", start: "2025-05-01T15:00:00Z", score: Some((2, 1)) };
/// Past predictions if the variable is not set.
const PREDICTIONS: u64 = 2_500_000;
const CONNECTIONS: usize = 256;

/// Number of past predictions.
fn size() -> anyhow::Result<u64> {
    match std::env::var("MATCHDAY_BENCH_HISTORY") {
        Ok(number) => number.parse().context("MATCHDAY_BENCH_HISTORY"),
        Err(_) => Ok(PREDICTIONS),
    }
}

/// A service with its database.
struct Side {
    name: &'static str,
    service: Service,
    pool: PgPool,
    tokens: Arc<Vec<String>>,
}

impl Side {
    /// Creates the database with users and matches, and lets `fill` add the past before the service starts.
    async fn set_up(
        stage: &Stage,
        name: &'static str,
        matches: &[Match],
        fill: impl AsyncFnOnce(&PgPool) -> anyhow::Result<()>,
    ) -> anyhow::Result<Self> {
        let setting = Setting::on(name).with("MATCHDAY_SESSIONS__CACHE_ENTRIES", "500000").logging_to(name);
        prepare(stage, &setting, name, matches).await?;
        let pool = stage.postgres.pool(name).await?;
        people::make(&pool, USERS, USERS).await?;
        let wallets = "insert into wallets (user_id, balance, transactions) select user_id, 1000000, 0 from users";
        sqlx::raw_sql(wallets).execute(&pool).await?;
        fill(&pool).await?;
        sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
        sqlx::raw_sql("checkpoint").execute(&pool).await?;
        let service = stage.serve(&setting, &["--no-workers"]).await?;
        let tokens = Arc::new((1..=USERS).map(people::token).collect());
        let side = Self { name, service, pool, tokens };
        stage.say("filling the session cache");
        let (numbers, step) = (Arc::new(AtomicU64::new(0)), Duration::from_secs(1));
        while numbers.load(Relaxed) < USERS {
            let load = Load { connections: CONNECTIONS, length: step, rate: None };
            load::run(&side.listing(), load, &numbers).await?;
        }
        Ok(side)
    }

    fn listing(&self) -> Target {
        let tokens = Arc::clone(&self.tokens);
        http(self.service.public, move |number, into| {
            let token = &tokens[usize::try_from(number % USERS).unwrap_or_default()];
            // Different pages, because the service caches each of them for a second.
            let path = format!("/api/auth/events?per_page=20&page={}", number % 2 + 1);
            write_http(into, "GET", &path, token, "");
        })
    }

    /// Predictions of all users in turn for a match.
    fn predicting(&self, event: u64) -> Target {
        let tokens = Arc::clone(&self.tokens);
        http(self.service.public, move |number, into| {
            let user = usize::try_from(number % USERS).unwrap_or_default();
            let body = format!(r#"{{"event_id":{event},"prediction":"home","confidence":{}}}"#, user % 101);
            write_post(into, "/api/auth/predictions", &tokens[user], (event, number), &body);
        })
    }

    /// Purchases of all users in turn.
    fn spending(&self) -> Target {
        let tokens = Arc::clone(&self.tokens);
        http(self.service.public, move |number, into| {
            let user = usize::try_from(number % USERS).unwrap_or_default();
            let body = format!(r#"{{"amount":1,"reason":"purchase","reference_id":"order-{number}"}}"#);
            write_post(into, "/api/auth/coins/deduct", &tokens[user], (0, number), &body);
        })
    }

    async fn end(self, stage: &Stage) -> anyhow::Result<()> {
        drop(self.service);
        self.pool.close().await;
        stage.postgres.forget(self.name).await
    }
}

pub(super) async fn predictions(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let predictions = size()?;
    // As many as the list shows on two pages, and one for each round.
    let open = 40.max(stage.rounds + 1);
    let new = Side::set_up(stage, "bench_history_new", &vec![OPEN; open], async |_| Ok(())).await?;
    let matches = [vec![PAST; PAST_MATCHES], vec![OPEN; open]].concat();
    let mut vacuumed = String::new();
    let old = Side::set_up(stage, "bench_history_old", &matches, async |pool| {
        fill_predictions(stage, pool, predictions / USERS).await?;
        vacuumed = vacuum(stage, pool, "predictions").await?;
        Ok(())
    })
    .await?;
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let groups = stage.groups(&old.service);

    let (listing, new_listing, numbers) = (old.listing(), new.listing(), Arc::default());
    let list = stage
        .alternate(
            &groups,
            async |_| Ok(load::run(&listing, load, &numbers).await?.rate),
            async |_| Ok(load::run(&new_listing, load, &numbers).await?.rate),
        )
        .await?;
    let event = |past: usize, round: usize| (past + round + 1) as u64;
    let burst = stage
        .alternate(
            &groups,
            async |round| Ok(load::run(&old.predicting(event(PAST_MATCHES, round)), load, &Arc::default()).await?.rate),
            async |round| Ok(load::run(&new.predicting(event(0, round)), load, &Arc::default()).await?.rate),
        )
        .await?;
    let detached = detach(stage, &old, event(PAST_MATCHES, stage.rounds)).await?;
    old.end(stage).await?;
    new.end(stage).await?;
    let beside = "the same in a database without past matches";
    let past = format!("{predictions} past predictions");
    Ok(vec![
        outcome("history-list", list, &format!("Page of 20 matches, {past}"), beside, predictions),
        Outcome {
            limit: format!("{}; {vacuumed}; {detached}", burst.1),
            ..outcome("history", burst, &format!("Predictions by distinct users, {past}"), beside, predictions)
        },
    ])
}

pub(super) async fn ledger(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let transactions = size()?;
    let new = Side::set_up(stage, "bench_history_new", &[], async |_| Ok(())).await?;
    let mut vacuumed = String::new();
    let old = Side::set_up(stage, "bench_history_old", &[], async |pool| {
        fill_ledger(stage, pool, transactions / USERS).await?;
        vacuumed = format!(
            "{}; {}",
            vacuum(stage, pool, "coin_transactions").await?,
            vacuum(stage, pool, "coin_entries").await?
        );
        Ok(())
    })
    .await?;
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let (numbers, new_numbers) = (Arc::default(), Arc::default());
    let (spending, new_spending) = (old.spending(), new.spending());
    let spent = stage
        .alternate(
            &stage.groups(&old.service),
            async |_| Ok(load::run(&spending, load, &numbers).await?.rate),
            async |_| Ok(load::run(&new_spending, load, &new_numbers).await?.rate),
        )
        .await?;
    old.end(stage).await?;
    new.end(stage).await?;
    let entries = 2 * transactions;
    Ok(vec![Outcome {
        limit: format!("{}; {vacuumed}", spent.1),
        ..outcome(
            "history-ledger",
            spent,
            &format!("Deductions by users in turn, {entries} entries in the ledger"),
            "the same with an empty ledger",
            entries,
        )
    }])
}

fn outcome(scenario: &str, (rounds, cores): (Vec<[f64; 2]>, String), what: &str, beside: &str, size: u64) -> Outcome {
    Outcome {
        what: format!("{what}, {CONNECTIONS} connections"),
        beside: beside.to_owned(),
        goal: Some(Goal::AtLeast(0.9)),
        limit: cores,
        size: Some(size),
        ..Outcome::of(scenario, rounds)
    }
}

/// Adds predictions of all users for this many past matches, evenly over all of them, in the order of time.
async fn fill_predictions(stage: &Stage, pool: &PgPool, matches: u64) -> anyhow::Result<()> {
    let step = PAST_MATCHES as u64 / matches.clamp(1, PAST_MATCHES as u64);
    let statement = |number: u64| {
        let event = number * step + 1;
        format!(
            "insert into predictions
               (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at)
             select n, {event}, (array['home', 'draw', 'away'])[n % 3 + 1], null, null, n % 101, 1,
                    timestamptz '2025-01-01' + {event} * interval '1 hour', timestamptz '2025-01-01' + {event} * interval '1 hour'
             from generate_series(1, {USERS}) n;
             insert into event_tallies values ({event}, 0, {USERS} / 3, {USERS} / 3, {USERS} / 3, {USERS} * 50)"
        )
    };
    fill(stage, pool, "past predictions", (0..matches).map(statement).collect()).await
}

/// Adds this many transactions to each wallet, with two entries each: payouts, and every tenth is a purchase.
async fn fill_ledger(stage: &Stage, pool: &PgPool, transactions: u64) -> anyhow::Result<()> {
    let statement = |number: u64| {
        let (kind, amount, house, account, purchase) = if number.is_multiple_of(10) {
            ("deduction", -1, 1, "spent:quiz", format!("'quiz', 'past-{number}', sha256(n::text::bytea)"))
        } else {
            ("points", 1, -1, "points", "null, null, null".to_owned())
        };
        format!(
            "insert into coin_transactions
               (user_id, number, transaction_id, kind, amount, balance, reason, reference, request_key, created_at)
             select n, {number}, gen_random_uuid(), '{kind}', {amount}, 1000000, {purchase},
                    timestamptz '2025-01-01' + {number} * interval '1 day'
             from generate_series(1, {USERS}) n;
             insert into coin_entries (user_id, number, account, amount)
             select n, {number}, account, amount
             from generate_series(1, {USERS}) n, (values ('wallet', {amount}), ('{account}', {house})) v (account, amount)"
        )
    };
    fill(stage, pool, "past transactions", (1..=transactions).map(statement).collect()).await?;
    sqlx::query("update wallets set transactions = $1").bind(i64::try_from(transactions)?).execute(pool).await?;
    Ok(())
}

/// Runs the statements, two at a time. Checkpoints bound the disk space of the log.
async fn fill(stage: &Stage, pool: &PgPool, what: &str, statements: Vec<String>) -> anyhow::Result<()> {
    let all = statements.len();
    for (part, statements) in statements.chunks(10).enumerate() {
        stage.say(format!("inserting {what}: {} of {all} for each user", part * 10));
        stream::iter(statements.iter().cloned())
            .map(|statement| async move { sqlx::raw_sql(AssertSqlSafe(statement)).execute(pool).await })
            .buffer_unordered(2)
            .try_collect::<Vec<_>>()
            .await?;
        sqlx::raw_sql("checkpoint").execute(pool).await?;
    }
    Ok(())
}

/// Vacuums a partitioned table; returns its size and how long it took.
async fn vacuum(stage: &Stage, pool: &PgPool, table: &str) -> anyhow::Result<String> {
    stage.say(format!("vacuuming {table}"));
    let began = Instant::now();
    sqlx::raw_sql(AssertSqlSafe(format!("vacuum analyze {table}"))).execute(pool).await?;
    let took = began.elapsed().as_secs_f64();
    let (heap, indexes, parts): (String, String, i64) = sqlx::query_as(
        "select pg_size_pretty(sum(pg_table_size(inhrelid))), pg_size_pretty(sum(pg_indexes_size(inhrelid))), count(*)
         from pg_inherits where inhparent = $1::text::regclass",
    )
    .bind(table)
    .fetch_one(pool)
    .await?;
    Ok(format!("{table}: {parts} partitions, rows {heap}, indexes {indexes}, vacuum {took:.0} s"))
}

/// Detaches the oldest partition of predictions while users predict; returns how long it took.
async fn detach(stage: &Stage, side: &Side, event: u64) -> anyhow::Result<String> {
    stage.say("detaching a partition");
    let load = Load { connections: CONNECTIONS, length: stage.length.max(Duration::from_secs(3)), rate: Some(2_000.0) };
    let (target, numbers) = (side.predicting(event), Arc::default());
    let detach = async {
        tokio::time::sleep(Duration::from_secs(1)).await;
        let began = Instant::now();
        let detach = "alter table predictions detach partition predictions_0 concurrently";
        sqlx::raw_sql(detach).execute(&side.pool).await?;
        anyhow::Ok(began.elapsed())
    };
    let (measured, took) = tokio::join!(load::run(&target, load, &numbers), detach);
    Ok(format!(
        "detaching a partition under load took {:.0} ms, p99 of predictions meanwhile {:.1} ms",
        took?.as_secs_f64() * 1000.0,
        measured?.latency.quantile(0.99)
    ))
}
