use std::time::Duration;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{RoomId, UserId};

/// Difference between the clocks of the homeserver and the service that slow mode tolerates.
const TOLERANCE: time::Duration = time::Duration::seconds(1);

/// A member who is muted in a room.
#[derive(Clone, Debug)]
pub struct RoomMute {
    pub user_id: UserId,
    pub until: OffsetDateTime,
}

/// Locks the row that changes with the members of a room, so that concurrent changes of its roles wait for each other.
/// Returns whether the room exists.
pub(crate) async fn lock_room(connection: &mut PgConnection, room: RoomId) -> sqlx::Result<bool> {
    let found = sqlx::query_scalar!("select room_id from room_activity where room_id = $1 for update", room.0)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// Moderators of a room without its creator, in the order of their appointment.
pub(crate) async fn moderators(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from room_moderators where room_id = $1 order by appointed_at, user_id"#,
        room.0,
    )
    .fetch_all(executor)
    .await
}

pub(crate) async fn is_moderator(executor: impl PgExecutor<'_>, room: RoomId, user: UserId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from room_moderators where room_id = $1 and user_id = $2) as "is_moderator!""#,
        room.0,
        user.0,
    )
    .fetch_one(executor)
    .await
}

pub(crate) async fn count_moderators(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from room_moderators where room_id = $1"#, room.0)
        .fetch_one(executor)
        .await
}

/// Returns whether the user was not a moderator before.
pub(crate) async fn appoint(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let inserted = sqlx::query!(
        "insert into room_moderators (room_id, user_id, appointed_at) values ($1, $2, $3) on conflict do nothing",
        room.0,
        user.0,
        now,
    )
    .execute(connection)
    .await?;
    Ok(inserted.rows_affected() == 1)
}

pub(super) async fn dismiss(connection: &mut PgConnection, room: RoomId, user: UserId) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("delete from room_moderators where room_id = $1 and user_id = $2", room.0, user.0)
        .execute(connection)
        .await?;
    Ok(deleted.rows_affected() == 1)
}

/// Mutes a member until a time. Repeating it sets a new end.
pub(crate) async fn mute(
    connection: &mut PgConnection,
    room: RoomId,
    mute: &RoomMute,
    reason: &str,
    muted_by: &str,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into room_mutes (room_id, user_id, until, reason, muted_by, created_at) values ($1, $2, $3, $4, $5, $6)
         on conflict (room_id, user_id) do update
         set until = excluded.until, reason = excluded.reason, muted_by = excluded.muted_by",
        room.0,
        mute.user_id.0,
        mute.until,
        reason,
        muted_by,
        now,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Ends a mute, or with `ended_at`, only a mute that ended until then. Returns whether there was one.
pub(crate) async fn unmute(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
    ended_at: Option<OffsetDateTime>,
) -> sqlx::Result<bool> {
    let deleted = sqlx::query!(
        "delete from room_mutes where room_id = $1 and user_id = $2 and ($3::timestamptz is null or until <= $3)",
        room.0,
        user.0,
        ended_at,
    )
    .execute(connection)
    .await?;
    Ok(deleted.rows_affected() == 1)
}

/// End of a member's mute in a room, if it is in effect.
pub(crate) async fn muted_until(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!(
        "select until from room_mutes where room_id = $1 and user_id = $2 and until > $3",
        room.0,
        user.0,
        now,
    )
    .fetch_optional(executor)
    .await
}

/// Mutes in a room, including expired mutes that are not lifted yet.
pub(crate) async fn mutes(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Vec<RoomMute>> {
    sqlx::query_as!(
        RoomMute,
        r#"select user_id as "user_id: UserId", until from room_mutes where room_id = $1"#,
        room.0
    )
    .fetch_all(executor)
    .await
}

/// Mutes that have ended.
pub(crate) async fn ended_mutes(
    executor: impl PgExecutor<'_>,
    now: OffsetDateTime,
    most: i64,
) -> sqlx::Result<Vec<(RoomId, UserId)>> {
    let rows = sqlx::query!(
        r#"select room_id as "room_id: RoomId", user_id as "user_id: UserId" from room_mutes
           where until <= $1 order by until limit $2"#,
        now,
        most,
    )
    .fetch_all(executor)
    .await?;
    Ok(rows.into_iter().map(|row| (row.room_id, row.user_id)).collect())
}

/// Whether the user moderates the room or is muted there.
pub(crate) async fn moderated_or_muted(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    user: UserId,
) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from room_moderators where room_id = $1 and user_id = $2)
               or exists (select 1 from room_mutes where room_id = $1 and user_id = $2) as "has_role!""#,
        room.0,
        user.0,
    )
    .fetch_one(executor)
    .await
}

