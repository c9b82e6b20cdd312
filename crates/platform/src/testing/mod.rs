//! Helpers for tests: real dependencies with names of their own, a clock that is moved by hand, and a local HTTP server.

#![expect(clippy::missing_panics_doc, reason = "a test that lacks a dependency fails by a panic")]

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

/// One section of the configuration of the development dependencies, from the environment that `dev/up` writes, changed as
/// tests need it.
pub fn settings<T>(changes: &[(&str, &str)], read: impl FnOnce(&mut Source) -> Option<T>) -> T {
    let mut variables: BTreeMap<String, String> = std::env::vars().collect();
    variables.extend(changes.iter().map(|&(name, value)| (name.to_owned(), value.to_owned())));
    read(&mut Source::new(variables, None)).expect("run dev/up and source .dev/env first")
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
    let settings = settings(&[], redis_client::Settings::read);
    let redis = redis_client::connect(&settings).expect("a valid URL");
    (redis, unique("test"))
}

/// A Redis that is not there.
pub fn unreachable_redis() -> ConnectionManager {
    let changes = [("MATCHDAY_REDIS__URL", "redis://127.0.0.1:1"), ("MATCHDAY_REDIS__TIMEOUT", "200ms")];
    redis_client::connect(&settings(&changes, redis_client::Settings::read)).expect("a valid URL")
}

/// The real NATS, with streams of the test's own. Call [`Streams::remove`] at the end.
pub async fn streams_for_tests() -> Streams {
    let settings = settings(&[("MATCHDAY_NATS__PREFIX", &unique("test"))], stream::Settings::read);
    let streams = Streams::connect(&settings).await.expect("NATS");
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

/// Runs a test with a database of its own, which is gone afterwards whether the test passed or not. It is handed over as
/// its owner sees it; [`as_service`] is how the service does.
pub async fn with_database(test: impl AsyncFnOnce(PgConnectOptions)) {
    let config = settings(&[], database::Settings::read);
    let owner = config.owner_url.as_ref().unwrap_or(&config.url);
    let options: PgConnectOptions = owner.expose().parse().expect("a database URL");
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

/// The same database as the role that the service runs with.
pub fn as_service(owner: &PgConnectOptions) -> PgConnectOptions {
    let service: PgConnectOptions =
        settings(&[], database::Settings::read).url.expose().parse().expect("a database URL");
    service.database(owner.get_database().expect("a database of the test's own"))
}

/// A migrated database to copy from; made once for each state of the migrations.
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
            .expect("a look at the databases")
    };
    if exists(&mut admin).await {
        return name;
    }
    // Tests are processes that start together: one makes the template, under another name until it is whole.
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

/// Runs a test with pools on a database of its own: as the service, and as its owner.
pub async fn with_pools(test: impl AsyncFnOnce(PgPool, PgPool)) {
    with_database(async |owner| {
        let pool = |most, options| PgPoolOptions::new().max_connections(most).connect_lazy_with(options);
        test(pool(16, as_service(&owner)), pool(2, owner)).await;
    })
    .await;
}
