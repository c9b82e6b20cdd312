//! SQL queries for account deletion. [`super::rules`] contains the statements for tables of other features.

use std::collections::{BTreeMap, HashMap};

use sqlx::{AssertSqlSafe, PgConnection, PgExecutor, types::Json};
use time::OffsetDateTime;
use web::ids::UserId;

use super::rules::Table;

/// Values that identify a user's rows.
#[derive(Clone, Debug)]
pub(super) struct Person {
    pub(super) user: UserId,
    pub(super) phone: Option<String>,
    pub(super) subjects: Vec<String>,
    pub(super) matrix_ids: Vec<String>,
}

/// Returns the names of all columns with timestamps, by table.
pub(super) async fn timestamp_columns(connection: &mut PgConnection) -> sqlx::Result<HashMap<String, Vec<String>>> {
    let found = sqlx::query!(
        r#"select c.relname::text as "table!", array_agg(a.attname::text) as "columns!"
           from pg_attribute a join pg_class c on c.oid = a.attrelid
           where a.atttypid = 'timestamptz'::regtype and pg_table_is_visible(c.oid)
           group by c.relname"#
    )
    .fetch_all(connection)
    .await?;
    Ok(found.into_iter().map(|row| (row.table, row.columns)).collect())
}

/// Returns the user's rows of a table as JSON text; `None` if other code exports them.
pub(super) async fn export(
    connection: &mut PgConnection,
    table: &Table,
    person: &Person,
) -> sqlx::Result<Option<String>> {
    let Some(statement) = table.export() else { return Ok(None) };
    // Safe: the statement is built from constants only.
    sqlx::query_scalar(AssertSqlSafe(statement))
        .bind(person.user)
        .bind(person.phone.as_deref())
        .bind(&person.subjects)
        .bind(&person.matrix_ids)
        .bind(table.hidden)
        .fetch_one(connection)
        .await
        .map(Some)
}

/// Runs the deletion statement of a table, if it has one.
pub(super) async fn forget(connection: &mut PgConnection, table: &Table, person: &Person) -> sqlx::Result<()> {
    let Some(statement) = table.forget() else { return Ok(()) };
    // Safe: the statement is built from constants only.
    sqlx::query(AssertSqlSafe(statement))
        .bind(person.user)
        .bind(person.phone.as_deref())
        .bind(&person.subjects)
        .bind(&person.matrix_ids)
        .execute(connection)
        .await?;
    Ok(())
}

/// Raises the statement timeout of a transaction, because no request waits for it.
pub(super) async fn raise_statement_timeout(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("set local statement_timeout = '60s'").execute(connection).await?;
    Ok(())
}

/// Returns all usernames that the user has had.
pub(super) async fn names(connection: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!("select username from username_claims where user_id = $1 order by claimed_at, username", user.0)
        .fetch_all(connection)
        .await
}

pub(super) async fn set_deleted(connection: &mut PgConnection, user: UserId, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!("update users set deleted_at = $2 where user_id = $1", user.0, now).execute(connection).await?;
    Ok(())
}

