use sqlx::{PgConnection, PgExecutor};
use time::{Duration, OffsetDateTime};
use web::{
    ids::{RoomId, UserId},
    paging::Paging,
};

use super::{
    rules::{Claim, ReporterAnswer, Resolution},
    service::OwnReport,
};

/// Copy of a reported message from the homeserver.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) sender: Option<String>,
    pub(super) sent_at: Option<OffsetDateTime>,
    pub(super) content: Option<String>,
}

/// Inserts a report. Returns whether it is the user's first one about this message.
pub(super) async fn insert(
    executor: impl PgExecutor<'_>,
    user: UserId,
    room: RoomId,
    event_id: &str,
    reason: &str,
    evidence: &Evidence,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let kept = sqlx::query!(
        "insert into reports (user_id, room_id, event_id, reason, sender, sent_at, content, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8) on conflict (user_id, room_id, event_id) do nothing",
        user.0,
        room.0,
        event_id,
        reason,
        evidence.sender,
        evidence.sent_at,
        // PostgreSQL text cannot contain NUL.
        evidence.content.as_ref().map(|content| content.replace('\0', "")),
        now,
    )
    .execute(executor)
    .await?;
    Ok(kept.rows_affected() == 1)
}

pub(super) async fn count_of_user(connection: &mut PgConnection, user: UserId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from reports where user_id = $1"#, user.0)
        .fetch_one(connection)
        .await
}

/// Reports of a user, newest first.
pub(super) async fn of_user(
    connection: &mut PgConnection,
    user: UserId,
    paging: Paging,
) -> sqlx::Result<Vec<OwnReport>> {
    sqlx::query_as!(
        OwnReport,
        r#"select p.id, r.matrix_id as room_id, p.event_id, p.reason, p.created_at, p.closed_at, p.answer
           from reports p join rooms r on r.id = p.room_id
           where p.user_id = $1 order by p.id desc limit $2 offset $3"#,
        user.0,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(connection)
    .await
}

/// Primary key of a report. The user id decides on which node the row is.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    pub(super) user: UserId,
    pub(super) id: i64,
}

/// A report's key, and the message that it is about.
pub(super) struct Found {
    pub(super) key: Key,
    pub(super) room: RoomId,
    pub(super) event_id: String,
}

pub(super) async fn find(connection: &mut PgConnection, id: i64) -> sqlx::Result<Option<Found>> {
    let row = sqlx::query!(
        r#"select user_id as "user_id: UserId", room_id as "room_id: RoomId", event_id from reports where id = $1"#,
        id,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| Found { key: Key { user: row.user_id, id }, room: row.room_id, event_id: row.event_id }))
}

/// Open reports of a message.
pub(super) async fn open_of_message(
    connection: &mut PgConnection,
    room: RoomId,
    event_id: &str,
    most: i64,
) -> sqlx::Result<Vec<Key>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", id from reports
           where event_id = $1 and room_id = $2 and closed_at is null order by id limit $3"#,
        event_id,
        room.0,
        most,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| Key { user: row.user_id, id: row.id }).collect())
}

/// State of a report in the queue.
pub(super) struct State {
    pub(super) is_closed: bool,
    pub(super) claim: Option<Claim>,
}

/// Reads a report and locks its row until the end of the transaction. Returns `None` if it was deleted.
pub(super) async fn lock(connection: &mut PgConnection, key: Key) -> sqlx::Result<Option<State>> {
    let row = sqlx::query!(
        "select closed_at, claimed_by, claimed_until from reports where user_id = $1 and id = $2 for update",
        key.user.0,
        key.id,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| State {
        is_closed: row.closed_at.is_some(),
        claim: row.claimed_by.zip(row.claimed_until).map(|(by, until)| Claim { by, until }),
    }))
}

/// Sets or removes the claim of a report.
pub(super) async fn set_claim(connection: &mut PgConnection, key: Key, claim: Option<&Claim>) -> sqlx::Result<()> {
    sqlx::query!(
        "update reports set claimed_by = $3, claimed_until = $4 where user_id = $1 and id = $2",
        key.user.0,
        key.id,
        claim.map(|claim| claim.by.as_str()),
        claim.map(|claim| claim.until),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Values that a closed report gets.
pub(super) struct Closing<'a> {
    pub(super) by: &'a str,
    pub(super) resolution: Resolution,
    pub(super) note: &'a str,
    pub(super) answer: Option<&'a ReporterAnswer>,
    pub(super) now: OffsetDateTime,
}

/// Closes a report. Sender and content are erased if the sender has deleted their account.
pub(super) async fn close(connection: &mut PgConnection, key: Key, closing: &Closing<'_>) -> sqlx::Result<()> {
    sqlx::query!(
        "update reports set closed_at = $3, closed_by = $4, resolution = $5, note = $6, answer = $7,
             claimed_by = null, claimed_until = null,
             sender = case when erase_at is null then sender end,
             content = case when erase_at is null then content end,
             erase_at = null
         where user_id = $1 and id = $2",
        key.user.0,
        key.id,
        closing.now,
        closing.by,
        closing.resolution.name(),
        closing.note,
        closing.answer.map(ReporterAnswer::as_str),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Number of open reports, time of the oldest, and number of those from before `due`.
pub(super) async fn open(
    connection: &mut PgConnection,
    due: OffsetDateTime,
) -> sqlx::Result<(i64, Option<OffsetDateTime>, i64)> {
    let row = sqlx::query!(
        r#"select count(*) as "open!", min(created_at) as oldest, count(*) filter (where created_at < $1) as "overdue!"
           from reports where closed_at is null"#,
        due,
    )
    .fetch_one(connection)
    .await?;
    Ok((row.open, row.oldest, row.overdue))
}

/// Times from report to resolution of the reports closed after `since`, of the last `most` at most.
pub(super) async fn times_to_resolution(
    connection: &mut PgConnection,
    since: OffsetDateTime,
    most: i64,
) -> sqlx::Result<Vec<Duration>> {
    let rows = sqlx::query!(
        r#"select created_at, closed_at as "closed_at!" from reports where closed_at > $1
           order by closed_at desc, id desc limit $2"#,
        since,
        most,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| row.closed_at - row.created_at).collect())
}

/// Erases sender and content of up to `most` reports that are due. Returns their number.
pub(super) async fn erase(executor: impl PgExecutor<'_>, now: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let erased = sqlx::query!(
        "update reports set sender = null, content = null, erase_at = null
         where id in (select id from reports where erase_at <= $1 order by erase_at limit $2)",
        now,
        most,
    )
    .execute(executor)
    .await?;
    Ok(erased.rows_affected())
}

/// Deletes up to `most` reports that were closed before `before`. Returns their number.
pub(super) async fn sweep(executor: impl PgExecutor<'_>, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from reports
         where id in (select id from reports where closed_at < $1 order by closed_at desc, id desc limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
