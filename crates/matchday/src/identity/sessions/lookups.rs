//! Batched token lookups. When many fans open the app within minutes, or a process has just started, few tokens are
//! cached. One query then looks up many tokens.

use std::sync::Arc;

use platform::{
    batches::{Attempt, Write},
    clock::Clock,
    database,
    shards::Shards,
};
use sqlx::PgConnection;
use web::ids::UserId;

use super::{
    rules::{self, TokenHash},
    settings::Settings,
    store::{self, Found, Use},
};

/// The hash of a token and the user id the token contains.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) user: UserId,
    pub(super) hash: TokenHash,
}

/// Looks up tokens and records their use.
pub(super) struct LookUps {
    pub(super) config: Settings,
    pub(super) shards: Shards,
    pub(super) clock: Arc<dyn Clock>,
}

impl Write for LookUps {
    type Entry = Token;
    type Key = ();
    /// The session with its last use and expiry, or `None` if it does not exist or has ended.
    type Outcome = Option<Found>;

    const BATCHES: &'static str = "matchday_session_lookup_batches_total";

    /// A batch may contain the same token several times.
    fn key(_: &Token) -> Option<()> {
        None
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        tokens: &[Token],
        _: Attempt,
    ) -> sqlx::Result<Vec<Option<Found>>> {
        let shards = self.shards.get(connection).await?;
        let (mut found, now) = (store::find(connection, shards, tokens).await?, self.clock.now());
        let (idle, lifetime) = (self.config.idle, self.config.lifetime);
        let mut uses = Vec::new();
        for (token, place) in tokens.iter().zip(&mut found) {
            place.take_if(|session| session.expires_at <= now);
            if let Some(session) = place
                && rules::is_worth_noting(session.last_used_at, now, idle)
            {
                uses.push(Use { token: *token, expires_at: rules::expiry(session.created_at, now, idle, lifetime) });
            }
        }
        if uses.is_empty() {
            return Ok(found);
        }
        match store::note_uses(connection, shards, &uses, now).await {
            // Another transaction is ending one of the sessions or recording its use. Requests do not wait for it: a
            // later lookup records the other uses.
            Err(error) if database::is_conflict(&error) => {}
            noted => {
                noted?;
                for session in found.iter_mut().flatten() {
                    if rules::is_worth_noting(session.last_used_at, now, idle) {
                        session.last_used_at = now;
                        session.expires_at = rules::expiry(session.created_at, now, idle, lifetime);
                    }
                }
            }
        }
        Ok(found)
    }
}
