//! Carries messages from the outbox to `JetStream`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::Arc,
    time::Duration,
};

use async_nats::jetstream::message::PublishMessage;
use futures_util::future::join_all;
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::store::{self, Waiting};
use crate::{
    clock::Clock,
    lease::Lease,
    stream::{Streams, TransportError},
};

const BATCH: i64 = 500;

/// One relay publishes at a time, whoever holds the lease; every other process's stands by.
///
/// Why nothing is lost, even if two relays overlap for a moment (one was paused and wakes up after its lease ended): a
/// message is deleted only after its acknowledgement. Why nothing is out of order: a message is sent only after the one
/// before it with the same key was acknowledged, so both relays send each key's messages in order, and `JetStream`
/// drops what it has seen under the same id. It remembers ids for five minutes; a relay that fell silent for longer
/// finds its own lease expired before it sends. What a network held back for longer than that may still arrive a second
/// time: consumers must do nothing twice.
pub struct Relay {
    db: PgPool,
    streams: Streams,
    lease: Lease,
    poll: Duration,
    wake: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

impl Relay {
    /// A relay that looks for messages every `poll`, and at once when `wake` is notified.
    pub fn new(
        db: PgPool,
        streams: Streams,
        lease: Lease,
        poll: Duration,
        wake: Arc<Notify>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        Self { db, streams, lease, poll, wake, clock }
    }

    /// Works until shutdown, then hands the lease back.
    pub async fn run(self, shutdown: CancellationToken) {
        let mut pause = self.poll;
        while !shutdown.is_cancelled() {
            // A turn that shutdown cuts short is repeated by the next relay.
            let turn = tokio::select! {
                () = shutdown.cancelled() => break,
                turn = self.turn() => turn,
            };
            match turn {
                Ok(published) => {
                    pause = self.poll;
                    if published == usize::try_from(BATCH).unwrap_or(usize::MAX) {
                        continue;
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "the relay could not publish; messages wait in the outbox");
                    metrics::counter!("matchday_outbox_failures_total").increment(1);
                    pause = (pause * 2).min(Duration::from_secs(5));
                    self.step_back().await;
                }
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = self.wake.notified() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
        self.release().await;
    }

    /// Lets another relay try, which may reach what this one does not; and where the streams are gone, makes them anew.
    async fn step_back(&self) {
        self.release().await;
        if self.streams.is_connected()
            && let Err(error) = self.streams.ensure().await
        {
            tracing::debug!(%error, "the streams were not made anew");
        }
    }

    async fn release(&self) {
        let released = tokio::time::timeout(Duration::from_secs(2), self.lease.release(&self.db)).await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::debug!("the relay's lease runs out by itself");
        }
    }

    /// One look at the outbox; returns how many messages were published.
    async fn turn(&self) -> Result<usize, RelayError> {
        // A relay that cannot reach NATS leaves the lease to those who can, and only says how long messages wait.
        if !self.streams.is_connected() {
            self.tell_lag(&store::oldest(&self.db, 1).await?);
            return Ok(0);
        }
        if !self.lease.hold(&self.db).await? {
            self.tell_lag(&[]);
            return Ok(0);
        }
        let waiting = store::oldest(&self.db, BATCH).await?;
        self.tell_lag(&waiting);
        if waiting.is_empty() {
            return Ok(0);
        }
        let (published, failure) = self.publish(waiting).await;
        store::delete(&self.db, &published).await?;
        metrics::counter!("matchday_outbox_published_total").increment(published.len() as u64);
        match failure {
            Some(failure) => Err(failure),
            None => Ok(published.len()),
        }
    }

    fn tell_lag(&self, waiting: &[Waiting]) {
        let lag = waiting.first().map_or(0.0, |oldest| (self.clock.now() - oldest.created_at).as_seconds_f64());
        metrics::gauge!("matchday_outbox_lag_seconds").set(lag);
    }

    /// Sends in waves: the first message of each key, all at once, then the second of each key whose first was
    /// acknowledged, and so on.
    async fn publish(&self, waiting: Vec<Waiting>) -> (Vec<i64>, Option<RelayError>) {
        let mut queues: BTreeMap<String, VecDeque<Waiting>> = BTreeMap::new();
        for message in waiting {
            queues.entry(message.key.clone()).or_default().push_back(message);
        }
        let (mut published, mut failure) = (Vec::new(), None);
        while !queues.is_empty() && failure.is_none() && self.lease.is_fresh() && self.streams.is_connected() {
            let wave: Vec<Waiting> = queues.values_mut().filter_map(VecDeque::pop_front).collect();
            let mut sent = Vec::with_capacity(wave.len());
            for message in wave {
                match self.streams.send(&message.subject, envelope(&message)).await {
                    Ok(acknowledgement) => sent.push(async move { (message.id, acknowledgement.await) }),
                    Err(error) => {
                        failure = Some(RelayError::from(error));
                        break;
                    }
                }
            }
            // Awaited together: one by one, a server that is gone would cost its deadline per message.
            for (id, outcome) in join_all(sent).await {
                match outcome {
                    Ok(_) => published.push(id),
                    Err(error) => failure = Some(RelayError::from(TransportError::from(error))),
                }
            }
            queues.retain(|_, queue| !queue.is_empty());
        }
        (published, failure)
    }
}

/// When a message was written, by the id that it was published under.
pub fn time_of(id: &str) -> Option<OffsetDateTime> {
    let microseconds: i128 = id.rsplit_once('-')?.1.parse().ok()?;
    OffsetDateTime::from_unix_timestamp_nanos(microseconds.checked_mul(1_000)?).ok()
}

fn envelope(message: &Waiting) -> PublishMessage {
    // The time makes it unique even if a restored database counts from an earlier id again.
    let id = format!("{}-{}", message.id, message.created_at.unix_timestamp_nanos() / 1_000);
    PublishMessage::build()
        .message_id(id)
        .header("Matchday-Key", message.key.as_str())
        .payload(message.payload.to_string().into())
}

#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("the database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("NATS: {0}")]
    Nats(#[from] TransportError),
}
