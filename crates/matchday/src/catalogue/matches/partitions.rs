//! Partitions of the tables with a row for each user and match, which are partitioned by ranges of match ids.
//!
//! A match can be predicted only if its partition exists. [`add`] therefore runs in three places: in the transaction
//! of an import, which adds the partitions of its matches; in a periodic task, which keeps a spare one, so that an
//! import rarely has to; and in `matchday migrate`.

use sqlx::PgExecutor;
use web::ids::MatchId;

/// Number of match ids in a partition, as in the SQL function `add_event_partitions`.
const WIDTH: i64 = 1_000;

/// Creates the partitions of all matches and a spare one, where missing. Returns how many it created.
pub async fn add(executor: impl PgExecutor<'_>) -> sqlx::Result<i32> {
    sqlx::query_scalar!(r#"select add_event_partitions() as "added!""#).fetch_one(executor).await
}

/// Number of locks that a transaction on predictions can hold for each partition, with a margin, and its other locks. A
/// generic plan locks all partitions of both tables, with their indexes, before it leaves out those that it does not need.
const LOCKS_PER_PARTITION: i64 = 9;
const OTHER_LOCKS: i64 = 16;

/// Setting `max_locks_per_transaction` of a database that has too small a lock table for its partitions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TooFewLocks {
    pub setting: i64,
    pub needed: i64,
}

/// Checks whether the lock table of the database is large enough if all of its sessions use predictions.
pub async fn too_few_locks(executor: impl PgExecutor<'_>) -> sqlx::Result<Option<TooFewLocks>> {
    let (setting, partitions): (i64, i64) = sqlx::query_as(
        "select current_setting('max_locks_per_transaction')::bigint, (select count(*) from event_partitions())",
    )
    .fetch_one(executor)
    .await?;
    let needed = LOCKS_PER_PARTITION * partitions + OTHER_LOCKS;
    Ok((setting < needed).then_some(TooFewLocks { setting, needed }))
}

/// The partitions that are attached.
pub struct Attached(Vec<i64>);

/// Returns the attached partitions. Those that an operator has archived are missing.
pub async fn attached(executor: impl PgExecutor<'_>) -> sqlx::Result<Attached> {
    let first_ids = sqlx::query_scalar!(r#"select event_partitions() as "first_id!""#).fetch_all(executor).await?;
    Ok(Attached(first_ids))
}

impl Attached {
    pub fn contains(&self, event: MatchId) -> bool {
        self.0.contains(&(event.0 - event.0 % WIDTH))
    }
}
