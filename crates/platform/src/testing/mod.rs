//! Test helpers: real dependencies under unique names, a manual clock, and a local HTTP server.

#![expect(clippy::missing_panics_doc, reason = "a test that lacks a dependency fails by a panic")]

mod cluster;
mod log;
mod receiver;

use std::{
    collections::BTreeMap,
    panic::AssertUnwindSafe,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::FutureExt as _;
use redis::aio::ConnectionManager;
use sha2::{Digest as _, Sha256};
use sqlx::{
    Connection as _, Executor as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use time::OffsetDateTime;

pub use self::{
    log::LogCapture,
    receiver::{Received, Receiver, Reply},
};
use crate::{
    clock::Clock,
    database::{self, MIGRATIONS},
    random::Random,
    redis_client,
    settings::Source,
    stream::{self, Streams},
};

/// A clock that only tests advance.
#[derive(Debug)]
pub struct MockClock(Mutex<OffsetDateTime>);

impl MockClock {
    /// Creates a clock that shows `moment`.
    pub fn at(moment: OffsetDateTime) -> Self {
        Self(Mutex::new(moment))
    }

    /// Moves the clock forward.
    pub fn advance(&self, by: time::Duration) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) += by;
    }
}

impl Clock for MockClock {
    fn now(&self) -> OffsetDateTime {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Pseudorandom bytes that are the same in every run.
#[derive(Debug)]
pub struct SeededRandom {
    seed: u64,
    drawn: AtomicU64,
}

impl SeededRandom {
    /// Creates a generator with its own sequence for each seed.
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

/// Reads one section of the settings for the development dependencies, from the environment that `dev/up` writes, with
/// these changes.
pub fn settings<T>(changes: &[(&str, &str)], read: impl FnOnce(&mut Source) -> Option<T>) -> T {
    let mut variables: BTreeMap<String, String> = std::env::vars().collect();
    variables.extend(changes.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    read(&mut Source::new(variables, None)).expect("run dev/up and source .dev/env first")
}

/// Returns a name that no other test uses.
pub fn unique(stem: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    // Seconds come first, so leftovers of aborted runs can be identified by age.
    #[expect(
        clippy::disallowed_methods,
        reason = "leftover databases are identified by their real age, independent of a test's clock"
    )]
    let seconds = OffsetDateTime::now_utc().unix_timestamp();
    format!("{stem}_{seconds}_{}_{number}", std::process::id())
}

/// Connects to the real Redis, with a key prefix that no other test uses.
pub fn redis_for_tests() -> (ConnectionManager, String) {
    let settings = settings(&[], redis_client::Settings::read);
    let redis = redis_client::connect(&settings).expect("a valid URL");
    (redis, unique("test"))
}

/// Creates a Redis connection that always fails.
pub fn unreachable_redis() -> ConnectionManager {
    let changes = [("MATCHDAY_REDIS__URL", "redis://127.0.0.1:1"), ("MATCHDAY_REDIS__TIMEOUT", "200ms")];
    redis_client::connect(&settings(&changes, redis_client::Settings::read)).expect("a valid URL")
}

/// Connects to the real NATS, with streams that no other test uses. Call [`Streams::remove`] at the end.
pub async fn streams_for_tests() -> Streams {
    let settings = settings(&[("MATCHDAY_NATS__PREFIX", &unique("test"))], stream::Settings::read);
    let streams = Streams::connect(&settings).await.expect("NATS");
    streams.ensure().await.expect("streams");
    streams
}

/// Waits up to ten seconds until a condition holds.
pub async fn eventually(what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < Duration::from_secs(10), "not within ten seconds: {what}");
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
}

/// Runs a test with its own database, which is dropped afterwards even if the test fails. The options have the role of
/// the owner; [`as_service`] changes them to the role of the service. The database is on Citus if the tests run there.
pub async fn with_database(test: impl AsyncFnOnce(PgConnectOptions)) {
    let Some(workers) = cluster::workers() else { return with_plain_database(test).await };
    let (options, name) = (owner_options(), unique("md_test"));
    let nodes = cluster::create(&options, &workers, &name).await;
    let outcome = AssertUnwindSafe(test(options.database(&name))).catch_unwind().await;
    cluster::remove(&nodes, &name).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
}

/// Whether the tests run on Citus.
pub fn cluster_is_available() -> bool {
    cluster::workers().is_some()
}

fn owner_options() -> PgConnectOptions {
    let config = settings(&[], database::Settings::read);
    config.owner_url.as_ref().unwrap_or(&config.url).expose().parse().expect("a database URL")
}

/// Like [`with_database`], always on plain PostgreSQL.
pub async fn with_plain_database(test: impl AsyncFnOnce(PgConnectOptions)) {
    let options = owner_options();
    let template = template(&options).await;
    let name = unique("md_test");
    let mut admin = PgConnection::connect_with(&options).await.expect("PostgreSQL: run dev/up");
    admin
        .execute(sqlx::AssertSqlSafe(format!("create database {name} template {template}")))
        .await
        .expect("a database");
    let outcome = AssertUnwindSafe(test(options.clone().database(&name))).catch_unwind().await;
    let dropped = admin.execute(sqlx::AssertSqlSafe(format!("drop database {name} with (force)"))).await;
    if let Err(panic) = outcome {
        std::panic::resume_unwind(panic);
    }
    dropped.expect("dropped");
}

/// Options for the same database with the role of the service.
pub fn as_service(owner: &PgConnectOptions) -> PgConnectOptions {
    let service: PgConnectOptions =
        settings(&[], database::Settings::read).url.expose().parse().expect("a database URL");
    service.database(owner.get_database().expect("the test's database"))
}

/// Returns the name of a migrated template database, creating it once for each state of the migrations.
async fn template(options: &PgConnectOptions) -> String {
    let mut hasher = Sha256::new();
    for migration in MIGRATIONS.iter() {
        hasher.update(&migration.checksum);
    }
    let name = format!("md_template_{}", hex::encode(&hasher.finalize()[..6]));
    let mut admin = PgConnection::connect_with(options).await.expect("PostgreSQL: run dev/up");
    let exists = async |admin: &mut PgConnection| {
        sqlx::query_scalar::<_, bool>("select exists (select from pg_database where datname = $1)")
            .bind(&name)
            .fetch_one(admin)
            .await
            .expect("databases listed")
    };
    if exists(&mut admin).await {
        return name;
    }
    // Test processes start concurrently: one creates the template, under another name until it is complete.
    admin.execute("select pg_advisory_lock(hashtextextended('matchday test template', 0))").await.expect("a lock");
    if !exists(&mut admin).await {
        let draft = format!("{name}_draft");
        admin.execute(sqlx::AssertSqlSafe(format!("drop database if exists {draft}"))).await.expect("no draft");
        admin.execute(sqlx::AssertSqlSafe(format!("create database {draft}"))).await.expect("a draft");
        let pool = PgPool::connect_with(options.clone().database(&draft)).await.expect("the draft");
        MIGRATIONS.run(&pool).await.expect("migrations");
        pool.close().await;
        admin.execute(sqlx::AssertSqlSafe(format!("alter database {draft} rename to {name}"))).await.expect("renamed");
    }
    admin.close().await.expect("closed");
    name
}

/// Runs a test with two pools on its own database: as the service, and as the owner.
pub async fn with_pools(test: impl AsyncFnOnce(PgPool, PgPool)) {
    with_database(async |owner| {
        let pool = |most, options| PgPoolOptions::new().max_connections(most).connect_lazy_with(options);
        test(pool(16, as_service(&owner)), pool(2, owner)).await;
    })
    .await;
}
