//! Issuing, checking and ending sessions.

use std::sync::Arc;

use platform::{
    Core,
    batches::{BatchError, Batches},
    clock::Clock,
    outbox::{self, Message},
    random::{self, Random},
};
use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use serde_json::json;
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
    store::{self, Due, Ended, Row},
    trust::{Mark, Trust},
    watch::SessionWatch,
};
use crate::identity::{
    accounts,
    operators::{self, Operator, service::Action},
};

/// Subject for ended sessions. Every process evicts their tokens from its cache.
pub const REVOKED: &str = "fact.session.revoked";

/// Subject for chat devices whose session has ended or has a new device.
pub const DEVICE_ENDED: &str = "work.chat_security.device_ended";

/// Maximum number of characters kept of a `User-Agent` header.
const USER_AGENT_LENGTH: usize = 200;

/// Number of connections for token lookups.
const SHARDS: usize = 2;

/// Number of sessions that one transaction of the sweep checks.
const SWEPT_AT_ONCE: i64 = 1_000;

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
    /// Valid tokens.
    cache: quick_cache::sync::Cache<TokenHash, Entry>,
    trust: Trust,
}

/// Result of a lookup, kept in the cache.
#[derive(Clone, Copy, Debug)]
pub(super) struct Entry {
    checked: Checked,
    /// From then on the session must be looked up again.
    until: OffsetDateTime,
    mark: Mark,
}

impl Entry {
    fn covers_request(&self, sessions: &Sessions, now: OffsetDateTime) -> bool {
        self.until > now && sessions.trust().covers_request(self.checked.user_id, self.mark)
    }

    pub(super) fn covers_stream(&self, sessions: &Sessions, now: OffsetDateTime) -> bool {
        self.until > now && sessions.trust().covers_stream(self.checked.user_id, self.mark)
    }

    /// A ban also ends on time for a cached token.
    pub(super) fn ban_at(&self, now: OffsetDateTime) -> Option<Ban> {
        self.checked.ban.filter(|ban| ban.lasts_at(now))
    }
}

