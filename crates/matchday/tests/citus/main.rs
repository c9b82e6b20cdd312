//! Runs every checked query on plain PostgreSQL and on Citus, over the same rows and with the same arguments, and
//! compares the results. Errors alone would miss a statement that Citus runs with a wrong result.
//!
//! It needs the cluster of `dev/citus` (`just citus`); without one it does nothing.

#![expect(clippy::print_stdout, clippy::print_stderr, reason = "figures, and queries that were not compared")]

mod arguments;
mod failures;
mod figures;

use std::{
    collections::{BTreeMap, BTreeSet},
    path::{Path, PathBuf},
};

use matchday::testing::{cluster_is_available, with_database, with_plain_database};
use sqlx::{
    AssertSqlSafe, Column as _, Connection as _, Executor as _, PgConnection, Row as _, ValueRef as _,
    postgres::{PgConnectOptions, PgRow},
};

use self::arguments::{ELEMENTS, SETS, arguments, spread};

/// Queries with a result that may differ: it contains the current time, or a number that is drawn while the statement
/// runs. Only the number of rows is compared.
const DIFFERENT: [&str; 7] =
    ["now()", "statement_timestamp()", "nextval(", "insert_alone(", "open_matches(", "random()", "insert into outbox"];

/// Percentage of queries for which at least one set of arguments must find rows or change some.
const EFFECTIVE: usize = 80;

#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    /// Rows as text, sorted, and for a statement that writes also the table afterwards.
    Rows(Vec<String>),
    /// Number of affected or returned rows, if the content may differ.
    Count(u64),
    /// Both databases must refuse with the same code.
    Refused(String),
}

impl Outcome {
    fn is_effective(&self) -> bool {
        match self {
            Self::Rows(rows) => !rows.is_empty(),
            Self::Count(count) => *count > 0,
            Self::Refused(_) => false,
        }
    }
}

struct Query {
    name: String,
    text: String,
    /// Types of the parameters.
    types: Vec<String>,
}

fn queries() -> Vec<Query> {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    let folder: PathBuf = Path::new(&package).join("../../.sqlx");
    let mut queries: Vec<Query> = std::fs::read_dir(folder)
        .expect("the checked queries")
        .map(|entry| {
            let path = entry.expect("an entry").path();
            let query: serde_json::Value =
                serde_json::from_str(&std::fs::read_to_string(&path).expect("a file")).expect("JSON");
            let types = query["describe"]["parameters"]["Left"].as_array().expect("types");
            Query {
                name: path.file_stem().and_then(|name| name.to_str()).expect("a name").to_owned(),
                text: query["query"].as_str().expect("a query").to_owned(),
                types: types.iter().map(|one| one.as_str().expect("a type").to_owned()).collect(),
            }
        })
        .collect();
    queries.sort_by(|one, other| one.name.cmp(&other.name));
    queries
}

/// Table that a statement writes.
fn target(query: &str) -> Option<&str> {
    let words: Vec<&str> = query.split_whitespace().collect();
    let at = words.windows(2).position(|pair| pair == ["insert", "into"] || pair == ["delete", "from"]);
    let name = match at {
        Some(at) => words.get(at + 2),
        None => words.first().filter(|first| **first == "update").and_then(|_| words.get(1)),
    };
    name.map(|name| name.trim_matches(|c: char| !(c.is_alphanumeric() || c == '_')))
}

fn text(row: &PgRow) -> String {
    let column = |at: usize| {
        let value = row.try_get_raw(at).expect("a column");
        let shown = if value.is_null() { "null".to_owned() } else { value.as_str().expect("text").to_owned() };
        format!("{}={shown}", row.column(at).name())
    };
    (0..row.len()).map(column).collect::<Vec<_>>().join(" ")
}

async fn rows(connection: &mut PgConnection, sql: String) -> sqlx::Result<Vec<String>> {
    // The simple protocol returns text.
    let found = sqlx::raw_sql(AssertSqlSafe(sql)).fetch_all(connection).await?;
    let mut rows: Vec<String> = found.iter().map(text).collect();
    rows.sort_unstable();
    Ok(rows)
}

/// Runs a query in a transaction that is rolled back.
async fn run(connection: &mut PgConnection, query: &Query, arguments: &[String]) -> Outcome {
    connection.execute("begin").await.expect("begun");
    let outcome = run_inside(connection, query, arguments).await.unwrap_or_else(|error| {
        let code = error.as_database_error().and_then(|error| error.code().map(std::borrow::Cow::into_owned));
        let message = error.to_string();
        // Citus reports some violations of constraints without their code.
        let is_violation = message.contains("violates") || message.contains("duplicate key");
        Outcome::Refused(if is_violation { "violation".to_owned() } else { code.unwrap_or(message) })
    });
    connection.execute("rollback").await.expect("rolled back");
    connection.execute("deallocate all").await.expect("forgotten");
    outcome
}

