use std::collections::HashMap;

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{RoomId, UserId};

use super::rules::{Membership, Pushed};

/// Number of groups of rooms whose events are applied in parallel. All processes must agree on it.
pub(super) const GROUPS: i32 = 4;

/// Allows only one transaction at a time to apply events of a group of rooms, so that the events of a room keep their
/// order. Returns false if another transaction does. Does not wait for it, because waiting would occupy a connection.
pub(super) async fn try_lock(connection: &mut PgConnection, group: i32) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select pg_try_advisory_xact_lock(hashtextextended('matchday mirror', $1::integer)) as "is_locked!""#,
        group,
    )
    .fetch_one(connection)
    .await
}

/// Inserts events with a new id. Returns their number.
pub(super) async fn receive(
    executor: impl PgExecutor<'_>,
    events: &[Pushed],
    now: OffsetDateTime,
) -> sqlx::Result<u64> {
    let column = |read: fn(&Pushed) -> &str| events.iter().map(read).collect::<Vec<_>>();
    let ids = column(|event| &event.event_id);
    let rooms = column(|event| &event.matrix_room);
    let kinds = column(|event| &event.kind);
    let senders = column(|event| &event.sender);
    let keys: Vec<Option<&str>> = events.iter().map(|event| event.state_key.as_deref()).collect();
    let sent: Vec<OffsetDateTime> = events.iter().map(|event| event.sent_at).collect();
    let contents: Vec<Option<&str>> = events.iter().map(|event| event.content.as_deref()).collect();
    let faults: Vec<Option<&str>> = events.iter().map(|event| event.fault.as_deref()).collect();
    let inserted = sqlx::query!(
        "insert into chat_inbox (event_id, matrix_room, type, sender, state_key, sent_at, content, received_at, outcome, fault)
         select event_id, room, type, sender, state_key, sent_at, content, $9,
                case when fault is null then null else 'set_aside' end, fault
         from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::timestamptz[], $7::text[], $8::text[])
           with ordinality as e (event_id, room, type, sender, state_key, sent_at, content, fault, position)
         order by position
         on conflict (event_id) do nothing",
        &ids as &[&str],
        &rooms as &[&str],
        &kinds as &[&str],
        &senders as &[&str],
        &keys as &[Option<&str>],
        &sent,
        &contents as &[Option<&str>],
        &faults as &[Option<&str>],
        now,
    )
    .execute(executor)
    .await?;
    Ok(inserted.rows_affected())
}

/// An event that is not applied yet.
#[derive(Clone, Debug)]
pub(super) struct Waiting {
    pub(super) id: i64,
    pub(super) event_id: String,
    pub(super) matrix_room: String,
    pub(super) kind: String,
    pub(super) sender: String,
    pub(super) state_key: Option<String>,
    pub(super) sent_at: OffsetDateTime,
    pub(super) content: Option<String>,
}

/// Groups of rooms with events that are not applied yet.
pub(super) async fn waiting_groups(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<i32>> {
    sqlx::query_scalar!(
        r#"select distinct abs(hashtext(matrix_room) % $1) as "group!" from chat_inbox where outcome is null"#,
        GROUPS,
    )
    .fetch_all(executor)
    .await
}

/// Whether events of a group of rooms are not applied yet.
pub(super) async fn has_waiting(executor: impl PgExecutor<'_>, group: i32) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (
             select 1 from chat_inbox where outcome is null and abs(hashtext(matrix_room) % $2) = $1
           ) as "waits!""#,
        group,
        GROUPS,
    )
    .fetch_one(executor)
    .await
}

/// The oldest events of a group of rooms that are not applied yet.
pub(super) async fn waiting(connection: &mut PgConnection, group: i32, most: i64) -> sqlx::Result<Vec<Waiting>> {
    sqlx::query_as!(
        Waiting,
        "select id, event_id, matrix_room, type as kind, sender, state_key, sent_at, content
         from chat_inbox where outcome is null and abs(hashtext(matrix_room) % $3) = $2 order by id limit $1",
        most,
        group,
        GROUPS,
    )
    .fetch_all(connection)
    .await
}

/// Outcome of an event.
#[derive(Clone, Debug)]
pub(super) struct Settled {
    pub(super) id: i64,
    pub(super) outcome: &'static str,
    pub(super) fault: Option<String>,
}

