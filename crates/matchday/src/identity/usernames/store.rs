//! SQL queries for usernames.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::UserId;

use super::rules::Username;

/// Returns the names that an account has or had.
pub(super) async fn taken(executor: impl PgExecutor<'_>, names: &[String]) -> sqlx::Result<Vec<String>> {
    sqlx::query_scalar!("select username from username_claims where username = any($1)", names)
        .fetch_all(executor)
        .await
}

/// Claims a name and returns whether it was free. Waits for a concurrent transaction that claims the same name.
pub(super) async fn claim(
    connection: &mut PgConnection,
    username: &Username,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let claimed = sqlx::query!(
        "insert into username_claims (username, user_id, claimed_at) values ($1, $2, $3)
         on conflict (username) do nothing returning username",
        username.as_str(),
        user.0,
        now,
    )
    .fetch_optional(connection)
    .await?;
    Ok(claimed.is_some())
}
