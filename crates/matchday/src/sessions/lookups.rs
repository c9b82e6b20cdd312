//! Looking tokens up, many at once: when everybody opens the app in the same minutes, or a process is new, nobody's token
//! is known yet.

use std::sync::Arc;

use platform::{
    batches::{Attempt, Write},
    clock::Clock,
    database,
};
use sqlx::PgConnection;
use web::ids::UserId;

use super::{
    rules::{self, TokenHash},
    settings::Settings,
    store::{self, Found, Use},
};

/// A token, and whose it says it is.
#[derive(Clone, Copy, Debug)]
pub(super) struct Token {
    pub(super) user: UserId,
    pub(super) hash: TokenHash,
}

/// Looks tokens up and takes note that they are used.
pub(super) struct LookUps {
    pub(super) config: Settings,
    pub(super) clock: Arc<dyn Clock>,
}

impl Write for LookUps {
    type Entry = Token;
    type Key = ();
    /// The session as it is from now on, unless there is none, or it has ended.
    type Outcome = Option<Found>;

    const BATCHES: &'static str = "matchday_session_lookup_batches_total";

    /// One token may be asked for by several requests at once.
    fn key(_: &Token) -> Option<()> {
        None
    }

    async fn write(
        &self,
        connection: &mut PgConnection,
        tokens: &[Token],
        _: Attempt,
    ) -> sqlx::Result<Vec<Option<Found>>> {
        let (mut found, now) = (store::find(connection, tokens).await?, self.clock.now());
        let mut uses = Vec::new();
        for (token, place) in tokens.iter().zip(&mut found) {
            place.take_if(|session| session.expires_at <= now);
            if let Some(session) = place
                && rules::is_worth_noting(session.last_used_at, now)
            {
                session.expires_at = rules::expiry(session.created_at, now, self.config.idle, self.config.lifetime);
                uses.push(Use { token: *token, expires_at: session.expires_at });
            }
        }
        if !uses.is_empty() {
            match store::note_uses(connection, &uses, now).await {
                // Somebody is ending one of them, or notes it too. Nobody waits for that: the next look-up notes the others.
                Err(error) if database::is_conflict(&error) => {}
                noted => noted?,
            }
        }
        Ok(found)
    }
}
