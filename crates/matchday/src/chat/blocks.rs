//! Read access to blocks between users, shared by all chat features. `moderation` creates and lifts blocks.

use sqlx::PgExecutor;
use web::ids::UserId;

pub(crate) async fn has_blocked(executor: impl PgExecutor<'_>, user: UserId, other: UserId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from blocks where user_id = $1 and blocked_id = $2) as "blocks!""#,
        user.0,
        other.0,
    )
    .fetch_one(executor)
    .await
}

/// Whether one of the two users has blocked the other.
pub(crate) async fn exists_between(executor: impl PgExecutor<'_>, one: UserId, other: UserId) -> sqlx::Result<bool> {
    // Users cannot block themselves, so a row has both users.
    sqlx::query_scalar!(
        r#"select exists (select 1 from blocks where user_id = any($1) and blocked_id = any($1)) as "blocks!""#,
        &[one.0, other.0],
    )
    .fetch_one(executor)
    .await
}

/// Returns the users whom this user has blocked. Their number is limited.
pub(crate) async fn blocked_by(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Vec<i64>> {
    sqlx::query_scalar!("select blocked_id from blocks where user_id = $1", user.0).fetch_all(executor).await
}

/// Like [`blocked_by`], for several users: pairs of a user and a user whom they have blocked.
pub(crate) async fn blocked_by_each(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<Vec<(i64, i64)>> {
    let rows = sqlx::query!("select user_id, blocked_id from blocks where user_id = any($1)", users)
        .fetch_all(executor)
        .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.blocked_id)).collect())
}
