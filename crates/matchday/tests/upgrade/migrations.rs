//! The schema changes while an old version, which does not use the change, serves requests.

use std::{
    fs,
    path::{Path, PathBuf},
    time::{Duration, Instant},
};

use matchday::{
    config::Config,
    testing::{unique, with_database},
};
use platform::database;
use serde_json::Value;
use sqlx::{Connection as _, PgConnection, PgPool, migrate::Migrator, postgres::PgConnectOptions};

use crate::{
    load::{self, FIRST_BULK_USER, Load},
    stage::{client::within, process::Setting, proof::held},
};

/// Number of rows to backfill.
const ROWS: i64 = 10_000;

/// Typical changes of a release to heavily written tables: expand, backfill and, in a later release, contract.
const STEPS: [(&str, &str); 6] = [
    (
        "9001_expand",
        "alter table predictions add column origin text default 'app', add column note text;
         alter table users add column locale text default 'en';",
    ),
    // `database::migrate` builds the indexes of the partitions concurrently.
    ("9002_index", "create index predictions_by_origin on only predictions (origin, user_id);"),
    (
        "9003_backfill",
        "-- no-transaction
do $$
declare
    last bigint := 0;
    next bigint;
begin
    loop
        select max(user_id) into next
        from (select user_id from predictions where user_id > last order by user_id limit 1000) batch;
        exit when next is null;
        update predictions set note = 'filled in' where user_id > last and user_id <= next and note is null;
        last := next;
        commit;
    end loop;
end
$$",
    ),
    (
        "9004_constrain",
        "alter table predictions add constraint predictions_origin check (origin is not null) not valid;",
    ),
    ("9005_validate", "alter table predictions validate constraint predictions_origin;"),
    (
        "9006_contract",
        "alter table predictions alter column origin set not null;
         alter table predictions drop constraint predictions_origin, drop column note;",
    ),
];

/// A copy of the project's migrations, to which tests add their own. Deleted on drop.
struct Migrations(PathBuf);

impl Migrations {
    fn real() -> Self {
        let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
        let directory = std::env::temp_dir().join(unique("md_migrations"));
        fs::create_dir(&directory).expect("a directory");
        for file in fs::read_dir(Path::new(&package).join("../../migrations")).expect("the migrations") {
            let file = file.expect("a file");
            fs::copy(file.path(), directory.join(file.file_name())).expect("copied");
        }
        Self(directory)
    }

    async fn with(&self, (name, statements): (&str, &str)) -> Migrator {
        fs::write(self.0.join(format!("{name}.up.sql")), statements).expect("written");
        Migrator::new(self.0.as_path()).await.expect("migrations")
    }
}

impl Drop for Migrations {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.0);
    }
}

fn database_of(setting: &Setting) -> database::Settings {
    Config::parse(setting.variables().clone(), None).expect("valid").config.database
}

/// Number of sessions of this database that wait for a lock with a statement that starts with this text.
async fn waiting(db: &PgPool, statement: &str) -> i64 {
    sqlx::query_scalar(
        "select count(*) from pg_stat_activity
         where datname = current_database() and wait_event_type = 'Lock' and query ilike $1 || '%'",
    )
    .bind(statement)
    .fetch_one(db)
    .await
    .expect("read")
}

/// Opens a transaction, executes a statement in it, and keeps it open.
async fn holder(options: &PgConnectOptions, statement: &'static str) -> PgConnection {
    let mut connection = PgConnection::connect_with(options).await.expect("connected");
    for statement in ["begin", statement] {
        sqlx::query(statement).execute(&mut connection).await.expect("done");
    }
    connection
}

