use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::{
    ids::{RoomId, UserId},
    paging::Paging,
};

/// A removal that is not carried out yet.
#[derive(Clone, Debug)]
pub(super) struct Pending {
    pub(super) matrix_room: String,
    pub(super) sender: String,
    pub(super) source: String,
    pub(super) reason: String,
    pub(super) mute_seconds: Option<i32>,
    pub(super) planned_at: OffsetDateTime,
    /// Creator of the room, if it is a fan room.
    pub(super) creator_id: Option<UserId>,
}

/// A removed message.
#[derive(Clone, Debug)]
pub struct RemovedMessage {
    /// The homeserver's id of the room.
    pub room: String,
    /// The homeserver's id of the message.
    pub event_id: String,
    /// Column `source` of the removal.
    pub source: String,
    pub reason: String,
    pub removed_at: OffsetDateTime,
}

/// The removal of a message, unless it was carried out.
pub(super) async fn pending(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    event_id: &str,
) -> sqlx::Result<Option<Pending>> {
    sqlx::query_as!(
        Pending,
        r#"select r.matrix_id as "matrix_room!", m.sender, m.source, m.reason, m.mute_seconds, m.planned_at,
                  r.creator_id as "creator_id: UserId"
           from removals m join rooms r on r.id = m.room_id
           where m.room_id = $1 and m.event_id = $2 and m.removed_at is null and r.matrix_id is not null"#,
        room.0,
        event_id,
    )
    .fetch_optional(executor)
    .await
}

/// Notes that a removal was carried out. Returns whether it was not before.
pub(super) async fn finish(
    connection: &mut PgConnection,
    room: RoomId,
    event_id: &str,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let finished = sqlx::query!(
        "update removals set removed_at = $3 where room_id = $1 and event_id = $2 and removed_at is null",
        room.0,
        event_id,
        now,
    )
    .execute(connection)
    .await?;
    Ok(finished.rows_affected() == 1)
}

/// Times at which removals of a sender's messages were planned that count as offences, up to and including one of them.
/// Removals by the moderators of a fan room count in that room only, and no others count there.
pub(super) async fn offences(
    executor: impl PgExecutor<'_>,
    sender: &str,
    fan_room: Option<RoomId>,
    since: OffsetDateTime,
    until: OffsetDateTime,
) -> sqlx::Result<Vec<OffsetDateTime>> {
    sqlx::query_scalar!(
        "select m.planned_at from removals m join rooms r on r.id = m.room_id
         where m.sender = $1 and m.planned_at > $2 and m.planned_at <= $3
           and case when m.source = 'moderator' and r.creator_id is not null then r.id = $4
                    else $4::bigint is null and m.source not in ('sender', 'slow_mode') end
         order by m.planned_at",
        sender,
        since,
        until,
        fan_room.map(|room| room.0),
    )
    .fetch_all(executor)
    .await
}

/// A page of the removed messages of a sender that others removed, latest first, and the total.
pub(super) async fn of_sender(
    executor: impl PgExecutor<'_>,
    sender: &str,
    paging: Paging,
) -> sqlx::Result<(Vec<RemovedMessage>, i64)> {
    let rows = sqlx::query!(
        r#"select r.matrix_id as "room!", m.event_id, m.source, m.reason, m.removed_at as "removed_at!",
                  count(*) over () as "total!"
           from removals m join rooms r on r.id = m.room_id
           where m.sender = $1 and m.source <> 'sender' and m.removed_at is not null and r.matrix_id is not null
           order by m.removed_at desc, m.event_id limit $2 offset $3"#,
        sender,
        paging.limit(),
        paging.offset(),
    )
    .fetch_all(executor)
    .await?;
    let total = rows.first().map_or(0, |row| row.total);
    let removed = rows.into_iter().map(|row| RemovedMessage {
        room: row.room,
        event_id: row.event_id,
        source: row.source,
        reason: row.reason,
        removed_at: row.removed_at,
    });
    Ok((removed.collect(), total))
}

/// Deletes old removals that were carried out. Returns their number.
pub(super) async fn sweep(executor: impl PgExecutor<'_>, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from removals where (room_id, event_id) in
           (select room_id, event_id from removals
            where planned_at < $1 and removed_at is not null order by planned_at limit $2)",
        before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
