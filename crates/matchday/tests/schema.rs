//! Checks the data model's rules against the migrated database.
//!
//! The rules keep sharding by user possible: all rows of a user can live on one shard, shared data is small, and no
//! single row is written by all users. The comment of every table starts with the table's kind (see the first
//! migration). These tests apply the rules of that kind to each table, and show that each rule catches a table that
//! violates it.

use std::{
    collections::BTreeMap,
    path::{Path, PathBuf},
};

use matchday::testing::with_database;
use sqlx::PgPool;

use self::statements::breaks;

#[path = "schema/statements.rs"]
mod statements;

const KINDS: [&str; 8] = ["user", "reference", "local", "room", "claim", "tally", "timed", "queue"];

/// Newest migration of the first release. Until it is set, migrations may contain several statements.
const FIRST_RELEASE: Option<i64> = None;

type Kinds = BTreeMap<String, String>;

/// Root of the clone that runs the tests. It is read at run time, because several clones may share one target folder.
fn repository() -> PathBuf {
    let package = std::env::var_os("CARGO_MANIFEST_DIR").expect("cargo runs the tests");
    Path::new(&package).join("../..")
}

async fn kinds(db: &PgPool) -> Kinds {
    let rows: Vec<(String, Option<String>)> = sqlx::query_as(
        "select c.relname::text, split_part(obj_description(c.oid), ':', 1)
         from pg_class c join pg_namespace n on n.oid = c.relnamespace
         where n.nspname = 'public' and c.relkind in ('r', 'p') and not c.relispartition and c.relname <> '_sqlx_migrations'",
    )
    .fetch_all(db)
    .await
    .expect("the tables");
    rows.into_iter().map(|(name, kind)| (name, kind.unwrap_or_default())).collect()
}

/// Kinds of views: statements with a view follow the rules of its tables.
async fn views(db: &PgPool) -> Kinds {
    let rows: Vec<(String, Option<String>)> = sqlx::query_as(
        "select c.relname::text, split_part(obj_description(c.oid), ':', 1)
         from pg_class c where c.relnamespace = 'public'::regnamespace and c.relkind = 'v'",
    )
    .fetch_all(db)
    .await
    .expect("the views");
    rows.into_iter()
        .map(|(name, kind)| (name, kind.expect("the comment of a view starts with the kind of its tables")))
        .collect()
}

/// Columns of the index query.
type IndexRow = (String, String, bool, bool, Vec<String>, Vec<String>);

struct Index {
    table: String,
    name: String,
    unique: bool,
    primary: bool,
    /// Column names, parallel to `types`. An empty name is an expression.
    columns: Vec<String>,
    types: Vec<String>,
}

async fn indexes(db: &PgPool) -> Vec<Index> {
    let rows: Vec<IndexRow> = sqlx::query_as(
        "select t.relname::text, i.relname::text, x.indisunique, x.indisprimary,
                array(select coalesce(a.attname, '')::text from unnest(x.indkey) with ordinality k (number, position)
                      left join pg_attribute a on a.attrelid = t.oid and a.attnum = k.number order by position),
                array(select coalesce(format_type(a.atttypid, null), '') from unnest(x.indkey) with ordinality k (number, position)
                      left join pg_attribute a on a.attrelid = t.oid and a.attnum = k.number order by position)
         from pg_index x
         join pg_class t on t.oid = x.indrelid join pg_class i on i.oid = x.indexrelid
         join pg_namespace n on n.oid = t.relnamespace
         where n.nspname = 'public'",
    )
    .fetch_all(db)
    .await
    .expect("the indexes");
    rows.into_iter()
        .map(|(table, name, unique, primary, columns, types)| Index { table, name, unique, primary, columns, types })
        .collect()
}

/// Lists every rule violation in the database.
async fn violations(db: &PgPool) -> Vec<String> {
    let (kinds, indexes) = (kinds(db).await, indexes(db).await);
    let mut found = Vec::new();
    for (table, kind) in &kinds {
        if !KINDS.contains(&kind.as_str()) {
            found.push(format!("{table}: the comment does not start with a table kind"));
        }
        let primary = indexes.iter().find(|index| index.table == *table && index.primary);
        let key: &[String] = primary.map_or(&[], |index| &index.columns);
        let (first, first_type) =
            primary.map_or(("", ""), |index| (index.columns[0].as_str(), index.types[0].as_str()));
        match kind.as_str() {
            "user" => {
                if first != "user_id" || first_type != "bigint" {
                    found.push(format!("{table}: the primary key does not start with user_id bigint"));
                }
                for index in indexes.iter().filter(|index| index.table == *table && index.unique) {
                    if !index.columns.iter().any(|column| column == "user_id") {
                        found.push(format!("{table}: {} is unique without user_id", index.name));
                    }
                }
            }
            "room" if first != "room_id" || first_type != "bigint" => {
                found.push(format!("{table}: the primary key does not start with room_id bigint"));
            }
            "claim" if key.len() != 1 || first == "user_id" => {
                found.push(format!("{table}: a claim is keyed by the claimed value alone"));
            }
            "tally" if !key.iter().any(|column| column == "slot") => {
                found.push(format!("{table}: a tally without slots makes all writers wait for one row"));
            }
            "queue" if key.len() != 1 || first_type != "bigint" => {
                found.push(format!("{table}: a queue is ordered by a single bigint identity"));
            }
            "timed" if !is_swept(db, table, &indexes).await => {
                found.push(format!("{table}: neither partitioned nor indexed by time"));
            }
            _ => {}
        }
    }
    found.extend(columns(db, &kinds).await);
    found.extend(foreign_keys(db, &kinds).await);
    found.extend(functions(db, &kinds).await);
    let triggers: Vec<String> = sqlx::query_scalar(
        "select tgrelid::regclass::text || ': has the trigger ' || tgname from pg_trigger where not tgisinternal",
    )
    .fetch_all(db)
    .await
    .expect("the triggers");
    found.extend(triggers);
    found
}

