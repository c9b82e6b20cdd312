//! SQL queries of the outbox.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use super::Message;

/// A message waiting to be published.
pub(super) struct Waiting {
    pub(super) id: i64,
    pub(super) key: String,
    pub(super) subject: String,
    pub(super) payload: serde_json::Value,
    pub(super) created_at: OffsetDateTime,
}

pub(super) async fn insert(connection: &mut PgConnection, messages: &[Message]) -> sqlx::Result<()> {
    let keys: Vec<&str> = messages.iter().map(|message| message.key.as_str()).collect();
    let subjects: Vec<&str> = messages.iter().map(|message| message.subject).collect();
    let payloads: Vec<serde_json::Value> = messages.iter().map(|message| message.payload.clone()).collect();
    let logged: Vec<&str> =
        messages.iter().filter(|message| message.is_logged).map(|message| message.subject).collect();
    if logged.is_empty() {
        sqlx::query!(
            "insert into outbox (key, subject, payload)
             select key, subject, payload
             from unnest($1::text[], $2::text[], $3::jsonb[]) with ordinality as m (key, subject, payload, position)
             order by position",
            &keys as &[&str],
            &subjects as &[&str],
            &payloads,
        )
        .execute(connection)
        .await?;
        return Ok(());
    }
    sqlx::query!(
        "with written as (
             insert into outbox (key, subject, payload)
             select key, subject, payload
             from unnest($1::text[], $2::text[], $3::jsonb[]) with ordinality as m (key, subject, payload, position)
             order by position
             returning id, subject, payload, created_at
         )
         insert into new_facts (id, subject, payload, created_at)
         select id, subject, payload, created_at from written where subject = any($4)",
        &keys as &[&str],
        &subjects as &[&str],
        &payloads,
        &logged as &[&str],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A fact that has no position in the log yet.
#[derive(Clone, Debug)]
pub struct NewFact {
    /// Id of its message in the outbox.
    pub id: i64,
    pub subject: String,
    pub payload: serde_json::Value,
    pub created_at: OffsetDateTime,
}

/// Whether facts wait for a position in the log.
pub async fn has_new_facts(executor: impl PgExecutor<'_>) -> sqlx::Result<bool> {
    sqlx::query_scalar!(r#"select exists (select 1 from new_facts) as "exists!""#).fetch_one(executor).await
}

/// Reads and locks the oldest facts without a position. Facts of one key are in order, because their writers hold a lock
/// of the key until they commit.
pub async fn lock_new_facts(connection: &mut PgConnection, limit: i64) -> sqlx::Result<Vec<NewFact>> {
    sqlx::query_as!(
        NewFact,
        "select id, subject, payload, created_at from new_facts order by id limit $1 for update",
        limit
    )
    .fetch_all(connection)
    .await
}

/// Removes facts that have a position now.
pub async fn delete_new_facts(connection: &mut PgConnection, ids: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("delete from new_facts where id = any($1)", ids).execute(connection).await?;
    Ok(())
}

pub(super) async fn oldest(executor: impl PgExecutor<'_>, limit: i64) -> sqlx::Result<Vec<Waiting>> {
    sqlx::query_as!(Waiting, "select id, key, subject, payload, created_at from outbox order by id limit $1", limit)
        .fetch_all(executor)
        .await
}

pub(super) async fn delete(executor: impl PgExecutor<'_>, ids: &[i64]) -> sqlx::Result<()> {
    sqlx::query!("delete from outbox where id = any($1)", ids).execute(executor).await?;
    Ok(())
}

/// Takes all messages, oldest first, as (subject, payload). For tests, which run no relay.
pub async fn take_all(executor: impl PgExecutor<'_>) -> sqlx::Result<Vec<(String, serde_json::Value)>> {
    let mut taken = sqlx::query!("delete from outbox returning id, subject, payload").fetch_all(executor).await?;
    taken.sort_by_key(|row| row.id);
    Ok(taken.into_iter().map(|row| (row.subject, row.payload)).collect())
}
