//! NATS: three `JetStream` streams, consumers for work, and plain subscriptions for notifications to every process.
//!
//! | stream | subjects     | holds                                                        |
//! |--------|--------------|--------------------------------------------------------------|
//! | facts  | `p.fact.>`   | facts that happened; kept for days, read by many consumers   |
//! | work   | `p.work.>`   | work items; each is processed once and removed               |
//! | dead   | `p.dead.>`   | dead letters: work that was given up, with the reason        |
//!
//! `p` is `nats.prefix`.

mod dead;
mod queues;

use std::{borrow::Cow, fmt, panic::AssertUnwindSafe, sync::Arc, time::Duration};

use async_nats::{
    Subscriber,
    jetstream::{
        self,
        consumer::{AckPolicy, DeliverPolicy, pull},
        context::{CreateStreamError, PublishAckFuture, PublishError},
        message::{AckKind, PublishMessage},
        stream::{Config as StreamConfig, DirectGetErrorKind, RetentionPolicy},
    },
};
use bytes::Bytes;
use futures_util::{FutureExt as _, StreamExt as _, stream::BoxStream};
use tokio::sync::{Mutex, Semaphore, watch};
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use url::Url;

pub use self::{dead::DeadLetter, queues::Queue};
use super::{
    clock::{Clock as _, SystemClock},
    outage::Outage,
    redis_client::prefix_condition,
    settings::{Conditions, SecretUrl},
};
use crate::section;

section! {
    /// NATS with JetStream, for messages between processes.
    nats: Settings {
        /// Connection URL of the server.
        url: SecretUrl,
        /// Prefix of every subject and stream, so several deployments can share a server.
        prefix: String = "matchday",
        /// Number of servers that store each stream: 1 on a single server, 3 in a cluster.
        replicas: usize = "1",
        /// Maximum duration of a call.
        timeout: Duration = "2s",
    }
}

impl Settings {
    pub fn conditions(&self) -> Conditions {
        vec![prefix_condition("nats.prefix", &self.prefix)]
    }
}

/// Time for which JetStream remembers message ids. A relay that was silent for longer finds its lease expired.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(5);

/// Maximum number of unacknowledged items per consumer, over all processes. Items that wait for a retry count, so a
/// consumer with as many of them delivers nothing else. Bounds the memory of the server.
const MAX_ACK_PENDING: i64 = 100_000;

/// Default of [`WorkSpec::retried_for`]: a dependency may be down for a day, and the work must still be done afterwards.
const RETRIED_FOR: Duration = Duration::from_hours(36);

/// Longest pause of items that have failed for a long time.
const LONGEST_PAUSE: Duration = Duration::from_mins(5);

/// The connection to NATS. It is established in the background and reconnects automatically.
#[derive(Clone)]
pub struct Streams {
    client: async_nats::Client,
    context: jetstream::Context,
    prefix: Arc<str>,
    replicas: usize,
    /// Number of times that the connection was established.
    connected: watch::Receiver<u64>,
    /// Requests that fail on a working connection, for example because JetStream is off.
    outage: Arc<Outage>,
    /// Whether this process has created the streams.
    are_created: Arc<Mutex<bool>>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// Facts that happened.
    Facts,
    /// Work items to process.
    Work,
    /// Dead letters.
    Dead,
}

impl Stream {
    fn word(self) -> &'static str {
        match self {
            Self::Facts => "fact",
            Self::Work => "work",
            Self::Dead => "dead",
        }
    }
}

/// Waits for the next wake-up; forever if there is no subscription.
pub async fn next_wake(wakes: &mut Option<Subscriber>) {
    // A subscription ends only with its client.
    if let Some(wakes) = wakes.as_mut()
        && wakes.next().await.is_some()
    {
        return;
    }
    std::future::pending::<()>().await;
}

