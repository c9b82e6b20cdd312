//! Publishes messages from the outbox to `JetStream`.

use std::{
    collections::{BTreeMap, VecDeque},
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use async_nats::{Subscriber, jetstream::message::PublishMessage};
use futures_util::{FutureExt as _, StreamExt as _, future::join_all};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

use super::store::{self, Waiting};
use crate::{
    clock::Clock,
    lease::Lease,
    stream::{Streams, TransportError, next_wake},
};

const BATCH: i64 = 500;

/// Subject of the pulse: a plain message that no stream stores. The relay sends it after it has published every message
/// that was in the outbox. NATS keeps the order of a connection, so a process that receives a pulse has also received
/// those messages, unless its own connection was interrupted.
pub const PULSE: &str = "pulse.outbox";

/// Minimum time between two pulses.
const PULSE_EVERY: Duration = Duration::from_secs(1);

/// Subject of the message that wakes the relay of another process.
const WRITTEN: &str = "wake.outbox";

/// Minimum interval between two such messages of a process. The first is sent at once, so this limits the rate under
/// load, not the delay.
const WAKE_PAUSE: Duration = Duration::from_millis(5);

/// Publishes the outbox. Every process has a relay, but only the holder of the lease publishes.
///
/// A process that wrote a message wakes the relay after the commit: in the same process directly, in another one with a
/// core NATS message. `LISTEN` and `NOTIFY` of PostgreSQL would do the same, but committing a transaction with a
/// `NOTIFY` takes a lock of the whole database server, one transaction at a time, and the wake-up is only useful while
/// NATS is available. A wake-up can be lost, with its process or its connection, so the relay also polls.
///
/// Two relays can overlap briefly, if one was paused and resumes after its lease expired. The guarantees still hold:
///
/// - No message is lost: a message is deleted only after `JetStream` acknowledged it.
/// - Messages of a key stay in order: a message is sent only after the previous one with the same key was acknowledged.
///   Both relays send each key's messages in order, and `JetStream` drops duplicates by message id.
/// - `JetStream` remembers ids for five minutes; a relay that was silent for longer finds its lease expired before it
///   sends. A message that the network delayed even longer can arrive twice, so consumers must be idempotent.
pub struct Relay {
    db: PgPool,
    streams: Streams,
    lease: Lease,
    poll: Duration,
    written: Arc<Notify>,
    clock: Arc<dyn Clock>,
    last_pulse: Mutex<Option<Instant>>,
}

/// Result of one turn.
enum Turn {
    /// A whole batch was published; more messages may be waiting.
    Full,
    /// All messages were published.
    Done,
    /// Another process holds the lease.
    Standby,
    /// NATS is unavailable.
    Disconnected,
}

impl Relay {
    /// Creates a relay that polls every `poll`, and immediately when `written` is notified.
    pub fn new(
        db: PgPool,
        streams: Streams,
        lease: Lease,
        poll: Duration,
        written: Arc<Notify>,
        clock: Arc<dyn Clock>,
    ) -> Self {
        // The holder must renew its lease in time.
        let poll = poll.min(lease.renew_every());
        Self { db, streams, lease, poll, written, clock, last_pulse: Mutex::default() }
    }

    /// Publishes until shutdown, then releases the lease.
    pub async fn run(self, shutdown: CancellationToken) {
        tokio::select! {
            // The next relay repeats a turn that shutdown interrupted.
            () = shutdown.cancelled() => {}
            () = self.publish_forever() => {}
        }
        self.release().await;
    }

    async fn publish_forever(&self) {
        let mut wakes = None;
        let mut pause = self.poll;
        loop {
            match self.turn(&mut wakes).await {
                Ok(turn) => {
                    pause = self.poll;
                    match turn {
                        Turn::Full => {}
                        Turn::Done => self.wait(&mut wakes).await,
                        Turn::Standby => {
                            wakes = None;
                            self.stand_by().await;
                        }
                        Turn::Disconnected => self.wait_for_connection().await,
                    }
                }
                Err(error) => {
                    tracing::warn!(%error, "outbox publication failed; messages wait in the outbox");
                    metrics::counter!("matchday_outbox_failures_total").increment(1);
                    pause = (pause * 2).min(Duration::from_secs(5));
                    self.step_back().await;
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Waits for a wake-up of this or another process, and no longer than until the next poll.
    async fn wait(&self, wakes: &mut Option<Subscriber>) {
        tokio::select! {
            () = self.written.notified() => {}
            () = next_wake(wakes) => {}
            () = tokio::time::sleep(self.poll) => {}
        }
        // The next turn publishes everything that was written before it.
        while let Some(Some(_)) = wakes.as_mut().and_then(|wakes| wakes.next().now_or_never()) {}
    }

    /// Waits until the connection to NATS is established, and no longer than until the next poll.
    async fn wait_for_connection(&self) {
        let mut connections = self.streams.connections();
        if self.streams.is_connected() {
            return;
        }
        tokio::select! {
            _ = connections.changed() => {}
            () = tokio::time::sleep(self.poll) => {}
        }
    }

    /// Wakes the relay of the holder while another process holds the lease.
    async fn stand_by(&self) {
        tokio::select! {
            () = forward(&self.written, &self.streams) => {}
            () = self.lease.wait(Duration::MAX) => {}
        }
    }

    /// Leaves the lease to a relay that may have a working connection, and recreates missing streams.
    async fn step_back(&self) {
        self.release().await;
        if self.streams.is_connected()
            && let Err(error) = self.streams.ensure().await
        {
            tracing::debug!(%error, "streams not recreated");
        }
    }

    async fn release(&self) {
        let released = tokio::time::timeout(Duration::from_secs(2), self.lease.release()).await;
        if !matches!(released, Ok(Ok(()))) {
            tracing::debug!("relay lease not released; it expires");
        }
    }

    /// Publishes one batch. `wakes` are the wake-ups of other processes, subscribed to while this process holds the
    /// lease.
    async fn turn(&self, wakes: &mut Option<Subscriber>) -> Result<Turn, RelayError> {
        // Without NATS, leave the lease to other processes and only report the lag.
        if !self.streams.is_connected() {
            self.record_lag(&store::oldest(&self.db, 1).await?);
            return Ok(Turn::Disconnected);
        }
        if !self.lease.hold().await? {
            self.record_lag(&[]);
            return Ok(Turn::Standby);
        }
        if wakes.is_none() {
            *wakes = Some(self.streams.hear(WRITTEN).await?);
            // Messages that are written from now on wake this relay; earlier ones are read below.
            self.streams.settled().await;
        }
        let waiting = store::oldest(&self.db, BATCH).await?;
        self.record_lag(&waiting);
        let (found, is_all) = (waiting.len(), i64::try_from(waiting.len()).is_ok_and(|found| found < BATCH));
        let (published, failure) = if found == 0 { (Vec::new(), None) } else { self.publish(waiting).await };
        if is_all && published.len() == found {
            self.pulse().await;
        }
        if found == 0 {
            return Ok(Turn::Done);
        }
        store::delete(&self.db, &published).await?;
        metrics::counter!("matchday_outbox_published_total").increment(published.len() as u64);
        match failure {
            Some(failure) => Err(failure),
            None if published.len() == usize::try_from(BATCH).unwrap_or(usize::MAX) => Ok(Turn::Full),
            None => Ok(Turn::Done),
        }
    }

    async fn pulse(&self) {
        {
            let mut last = self.last_pulse.lock().unwrap_or_else(PoisonError::into_inner);
            if last.is_some_and(|last| last.elapsed() < PULSE_EVERY) {
                return;
            }
            *last = Some(Instant::now());
        }
        if let Err(error) = self.streams.broadcast(PULSE).await {
            tracing::debug!(%error, "relay pulse not sent");
        }
    }

    fn record_lag(&self, waiting: &[Waiting]) {
        let lag = waiting.first().map_or(0.0, |oldest| (self.clock.now() - oldest.created_at).as_seconds_f64());
        metrics::gauge!("matchday_outbox_lag_seconds").set(lag);
    }

    /// Publishes in waves: first the oldest message of each key, concurrently, then the second of each key whose first
    /// was acknowledged, and so on.
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
            // Awaited together: one by one, an unavailable server would cost a timeout for each message.
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

/// Wakes the relay of another process whenever this process has written a message. For processes without a relay.
pub async fn forward(written: &Notify, streams: &Streams) {
    loop {
        written.notified().await;
        streams.wake(WRITTEN).await;
        tokio::time::sleep(WAKE_PAUSE).await;
    }
}

/// Wakes the relay before a command ends, if the command wrote a message.
pub async fn forward_before_exit(written: &Notify, streams: &Streams) {
    if written.notified().now_or_never().is_some() {
        streams.wake_before_exit(WRITTEN).await;
    }
}

/// Id of a message in NATS. The time keeps it unique if a restored database reuses row ids.
pub fn id_of(id: i64, created_at: OffsetDateTime) -> String {
    format!("{id}-{}", created_at.unix_timestamp_nanos() / 1_000)
}

/// Time at which a message was written, parsed from its message id.
pub fn time_of(id: &str) -> Option<OffsetDateTime> {
    let microseconds: i128 = id.rsplit_once('-')?.1.parse().ok()?;
    OffsetDateTime::from_unix_timestamp_nanos(microseconds.checked_mul(1_000)?).ok()
}

fn envelope(message: &Waiting) -> PublishMessage {
    PublishMessage::build()
        .message_id(id_of(message.id, message.created_at))
        .header("Matchday-Key", message.key.as_str())
        .payload(message.payload.to_string().into())
}

#[derive(Debug, thiserror::Error)]
enum RelayError {
    #[error("database: {0}")]
    Database(#[from] sqlx::Error),
    #[error("NATS: {0}")]
    Nats(#[from] TransportError),
}
