//! Publishes prediction tallies, at most once a second for each match across all processes.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::{
    clock::Clock,
    stream::{Streams, TransportError},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use web::ids::MatchId;

pub use super::rules::{TALLY, TallyFact};
use super::store;
use crate::game::predictions::changes::Changes;

/// Publishes the tallies that the batch writers of this process changed.
pub struct TallyPublisher {
    pub db: PgPool,
    pub streams: Streams,
    /// Matches whose tallies changed.
    pub changes: Changes,
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
    /// Publishes once a second until shutdown.
    pub async fn run(self, closing: CancellationToken) {
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            self.publish().await;
        }
    }

    /// Publishes all changed tallies. Tallies that cannot be published stay marked as changed.
    pub async fn publish(&self) {
        let changed = self.changes.take();
        if changed.is_empty() {
            return;
        }
        match self.publish_tallies(&changed).await {
            Ok(left) => self.changes.note(left),
            Err(error) => {
                tracing::debug!(%error, "tallies were not published and will be retried");
                self.changes.note(changed);
            }
        }
    }

    /// Publishes the tallies of these matches. Returns the matches that another process published in the same second:
    /// its tally may be older than the change here, so they are published again in the next second.
    async fn publish_tallies(&self, events: &[MatchId]) -> Result<Vec<MatchId>, PublishError> {
        let second = self.clock.now().unix_timestamp();
        let mut sent = Vec::new();
        for tally in store::tallies(&self.db, events).await? {
            let id = format!("tally-{}-{second}", tally.event_id);
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
