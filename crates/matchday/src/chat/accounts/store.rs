use sqlx::PgConnection;
use web::ids::UserId;

/// Locks a user's chat account until the transaction ends, so that one worker at a time changes it on the homeserver.
/// Without the lock, a worker with an older read of the wanted state could overwrite the result of a newer one.
pub(super) async fn lock_user(connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday chat user', $1))", user.0)
        .fetch_one(connection)
        .await?;
    Ok(())
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