pub(super) async fn settle(connection: &mut PgConnection, settled: &[Settled]) -> sqlx::Result<()> {
    let ids: Vec<i64> = settled.iter().map(|row| row.id).collect();
    let outcomes: Vec<&str> = settled.iter().map(|row| row.outcome).collect();
    let faults: Vec<Option<&str>> = settled.iter().map(|row| row.fault.as_deref()).collect();
    sqlx::query!(
        "update chat_inbox i set outcome = s.outcome, fault = s.fault
         from unnest($1::bigint[], $2::text[], $3::text[]) as s (id, outcome, fault) where i.id = s.id",
        &ids,
        &outcomes as &[&str],
        &faults as &[Option<&str>],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Deletes events without a trace.
pub(super) async fn forget_events(connection: &mut PgConnection, ids: &[i64]) -> sqlx::Result<()> {
    if !ids.is_empty() {
        sqlx::query!("delete from chat_inbox where id = any($1)", ids).execute(connection).await?;
    }
    Ok(())
}

/// Rooms in which a user has a membership of any kind.
pub(super) async fn rooms_of(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<RoomId>> {
    sqlx::query_scalar!(r#"select room_id as "room_id: RoomId" from room_members where user_id = $1"#, user.0)
        .fetch_all(executor)
        .await
}

pub(super) async fn forget_member(connection: &mut PgConnection, room: RoomId, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("delete from room_members where room_id = $1 and user_id = $2", room.0, user.0)
        .execute(connection)
        .await?;
    Ok(())
}

/// Outcome of an event, if it arrived: `Some(None)` while it waits.
pub(super) async fn outcome(connection: &mut PgConnection, event_id: &str) -> sqlx::Result<Option<Option<String>>> {
    sqlx::query_scalar!("select outcome from chat_inbox where event_id = $1", event_id).fetch_optional(connection).await
}

/// Whether events of a room are waiting.
pub(super) async fn is_waiting(connection: &mut PgConnection, matrix_room: &str) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from chat_inbox where outcome is null and matrix_room = $1) as "waits!""#,
        matrix_room,
    )
    .fetch_one(connection)
    .await
}

/// One of our rooms.
#[derive(Clone, Copy, Debug)]
pub(super) struct OurRoom {
    pub(super) id: RoomId,
    pub(super) creator_id: Option<UserId>,
    /// Zero if the room is not in slow mode.
    pub(super) slow_mode_seconds: i32,
}

/// Our rooms with these homeserver ids.
pub(super) async fn rooms(
    connection: &mut PgConnection,
    matrix_ids: &[&str],
) -> sqlx::Result<HashMap<String, OurRoom>> {
    let rows = sqlx::query!(
        r#"select id as "id: RoomId", matrix_id as "matrix_id!", creator_id as "creator_id: UserId", slow_mode_seconds
           from rooms where matrix_id = any($1)"#,
        matrix_ids as &[&str],
    )
    .fetch_all(connection)
    .await?;
    let room = |id, creator_id, slow_mode_seconds| OurRoom { id, creator_id, slow_mode_seconds };
    Ok(rows.into_iter().map(|row| (row.matrix_id, room(row.id, row.creator_id, row.slow_mode_seconds))).collect())
}

/// Serialises membership changes of one room until the transaction ends. Returns whether the room exists.
pub(super) async fn lock_room(connection: &mut PgConnection, room: RoomId) -> sqlx::Result<bool> {
    let found = sqlx::query_scalar!("select room_id from room_activity where room_id = $1 for update", room.0)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}

/// Stored state of a member.
#[derive(Clone, Debug)]
pub(super) struct Known {
    pub(super) membership: Membership,
    pub(super) changed_at: OffsetDateTime,
    pub(super) awaits: Option<String>,
}

pub(super) async fn member(connection: &mut PgConnection, room: RoomId, user: UserId) -> sqlx::Result<Option<Known>> {
    let row = sqlx::query!(
        "select membership, changed_at, awaits from room_members where user_id = $1 and room_id = $2",
        user.0,
        room.0,
    )
    .fetch_optional(connection)
    .await?;
    row.map(|row| {
        let membership = row.membership.parse().map_err(decode)?;
        Ok(Known { membership, changed_at: row.changed_at, awaits: row.awaits })
    })
    .transpose()
}

pub(super) async fn remote_member(
    connection: &mut PgConnection,
    room: RoomId,
    matrix_user: &str,
) -> sqlx::Result<Option<Known>> {
    let row = sqlx::query!(
        "select membership, changed_at from remote_members where room_id = $1 and matrix_user_id = $2",
        room.0,
        matrix_user,
    )
    .fetch_optional(connection)
    .await?;
    row.map(|row| {
        let membership = row.membership.parse().map_err(decode)?;
        Ok(Known { membership, changed_at: row.changed_at, awaits: None })
    })
    .transpose()
}

fn decode(error: super::rules::UnknownMembership) -> sqlx::Error {
    sqlx::Error::Decode(error.into())
}

/// New state of a member.
#[derive(Clone, Copy, Debug)]
pub(super) struct Change<'a> {
    pub(super) membership: Membership,
    pub(super) invited_by: Option<UserId>,
    /// Time of the join, for a new member.
    pub(super) active_at: Option<OffsetDateTime>,
    pub(super) changed_at: OffsetDateTime,
    pub(super) awaits: Option<&'a str>,
}

