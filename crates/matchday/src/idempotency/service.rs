//! Claiming keys, keeping answers, and finding them again.

use std::{sync::Arc, time::Duration};

use platform::{
    Core,
    clock::Clock,
    database,
    random::{self, Random},
};
use sqlx::PgPool;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;
use web::{ids::UserId, settings::Http};

use super::{rules::RequestKey, store};

/// How long an answer is kept.
pub(crate) const KEPT_FOR: time::Duration = time::Duration::hours(24);

/// How much longer than a request a claim lasts: time to keep the answer in, and for clocks that differ.
const GRACE: Duration = Duration::from_secs(5);

/// How long keeping an answer may hold it up.
const KEEPING: Duration = Duration::from_secs(2);

/// How often a key is claimed that is gone each time somebody looks at it.
const TRIES: usize = 3;

/// The keys of all users.
#[derive(Clone)]
pub struct Idempotency {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    deadline: Duration,
    places: Arc<Semaphore>,
}

/// A request that is ours to do.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) user: UserId,
    pub(super) key: RequestKey,
    /// Ours alone: whoever takes the key over has another.
    pub(super) id: Uuid,
}

/// An answer to be given again.
#[derive(Debug)]
pub(super) struct Kept {
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) body: Vec<u8>,
}

/// How a request with a key begins.
#[derive(Debug)]
pub(super) enum Begun {
    /// It is to be done.
    First(Claim),
    /// It was done.
    Finished(Kept),
    /// The key stands for another request.
    Reused,
    /// It is being done.
    UnderWay,
}

impl Idempotency {
    /// Keys in this database.
    pub fn new(core: &Core, http: &Http) -> Self {
        let Core { db, clock, random, .. } = core.clone();
        let places = Arc::new(Semaphore::new(http.max_in_flight.min(Semaphore::MAX_PERMITS)));
        Self { inner: Arc::new(Inner { db, clock, random, deadline: http.deadline, places }) }
    }

    /// How long the work on one may take.
    pub(super) fn deadline(&self) -> Duration {
        self.inner.deadline
    }

    /// A place among those at work. They need places of their own because they go on when their client is gone, and with
    /// it the place that its request had.
    pub(super) fn place(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.inner.places).try_acquire_owned().ok()
    }

    /// Claims a request, or finds what became of it.
    pub(super) async fn begin(&self, user: UserId, key: RequestKey, request_digest: [u8; 32]) -> sqlx::Result<Begun> {
        let inner = &*self.inner;
        let claim = Claim { user, key, id: random::uuid_v7(&*inner.random, &*inner.clock) };
        for _ in 0..TRIES {
            let now = inner.clock.now();
            if store::claim(&inner.db, claim, request_digest, now, now + inner.deadline + GRACE).await? {
                return Ok(Begun::First(claim));
            }
            // Gone since: whoever had it gave it back, or it was swept.
            let Some(row) = store::find(&inner.db, user, key).await? else { continue };
            return Ok(match (row.status, row.body) {
                _ if row.request_digest != request_digest => Begun::Reused,
                (Some(status), Some(body)) => {
                    Begun::Finished(Kept { status: status.unsigned_abs(), content_type: row.content_type, body })
                }
                _ => Begun::UnderWay,
            });
        }
        Ok(Begun::UnderWay)
    }

    /// Keeps the answer. Where that fails it is given all the same: what was done is done.
    pub(super) async fn finish(&self, claim: Claim, answer: &Kept) {
        match tokio::time::timeout(KEEPING, store::finish(&self.inner.db, claim, answer)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => tracing::warn!("an answer was not kept: its key was taken over"),
            Ok(Err(error)) => tracing::warn!(%error, "an answer was not kept"),
            Err(_) => tracing::warn!("an answer was not kept in time"),
        }
    }

    /// Gives the request back, to be done when it comes again.
    pub(super) async fn release(&self, claim: Claim) {
        match tokio::time::timeout(KEEPING, store::release(&self.inner.db, claim)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "the claim to a key was not given back; it runs out"),
            Err(_) => tracing::warn!("the claim to a key was not given back in time; it runs out"),
        }
    }

    /// Deletes what was kept long enough; returns how many there were.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let until = self.inner.clock.now() - KEPT_FOR;
        database::sweep(|most| store::sweep(&self.inner.db, until, most)).await
    }
}
