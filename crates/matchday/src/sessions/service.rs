//! Issuing, checking and ending sessions.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Instant,
};

use secrecy::SecretString;
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::Notify;

use super::{
    rules::{self, TokenHash},
    store::{self, Ended, Row},
};
use crate::{
    accounts,
    http::paging::Paging,
    ids::{SessionId, UserId},
    platform::{
        clock::Clock,
        config,
        outbox::{self, Message},
        random::{self, Random},
    },
};

/// The subject on which ended sessions are told.
pub const REVOKED: &str = "fact.session.revoked";

/// How much of a client's own description is kept.
const USER_AGENT_LENGTH: usize = 200;

/// The sessions of all users.
#[derive(Clone)]
pub struct Sessions {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    config: config::Sessions,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    outbox_written: Arc<Notify>,
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
    expires_at: OffsetDateTime,
}

/// A session that was just made. The token is shown once and never again.
#[derive(Debug)]
pub struct Issued {
    /// The session.
    pub id: SessionId,
    /// What the app carries.
    pub token: SecretString,
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
    pub fn new(
        db: PgPool,
        config: config::Sessions,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        outbox_written: Arc<Notify>,
    ) -> Self {
        let checked = quick_cache::sync::Cache::new(config.cache_entries);
        Self {
            inner: Arc::new(Inner { db, config, clock, random, outbox_written, checked, evictions: AtomicU64::new(0) }),
        }
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

    async fn issue_in(
        &self,
        connection: &mut PgConnection,
        user: UserId,
        user_agent: &str,
    ) -> Result<(Issued, Vec<TokenHash>), SessionError> {
        let inner = &*self.inner;
        if !accounts::store::lock(connection, user).await? {
            return Err(SessionError::NoSuchUser(user));
        }
        let now = inner.clock.now();
        let (token, hash) = rules::make_token(user, random::bytes(&*inner.random));
        let expires_at = rules::expiry(now, now, inner.config.idle, inner.config.lifetime);
        let user_agent: String = user_agent.chars().filter(|c| !c.is_control()).take(USER_AGENT_LENGTH).collect();
        let id = store::insert(connection, user, hash, now, expires_at, &user_agent).await?;
        let ended = store::delete_oldest(connection, user, inner.config.max_per_user.into(), now).await?;
        let hashes = announce(connection, user, &ended).await?;
        Ok((Issued { id, token }, hashes))
    }

    /// Makes a user with nothing but an id, for development and tests.
    pub async fn make_bare_user(&self) -> sqlx::Result<UserId> {
        accounts::store::insert(&self.inner.db, self.inner.clock.now()).await
    }

    /// Whose token this is, if it is good.
    pub async fn check(&self, token: &str) -> sqlx::Result<Option<Checked>> {
        let (hash, now) = (TokenHash::of(token), self.inner.clock.now());
        match self.inner.checked.get(&hash) {
            Some((checked, since)) if since.elapsed() < self.inner.config.cache_for => {
                Ok((checked.expires_at > now).then_some(checked))
            }
            // Boxed, so that requests with a token checked lately do not carry the room for a query around.
            _ => Box::pin(self.look_up(token, hash, now)).await,
        }
    }

    async fn look_up(&self, token: &str, hash: TokenHash, now: OffsetDateTime) -> sqlx::Result<Option<Checked>> {
        let inner = &*self.inner;
        let Some(user) = rules::read_token(token) else { return Ok(None) };
        metrics::counter!("matchday_session_lookups_total").increment(1);
        let (evictions, looked_up) = (inner.evictions.load(Ordering::SeqCst), Instant::now());
        let Some(row) = store::find(&inner.db, user, hash).await? else { return Ok(None) };
        if row.expires_at <= now {
            return Ok(None);
        }
        let mut expires_at = row.expires_at;
        if rules::is_worth_noting(row.last_used_at, now) {
            expires_at = rules::expiry(row.created_at, now, inner.config.idle, inner.config.lifetime);
            store::note_use(&inner.db, user, hash, now, expires_at).await?;
        }
        let checked = Checked { user_id: user, id: row.id, expires_at };
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
        accounts::store::lock(&mut tx, user).await?;
        let ended: Vec<Ended> = store::delete(&mut tx, user, id).await?.into_iter().collect();
        let hashes = announce(&mut tx, user, &ended).await?;
        tx.commit().await?;
        self.forget(&hashes);
        Ok(!hashes.is_empty())
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

    /// Deletes sessions that have expired, a few at a time; returns how many.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        const AT_ONCE: i64 = 1_000;
        let mut total = 0;
        loop {
            let swept = store::sweep(&self.inner.db, self.inner.clock.now(), AT_ONCE).await?;
            total += swept;
            if swept < AT_ONCE.unsigned_abs() {
                return Ok(total);
            }
        }
    }

    fn forget(&self, hashes: &[TokenHash]) {
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
async fn announce(
    connection: &mut PgConnection,
    user: UserId,
    ended: &[Ended],
) -> Result<Vec<TokenHash>, SessionError> {
    let hashes: Vec<(SessionId, TokenHash)> = ended
        .iter()
        .filter_map(|ended| Some((ended.id, TokenHash(ended.token_hash.as_slice().try_into().ok()?))))
        .collect();
    let messages = hashes
        .iter()
        .map(|&(session_id, hash)| {
            let told = Revoked { user_id: user, session_id, token_hash: hash.to_hex() };
            Message::new(REVOKED, format!("user:{user}"), &told)
        })
        .collect::<Result<Vec<_>, _>>()?;
    outbox::enqueue(connection, &messages).await?;
    Ok(hashes.into_iter().map(|(_, hash)| hash).collect())
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