async fn is_swept(db: &PgPool, table: &str, indexes: &[Index]) -> bool {
    let partitioned: bool = sqlx::query_scalar("select relkind = 'p' from pg_class where oid = $1::regclass")
        .bind(table)
        .fetch_one(db)
        .await
        .expect("the table");
    partitioned || indexes.iter().any(|index| index.table == table && index.types[0] == "timestamp with time zone")
}

async fn columns(db: &PgPool, kinds: &Kinds) -> Vec<String> {
    let rows: Vec<(String, String, String)> = sqlx::query_as(
        "select table_name::text, column_name::text, data_type::text from information_schema.columns where table_schema = 'public' order by 1, 2",
    )
    .fetch_all(db)
    .await
    .expect("the columns");
    let mut found = Vec::new();
    for (table, column, data_type) in rows.iter().filter(|(table, ..)| kinds.contains_key(table)) {
        let is_id = column == "id" || column.ends_with("_id");
        if is_id && ["smallint", "integer", "numeric"].contains(&data_type.as_str()) {
            found.push(format!("{table}.{column}: ids are bigint, not {data_type}"));
        }
        let counts = column.ends_with("_count") || column.ends_with("_total") || column.starts_with("last_");
        if kinds[table] == "reference" && counts {
            found.push(format!("{table}.{column}: a reference table must not hold values that many users change"));
        }
    }
    found
}

