//! Issuing, checking and ending sessions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use platform::{
    Core,
    batches::{BatchError, Batches},
    clock::Clock,
    database,
    outbox::{self, Message},
    random::{self, Random},
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::Notify;
use web::{
    ids::{SessionId, UserId},
    paging::Paging,
};

use super::{
    lookups::{LookUps, Token},
    rules::{self, Ban, TokenHash},
    settings::Settings,
    store::{self, Ended, Found, Row},
};
use crate::identity::accounts;

/// Subject for ended sessions. Every process evicts their tokens from its cache.
pub const REVOKED: &str = "fact.session.revoked";

/// Subject for chat devices whose session has ended or has a new device.
pub const DEVICE_ENDED: &str = "work.chat.device_ended";

/// Maximum number of characters kept of a `User-Agent` header.
const USER_AGENT_LENGTH: usize = 200;

/// Number of connections for token lookups.
const SHARDS: usize = 2;

/// Maximum number of lookups that wait for each connection; further ones are refused.
const LOOKUPS_WAITING: usize = 4_096;

/// Issues, checks and ends the sessions of all users.
#[derive(Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    config: Settings,
    /// Whether sessions have chat devices.
    with_chat: bool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    outbox_written: Arc<Notify>,
    lookups: Batches<LookUps>,
    /// Valid tokens and the time of their lookup.
    checked: quick_cache::sync::Cache<TokenHash, (Checked, Instant)>,
    /// Number of evictions so far, see `look_up`.
    evictions: AtomicU64,
}

/// The session of a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    pub user_id: UserId,
    pub id: SessionId,
    /// The ban in force, if any.
    pub ban: Option<Ban>,
    expires_at: OffsetDateTime,
}

/// A new session. Its token is returned only once.
#[derive(Debug)]
pub struct Issued {
    pub id: SessionId,
    pub token: SecretString,
    /// Chat device of the session, if chat is enabled. It is stored before the homeserver creates the device, so the
    /// device can be removed whenever the session ends.
    pub device_id: Option<String>,
}

/// Sessions ended in a transaction. Their tokens must be evicted from the cache after the commit.
#[derive(Debug, Default)]
#[must_use = "tokens of ended sessions stay in the cache until `Sessions::forget` evicts them"]
pub struct EndedSessions(Vec<TokenHash>);

/// Whether a chat device still belongs to its session.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    Current,
    /// The session has a newer device.
    Replaced,
    /// The session has ended.
    SessionEnded,
}

/// Message about a chat device that must be removed.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeviceEnded {
    pub user_id: UserId,
    pub device_id: String,
}

/// A session as its owner sees it.
#[derive(Clone, Debug)]
pub struct Session {
    pub id: SessionId,
    pub created_at: OffsetDateTime,
    /// Time of the last use, accurate to five minutes.
    pub last_used_at: OffsetDateTime,
    /// Time at which the session expires unless it is used again.
    pub expires_at: OffsetDateTime,
    pub user_agent: String,
}

#[derive(Serialize, Deserialize)]
struct Revoked {
    user_id: UserId,
    session_id: SessionId,
    token_hash: String,
}