pub(super) async fn insert_departure(
    connection: &mut PgConnection,
    user: UserId,
    chat_names: &[String],
    now: OffsetDateTime,
    due_at: OffsetDateTime,
) -> sqlx::Result<()> {
    // A homeserver does not list the rooms that a user is banned from as joined.
    let banned_from = sqlx::query_scalar!(
        r#"select r.matrix_id as "matrix_id!" from room_members m join rooms r on r.id = m.room_id
           where m.user_id = $1 and m.membership = 'ban' and r.matrix_id is not null"#,
        user.0,
    )
    .fetch_all(&mut *connection)
    .await?;
    sqlx::query!(
        "insert into departures (user_id, chat_names, chat_rooms, requested_at, devices_due_at, due_at)
         values ($1, $2, $5, $3, $3, $4)",
        user.0,
        chat_names,
        now,
        due_at,
        &banned_from,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Sets the time by which open reports about a user are erased at the latest.
pub(super) async fn limit_open_reports(
    connection: &mut PgConnection,
    person: &Person,
    erase_at: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update reports set erase_at = $2 where sender = any($1) and closed_at is null and erase_at is null",
        &person.matrix_ids,
        erase_at,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A deletion whose chat devices must be removed.
#[derive(Clone, Debug)]
pub(super) struct DevicesDue {
    pub(super) id: i64,
    pub(super) user_id: UserId,
    pub(super) chat_names: Vec<String>,
    pub(super) attempts: i32,
}

/// Takes the next deletion whose devices are due and hides it from other workers until `until`.
pub(super) async fn take_devices_due(
    executor: impl PgExecutor<'_>,
    now: OffsetDateTime,
    until: OffsetDateTime,
) -> sqlx::Result<Option<DevicesDue>> {
    sqlx::query_as!(
        DevicesDue,
        r#"update departures set devices_due_at = $2, device_attempts = device_attempts + 1
           where id = (select id from departures where devices_due_at <= $1
                       order by devices_due_at, id limit 1 for update skip locked)
           returning id, user_id as "user_id: UserId", chat_names, device_attempts as attempts"#,
        now,
        until,
    )
    .fetch_optional(executor)
    .await
}

/// Sets when the devices of a deletion are due again; `None` if they were removed.
pub(super) async fn set_devices_due(
    executor: impl PgExecutor<'_>,
    id: i64,
    due_at: Option<OffsetDateTime>,
) -> sqlx::Result<()> {
    sqlx::query!("update departures set devices_due_at = $2 where id = $1", id, due_at).execute(executor).await?;
    Ok(())
}

/// Adds rooms in which messages must be redacted, and returns all rooms of the deletion.
pub(super) async fn add_rooms(executor: impl PgExecutor<'_>, due: &Due, rooms: &[String]) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!(
        "update departures set chat_rooms = array(select distinct unnest(chat_rooms || $2::text[]))
         where id = $1 returning chat_rooms",
        due.id,
        rooms,
    )
    .fetch_one(executor)
    .await
}

/// Stores the id of a redaction that the homeserver has started for one of the usernames.
pub(super) async fn set_redaction(
    executor: impl PgExecutor<'_>,
    due: &Due,
    name: &str,
    redaction: &str,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update departures set redactions = redactions || jsonb_build_object($2::text, $3::text) where id = $1",
        due.id,
        name,
        redaction,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Removes the id of a failed redaction.
pub(super) async fn forget_redaction(executor: impl PgExecutor<'_>, due: &Due, name: &str) -> sqlx::Result<()> {
    sqlx::query!("update departures set redactions = redactions - $2::text where id = $1", due.id, name)
        .execute(executor)
        .await?;
    Ok(())
}

/// A deletion that a worker must finish.
#[derive(Clone, Debug)]
pub(super) struct Due {
    pub(super) id: i64,
    pub(super) user_id: UserId,
    pub(super) chat_names: Vec<String>,
    pub(super) attempts: i32,
    /// Ids of started redactions, by username.
    pub(super) redactions: Json<BTreeMap<String, String>>,
}

/// Takes the next due deletion and hides it from other workers until `until`.
pub(super) async fn take_due(
    executor: impl PgExecutor<'_>,
    now: OffsetDateTime,
    until: OffsetDateTime,
) -> sqlx::Result<Option<Due>> {
    sqlx::query_as!(
        Due,
        r#"update departures set due_at = $2, attempts = attempts + 1
           where id = (select id from departures where due_at <= $1 order by due_at, id limit 1 for update skip locked)
           returning id, user_id as "user_id: UserId", chat_names, attempts,
                     redactions as "redactions: Json<BTreeMap<String, String>>""#,
        now,
        until,
    )
    .fetch_optional(executor)
    .await
}

/// Postpones a deletion. An attempt that has not failed does not count.
pub(super) async fn postpone(
    executor: impl PgExecutor<'_>,
    due: &Due,
    fault: &str,
    has_failed: bool,
    due_at: OffsetDateTime,
) -> sqlx::Result<()> {
    let uncounted = i32::from(!has_failed);
    sqlx::query!(
        "update departures set due_at = $2, fault = $3, attempts = greatest(attempts - $4::integer, 0) where id = $1",
        due.id,
        due_at,
        fault,
        uncounted,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Removes a finished deletion from the queue.
pub(super) async fn remove(connection: &mut PgConnection, due: &Due) -> sqlx::Result<()> {
    sqlx::query!("delete from departures where id = $1", due.id).execute(connection).await?;
    Ok(())
}

/// Returns the number of unfinished deletions and the time at which the oldest was requested.
pub(super) async fn waiting(executor: impl PgExecutor<'_>) -> sqlx::Result<(i64, Option<OffsetDateTime>)> {
    let row = sqlx::query!(r#"select count(*) as "count!", min(requested_at) as since from departures"#)
        .fetch_one(executor)
        .await?;
    Ok((row.count, row.since))
}
