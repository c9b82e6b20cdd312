//! Connection pools, migrations and checks of the schema.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use sqlx::{
    AssertSqlSafe, Connection as _, Executor as _, PgConnection, PgExecutor, PgPool, Postgres, SqlSafeStr, SqlStr,
    Transaction,
    migrate::{MigrateError, Migration, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
};
use time::OffsetDateTime;

use super::settings::{Conditions, SecretUrl};
use crate::{citus, reads, section};

section! {
    /// PostgreSQL, the source of truth.
    database: Settings {
        /// Connection URL, with a role that can use the tables but owns none of them.
        url: SecretUrl,
        /// Connection URL with the role that owns the tables, used by migrations only. Empty: `database.url`.
        owner_url: Option<SecretUrl> = "",
        /// Connection URL of a streaming replica, which serves lists, leaderboards, exports and the console. It must lead to
        /// one server. Empty: the primary serves them.
        read_url: Option<SecretUrl> = "",
        /// Maximum age of what the replica shows. A replica that is further behind is not used. A caller who wrote reads the
        /// primary for this time, and for at least two seconds.
        read_max_lag: Duration = "2s",
        /// Maximum number of connections of this process, in addition to one for each batch writer of predictions, coins
        /// and answers, two for token checks, two for places in rooms, one for names on leaderboards, one for readiness,
        /// and one for checks of a replica. Also the maximum number of connections to a replica, in addition to one for
        /// checks.
        max_connections: u32 = "16",
        /// Whether `database.url` leads to PgBouncer in transaction mode. Connections are then shared, so the process
        /// sets nothing on them; `deploy/pgbouncer/pgbouncer.ini` does. Batch writers connect to the database with
        /// `_writers` at the end of its name.
        transaction_pooling: bool = "false",
        /// Time that a request waits for a free connection before it responds 503.
        acquire_timeout: Duration = "3s",
        /// Maximum duration of one statement on the server. Also ends statements whose request has timed out.
        statement_timeout: Duration = "10s",
        /// Time that a migration waits for a table lock. Other queries on that table queue behind the migration, so it
        /// gives up soon, lets them pass, and tries again.
        migration_lock_timeout: Duration = "500ms",
        /// Total time for which a migration is retried.
        migration_patience: Duration = "10m",
    }
}

impl Settings {
    pub fn conditions(&self) -> Conditions {
        vec![
            (
                self.max_connections >= 8,
                "database.max_connections is below 8: workers alone may need 8 connections".to_owned(),
            ),
            (
                self.read_max_lag >= reads::LEAST_MAX_LAG,
                format!(
                    "database.read_max_lag is below {:?}: a replica without delay may be out",
                    reads::LEAST_MAX_LAG
                ),
            ),
            (
                self.migration_lock_timeout.as_millis() > 0,
                "database.migration_lock_timeout is 0: PostgreSQL would wait without a limit and block other queries"
                    .to_owned(),
            ),
        ]
    }
}

/// Migrations built into the binary. A database with further migrations is accepted, because every migration leaves the
/// previous version working.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!("../../migrations");
    migrations.set_ignore_missing(true);
    migrations
});

/// Makes a connection's commits durable. With `synchronous_commit` off, which can be set for a role or a database, a
/// server crash loses acknowledged transactions. It is set on every connection and not only checked at startup, because
/// a role can be altered while the process runs. Stricter values, like `remote_apply`, stay in effect.
const DURABLE: &str =
    "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'";

/// Creates a pool that connects on first use, so a process can start and report its state without the database.
pub fn pool(config: &Settings) -> Result<PgPool, sqlx::Error> {
    let options = bounded(config);
    let options =
        if config.transaction_pooling { options } else { with_session_settings(options, config.statement_timeout) };
    Ok(options.connect_lazy_with(connection(&config.url)?))
}

/// Creates a pool for the replica, if there is one. A read that fails on the replica is repeated on the primary, so it
/// waits a short time for a connection, and its statements get half of the time.
pub(crate) fn replica_pool(config: &Settings) -> Result<Option<PgPool>, sqlx::Error> {
    let Some(url) = &config.read_url else { return Ok(None) };
    let bounded = bounded(config).acquire_timeout(REPLICA_ACQUIRE_TIMEOUT.min(config.acquire_timeout));
    let options = with_session_settings(bounded, config.statement_timeout / 2);
    Ok(Some(options.connect_lazy_with(connection(url)?)))
}