/// A failed NATS request; always worth a retry.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A message was not stored.
    #[error("not published: {0}")]
    Publish(#[from] PublishError),
    /// A stream could not be created.
    #[error("stream not created: {0}")]
    Stream(#[from] CreateStreamError),
    /// A consumer could not be created or read.
    #[error("consumer failed: {0}")]
    Consumer(String),
    /// A subscription could not be created.
    #[error("not subscribed: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
    /// A plain message was not sent.
    #[error("not sent: {0}")]
    Broadcast(#[from] async_nats::PublishError),
}

impl Streams {
    /// Starts connecting. Returns immediately, also while the server is unavailable.
    pub async fn connect(config: &Settings) -> Result<Self, async_nats::ConnectError> {
        let (count, connected) = watch::channel(0);
        let count = Arc::new(count);
        let client = credentials(config.url.expose())
            .name("matchday")
            .retry_on_initial_connect()
            .connection_timeout(config.timeout)
            .request_timeout(Some(config.timeout))
            .event_callback(move |event| {
                let count = Arc::clone(&count);
                async move {
                    match event {
                        // Messages may have been missed after a gap, or if this process was too slow.
                        async_nats::Event::Connected | async_nats::Event::SlowConsumer(_) => {
                            count.send_modify(|count| *count += 1);
                        }
                        // The dependency checks log an unavailable server, once.
                        other => tracing::debug!(event = %other, "NATS connection changed"),
                    }
                }
            })
            .connect(config.url.expose())
            .await?;
        let mut context = jetstream::new(client.clone());
        context.set_timeout(config.timeout);
        Ok(Self {
            client,
            context,
            prefix: config.prefix.as_str().into(),
            replicas: config.replicas,
            connected,
            outage: Arc::default(),
            are_created: Arc::default(),
        })
    }

    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Checks the connection. A process that just started is given time to establish it.
    pub async fn check(&self) -> Result<(), String> {
        let mut connections = self.connected.clone();
        // An error means that the client has stopped.
        let _ = connections.wait_for(|&count| count > 0).await;
        if self.is_connected() { Ok(()) } else { Err("not connected".to_owned()) }
    }

    /// Changes on every reconnection. Messages of plain subscriptions sent during the gap were missed.
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.connected.clone()
    }

    /// Creates the streams, or updates their configuration.
    pub async fn ensure(&self) -> Result<(), TransportError> {
        let days = |days: u64| Duration::from_secs(days * 86_400);
        for (stream, retention, max_age) in [
            (Stream::Facts, RetentionPolicy::Limits, days(7)),
            (Stream::Work, RetentionPolicy::WorkQueue, Duration::ZERO),
            (Stream::Dead, RetentionPolicy::Limits, days(30)),
        ] {
            let config = StreamConfig {
                name: self.stream_name(stream),
                subjects: vec![self.subject(&format!("{}.>", stream.word()))],
                retention,
                max_age,
                num_replicas: self.replicas,
                duplicate_window: DUPLICATE_WINDOW,
                allow_direct: true,
                ..StreamConfig::default()
            };
            self.context.create_or_update_stream(config).await?;
        }
        Ok(())
    }

    /// Waits until the streams exist. Before that, nothing can be published or consumed, and messages wait in the
    /// outbox. One caller creates the streams while the others wait.
    pub async fn made(&self, closing: &CancellationToken) {
        let make = async {
            let mut are_created = self.are_created.lock().await;
            while !*are_created {
                match self.ensure().await {
                    Ok(()) => {
                        self.succeeded();
                        *are_created = true;
                    }
                    Err(error) => {
                        self.failed(&error, "streams");
                        tokio::time::sleep(Duration::from_secs(1)).await;
                    }
                }
            }
        };
        tokio::select! {
            () = closing.cancelled() => {}
            () = make => {}
        }
    }

    /// Logs the first failed request of an outage. An unavailable server is logged by the dependency checks.
    pub fn failed(&self, error: &TransportError, consumer: &str) {
        if self.is_connected() && self.outage.begins() {
            tracing::warn!(%error, consumer, "NATS requests are failing; retrying");
        } else {
            tracing::debug!(%error, consumer, "NATS request failed");
        }
    }

    fn succeeded(&self) {
        if self.outage.ends() {
            tracing::info!("NATS requests succeed again");
        }
    }

    /// Sends a message; await the returned future to know that it is stored.
    pub async fn send(&self, subject: &str, message: PublishMessage) -> Result<PublishAckFuture, TransportError> {
        Ok(self.context.send_publish(self.subject(subject), message).await?)
    }

    /// Subscribes to subjects without persistence: every subscribed process receives each message sent from now on.
    pub async fn hear(&self, subject: &str) -> Result<Subscriber, TransportError> {
        Ok(self.client.subscribe(self.subject(subject)).await?)
    }

    /// Sends an empty message to the processes that [`hear`](Self::hear) the subject now. No stream stores it.
    pub async fn broadcast(&self, subject: &str) -> Result<(), TransportError> {
        // Without a connection the client would keep the message, and send it when it is no longer true.
        if self.is_connected() {
            self.publish(subject, Bytes::new()).await?;
        }
        Ok(())
    }

    /// Sends a message to the processes that [`hear`](Self::hear) the subject now. The subject must not belong to a
    /// stream, so that the message is stored nowhere.
    pub async fn publish(&self, subject: &str, payload: Bytes) -> Result<(), TransportError> {
        Ok(self.client.publish(self.subject(subject), payload).await?)
    }

    /// Wakes the processes that hear this subject. The message is not stored and can be lost, so they must also poll.
    pub async fn wake(&self, subject: &str) {
        if let Err(error) = self.broadcast(subject).await {
            tracing::debug!(%error, subject, "wake-up not sent");
        }
    }

    /// Like [`Self::wake`], for a command that just started and ends soon: waits for the connection, at most half a
    /// second, and until the message is sent.
    pub async fn wake_before_exit(&self, subject: &str) {
        let mut connections = self.connected.clone();
        let connected = connections.wait_for(|&count| count > 0);
        if tokio::time::timeout(Duration::from_millis(500), connected).await.is_ok() {
            self.wake(subject).await;
            self.settled().await;
        }
    }

    /// Waits briefly until the server has processed everything sent, subscriptions included.
    pub async fn settled(&self) {
        let flushed = tokio::time::timeout(Duration::from_secs(2), self.client.flush()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::debug!("NATS flush failed");
        }
    }

    /// Reads a stream from the start as (subject without prefix, payload); for tests and tools.
    pub async fn replay(&self, stream: Stream) -> Result<Vec<(String, Bytes)>, TransportError> {
        let failed = |error: &dyn fmt::Display| TransportError::Consumer(error.to_string());
        let stream = self.context.get_stream(self.stream_name(stream)).await.map_err(|e| failed(&e))?;
        let state = &stream.cached_info().state;
        let mut read = Vec::new();
        for sequence in state.first_sequence.max(1)..=state.last_sequence {
            match stream.direct_get(sequence).await {
                Ok(message) => read.push((self.bare(&message.subject), message.payload)),
                // Acknowledged, or a gap in the sequence.
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(read)
    }

    /// Creation time of a stream, and its first and last message. A stream that was lost and recreated counts from one
    /// again, with another creation time.
    pub async fn extent(&self, stream: Stream) -> Result<Extent, TransportError> {
        let failed = |error: &dyn fmt::Display| TransportError::Consumer(error.to_string());
        let stream = self.context.get_stream(self.stream_name(stream)).await.map_err(|e| failed(&e))?;
        let info = stream.cached_info();
        Ok(Extent {
            made: i64::try_from(info.created.unix_timestamp_nanos() / 1_000_000).unwrap_or_default(),
            // In an empty stream, the first message is the next one.
            first: info.state.first_sequence.max(1),
            last: info.state.last_sequence,
        })
    }

    /// Reads messages on some subjects in order, starting at a sequence number; the reader never ends. Also returns how
    /// many of them are already stored. Messages are not acknowledged, and other readers are not affected. After a
    /// failure, continue after the last message read.
    pub async fn follow(
        &self,
        stream: Stream,
        subjects: &[&str],
        from: u64,
    ) -> Result<(u64, BoxStream<'static, Result<StoredMessage, TransportError>>), TransportError> {
        fn failed(error: &dyn fmt::Display) -> TransportError {
            TransportError::Consumer(error.to_string())
        }
        let source = self.context.get_stream(self.stream_name(stream)).await.map_err(|e| failed(&e))?;
        let consumer = source
            .create_consumer(pull::OrderedConfig {
                filter_subjects: subjects.iter().map(|subject| self.subject(subject)).collect(),
                deliver_policy: DeliverPolicy::ByStartSequence { start_sequence: from.max(1) },
                ..pull::OrderedConfig::default()
            })
            .await
            .map_err(|e| failed(&e))?;
        let waiting = consumer.cached_info().num_pending;
        let messages = consumer.messages().await.map_err(|e| failed(&e))?;
        let this = self.clone();
        let published = messages.map(move |message| {
            let message = message.map_err(|e| failed(&e))?;
            let info = message.info().map_err(|e| failed(&e))?;
            Ok(StoredMessage {
                sequence: info.stream_sequence,
                subject: this.bare(&message.subject),
                id: message_id(&message),
                payload: message.payload.clone(),
            })
        });
        Ok((waiting, published.boxed()))
    }

    /// Deletes the streams; for tests, which each have their own.
    pub async fn remove(&self) {
        for stream in [Stream::Facts, Stream::Work, Stream::Dead] {
            if let Err(error) = self.context.delete_stream(self.stream_name(stream)).await {
                tracing::debug!(%error, ?stream, "stream not deleted");
            }
        }
    }

    /// Processes the work on a subject until shutdown: at most `spec.at_once` items at a time, shared with every other
    /// process that runs a consumer of the same name.
    pub async fn consume<H, F>(&self, spec: WorkSpec, handler: H, shutdown: CancellationToken)
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let handler = Arc::new(handler);
        let (running, places) = (TaskTracker::new(), Arc::new(Semaphore::new(spec.at_once)));
        while !shutdown.is_cancelled() {
            if let Err(error) = self.consume_until_error(&spec, &handler, (&running, &places), &shutdown).await {
                self.failed(&error, &spec.name);
                tokio::select! {
                    () = shutdown.cancelled() => {}
                    () = tokio::time::sleep(Duration::from_secs(1)) => {}
                }
            }
        }
        running.close();
        running.wait().await;
    }

    async fn consume_until_error<H, F>(
        &self,
        spec: &WorkSpec,
        handler: &Arc<H>,
        (running, places): (&TaskTracker, &Arc<Semaphore>),
        shutdown: &CancellationToken,
    ) -> Result<(), TransportError>
    where
        H: Fn(Delivery) -> F + Send + Sync + 'static,
        F: Future<Output = Result<(), Failure>> + Send + 'static,
    {
        let failed = |error: &dyn fmt::Display| TransportError::Consumer(error.to_string());
        let stream = self.context.get_stream(self.stream_name(spec.stream)).await.map_err(|e| failed(&e))?;
        // The server accepts one subject or several, but not both fields.
        let (mut filter_subject, mut filter_subjects) = (self.subject(&spec.subject), Vec::new());
        if !spec.also.is_empty() {
            filter_subjects.extend(spec.also.iter().map(|subject| self.subject(subject)));
            filter_subjects.push(std::mem::take(&mut filter_subject));
        }
        let consumer = stream
            .create_consumer(pull::Config {
                durable_name: Some(spec.name.to_string()),
                filter_subject,
                filter_subjects,
                ack_policy: AckPolicy::Explicit,
                ack_wait: spec.ack_wait,
                max_ack_pending: if spec.in_order { 1 } else { spec.most_waiting },
                deliver_policy: spec.begin.policy(),
                ..pull::Config::default()
            })
            .await
            .map_err(|e| failed(&e))?;
        loop {
            // Acquire a slot before fetching a message, so items that this process cannot start stay available
            // to others.
            let place = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                place = Arc::clone(places).acquire_owned() => place.map_err(|e| failed(&e))?,
            };
            let fetched = async {
                let mut batch = consumer
                    .batch()
                    .max_messages(1)
                    .expires(Duration::from_secs(5))
                    .messages()
                    .await
                    .map_err(|e| failed(&e))?;
                batch.next().await.transpose().map_err(|e| failed(&e))
            };
            // A fetch interrupted by shutdown may already have received an item; it is redelivered after `ack_wait`.
            let message = tokio::select! {
                () = shutdown.cancelled() => return Ok(()),
                message = fetched => message?,
            };
            self.succeeded();
            if let Some(message) = message {
                let (this, spec, handler) = (self.clone(), spec.clone(), Arc::clone(handler));
                running.spawn(async move {
                    this.work_on(&spec, &*handler, message).await;
                    drop(place);
                });
            }
        }
    }

    async fn work_on<H, F>(&self, spec: &WorkSpec, handler: &H, message: jetstream::Message)
    where
        H: Fn(Delivery) -> F,
        F: Future<Output = Result<(), Failure>>,
    {
        let (attempt, age) = message.info().map_or((1, Duration::ZERO), |info| {
            // The server's time, which a test does not move.
            let age = SystemClock.now() - info.published;
            (u64::try_from(info.delivered).unwrap_or(1), Duration::try_from(age).unwrap_or_default())
        });
        let tried = Tried { attempt, age };
        let delivery = Delivery {
            subject: self.bare(&message.subject),
            id: message_id(&message),
            payload: message.payload.clone(),
            attempt,
        };
        // Covers items that never had an outcome because they crashed their process each time.
        if attempt > spec.attempts && spec.is_last(tried) {
            let error = anyhow::anyhow!("{} attempts without an outcome", attempt - 1);
            return self.settle(spec, &message, tried, Err(Failure::GiveUp(error))).await;
        }
        let mut work = std::pin::pin!(AssertUnwindSafe(async { handler(delivery).await }).catch_unwind());
        // Report progress during long work, before the server considers the item lost and redelivers it.
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => {
                    break outcome.unwrap_or_else(|_| Err(Failure::retry(anyhow::anyhow!("the handler panicked"))));
                }
                () = tokio::time::sleep(spec.ack_wait / 3) => {
                    if let Err(error) = message.ack_with(AckKind::Progress).await {
                        tracing::debug!(%error, consumer = &*spec.name, "progress not reported");
                    }
                }
            }
        };
        self.settle(spec, &message, tried, outcome).await;
    }

    /// Reports the outcome to the server.
    async fn settle(&self, spec: &WorkSpec, message: &jetstream::Message, tried: Tried, outcome: Result<(), Failure>) {
        let attempt = tried.attempt;
        let (answer, label) = match outcome {
            Ok(()) => (AckKind::Ack, "done"),
            Err(Failure::Retry { error, after }) if !spec.is_last(tried) => {
                tracing::warn!(
                    error = %format_args!("{error:#}"), consumer = &*spec.name, attempt, "work item failed; retrying"
                );
                (AckKind::Nak(Some(after.unwrap_or_else(|| spec.pause_after(tried)))), "retried")
            }
            Err(Failure::Retry { error, .. } | Failure::GiveUp(error)) => {
                tracing::error!(
                    error = %format_args!("{error:#}"), consumer = &*spec.name, attempt, "work item given up"
                );
                if self.bury(spec, message, &error).await.is_err() {
                    // The dead letter could not be stored, so the item must be redelivered instead of lost.
                    (AckKind::Nak(Some(spec.longest_pause)), "retried")
                } else {
                    (AckKind::Term, "given_up")
                }
            }
        };
        metrics::counter!("matchday_work_total", "consumer" => spec.name.to_string(), "outcome" => label).increment(1);
        if let Err(error) = message.ack_with(answer).await {
            tracing::warn!(%error, consumer = &*spec.name, "outcome not reported to NATS; item will be redelivered");
        }
    }

    async fn bury(
        &self,
        spec: &WorkSpec,
        message: &jetstream::Message,
        error: &anyhow::Error,
    ) -> Result<(), TransportError> {
        let mut headers = message.headers.clone().unwrap_or_default();
        // The stream sequence deduplicates: an item becomes one dead letter, however often it is given up.
        let sequence = message.info().map_or(0, |info| info.stream_sequence);
        headers.insert("Nats-Msg-Id", format!("{}-{sequence}", spec.name));
        headers.insert("Matchday-Consumer", &*spec.name);
        headers.insert("Matchday-Reason", format!("{error:#}").replace(['\r', '\n'], " "));
        let subject = format!("dead.{}", self.bare(&message.subject));
        let dead = PublishMessage::build().headers(headers).payload(message.payload.clone());
        self.send(&subject, dead).await?.await?;
        Ok(())
    }

    fn subject(&self, bare: &str) -> String {
        format!("{}.{bare}", self.prefix)
    }

    fn bare(&self, subject: &str) -> String {
        subject.strip_prefix(&*self.prefix).and_then(|rest| rest.strip_prefix('.')).unwrap_or(subject).to_owned()
    }

    fn stream_name(&self, stream: Stream) -> String {
        format!("{}_{}", self.prefix, stream.word())
    }
}

