//! Publishes prediction tallies, at most once a second for each match across all processes, and less often if many
//! listeners receive them.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::{
    clock::Clock,
    stream::{Streams, TransportError},
};
use sqlx::PgPool;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use web::ids::MatchId;

pub use super::rules::{TALLY, TallyFact};
use super::{service::Live, store};
use crate::game::predictions::changes::Changes;

const SECOND: Duration = Duration::from_secs(1);
/// Number of tallies that a process may send to its listeners in a second, before it publishes them less often.
const SENT_PER_SECOND: usize = 10_000;
/// Seconds between two tallies of a match. Few different values, so that processes with about as many listeners agree.
const PAUSES: [u16; 4] = [1, 2, 5, 10];
/// A timer that is later than this shows that the process has too much to do.
const LATE: Duration = Duration::from_millis(250);

/// Returns the seconds between two tallies of a match: longer if many listeners receive tallies of many matches, and if
/// the process is slow. Listeners of other processes are not known here, but a load balancer spreads them evenly.
fn pause(listeners: usize, matches: usize, is_slow: bool) -> u16 {
    let sent = listeners.saturating_mul(matches);
    let fits = |pause: &u16| sent <= SENT_PER_SECOND * usize::from(*pause);
    let place = PAUSES.iter().position(fits).unwrap_or(PAUSES.len() - 1);
    PAUSES[(place + usize::from(is_slow)).min(PAUSES.len() - 1)]
}

/// Publishes the tallies that the batch writers of this process changed.
pub struct TallyPublisher {
    pub db: PgPool,
    pub streams: Streams,
    /// Matches whose tallies changed.
    pub changes: Changes,
    /// Listeners of this process.
    pub live: Live,
    pub clock: Arc<dyn Clock>,
}

/// Error from publishing. The tallies are retried.
#[derive(Debug, thiserror::Error)]
enum PublishError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl TallyPublisher {
    /// Publishes until shutdown, once a second or less often.
    pub async fn run(self, closing: CancellationToken) {
        let mut waited: u16 = 0;
        loop {
            let began = Instant::now();
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(SECOND) => {}
            }
            waited = waited.saturating_add(1);
            let is_slow = began.elapsed() > SECOND + LATE;
            let pause = pause(self.live.listeners(), self.changes.count(), is_slow);
            if waited >= pause && self.publish_every(pause).await {
                waited = 0;
            }
        }
    }

    /// Publishes all changed tallies, if no process did in the current period of `pause` seconds. Tallies that are not
    /// published stay marked as changed, so the latest one always arrives. Returns false if there were none.
    pub async fn publish_every(&self, pause: u16) -> bool {
        let changed = self.changes.take();
        if changed.is_empty() {
            return false;
        }
        match self.publish_tallies(&changed, pause).await {
            Ok(left) => self.changes.note(left),
            Err(error) => {
                tracing::debug!(%error, "tallies were not published and will be retried");
                self.changes.note(changed);
            }
        }
        true
    }

    /// Publishes the tallies of these matches. Returns the matches that another process published in the same period:
    /// its tally may be older than the change here, so they are published again in the next period.
    async fn publish_tallies(&self, events: &[MatchId], pause: u16) -> Result<Vec<MatchId>, PublishError> {
        let period = self.clock.now().unix_timestamp() / i64::from(pause);
        let mut sent = Vec::new();
        for tally in store::tallies(&self.db, events).await? {
            let id = format!("tally-{}-{pause}-{period}", tally.event_id);
            let message = PublishMessage::build().message_id(id).payload(serde_json::to_vec(&tally)?.into());
            sent.push((tally.event_id, self.streams.send(TALLY, message).await?));
        }
        let mut left = Vec::new();
        for (event, stored) in sent {
            if stored.await.map_err(TransportError::from)?.duplicate {
                left.push(event);
            }
        }
        Ok(left)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn tallies_are_rarer_for_large_crowds() {
        for (listeners, matches, is_slow, expected) in [
            (0, 50, false, 1),
            (1_000, 10, false, 1),
            (10_000, 1, false, 1),
            (10_000, 1, true, 2),
            (10_000, 2, false, 2),
            (10_000, 4, false, 5),
            (10_000, 10, false, 10),
            (10_000, 10, true, 10),
            (usize::MAX, usize::MAX, true, 10),
        ] {
            assert_eq!(pause(listeners, matches, is_slow), expected, "{listeners} {matches} {is_slow}");
        }
    }

    proptest! {
        #[test]
        fn sent_tallies_stay_below_the_limit(listeners in 0..20_000_usize, matches in 0..5_usize) {
            let pause = usize::from(pause(listeners, matches, false));
            prop_assert!(pause == 10 || listeners * matches <= SENT_PER_SECOND * pause);
        }
    }
}
