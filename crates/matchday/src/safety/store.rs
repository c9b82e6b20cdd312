//! The SQL of safety.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use super::service::Report;
use crate::{
    http::paging::Paging,
    ids::{RoomId, UserId},
};

/// Bans, or lets in again; returns whether that is a change.
pub(super) async fn set_banned(
    connection: &mut PgConnection,
    user: UserId,
    since: Option<OffsetDateTime>,
) -> sqlx::Result<bool> {
    let changed = sqlx::query!(
        "update users set banned_at = $2 where user_id = $1 and (banned_at is null) <> ($2::timestamptz is null)",
        user.0,
        since,
    )
    .execute(connection)
    .await?;
    Ok(changed.rows_affected() == 1)
}

/// Mutes, or lets speak again; returns whether that is a change.
pub(super) async fn set_muted(
    connection: &mut PgConnection,
    user: UserId,
    since: Option<OffsetDateTime>,
) -> sqlx::Result<bool> {
    let changed = sqlx::query!(
        "update users set muted_at = $2 where user_id = $1 and (muted_at is null) <> ($2::timestamptz is null)",
        user.0,
        since,
    )
    .execute(connection)
    .await?;
    Ok(changed.rows_affected() == 1)
}

pub(super) async fn note_restriction(
    connection: &mut PgConnection,
    user: UserId,
    action: &str,
    reason: &str,
    operator: &str,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into restrictions (user_id, action, reason, operator, created_at) values ($1, $2, $3, $4, $5)",
        user.0,
        action,
        reason,
        operator,
        now,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Blocks somebody; returns whether they were not blocked before.
pub(super) async fn block(
    connection: &mut PgConnection,
    user: UserId,
    other: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let blocked = sqlx::query!(
        "insert into blocks (user_id, blocked_id, created_at) values ($1, $2, $3) on conflict do nothing",
        user.0,
        other.0,
        now,
    )
    .execute(connection)
    .await?;
    Ok(blocked.rows_affected() == 1)
}

/// Unblocks somebody; returns whether they were blocked.
pub(super) async fn unblock(connection: &mut PgConnection, user: UserId, other: UserId) -> sqlx::Result<bool> {
    let unblocked = sqlx::query!("delete from blocks where user_id = $1 and blocked_id = $2", user.0, other.0)
        .execute(connection)
        .await?;
    Ok(unblocked.rows_affected() == 1)
}

/// Whether a user does not want to meet another one.
pub(crate) async fn has_blocked(executor: impl PgExecutor<'_>, user: UserId, other: UserId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select from blocks where user_id = $1 and blocked_id = $2) as "blocks!""#,
        user.0,
        other.0,
    )
    .fetch_one(executor)
    .await
}

/// The rooms to which one user invited another, who did not answer yet.
pub(super) async fn invitations_by(
    connection: &mut PgConnection,
    user: UserId,
    sender: UserId,
) -> sqlx::Result<Vec<RoomId>> {
    sqlx::query_scalar!(
        r#"select room_id as "room_id: RoomId" from room_members
           where user_id = $1 and membership = 'invite' and invited_by = $2"#,
        user.0,
        sender.0,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn count_blocks(connection: &mut PgConnection, user: UserId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from blocks where user_id = $1"#, user.0)
        .fetch_one(connection)
        .await
}

/// Whom a user has blocked and since when, the newest first.
pub(super) async fn blocks(
    connection: &mut PgConnection,
    user: UserId,
    paging: Paging,
) -> sqlx::Result<Vec<(UserId, OffsetDateTime)>> {
    let rows = sqlx::query!(
        r#"select blocked_id as "id: UserId", created_at from blocks
           where user_id = $1 order by created_at desc, blocked_id desc limit $2 offset $3"#,
        user.0,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.id, row.created_at)).collect())
}

/// What the homeserver had of a message.
#[derive(Clone, Debug, Default)]
pub(super) struct Evidence {
    pub(super) sender: Option<String>,
    pub(super) sent_at: Option<OffsetDateTime>,
    pub(super) content: Option<String>,
}

/// Keeps a report; returns whether there was none of this user about this message.
pub(super) async fn report(
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
        // PostgreSQL keeps everything but this.
        evidence.content.as_ref().map(|content| content.replace('\0', "")),
        now,
    )
    .execute(executor)
    .await?;
    Ok(kept.rows_affected() == 1)
}

/// Reports that nobody has looked at, oldest first.
pub(super) async fn open_reports(executor: impl PgExecutor<'_>, most: i64) -> sqlx::Result<Vec<Report>> {
    sqlx::query_as!(
        Report,
        r#"select p.id, u.username as reporter, r.name as room, p.event_id, p.reason, p.sender, p.content, p.created_at
           from reports p join users u on u.user_id = p.user_id join rooms r on r.id = p.room_id
           where p.closed_at is null order by p.created_at, p.id limit $1"#,
        most,
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn close_report(
    executor: impl PgExecutor<'_>,
    id: i64,
    resolution: &str,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let closed = sqlx::query!(
        "update reports set closed_at = $2, resolution = $3 where id = $1 and closed_at is null",
        id,
        now,
        resolution,
    )
    .execute(executor)
    .await?;
    Ok(closed.rows_affected() == 1)
}
