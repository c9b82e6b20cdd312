//! SQL queries for filters and held messages.

use std::collections::HashSet;

use platform::encryption::Encrypted;
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use super::rules::Action;

/// A pattern as stored.
#[derive(Clone, Debug)]
pub(super) struct FilterRow {
    pub(super) id: i64,
    pub(super) pattern: String,
    pub(super) matrix_room: Option<String>,
    pub(super) action: String,
    pub(super) mute_seconds: Option<i32>,
    pub(super) reason: String,
    pub(super) created_by: String,
    pub(super) created_at: OffsetDateTime,
}

/// Identifies the contents of the table: rows are only added, with a higher id, and deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) filters: i64,
    pub(super) latest: i64,
}

pub(super) async fn version(executor: impl PgExecutor<'_>) -> sqlx::Result<Version> {
    sqlx::query_as!(Version, r#"select count(*) as "filters!", coalesce(max(id), 0) as "latest!" from filters"#)
        .fetch_one(executor)
        .await
}

/// All patterns, oldest first.
pub(super) async fn list(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<FilterRow>> {
    sqlx::query_as!(
        FilterRow,
        "select id, pattern, matrix_room, action, mute_seconds, reason, created_by, created_at from filters order by id"
    )
    .fetch_all(executor)
    .await
}

/// Allows one transaction at a time to add patterns, so that their number stays within its limit.
pub(super) async fn lock(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday filters', 0))").fetch_one(connection).await?;
    Ok(())
}

/// A pattern to store.
#[derive(Clone, Copy, Debug)]
pub(super) struct NewRow<'a> {
    pub(super) pattern: &'a str,
    pub(super) matrix_room: Option<&'a str>,
    pub(super) action: Action,
    pub(super) mute_seconds: Option<i32>,
    pub(super) reason: &'a str,
    pub(super) created_by: &'a str,
}

pub(super) async fn insert(connection: &mut PgConnection, row: NewRow<'_>, now: OffsetDateTime) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        "insert into filters (pattern, matrix_room, action, mute_seconds, reason, created_by, created_at)
         values ($1, $2, $3, $4, $5, $6, $7) returning id",
        row.pattern,
        row.matrix_room,
        row.action.name(),
        row.mute_seconds,
        row.reason,
        row.created_by,
        now,
    )
    .fetch_one(connection)
    .await
}

/// Deletes a pattern. Returns false if it does not exist.
pub(super) async fn delete(connection: &mut PgConnection, id: i64) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("delete from filters where id = $1", id).execute(connection).await?;
    Ok(deleted.rows_affected() > 0)
}

/// The unencrypted rooms among these, by the homeserver's ids.
pub(super) async fn unencrypted(executor: impl PgExecutor<'_>, rooms: &[&str]) -> sqlx::Result<HashSet<String>> {
    let found = sqlx::query_scalar!(
        r#"select matrix_id as "matrix_id!" from rooms where matrix_id = any($1) and not is_private"#,
        rooms as &[&str],
    )
    .fetch_all(executor)
    .await?;
    Ok(found.into_iter().collect())
}

/// A message to hold.
#[derive(Clone, Debug)]
pub(super) struct NewHeld<'a> {
    pub(super) matrix_room: &'a str,
    pub(super) sender: &'a str,
    pub(super) event_id: Option<&'a str>,
    pub(super) filter: &'a str,
    pub(super) text: Encrypted,
}

/// Stores a message, unless it is stored already or its sender has `most` open ones.
pub(super) async fn hold(
    connection: &mut PgConnection,
    held: &NewHeld<'_>,
    most: i64,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into held_messages (matrix_room, sender, event_id, filter, ciphertext, key_version, created_at)
         select $1, $2, $3, $4, $5, $6, $7
         where (select count(*) from held_messages where sender = $2 and decided_at is null) < $8
         on conflict (event_id) do nothing",
        held.matrix_room,
        held.sender,
        held.event_id,
        held.filter,
        held.text.bytes,
        held.text.key_version,
        now,
        most,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A held message as stored.
#[derive(Clone, Debug)]
pub(super) struct HeldRow {
    pub(super) id: i64,
    pub(super) matrix_room: String,
    pub(super) sender: String,
    pub(super) event_id: Option<String>,
    pub(super) filter: String,
    pub(super) ciphertext: Vec<u8>,
    pub(super) key_version: i16,
    pub(super) created_at: OffsetDateTime,
}

/// Messages without a decision, oldest first.
pub(super) async fn open(executor: impl PgExecutor<'_>, after: i64, most: i64) -> sqlx::Result<Vec<HeldRow>> {
    sqlx::query_as!(
        HeldRow,
        r#"select id, matrix_room, sender, event_id, filter, ciphertext as "ciphertext!", key_version, created_at
           from held_messages where decided_at is null and ciphertext is not null and id > $1 order by id limit $2"#,
        after,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Begins to release a message, so that it is not rejected at the same time. `None` if it is rejected or released.
pub(super) async fn begin_release(executor: impl PgExecutor<'_>, id: i64) -> sqlx::Result<Option<HeldRow>> {
    sqlx::query_as!(
        HeldRow,
        r#"update held_messages set decision = 'release'
           where id = $1 and decided_at is null and ciphertext is not null
           returning id, matrix_room, sender, event_id, filter, ciphertext as "ciphertext!", key_version, created_at"#,
        id,
    )
    .fetch_optional(executor)
    .await
}

/// Opens a message again whose release failed.
pub(super) async fn abandon_release(executor: impl PgExecutor<'_>, id: i64) -> sqlx::Result<()> {
    sqlx::query!("update held_messages set decision = null where id = $1 and decided_at is null", id)
        .execute(executor)
        .await?;
    Ok(())
}

/// Records that a message was released, and deletes its text. Returns false if another operator did.
pub(super) async fn finish_release(
    connection: &mut PgConnection,
    id: i64,
    by: &str,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let finished = sqlx::query!(
        "update held_messages set ciphertext = null, decided_at = $3, decided_by = $2
         where id = $1 and decided_at is null and decision = 'release'",
        id,
        by,
        now,
    )
    .execute(connection)
    .await?;
    Ok(finished.rows_affected() > 0)
}

/// Rejects a message, and deletes its text. Returns room and sender; `None` if there is another decision.
pub(super) async fn reject(
    connection: &mut PgConnection,
    id: i64,
    by: &str,
    now: OffsetDateTime,
) -> sqlx::Result<Option<(String, String)>> {
    let rejected = sqlx::query!(
        "update held_messages set ciphertext = null, decided_at = $3, decided_by = $2, decision = 'reject'
         where id = $1 and decided_at is null and decision is null returning matrix_room, sender",
        id,
        by,
        now,
    )
    .fetch_optional(connection)
    .await?;
    Ok(rejected.map(|row| (row.matrix_room, row.sender)))
}

/// Deletes up to `most` messages that were held before this time. Returns their number.
pub(super) async fn sweep(executor: impl PgExecutor<'_>, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from held_messages
         where id in (select id from held_messages where created_at < $1 order by created_at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