/// Connection options with the credentials of the URL. The client takes only the server address from a URL.
fn credentials(url: &str) -> async_nats::ConnectOptions {
    let decode = |text: &str| percent_encoding::percent_decode_str(text).decode_utf8_lossy().into_owned();
    match Url::parse(url).ok().map(|url| (decode(url.username()), url.password().map(decode))) {
        Some((name, Some(password))) => async_nats::ConnectOptions::with_user_and_password(name, password),
        Some((token, None)) if !token.is_empty() => async_nats::ConnectOptions::with_token(token),
        _ => async_nats::ConnectOptions::new(),
    }
}

fn message_id(message: &async_nats::Message) -> Option<String> {
    message.headers.as_ref().and_then(|headers| headers.get("Nats-Msg-Id")).map(ToString::to_string)
}

/// Creation time and sequence range of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// Creation time in milliseconds.
    pub made: i64,
    /// Sequence of the oldest message.
    pub first: u64,
    /// Sequence of the newest message.
    pub last: u64,
}

/// A message stored in a stream.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    pub sequence: u64,
    /// Subject without the prefix.
    pub subject: String,
    /// Message id given by the outbox relay, if it published the message.
    pub id: Option<String>,
    pub payload: Bytes,
}

/// Configuration of a consumer of work.
#[derive(Clone, Debug)]
pub struct WorkSpec {
    /// Name of the durable consumer; processes that use the same name share the work.
    pub name: Cow<'static, str>,
    pub stream: Stream,
    /// Subject without the prefix, as in `work.rooms.>`.
    pub subject: Cow<'static, str>,
    /// Further subjects, without the prefix.
    pub also: &'static [&'static str],
    /// Number of items that this process works on concurrently.
    pub at_once: usize,
    /// An item becomes a dead letter when it has failed this number of times and is older than `retried_for`.
    pub attempts: u64,
    pub retried_for: Duration,
    /// Time without progress after which the server redelivers an item.
    pub ack_wait: Duration,
    /// Pause after the first failure; doubles with each further one.
    pub first_pause: Duration,
    /// Longest pause of an item, unless a twentieth of its age is longer: up to five minutes, so that items that fail for
    /// hours take few attempts from the others.
    pub longest_pause: Duration,
    /// Maximum number of items in progress or waiting for a retry, over all processes. Further items are not delivered.
    pub most_waiting: i64,
    /// Whether an item waits until the previous one is done, in any process.
    pub in_order: bool,
    /// Start position of a newly created consumer.
    pub begin: Begin,
}

