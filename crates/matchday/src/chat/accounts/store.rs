use sqlx::PgConnection;
use web::ids::UserId;

use crate::identity::{avatars::AvatarKey, usernames::Username};

/// Locks a user's chat account until the transaction ends, so that one worker at a time changes it on the homeserver.
/// Without the lock, a worker with an older read of the wanted state could overwrite the result of a newer one.
pub(super) async fn lock_user(connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday chat user', $1))", user.0)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// Returns `None` if the account is deleted.
pub(super) async fn username_and_avatar(
    connection: &mut PgConnection,
    user: UserId,
) -> sqlx::Result<Option<(Username, Option<AvatarKey>)>> {
    let row = sqlx::query!(
        r#"select username as "username: Username", avatar_key as "avatar: AvatarKey"
           from users where user_id = $1 and deleted_at is null"#,
        user.0,
    )
    .fetch_optional(connection)
    .await?;
    Ok(row.map(|row| (row.username, row.avatar)))
}

/// All blocks that involve a user, as (blocking user, blocked user).
pub(super) async fn blocks_around(connection: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<(UserId, UserId)>> {
    let theirs = sqlx::query_scalar!(r#"select blocked_id as "id: UserId" from blocks where user_id = $1"#, user.0)
        .fetch_all(&mut *connection)
        .await?;
    let of_them = sqlx::query_scalar!(r#"select user_id as "id: UserId" from blocks where blocked_id = $1"#, user.0)
        .fetch_all(connection)
        .await?;
    let (theirs, of_them) = (theirs.into_iter().map(|other| (user, other)), of_them.into_iter().map(|by| (by, user)));
    Ok(theirs.chain(of_them).collect())
}
