//! Batch writer for deductions: writes many deductions in one transaction.

use std::sync::Arc;

use platform::{
    batches::{Attempt, Write},
    clock::Clock,
    shards::Shards,
};
use sqlx::{Connection as _, PgConnection};

use super::ledger::{Book, Movement, Posted, Refusal};
use crate::identity::idempotency::{self, KeyOutcome, KeyedRequest};

/// Writes the deductions of a part of the users.
pub(super) struct Writer {
    pub(super) shards: Shards,
    pub(super) clock: Arc<dyn Clock>,
}

/// A deduction that a batch decides.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) movement: Movement,
    /// Request for the deduction, if it had an idempotency key.
    pub(super) request: Option<KeyedRequest>,
}

/// A decided deduction, and whether the ledger has it under the request's idempotency key; `None` if it has it under a
/// reference only.
pub(super) type Decided = (Posted, Option<KeyOutcome>);

impl Write for Writer {
    type Entry = Entry;
    /// A batch may contain any number of deductions from one wallet, because they are decided one after another.
    type Key = std::convert::Infallible;
    type Outcome = Result<Decided, Refusal>;

    const BATCHES: &'static str = "matchday_coins_batches_total";

    fn key(_: &Entry) -> Option<Self::Key> {
        None
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        entries: &[Entry],
        attempt: Attempt,
    ) -> sqlx::Result<Vec<Self::Outcome>> {
        let now = self.clock.now();
        let movements: Vec<Movement> = entries.iter().map(|entry| entry.movement.clone()).collect();
        let requests: Vec<_> = entries.iter().filter_map(|entry| Some((entry.movement.user, entry.request?))).collect();
        // With the short lock timeout, a wallet that another transaction holds for long delays only its own user. The
        // other deductions are then written without it.
        let mut tx = connection.begin_with("begin; set local lock_timeout = '1s'").await?;
        let mut book = Book::open(&mut tx, &self.shards, movements.iter().map(|movement| movement.user)).await?;
        book.load_prior(&mut tx, &movements, attempt, now).await?;
        // Requests that were refused before. The ledger has those that were not.
        let refused = idempotency::find_used_keys(&mut tx, &self.shards, &requests).await?;
        let decide = |movement: Movement| {
            let requested = movement.id;
            let is_repeated = book.has_request(&movement);
            if !is_repeated && movement.request.is_some_and(|key| refused.contains(movement.user, key)) {
                return Err(Refusal::KeyUsed);
            }
            let posted = book.post(movement)?;
            let key_outcome = if is_repeated {
                Some(KeyOutcome::Replayed)
            } else {
                (posted.id == requested).then_some(KeyOutcome::Stored)
            };
            Ok((posted, key_outcome))
        };
        let outcomes = movements.into_iter().map(decide).collect();
        let moved = book.close(&mut tx, now).await?;
        tx.commit().await?;
        moved.count();
        Ok(outcomes)
    }
}
