//! SQL queries for devices.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{SessionId, UserId};

use super::{rules::DeviceId, vault::StoredToken};

/// Database row of a device.
pub(super) struct DeviceRow {
    pub(super) user_id: UserId,
    pub(super) id: String,
    pub(super) platform: String,
    pub(super) token_hash: Vec<u8>,
    pub(super) ciphertext: Vec<u8>,
    pub(super) key_version: i16,
    pub(super) locale: String,
    pub(super) time_zone: Option<String>,
    pub(super) created_at: OffsetDateTime,
    pub(super) updated_at: OffsetDateTime,
}

/// Returns the devices of some users whose sessions are valid, oldest first for each user. Not a join: PostgreSQL expects few
/// elements in the list, or has no statistics on a new table, and would then read all sessions.
pub(super) async fn devices(
    executor: impl PgExecutor<'_>,
    users: &[i64],
    now: OffsetDateTime,
) -> sqlx::Result<Vec<DeviceRow>> {
    sqlx::query_as!(
        DeviceRow,
        r#"select d.user_id as "user_id: UserId", d.id, d.platform, d.token_hash, d.ciphertext, d.key_version, d.locale,
                  d.time_zone, d.created_at, d.updated_at
           from devices d
           where d.user_id = any($1)
             and (select s.expires_at > $2 from sessions s where s.user_id = d.user_id and s.id = d.session_id)
           order by d.user_id, d.created_at, d.id"#,
        users,
        now,
    )
    .fetch_all(executor)
    .await
}

/// The device that registered a token last.
pub(super) struct Owner {
    pub(super) user_id: UserId,
    pub(super) device_id: String,
}

/// Claims a token for a device. Returns the previous owner, if any. Locks the token, so of two registrations the later one
/// finds the first.
pub(super) async fn claim_token(
    connection: &mut PgConnection,
    hash: &[u8],
    user: UserId,
    device: &str,
    now: OffsetDateTime,
) -> sqlx::Result<Option<Owner>> {
    let owner = loop {
        let inserted = sqlx::query!(
            "insert into device_tokens (token_hash, user_id, device_id, claimed_at) values ($1, $2, $3, $4)
             on conflict (token_hash) do nothing",
            hash,
            user.0,
            device,
            now,
        )
        .execute(&mut *connection)
        .await?;
        if inserted.rows_affected() > 0 {
            return Ok(None);
        }
        let owner = sqlx::query_as!(
            Owner,
            r#"select user_id as "user_id: UserId", device_id from device_tokens where token_hash = $1 for update"#,
            hash,
        )
        .fetch_optional(&mut *connection)
        .await?;
        // The claim was deleted between the two statements: without one, the next user of the token would find no owner.
        if let Some(owner) = owner {
            break owner;
        }
    };
    sqlx::query!(
        "update device_tokens set user_id = $2, device_id = $3, claimed_at = $4 where token_hash = $1",
        hash,
        user.0,
        device,
        now,
    )
    .execute(connection)
    .await?;
    Ok(Some(owner))
}

/// Deletes the claim of a token. Returns its owner, if any.
pub(super) async fn release_token(connection: &mut PgConnection, hash: &[u8]) -> sqlx::Result<Option<Owner>> {
    sqlx::query_as!(
        Owner,
        r#"delete from device_tokens where token_hash = $1 returning user_id as "user_id: UserId", device_id"#,
        hash,
    )
    .fetch_optional(connection)
    .await
}

/// Deletes the device of a user that has this token.
pub(super) async fn delete_with_token(connection: &mut PgConnection, user: UserId, hash: &[u8]) -> sqlx::Result<()> {
    sqlx::query!("delete from devices where user_id = $1 and token_hash = $2", user.0, hash)
        .execute(connection)
        .await?;
    Ok(())
}

/// Properties of a registration.
pub(super) struct Registered<'a> {
    pub(super) session: SessionId,
    pub(super) platform: &'static str,
    pub(super) token: &'a StoredToken,
    pub(super) locale: &'a str,
    pub(super) time_zone: Option<&'a str>,
}