pub(super) async fn save_member(
    connection: &mut PgConnection,
    room: RoomId,
    user: UserId,
    change: Change<'_>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into room_members (user_id, room_id, membership, invited_by, active_at, changed_at, awaits)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (user_id, room_id) do update
           set membership = excluded.membership, invited_by = excluded.invited_by,
               active_at = greatest(room_members.active_at, excluded.active_at),
               changed_at = excluded.changed_at, awaits = excluded.awaits",
        user.0,
        room.0,
        change.membership.name(),
        change.invited_by.map(|user| user.0),
        change.active_at,
        change.changed_at,
        change.awaits,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn save_remote_member(
    connection: &mut PgConnection,
    room: RoomId,
    matrix_user: &str,
    change: Change<'_>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into remote_members (room_id, matrix_user_id, membership, changed_at) values ($1, $2, $3, $4)
         on conflict (room_id, matrix_user_id) do update
           set membership = excluded.membership, changed_at = excluded.changed_at",
        room.0,
        matrix_user,
        change.membership.name(),
        change.changed_at,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn add_to_count(connection: &mut PgConnection, room: RoomId, step: i64) -> sqlx::Result<()> {
    sqlx::query!("update room_activity set member_count = member_count + $2 where room_id = $1", room.0, step)
        .execute(connection)
        .await?;
    Ok(())
}

/// Releases the reserved seat of a user who has joined.
pub(super) async fn free_seat(connection: &mut PgConnection, room: RoomId, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("delete from seats where user_id = $1 and room_id = $2", user.0, room.0).execute(connection).await?;
    Ok(())
}

/// Updates the last activity of rooms.
pub(super) async fn note_activity(
    connection: &mut PgConnection,
    spoken: &[(RoomId, OffsetDateTime)],
) -> sqlx::Result<()> {
    let rooms: Vec<i64> = spoken.iter().map(|(room, _)| room.0).collect();
    let times: Vec<OffsetDateTime> = spoken.iter().map(|(_, at)| *at).collect();
    sqlx::query!(
        "update room_activity a set last_activity = s.at
         from unnest($1::bigint[], $2::timestamptz[]) as s (room_id, at)
         where a.room_id = s.room_id and a.last_activity < s.at and a.room_id = any($1)",
        &rooms,
        &times,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Updates the last activity of members, at most once a minute. This is precise enough, because queries only
/// distinguish activity within a week.
pub(super) async fn note_speakers(
    connection: &mut PgConnection,
    spoken: &[(UserId, RoomId, OffsetDateTime)],
) -> sqlx::Result<()> {
    let users: Vec<i64> = spoken.iter().map(|(user, ..)| user.0).collect();
    let rooms: Vec<i64> = spoken.iter().map(|(_, room, _)| room.0).collect();
    let times: Vec<OffsetDateTime> = spoken.iter().map(|(.., at)| *at).collect();
    let stale: Vec<OffsetDateTime> = times.iter().map(|&at| at - time::Duration::MINUTE).collect();
    sqlx::query!(
        "update room_members m set active_at = s.at
         from unnest($1::bigint[], $2::bigint[], $3::timestamptz[], $4::timestamptz[]) as s (user_id, room_id, at, stale)
         where m.user_id = s.user_id and m.room_id = s.room_id and (m.active_at is null or m.active_at < s.stale)
           and m.user_id = any($1)",
        &users,
        &rooms,
        &times,
        &stale,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Renames a room. Stands are skipped, because the service names them.
pub(super) async fn rename(
    connection: &mut PgConnection,
    room: RoomId,
    name: Option<&str>,
    topic: Option<&str>,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update rooms set name = coalesce($2, name), topic = coalesce($3, topic)
         where id = $1 and stand is null and (name <> coalesce($2, name) or topic <> coalesce($3, topic))",
        room.0,
        name,
        topic,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// All users and remote users with a membership other than leave.
pub(super) async fn members(
    connection: &mut PgConnection,
    room: RoomId,
) -> sqlx::Result<(HashMap<UserId, Known>, HashMap<String, Known>)> {
    let users = sqlx::query!(
        r#"select user_id as "user_id: UserId", membership, changed_at from room_members
           where room_id = $1 and membership <> 'leave'"#,
        room.0,
    )
    .fetch_all(&mut *connection)
    .await?;
    let remote = sqlx::query!(
        "select matrix_user_id, membership, changed_at from remote_members where room_id = $1 and membership <> 'leave'",
        room.0,
    )
    .fetch_all(connection)
    .await?;
    let known = |membership: String, changed_at| {
        Ok::<_, sqlx::Error>(Known { membership: membership.parse().map_err(decode)?, changed_at, awaits: None })
    };
    let users = users.into_iter().map(|row| Ok((row.user_id, known(row.membership, row.changed_at)?)));
    let remote = remote.into_iter().map(|row| Ok((row.matrix_user_id, known(row.membership, row.changed_at)?)));
    Ok((users.collect::<sqlx::Result<_>>()?, remote.collect::<sqlx::Result<_>>()?))
}

/// Recounts the members and records the time of the comparison.
pub(super) async fn recount(connection: &mut PgConnection, room: RoomId, now: OffsetDateTime) -> sqlx::Result<()> {
    let here = sqlx::query_scalar!(
        r#"select count(*) as "count!" from room_members where room_id = $1 and membership = 'join'"#,
        room.0,
    )
    .fetch_one(&mut *connection)
    .await?;
    let remote = sqlx::query_scalar!(
        r#"select count(*) as "count!" from remote_members where room_id = $1 and membership = 'join'"#,
        room.0,
    )
    .fetch_one(&mut *connection)
    .await?;
    sqlx::query!(
        "update room_activity set member_count = $2, compared_at = greatest(compared_at, $3) where room_id = $1",
        room.0,
        here + remote,
        now,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A room that is due for a comparison.
pub(super) struct Uncompared {
    pub(super) room: RoomId,
    pub(super) matrix_id: String,
    /// Whether it is one of a match's own rooms.
    pub(super) is_stand: bool,
}

/// Rooms not compared since `since`, most recently active first.
pub(super) async fn uncompared(
    executor: impl PgExecutor<'_>,
    since: OffsetDateTime,
    most: i64,
) -> sqlx::Result<Vec<Uncompared>> {
    sqlx::query_as!(
        Uncompared,
        r#"select r.id as "room: RoomId", r.matrix_id as "matrix_id!", r.stand is not null as "is_stand!"
           from room_activity a join rooms r on r.id = a.room_id
           where a.compared_at < $1 and r.matrix_id is not null
           order by a.last_activity desc, r.id desc limit $2"#,
        since,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Records that a room was compared.
pub(super) async fn note_compared(
    executor: impl PgExecutor<'_>,
    room: RoomId,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!("update room_activity set compared_at = greatest(compared_at, $2) where room_id = $1", room.0, now)
        .execute(executor)
        .await?;
    Ok(())
}

/// Time of the latest mark with this name.
pub(super) async fn mark(executor: impl PgExecutor<'_>, name: &str) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!("select at from mirror_marks where name = $1", name).fetch_optional(executor).await
}

pub(super) async fn set_mark(executor: impl PgExecutor<'_>, name: &str, at: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into mirror_marks (name, at) values ($1, $2)
         on conflict (name) do update set at = greatest(mirror_marks.at, excluded.at)",
        name,
        at,
    )
    .execute(executor)
    .await?;
    Ok(())
}

pub(super) async fn status(executor: impl PgExecutor<'_>) -> sqlx::Result<super::service::Status> {
    sqlx::query_as!(
        super::service::Status,
        r#"select (select count(*) from chat_inbox where outcome is null) as "waiting!",
                  (select count(*) from chat_inbox where outcome = 'set_aside') as "set_aside!",
                  (select min(received_at) from chat_inbox where outcome is null) as waiting_since,
                  (select max(received_at) from chat_inbox) as last_received,
                  (select min(a.compared_at) from room_activity a join rooms r on r.id = a.room_id
                   where r.matrix_id is not null) as compared_since"#,
    )
    .fetch_one(executor)
    .await
}

/// Matrix events that were set aside, newest first.
pub(super) async fn set_aside(executor: impl PgExecutor<'_>, most: i64) -> sqlx::Result<Vec<super::service::SetAside>> {
    sqlx::query_as!(
        super::service::SetAside,
        r#"select event_id, matrix_room, type as kind, sender, content, coalesce(fault, '') as "fault!", received_at
           from chat_inbox where outcome = 'set_aside' order by received_at desc, id desc limit $1"#,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Deletes up to `most` handled events. Message events are deleted first, because applying them again changes nothing.
/// Membership events are kept longer, and events that were set aside longest.
pub(super) async fn sweep(
    executor: impl PgExecutor<'_>,
    said_before: OffsetDateTime,
    before: OffsetDateTime,
    set_aside_before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from chat_inbox where event_id in
           (select event_id from chat_inbox
            where outcome is not null and received_at < case when outcome = 'set_aside' then $3::timestamptz
                                                             when state_key is null then $1::timestamptz
                                                             else $2::timestamptz end
              and received_at < $1
            order by received_at limit $4)",
        said_before,
        before,
        set_aside_before,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
