//! The connection pool and the schema it expects.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use sqlx::{
    Executor as _, PgPool,
    migrate::Migrator,
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::config;

/// The migrations, built into the binary. A database that knows more of them than this binary is fine: migrations are
/// made so that the version before still runs.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!("../../migrations");
    migrations.set_ignore_missing(true);
    migrations
});

/// A pool that connects when it is first used, so that a process can start, and say so, while the database is away.
pub fn pool(config: &config::Database) -> Result<PgPool, sqlx::Error> {
    let statement_timeout = config.statement_timeout.as_millis();
    let options = bounded(config).after_connect(move |connection, _| {
        Box::pin(async move {
            // A process that is paused in the middle of something must not keep everybody else from it.
            let set =
                format!("set statement_timeout = {statement_timeout}; set idle_in_transaction_session_timeout = '60s'");
            connection.execute(sqlx::AssertSqlSafe(set)).await.map(|_| ())
        })
    });
    Ok(options.connect_lazy_with(connection(config)?))
}

/// A few more connections to the same database, for statements that are the same thousands of times a second, and take
/// arrays that are long or short. The server would plan each execution anew, because it finds that a short array deserves
/// a plan of its own, and planning one takes longer than running it. And what it knows of a table's size is a minute
/// behind a rush; these statements read by key, whatever it thinks.
pub fn writers(db: &PgPool, connections: u32, statement_timeout: Duration) -> PgPool {
    let settings = format!(
        "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_hashjoin = off;
         set enable_mergejoin = off; set statement_timeout = {}; set idle_in_transaction_session_timeout = '60s'",
        statement_timeout.as_millis(),
    );
    let settings: Arc<str> = settings.into();
    let options = db.options().clone().min_connections(0).max_connections(connections);
    options
        .after_connect(move |connection, _| {
            let settings = Arc::clone(&settings);
            Box::pin(async move { connection.execute(sqlx::AssertSqlSafe(&*settings)).await.map(|_| ()) })
        })
        .connect_lazy_with((*db.connect_options()).clone())
}

/// A pool for migrations, which take as long as they take.
pub fn migration_pool(config: &config::Database) -> Result<PgPool, sqlx::Error> {
    Ok(bounded(config).connect_lazy_with(connection(config)?))
}

fn bounded(config: &config::Database) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(config.max_connections)
        .acquire_timeout(config.acquire_timeout)
        // A ping before every use costs a third of the throughput; a dead connection shows at the first statement.
        .test_before_acquire(false)
        .max_lifetime(Duration::from_mins(30))
}

fn connection(config: &config::Database) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(config.url.expose().parse::<PgConnectOptions>()?.application_name("matchday"))
}

/// Whether the database has the schema that this binary was built for.
#[derive(Debug, PartialEq, Eq)]
pub enum Schema {
    /// It has.
    Current,
    /// Migrations are missing, this many.
    Behind(usize),
}

/// Compares the applied migrations with those built in, without writing anything.
pub async fn schema(pool: &PgPool) -> sqlx::Result<Schema> {
    let begun: bool = sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(pool).await?;
    let applied: Vec<i64> = if begun {
        sqlx::query_scalar("select version from _sqlx_migrations where success").fetch_all(pool).await?
    } else {
        Vec::new()
    };
    let missing = MIGRATIONS
        .iter()
        .filter(|migration| migration.migration_type.is_up_migration() && !applied.contains(&migration.version))
        .count();
    Ok(if missing == 0 { Schema::Current } else { Schema::Behind(missing) })
}

/// Whether the same statement may well succeed soon: connection lost; out of connections, memory or disk; being shut down
/// or started; a statement that took too long; a primary that is one no more; serialisation, deadlock, lock not available.
pub fn is_passing(error: &sqlx::Error) -> bool {
    const PASSING: [&str; 8] = ["08", "53", "57P", "57014", "25006", "40001", "40P01", "55P03"];
    match error {
        sqlx::Error::PoolTimedOut | sqlx::Error::PoolClosed | sqlx::Error::Io(_) | sqlx::Error::Tls(_) => true,
        sqlx::Error::Database(inner) => {
            inner.code().is_some_and(|code| PASSING.iter().any(|class| code.starts_with(class)))
        }
        _ => false,
    }
}

/// Whether a statement only met another transaction at a bad moment: serialisation, deadlock, lock not available.
pub fn is_conflict(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["40001", "40P01", "55P03"].contains(&&*code))
}

/// Whether no other statement is likely to fare better now.
pub fn is_away(error: &sqlx::Error) -> bool {
    is_passing(error) && !is_conflict(error)
}

/// Removes what is over, a thousand rows at a time, so that nobody waits long for a lock; returns how many there were.
/// `step` removes at most as many as it is given, and returns how many it removed.
pub async fn sweep<F, E>(step: impl Fn(i64) -> F) -> Result<u64, E>
where
    F: Future<Output = Result<u64, E>>,
{
    const AT_ONCE: i64 = 1_000;
    let mut total = 0;
    loop {
        let removed = step(AT_ONCE).await?;
        total += removed;
        if removed < AT_ONCE.unsigned_abs() {
            return Ok(total);
        }
    }
}
