//! Creates, rotates, revokes and checks server keys.

use std::{
    net::IpAddr,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use platform::{
    Core, Environment,
    clock::Clock,
    database,
    random::{self, Random},
    rate_limit::{Decision, Limit, RateLimiter},
};
use secrecy::SecretString;
use serde_json::json;
use sqlx::PgPool;
use time::OffsetDateTime;
use web::ids::ServerKeyId;

use super::{
    rules::{self, KeyHash, KeyName, Network, NewText},
    scopes::Scope,
    settings::Settings,
    store::{self, Row},
};
use crate::identity::operators::{self, Operator, service::Action};

/// Longest time for which the previous text of a rotated key can stay valid.
pub const LONGEST_GRACE: Duration = Duration::from_hours(7 * 24);

/// Time for which a process trusts a key that it looked up. A revoked key must be refused within a second.
const TRUSTED_FOR: Duration = Duration::from_millis(500);

/// Number of keys in the cache.
const CACHED: usize = 10_000;

/// Interval between recorded uses of a key.
const NOTE_INTERVAL: time::Duration = time::Duration::minutes(1);

/// Server keys. Cheap to clone.
#[derive(Clone)]
pub struct ServerKeys {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    env: Environment,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    limits: RateLimiter,
    limit: Limit,
    cache: quick_cache::sync::Cache<ServerKeyId, Entry>,
}

/// A key that was looked up. Shared, because every request reads it.
#[derive(Clone)]
struct Entry {
    key: Arc<Stored>,
    /// Time before the lookup.
    read_at: Instant,
}

pub(super) struct Stored {
    pub(super) key: Arc<ServerKey>,
    hash: KeyHash,
    previous: Option<(KeyHash, OffsetDateTime)>,
    /// Whether this version can read all networks. If not, the key is refused: without them it would be valid everywhere.
    is_readable: bool,
    /// Set by the request that records a use, so that concurrent ones do not.
    is_noted: AtomicBool,
}

/// A key as operators and its backend see it.
#[derive(Clone, Debug)]
pub struct ServerKey {
    pub id: ServerKeyId,
    pub name: String,
    pub prefix: String,
    /// Sorted by name, without repetitions.
    pub scopes: Vec<Scope>,
    /// Networks from which the key may be used. Empty: any network.
    pub networks: Vec<Network>,
    pub created_at: OffsetDateTime,
    pub expires_at: Option<OffsetDateTime>,
    pub last_used_at: Option<OffsetDateTime>,
    pub revoked_at: Option<OffsetDateTime>,
    /// End of the validity of the text before the last rotation.
    pub previous_valid_until: Option<OffsetDateTime>,
}

impl ServerKey {
    pub(super) fn allows(&self, address: IpAddr) -> bool {
        self.networks.is_empty() || self.networks.iter().any(|network| network.contains(address))
    }
}

/// Request for a new key.
#[derive(Clone, Debug)]
pub struct KeyRequest {
    pub name: KeyName,
    pub scopes: Vec<Scope>,
    pub networks: Vec<Network>,
    pub expires_in: Option<Duration>,
}

/// A new or rotated key with its text, which is not shown again.
pub struct IssuedKey {
    pub key: ServerKey,
    pub text: SecretString,
}

/// Reason why a key was not created or changed.
#[derive(Debug, thiserror::Error)]
pub enum KeyError {
    #[error("key {0} does not exist: `matchday keys list` lists all")]
    NoSuchKey(ServerKeyId),
    #[error("key {0} is revoked: create another one")]
    Revoked(ServerKeyId),
    #[error("the key has no scope")]
    NoScope,
    #[error("the previous text of a key can stay valid for at most 7 days")]
    GraceTooLong,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl ServerKeys {
    pub fn new(core: &Core, settings: &Settings) -> Self {
        let Core { db, env, clock, random, limits, .. } = core.clone();
        let leniency = env.leniency();
        let limit = Limit {
            name: "server_key",
            burst: settings.burst.saturating_mul(leniency),
            every: Duration::from_secs(1) / settings.rate.max(1).saturating_mul(leniency),
        };
        let cache = quick_cache::sync::Cache::new(CACHED);
        Self { inner: Arc::new(Inner { db, env, clock, random, limits, limit, cache }) }
    }

    /// Creates a key. This is the only time that its text is shown.
    pub async fn create(&self, request: &KeyRequest, operator: &Operator) -> Result<IssuedKey, KeyError> {
        let inner = &*self.inner;
        let mut scopes: Vec<&str> = request.scopes.iter().map(|scope| scope.name()).collect();
        scopes.sort_unstable();
        scopes.dedup();
        if scopes.is_empty() {
            return Err(KeyError::NoScope);
        }
        let networks: Vec<String> = request.networks.iter().map(ToString::to_string).collect();
        let now = inner.clock.now();
        let expires_at = request.expires_in.map(|length| now.saturating_add(length.try_into().unwrap_or_default()));
        let mut tx = database::begin(&inner.db).await?;
        let id = store::insert(&mut tx, request.name.as_str(), &scopes, &networks, now, expires_at).await?;
        let NewText { text, prefix, hash } = self.new_text(id);
        store::set_text(&mut tx, id, &prefix, hash).await?;
        let details = json!({"name": request.name.as_str(), "scopes": scopes, "allow": networks});
        let action = Action::new("key.create", target(id)).with(details);
        operators::service::record(&mut tx, operator, &action, now).await?;
        let key = found(store::find(&mut *tx, id).await?, id)?;
        tx.commit().await?;
        Ok(IssuedKey { key, text })
    }

    /// Replaces the text of a key. The previous text stays valid for the grace period.
    pub async fn rotate(&self, id: ServerKeyId, grace: Duration, operator: &Operator) -> Result<IssuedKey, KeyError> {
        let inner = &*self.inner;
        if grace > LONGEST_GRACE {
            return Err(KeyError::GraceTooLong);
        }
        let now = inner.clock.now();
        let until = (!grace.is_zero()).then(|| now + grace);
        let NewText { text, prefix, hash } = self.new_text(id);
        let mut tx = database::begin(&inner.db).await?;
        if !store::replace_text(&mut tx, id, &prefix, hash, until).await? {
            found(store::find(&mut *tx, id).await?, id)?;
            return Err(KeyError::Revoked(id));
        }
        let action = Action::new("key.rotate", target(id)).with(json!({"grace_seconds": grace.as_secs()}));
        operators::service::record(&mut tx, operator, &action, now).await?;
        let key = found(store::find(&mut *tx, id).await?, id)?;
        tx.commit().await?;
        inner.cache.remove(&id);
        Ok(IssuedKey { key, text })
    }

    /// Revokes a key. Every process refuses it within a second. Revoking it again changes nothing.
    pub async fn revoke(&self, id: ServerKeyId, operator: &Operator) -> Result<ServerKey, KeyError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut tx = database::begin(&inner.db).await?;
        if store::revoke(&mut tx, id, now).await? {
            let action = Action::new("key.revoke", target(id));
            operators::service::record(&mut tx, operator, &action, now).await?;
        }
        let key = found(store::find(&mut *tx, id).await?, id)?;
        tx.commit().await?;
        inner.cache.remove(&id);
        Ok(key)
    }

    /// Returns all keys, oldest first, also revoked ones.
    pub async fn list(&self) -> sqlx::Result<Vec<ServerKey>> {
        Ok(store::list(&self.inner.db).await?.into_iter().map(|row| ServerKey::from(&row)).collect())
    }

    /// Returns the key with this text, or `None` if it is unknown, expired or revoked.
    pub(super) async fn check(&self, text: &str) -> sqlx::Result<Option<Arc<Stored>>> {
        let Some(id) = rules::read_text(text) else { return Ok(None) };
        let (hash, now) = (KeyHash::of(text), self.inner.clock.now());
        // A text that does not match is looked up: another process may have rotated the key a moment ago.
        let is_trusted = |entry: &Entry| entry.read_at.elapsed() < TRUSTED_FOR && entry.key.is_valid(hash, now);
        let cached = self.inner.cache.get(&id).filter(is_trusted);
        let stored = match cached {
            Some(entry) => entry.key,
            // Boxed, so the future of a cache hit does not reserve space for the query.
            None => match Box::pin(self.look_up(id)).await? {
                Some(stored) => stored,
                None => return Ok(None),
            },
        };
        Ok(Some(stored).filter(|stored| stored.is_valid(hash, now)))
    }

    async fn look_up(&self, id: ServerKeyId) -> sqlx::Result<Option<Arc<Stored>>> {
        // Taken before the read: a revocation that the read misses happens after it.
        let read_at = Instant::now();
        let Some(row) = store::find(&self.inner.db, id).await? else {
            self.inner.cache.remove(&id);
            return Ok(None);
        };
        let key = Arc::new(Stored::from(row));
        self.inner.cache.insert(id, Entry { key: Arc::clone(&key), read_at });
        Ok(Some(key))
    }

    /// Records the use of a key, at most once a minute. A failure does not fail the request; a later one tries again.
    pub(super) async fn note_use(&self, stored: &Stored) {
        let (inner, now) = (&*self.inner, self.inner.clock.now());
        let (since, id) = (now - NOTE_INTERVAL, stored.key.id);
        let is_recent = stored.key.last_used_at.is_some_and(|last| last > since);
        if is_recent || stored.is_noted.swap(true, Ordering::Relaxed) {
            return;
        }
        if let Err(error) = store::note_use(&inner.db, id, now, since).await {
            tracing::warn!(%error, key = id.0, "use of a server key was not recorded");
        }
    }

    /// Charges one request to the key's rate limit.
    pub(super) async fn take(&self, id: ServerKeyId) -> Decision {
        self.inner.limits.take(self.inner.limit, &id.to_string()).await
    }

    fn new_text(&self, id: ServerKeyId) -> NewText {
        rules::make_text(self.inner.env, id, random::bytes(&*self.inner.random))
    }
}

fn target(id: ServerKeyId) -> String {
    format!("key:{id}")
}

fn found(row: Option<Row>, id: ServerKeyId) -> Result<ServerKey, KeyError> {
    row.map(|row| ServerKey::from(&row)).ok_or(KeyError::NoSuchKey(id))
}

impl Stored {
    fn is_valid(&self, hash: KeyHash, now: OffsetDateTime) -> bool {
        let is_current = self.hash == hash;
        let is_previous = self.previous.is_some_and(|(previous, until)| previous == hash && now < until);
        let is_expired = self.key.expires_at.is_some_and(|at| at <= now);
        (is_current || is_previous) && !is_expired && self.key.revoked_at.is_none() && self.is_readable
    }
}

impl From<Row> for Stored {
    fn from(row: Row) -> Self {
        // The database checks the lengths. A hash of another length would match no text.
        let hash = |bytes: &[u8]| KeyHash(bytes.try_into().unwrap_or_default());
        let key = Arc::new(ServerKey::from(&row));
        let previous = row.previous_hash.as_deref().map(hash).zip(row.previous_valid_until);
        let is_readable = key.networks.len() == row.networks.len();
        Self { key, hash: hash(&row.key_hash), previous, is_readable, is_noted: AtomicBool::new(false) }
    }
}

impl From<&Row> for ServerKey {
    fn from(row: &Row) -> Self {
        Self {
            id: row.id,
            name: row.name.clone(),
            prefix: row.prefix.clone(),
            // A scope that this version does not know grants nothing.
            scopes: row.scopes.iter().filter_map(|scope| scope.parse().ok()).collect(),
            networks: row.networks.iter().filter_map(|network| network.parse().ok()).collect(),
            created_at: row.created_at,
            expires_at: row.expires_at,
            last_used_at: row.last_used_at,
            revoked_at: row.revoked_at,
            previous_valid_until: row.previous_valid_until,
        }
    }
}
