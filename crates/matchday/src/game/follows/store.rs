//! SQL queries for follows.

use std::collections::{HashMap, HashSet};

use sqlx::{PgConnection, PgExecutor, PgPool};
use time::OffsetDateTime;
use web::ids::UserId;

use super::{
    rules::{CountChange, FOLLOWING_SLOT, FollowCursor},
    service::{FollowCounts, Followed},
};

/// Returns the time at which a user followed the other one; `None` if the user does not.
pub(super) async fn followed_at(
    executor: impl PgExecutor<'_>,
    user: UserId,
    other: UserId,
) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!("select followed_at from follows where user_id = $1 and followed_id = $2", user.0, other.0)
        .fetch_optional(executor)
        .await
}

/// Whether a user follows the other one.
pub(super) async fn follows(executor: impl PgExecutor<'_>, user: UserId, other: UserId) -> sqlx::Result<bool> {
    Ok(followed_at(executor, user, other).await?.is_some())
}

/// Inserts a follow that does not exist. Returns its time as the database stores it.
pub(super) async fn insert(
    connection: &mut PgConnection,
    user: UserId,
    other: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<OffsetDateTime> {
    let followed_at = sqlx::query_scalar!(
        "insert into follows (user_id, followed_id, followed_at) values ($1, $2, $3) returning followed_at",
        user.0,
        other.0,
        now,
    )
    .fetch_one(&mut *connection)
    .await?;
    sqlx::query!(
        "insert into followers (user_id, follower_id, followed_at) values ($1, $2, $3)",
        other.0,
        user.0,
        followed_at,
    )
    .execute(connection)
    .await?;
    Ok(followed_at)
}

/// Deletes a follow. Returns whether it existed.
pub(super) async fn delete(connection: &mut PgConnection, user: UserId, other: UserId) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("delete from follows where user_id = $1 and followed_id = $2", user.0, other.0)
        .execute(&mut *connection)
        .await?;
    sqlx::query!("delete from followers where user_id = $1 and follower_id = $2", other.0, user.0)
        .execute(connection)
        .await?;
    Ok(deleted.rows_affected() == 1)
}

/// Deletes a user's follows of these others. Returns those whom the user did follow.
pub(super) async fn delete_followed(
    connection: &mut PgConnection,
    user: UserId,
    others: &[i64],
) -> sqlx::Result<Vec<i64>> {
    let deleted = sqlx::query_scalar!(
        "delete from follows where user_id = $1 and followed_id = any($2) returning followed_id",
        user.0,
        others,
    )
    .fetch_all(&mut *connection)
    .await?;
    sqlx::query!("delete from followers where user_id = any($1) and follower_id = $2", others, user.0)
        .execute(connection)
        .await?;
    Ok(deleted)
}

/// Deletes the follows of a user by these others. Returns those who did follow the user.
pub(super) async fn delete_followers(
    connection: &mut PgConnection,
    user: UserId,
    others: &[i64],
) -> sqlx::Result<Vec<i64>> {
    let deleted = sqlx::query_scalar!(
        "delete from follows where user_id = any($1) and followed_id = $2 returning user_id",
        others,
        user.0,
    )
    .fetch_all(&mut *connection)
    .await?;
    sqlx::query!("delete from followers where user_id = $1 and follower_id = any($2)", user.0, others)
        .execute(connection)
        .await?;
    Ok(deleted)
}

/// Increases counts.
pub(super) async fn add_to_counts(connection: &mut PgConnection, change: CountChange) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into follow_counts as c (user_id, slot, followers, following, following_version)
         values ($1, $2, $3, $4::bigint, ($4::bigint <> 0)::integer)
         on conflict (user_id, slot) do update
         set followers = c.followers + excluded.followers, following = c.following + excluded.following,
             following_version = c.following_version + excluded.following_version",
        change.user.0,
        change.slot,
        change.followers,
        change.following,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Changes counts that exist.
