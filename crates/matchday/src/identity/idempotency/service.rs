//! Claims keys, and stores and finds responses.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use platform::{
    Core,
    clock::Clock,
    database,
    random::{self, Random},
    shards::Shards,
};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;
use web::settings::Http;

use super::{
    rules::{KeyOwner, KeyedRequest, RequestKey},
    store,
};

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
    shards: Shards,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    deadline: Duration,
    permits: Arc<Semaphore>,
}

/// The right to process a request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Claim {
    pub(super) owner: KeyOwner,
    pub(super) key: RequestKey,
    /// Unique per claim: a process that takes over the key has a different id.
    pub(super) id: Uuid,
}

/// A response that is sent again when its request is repeated.
#[derive(Clone, Debug)]
pub(crate) struct StoredResponse {
    pub(super) status: u16,
    pub(super) content_type: Option<String>,
    pub(super) body: Vec<u8>,
}

/// What is stored for a key that was used before.
#[derive(Clone, Debug)]
pub(crate) enum Prior {
    /// The same request was answered with this response.
    Response(StoredResponse),
    /// The same request had an effect, which the feature finds again.
    Effect {
        /// Status of the response.
        status: u16,
        /// Revision that the request wrote.
        revision: Option<i32>,
    },
    /// The key belongs to a different request.
    Reused,
}

/// A request that has an effect in the current transaction.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Effect {
    pub(crate) request: KeyedRequest,
    /// Status of the response.
    pub(crate) status: u16,
    /// Revision that the request wrote, if the feature needs it to build the response again.
    pub(crate) revision: Option<i32>,
}

/// Keys that were used before, with their outcomes.
#[derive(Debug, Default)]
pub(crate) struct UsedKeys(HashMap<(KeyOwner, RequestKey), store::Finished>);

impl UsedKeys {
    pub(crate) fn contains(&self, request: KeyedRequest) -> bool {
        self.0.contains_key(&(request.owner, request.key))
    }

    /// Returns what is stored for a request. Several requests may have the same key.
    pub(crate) fn prior(&self, request: KeyedRequest) -> Option<Prior> {
        let row = self.0.get(&(request.owner, request.key))?;
        let status = row.status.unsigned_abs();
        Some(match &row.body {
            _ if row.request_digest != request.digest => Prior::Reused,
            Some(body) => {
                Prior::Response(StoredResponse { status, content_type: row.content_type.clone(), body: body.clone() })
            }
            None => Prior::Effect { status, revision: row.revision },
        })
    }
}

/// Finds the requests' keys that were used before.
pub(crate) async fn find_used_keys(
    connection: &mut PgConnection,
    shards: &Shards,
    requests: &[KeyedRequest],
) -> sqlx::Result<UsedKeys> {
    if requests.is_empty() {
        return Ok(UsedKeys::default());
    }
    let keys: HashSet<_> = requests.iter().map(|request| (request.owner, request.key)).collect();
    let keys: Vec<_> = keys.into_iter().collect();
    let ranges = shards.get(connection).await?;
    let finished = store::finished(connection, ranges, &keys).await?;
    let with_key = |row: store::Finished| {
        let digest = row.key_digest.as_slice().try_into().ok()?;
        Some(((row.owner, RequestKey(digest)), row))
    };
    Ok(UsedKeys(finished.into_iter().filter_map(with_key).collect()))
}

/// Stores the keys of requests whose effects are written in the caller's transaction. If another transaction has stored
/// one of them since [`find_used_keys`], this waits for its end and fails with an error that [`is_key_conflict`] recognises.
pub(crate) async fn store_effects(
    connection: &mut PgConnection,
    effects: &[Effect],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    if effects.is_empty() { Ok(()) } else { store::insert_effects(connection, effects, now).await }
}

/// Whether a transaction failed because another one stored the same key.
pub(crate) fn is_key_conflict(error: &sqlx::Error) -> bool {
    const CONSTRAINT: &str = "idempotency_keys_pkey";
    // Citus appends the number of a shard to the name, and reports some violations by their message only.
    error.as_database_error().is_some_and(|error| match error.constraint() {
        Some(constraint) => constraint.starts_with(CONSTRAINT),
        None => error.message().contains(CONSTRAINT),
    })
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
        let Core { db, shards, clock, random, .. } = core.clone();
        let permits = Arc::new(Semaphore::new(http.max_in_flight.min(Semaphore::MAX_PERMITS)));
        Self { inner: Arc::new(Inner { db, shards, clock, random, deadline: http.deadline, permits }) }
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
    pub(super) async fn begin(
        &self,
        KeyedRequest { owner, key, digest: request_digest }: KeyedRequest,
    ) -> sqlx::Result<Begun> {
        let inner = &*self.inner;
        let claim = Claim { owner, key, id: random::uuid_v7(&*inner.random, &*inner.clock) };
        for _ in 0..ATTEMPTS {
            let now = inner.clock.now();
            if store::claim(&inner.db, claim, request_digest, now, now + inner.deadline + GRACE).await? {
                return Ok(Begun::First(claim));
            }
            // The row disappeared after the claim failed: its claim was released, or the sweep deleted it.
            let Some(row) = store::find(&inner.db, owner, key).await? else { continue };
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

    /// Stores the response to a request that had no effect, and returns `None`; or returns what is stored for the key
    /// already. If storing fails, the client still receives the response: a retry is then processed again.
    pub(super) async fn store(&self, request: KeyedRequest, response: &StoredResponse) -> Option<Prior> {
        let inner = &*self.inner;
        let work = async {
            if store::insert_response(&inner.db, request, response, inner.clock.now()).await? {
                return Ok(None);
            }
            self.find(request).await
        };
        match tokio::time::timeout(STORE_TIMEOUT, work).await {
            Ok(Ok(prior)) => prior,
            Ok(Err(error)) => {
                tracing::warn!(%error, "response could not be stored for its idempotency key");
                None
            }
            Err(_) => {
                tracing::warn!("storing a response for its idempotency key timed out");
                None
            }
        }
    }

    /// Returns what is stored for the request's key.
    pub(super) async fn find(&self, request: KeyedRequest) -> sqlx::Result<Option<Prior>> {
        let mut connection = self.inner.db.acquire().await?;
        let keys = find_used_keys(&mut connection, &self.inner.shards, &[request]).await?;
        Ok(keys.prior(request))
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