const REPLICA_ACQUIRE_TIMEOUT: Duration = Duration::from_millis(500);

fn with_session_settings(options: PgPoolOptions, statement_timeout: Duration) -> PgPoolOptions {
    let statement_timeout = statement_timeout.as_millis();
    options.after_connect(move |connection, _| {
        Box::pin(async move {
            // A process that is paused inside a transaction must not block others. JIT is off because compiling takes
            // longer than running most of our statements. Citus sends notices about statements of its own.
            let set = format!(
                "set statement_timeout = {statement_timeout}; set idle_in_transaction_session_timeout = '60s';
                 set jit = off; set client_min_messages = error; {}; {DURABLE}",
                citus::SETTINGS
            );
            connection.execute(AssertSqlSafe(set)).await.map(|_| ())
        })
    })
}

/// Creates a small pool to the same database for batch writers. They run the same statements thousands of times a
/// second, with arrays of varying length.
///
/// Plans are generic, except on Citus: custom plans for short arrays look cheaper to the server, but planning each
/// execution takes longer than running it. Scans and joins that do not read by key are off, and reading by key costs the
/// planner nothing but the rows: from the statistics of a table, which lag a minute behind a burst of writes, it would
/// choose to read the whole table.
///
/// With a pooler, these are settings of its connections to a database of another name.
pub fn writers(db: &PgPool, connections: u32, config: WriterSettings) -> PgPool {
    let WriterSettings { statement_timeout, transaction_pooling } = config;
    let options = db.options().clone().min_connections(0).max_connections(connections);
    let to = (*db.connect_options()).clone();
    if transaction_pooling {
        let name = format!("{}_writers", to.get_database().unwrap_or_else(|| to.get_username()));
        return options.connect_lazy_with(to.database(&name));
    }
    let settings = format!(
        "set enable_seqscan = off; set enable_bitmapscan = off; set enable_material = off; set enable_hashjoin = off;
         set enable_mergejoin = off; set random_page_cost = 0; set cpu_index_tuple_cost = 0; set cpu_tuple_cost = 1;
         set jit = off; set client_min_messages = error; set statement_timeout = {0}; set idle_in_transaction_session_timeout = {0}; {1}; {2}; {DURABLE}",
        statement_timeout.as_millis(),
        citus::SETTINGS,
        citus::GENERIC_PLANS,
    );
    let settings: Arc<str> = settings.into();
    options
        .after_connect(move |connection, _| {
            let settings = Arc::clone(&settings);
            Box::pin(async move { connection.execute(AssertSqlSafe(&*settings)).await.map(|_| ()) })
        })
        .connect_lazy_with(to)
}

/// How batch writers connect.
#[derive(Clone, Copy, Debug)]
pub struct WriterSettings {
    /// Maximum duration of one statement.
    pub statement_timeout: Duration,
    pub transaction_pooling: bool,
}

impl From<&Settings> for WriterSettings {
    fn from(config: &Settings) -> Self {
        Self { statement_timeout: config.statement_timeout, transaction_pooling: config.transaction_pooling }
    }
}

/// Returns the settings that a pooler does not set on its connections, if it must. Without them, a statement could run
/// without a limit, lose a commit, or read a whole table for each batch.
pub async fn missing_pooler_settings(db: &PgPool, config: WriterSettings) -> sqlx::Result<Vec<&'static str>> {
    if !config.transaction_pooling {
        return Ok(Vec::new());
    }
    let general = "select current_setting('statement_timeout') <> '0'
                          and current_setting('idle_in_transaction_session_timeout') <> '0',
                          current_setting('jit') = 'off', current_setting('synchronous_commit') <> 'off'";
    let names = ["timeouts", "jit", "synchronous_commit"];
    let (timeouts, jit, durable): (bool, bool, bool) = sqlx::query_as(general).fetch_one(db).await?;
    let mut missing: Vec<_> =
        names.into_iter().zip([timeouts, jit, durable]).filter(|(_, is_set)| !is_set).map(|(name, _)| name).collect();
    let writers = writers(db, 1, config);
    let planner = "select current_setting('enable_seqscan') = 'off'
                          and current_setting('plan_cache_mode') = 'force_generic_plan'";
    let has_plans: sqlx::Result<bool> = sqlx::query_scalar(planner).fetch_one(&writers).await;
    writers.close().await;
    if !has_plans? {
        missing.push("planner settings of the database with _writers");
    }
    Ok(missing)
}

