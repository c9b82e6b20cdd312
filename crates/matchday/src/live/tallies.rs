//! Telling how matches are predicted: of each at most once a second, however many processes there are.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::{
    clock::Clock,
    stream::{Streams, TransportError},
};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use web::ids::EventId;

pub use super::rules::{TALLY, TallyFact};
use super::store;
use crate::predictions::changes::Changes;

/// Tells what the writers of this process changed.
pub struct Teller {
    /// Where the tallies are.
    pub db: PgPool,
    /// Where they are told.
    pub streams: Streams,
    /// Which ones changed.
    pub changes: Changes,
    /// The time.
    pub clock: Arc<dyn Clock>,
}

/// Why something was not told yet.
#[derive(Debug, thiserror::Error)]
enum TellError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Transport(#[from] TransportError),
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Teller {
    /// Tells until the process closes.
    pub async fn run(self, closing: CancellationToken) {
        loop {
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
            self.tell().await;
        }
    }

    /// Tells once. What cannot be told is told the next time.
    pub async fn tell(&self) {
        let changed = self.changes.take();
        if changed.is_empty() {
            return;
        }
        match self.tell_of(&changed).await {
            Ok(left) => self.changes.note(left),
            Err(error) => {
                tracing::debug!(%error, "tallies are told later");
                self.changes.note(changed);
            }
        }
    }

    /// Returns the matches that another process has told of in this second: what it told may be older than what changed
    /// here, so they are told of again in the next one.
    async fn tell_of(&self, events: &[EventId]) -> Result<Vec<EventId>, TellError> {
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
