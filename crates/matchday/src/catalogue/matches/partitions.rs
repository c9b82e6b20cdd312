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