/// Failure to issue or end a session.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    #[error("user {0} does not exist")]
    NoSuchUser(UserId),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialized.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Sessions {
    pub fn new(core: &Core, settings: &Settings, with_chat: bool) -> Self {
        let Core { db, clock, random, outbox_written, statement_timeout: timeout, .. } = core.clone();
        let config = settings.clone();
        let lookups = (0..SHARDS).map(|_| LookUps { config: config.clone(), clock: Arc::clone(&clock) }).collect();
        let lookups = Batches::start(&db, timeout, LOOKUPS_WAITING, lookups);
        let (checked, evictions) = (quick_cache::sync::Cache::new(config.cache_entries), AtomicU64::new(0));
        let inner = Inner { db, config, with_chat, clock, random, outbox_written, lookups, checked, evictions };
        Self { inner: Arc::new(inner) }
    }

    /// Starts a session. If the user then has too many, the oldest ends.
    pub async fn issue(&self, user: UserId, user_agent: &str) -> Result<Issued, SessionError> {
        let inner = &*self.inner;
        let mut tx = inner.db.begin().await?;
        let (issued, ended) = self.issue_in(&mut tx, user, user_agent).await?;
        tx.commit().await?;
        self.forget(&ended);
        Ok(issued)
    }

    /// Does the same as [`Self::issue`] in the caller's transaction. The caller must call [`Self::forget`] after the
    /// commit.
    pub async fn issue_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        user_agent: &str,
    ) -> Result<(Issued, EndedSessions), SessionError> {
        if !accounts::lock(connection, user).await? {
            return Err(SessionError::NoSuchUser(user));
        }
        let issued = self.start_in(connection, user, user_agent).await?;
        let (most, now) = (self.inner.config.max_per_user.into(), self.inner.clock.now());
        let ended = store::delete_oldest(connection, user, most, now).await?;
        Ok((issued, announce(connection, user, &ended).await?))
    }

    /// Starts a session and ends no other. For users created in the same transaction: they have no other sessions, and
    /// no other transaction can see them yet.
    pub async fn start_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        user_agent: &str,
    ) -> Result<Issued, SessionError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let (token, hash) = rules::make_token(user, random::bytes(&*inner.random));
        let expires_at = rules::expiry(now, now, inner.config.idle, inner.config.lifetime);
        let user_agent: String = user_agent.chars().filter(|c| !c.is_control()).take(USER_AGENT_LENGTH).collect();
        let device_id = inner.with_chat.then(|| rules::make_device(random::bytes(&*inner.random)));
        let device = device_id.as_deref();
        let id = store::insert(connection, user, hash, now, expires_at, &user_agent, device).await?;
        Ok(Issued { id, token, device_id })
    }

    /// Replaces the chat device of a session, because the token of the previous device is no longer valid. Returns
    /// `None` if the session has ended.
    pub async fn renew_device(&self, user: UserId, id: SessionId) -> Result<Option<String>, SessionError> {
        let inner = &*self.inner;
        let device_id = rules::make_device(random::bytes(&*inner.random));
        let mut tx = inner.db.begin().await?;
        accounts::lock(&mut tx, user).await?;
        let Some(before) = store::replace_device(&mut tx, user, id, &device_id).await? else { return Ok(None) };
        if let Some(before) = before {
            outbox::enqueue(&mut tx, &[device_ended(user, before)?]).await?;
        }
        tx.commit().await?;
        inner.outbox_written.notify_one();
        Ok(Some(device_id))
    }

    /// Checks whether a device still belongs to the session for which it was created.
    pub async fn device_state(&self, user: UserId, id: SessionId, device_id: &str) -> sqlx::Result<DeviceState> {
        Ok(match store::device(&self.inner.db, user, id).await? {
            None => DeviceState::SessionEnded,
            Some(Some(current)) if current == device_id => DeviceState::Current,
            Some(_) => DeviceState::Replaced,
        })
    }

    /// Returns the session of a token, or `None` if the token is not valid.
    pub async fn check(&self, token: &str) -> Result<Option<Checked>, BatchError> {
        let (hash, now) = (TokenHash::of(token), self.inner.clock.now());
        let checked = match self.inner.checked.get(&hash) {
            Some((checked, since)) if since.elapsed() < self.inner.config.cache_for => {
                (checked.expires_at > now).then_some(checked)
            }
            // Boxed, so the future of a cache hit does not reserve space for the query.
            _ => Box::pin(self.look_up(token, hash)).await?,
        };
        // A ban also ends on time for a cached token.
        Ok(checked.map(|checked| Checked { ban: checked.ban.filter(|ban| ban.lasts_at(now)), ..checked }))
    }

    async fn look_up(&self, token: &str, hash: TokenHash) -> Result<Option<Checked>, BatchError> {
        let inner = &*self.inner;
        let Some(user) = rules::read_token(token) else { return Ok(None) };
        metrics::counter!("matchday_session_lookups_total").increment(1);
        let (evictions, looked_up) = (inner.evictions.load(Ordering::SeqCst), Instant::now());
        let Some(found) = inner.lookups.write(user.0, Token { user, hash }).await? else { return Ok(None) };
        let Found { id, ban, expires_at, .. } = found;
        let checked = Checked { user_id: user, id, ban, expires_at };
        inner.checked.insert(hash, (checked, looked_up));
        // The session may have ended since it was read. An eviction increments the counter before it removes the entry.
        // So either it removes the entry inserted here, or the counter has changed and the entry is removed below.
        if inner.evictions.load(Ordering::SeqCst) != evictions {
            inner.checked.remove(&hash);
        }
        Ok(Some(checked))
    }

    /// Ends one of the user's sessions. Returns whether it existed.
    pub async fn end(&self, user: UserId, id: SessionId) -> Result<bool, SessionError> {
        let inner = &*self.inner;
        let mut tx = inner.db.begin().await?;
        // Lock the account before the first write, to keep messages about one user in the order of the changes.
        accounts::lock(&mut tx, user).await?;
        let ended: Vec<Ended> = store::delete(&mut tx, user, id).await?.into_iter().collect();
        let ended = announce(&mut tx, user, &ended).await?;
        tx.commit().await?;
        self.forget(&ended);
        Ok(!ended.0.is_empty())
    }

    /// Ends all sessions of a user in the caller's transaction. Their chat devices are removed with the chat account.
    pub async fn end_all_in(&self, connection: &mut PgConnection, user: UserId) -> Result<EndedSessions, SessionError> {
        let mut ended = store::delete_all(connection, user).await?;
        for session in &mut ended {
            session.device_id = None;
        }
        announce(connection, user, &ended).await
    }

    /// Ends all sessions of a user except `keep`, with their chat devices, in the caller's transaction.
    pub async fn end_others_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        keep: Option<SessionId>,
    ) -> Result<EndedSessions, SessionError> {
        let ended = store::delete_others(connection, user, keep).await?;
        announce(connection, user, &ended).await
    }

    /// Returns the last time the holder of a session proved possession of the account's phone, at login or later.
    /// Returns `None` if the session has ended.
    pub async fn proven_at(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        id: SessionId,
    ) -> sqlx::Result<Option<OffsetDateTime>> {
        store::proven_at(connection, user, id).await
    }

    /// Records that the holder of a session proved possession of the account's phone.
    pub async fn note_proof_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        id: SessionId,
        now: OffsetDateTime,
    ) -> sqlx::Result<()> {
        store::note_proof(connection, user, id, now).await
    }

    /// Returns a page of the user's sessions, newest first, and their total number.
    pub async fn list(&self, user: UserId, paging: Paging) -> sqlx::Result<(Vec<Session>, i64)> {
        let rows = store::list(&self.inner.db, user, self.inner.clock.now()).await?;
        let (total, offset) = (rows.len(), usize::try_from(paging.offset()).unwrap_or(usize::MAX));
        let page = rows.into_iter().skip(offset).take(usize::try_from(paging.limit()).unwrap_or(usize::MAX));
        Ok((page.map(Session::from).collect(), i64::try_from(total).unwrap_or(i64::MAX)))
    }

    /// Evicts the token of a session that ended in another process.
    pub fn heard(&self, payload: &[u8]) {
        let hash = serde_json::from_slice::<Revoked>(payload)
            .ok()
            .and_then(|revoked| TokenHash::from_hex(&revoked.token_hash));
        if let Some(hash) = hash {
            self.evict(hash);
        } else {
            tracing::warn!("session revocation is malformed; the token stays cached until its entry expires");
        }
    }

    /// Clears the token cache, because revocations may have been missed.
    pub fn forget_all(&self) {
        self.inner.evictions.fetch_add(1, Ordering::SeqCst);
        self.inner.checked.clear();
    }

    /// Deletes expired sessions and their chat devices. Returns the number of sessions.
    pub async fn sweep(&self) -> Result<u64, SessionError> {
        database::sweep(|most| async move {
            let mut tx = self.inner.db.begin().await?;
            let swept = store::sweep(&mut tx, self.inner.clock.now(), most).await?;
            let devices = swept.iter().filter_map(|(user, device)| Some(device_ended(*user, device.clone()?)));
            outbox::enqueue(&mut tx, &devices.collect::<Result<Vec<_>, _>>()?).await?;
            tx.commit().await?;
            Ok(swept.len() as u64)
        })
        .await
    }

    /// Evicts the tokens of sessions that a committed transaction ended.
    pub fn forget(&self, EndedSessions(hashes): &EndedSessions) {
        for &hash in hashes {
            self.evict(hash);
        }
        if !hashes.is_empty() {
            self.inner.outbox_written.notify_one();
        }
    }

    fn evict(&self, hash: TokenHash) {
        self.inner.evictions.fetch_add(1, Ordering::SeqCst);
        self.inner.checked.remove(&hash);
    }
}