/// Creates a pool with the role that owns the tables.
pub fn migration_pool(config: &Settings) -> Result<PgPool, sqlx::Error> {
    Ok(bounded(config).connect_lazy_with(connection(owner(config))?))
}

fn owner(config: &Settings) -> &SecretUrl {
    config.owner_url.as_ref().unwrap_or(&config.url)
}

/// Applies missing migrations under load, and on Citus places new tables; returns the number of migrations. The duration
/// of a migration is not limited, but it does not wait long for a lock, because all other queries on the table queue
/// behind it.
pub async fn migrate(config: &Settings, migrations: &Migrator) -> Result<usize, MigrateError> {
    let short = config.migration_lock_timeout;
    let migrations = &for_database(config, migrations).await?;
    let known = with_retries(config, short, async |connection| Ok(applied_versions(connection).await?)).await?;
    let mut applied = 0;
    for migration in migrations.iter().filter(|migration| migration.migration_type.is_up_migration()) {
        if known.contains(&migration.version) {
            continue;
        }
        // Migrations without a transaction, like `create index concurrently`, do not block other queries, and would
        // leave a half-finished object behind if they gave up.
        let lock_timeout = if migration.no_tx { Duration::ZERO } else { short };
        let step = async |connection: &mut PgConnection| {
            let is_missing = !applied_versions(connection).await?.contains(&migration.version);
            migrations.run_direct(Some(migration.version), connection, false).await?;
            Ok(is_missing)
        };
        // Another process may have applied it first.
        applied += usize::from(with_retries(config, lock_timeout, step).await?);
    }
    // Applies nothing, but verifies that the applied migrations are the ones in this binary.
    with_retries(config, short, async |connection| migrations.run_direct(None, connection, false).await).await?;
    with_retries(config, Duration::ZERO, async |connection| Ok(complete_indexes(connection).await?)).await?;
    let placed = with_retries(config, short, async |connection| Ok(citus::place(connection).await?)).await?;
    if placed > 0 {
        tracing::info!(tables = placed, "tables were placed on the Citus nodes");
    }
    Ok(applied)
}

/// Builds the indexes of partitions that a migration left out, without blocking writes. PostgreSQL cannot create the
/// index of a partitioned table concurrently. A migration therefore uses `create index … on only`, which creates an
/// invalid index without those of the partitions. It becomes valid when the last partition has its index.
async fn complete_indexes(connection: &mut PgConnection) -> sqlx::Result<()> {
    let missing: Vec<(String, String, String, String)> = sqlx::query_as(
        "select p.inhrelid::regclass::text, format('%I', t.relname || '_' || c.relname), c.oid::regclass::text,
                pg_get_indexdef(c.oid)
         from pg_index i
         join pg_class c on c.oid = i.indexrelid and c.relkind = 'I'
         join pg_inherits p on p.inhparent = i.indrelid
         join pg_class t on t.oid = p.inhrelid
         where not i.indisvalid and not exists (
             select from pg_inherits a join pg_index x on x.indexrelid = a.inhrelid
             where a.inhparent = i.indexrelid and x.indrelid = p.inhrelid)",
    )
    .fetch_all(&mut *connection)
    .await?;
    for (partition, name, of, definition) in missing {
        let Some((kind, columns)) = definition.split_once(" USING ") else { continue };
        let unique = if kind.starts_with("CREATE UNIQUE") { "unique" } else { "" };
        for statement in [
            // An earlier attempt that was interrupted has left an invalid index.
            format!("drop index concurrently if exists {name}"),
            format!("create {unique} index concurrently {name} on {partition} using {columns}"),
            format!("alter index {of} attach partition {name}"),
        ] {
            connection.execute(AssertSqlSafe(statement)).await?;
        }
    }
    Ok(())
}

