//! SQL queries for server keys.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::ServerKeyId;

use super::rules::KeyHash;

pub(super) struct Row {
    pub(super) id: ServerKeyId,
    pub(super) name: String,
    pub(super) prefix: String,
    pub(super) key_hash: Vec<u8>,
    pub(super) previous_hash: Option<Vec<u8>>,
    pub(super) previous_valid_until: Option<OffsetDateTime>,
    pub(super) scopes: Vec<String>,
    pub(super) networks: Vec<String>,
    pub(super) created_at: OffsetDateTime,
    pub(super) expires_at: Option<OffsetDateTime>,
    pub(super) last_used_at: Option<OffsetDateTime>,
    pub(super) revoked_at: Option<OffsetDateTime>,
}

pub(super) async fn find(executor: impl PgExecutor<'_>, id: ServerKeyId) -> sqlx::Result<Option<Row>> {
    sqlx::query_as!(
        Row,
        r#"select key_id as "id: ServerKeyId", name, prefix, key_hash, previous_hash, previous_valid_until, scopes,
                  networks, created_at, expires_at, last_used_at, revoked_at
           from server_keys where key_id = $1"#,
        id.0,
    )
    .fetch_optional(executor)
    .await
}

/// Returns all keys, oldest first.
pub(super) async fn list(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<Row>> {
    sqlx::query_as!(
        Row,
        r#"select key_id as "id: ServerKeyId", name, prefix, key_hash, previous_hash, previous_valid_until, scopes,
                  networks, created_at, expires_at, last_used_at, revoked_at
           from server_keys order by key_id"#,
    )
    .fetch_all(executor)
    .await
}

/// Inserts a key that has no text yet, because the text contains the id. No text has this hash.
pub(super) async fn insert(
    connection: &mut PgConnection,
    name: &str,
    scopes: &[&str],
    networks: &[String],
    now: OffsetDateTime,
    expires_at: Option<OffsetDateTime>,
) -> sqlx::Result<ServerKeyId> {
    sqlx::query_scalar!(
        r#"insert into server_keys (name, prefix, key_hash, scopes, networks, created_at, expires_at)
           values ($1, '', decode(repeat('00', 32), 'hex'), $2, $3, $4, $5) returning key_id as "id: ServerKeyId""#,
        name,
        scopes as &[&str],
        networks,
        now,
        expires_at,
    )
    .fetch_one(connection)
    .await
}

/// Sets the text of a new key.
pub(super) async fn set_text(
    connection: &mut PgConnection,
    id: ServerKeyId,
    prefix: &str,
    hash: KeyHash,
) -> sqlx::Result<()> {
    sqlx::query!("update server_keys set prefix = $2, key_hash = $3 where key_id = $1", id.0, prefix, &hash.0[..])
        .execute(connection)
        .await?;
    Ok(())
}

/// Replaces the text. The previous one stays valid until the given time, if there is one. Returns whether the key exists
/// and is not revoked.
pub(super) async fn replace_text(
    connection: &mut PgConnection,
    id: ServerKeyId,
    prefix: &str,
    hash: KeyHash,
    previous_valid_until: Option<OffsetDateTime>,
) -> sqlx::Result<bool> {
    let replaced = sqlx::query!(
        "update server_keys
         set prefix = $2, previous_hash = case when $4::timestamptz is null then null else key_hash end,
             previous_valid_until = $4, key_hash = $3
         where key_id = $1 and revoked_at is null",
        id.0,
        prefix,
        &hash.0[..],
        previous_valid_until,
    )
    .execute(connection)
    .await?;
    Ok(replaced.rows_affected() == 1)
}

/// Returns whether the key was not revoked before.
pub(super) async fn revoke(connection: &mut PgConnection, id: ServerKeyId, now: OffsetDateTime) -> sqlx::Result<bool> {
    let revoked =
        sqlx::query!("update server_keys set revoked_at = $2 where key_id = $1 and revoked_at is null", id.0, now)
            .execute(connection)
            .await?;
    Ok(revoked.rows_affected() == 1)
}

/// Records a use, unless another process recorded one after `since`.
pub(super) async fn note_use(
    executor: impl PgExecutor<'_>,
    id: ServerKeyId,
    now: OffsetDateTime,
    since: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!(
        "update server_keys set last_used_at = $2 where key_id = $1 and (last_used_at is null or last_used_at <= $3)",
        id.0,
        now,
        since,
    )
    .execute(executor)
    .await?;
    Ok(())
}
