//! Placement of the tables on Citus, where one database spans several nodes. Nothing here has an effect on plain
//! PostgreSQL. See `docs/citus.md`.
//!
//! The kind at the start of a table's comment decides its placement (see the first migration). `matchday migrate` places
//! all tables that are not placed yet, so a new table of a later migration needs no further step.

use std::collections::BTreeSet;

use sqlx::{AssertSqlSafe, Executor as _, PgConnection};

/// Settings of every connection. PostgreSQL accepts and ignores them without the extension.
///
/// Statements for several shards run one after another: a transaction that reads shards over several connections at once
/// may not write a reference table afterwards. `set local` also applies on the other nodes.
pub(crate) const SETTINGS: &str =
    "set citus.multi_shard_modify_mode = 'sequential'; set citus.propagate_set_commands = 'local'";

/// Makes plans generic on plain PostgreSQL. A plan on Citus must know the values of the parameters, which decide the
/// shard.
pub(crate) const GENERIC_PLANS: &str = "select set_config('plan_cache_mode',
    case when exists (select 1 from pg_extension where extname = 'citus') then 'auto' else 'force_generic_plan' end, false)";

/// Whether the database has the extension.
pub async fn is_present(connection: &mut PgConnection) -> sqlx::Result<bool> {
    sqlx::query_scalar("select exists (select 1 from pg_extension where extname = 'citus')").fetch_one(connection).await
}

/// Combines the statements of a migration into one that executes each of them separately. Citus sends the text of some
/// statements, like `create index`, to the other nodes as it received it, and they refuse several statements at once.
pub(crate) fn one_statement(migration: &str) -> String {
    let executed = |statement: &&str| format!("execute $statement${statement}$statement$;\n");
    let all: String = split(migration).iter().map(executed).collect();
    format!("do $migration$ begin\n{all}end $migration$")
}

/// Splits a migration at the semicolons that are outside quotes and comments.
fn split(migration: &str) -> Vec<&str> {
    let (mut found, mut first, mut at) = (Vec::new(), 0, 0);
    while let Some(next) = migration[at..].chars().next() {
        let rest = &migration[at..];
        at += match next {
            '-' if rest.starts_with("--") => rest.find('\n').unwrap_or(rest.len()),
            '/' if rest.starts_with("/*") => rest.find("*/").map_or(rest.len(), |end| end + 2),
            // A doubled quote inside is read as the end of one string and the start of another.
            '\'' | '"' => rest[1..].find(next).map_or(rest.len(), |end| end + 2),
            '$' => dollar_quoted(rest),
            ';' => {
                found.push(migration[first..at].trim());
                first = at + 1;
                1
            }
            _ => next.len_utf8(),
        };
    }
    found.push(migration[first..].trim());
    found.retain(|statement| has_code(statement));
    found
}

/// Length of the dollar-quoted string at the start of the text; 1 if the dollar sign does not begin one.
fn dollar_quoted(text: &str) -> usize {
    let Some(end) = text[1..].find('$') else { return 1 };
    let tag = &text[..end + 2];
    if !tag[1..=end].chars().all(|letter| letter.is_ascii_alphabetic() || letter == '_') {
        return 1;
    }
    text[tag.len()..].find(tag).map_or(text.len(), |close| close + 2 * tag.len())
}

/// Whether a text has more than comments.
fn has_code(text: &str) -> bool {
    text.lines().map(str::trim).any(|line| !line.is_empty() && !line.starts_with("--"))
}

/// A table that is not placed yet.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Table {
    name: String,
    kind: String,
    /// First column of the primary key.
    key: String,
    /// Tables that its foreign keys refer to.
    refers_to: Vec<String>,
}