/// Reverts migrations down to `target`.
pub async fn undo(config: &Settings, migrations: &Migrator, target: i64) -> Result<(), MigrateError> {
    let lock_timeout = config.migration_lock_timeout;
    let migrations = &for_database(config, migrations).await?;
    with_retries(config, lock_timeout, async |connection| migrations.undo(connection, target).await).await
}

/// The migrations in the form that this database can apply.
async fn for_database(config: &Settings, migrations: &Migrator) -> Result<Migrator, MigrateError> {
    let short = config.migration_lock_timeout;
    let is_citus = with_retries(config, short, async |connection| Ok(citus::is_present(connection).await?)).await?;
    Ok(if is_citus { for_citus(migrations) } else { with(migrations, Migration::clone) })
}

/// The migrations, each changed by `convert`.
fn with(migrations: &Migrator, convert: impl FnMut(&Migration) -> Migration) -> Migrator {
    let mut converted = Migrator::with_migrations(migrations.iter().map(convert).collect());
    converted.set_ignore_missing(migrations.ignore_missing);
    converted
}

/// The migrations with one statement each, except those that run without a transaction, which have only one.
fn for_citus(migrations: &Migrator) -> Migrator {
    with(migrations, |migration| {
        let mut migration = migration.clone();
        if !migration.no_tx {
            migration.sql = AssertSqlSafe(citus::one_statement(migration.sql.as_str())).into_sql_str();
        }
        migration
    })
}

async fn applied_versions(connection: &mut PgConnection) -> sqlx::Result<Vec<i64>> {
    let exists: bool =
        sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *connection).await?;
    if !exists {
        return Ok(Vec::new());
    }
    sqlx::query_scalar("select version from _sqlx_migrations where success").fetch_all(connection).await
}

/// Runs a step, and retries it with growing pauses while another session holds a lock that it needs.
async fn with_retries<T>(
    config: &Settings,
    lock_timeout: Duration,
    step: impl AsyncFn(&mut PgConnection) -> Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    const MAX_PAUSE: Duration = Duration::from_secs(10);
    let began = std::time::Instant::now();
    let mut pause = config.migration_lock_timeout;
    loop {
        // A new connection for each attempt: after a failed step the old one still holds the migration lock.
        let mut connection = PgConnection::connect_with(&connection(owner(config))?).await?;
        let set = format!("set lock_timeout = {}", lock_timeout.as_millis());
        connection.execute(AssertSqlSafe(set)).await?;
        let outcome = step(&mut connection).await;
        // Closing can fail only if the connection is already broken.
        let _ = connection.close().await;
        let (migration, error) = match &outcome {
            Err(MigrateError::ExecuteMigration(error, version)) => (Some(*version), error),
            Err(MigrateError::Execute(error)) => (None, error),
            _ => return outcome,
        };
        if !is_conflict(error) || began.elapsed() + pause > config.migration_patience {
            return outcome;
        }
        let seconds = pause.as_secs_f64();
        if let Some(migration) = migration {
            tracing::warn!(migration, %error, seconds, "migration timed out waiting for a lock; retrying");
        } else {
            tracing::warn!(%error, seconds, "another process is migrating; retrying");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(MAX_PAUSE);
    }
}

fn bounded(config: &Settings) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(config.max_connections)
        .acquire_timeout(config.acquire_timeout)
        // A ping before each use costs a third of the throughput. A dead connection fails at its first statement
        // instead.
        .test_before_acquire(false)
        .after_release(|connection, _| Box::pin(is_done(connection)))
        .max_lifetime(Duration::from_mins(30))
}

