//! The SQL of chat.

use sqlx::PgConnection;
use web::ids::UserId;

/// What is done to one user on the homeserver is done by one worker at a time, until the transaction ends: whoever reads
/// what is to be so and then makes it so must not be overtaken by somebody who read it later.
pub(super) async fn take_turns(connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday chat user', $1))", user.0)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// Everybody between whom and a user there is a block, as (who blocks, whom).
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