/// Returns the previous period in seconds.
pub(crate) async fn set_slow_mode(connection: &mut PgConnection, room: RoomId, seconds: i32) -> sqlx::Result<i32> {
    let before = sqlx::query_scalar!("select slow_mode_seconds from rooms where id = $1 for update", room.0)
        .fetch_one(&mut *connection)
        .await?;
    if before != seconds {
        sqlx::query!("update rooms set slow_mode_seconds = $2 where id = $1", room.0, seconds)
            .execute(connection)
            .await?;
    }
    Ok(before)
}

pub(super) async fn increment_powers(connection: &mut PgConnection, room: RoomId) -> sqlx::Result<()> {
    sqlx::query!("update rooms set powers_version = powers_version + 1 where id = $1", room.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Version of the power levels, and the version that the homeserver has.
pub(crate) async fn powers_version(executor: impl PgExecutor<'_>, room: RoomId) -> sqlx::Result<Option<(i64, i64)>> {
    let row = sqlx::query!("select powers_version, powers_applied from rooms where id = $1", room.0)
        .fetch_optional(executor)
        .await?;
    Ok(row.map(|row| (row.powers_version, row.powers_applied)))
}

/// Notes that the homeserver has these power levels. Returns false if another writer has noted some since `applied` was
/// read.
pub(crate) async fn note_powers(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    version: i64,
    applied: i64,
) -> sqlx::Result<bool> {
    let noted = sqlx::query!(
        "update rooms set powers_applied = $2 where id = $1 and powers_applied = $3",
        room.0,
        version,
        applied,
    )
    .execute(executor)
    .await?;
    Ok(noted.rows_affected() > 0)
}

/// Returns whether the turn was free, or taken by the same request.
pub(super) async fn take_turn(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
    period: Duration,
    request: &[u8],
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let taken = sqlx::query!(
        "insert into slow_mode_turns as t (room_id, user_id, at, request) values ($1, $2, $3, $4)
         on conflict (room_id, user_id) do update
         set at = case when t.request = $4 then t.at else $3 end,
             event_id = case when t.request = $4 then t.event_id end,
             request = $4
         where t.request = $4 or t.at <= $5",
        room.0,
        user.0,
        now,
        request,
        now - period,
    )
    .execute(connection)
    .await?;
    Ok(taken.rows_affected() == 1)
}

/// Time of the member's last message in slow mode.
pub(super) async fn last_turn(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!("select at from slow_mode_turns where room_id = $1 and user_id = $2", room.0, user.0)
        .fetch_optional(connection)
        .await
}

/// Notes the message for which a request took the turn.
pub(crate) async fn confirm_turn(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    user: UserId,
    request: &[u8],
    event_id: &str,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update slow_mode_turns set event_id = $4 where room_id = $1 and user_id = $2 and request = $3",
        room.0,
        user.0,
        request,
        event_id,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the turn of a request that sent nothing.
pub(crate) async fn return_turn(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    user: UserId,
    request: &[u8],
) -> sqlx::Result<()> {
    sqlx::query!(
        "delete from slow_mode_turns where room_id = $1 and user_id = $2 and request = $3 and event_id is null",
        room.0,
        user.0,
        request,
    )
    .execute(executor)
    .await?;
    Ok(())
}

pub(super) async fn take_pushed_turn(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
    period: Duration,
    event_id: &str,
    sent_at: OffsetDateTime,
) -> sqlx::Result<bool> {
    // A turn without a message belongs to a request in progress, whose message this is.
    let taken = sqlx::query!(
        "insert into slow_mode_turns as t (room_id, user_id, at, event_id) values ($1, $2, $3, $4)
         on conflict (room_id, user_id) do update
         set at = case when t.event_id is null or t.event_id = $4 then t.at else $3 end,
             request = case when t.event_id is null or t.event_id = $4 then t.request end,
             event_id = $4
         where t.event_id is null or t.event_id = $4 or t.at <= $5",
        room.0,
        user.0,
        sent_at,
        event_id,
        sent_at - period + TOLERANCE,
    )
    .execute(connection)
    .await?;
    Ok(taken.rows_affected() == 1)
}

/// Deletes turns that no longer delay a message. Returns their number.
pub(crate) async fn sweep_turns(executor: impl PgExecutor<'_>, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from slow_mode_turns where (room_id, user_id) in
           (select room_id, user_id from slow_mode_turns where at < $1 order by at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