/// Waits at most two seconds for pending output of a released connection. The pool would wait without a limit: a
/// request that timed out because the server's host died leaves a connection that never responds, and it would occupy a
/// slot of the pool for about 15 minutes, until the operating system closes it. Costs nothing if no output is pending.
async fn is_done(connection: &mut PgConnection) -> sqlx::Result<bool> {
    match tokio::time::timeout(Duration::from_secs(2), connection.flush()).await {
        Ok(done) => done.map(|()| true),
        // Not `Ok(false)`: the pool would then send a termination message to a server that does not respond.
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

/// Begins a transaction. If the caller is cancelled in the meantime, the transaction is rolled back.
///
/// `PgPool::begin` does not do that: sqlx rolls back only transactions that it knows to have begun. The connection of a
/// request that reached its deadline while it waited for `begin` would return to the pool inside a transaction, and
/// later requests would write in it. Here a task completes `begin`, and drops the transaction if no caller is left.
pub async fn begin(pool: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    begin_by(pool, None).await
}

/// For [`begin_with`]: statements are planned for their parameters. A generic plan cannot tell the first page from the
/// last, or a filter that few rows match from one that all match.
pub const CUSTOM_PLANS: &str = "begin; set local plan_cache_mode = force_custom_plan";

/// Like [`begin`], with a custom `begin` statement.
pub async fn begin_with(pool: &PgPool, statement: impl SqlSafeStr) -> sqlx::Result<Transaction<'static, Postgres>> {
    begin_by(pool, Some(statement.into_sql_str())).await
}

async fn begin_by(pool: &PgPool, statement: Option<SqlStr>) -> sqlx::Result<Transaction<'static, Postgres>> {
    let connection = pool.acquire().await?;
    // The task only fails if the runtime stops.
    tokio::spawn(Transaction::begin(connection, statement)).await.unwrap_or(Err(sqlx::Error::WorkerCrashed))
}

/// Returns the time of the database. A statement that compares times with it takes it as a parameter: on Citus, a
/// statement may run on another node, with another clock.
pub async fn now(executor: impl PgExecutor<'_>) -> sqlx::Result<OffsetDateTime> {
    sqlx::query_scalar("select statement_timestamp()").fetch_one(executor).await
}

fn connection(url: &SecretUrl) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(url.expose().parse::<PgConnectOptions>()?.application_name("matchday"))
}

/// Whether the database has the schema that this binary was built for.
#[derive(Debug, PartialEq, Eq)]
pub enum Schema {
    /// All migrations are applied.
    Current,
    /// Number of missing migrations.
    Behind(usize),
    /// The role cannot read the list of applied migrations.
    Closed(String),
}

/// Compares the applied migrations with the built-in ones, without writing anything.
pub async fn schema(pool: &PgPool) -> sqlx::Result<Schema> {
    let readable = "select current_user::text, has_table_privilege(to_regclass('_sqlx_migrations'), 'select')";
    let applied: Vec<i64> = match sqlx::query_as(readable).fetch_one(pool).await? {
        (_, Some(true)) => {
            sqlx::query_scalar("select version from _sqlx_migrations where success").fetch_all(pool).await?
        }
        (role, Some(false)) => return Ok(Schema::Closed(role)),
        (_, None) => Vec::new(),
    };
    let missing = MIGRATIONS
        .iter()
        .filter(|migration| migration.migration_type.is_up_migration() && !applied.contains(&migration.version))
        .count();
    Ok(if missing == 0 { Schema::Current } else { Schema::Behind(missing) })
}

/// Privileges that the service's role must not have.
#[derive(Debug, PartialEq, Eq)]
pub struct ExcessPrivileges {
    pub role: String,
    /// Append-only tables whose rows the role can update or delete, and such partitions of other append-only tables.
    pub tables: Vec<String>,
}

/// Checks whether the pool's role can modify append-only tables, which are tables whose comment contains the word
/// "append-only". Superusers can, and so can owners, even after they revoked their own privileges.
pub async fn excess(pool: &PgPool) -> sqlx::Result<Option<ExcessPrivileges>> {
    // A partition has separate privileges, which apply to statements that name it instead of its parent.
    let found: (String, Vec<String>) = sqlx::query_as(
        r"with recursive kept as (
              select objoid as oid, objoid as parent from pg_description
              where classoid = 'pg_class'::regclass and objsubid = 0 and description ~ '\mappend-only\M'
              union
              select inhrelid, inhparent from pg_inherits join kept on kept.oid = inhparent
          ), open as (
              select c.oid, c.relname::text as name, kept.parent from kept join pg_class c using (oid)
              where c.relkind in ('r', 'p')
                and (has_any_column_privilege(c.oid, 'update') or has_table_privilege(c.oid, 'delete, truncate')
                     or pg_has_role(c.relowner, 'member'))
          )
          select current_user::text, coalesce(array_agg(name order by name), '{}')
          from open where parent = oid or parent not in (select oid from open)",
    )
    .fetch_one(pool)
    .await?;
    let (role, tables) = found;
    Ok((!tables.is_empty()).then_some(ExcessPrivileges { role, tables }))
}