/// Waits until a statement has waited for its lock and timed out, twice.
async fn wait_for_two_lock_timeouts(db: &PgPool, statement: &str) {
    const PATIENCE: Duration = Duration::from_secs(20);
    within(PATIENCE, "the statement waits", async || waiting(db, statement).await > 0).await;
    within(PATIENCE, "the statement times out", async || waiting(db, statement).await == 0).await;
    within(PATIENCE, "the statement is retried", async || waiting(db, statement).await > 0).await;
    within(PATIENCE, "the statement times out again", async || waiting(db, statement).await == 0).await;
}

#[tokio::test]
async fn schema_change_under_load_fails_no_request() {
    with_database(async |options| {
        let setting = load::configure(Setting::new(&options));
        setting.expect(&["fixtures", "import", "-"], &load::document());
        let db = PgPool::connect_with(options).await.expect("connected");
        sqlx::query(
            "insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
             select $1 + n, 1, 'draw', 50, 1, now(), now() from generate_series(1, $2) n",
        )
        .bind(FIRST_BULK_USER)
        .bind(ROWS)
        .execute(&db)
        .await
        .expect("rows");
        let process = setting.start(&["serve"]);
        let load = Load::start(&process.public).await;
        load.wait_for_requests(200).await;
        let before = load.slowest();
        let migrations = Migrations::real();
        let mut steps = Vec::new();
        for step in STEPS {
            let began = Instant::now();
            let migrator = migrations.with(step).await;
            let applied = database::migrate(&database_of(&setting), &migrator).await.expect("migrated");
            assert_eq!(applied, 1, "{}", step.0);
            let took = began.elapsed();
            load.wait_for_requests(30).await;
            steps.push(format!("{} {took:.1?}", &step.0[5..]));
        }
        let during = load.slowest();
        // A process of the old version can still start.
        drop(setting.start(&["serve"]));
        let (acknowledged, took) = load.stop().await;
        let summary = acknowledged.verify_stored_once(&db, &setting, took).await;
        let (filled, is_made): (i64, bool) = sqlx::query_as(
            "select count(*) filter (where origin = 'app'), (select indisvalid from pg_index where indexrelid = 'predictions_by_origin'::regclass)
             from predictions where user_id > $1",
        )
        .bind(FIRST_BULK_USER)
        .fetch_one(&db)
        .await
        .expect("read");
        assert_eq!((filled, is_made), (ROWS, true));
        db.close().await;
        assert!(during < Duration::from_secs(10), "a request took {during:?}");
        held("Columns added, an index created, rows backfilled and a column dropped on the user and prediction tables, under load",
            &format!(
                "{summary}; steps: {}; the slowest request took {during:.1?} during the change and {before:.1?} before it; a \
                 process of the old version starts on the new schema",
                steps.join(", ")
            ),
        );

        // The opposite case: the database lacks a migration that the process needs.
        setting.expect(&["migrate", "down"], "");
        let refused = setting.run(&["serve"], "");
        let printed = String::from_utf8_lossy(&refused.stderr);
        assert_eq!(
            (refused.status.code(), printed.trim()),
            (Some(1), "matchday: the database lacks 1 migration: run `matchday migrate` first")
        );
        assert_eq!(setting.expect(&["migrate"], ""), "applied 1 migration");
        held("Process started on a database that lacks a migration",
            "exits immediately with status 1 and one line: the database lacks 1 migration: run `matchday migrate` first",
        );
    })
    .await;
}

