//! The SQL of accounts.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use crate::ids::UserId;

pub(crate) async fn insert(executor: impl PgExecutor<'_>, now: OffsetDateTime) -> sqlx::Result<UserId> {
    sqlx::query_scalar!(r#"insert into users (created_at) values ($1) returning user_id as "id: UserId""#, now)
        .fetch_one(executor)
        .await
}

/// Makes changes of one user's rows take turns, until the transaction ends. Returns whether there is such a user.
pub(crate) async fn lock(connection: &mut PgConnection, user: UserId) -> sqlx::Result<bool> {
    let found = sqlx::query_scalar!("select user_id from users where user_id = $1 for no key update", user.0)
        .fetch_optional(connection)
        .await?;
    Ok(found.is_some())
}
