//! The connection pool and the schema it expects.

use std::{
    sync::{Arc, LazyLock},
    time::Duration,
};

use sqlx::{
    Connection as _, Executor as _, PgConnection, PgPool,
    migrate::{MigrateError, Migrator},
    postgres::{PgConnectOptions, PgPoolOptions},
};

use super::settings::{Conditions, SecretUrl};
use crate::section;

section! {
    /// PostgreSQL: the truth.
    database: Settings {
        /// How to reach it, as a role that works with the tables and owns none of them.
        url: SecretUrl,
        /// The same as the role that owns the tables, for whoever migrates. Empty: `database.url`.
        owner_url: Option<SecretUrl> = "",
        /// The most connections this process opens, besides one for each writer of predictions and of coins and two for
        /// checking tokens.
        max_connections: u32 = "16",
        /// How long a request waits for a free connection before it answers 503.
        acquire_timeout: Duration = "3s",
        /// How long the server works on one statement. A request that gives up leaves its statement behind; this ends it.
        statement_timeout: Duration = "10s",
        /// How long a migration waits for a table that somebody is using. Everybody who wants the table meanwhile waits
        /// behind it, so it gives up soon, lets them pass, and tries again.
        migration_lock_timeout: Duration = "500ms",
        /// How long it goes on trying.
        migration_patience: Duration = "10m",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![
            (
                self.max_connections >= 8,
                "database.max_connections is below 8: workers alone may need that many at once".to_owned(),
            ),
            (
                self.migration_lock_timeout.as_millis() > 0,
                "database.migration_lock_timeout is 0: PostgreSQL takes that for ever, and everybody would wait behind a migration"
                    .to_owned(),
            ),
        ]
    }
}

/// The migrations, built into the binary. A database that knows more of them than this binary is fine: migrations are
/// made so that the version before still runs.
pub static MIGRATIONS: LazyLock<Migrator> = LazyLock::new(|| {
    let mut migrations = sqlx::migrate!("../../migrations");
    migrations.set_ignore_missing(true);
    migrations
});

/// Makes a connection's commits durable: with `synchronous_commit` off, which a role or a database may be given, a crash
/// of the server loses transactions that were acknowledged. It is set on every connection and not only checked at the
/// start, because a role can be changed while the process runs. Stricter settings, as for standbys, stay.
const DURABLE: &str =
    "select set_config('synchronous_commit', 'on', false) where current_setting('synchronous_commit') = 'off'";

/// A pool that connects when it is first used, so that a process can start, and say so, while the database is away.
pub fn pool(config: &Settings) -> Result<PgPool, sqlx::Error> {
    let statement_timeout = config.statement_timeout.as_millis();
    let options = bounded(config).after_connect(move |connection, _| {
        Box::pin(async move {
            // A process that is paused in the middle of something must not keep everybody else from it. And compiling a
            // statement takes longer than running most of ours.
            let set = format!(
                "set statement_timeout = {statement_timeout}; set idle_in_transaction_session_timeout = '60s'; set jit = off;
                 {DURABLE}"
            );
            connection.execute(sqlx::AssertSqlSafe(set)).await.map(|_| ())
        })
    });
    Ok(options.connect_lazy_with(connection(&config.url)?))
}

