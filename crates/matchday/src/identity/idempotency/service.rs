//! Claims keys, and stores and finds responses.

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

/// Retention of stored responses.
pub(crate) const KEPT_FOR: time::Duration = time::Duration::hours(24);

/// Time by which a claim outlasts the request deadline: for storing the response, and for clock differences.
const GRACE: Duration = Duration::from_secs(5);

/// Maximum delay of a response while it is stored.
const STORE_TIMEOUT: Duration = Duration::from_secs(2);

/// Number of attempts to claim a key if its row disappears between the claim and the lookup.
const ATTEMPTS: usize = 3;

/// Idempotency keys and stored responses of all users.
#[derive(Clone)]
pub struct Idempotency {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    deadline: Duration,
    permits: Arc<Semaphore>,
}

/// The right to process a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) user: UserId,
    pub(super) key: RequestKey,
    /// Unique per claim: a process that takes over the key has a different id.
    pub(super) id: Uuid,
}

#[derive(Debug)]
pub(super) struct StoredResponse {
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) body: Vec<u8>,
}

/// State of a request with a key.
#[derive(Debug)]
pub(super) enum Begun {
    /// The caller must process the request.
    First(Claim),
    /// The request was processed before.
    Finished(StoredResponse),
    /// The key belongs to a different request.
    Reused,
    /// Another task is processing the request.
    InProgress,
}

impl Idempotency {
    pub fn new(core: &Core, http: &Http) -> Self {
        let Core { db, clock, random, .. } = core.clone();
        let permits = Arc::new(Semaphore::new(http.max_in_flight.min(Semaphore::MAX_PERMITS)));
        Self { inner: Arc::new(Inner { db, clock, random, deadline: http.deadline, permits }) }
    }

    /// Maximum time for processing a request.
    pub(super) fn deadline(&self) -> Duration {
        self.inner.deadline
    }

    /// Returns a permit for a request with a key, or `None` if too many are running. These requests need separate
    /// permits: they continue after their client disconnects, when the permit of the HTTP request is already released.
    pub(super) fn permit(&self) -> Option<OwnedSemaphorePermit> {
        Arc::clone(&self.inner.permits).try_acquire_owned().ok()
    }

    /// Claims a request or returns its state.
    pub(super) async fn begin(&self, user: UserId, key: RequestKey, request_digest: [u8; 32]) -> sqlx::Result<Begun> {
        let inner = &*self.inner;
        let claim = Claim { user, key, id: random::uuid_v7(&*inner.random, &*inner.clock) };
        for _ in 0..ATTEMPTS {
            let now = inner.clock.now();
            if store::claim(&inner.db, claim, request_digest, now, now + inner.deadline + GRACE).await? {
                return Ok(Begun::First(claim));
            }
            // The row disappeared after the claim failed: its claim was released, or the sweep deleted it.
            let Some(row) = store::find(&inner.db, user, key).await? else { continue };
            return Ok(match (row.status, row.body) {
                _ if row.request_digest != request_digest => Begun::Reused,
                (Some(status), Some(body)) => Begun::Finished(StoredResponse {
                    status: status.unsigned_abs(),
                    content_type: row.content_type,
                    body,
                }),
                _ => Begun::InProgress,
            });
        }
        Ok(Begun::InProgress)
    }

    /// Stores the response. If that fails, the client still receives it, because the change is already made.
    pub(super) async fn finish(&self, claim: Claim, response: &StoredResponse) {
        match tokio::time::timeout(STORE_TIMEOUT, store::finish(&self.inner.db, claim, response)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => tracing::warn!("response was not stored: its idempotency key was taken over"),
            Ok(Err(error)) => tracing::warn!(%error, "response could not be stored for its idempotency key"),
            Err(_) => tracing::warn!("storing a response for its idempotency key timed out"),
        }
    }

    /// Releases the claim. A retry then processes the request again.
    pub(super) async fn release(&self, claim: Claim) {
        match tokio::time::timeout(STORE_TIMEOUT, store::release(&self.inner.db, claim)).await {
            Ok(Ok(())) => {}
            Ok(Err(error)) => tracing::warn!(%error, "idempotency key could not be released; its claim will expire"),
            Err(_) => tracing::warn!("releasing an idempotency key timed out; its claim will expire"),
        }
    }

    /// Deletes expired keys and returns their number.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let until = self.inner.clock.now() - KEPT_FOR;
        database::sweep(|most| store::sweep(&self.inner.db, until, most)).await
    }
}
