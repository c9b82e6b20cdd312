//! SQL queries for webhooks.

use platform::encryption::Encrypted;
use sqlx::PgExecutor;
use time::OffsetDateTime;
use web::ids::EndpointId;

/// Database row of an endpoint.
pub(super) struct Row {
    pub(super) id: EndpointId,
    pub(super) url: String,
    pub(super) secret: Vec<u8>,
    pub(super) key_version: i16,
    pub(super) types: Vec<String>,
    pub(super) created_at: OffsetDateTime,
    pub(super) disabled_at: Option<OffsetDateTime>,
}

pub(super) async fn list(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<Row>> {
    sqlx::query_as!(
        Row,
        r#"select id as "id: EndpointId", url, secret, key_version, types, created_at, disabled_at
           from webhook_endpoints order by id"#
    )
    .fetch_all(executor)
    .await
}

pub(super) async fn insert(
    executor: impl PgExecutor<'_>,
    url: &str,
    secret: &Encrypted,
    types: &[String],
    now: OffsetDateTime,
) -> sqlx::Result<EndpointId> {
    sqlx::query_scalar!(
        r#"insert into webhook_endpoints (url, secret, key_version, types, created_at) values ($1, $2, $3, $4, $5)
           returning id as "id: EndpointId""#,
        url,
        secret.bytes,
        secret.key_version,
        types,
        now,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn delete(executor: impl PgExecutor<'_>, id: EndpointId) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("delete from webhook_endpoints where id = $1", id.0).execute(executor).await?;
    Ok(deleted.rows_affected() > 0)
}

/// Disables or enables an endpoint. Returns whether it exists. Disabling again keeps the first time.
pub(super) async fn set_disabled(
    executor: impl PgExecutor<'_>,
    id: EndpointId,
    since: Option<OffsetDateTime>,
) -> sqlx::Result<bool> {
    let set = sqlx::query!(
        "update webhook_endpoints
         set disabled_at = case when $2::timestamptz is null then null else coalesce(disabled_at, $2) end
         where id = $1",
        id.0,
        since,
    )
    .execute(executor)
    .await?;
    Ok(set.rows_affected() > 0)
}

/// Replaces the encrypted secret, unless it has changed since it was read.
pub(super) async fn reseal(
    executor: impl PgExecutor<'_>,
    id: EndpointId,
    before: &Encrypted,
    after: &Encrypted,
) -> sqlx::Result<bool> {
    let resealed = sqlx::query!(
        "update webhook_endpoints set secret = $3, key_version = $4 where id = $1 and secret = $2",
        id.0,
        before.bytes,
        after.bytes,
        after.key_version,
    )
    .execute(executor)
    .await?;
    Ok(resealed.rows_affected() > 0)
}
