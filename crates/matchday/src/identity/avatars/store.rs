//! SQL of avatars.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::UserId;

use super::AvatarKey;

/// Names an avatar whose images are about to be stored. If the upload does not finish, they are deleted at `delete_at`.
pub(super) async fn insert(
    db: impl PgExecutor<'_>,
    key: &AvatarKey,
    user: UserId,
    now: OffsetDateTime,
    delete_at: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into avatars (avatar_key, user_id, uploaded_at, delete_at) values ($1, $2, $3, $4)",
        key.0,
        user.0,
        now,
        delete_at,
    )
    .execute(db)
    .await
    .map(|_| ())
}

/// The avatar of a user whose account is not deleted. The outer `None` means that there is no such account.
pub(super) async fn of_user(db: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Option<Option<AvatarKey>>> {
    sqlx::query_scalar!(
        r#"select avatar_key as "key: AvatarKey" from users where user_id = $1 and deleted_at is null"#,
        user.0,
    )
    .fetch_optional(db)
    .await
}

pub(super) async fn set(connection: &mut PgConnection, user: UserId, key: Option<&AvatarKey>) -> sqlx::Result<()> {
    sqlx::query!("update users set avatar_key = $2 where user_id = $1", user.0, key.map(|key| key.0.as_str()))
        .execute(connection)
        .await
        .map(|_| ())
}

/// Serves an avatar from now on. Returns false if it was uploaded earlier than `since`: its images may be deleted. `delete_at`
/// does not tell, because a failed deletion postpones it.
pub(super) async fn publish(
    connection: &mut PgConnection,
    key: &AvatarKey,
    since: OffsetDateTime,
) -> sqlx::Result<bool> {
    let published =
        sqlx::query!("update avatars set delete_at = null where avatar_key = $1 and uploaded_at > $2", key.0, since)
            .execute(connection)
            .await?;
    Ok(published.rows_affected() == 1)
}

/// Ends the serving of an avatar and marks its images for deletion.
pub(super) async fn retire(connection: &mut PgConnection, key: &AvatarKey, now: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!("update avatars set delete_at = $2 where avatar_key = $1", key.0, now)
        .execute(connection)
        .await
        .map(|_| ())
}

pub(super) async fn is_served(db: impl PgExecutor<'_>, key: &AvatarKey) -> sqlx::Result<bool> {
    sqlx::query_scalar!(
        r#"select exists (select 1 from avatars where avatar_key = $1 and delete_at is null) as "is_served!""#,
        key.0,
    )
    .fetch_one(db)
    .await
}

/// Avatars whose images must be deleted, those that are due for longest first.
pub(super) async fn due(db: impl PgExecutor<'_>, now: OffsetDateTime, most: i64) -> sqlx::Result<Vec<AvatarKey>> {
    sqlx::query_scalar!(
        r#"select avatar_key as "key: AvatarKey" from avatars where delete_at <= $1 order by delete_at limit $2"#,
        now,
        most,
    )
    .fetch_all(db)
    .await
}

/// Postpones a deletion that failed.
pub(super) async fn postpone(db: impl PgExecutor<'_>, key: &AvatarKey, until: OffsetDateTime) -> sqlx::Result<()> {
    sqlx::query!("update avatars set delete_at = $2 where avatar_key = $1 and delete_at is not null", key.0, until)
        .execute(db)
        .await
        .map(|_| ())
}

pub(super) async fn delete(db: impl PgExecutor<'_>, key: &AvatarKey) -> sqlx::Result<()> {
    sqlx::query!("delete from avatars where avatar_key = $1 and delete_at is not null", key.0)
        .execute(db)
        .await
        .map(|_| ())
}