async fn run_inside(connection: &mut PgConnection, query: &Query, arguments: &[String]) -> sqlx::Result<Outcome> {
    connection.execute(AssertSqlSafe(format!("prepare q as {}", query.text))).await?;
    let call =
        if arguments.is_empty() { "execute q".to_owned() } else { format!("execute q({})", arguments.join(", ")) };
    let table = target(&query.text);
    let returns = table.is_none() || query.text.contains("returning");
    let is_different = DIFFERENT.iter().any(|word| query.text.contains(word));
    if !returns {
        let affected = sqlx::raw_sql(AssertSqlSafe(call)).execute(&mut *connection).await?.rows_affected();
        let may_do_nothing = query.text.contains("do nothing");
        if is_different || affected == 0 && !may_do_nothing {
            return Ok(Outcome::Count(affected));
        }
        // Citus counts rows that `do nothing` leaves out.
        let counted = if may_do_nothing { String::new() } else { format!("{affected} rows") };
        let mut after = vec![counted];
        after.extend(content(connection, table.unwrap_or_default()).await?);
        return Ok(Outcome::Rows(after));
    }
    let mut found = rows(connection, call).await?;
    if is_different {
        return Ok(Outcome::Count(found.len() as u64));
    }
    if let Some(table) = table.filter(|_| !found.is_empty()) {
        found.extend(content(connection, table).await?);
    }
    Ok(Outcome::Rows(found))
}

async fn content(connection: &mut PgConnection, table: &str) -> sqlx::Result<Vec<String>> {
    rows(connection, format!("select * from {table}")).await
}

async fn connect(options: &PgConnectOptions) -> PgConnection {
    let mut connection = PgConnection::connect_with(options).await.expect("connected");
    let settings = "set timezone = 'UTC'; set citus.multi_shard_modify_mode = 'sequential';
                    set citus.propagate_set_commands = 'local'";
    connection.execute(settings).await.expect("set");
    sqlx::raw_sql(include_str!("seed.sql")).execute(&mut connection).await.expect("the same rows");
    // Ids that statements draw are above those of the rows, and equal on both.
    let sequences = "select setval(pg_get_serial_sequence(table_name, column_name), 100000)
                     from information_schema.columns where table_schema = 'public' and is_identity = 'YES'";
    connection.execute(sequences).await.expect("set");
    connection
}

#[tokio::test]
async fn every_query_has_the_same_result_on_citus() {
    if !cluster_is_available() {
        eprintln!("skipped: no Citus cluster; run `just citus` on a machine whose PostgreSQL has the citus extension");
        return;
    }
    with_plain_database(async |plain| {
        with_database(async |citus| compare(&plain, &citus).await).await;
    })
    .await;
}

async fn compare(plain: &PgConnectOptions, citus: &PgConnectOptions) {
    let (mut plain, mut citus) = (connect(plain).await, connect(citus).await);
    let (mut differences, mut idle, mut codes) = (Vec::new(), BTreeSet::new(), BTreeMap::<String, usize>::new());
    let queries = queries();
    let together = one_shard(&mut citus).await;
    for query in &queries {
        let mut is_effective = false;
        for set in 0..SETS {
            // Rows of several shards cannot be locked by one statement, and the service does not try.
            let ids = if query.text.contains("for update") || query.text.contains("for no key update") {
                together.clone()
            } else {
                spread(set)
            };
            let arguments = arguments(&query.text, &query.types, set, &ids);
            let expected = run(&mut plain, query, &arguments).await;
            let found = run(&mut citus, query, &arguments).await;
            is_effective |= expected.is_effective();
            if let Outcome::Refused(code) = &expected {
                *codes.entry(code.clone()).or_default() += 1;
            }
            if expected != found {
                differences.push(describe(query, &arguments, &expected, &found));
                break;
            }
        }
        if !is_effective {
            idle.insert(query.text.as_str());
        }
    }
    let effective = 100 - 100 * idle.len() / queries.len();
    println!("{} queries, {effective} % with an effect; refused by both: {codes:?}", queries.len());
    for query in &idle {
        println!("without an effect: {}", query.split_whitespace().collect::<Vec<_>>().join(" "));
    }
    assert!(differences.is_empty(), "{} queries differ:\n{}", differences.len(), differences.join("\n\n"));
    assert!(effective >= EFFECTIVE, "too few queries had an effect");
}

/// Users that are on one shard.
async fn one_shard(citus: &mut PgConnection) -> Vec<usize> {
    let users = format!(
        "select user_id from users
         where get_shard_id_for_distribution_column('users', user_id) = get_shard_id_for_distribution_column('users', 4)
         order by user_id limit {ELEMENTS}"
    );
    let users: Vec<i64> = sqlx::query_scalar(AssertSqlSafe(users)).fetch_all(citus).await.expect("users");
    assert_eq!(users.len(), ELEMENTS);
    users.into_iter().map(|user| usize::try_from(user).expect("a positive id")).collect()
}

/// Shows the first row that differs.
fn describe(query: &Query, arguments: &[String], expected: &Outcome, found: &Outcome) -> String {
    let differs = if let (Outcome::Rows(one), Outcome::Rows(other)) = (expected, found) {
        let at = one.iter().zip(other).position(|(one, other)| one != other).unwrap_or(one.len().min(other.len()));
        format!(
            "{} and {} rows; plain: {:?}, Citus: {:?}",
            one.len(),
            other.len(),
            one.get(at).map_or("", String::as_str),
            other.get(at).map_or("", String::as_str)
        )
    } else {
        let short = |outcome: &Outcome| format!("{outcome:?}").chars().take(300).collect::<String>();
        format!("plain: {}, Citus: {}", short(expected), short(found))
    };
    let text = query.text.split_whitespace().collect::<Vec<_>>().join(" ");
    format!("{} {text}\n  ({})\n  {differs}", query.name, arguments.join(", "))
}