/// Whether new sessions have durable commits by default. Server, database or role can turn them off; this service turns
/// them on for its own connections.
pub async fn is_durable_by_default(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar("select reset_val <> 'off' from pg_settings where name = 'synchronous_commit'")
        .fetch_one(pool)
        .await
}

/// Whether the same statement may succeed soon: lost connection; no connections, memory or disk left; server starting
/// or shutting down; statement timeout; a former primary that is read-only now; serialisation failure, deadlock, lock
/// not available.
pub fn is_transient(error: &sqlx::Error) -> bool {
    const PASSING: [&str; 8] = ["08", "53", "57P", "57014", "25006", "40001", "40P01", "55P03"];
    match error {
        // `Protocol` covers a load balancer without a primary, which accepts connections and closes them without a
        // response.
        sqlx::Error::PoolTimedOut
        | sqlx::Error::PoolClosed
        | sqlx::Error::Io(_)
        | sqlx::Error::Tls(_)
        | sqlx::Error::Protocol(_) => true,
        sqlx::Error::Database(inner) => {
            inner.code().is_some_and(|code| PASSING.iter().any(|class| code.starts_with(class)))
        }
        _ => false,
    }
}

/// Whether the statement only conflicted with another transaction: serialisation failure, deadlock, lock not available.
pub fn is_conflict(error: &sqlx::Error) -> bool {
    let code = error.as_database_error().and_then(sqlx::error::DatabaseError::code);
    code.is_some_and(|code| ["40001", "40P01", "55P03"].contains(&&*code))
}

/// Whether the database is unavailable, so any other statement would probably fail too.
pub fn is_unavailable(error: &sqlx::Error) -> bool {
    is_transient(error) && !is_conflict(error)
}

