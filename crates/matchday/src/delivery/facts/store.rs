//! SQL queries for the log of facts.

use sqlx::{PgConnection, PgExecutor};
use time::OffsetDateTime;

use super::rules::Entry;

/// Locks the end of the log until the end of the transaction; returns the position of the newest fact.
pub(super) async fn lock(connection: &mut PgConnection) -> sqlx::Result<i64> {
    sqlx::query_scalar!("select newest_position from fact_log for update").fetch_one(connection).await
}

/// Adds facts after the newest one, whose position is `newest`. The caller holds the lock of the log.
pub(super) async fn append(
    connection: &mut PgConnection,
    newest: i64,
    entries: &[Entry],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let users: Vec<Option<i64>> = entries.iter().map(|entry| entry.user.map(|user| user.0)).collect();
    let items: Vec<&str> = entries.iter().map(|entry| entry.item.as_str()).collect();
    sqlx::query!(
        "insert into facts (position, recorded_at, user_id, item)
         select $1::bigint + number, $2, user_id, item::json
         from unnest($3::bigint[], $4::text[]) with ordinality as e (user_id, item, number)",
        newest,
        now,
        &users as &[Option<i64>],
        &items as &[&str],
    )
    .execute(&mut *connection)
    .await?;
    let added = i64::try_from(entries.len()).unwrap_or(i64::MAX);
    sqlx::query!("update fact_log set newest_position = newest_position + $1", added).execute(connection).await?;
    Ok(())
}

/// A fact of the log.
pub(super) struct Stored {
    pub(super) position: i64,
    /// The item as JSON.
    pub(super) item: String,
}

/// Reads facts after a position, or the oldest ones.
pub(super) async fn read(executor: impl PgExecutor<'_>, after: Option<i64>, limit: i64) -> sqlx::Result<Vec<Stored>> {
    sqlx::query_as!(
        Stored,
        r#"select position, item::text as "item!" from facts
           where position > coalesce($1, (select swept_position from fact_log))
           order by position limit $2"#,
        after,
        limit,
    )
    .fetch_all(executor)
    .await
}

/// Ends of the log.
pub(super) struct Ends {
    /// Position of the newest fact.
    pub(super) newest: i64,
    /// Position of the newest deleted fact.
    pub(super) swept: i64,
}

pub(super) async fn ends(executor: impl PgExecutor<'_>) -> sqlx::Result<Ends> {
    sqlx::query_as!(Ends, "select newest_position as newest, swept_position as swept from fact_log")
        .fetch_one(executor)
        .await
}

/// Deletes facts that were recorded before a time, at most about `limit`; returns how many.
pub(super) async fn sweep(connection: &mut PgConnection, before: OffsetDateTime, limit: i64) -> sqlx::Result<u64> {
    let last = sqlx::query_scalar!(
        "select max(position)
         from (select position from facts where recorded_at < $1 order by recorded_at, position limit $2) f",
        before,
        limit,
    )
    .fetch_one(&mut *connection)
    .await?;
    let Some(last) = last else { return Ok(0) };
    let deleted =
        sqlx::query!("delete from facts where position <= $1", last).execute(&mut *connection).await?.rows_affected();
    sqlx::query!("update fact_log set swept_position = greatest(swept_position, $1)", last).execute(connection).await?;
    Ok(deleted)
}
