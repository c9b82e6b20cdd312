//! Batch writer for deductions: writes many deductions in one transaction.

use std::sync::Arc;

use platform::{
    batches::{Attempt, Write},
    clock::Clock,
};
use sqlx::{Connection as _, PgConnection};

use super::ledger::{self, Movement, Posted, Refusal};

/// Writes the deductions of one shard.
pub(super) struct Writer {
    pub(super) clock: Arc<dyn Clock>,
}

impl Write for Writer {
    type Entry = Movement;
    /// A batch may contain any number of deductions from one wallet, because they are decided one after another.
    type Key = std::convert::Infallible;
    type Outcome = Result<Posted, Refusal>;

    const BATCHES: &'static str = "matchday_coins_batches_total";

    fn key(_: &Movement) -> Option<Self::Key> {
        None
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        entries: &[Movement],
        attempt: Attempt,
    ) -> sqlx::Result<Vec<Self::Outcome>> {
        // With the short lock timeout, a wallet that another transaction holds for long delays only its own user. The
        // other deductions are then written without it.
        let mut tx = connection.begin_with("begin; set local lock_timeout = '1s'").await?;
        let (outcomes, moved) = ledger::post(&mut tx, entries.to_vec(), attempt, self.clock.now()).await?;
        tx.commit().await?;
        moved.count();
        Ok(outcomes)
    }
}
