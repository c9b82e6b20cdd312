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

/// The subject on which ended sessions are told.
pub const REVOKED: &str = "fact.session.revoked";

/// The subject on which chat devices are told that their session is over.
pub const DEVICE_ENDED: &str = "work.chat.device_ended";

/// How much of a client's own description is kept.
const USER_AGENT_LENGTH: usize = 200;

/// How many connections look tokens up.
const SHARDS: usize = 2;

/// How many look-ups may wait for each of them; further ones are refused.
const LOOKUPS_WAITING: usize = 4_096;

/// The sessions of all users.
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
    /// Tokens that were good when they were looked up, and when that was.
    checked: quick_cache::sync::Cache<TokenHash, (Checked, Instant)>,
    /// How many tokens were evicted, see `look_up`.
    evictions: AtomicU64,
}

/// A token that is good.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Checked {
    /// Whose.
    pub user_id: UserId,
    /// Which of their sessions.
    pub id: SessionId,
    /// The ban, if the user may not use the service now.
    pub ban: Option<Ban>,
    expires_at: OffsetDateTime,
}

/// A session that was just made. The token is shown once and never again.
#[derive(Debug)]
pub struct Issued {
    /// The session.
    pub id: SessionId,
    /// What the app carries.
    pub token: SecretString,
    /// The chat device that belongs to it, where there is chat. It is known here before the homeserver knows it, so that
    /// whenever the session ends its device can be ended with it.
    pub device_id: Option<String>,
}

/// Sessions that were ended in a transaction, to be forgotten once it is committed.
#[derive(Debug, Default)]
#[must_use = "tokens of ended sessions stay in the cache until they are forgotten"]
pub struct EndedSessions(Vec<TokenHash>);

/// How a session stands to a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DeviceState {
    /// It is the session's.
    Current,
    /// The session has another one by now.
    Replaced,
    /// There is no such session any more.
    SessionOver,
}

/// A device whose session is over.
#[derive(Debug, Serialize, Deserialize)]
pub struct DeviceEnded {
    /// Whose.
    pub user_id: UserId,
    /// Which.
    pub device_id: String,
}

/// A session as its owner sees it.
#[derive(Clone, Debug)]
pub struct Session {
    /// To end it by.
    pub id: SessionId,
    /// When it was issued.
    pub created_at: OffsetDateTime,
    /// When it was last used, to within five minutes.
    pub last_used_at: OffsetDateTime,
    /// When it ends if it is not used again.
    pub expires_at: OffsetDateTime,
    /// What the client said of itself.
    pub user_agent: String,
}

#[derive(Serialize, Deserialize)]
struct Revoked {
    user_id: UserId,
    session_id: SessionId,
    token_hash: String,
}

