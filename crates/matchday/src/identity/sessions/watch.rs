//! The sessions of open live streams.

use super::{
    lookups::Token,
    rules::TokenHash,
    service::{Entry, Sessions},
};
use web::ids::UserId;

/// Watches the session of an open stream. Without evictions of the session, and while revocations arrive, this costs no
/// lookups.
pub struct SessionWatch {
    sessions: Sessions,
    token: Token,
    /// Result of the last check; `None` if it failed.
    entry: Option<Entry>,
    /// Number of evictions that the last check took into account.
    evictions: u32,
}

impl SessionWatch {
    pub(super) fn new(sessions: Sessions, user: UserId, token: &str) -> Self {
        let token = Token { user, hash: TokenHash::of(token) };
        let (evictions, entry) = (sessions.trust().evictions(user), sessions.cached(token.hash));
        // If the session ended after the request was authenticated, this makes `evicted` return immediately.
        let evictions = if entry.is_some() { evictions } else { evictions.wrapping_sub(1) };
        Self { sessions, token, entry, evictions }
    }

    /// Waits until the session may have ended or its user may have been banned. Check [`Self::is_valid`] then.
    pub async fn evicted(&self) {
        let trust = self.sessions.trust();
        loop {
            let mut next = std::pin::pin!(trust.next_eviction(self.token.user));
            // Wait before reading the number, so an eviction in between is not missed.
            next.as_mut().enable();
            if trust.evictions(self.token.user) != self.evictions {
                return;
            }
            next.await;
        }
    }

    /// Whether the session is valid and its user is not banned. A database failure does not end the stream; the next
    /// check tries again.
    pub async fn is_valid(&mut self) -> bool {
        let now = self.sessions.now();
        if let Some(entry) = &self.entry
            && entry.covers_stream(&self.sessions, now)
        {
            return entry.ban_at(now).is_none();
        }
        self.evictions = self.sessions.trust().evictions(self.token.user);
        if let Ok(entry) = self.sessions.find(self.token).await {
            self.entry = entry;
            self.entry.as_ref().is_some_and(|entry| entry.ban_at(now).is_none())
        } else {
            self.entry = None;
            true
        }
    }
}