/// Deletes rows in steps of 1,000, so locks are held briefly; returns the total. `step` receives the maximum
/// number of rows and returns how many it deleted.
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

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use sqlx::ConnectOptions as _;

    use super::*;
    use crate::{
        settings::Setting,
        testing::{settings, with_database, with_pools},
    };

    const LEDGER: &str = "create table ledger (user_id bigint, id bigint generated always as identity, amount bigint,
                                               primary key (user_id, id)) partition by hash (user_id);
        comment on table ledger is 'user: append-only, payments';
        create table ledger_0 partition of ledger for values with (modulus 2, remainder 0);
        create table ledger_1 partition of ledger for values with (modulus 2, remainder 1)";

    async fn run(pool: &PgPool, statement: &'static str) -> sqlx::Result<()> {
        pool.execute(statement).await.map(|_| ())
    }

    async fn is_refused(pool: &PgPool, statement: &'static str) -> bool {
        let refused =
            |error: sqlx::Error| error.as_database_error().and_then(|error| error.code().map(|c| c == "42501"));
        run(pool, statement).await.err().and_then(refused).unwrap_or_default()
    }

    /// A request can be cancelled at any moment, also while it waits for `begin`.
    #[tokio::test]
    async fn cancelled_begin_leaves_no_transaction_open() {
        with_pools(async |db, owner| {
            run(&owner, "create table notes (note int); grant all on notes to matchday_app").await.expect("a table");
            let one = || PgPoolOptions::new().max_connections(1).connect_with((*db.connect_options()).clone());
            let pool = one().await.expect("connected");
            for note in 0..20 {
                assert!(begin(&pool).now_or_never().is_none(), "begin takes longer than one poll");
                sqlx::query("insert into notes values ($1)").bind(note).execute(&pool).await.expect("written");
            }
            let written: i64 = sqlx::query_scalar("select count(*) from notes").fetch_one(&db).await.expect("read");
            assert_eq!(written, 20, "another connection sees every note, so none waits in a transaction");
            pool.close().await;
        })
        .await;
    }

    #[tokio::test]
    async fn service_role_uses_all_tables_and_owns_none() {
        with_pools(async |db, owner| {
            let (service, owner) = (&db, &owner);
            assert_eq!(schema(service).await.expect("checked"), Schema::Current);
            for statement in [
                "alter table teams add colour text",
                "drop table teams",
                "truncate teams",
                "create index on teams (name)",
                "create trigger t after insert on teams \
                 for each row execute function suppress_redundant_updates_trigger()",
                "create table more (id bigint)",
                "delete from _sqlx_migrations",
                "create role another",
            ] {
                assert!(is_refused(service, statement).await, "{statement}");
            }
            run(owner, "create table more (id bigint generated always as identity, old serial)").await.expect("made");
            for statement in
                ["insert into more default values", "update more set old = 7", "select * from more", "delete from more"]
            {
                run(service, statement).await.unwrap_or_else(|error| panic!("{statement}: {error}"));
            }
        })
        .await;
    }

    #[tokio::test]
    async fn commits_are_durable_despite_role_settings() {
        with_pools(async |db, owner| {
            let config = Settings {
                url: Setting::parse(db.connect_options().to_url_lossy().as_str()).expect("a URL"),
                ..settings(&[], Settings::read)
            };
            let connect = || pool(&config).expect("a pool");
            let shown = async |pool: &PgPool| {
                sqlx::query_scalar::<_, String>("show synchronous_commit").fetch_one(pool).await.expect("shown")
            };
            let name: String = sqlx::query_scalar("select current_database()").fetch_one(&owner).await.expect("read");
            for (given, expected, by_default) in
                [("off", "on", false), ("on", "on", true), ("remote_apply", "remote_apply", true)]
            {
                let alter = format!("alter database {name} set synchronous_commit = {given}");
                owner.execute(AssertSqlSafe(alter)).await.expect("altered");
                let db = connect();
                assert_eq!(shown(&db).await, expected, "{given}");
                assert_eq!(shown(&writers(&db, 1, WriterSettings::from(&config))).await, expected, "{given}");
                assert_eq!(is_durable_by_default(&db).await.expect("read"), by_default, "{given}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn role_that_can_modify_append_only_tables_is_found() {
        with_pools(async |db, owner| {
            let (service, owner) = (&db, &owner);
            let found = async |pool: &PgPool| excess(pool).await.expect("checked").map(|excess| excess.tables);
            assert_eq!(found(service).await, None, "no append-only table of the schema can be modified");
            run(owner, LEDGER).await.expect("made");
            let all = ["ledger", "ledger_0", "ledger_1"].map(str::to_owned).to_vec();
            assert_eq!(found(service).await, Some(all[..1].to_vec()), "new tables are granted with all privileges");
            run(owner, "revoke update, delete on ledger from matchday_app").await.expect("revoked");
            assert_eq!(found(service).await, Some(all[1..].to_vec()), "partitions have separate privileges");
            run(owner, "revoke update, delete on ledger_0, ledger_1 from matchday_app").await.expect("revoked");
            assert_eq!(found(service).await, None);

            run(service, "insert into ledger (user_id, amount) values (1, 5)").await.expect("inserted");
            for statement in [
                "update ledger set amount = 6",
                "delete from ledger",
                "delete from ledger_0",
                "truncate ledger",
                "select * from ledger for update",
                "insert into ledger overriding system value values (1, 1, 6) \
                 on conflict (user_id, id) do update set amount = 6",
            ] {
                assert!(is_refused(service, statement).await, "{statement}");
            }

            run(owner, "grant update (amount) on ledger to matchday_app").await.expect("granted");
            assert_eq!(found(service).await, Some(all[..1].to_vec()), "one column suffices");
            run(owner, "revoke update (amount) on ledger from matchday_app").await.expect("revoked");
            run(owner, "grant truncate on ledger to public").await.expect("granted");
            assert_eq!(found(service).await, Some(all[..1].to_vec()), "grants to public count");

            let by_owner = excess(owner).await.expect("checked").expect("owners have all privileges");
            let of_the_test = by_owner.tables.iter().filter(|table| table.starts_with("ledger"));
            assert_eq!(of_the_test.collect::<Vec<_>>(), [&all[0]]);
            assert!(by_owner.tables.iter().any(|table| table == "coin_entries"), "{by_owner:?}");
            let role: String = sqlx::query_scalar("select current_user::text").fetch_one(owner).await.expect("read");
            assert_eq!(by_owner.role, role);
        })
        .await;
    }

    #[tokio::test]
    async fn migration_completes_indexes_of_partitions() {
        with_pools(async |_, owner| {
            run(&owner, LEDGER).await.expect("made");
            run(&owner, "create index by_amount on only ledger (amount) where amount > 0").await.expect("made");
            run(&owner, "create unique index by_id on only ledger (user_id, id)").await.expect("made");
            // Remains of an interrupted attempt.
            run(&owner, "create index ledger_1_by_amount on ledger_1 (amount)").await.expect("made");
            let config = Settings {
                url: Setting::parse(owner.connect_options().to_url_lossy().as_str()).expect("a URL"),
                owner_url: None,
                ..settings(&[], Settings::read)
            };
            for _ in 0..2 {
                assert_eq!(migrate(&config, &MIGRATIONS).await.expect("migrated"), 0);
            }
            let found: Vec<(String, bool, bool)> = sqlx::query_as(
                "select indexrelid::regclass::text, indisvalid, indisunique from pg_index
                 where indexrelid::regclass::text like '%by\\_%' and indrelid::regclass::text like 'ledger%' order by 1",
            )
            .fetch_all(&owner)
            .await
            .expect("read");
            let names = ["by_amount", "by_id"].map(|name| [name.to_owned(), format!("ledger_0_{name}"), format!("ledger_1_{name}")]);
            let mut expected: Vec<_> =
                names.concat().into_iter().map(|name| (name.clone(), true, name.ends_with("by_id"))).collect();
            expected.sort();
            assert_eq!(found, expected);
        })
        .await;
    }

    /// HAProxy behaves like this while no server reports that it is the primary.
    #[tokio::test]
    async fn balancer_without_primary_counts_as_unavailable() {
        use tokio::io::AsyncReadExt as _;
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let port = listener.local_addr().expect("an address").port();
        tokio::spawn(async move {
            while let Ok((mut stream, _)) = listener.accept().await {
                let _ = stream.read(&mut [0; 64]).await;
            }
        });
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port).username("matchday");
        let connected = <sqlx::PgConnection as sqlx::Connection>::connect_with(&options).await;
        let error = connected.map(|_| ()).expect_err("no server");
        assert!(is_unavailable(&error), "{error:?}");
    }

    /// Plain PostgreSQL runs every form that Citus can run.
    #[tokio::test]
    async fn migrations_can_be_undone_and_applied_as_one_statement_each() {
        with_database(async |owner| {
            let mut connection = PgConnection::connect_with(&owner).await.expect("connected");
            let migrations = for_citus(&MIGRATIONS);
            migrations.undo(&mut connection, 0).await.expect("undone");
            let tables = "select count(*) from pg_tables where schemaname = 'public'";
            let left: i64 = sqlx::query_scalar(tables).fetch_one(&mut connection).await.expect("counted");
            assert_eq!(left, 1, "only the list of migrations is left");
            migrations.run_direct(None, &mut connection, false).await.expect("applied");
        })
        .await;
    }

    #[tokio::test]
    async fn unreadable_schema_differs_from_missing_schema() {
        with_pools(async |db, owner| {
            run(&owner, "revoke select on _sqlx_migrations from matchday_app").await.expect("revoked");
            assert_eq!(schema(&db).await.expect("checked"), Schema::Closed("matchday_app".to_owned()));
            run(&owner, "drop table _sqlx_migrations").await.expect("dropped");
            let all = MIGRATIONS.iter().filter(|migration| migration.migration_type.is_up_migration()).count();
            assert_eq!(schema(&db).await.expect("checked"), Schema::Behind(all));
        })
        .await;
    }
}