/// The session of a valid token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    pub user_id: UserId,
    pub id: SessionId,
    /// The ban in force, if any.
    pub ban: Option<Ban>,
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
pub struct EndedSessions(Vec<Token>);

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
    /// Time of the last use, accurate to a day.
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
        let Core { db, shards, clock, random, outbox_written, writer_settings, .. } = core.clone();
        let config = settings.clone();
        let lookups = (0..SHARDS)
            .map(|_| LookUps { config: config.clone(), shards: shards.clone(), clock: Arc::clone(&clock) })
            .collect();
        let lookups = Batches::start(&db, &shards, writer_settings, LOOKUPS_WAITING, lookups);
        let cache = quick_cache::sync::Cache::new(config.cache_entries);
        let trust = Trust::new(config.cache_for, config.cache_unheard);
        let inner = Inner { db, config, with_chat, clock, random, outbox_written, lookups, cache, trust };
        Self { inner: Arc::new(inner) }
    }

    /// Starts a session. If the user then has too many, the oldest ends.
    pub async fn issue(&self, user: UserId, user_agent: &str) -> Result<Issued, SessionError> {
        let inner = &*self.inner;
        let mut tx = platform::database::begin(&inner.db).await?;
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
        let mut tx = platform::database::begin(&inner.db).await?;
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
        let hash = TokenHash::of(token);
        let entry = if let Some(entry) = self.cached(hash) {
            Some(entry)
        } else {
            let Some(user) = rules::read_token(token) else { return Ok(None) };
            // Boxed, so the future of a cache hit does not reserve space for the query.
            Box::pin(self.look_up(Token { user, hash })).await?
        };
        Ok(entry.map(|entry| self.checked(entry)))
    }

    /// Returns the session of a token if it is cached.
    pub fn check_cached(&self, token: &str) -> Option<Checked> {
        self.cached(TokenHash::of(token)).map(|entry| self.checked(entry))
    }

    fn checked(&self, entry: Entry) -> Checked {
        Checked { ban: entry.ban_at(self.now()), ..entry.checked }
    }

    /// Watches the session of a stream, whose request was authenticated with this token of this user.
    pub fn watch(&self, user: UserId, token: &str) -> SessionWatch {
        SessionWatch::new(self.clone(), user, token)
    }

    pub(super) fn cached(&self, hash: TokenHash) -> Option<Entry> {
        self.inner.cache.get(&hash).filter(|entry| entry.covers_request(self, self.now()))
    }

    /// Returns the cached or stored session of a token.
    pub(super) async fn find(&self, token: Token) -> Result<Option<Entry>, BatchError> {
        match self.cached(token.hash) {
            Some(entry) => Ok(Some(entry)),
            None => Box::pin(self.look_up(token)).await,
        }
    }

    async fn look_up(&self, token: Token) -> Result<Option<Entry>, BatchError> {
        let inner = &*self.inner;
        metrics::counter!("matchday_session_lookups_total").increment(1);
        // Marked before the read: if the session ends after it, the entry is not trusted.
        let mark = inner.trust.mark(token.user);
        let Some(found) = inner.lookups.write(token.user.0, token).await? else {
            inner.cache.remove(&token.hash);
            return Ok(None);
        };
        let checked = Checked { user_id: token.user, id: found.id, ban: found.ban };
        let until = rules::look_up_again_at(found.last_used_at, found.expires_at, self.now(), inner.config.idle);
        let entry = Entry { checked, until, mark };
        inner.cache.insert(token.hash, entry);
        Ok(Some(entry))
    }

    pub(super) fn trust(&self) -> &Trust {
        &self.inner.trust
    }

    pub(super) fn now(&self) -> OffsetDateTime {
        self.inner.clock.now()
    }

    /// Ends one of the user's sessions. Returns whether it existed.
    pub async fn end(&self, user: UserId, id: SessionId) -> Result<bool, SessionError> {
        let inner = &*self.inner;
        let mut tx = platform::database::begin(&inner.db).await?;
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

    /// Ends all sessions of a user, with their chat devices, for an operator. Returns their number.
    pub async fn end_all_by(&self, user: UserId, operator: &Operator) -> Result<usize, SessionError> {
        let mut tx = platform::database::begin(&self.inner.db).await?;
        if !accounts::lock(&mut tx, user).await? {
            return Err(SessionError::NoSuchUser(user));
        }
        let ended = self.end_others_in(&mut tx, user, None).await?;
        let number = ended.0.len();
        if number > 0 {
            let action = Action::new("user.end_sessions", format!("user:{user}")).with(json!({"sessions": number}));
            operators::service::record(&mut tx, operator, &action, self.inner.clock.now()).await?;
        }
        tx.commit().await?;
        self.forget(&ended);
        Ok(number)
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
        let token = serde_json::from_slice::<Revoked>(payload)
            .ok()
            .and_then(|revoked| Some(Token { user: revoked.user_id, hash: TokenHash::from_hex(&revoked.token_hash)? }));
        if let Some(token) = token {
            self.evict(token);
        } else {
            tracing::warn!("session revocation is malformed; the token cache is cleared");
            self.forget_all();
        }
    }

    /// Notes a pulse of the outbox relay: all earlier revocations have been received.
    pub fn heard_pulse(&self) {
        self.inner.trust.note_pulse();
    }

    /// Evicts all tokens of a user, because a restriction of the user has changed.
    pub fn forget_user(&self, user: UserId) {
        self.inner.trust.evict(user);
    }

    /// Clears the token cache, because revocations may have been missed.
    pub fn forget_all(&self) {
        self.inner.trust.evict_all();
        self.inner.cache.clear();
    }

    /// Deletes expired sessions and their chat devices. Returns the number of sessions.
    pub async fn sweep(&self) -> Result<u64, SessionError> {
        let mut total = 0;
        loop {
            let now = self.now();
            let mut tx = platform::database::begin(&self.inner.db).await?;
            let due = store::due(&mut tx, now, SWEPT_AT_ONCE).await?;
            let (expired, used): (Vec<&Due>, Vec<&Due>) = due.iter().partition(|due| due.expires_at <= now);
            store::wait_briefly(&mut tx).await?;
            let ended = store::delete_expired(&mut tx, &expired, now).await?;
            store::postpone_due(&mut tx, &used).await?;
            let total_ended = ended.len() as u64;
            let devices = ended.into_iter().filter_map(|(user, device)| Some(device_ended(user, device?)));
            outbox::enqueue(&mut tx, &devices.collect::<Result<Vec<_>, _>>()?).await?;
            tx.commit().await?;
            total += total_ended;
            if due.len() < usize::try_from(SWEPT_AT_ONCE).unwrap_or(usize::MAX) {
                return Ok(total);
            }
        }
    }

    /// Evicts the tokens of sessions that a committed transaction ended.
    pub fn forget(&self, EndedSessions(tokens): &EndedSessions) {
        for &token in tokens {
            self.evict(token);
        }
        if !tokens.is_empty() {
            self.inner.outbox_written.notify_one();
        }
    }

    #[cfg(test)]
    pub(super) fn cached_tokens(&self) -> usize {
        self.inner.cache.len()
    }

    fn evict(&self, token: Token) {
        self.inner.trust.evict(token.user);
        self.inner.cache.remove(&token.hash);
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
    Ok(EndedSessions(hashes.into_iter().map(|(_, hash)| Token { user, hash }).collect()))
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
