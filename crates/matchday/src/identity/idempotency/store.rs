//! SQL queries for idempotency keys.

use sqlx::PgExecutor;
use time::OffsetDateTime;
use web::ids::UserId;

use super::{
    rules::RequestKey,
    service::{Claim, StoredResponse},
};

pub(super) struct Row {
    pub(super) request_digest: Vec<u8>,
    pub(super) status: Option<i16>,
    pub(super) content_type: Option<String>,
    pub(super) body: Option<Vec<u8>>,
}

/// Claims a new key, or a key whose claim expired before the same request had a response. Returns whether it succeeded.
pub(super) async fn claim(
    executor: impl PgExecutor<'_>,
    claim: Claim,
    request_digest: [u8; 32],
    now: OffsetDateTime,
    until: OffsetDateTime,
) -> sqlx::Result<bool> {
    let claimed = sqlx::query_scalar!(
        r#"insert into idempotency_keys as k (user_id, key_digest, request_digest, claim, claimed_until, created_at)
           values ($1, $2, $3, $4, $5, $6)
           on conflict (user_id, key_digest) do update
             set claim = excluded.claim, claimed_until = excluded.claimed_until, created_at = excluded.created_at
             where k.status is null and k.claimed_until < excluded.created_at
               and k.request_digest = excluded.request_digest
           returning claim"#,
        claim.user.0,
        &claim.key.0[..],
        &request_digest[..],
        claim.id,
        until,
        now,
    )
    .fetch_optional(executor)
    .await?;
    Ok(claimed.is_some())
}

pub(super) async fn find(executor: impl PgExecutor<'_>, user: UserId, key: RequestKey) -> sqlx::Result<Option<Row>> {
    sqlx::query_as!(
        Row,
        "select request_digest, status, content_type, body from idempotency_keys where user_id = $1 and key_digest = $2",
        user.0,
        &key.0[..],
    )
    .fetch_optional(executor)
    .await
}

/// Stores a response unless another process took over the claim. Returns whether it did.
pub(super) async fn finish(
    executor: impl PgExecutor<'_>,
    claim: Claim,
    response: &StoredResponse,
) -> sqlx::Result<bool> {
    let done = sqlx::query!(
        "update idempotency_keys set status = $4, content_type = $5, body = $6
         where user_id = $1 and key_digest = $2 and claim = $3 and status is null",
        claim.user.0,
        &claim.key.0[..],
        claim.id,
        i16::try_from(response.status).unwrap_or_default(),
        response.content_type.as_deref(),
        &response.body[..],
    )
    .execute(executor)
    .await?;
    Ok(done.rows_affected() > 0)
}

/// Releases a claim unless another process took it over.
pub(super) async fn release(executor: impl PgExecutor<'_>, claim: Claim) -> sqlx::Result<()> {
    sqlx::query!(
        "delete from idempotency_keys where user_id = $1 and key_digest = $2 and claim = $3 and status is null",
        claim.user.0,
        &claim.key.0[..],
        claim.id,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Deletes up to `most` keys created at or before `until`. Returns their number.
pub(super) async fn sweep(executor: impl PgExecutor<'_>, until: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
    let swept = sqlx::query!(
        "delete from idempotency_keys where created_at <= $1 and (user_id, key_digest) in
           (select user_id, key_digest from idempotency_keys where created_at <= $1 order by created_at limit $2)",
        until,
        most,
    )
    .execute(executor)
    .await?;
    Ok(swept.rows_affected())
}