/// Places all tables that are not placed yet, and copies the functions that queries use to all nodes. Returns the number
/// of placed tables; 0 without the extension. The role must own the tables.
pub async fn place(connection: &mut PgConnection) -> sqlx::Result<usize> {
    if !is_present(&mut *connection).await? {
        return Ok(0);
    }
    // Only one process places tables. The lock ends with the connection.
    connection.execute("select pg_advisory_lock(hashtextextended('matchday placement', 0))").await?;
    let tables = unplaced(&mut *connection).await?;
    let revokes = revokes(&mut *connection).await?;
    let comments = comments(&mut *connection).await?;
    // Otherwise Citus would place a local table as soon as it refers to a reference table, and fail at identity columns.
    connection.execute("set citus.enable_local_reference_table_foreign_keys = off").await?;
    for statement in statements(&tables) {
        connection.execute(AssertSqlSafe(statement)).await?;
    }
    connection.execute("set citus.enable_local_reference_table_foreign_keys = on").await?;
    for table in tables.iter().filter(|table| is_local(&table.kind)) {
        // Placing a table also places local tables that it refers to.
        let place = "select citus_add_local_table_to_metadata($1::regclass, cascade_via_foreign_keys => true)
                     where not exists (select 1 from pg_dist_partition where logicalrelid = $1::regclass)";
        sqlx::query(place).bind(&table.name).execute(&mut *connection).await?;
    }
    let functions = "select create_distributed_function(p.oid::regprocedure) from pg_proc p
        where p.pronamespace = 'public'::regnamespace and p.prokind = 'f'
          and not exists (select 1 from pg_depend d where d.classid = 'pg_proc'::regclass and d.objid = p.oid and d.deptype = 'e')
          and not exists (select 1 from pg_dist_object o where o.classid = 'pg_proc'::regclass and o.objid = p.oid)";
    connection.execute(functions).await?;
    // A local table is replaced by an empty one without its comment, which says whether the table is append-only.
    for comment in comments {
        connection.execute(AssertSqlSafe(comment)).await?;
    }
    // Default privileges apply to the copies on other nodes, and would allow changing append-only tables there.
    for revoke in revokes {
        connection.execute(AssertSqlSafe(revoke)).await?;
    }
    Ok(tables.len())
}

async fn unplaced(connection: &mut PgConnection) -> sqlx::Result<Vec<Table>> {
    let rows: Vec<(String, String, String, Vec<String>)> = sqlx::query_as(
        "select c.relname::text, coalesce(split_part(obj_description(c.oid), ':', 1), ''),
                coalesce((select a.attname::text from pg_index i join pg_attribute a on a.attrelid = c.oid and a.attnum = i.indkey[0]
                          where i.indrelid = c.oid and i.indisprimary), ''),
                array(select distinct f.confrelid::regclass::text from pg_constraint f
                      where f.conrelid = c.oid and f.contype = 'f' and f.confrelid <> c.oid)
         from pg_class c
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
           and c.relname <> '_sqlx_migrations'
           and not exists (select 1 from pg_dist_partition p where p.logicalrelid = c.oid)
           and not exists (select 1 from pg_depend d where d.classid = 'pg_class'::regclass and d.objid = c.oid and d.deptype = 'e')
         order by c.relname",
    )
    .fetch_all(connection)
    .await?;
    let table = |(name, kind, key, refers_to)| Table { name, kind, key, refers_to };
    Ok(rows.into_iter().map(table).collect())
}

/// Returns the statements that take away again what the service's role may not do. Read before tables are placed.
async fn revokes(connection: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        r"select format('revoke %s on %I from matchday_app', string_agg(p.privilege, ', ' order by p.privilege), c.relname)
          from pg_class c cross join unnest(array['update', 'delete']) as p (privilege)
          where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p')
            and (not has_table_privilege('matchday_app', c.oid, p.privilege) or obj_description(c.oid) ~ '\mappend-only\M')
          group by c.relname order by c.relname",
    )
    .fetch_all(connection)
    .await
}

/// Returns the statements that repeat the comments of all tables. Read before tables are placed.
async fn comments(connection: &mut PgConnection) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar(
        "select format('comment on table %I is %L', c.relname, obj_description(c.oid)) from pg_class c
         where c.relnamespace = 'public'::regnamespace and c.relkind in ('r', 'p') and not c.relispartition
           and obj_description(c.oid) is not null",
    )
    .fetch_all(connection)
    .await
}

/// Whether tables of this kind stay on the coordinator. They are in the metadata, so a transaction that also writes to
/// other nodes commits on all of them or on none.
fn is_local(kind: &str) -> bool {
    matches!(kind, "local" | "tally" | "timed" | "queue")
}