/// Why a session was not issued or ended.
#[derive(Debug, thiserror::Error)]
pub enum SessionError {
    /// There is no such user.
    #[error("user {0} does not exist")]
    NoSuchUser(UserId),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Sessions {
    /// Sessions in this database.
    pub fn new(core: &Core, settings: &Settings, with_chat: bool) -> Self {
        let Core { db, clock, random, outbox_written, statement_timeout: timeout, .. } = core.clone();
        let config = settings.clone();
        let lookups = (0..SHARDS).map(|_| LookUps { config: config.clone(), clock: Arc::clone(&clock) }).collect();
        let lookups = Batches::start(&db, timeout, LOOKUPS_WAITING, lookups);
        let (checked, evictions) = (quick_cache::sync::Cache::new(config.cache_entries), AtomicU64::new(0));
        let inner = Inner { db, config, with_chat, clock, random, outbox_written, lookups, checked, evictions };
        Self { inner: Arc::new(inner) }
    }

    /// Starts a session; one too many ends the oldest.
    pub async fn issue(&self, user: UserId, user_agent: &str) -> Result<Issued, SessionError> {
        let inner = &*self.inner;
        let mut tx = inner.db.begin().await?;
        let (issued, ended) = self.issue_in(&mut tx, user, user_agent).await?;
        tx.commit().await?;
        self.forget(&ended);
        Ok(issued)
    }

    /// The same in a transaction of the caller's, who calls [`Self::forget`] after its commit.
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

    /// Starts a session and ends none. It is enough for a user who is made in the same transaction: nobody else can know
    /// of them yet, and there is nothing to end.
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

    /// Gives a session a new chat device in place of the one before, whose token is not good any more. `None` if the
    /// session is over.
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

    /// How a session stands to a device that was made for it.
    pub async fn device_state(&self, user: UserId, id: SessionId, device_id: &str) -> sqlx::Result<DeviceState> {
        Ok(match store::device(&self.inner.db, user, id).await? {
            None => DeviceState::SessionOver,
            Some(Some(current)) if current == device_id => DeviceState::Current,
            Some(_) => DeviceState::Replaced,
        })
    }

    /// Whose token this is, if it is good.
    pub async fn check(&self, token: &str) -> Result<Option<Checked>, BatchError> {
        let (hash, now) = (TokenHash::of(token), self.inner.clock.now());
        let checked = match self.inner.checked.get(&hash) {
            Some((checked, since)) if since.elapsed() < self.inner.config.cache_for => {
                (checked.expires_at > now).then_some(checked)
            }
            // Boxed, so that requests with a token checked lately do not carry the room for a query around.
            _ => Box::pin(self.look_up(token, hash)).await?,
        };
        // A ban ends on time, also for a token in the cache.
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
        // The session may have ended between our reading it and now. An eviction counts before it removes: so either it
        // removes what we inserted, or we see here that something was evicted, and remember nothing this time.
        if inner.evictions.load(Ordering::SeqCst) != evictions {
            inner.checked.remove(&hash);
        }
        Ok(Some(checked))
    }

    /// Ends one of the user's sessions; returns whether there was such a one.
    pub async fn end(&self, user: UserId, id: SessionId) -> Result<bool, SessionError> {
        let inner = &*self.inner;
        let mut tx = inner.db.begin().await?;
        // Before anything is written: messages about one user keep the order of the changes.
        accounts::lock(&mut tx, user).await?;
        let ended: Vec<Ended> = store::delete(&mut tx, user, id).await?.into_iter().collect();
        let ended = announce(&mut tx, user, &ended).await?;
        tx.commit().await?;
        self.forget(&ended);
        Ok(!ended.0.is_empty())
    }

    /// Ends all of a user's sessions, in the caller's transaction. Their chat devices are left to whoever ends the chat
    /// account.
    pub async fn end_all_in(&self, connection: &mut PgConnection, user: UserId) -> Result<EndedSessions, SessionError> {
        let mut ended = store::delete_all(connection, user).await?;
        for session in &mut ended {
            session.device_id = None;
        }
        announce(connection, user, &ended).await
    }

    /// Ends a user's sessions but this one, with their chat devices, in the caller's transaction.
    pub async fn end_others_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        keep: Option<SessionId>,
    ) -> Result<EndedSessions, SessionError> {
        let ended = store::delete_others(connection, user, keep).await?;
        announce(connection, user, &ended).await
    }

    /// When the holder of a session last proved to have the account's phone: when they logged in, or since. `None` if
    /// the session is over.
    pub async fn proven_at(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        id: SessionId,
    ) -> sqlx::Result<Option<OffsetDateTime>> {
        store::proven_at(connection, user, id).await
    }

    /// Takes note that the holder of a session proved to have the account's phone.
    pub async fn note_proof_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        id: SessionId,
        now: OffsetDateTime,
    ) -> sqlx::Result<()> {
        store::note_proof(connection, user, id, now).await
    }

    /// A page of the user's sessions, newest first, and how many there are.
    pub async fn list(&self, user: UserId, paging: Paging) -> sqlx::Result<(Vec<Session>, i64)> {
        let rows = store::list(&self.inner.db, user, self.inner.clock.now()).await?;
        let (total, offset) = (rows.len(), usize::try_from(paging.offset()).unwrap_or(usize::MAX));
        let page = rows.into_iter().skip(offset).take(usize::try_from(paging.limit()).unwrap_or(usize::MAX));
        Ok((page.map(Session::from).collect(), i64::try_from(total).unwrap_or(i64::MAX)))
    }

    /// Takes note of a session that ended in another process.
    pub fn heard(&self, payload: &[u8]) {
        let hash =
            serde_json::from_slice::<Revoked>(payload).ok().and_then(|told| TokenHash::from_hex(&told.token_hash));
        if let Some(hash) = hash {
            self.evict(hash);
        } else {
            tracing::warn!("a revocation could not be read; caches run out by themselves");
        }
    }

    /// Forgets every token that was checked, because revocations may have been missed.
    pub fn forget_all(&self) {
        self.inner.evictions.fetch_add(1, Ordering::SeqCst);
        self.inner.checked.clear();
    }

    /// Deletes sessions that have expired, and their devices; returns how many.
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

    /// Takes note of sessions that ended in a transaction which is committed now.
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

/// Tells every process, in the transaction that ended the sessions.
async fn announce(connection: &mut PgConnection, user: UserId, ended: &[Ended]) -> Result<EndedSessions, SessionError> {
    let hashes: Vec<(SessionId, TokenHash)> = ended
        .iter()
        .filter_map(|ended| Some((ended.id, TokenHash(ended.token_hash.as_slice().try_into().ok()?))))
        .collect();
    let revoked = hashes.iter().map(|&(session_id, hash)| {
        let told = Revoked { user_id: user, session_id, token_hash: hash.to_hex() };
        Message::new(REVOKED, format!("user:{user}"), &told)
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
