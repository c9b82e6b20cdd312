//! Records facts and reads them in order.

use std::sync::Arc;

use platform::{Core, clock::Clock, database, outbox};
use sqlx::PgPool;
use time::{Duration, OffsetDateTime};

use super::{
    rules::{self, After, Entry, Position},
    store::{self, Ends, Stored},
};

/// Time for which a fact is kept.
pub const KEPT: Duration = Duration::days(30);

/// Number of facts that one transaction records.
const BATCH: i64 = 500;

/// The log of facts. Cheap to clone.
#[derive(Clone)]
pub struct Facts {
    db: PgPool,
    clock: Arc<dyn Clock>,
}

/// A page of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Page {
    /// The facts as JSON objects, separated by commas.
    pub items: String,
    /// Position after the last fact of the page.
    pub next_after: Position,
    /// Whether further facts can be read at once.
    pub more: bool,
}

/// Error from reading the log.
#[derive(Debug, thiserror::Error)]
pub enum FactsError {
    /// Facts after the position were deleted.
    #[error("facts after this position are no longer kept")]
    Expired,
    /// The position is after the end of the log.
    #[error("the log has no such position")]
    Unknown,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Page {
    fn empty(after: i64, more: bool) -> Self {
        Self { items: String::new(), next_after: Position::after(after), more }
    }
}

fn joined(facts: &[Stored]) -> String {
    let mut items = String::with_capacity(facts.iter().map(|fact| fact.item.len() + 1).sum());
    for fact in facts {
        if !items.is_empty() {
            items.push(',');
        }
        items.push_str(&fact.item);
    }
    items
}

impl Facts {
    pub fn new(core: &Core) -> Self {
        Self { db: core.db.clone(), clock: core.clock.clone() }
    }

    /// Reads at most `limit` facts after a position; without one, the oldest facts that are kept.
    pub async fn page(&self, after: Option<After>, limit: i64) -> Result<Page, FactsError> {
        let after = match after {
            None => None,
            Some(After::Position(position)) => Some(position.number()),
            Some(After::Latest) => return Ok(Page::empty(store::ends(&self.db).await?.newest, false)),
        };
        // One more than requested, to know whether further facts exist.
        let mut facts = store::read(&self.db, after, limit + 1).await?;
        let Some(first) = facts.first().map(|fact| fact.position) else { return self.page_without_facts(after).await };
        // Positions have no gaps, so facts in between were deleted.
        if after.is_some_and(|after| first != after + 1) {
            return Err(FactsError::Expired);
        }
        let limit = usize::try_from(limit).unwrap_or_default();
        let more = facts.len() > limit;
        facts.truncate(limit);
        let last = facts.last().map_or(first - 1, |fact| fact.position);
        Ok(Page { items: joined(&facts), next_after: Position::after(last), more })
    }

    /// Returns the page of a position without facts after it: the end of the log, or an invalid position.
    async fn page_without_facts(&self, after: Option<i64>) -> Result<Page, FactsError> {
        let Ends { newest, swept } = store::ends(&self.db).await?;
        let after = after.unwrap_or(swept);
        match after {
            after if after > newest => Err(FactsError::Unknown),
            after if after < swept => Err(FactsError::Expired),
            // Facts may have been recorded a moment ago.
            after => Ok(Page::empty(after, after < newest)),
        }
    }

    /// Gives new facts their positions, until none is left. Returns how many. Two processes may do this at the same time.
    pub async fn record_new(&self) -> sqlx::Result<usize> {
        let mut total = 0;
        // Most calls find nothing, and then this is the only query.
        while outbox::has_new_facts(&self.db).await? {
            total += self.record_batch().await?;
        }
        Ok(total)
    }

    async fn record_batch(&self) -> sqlx::Result<usize> {
        let mut tx = database::begin(&self.db).await?;
        // First the lock. A fact that is read after it cannot get a position before one that another process is adding.
        let newest = store::lock(&mut tx).await?;
        let found = outbox::lock_new_facts(&mut tx, BATCH).await?;
        let entries: Vec<Entry> = found
            .iter()
            .filter_map(|fact| {
                rules::entry(fact).unwrap_or_else(|error| {
                    // The service wrote it, so this is a bug. It must not stop the facts after it.
                    tracing::error!(%error, id = fact.id, subject = fact.subject, "fact is unreadable; not recorded");
                    None
                })
            })
            .collect();
        if !entries.is_empty() {
            store::append(&mut tx, newest, &entries, self.clock.now()).await?;
        }
        outbox::delete_new_facts(&mut tx, &found.iter().map(|fact| fact.id).collect::<Vec<_>>()).await?;
        tx.commit().await?;
        Ok(entries.len())
    }

    /// Deletes facts that are no longer kept; returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let before = self.clock.now() - KEPT;
        database::sweep(|most| self.sweep_some(before, most)).await
    }

    async fn sweep_some(&self, before: OffsetDateTime, most: i64) -> sqlx::Result<u64> {
        let mut tx = database::begin(&self.db).await?;
        store::lock(&mut tx).await?;
        let deleted = store::sweep(&mut tx, before, most).await?;
        tx.commit().await?;
        Ok(deleted)
    }
}
