use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::UserId;

/// Locks the pusher of a user until the transaction ends, so that one worker at a time changes it on the homeserver.
pub(super) async fn lock(connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("select pg_advisory_xact_lock(hashtextextended('matchday pusher', $1))", user.0)
        .fetch_one(connection)
        .await?;
    Ok(())
}

/// A pusher, as the homeserver last confirmed it.
pub(super) struct Pusher {
    pub(super) secret: Vec<u8>,
    pub(super) username: Option<String>,
    pub(super) gateway: Option<String>,
    pub(super) set_at: Option<OffsetDateTime>,
}

pub(super) async fn pusher(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Option<Pusher>> {
    sqlx::query_as!(Pusher, "select secret, username, gateway, set_at from mention_pushers where user_id = $1", user.0,)
        .fetch_optional(executor)
        .await
}

/// Records that the homeserver has the pusher.
pub(super) async fn confirm(
    executor: impl PgExecutor<'_>,
    user: UserId,
    (username, gateway): (&str, &str),
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update mention_pushers set username = $2, gateway = $3, set_at = $4 where user_id = $1",
        user.0,
        username,
        gateway,
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the secret of a user's pusher, if there is one.
pub(super) async fn secret(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Option<Vec<u8>>> {
    sqlx::query_scalar!("select secret from mention_pushers where user_id = $1", user.0).fetch_optional(executor).await
}

/// Stores the key of a pusher that is about to be changed. Until the change is confirmed, the homeserver may have another
/// pusher or none.
pub(super) async fn begin_change(
    executor: impl PgExecutor<'_>,
    user: UserId,
    secret: &[u8],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into mention_pushers (user_id, secret, created_at) values ($1, $2, $3)
         on conflict (user_id) do update set set_at = null",
        user.0,
        secret,
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

pub(super) async fn delete(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("delete from mention_pushers where user_id = $1", user.0).execute(executor).await?;
    Ok(())
}
