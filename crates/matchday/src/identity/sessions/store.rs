//! SQL queries for sessions.

use platform::shards::Ranges;
use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;
use web::ids::{SessionId, UserId};

use super::{
    lookups::Token,
    rules::{Ban, TokenHash},
};

#[derive(Clone, Debug)]
pub(super) struct Row {
    pub(super) id: SessionId,
    pub(super) created_at: OffsetDateTime,
    pub(super) last_used_at: OffsetDateTime,
    pub(super) expires_at: OffsetDateTime,
    pub(super) user_agent: String,
}

/// Columns read when a token is not in the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Found {
    pub(super) id: SessionId,
    pub(super) created_at: OffsetDateTime,
    pub(super) last_used_at: OffsetDateTime,
    pub(super) expires_at: OffsetDateTime,
    /// The user's latest ban.
    pub(super) ban: Option<Ban>,
}

/// A use to record, with the new expiry.
pub(super) struct Use {
    pub(super) token: Token,
    pub(super) expires_at: OffsetDateTime,
}

pub(super) struct Ended {
    pub(super) id: SessionId,
    pub(super) token_hash: Vec<u8>,
    pub(super) device_id: Option<String>,
}

pub(super) async fn insert(
    connection: &mut PgConnection,
    user: UserId,
    hash: TokenHash,
    now: OffsetDateTime,
    expires_at: OffsetDateTime,
    user_agent: &str,
    device_id: Option<&str>,
) -> sqlx::Result<SessionId> {
    sqlx::query_scalar!(
        r#"insert into sessions
             (user_id, token_hash, created_at, last_used_at, expires_at, check_at, user_agent, device_id)
           values ($1, $2, $3, $3, $4, $4, $5, $6)
           returning id as "id: SessionId""#,
        user.0,
        &hash.0[..],
        now,
        expires_at,
        user_agent,
        device_id,
    )
    .fetch_one(connection)
    .await
}