/// Enqueues the messages about ended sessions in the transaction that ended them.
async fn announce(connection: &mut PgConnection, user: UserId, ended: &[Ended]) -> Result<EndedSessions, SessionError> {
    let hashes: Vec<(SessionId, TokenHash)> = ended
        .iter()
        .filter_map(|ended| Some((ended.id, TokenHash(ended.token_hash.as_slice().try_into().ok()?))))
        .collect();
    let revoked = hashes.iter().map(|&(session_id, hash)| {
        let payload = Revoked { user_id: user, session_id, token_hash: hash.to_hex() };
        Message::new(REVOKED, format!("user:{user}"), &payload)
    });
    let devices = ended.iter().filter_map(|ended| Some(device_ended(user, ended.device_id.clone()?)));
    let messages = revoked.chain(devices).collect::<Result<Vec<_>, _>>()?;
    outbox::enqueue(connection, &messages).await?;
    Ok(EndedSessions(hashes.into_iter().map(|(_, hash)| hash).collect()))
}

fn device_ended(user_id: UserId, device_id: String) -> serde_json::Result<Message> {
    Message::new(DEVICE_ENDED, format!("user:{user_id}"), &DeviceEnded { user_id, device_id })
}

impl From<Row> for Session {
    fn from(row: Row) -> Self {
        Self {
            id: row.id,
            created_at: row.created_at,
            last_used_at: row.last_used_at,
            expires_at: row.expires_at,
            user_agent: row.user_agent,
        }
    }
}