pub(super) async fn take_from_counts(connection: &mut PgConnection, change: CountChange) -> sqlx::Result<()> {
    sqlx::query!(
        "update follow_counts
         set followers = followers + $3, following = following + $4,
             following_version = following_version + ($4::bigint <> 0)::integer
         where user_id = $1 and slot = $2",
        change.user.0,
        change.slot,
        change.followers,
        change.following,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Locks the counts of these users in one slot, in the order of the users, who must be on the same shard.
pub(super) async fn lock_counts(connection: &mut PgConnection, users: &[i64], slot: i16) -> sqlx::Result<()> {
    sqlx::query_scalar!(
        "select user_id from follow_counts where user_id = any($1) and slot = $2 order by user_id for no key update",
        users,
        slot,
    )
    .fetch_all(connection)
    .await?;
    Ok(())
}

/// Does the same as [`take_from_counts`] for many users, with the same numbers for each of them.
pub(super) async fn take_from_counts_of(
    connection: &mut PgConnection,
    users: &[i64],
    slot: i16,
    (followers, following): (i64, i64),
) -> sqlx::Result<()> {
    sqlx::query!(
        "update follow_counts
         set followers = followers + $3, following = following + $4,
             following_version = following_version + ($4::bigint <> 0)::integer
         where user_id = any($1) and slot = $2",
        users,
        slot,
        followers,
        following,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn counts(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<FollowCounts> {
    sqlx::query_as!(
        FollowCounts,
        r#"select coalesce(sum(followers), 0)::bigint as "followers!", coalesce(sum(following), 0)::bigint as "following!"
           from follow_counts where user_id = $1"#,
        user.0,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn delete_counts(db: &PgPool, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("delete from follow_counts where user_id = $1", user.0).execute(db).await?;
    Ok(())
}

/// A row of a list.
pub(super) struct FollowRow {
    /// The other user.
    pub(super) user: UserId,
    pub(super) followed_at: OffsetDateTime,
}

/// Returns the users whom a user follows after the cursor, newest first. Without a cursor, the condition compares with the
/// greatest values instead of being left out, so that any page starts at its place in the index.
pub(super) async fn list_followed(
    executor: impl PgExecutor<'_>,
    user: UserId,
    after: Option<FollowCursor>,
    limit: i64,
) -> sqlx::Result<Vec<FollowRow>> {
    sqlx::query_as!(
        FollowRow,
        r#"select followed_id as "user: UserId", followed_at from follows
           where user_id = $1
             and (followed_at, followed_id) < (coalesce($2, 'infinity'::timestamptz), coalesce($3, 9223372036854775807))
           order by followed_at desc, followed_id desc limit $4"#,
        user.0,
        after.map(|after| after.followed_at),
        after.map(|after| after.user.0),
        limit,
    )
    .fetch_all(executor)
    .await
}

/// Returns the users who follow a user after the cursor, newest first, like [`list_followed`].
pub(super) async fn list_followers(
    executor: impl PgExecutor<'_>,
    user: UserId,
    after: Option<FollowCursor>,
    limit: i64,
) -> sqlx::Result<Vec<FollowRow>> {
    sqlx::query_as!(
        FollowRow,
        r#"select follower_id as "user: UserId", followed_at from followers
           where user_id = $1
             and (followed_at, follower_id) < (coalesce($2, 'infinity'::timestamptz), coalesce($3, 9223372036854775807))
           order by followed_at desc, follower_id desc limit $4"#,
        user.0,
        after.map(|after| after.followed_at),
        after.map(|after| after.user.0),
        limit,
    )
    .fetch_all(executor)
    .await
}

/// Returns the users among these whom a user follows.
pub(super) async fn followed_among(
    executor: impl PgExecutor<'_>,
    user: UserId,
    others: &[i64],
) -> sqlx::Result<HashSet<UserId>> {
    let found = sqlx::query_scalar!(
        r#"select followed_id as "user: UserId" from follows where user_id = $1 and followed_id = any($2)"#,
        user.0,
        others,
    )
    .fetch_all(executor)
    .await?;
    Ok(found.into_iter().collect())
}

/// Returns the users among these who follow a user.
pub(super) async fn followers_among(
    executor: impl PgExecutor<'_>,
    user: UserId,
    others: &[i64],
) -> sqlx::Result<HashSet<UserId>> {
    let found = sqlx::query_scalar!(
        r#"select follower_id as "user: UserId" from followers where user_id = $1 and follower_id = any($2)"#,
        user.0,
        others,
    )
    .fetch_all(executor)
    .await?;
    Ok(found.into_iter().collect())
}

/// Returns all users whom a user follows, and the version of this list, in one statement, so that both fit together.
pub(super) async fn followed_by(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Followed> {
    let row = sqlx::query!(
        r#"select array(select followed_id from follows where user_id = $1) as "users!",
                  coalesce((select following_version from follow_counts where user_id = $1 and slot = $2), 0) as "version!""#,
        user.0,
        FOLLOWING_SLOT,
    )
    .fetch_one(executor)
    .await?;
    Ok(Followed { users: row.users.into_iter().map(UserId).collect(), version: row.version })
}

/// Returns the versions of the lists of followed users.
pub(super) async fn versions(connection: &mut PgConnection, users: &[i64]) -> sqlx::Result<HashMap<UserId, i64>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", following_version from follow_counts where user_id = any($1) and slot = $2"#,
        users,
        FOLLOWING_SLOT,
    )
    .fetch_all(connection)
    .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.following_version)).collect())
}

/// Returns at most `most` users whom a user follows, in the order of their ids, after this id.
pub(super) async fn followed_after(
    executor: impl PgExecutor<'_>,
    user: UserId,
    after: UserId,
    most: i64,
) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select followed_id as "user: UserId" from follows
           where user_id = $1 and followed_id > $2 order by followed_id limit $3"#,
        user.0,
        after.0,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Returns at most `most` users who follow a user, in the order of their ids, after this id.
pub(super) async fn followers_after(
    executor: impl PgExecutor<'_>,
    user: UserId,
    after: UserId,
    most: i64,
) -> sqlx::Result<Vec<UserId>> {
    sqlx::query_scalar!(
        r#"select follower_id as "user: UserId" from followers
           where user_id = $1 and follower_id > $2 order by follower_id limit $3"#,
        user.0,
        after.0,
        most,
    )
    .fetch_all(executor)
    .await
}
