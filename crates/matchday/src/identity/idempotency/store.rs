//! SQL queries for idempotency keys.

use platform::shards::Ranges;
use sqlx::PgExecutor;
use time::OffsetDateTime;

use super::{
    rules::{KeyOwner, KeyedRequest, RequestKey},
    service::{Claim, Effect, StoredResponse},
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
        claim.owner.column(),
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

pub(super) async fn find(executor: impl PgExecutor<'_>, owner: KeyOwner, key: RequestKey) -> sqlx::Result<Option<Row>> {
    sqlx::query_as!(
        Row,
        "select request_digest, status, content_type, body from idempotency_keys where user_id = $1 and key_digest = $2",
        owner.column(),
        &key.0[..],
    )
    .fetch_optional(executor)
    .await
}

/// A key whose request has an outcome.
#[derive(Debug)]
pub(super) struct Finished {
    pub(super) owner: KeyOwner,
    pub(super) key_digest: Vec<u8>,
    pub(super) request_digest: Vec<u8>,
    pub(super) status: i16,
    pub(super) content_type: Option<String>,
    pub(super) body: Option<Vec<u8>>,
    pub(super) revision: Option<i32>,
}

/// Returns those of these keys whose requests have an outcome.
pub(super) async fn finished(
    executor: impl PgExecutor<'_>,
    shards: &Ranges,
    keys: &[(KeyOwner, RequestKey)],
) -> sqlx::Result<Vec<Finished>> {
    let users: Vec<i64> = keys.iter().map(|(owner, _)| owner.column()).collect();
    let digests: Vec<&[u8]> = keys.iter().map(|(_, key)| key.0.as_slice()).collect();
    sqlx::query_as!(
        Finished,
        r#"select k.user_id as "owner: KeyOwner", k.key_digest, k.request_digest, k.status as "status!", k.content_type,
                  k.body, k.revision
           from unnest($1::bigint[], $2::bytea[]) as w (user_id, key_digest)
           join idempotency_keys k on k.user_id = w.user_id and k.key_digest = w.key_digest
           where k.status is not null and ($3::bigint[] is null or k.user_id = any($3))"#,
        &users,
        &digests as &[&[u8]],
        shards.only(&users),
    )
    .fetch_all(executor)
    .await
}

/// Stores keys whose effects are written in the same transaction. Fails if one of them is stored already.
pub(super) async fn insert_effects(
    executor: impl PgExecutor<'_>,
    effects: &[Effect],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let users: Vec<i64> = effects.iter().map(|effect| effect.request.owner.column()).collect();
    let keys: Vec<&[u8]> = effects.iter().map(|effect| effect.request.key.0.as_slice()).collect();
    let digests: Vec<&[u8]> = effects.iter().map(|effect| effect.request.digest.as_slice()).collect();
    let statuses: Vec<i16> = effects.iter().map(|effect| stored_status(effect.status)).collect();
    let revisions: Vec<Option<i32>> = effects.iter().map(|effect| effect.revision).collect();
    sqlx::query!(
        "insert into idempotency_keys (user_id, key_digest, request_digest, status, revision, created_at)
         select user_id, key_digest, request_digest, status, revision, $5
         from unnest($1::bigint[], $2::bytea[], $3::bytea[], $4::smallint[], $6::integer[])
           as n (user_id, key_digest, request_digest, status, revision)
         order by user_id, key_digest",
        &users,
        &keys as &[&[u8]],
        &digests as &[&[u8]],
        &statuses,
        now,
        &revisions as &[Option<i32>],
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Stores a key with its response, unless the key is stored already. Returns whether it did.
pub(super) async fn insert_response(
    executor: impl PgExecutor<'_>,
    request: KeyedRequest,
    response: &StoredResponse,
    now: OffsetDateTime,
) -> sqlx::Result<bool> {
    let inserted = sqlx::query!(
        "insert into idempotency_keys (user_id, key_digest, request_digest, status, content_type, body, created_at)
         values ($1, $2, $3, $4, $5, $6, $7)
         on conflict (user_id, key_digest) do nothing",
        request.owner.column(),
        &request.key.0[..],
        &request.digest[..],
        stored_status(response.status),
        response.content_type.as_deref(),
        &response.body[..],
        now,
    )
    .execute(executor)
    .await?;
    Ok(inserted.rows_affected() > 0)
}

fn stored_status(status: u16) -> i16 {
    i16::try_from(status).unwrap_or_default()
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
        claim.owner.column(),
        &claim.key.0[..],
        claim.id,
        stored_status(response.status),
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
        claim.owner.column(),
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