/// Lists functions that Citus could not run on another node, or could not plan.
async fn functions(db: &PgPool, kinds: &Kinds) -> Vec<String> {
    let rows: Vec<(String, bool, String)> = sqlx::query_as(
        "select p.proname::text,
                exists (select 1 from unnest(p.proargtypes::oid[]) as a (type) join pg_type t on t.oid = a.type
                        join pg_class c on c.oid = t.typrelid where c.relkind in ('r', 'p')),
                case when l.lanname = 'sql' then pg_get_functiondef(p.oid) else '' end
         from pg_proc p join pg_language l on l.oid = p.prolang
         where p.pronamespace = 'public'::regnamespace and p.prokind = 'f'
           and not exists (select 1 from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')",
    )
    .fetch_all(db)
    .await
    .expect("the functions");
    let mut found = Vec::new();
    for (name, takes_row, definition) in rows {
        if takes_row {
            found.push(format!("{name}: a function must not take a row of a table, whose type differs on shards"));
        }
        let mut words = definition.split(|c: char| !(c.is_alphanumeric() || c == '_'));
        if words.any(|word| kinds.get(word).is_some_and(|kind| ["user", "room", "claim"].contains(&kind.as_str()))) {
            found.push(format!("{name}: an SQL function must not read a distributed table; use a view"));
        }
    }
    found
}

async fn foreign_keys(db: &PgPool, kinds: &Kinds) -> Vec<String> {
    let rows: Vec<(String, String, Vec<String>, Vec<String>)> = sqlx::query_as(
        "select f.relname::text, t.relname::text,
                array(select attname::text from unnest(c.conkey) with ordinality k (number, position)
                      join pg_attribute on attrelid = f.oid and attnum = number order by position),
                array(select attname::text from unnest(c.confkey) with ordinality k (number, position)
                      join pg_attribute on attrelid = t.oid and attnum = number order by position)
         from pg_constraint c join pg_class f on f.oid = c.conrelid join pg_class t on t.oid = c.confrelid
         where c.contype = 'f'",
    )
    .fetch_all(db)
    .await
    .expect("the foreign keys");
    let kind = |table: &str| kinds.get(table).map_or("", String::as_str);
    let mut found = Vec::new();
    for (from, to, here, there) in &rows {
        let with_user = here.iter().zip(there).any(|(here, there)| here == "user_id" && there == "user_id");
        let fits = match (kind(from), kind(to)) {
            ("user", "user") => with_user,
            (_, "reference") => true,
            _ => false,
        };
        if !fits {
            found.push(format!("{from}: a {} table must not refer to {to} by ({})", kind(from), here.join(", ")));
        }
    }
    found
}

fn count_statements(sql: &str) -> usize {
    let code: String =
        sql.lines().map(|line| line.split("--").next().unwrap_or_default()).collect::<Vec<_>>().join("\n");
    code.split(';').filter(|statement| !statement.trim().is_empty()).count()
}

#[tokio::test]
async fn schema_follows_its_rules() {
    with_database(async |options| {
        let db = PgPool::connect_with(options).await.expect("connected");
        assert_eq!(violations(&db).await, Vec::<String>::new());
        assert!(kinds(&db).await.len() >= 9, "too few tables were checked");
        db.close().await;
    })
    .await;
}

#[tokio::test]
async fn queries_follow_schema_rules() {
    with_database(async |options| {
        let db = PgPool::connect_with(options).await.expect("connected");
        let mut kinds = kinds(&db).await;
        kinds.extend(views(&db).await);
        let folder = repository().join(".sqlx");
        let mut seen = 0;
        for entry in std::fs::read_dir(folder).expect("the checked queries") {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("a file");
            let query: serde_json::Value = serde_json::from_str(&text).expect("JSON");
            let query = query["query"].as_str().expect("a query");
            assert_eq!(breaks(query, &kinds), None, "{query}");
            seen += 1;
        }
        assert!(seen > 20, "too few queries were checked");
        db.close().await;
    })
    .await;
}

#[test]
fn migrations_after_first_release_have_one_statement() {
    let folder = repository().join("migrations");
    for entry in std::fs::read_dir(folder).expect("the migrations") {
        let path = entry.expect("an entry").path();
        let name = path.file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let version: i64 = name.split('_').next().and_then(|number| number.parse().ok()).expect("a version");
        if FIRST_RELEASE.is_some_and(|release| version > release) {
            assert_eq!(count_statements(&std::fs::read_to_string(&path).expect("a file")), 1, "{name}");
        }
    }
    assert_eq!(count_statements("-- a; b\ncreate table x (y int); -- c\n\nalter table x add z int;\n"), 2);
}

/// Each table violates exactly one rule.
#[tokio::test]
async fn each_rule_catches_a_violating_table() {
    for (sql, expected) in [
        ("create table bad (id bigint primary key)", "bad: the comment does not start with a table kind"),
        (
            "create table bad (id bigint primary key, user_id bigint unique); comment on table bad is 'user: x'",
            "bad: the primary key does not start with user_id bigint|bad: bad_pkey is unique without user_id",
        ),
        (
            "create table bad (user_id integer, day date, primary key (user_id, day)); comment on table bad is 'user: x'",
            "bad: the primary key does not start with user_id bigint|bad.user_id: ids are bigint, not integer",
        ),
        (
            "create table bad (user_id bigint primary key, phone text unique); comment on table bad is 'user: x'",
            "bad: bad_phone_key is unique without user_id",
        ),
        (
            "alter table events add predictions_count bigint",
            "events.predictions_count: a reference table must not hold values that many users change",
        ),
        (
            "alter table events add last_activity timestamptz",
            "events.last_activity: a reference table must not hold values that many users change",
        ),
        (
            "create table bad (user_id bigint, phone text, primary key (user_id, phone)); comment on table bad is 'claim: x'",
            "bad: a claim is keyed by the claimed value alone",
        ),
        (
            "alter table teams add owner bigint references users",
            "teams: a reference table must not refer to users by (owner)",
        ),
        (
            "create table bad (user_id bigint primary key, friend bigint references users); comment on table bad is 'user: x'",
            "bad: a user table must not refer to users by (friend)",
        ),
        (
            "create table bad (name text primary key, user_id bigint references users); comment on table bad is 'claim: x'",
            "bad: a claim table must not refer to users by (user_id)",
        ),
        (
            "create table bad (id integer primary key); comment on table bad is 'reference: x'",
            "bad.id: ids are bigint, not integer",
        ),
        (
            "create function noop() returns trigger language plpgsql as 'begin return new; end'; create trigger late after insert on teams for each row execute function noop()",
            "teams: has the trigger late",
        ),
        (
            "create table bad (event_id bigint primary key, total bigint); comment on table bad is 'tally: x'",
            "bad: a tally without slots makes all writers wait for one row",
        ),
        (
            "create table bad (id bigint primary key, created_at timestamptz); comment on table bad is 'timed: x'",
            "bad: neither partitioned nor indexed by time",
        ),
        (
            "create table bad (matrix_user text, room_id bigint, primary key (matrix_user, room_id)); comment on table bad is 'room: x'",
            "bad: the primary key does not start with room_id bigint",
        ),
        (
            "create function bad(team teams) returns bigint language sql immutable return (team).id",
            "bad: a function must not take a row of a table, whose type differs on shards",
        ),
        (
            "create function bad(of bigint) returns bigint language sql stable return (select count(*) from users where user_id = of)",
            "bad: an SQL function must not read a distributed table; use a view",
        ),
        (
            "create table bad (name text primary key); comment on table bad is 'queue: x'",
            "bad: a queue is ordered by a single bigint identity",
        ),
    ] {
        with_database(async |options| {
            let db = PgPool::connect_with(options).await.expect("connected");
            sqlx::raw_sql(sql).execute(&db).await.expect("valid SQL");
            assert_eq!(violations(&db).await.join("|"), expected, "{sql}");
            db.close().await;
        })
        .await;
    }
}