/// Adds or replaces a device. Returns when it was first registered.
pub(super) async fn save(
    connection: &mut PgConnection,
    user: UserId,
    id: &DeviceId,
    device: &Registered<'_>,
    now: OffsetDateTime,
) -> sqlx::Result<OffsetDateTime> {
    sqlx::query_scalar!(
        "insert into devices (user_id, id, session_id, platform, token_hash, ciphertext, key_version, locale, time_zone,
                              created_at, updated_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $10)
         on conflict (user_id, id) do update
           set session_id = excluded.session_id, platform = excluded.platform, token_hash = excluded.token_hash,
               ciphertext = excluded.ciphertext, key_version = excluded.key_version, locale = excluded.locale,
               time_zone = excluded.time_zone, updated_at = excluded.updated_at
         returning created_at",
        user.0,
        id.as_str(),
        device.session.0,
        device.platform,
        &device.token.hash,
        &device.token.encrypted.bytes,
        device.token.encrypted.key_version,
        device.locale,
        device.time_zone,
        now,
    )
    .fetch_one(connection)
    .await
}

/// Removes the oldest registrations, if the user has more than `most` devices besides this one.
pub(super) async fn keep_latest(
    connection: &mut PgConnection,
    user: UserId,
    besides: &DeviceId,
    most: i64,
) -> sqlx::Result<()> {
    sqlx::query!(
        "delete from devices where user_id = $1 and id in
           (select id from devices where user_id = $1 and id <> $2
            order by updated_at desc, created_at desc, id desc offset $3)",
        user.0,
        besides.as_str(),
        most,
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn delete(executor: impl PgExecutor<'_>, user: UserId, id: &DeviceId) -> sqlx::Result<bool> {
    let deleted = sqlx::query!("delete from devices where user_id = $1 and id = $2", user.0, id.as_str())
        .execute(executor)
        .await?;
    Ok(deleted.rows_affected() > 0)
}

/// Removes a device whose token the provider no longer knows, unless the app has registered it again: with another token,
/// or after `since`.
pub(super) async fn delete_gone(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: &str,
    hash: &[u8],
    since: Option<OffsetDateTime>,
) -> sqlx::Result<bool> {
    let deleted = sqlx::query!(
        "delete from devices
         where user_id = $1 and id = $2 and token_hash = $3 and ($4::timestamptz is null or updated_at <= $4)",
        user.0,
        id,
        hash,
        since,
    )
    .execute(executor)
    .await?;
    Ok(deleted.rows_affected() > 0)
}

/// A claim of a token, for the sweep.
pub(super) struct Claim {
    pub(super) token_hash: Vec<u8>,
    pub(super) user_id: UserId,
    pub(super) device_id: String,
    pub(super) claimed_at: OffsetDateTime,
}

/// Returns some claims of a range of hashes in their order, made before this time. The range excludes its start and its end.
pub(super) async fn claims_between(
    executor: impl PgExecutor<'_>,
    (after, until): (&[u8], &[u8]),
    before: OffsetDateTime,
    most: i64,
) -> sqlx::Result<Vec<Claim>> {
    sqlx::query_as!(
        Claim,
        r#"select token_hash, user_id as "user_id: UserId", device_id, claimed_at
           from device_tokens where token_hash > $1 and token_hash < $2 and claimed_at < $3
           order by token_hash limit $4"#,
        after,
        until,
        before,
        most,
    )
    .fetch_all(executor)
    .await
}

/// Returns users and token hashes of all devices of these users.
pub(super) async fn hashes_of(executor: impl PgExecutor<'_>, users: &[i64]) -> sqlx::Result<Vec<(UserId, Vec<u8>)>> {
    let rows =
        sqlx::query!(r#"select user_id as "user_id: UserId", token_hash from devices where user_id = any($1)"#, users,)
            .fetch_all(executor)
            .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.token_hash)).collect())
}

/// Deletes a claim, unless the token was claimed again.
pub(super) async fn delete_claim(executor: impl PgExecutor<'_>, claim: &Claim) -> sqlx::Result<u64> {
    let deleted = sqlx::query!(
        "delete from device_tokens where token_hash = $1 and user_id = $2 and device_id = $3 and claimed_at = $4",
        claim.token_hash,
        claim.user_id.0,
        claim.device_id,
        claim.claimed_at,
    )
    .execute(executor)
    .await?;
    Ok(deleted.rows_affected())
}
