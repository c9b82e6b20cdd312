//! Batch writer for deductions, and for the movements of backends: writes many of them in one transaction.

use std::{collections::HashSet, sync::Arc};

use platform::{
    batches::{Attempt, Write},
    clock::Clock,
    shards::Shards,
};
use sqlx::{Connection as _, PgConnection};

use super::{
    ledger::{Book, Movement, Posted, Refusal},
    store,
};
use crate::identity::{
    idempotency::{self, KeyOutcome, KeyedRequest},
    operators::service::{CompletedAction, record_all},
};

/// Writes the movements of a part of the users.
pub(super) struct Writer {
    pub(super) shards: Shards,
    pub(super) clock: Arc<dyn Clock>,
}

/// A movement that a batch decides.
#[derive(Clone)]
pub(super) struct Entry {
    pub(super) movement: Movement,
    /// Request for the movement, if it had an idempotency key.
    pub(super) request: Option<KeyedRequest>,
    /// Entry of the audit log, if a backend requests the movement. The user is then checked as well: a user who requests
    /// a deduction exists.
    pub(super) action: Option<CompletedAction>,
}

/// A decided movement.
#[derive(Clone, Debug)]
pub(super) struct Decided {
    pub(super) posted: Posted,
    /// Whether the ledger has it under the request's idempotency key; `None` if it has it under a reference only.
    pub(super) key_outcome: Option<KeyOutcome>,
    /// Remark of the earlier transaction, if the ledger had it under its reference.
    pub(super) prior_remark: Option<String>,
}

impl Write for Writer {
    type Entry = Entry;
    /// A batch may contain any number of movements of one wallet, because they are decided one after another.
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
        // With the short lock timeout, a wallet that another transaction holds for long delays only its own user. The
        // other movements are then written without it.
        let mut tx = connection.begin_with("begin; set local lock_timeout = '1s'").await?;
        let known = Known::among(&mut tx, entries).await?;
        let movements: Vec<Movement> =
            entries.iter().filter(|entry| known.has(entry)).map(|entry| entry.movement.clone()).collect();
        let requests: Vec<_> = entries.iter().filter_map(|entry| entry.request).collect();
        let mut book = Book::open(&mut tx, &self.shards, movements.iter().map(|movement| movement.user)).await?;
        book.load_prior(&mut tx, &movements, attempt, now).await?;
        // Requests that were refused before. The ledger has accepted requests.
        let refused = idempotency::find_used_keys(&mut tx, &self.shards, &requests).await?;
        let mut actions = Vec::new();
        let mut decide = |entry: &Entry| {
            if !known.has(entry) {
                return Err(Refusal::NoSuchUser);
            }
            let (requested, movement) = (entry.movement.id, entry.movement.clone());
            let is_repeated = book.has_request(&movement);
            if !is_repeated && entry.request.is_some_and(|request| refused.contains(request)) {
                return Err(Refusal::KeyUsed);
            }
            let (prior_remark, written) = (book.prior_remark(&movement), book.written());
            let posted = book.post(movement)?;
            if book.written() > written {
                actions.extend(entry.action.clone());
            }
            let key_outcome = if is_repeated {
                Some(KeyOutcome::Replayed)
            } else {
                (posted.id == requested).then_some(KeyOutcome::Stored)
            };
            Ok(Decided { posted, key_outcome, prior_remark })
        };
        let outcomes = entries.iter().map(&mut decide).collect();
        let moved = book.close(&mut tx, now).await?;
        record_all(&mut tx, &actions, now).await?;
        tx.commit().await?;
        moved.count();
        Ok(outcomes)
    }
}

/// The users of a batch for whom backends act and who exist.
struct Known(HashSet<web::ids::UserId>);

impl Known {
    async fn among(connection: &mut PgConnection, entries: &[Entry]) -> sqlx::Result<Self> {
        let named = entries.iter().filter(|entry| entry.action.is_some());
        let users: Vec<i64> = named.map(|entry| entry.movement.user.0).collect();
        Ok(Self(if users.is_empty() { HashSet::default() } else { store::existing_users(connection, &users).await? }))
    }

    fn has(&self, entry: &Entry) -> bool {
        entry.action.is_none() || self.0.contains(&entry.movement.user)
    }
}