/// Start position in a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// All stored messages.
    AtTheOldest,
    /// Only new messages: a new consumer does not receive last week's facts.
    Now,
}

impl Begin {
    fn policy(self) -> DeliverPolicy {
        match self {
            Self::AtTheOldest => DeliverPolicy::All,
            Self::Now => DeliverPolicy::New,
        }
    }
}

impl WorkSpec {
    /// Creates a specification with the default limits and pauses.
    pub fn new(name: impl Into<Cow<'static, str>>, stream: Stream, subject: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            stream,
            subject: subject.into(),
            also: &[],
            at_once: 4,
            attempts: 12,
            retried_for: RETRIED_FOR,
            ack_wait: Duration::from_secs(30),
            first_pause: Duration::from_millis(500),
            longest_pause: LONGEST_PAUSE,
            most_waiting: MAX_ACK_PENDING,
            in_order: false,
            begin: Begin::AtTheOldest,
        }
    }

    /// Whether a failure of this attempt is final.
    fn is_last(&self, tried: Tried) -> bool {
        tried.attempt >= self.attempts && tried.age >= self.retried_for
    }

    fn pause_after(&self, Tried { attempt, age }: Tried) -> Duration {
        let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(20);
        let longest = self.longest_pause.max((age / 20).min(LONGEST_PAUSE));
        self.first_pause.saturating_mul(2_u32.saturating_pow(doublings)).min(longest)
    }
}

/// Number of this delivery of an item, starting at 1, and the time since its publication.
#[derive(Clone, Copy)]
struct Tried {
    attempt: u64,
    age: Duration,
}

/// A work item passed to a handler. It may be delivered more than once.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// Subject without the prefix.
    pub subject: String,
    /// Message id given by the outbox relay, if it published the message.
    pub id: Option<String>,
    pub payload: Bytes,
    /// Number of this delivery, starting at 1.
    pub attempt: u64,
}

/// A failure of a handler, and whether a retry can help.
#[derive(Debug)]
pub enum Failure {
    /// The cause may be temporary.
    Retry {
        error: anyhow::Error,
        /// Delay requested by the cause; otherwise the pauses grow.
        after: Option<Duration>,
    },
    /// A retry cannot succeed: the item becomes a dead letter with this reason.
    GiveUp(anyhow::Error),
}

impl Failure {
    /// A failure whose cause may be temporary.
    pub fn retry(error: impl Into<anyhow::Error>) -> Self {
        Self::Retry { error: error.into(), after: None }
    }
}

#[cfg(test)]
mod tests;