/// Returns the statements that place the tables which do not stay on the coordinator. A table follows those that it
/// refers to.
fn statements(tables: &[Table]) -> Vec<String> {
    let mut statements = Vec::new();
    let mut done = BTreeSet::new();
    // `users` and `room_activity` define the shards that the other tables of their kind share.
    let group = |kind: &str| if kind == "user" { "users" } else { "room_activity" };
    let rank = |table: &Table| (table.kind != "reference", table.name != group(&table.kind));
    let mut left: Vec<&Table> = tables.iter().filter(|table| !is_local(&table.kind)).collect();
    left.sort_by_key(|&table| rank(table));
    while !left.is_empty() {
        let is_ready = |table: &&Table| {
            !table.refers_to.iter().any(|to| tables.iter().any(|t| t.name == *to) && !done.contains(to))
        };
        // Without a ready table the references form a circle, and Citus explains the problem.
        let next = left.iter().position(is_ready).unwrap_or_default();
        let table = left.remove(next);
        done.insert(table.name.clone());
        let Table { name, kind, key, .. } = table;
        statements.push(match kind.as_str() {
            "reference" => format!("select create_reference_table('{name}')"),
            "user" | "room" if name != group(kind) => {
                let group = group(kind);
                format!("select create_distributed_table('{name}', '{key}', colocate_with => '{group}')")
            }
            _ => format!("select create_distributed_table('{name}', '{key}', colocate_with => 'none')"),
        });
    }
    statements
}

#[cfg(test)]
mod tests {
    use super::*;

    fn table(name: &str, kind: &str, key: &str, refers_to: &[&str]) -> Table {
        let refers_to = refers_to.iter().copied().map(str::to_owned).collect();
        Table { name: name.to_owned(), kind: kind.to_owned(), key: key.to_owned(), refers_to }
    }

    #[test]
    fn migration_is_split_outside_quotes_and_comments() {
        let migration = "-- One; two.
create table a (text text default 'it''s; here'); /* no; */
create function f() returns int language plpgsql as $$ begin return 1; end $$;
do $body$ begin perform '$$;'; end $body$;
select \"a;b\" from a where price = '$1'; -- The end;
";
        let found = split(migration);
        assert_eq!(found.len(), 4, "{found:#?}");
        assert!(found[0].ends_with("'it''s; here')") && found[1].ends_with("end $$") && found[2].ends_with("$body$"));
        assert!(found[3].contains("price = '$1'"), "{found:#?}");
        assert_eq!(split("select 1;\n-- Nothing else.\n"), ["select 1"]);
    }

    #[test]
    fn tables_follow_those_they_refer_to() {
        let tables = [
            table("blocks", "user", "user_id", &["users"]),
            table("outbox", "queue", "id", &[]),
            table("remote_members", "room", "room_id", &["rooms"]),
            table("room_activity", "room", "room_id", &["rooms"]),
            table("rooms", "reference", "id", &["teams"]),
            table("teams", "reference", "id", &[]),
            table("user_teams", "user", "user_id", &["teams", "users"]),
            table("username_claims", "claim", "username", &[]),
            table("users", "user", "user_id", &[]),
        ];
        assert_eq!(
            statements(&tables),
            [
                "select create_reference_table('teams')",
                "select create_reference_table('rooms')",
                "select create_distributed_table('room_activity', 'room_id', colocate_with => 'none')",
                "select create_distributed_table('users', 'user_id', colocate_with => 'none')",
                "select create_distributed_table('blocks', 'user_id', colocate_with => 'users')",
                "select create_distributed_table('remote_members', 'room_id', colocate_with => 'room_activity')",
                "select create_distributed_table('user_teams', 'user_id', colocate_with => 'users')",
                "select create_distributed_table('username_claims', 'username', colocate_with => 'none')",
            ]
        );
    }

    #[test]
    fn later_tables_join_their_groups() {
        let tables = [table("medals", "user", "user_id", &["users"])];
        assert_eq!(
            statements(&tables),
            ["select create_distributed_table('medals', 'user_id', colocate_with => 'users')"]
        );
    }
}