/// A few more connections to the same database, for statements that are the same thousands of times a second, and take
/// arrays that are long or short. The server would plan each execution anew, because it finds that a short array deserves
/// a plan of its own, and planning one takes longer than running it. And what it knows of a table's size is a minute
/// behind a rush; these statements read by key, whatever it thinks.
pub fn writers(db: &PgPool, connections: u32, statement_timeout: Duration) -> PgPool {
    let settings = format!(
        "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set enable_hashjoin = off;
         set enable_mergejoin = off; set jit = off; set statement_timeout = {0};
         set idle_in_transaction_session_timeout = {0}; {DURABLE}",
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

/// A pool as the role that owns the tables.
pub fn migration_pool(config: &Settings) -> Result<PgPool, sqlx::Error> {
    Ok(bounded(config).connect_lazy_with(connection(owner(config))?))
}

fn owner(config: &Settings) -> &SecretUrl {
    config.owner_url.as_ref().unwrap_or(&config.url)
}

/// Applies what is missing, while everybody goes on working; returns how many that were. A migration takes as long as it
/// takes, but it does not wait long for a lock: whoever wants the table, too, waits behind it.
pub async fn migrate(config: &Settings, migrations: &Migrator) -> Result<usize, MigrateError> {
    let soon = config.migration_lock_timeout;
    let known = patiently(config, soon, async |connection| Ok(applied_versions(connection).await?)).await?;
    let mut applied = 0;
    for migration in migrations.iter().filter(|migration| migration.migration_type.is_up_migration()) {
        if known.contains(&migration.version) {
            continue;
        }
        // What runs without a transaction, like making an index concurrently, is made for standing in nobody's way, and
        // would leave something half done behind if it gave up.
        let lock_timeout = if migration.no_tx { Duration::ZERO } else { soon };
        let step = async |connection: &mut PgConnection| {
            let is_missing = !applied_versions(connection).await?.contains(&migration.version);
            migrations.run_direct(Some(migration.version), connection, false).await?;
            Ok(is_missing)
        };
        // Somebody else may have been quicker.
        applied += usize::from(patiently(config, lock_timeout, step).await?);
    }
    // Nothing is left to be done; but all that is applied must be what this binary has.
    patiently(config, soon, async |connection| migrations.run_direct(None, connection, false).await).await?;
    Ok(applied)
}

/// Takes migrations back, down to this one.
pub async fn undo(config: &Settings, migrations: &Migrator, target: i64) -> Result<(), MigrateError> {
    patiently(config, config.migration_lock_timeout, async |connection| migrations.undo(connection, target).await).await
}

async fn applied_versions(connection: &mut PgConnection) -> sqlx::Result<Vec<i64>> {
    let exists: bool =
        sqlx::query_scalar("select to_regclass('_sqlx_migrations') is not null").fetch_one(&mut *connection).await?;
    if !exists {
        return Ok(Vec::new());
    }
    sqlx::query_scalar("select version from _sqlx_migrations where success").fetch_all(connection).await
}

/// Does a step, and does it again after a growing pause as long as somebody holds what it needs.
async fn patiently<T>(
    config: &Settings,
    lock_timeout: Duration,
    step: impl AsyncFn(&mut PgConnection) -> Result<T, MigrateError>,
) -> Result<T, MigrateError> {
    const LONGEST_PAUSE: Duration = Duration::from_secs(10);
    let began = std::time::Instant::now();
    let mut pause = config.migration_lock_timeout;
    loop {
        // Each time on a connection of its own: one on which a step failed keeps the migrations' lock.
        let mut connection = PgConnection::connect_with(&connection(owner(config))?).await?;
        let set = format!("set lock_timeout = {}", lock_timeout.as_millis());
        connection.execute(sqlx::AssertSqlSafe(set)).await?;
        let outcome = step(&mut connection).await;
        // It may be broken; then it is gone anyway.
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
            let told = "somebody holds what the migration needs; everybody else goes first, then it is tried again";
            tracing::warn!(migration, %error, seconds, "{told}");
        } else {
            tracing::warn!(%error, seconds, "somebody else is migrating; looking again");
        }
        tokio::time::sleep(pause).await;
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

fn bounded(config: &Settings) -> PgPoolOptions {
    PgPoolOptions::new()
        .max_connections(config.max_connections)
        .acquire_timeout(config.acquire_timeout)
        // A ping before every use costs a third of the throughput; a dead connection shows at the first statement.
        .test_before_acquire(false)
        .after_release(|connection, _| Box::pin(is_done(connection)))
        .max_lifetime(Duration::from_mins(30))
}

/// Waits for what a connection that is given back still has to say. The pool does so too, but for as long as it takes: a
/// request that gave up on a machine that died leaves a connection on which nothing is ever heard, and it would keep its
/// place among the few until the system gives it up, a quarter of an hour later. Where nothing is left to be said, this
/// costs nothing.
async fn is_done(connection: &mut PgConnection) -> sqlx::Result<bool> {
    match tokio::time::timeout(Duration::from_secs(2), connection.flush()).await {
        Ok(done) => done.map(|()| true),
        // Not `false`, which would say goodbye to whoever does not listen.
        Err(_) => Err(std::io::Error::from(std::io::ErrorKind::TimedOut).into()),
    }
}

fn connection(url: &SecretUrl) -> Result<PgConnectOptions, sqlx::Error> {
    Ok(url.expose().parse::<PgConnectOptions>()?.application_name("matchday"))
}

/// Whether the database has the schema that this binary was built for.
#[derive(Debug, PartialEq, Eq)]
pub enum Schema {
    /// It has.
    Current,
    /// Migrations are missing, this many.
    Behind(usize),
    /// This role may not even look.
    Closed(String),
}

/// Compares the applied migrations with those built in, without writing anything.
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

/// What a role may do and must not.
#[derive(Debug, PartialEq, Eq)]
pub struct Excess {
    /// The role.
    pub role: String,
    /// The append-only tables in which it could change or delete what is there, with their partitions.
    pub tables: Vec<String>,
}

/// Looks whether the pool's role could change what must stay as it was written: rows of tables whose comment has the word
/// "append-only". Superusers can, and so can owners, also of rights that they took from themselves.
pub async fn excess(pool: &PgPool) -> sqlx::Result<Option<Excess>> {
    // A partition has rights of its own, which count for whoever names it and not its table.
    let found: (String, Vec<String>) = sqlx::query_as(
        r"with recursive kept as (
              select objoid as oid from pg_description
              where classoid = 'pg_class'::regclass and objsubid = 0 and description ~ '\mappend-only\M'
              union
              select inhrelid from pg_inherits join kept on kept.oid = inhparent
          )
          select current_user::text, coalesce(array_agg(c.relname::text order by c.relname), '{}')
          from kept join pg_class c using (oid)
          where c.relkind in ('r', 'p')
            and (has_any_column_privilege(c.oid, 'update') or has_table_privilege(c.oid, 'delete, truncate')
                 or pg_has_role(c.relowner, 'member'))",
    )
    .fetch_one(pool)
    .await?;
    let (role, tables) = found;
    Ok((!tables.is_empty()).then_some(Excess { role, tables }))
}

/// Whether the server, the database or the role turns durable commits off for new sessions. This service turns them on
/// again for its own.
pub async fn is_durable_by_default(pool: &PgPool) -> sqlx::Result<bool> {
    sqlx::query_scalar("select reset_val <> 'off' from pg_settings where name = 'synchronous_commit'")
        .fetch_one(pool)
        .await
}

/// Whether the same statement may well succeed soon: connection lost; out of connections, memory or disk; being shut down
/// or started; a statement that took too long; a primary that is one no more; serialisation, deadlock, lock not available.
pub fn is_passing(error: &sqlx::Error) -> bool {
    const PASSING: [&str; 8] = ["08", "53", "57P", "57014", "25006", "40001", "40P01", "55P03"];
    match error {
        // The last one is something that is no PostgreSQL and answers in its place: a balancer without a primary takes
        // connections, and ends them before a word was said.
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

#[cfg(test)]
mod tests {
    use sqlx::ConnectOptions as _;

    use super::*;
    use crate::{
        settings::Setting,
        testing::{settings, with_pools},
    };

    const LEDGER: &str = "create table ledger (user_id bigint, id bigint generated always as identity, amount bigint,
                                               primary key (user_id, id)) partition by hash (user_id);
        comment on table ledger is 'user: append-only, what was paid';
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

    #[tokio::test]
    async fn the_service_works_with_all_tables_and_owns_none() {
        with_pools(async |db, owner| {
            let (service, owner) = (&db, &owner);
            assert_eq!(schema(service).await.expect("a look"), Schema::Current);
            for statement in [
                "alter table teams add colour text",
                "drop table teams",
                "truncate teams",
                "create index on teams (name)",
                "create trigger t after insert on teams for each row execute function suppress_redundant_updates_trigger()",
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
    async fn commits_are_durable_whatever_the_role_says() {
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
                owner.execute(sqlx::AssertSqlSafe(alter)).await.expect("altered");
                let db = connect();
                assert_eq!(shown(&db).await, expected, "{given}");
                assert_eq!(shown(&writers(&db, 1, Duration::from_secs(5))).await, expected, "{given}");
                assert_eq!(is_durable_by_default(&db).await.expect("read"), by_default, "{given}");
            }
        })
        .await;
    }

    #[tokio::test]
    async fn whoever_could_change_what_only_grows_is_named() {
        with_pools(async |db, owner| {
            let (service, owner) = (&db, &owner);
            let found = async |pool: &PgPool| excess(pool).await.expect("a look").map(|excess| excess.tables);
            assert_eq!(found(service).await, None, "no table of the schema is open to changes that it must not have");
            run(owner, LEDGER).await.expect("made");
            let all = ["ledger", "ledger_0", "ledger_1"].map(str::to_owned).to_vec();
            assert_eq!(found(service).await, Some(all.clone()), "a table is granted with all rights");
            run(owner, "revoke update, delete on ledger from matchday_app").await.expect("revoked");
            assert_eq!(found(service).await, Some(all[1..].to_vec()), "its partitions have rights of their own");
            run(owner, "revoke update, delete on ledger_0, ledger_1 from matchday_app").await.expect("revoked");
            assert_eq!(found(service).await, None);

            run(service, "insert into ledger (user_id, amount) values (1, 5)").await.expect("it grows");
            for statement in [
                "update ledger set amount = 6",
                "delete from ledger",
                "delete from ledger_0",
                "truncate ledger",
                "select * from ledger for update",
                "insert into ledger overriding system value values (1, 1, 6) on conflict (user_id, id) do update set amount = 6",
            ] {
                assert!(is_refused(service, statement).await, "{statement}");
            }

            run(owner, "grant update (amount) on ledger to matchday_app").await.expect("granted");
            assert_eq!(found(service).await, Some(all[..1].to_vec()), "a column is enough");
            run(owner, "revoke update (amount) on ledger from matchday_app").await.expect("revoked");
            run(owner, "grant truncate on ledger to public").await.expect("granted");
            assert_eq!(found(service).await, Some(all[..1].to_vec()), "also what everybody may do");

            let by_owner = excess(owner).await.expect("a look").expect("an owner may do anything");
            let of_the_test = by_owner.tables.iter().filter(|table| table.starts_with("ledger"));
            assert_eq!(of_the_test.collect::<Vec<_>>(), all.iter().collect::<Vec<_>>());
            assert!(by_owner.tables.iter().any(|table| table == "coin_entries"), "{by_owner:?}");
            let role: String = sqlx::query_scalar("select current_user::text").fetch_one(owner).await.expect("read");
            assert_eq!(by_owner.role, role);
        })
        .await;
    }

    /// As HAProxy does while no server says that it is the primary.
    #[tokio::test]
    async fn a_balancer_without_a_primary_is_a_database_that_is_away() {
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
        let error = connected.map(|_| ()).expect_err("nobody is there");
        assert!(is_away(&error), "{error:?}");
    }

    #[tokio::test]
    async fn a_role_that_may_not_look_is_told_from_a_schema_that_is_missing() {
        with_pools(async |db, owner| {
            run(&owner, "revoke select on _sqlx_migrations from matchday_app").await.expect("revoked");
            assert_eq!(schema(&db).await.expect("a look"), Schema::Closed("matchday_app".to_owned()));
            run(&owner, "drop table _sqlx_migrations").await.expect("dropped");
            let all = MIGRATIONS.iter().filter(|migration| migration.migration_type.is_up_migration()).count();
            assert_eq!(schema(&db).await.expect("a look"), Schema::Behind(all));
        })
        .await;
    }
}