#[tokio::test]
#[ignore = "takes a while: `just upgrade`"]
async fn blocked_migration_lets_requests_pass() {
    with_database(async |options| {
        let setting = load::configure(Setting::new(&options));
        setting.expect(&["fixtures", "import", "-"], &load::document());
        let process = setting.start(&["serve"]);
        let db = PgPool::connect_with(options.clone()).await.expect("connected");
        let load = Load::start(&process.public).await;
        load.wait_for_requests(300).await;
        let before = load.slowest();

        let report = holder(&options, "select count(*) from predictions").await;
        let held_since = Instant::now();
        let migrations = Migrations::real();
        let migrator = migrations.with(STEPS[0]).await;
        let database = database_of(&setting);
        let watching = async {
            wait_for_two_lock_timeouts(&db, "alter table predictions").await;
            load.wait_for_requests(300).await;
            let seen = (load.slowest(), held_since.elapsed());
            report.close().await.expect("released");
            seen
        };
        let (migrated, (during, held_for)) = tokio::join!(database::migrate(&database, &migrator), watching);
        assert_eq!(migrated.expect("migrated"), 1);
        let (acknowledged, took) = load.stop().await;
        let summary = acknowledged.verify_stored_once(&db, &setting, took).await;
        db.close().await;
        assert!(during < Duration::from_secs(8), "a request took {during:?}");
        held("Migration that needs a table locked by a long transaction, under load",
            &format!(
                "the table was locked for {held_for:.1?}; the migration gave up twice to let requests pass, and was applied \
                 once the table was free; the slowest request took {during:.1?} during the lock and {before:.1?} before it; \
                 {summary}"
            ),
        );
    })
    .await;
}

#[tokio::test]
async fn blocked_migration_is_logged_and_finally_fails() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        let db = PgPool::connect_with(options.clone()).await.expect("connected");
        let applied = async || {
            let counted = sqlx::query_scalar::<_, i64>("select count(*) from _sqlx_migrations").fetch_one(&db).await;
            counted.expect("counted")
        };
        let all = applied().await;
        for _ in 0..2 {
            setting.expect(&["migrate", "down"], "");
        }
        let report = holder(&options, "lock table users, reports, events, rooms, operator_actions in access exclusive mode").await;
        let impatient = setting.clone().with("MATCHDAY_DATABASE__MIGRATION_PATIENCE", "600ms");
        let refused = tokio::task::spawn_blocking(move || impatient.run(&["migrate"], "")).await.expect("run");
        let printed = String::from_utf8_lossy(&refused.stderr).trim().to_owned();
        assert_eq!(refused.status.code(), Some(1), "{printed}");
        let last = printed.lines().last().expect("a line");
        let named = last.strip_prefix("matchday: while executing migration ").and_then(|rest| rest.split_once(':'));
        let waited_for = named.filter(|(_, why)| why.contains("due to lock timeout")).and_then(|(number, _)| number.parse().ok());
        let waited_for: i64 = waited_for.unwrap_or_else(|| panic!("{printed}"));
        // Migrations before the blocked one may have been applied.
        let left = all - applied().await;
        assert!((1..=2).contains(&left), "{left} are left");

        let patient = setting.clone();
        let migrating = tokio::task::spawn_blocking(move || patient.run(&["migrate"], ""));
        // A migration is sent as one message, which starts with a comment.
        wait_for_two_lock_timeouts(&db, "-- ").await;
        report.close().await.expect("released");
        let output = migrating.await.expect("run");
        let lines: Vec<Value> = String::from_utf8_lossy(&output.stderr)
            .lines()
            .map(|line| serde_json::from_str(line).unwrap_or_else(|_| panic!("not a log line: {line}")))
            .collect();
        assert!(output.status.success() && lines.len() >= 2, "{lines:#?}");
        for line in &lines {
            assert_eq!(
                (line["message"].as_str(), line["migration"].as_i64()),
                (Some("migration timed out waiting for a lock; retrying"), Some(waited_for))
            );
        }
        let printed = if left == 1 { "applied 1 migration".to_owned() } else { format!("applied {left} migrations") };
        assert_eq!(String::from_utf8_lossy(&output.stdout).trim(), printed);
        assert_eq!(setting.expect(&["migrate", "status"], ""), "the database is up to date");
        db.close().await;
        held("`matchday migrate` while another transaction locks a table that it needs",
            &format!(
                "logs one line per attempt ({} here), and applied both migrations once the table was free; without success \
                 within database.migration_patience it exits with status 1 and names the migration",
                lines.len()
            ),
        );
    })
    .await;
}
