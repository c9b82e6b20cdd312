use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::{
    ids::{RoomId, UserId},
    paging::Paging,
};

use crate::identity::accounts::restrictions::Term;

/// Sets or lifts a ban. Returns whether the row changed. A new ban after an expired one starts now instead of keeping
/// the old start.
pub(super) async fn set_banned(
    connection: &mut PgConnection,
    user: UserId,
    ban: Option<Term>,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let changed = sqlx::query!(
        "update users
         set banned_at = case when banned_until <= $4 or $2::timestamptz is null then $2 else coalesce(banned_at, $2) end,
             banned_until = $3
         where user_id = $1 and ((banned_at is null) <> ($2::timestamptz is null) or banned_until is distinct from $3)",
        user.0,
        ban.map(|ban| ban.since),
        ban.and_then(|ban| ban.until),
        now,
    )
    .execute(connection)
    .await?;
    Ok(changed.rows_affected() == 1)
}

/// Sets or lifts a mute. Returns whether the row changed. A new mute after an expired one starts now instead of keeping
/// the old start.
pub(super) async fn set_muted(
    connection: &mut PgConnection,
    user: UserId,
    mute: Option<Term>,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let changed = sqlx::query!(
        "update users
         set muted_at = case when muted_until <= $4 or $2::timestamptz is null then $2 else coalesce(muted_at, $2) end,
             muted_until = $3
         where user_id = $1 and ((muted_at is null) <> ($2::timestamptz is null) or muted_until is distinct from $3)",
        user.0,
        mute.map(|mute| mute.since),
        mute.and_then(|mute| mute.until),
        now,
    )
    .execute(connection)
    .await?;
    Ok(changed.rows_affected() == 1)
}

/// Users with an expired ban or mute that no worker has lifted yet.
pub(super) async fn ended(executor: impl PgExecutor<'_>, now: OffsetDateTime, most: i64) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select user_id as "user_id!: UserId" from (
             (select user_id from users where banned_until <= $1 order by banned_until limit $2)
             union
             (select user_id from users where muted_until <= $1 order by muted_until limit $2)) ended"#,
        now,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Lifts a user's ban and mute if they have expired. Returns whether the ban and whether the mute was lifted.
pub(super) async fn lift_ended(
    connection: &mut PgConnection,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<(bool, bool)> {
    let before = sqlx::query!(
        r#"select coalesce(banned_until <= $2, false) as "ban!", coalesce(muted_until <= $2, false) as "mute!"
           from users where user_id = $1"#,
        user.0,
        now,
    )
    .fetch_one(&mut *connection)
    .await?;
    sqlx::query!(
        "update users set banned_at = case when $2 then null else banned_at end,
                          banned_until = case when $2 then null else banned_until end,
                          muted_at = case when $3 then null else muted_at end,
                          muted_until = case when $3 then null else muted_until end
         where user_id = $1 and ($2::bool or $3::bool)",
        user.0,
        before.ban,
        before.mute,
    )
    .execute(connection)
    .await?;
    Ok((before.ban, before.mute))
}

/// Number of restricted phones hashed with a key that is not among these versions. Their restrictions have no effect.
pub(super) async fn count_phones_without_key(executor: impl PgExecutor<'_>, versions: &[i16]) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from restricted_phones where key_version <> all($1)"#, versions,)
        .fetch_one(executor)
        .await
}

/// Deletes up to `most` phones whose restrictions have expired. Returns their number.
pub(super) async fn sweep_phones(executor: impl PgExecutor<'_>, now: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from restricted_phones
         where mac in (select mac from restricted_phones where ends_at <= $1 order by ends_at limit $2)",
        now,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}

/// Inserts a block. Returns whether it is new.
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

/// Deletes a block. Returns whether it existed.
pub(super) async fn unblock(connection: &mut PgConnection, user: UserId, other: UserId) -> sqlx::Result<bool> {
    let unblocked = sqlx::query!("delete from blocks where user_id = $1 and blocked_id = $2", user.0, other.0)
        .execute(connection)
        .await?;
    Ok(unblocked.rows_affected() == 1)
}

/// Rooms with a pending invitation from `sender` to `user`.
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

/// Users blocked by a user, with the time of the block, newest first.
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