/// Deletes all unexpired sessions except the newest `keep`.
pub(super) async fn delete_oldest(
    connection: &mut PgConnection,
    user: UserId,
    keep: i64,
    now: OffsetDateTime,
) -> sqlx::Result<Vec<Ended>> {
    sqlx::query_as!(
        Ended,
        r#"delete from sessions
           where user_id = $1
             and id in (select id from sessions where user_id = $1 and expires_at > $3
                        order by created_at desc, id desc offset $2)
           returning id as "id: SessionId", token_hash, device_id"#,
        user.0,
        keep,
        now,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn delete(connection: &mut PgConnection, user: UserId, id: SessionId) -> sqlx::Result<Option<Ended>> {
    sqlx::query_as!(
        Ended,
        r#"delete from sessions where user_id = $1 and id = $2
           returning id as "id: SessionId", token_hash, device_id"#,
        user.0,
        id.0,
    )
    .fetch_optional(connection)
    .await
}

pub(super) async fn delete_all(connection: &mut PgConnection, user: UserId) -> sqlx::Result<Vec<Ended>> {
    sqlx::query_as!(
        Ended,
        r#"delete from sessions where user_id = $1 returning id as "id: SessionId", token_hash, device_id"#,
        user.0,
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn delete_others(
    connection: &mut PgConnection,
    user: UserId,
    keep: Option<SessionId>,
) -> sqlx::Result<Vec<Ended>> {
    sqlx::query_as!(
        Ended,
        r#"delete from sessions where user_id = $1 and id is distinct from $2
           returning id as "id: SessionId", token_hash, device_id"#,
        user.0,
        keep.map(|keep| keep.0),
    )
    .fetch_all(connection)
    .await
}

pub(super) async fn proven_at(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: SessionId,
) -> sqlx::Result<Option<OffsetDateTime>> {
    sqlx::query_scalar!(
        r#"select coalesce(proven_at, created_at) as "proven_at!" from sessions where user_id = $1 and id = $2"#,
        user.0,
        id.0,
    )
    .fetch_optional(executor)
    .await
}

pub(super) async fn note_proof(
    connection: &mut PgConnection,
    user: UserId,
    id: SessionId,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    sqlx::query!("update sessions set proven_at = $3 where user_id = $1 and id = $2", user.0, id.0, now)
        .execute(connection)
        .await?;
    Ok(())
}

/// Finds the sessions of these tokens, in the order of the tokens.
pub(super) async fn find(
    connection: &mut PgConnection,
    shards: &Ranges,
    tokens: &[Token],
) -> sqlx::Result<Vec<Option<Found>>> {
    let (users, hashes) = columns(tokens.iter());
    let rows = sqlx::query!(
        r#"select n.place as "place!", s.id as "id: SessionId", s.created_at, s.last_used_at, s.expires_at,
                  u.banned_at is not null as "is_banned!", u.banned_until
           from unnest($1::bigint[], $2::bytea[]) with ordinality as n (user_id, token_hash, place)
           join sessions s on s.user_id = n.user_id and s.token_hash = n.token_hash
           join users u on u.user_id = s.user_id
           where ($3::bigint[] is null or s.user_id = any($3) and u.user_id = any($3))"#,
        &users,
        &hashes,
        shards.only(&users),
    )
    .fetch_all(connection)
    .await?;
    let mut found = vec![None; tokens.len()];
    for row in rows {
        let session = Found {
            id: row.id,
            created_at: row.created_at,
            last_used_at: row.last_used_at,
            expires_at: row.expires_at,
            ban: row.is_banned.then_some(Ban { until: row.banned_until }),
        };
        if let Some(place) = usize::try_from(row.place - 1).ok().and_then(|place| found.get_mut(place)) {
            *place = Some(session);
        }
    }
    Ok(found)
}

fn columns<'a>(tokens: impl Iterator<Item = &'a Token>) -> (Vec<i64>, Vec<Vec<u8>>) {
    tokens.map(|token| (token.user.0, token.hash.0.to_vec())).unzip()
}

pub(super) async fn list(executor: impl PgExecutor<'_>, user: UserId, now: OffsetDateTime) -> sqlx::Result<Vec<Row>> {
    sqlx::query_as!(
        Row,
        r#"select id as "id: SessionId", created_at, last_used_at, expires_at, user_agent
           from sessions where user_id = $1 and expires_at > $2 order by created_at desc, id desc"#,
        user.0,
        now,
    )
    .fetch_all(executor)
    .await
}

/// Records the use of all these sessions or none. Never waits for a lock: fails if another transaction holds one of the
/// rows.
pub(super) async fn note_uses(
    connection: &mut PgConnection,
    shards: &Ranges,
    uses: &[Use],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let (owners, hashes) = columns(uses.iter().map(|one| &one.token));
    let expire_at: Vec<OffsetDateTime> = uses.iter().map(|one| one.expires_at).collect();
    sqlx::query!(
        "update sessions s set last_used_at = $4, expires_at = used.expires_at
         from (select h.user_id, h.token_hash, n.expires_at
               from unnest($1::bigint[], $2::bytea[], $3::timestamptz[]) as n (user_id, token_hash, expires_at)
               join sessions h on h.user_id = n.user_id and h.token_hash = n.token_hash
               where h.last_used_at < $4 and ($5::bigint[] is null or h.user_id = any($5))
               order by h.user_id, h.token_hash
               for no key update of h nowait) used
         where s.user_id = used.user_id and s.token_hash = used.token_hash
           and ($5::bigint[] is null or s.user_id = any($5))",
        &owners,
        &hashes,
        &expire_at,
        now,
        shards.only(&owners),
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A session that the sweep checks.
pub(super) struct Due {
    pub(super) user_id: UserId,
    pub(super) token_hash: Vec<u8>,
    pub(super) expires_at: OffsetDateTime,
}

/// Returns up to `most` sessions that are due for the sweep. They are not locked: on Citus, a statement cannot lock rows
/// of several shards.
pub(super) async fn due(connection: &mut PgConnection, now: OffsetDateTime, most: i64) -> sqlx::Result<Vec<Due>> {
    sqlx::query_as!(
        Due,
        r#"select user_id as "user_id: UserId", token_hash, expires_at
           from sessions where check_at <= $1 order by check_at limit $2"#,
        now,
        most,
    )
    .fetch_all(connection)
    .await
}

/// Limits the time that the transaction waits for a lock. It is shorter than the time after which the server looks for
/// deadlocks, so a deadlock with a request fails the sweep and not the request. The next sweep tries again.
pub(super) async fn wait_briefly(connection: &mut PgConnection) -> sqlx::Result<()> {
    sqlx::query("set local lock_timeout = '200ms'").execute(connection).await?;
    Ok(())
}

/// Deletes those of these sessions that have expired, and returns their owners and devices.
pub(super) async fn delete_expired(
    connection: &mut PgConnection,
    due: &[&Due],
    now: OffsetDateTime,
) -> sqlx::Result<Vec<(UserId, Option<String>)>> {
    if due.is_empty() {
        return Ok(Vec::new());
    }
    let users: Vec<i64> = due.iter().map(|due| due.user_id.0).collect();
    let hashes: Vec<&[u8]> = due.iter().map(|due| &due.token_hash[..]).collect();
    let ended = sqlx::query!(
        r#"delete from sessions s using unnest($1::bigint[], $2::bytea[]) as due (user_id, token_hash)
           where s.user_id = due.user_id and s.token_hash = due.token_hash and s.expires_at <= $3
             and s.user_id = any($1)
           returning s.user_id as "user_id: UserId", s.device_id"#,
        &users,
        &hashes as &[&[u8]],
        now,
    )
    .fetch_all(connection)
    .await?;
    Ok(ended.into_iter().map(|row| (row.user_id, row.device_id)).collect())
}

/// Sets the next check of these sessions to the time at which they expire.
pub(super) async fn postpone_due(connection: &mut PgConnection, due: &[&Due]) -> sqlx::Result<()> {
    if due.is_empty() {
        return Ok(());
    }
    let users: Vec<i64> = due.iter().map(|due| due.user_id.0).collect();
    let hashes: Vec<&[u8]> = due.iter().map(|due| &due.token_hash[..]).collect();
    sqlx::query!(
        "update sessions s set check_at = s.expires_at
         from unnest($1::bigint[], $2::bytea[]) as due (user_id, token_hash)
         where s.user_id = due.user_id and s.token_hash = due.token_hash and s.user_id = any($1)",
        &users,
        &hashes as &[&[u8]],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Replaces the device of a session. Returns the previous device, or `None` if the session does not exist.
pub(super) async fn replace_device(
    connection: &mut PgConnection,
    user: UserId,
    id: SessionId,
    device_id: &str,
) -> sqlx::Result<Option<Option<String>>> {
    let before =
        sqlx::query_scalar!("select device_id from sessions where user_id = $1 and id = $2 for update", user.0, id.0,)
            .fetch_optional(&mut *connection)
            .await?;
    if before.is_some() {
        sqlx::query!("update sessions set device_id = $3 where user_id = $1 and id = $2", user.0, id.0, device_id)
            .execute(connection)
            .await?;
    }
    Ok(before)
}

/// Returns the device of a session, or `None` if the session does not exist.
pub(super) async fn device(
    executor: impl PgExecutor<'_>,
    user: UserId,
    id: SessionId,
) -> sqlx::Result<Option<Option<String>>> {
    sqlx::query_scalar!("select device_id from sessions where user_id = $1 and id = $2", user.0, id.0)
        .fetch_optional(executor)
        .await
}

/// Removes all devices of a user.
pub(super) async fn delete_push_devices(connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
    sqlx::query!("delete from devices where user_id = $1", user.0).execute(connection).await?;
    Ok(())
}

pub(super) async fn has_push_devices(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"select exists (select 1 from devices where user_id = $1) as "has!""#, user.0)
        .fetch_one(executor)
        .await
}
