//! NATS: three `JetStream` streams, a consumer for work, and plain subscriptions for what every process must hear.
//!
//! | stream | subjects     | holds                                                   |
//! |--------|--------------|---------------------------------------------------------|
//! | facts  | `p.fact.>`   | what happened; kept for days, read by many              |
//! | work   | `p.work.>`   | what is to be done; each item is done once and is gone  |
//! | dead   | `p.dead.>`   | work that was given up, with the reason                 |
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
    outage::Outage,
    redis_client::prefix_condition,
    settings::{Conditions, SecretUrl},
};
use crate::section;

section! {
    /// NATS with JetStream: what moves between processes.
    nats: Settings {
        /// How to reach it.
        url: SecretUrl,
        /// Stands before every subject and stream, so that several deployments can share a server.
        prefix: String = "matchday",
        /// How many servers keep each stream: 1 on a single server, 3 in a cluster.
        replicas: usize = "1",
        /// How long a call may take.
        timeout: Duration = "2s",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![prefix_condition("nats.prefix", &self.prefix)]
    }
}

/// JetStream forgets message ids after this long. A relay that fell silent for longer finds its lease gone.
const DUPLICATE_WINDOW: Duration = Duration::from_mins(5);

/// How many items of a kind are with workers at once, over all processes.
const MAX_ACK_PENDING: i64 = 1_000;

/// The connection to NATS. It is made in the background and comes back by itself.
#[derive(Clone)]
pub struct Streams {
    client: async_nats::Client,
    context: jetstream::Context,
    prefix: Arc<str>,
    replicas: usize,
    /// Counts how often the connection was made.
    connected: watch::Receiver<u64>,
    /// Requests that fail although the connection stands, as when JetStream is off.
    outage: Arc<Outage>,
    /// Whether the streams were made.
    are_made: Arc<Mutex<bool>>,
}

/// One of the three streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Stream {
    /// What happened.
    Facts,
    /// What is to be done.
    Work,
    /// What was given up.
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

/// Why NATS did not do what it was asked; always worth another try.
#[derive(Debug, thiserror::Error)]
pub enum TransportError {
    /// A message was not stored.
    #[error("not published: {0}")]
    Publish(#[from] PublishError),
    /// A stream could not be made.
    #[error("no stream: {0}")]
    Stream(#[from] CreateStreamError),
    /// A consumer could not be made or read.
    #[error("no consumer: {0}")]
    Consumer(String),
    /// A subscription could not be made.
    #[error("not subscribed: {0}")]
    Subscribe(#[from] async_nats::SubscribeError),
}

impl Streams {
    /// Begins to connect; returns at once, also while the server is away.
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
                        // After a gap, or when we were too slow, something may have been missed.
                        async_nats::Event::Connected | async_nats::Event::SlowConsumer(_) => {
                            count.send_modify(|count| *count += 1);
                        }
                        // The checks of dependencies log that the server is unavailable, once.
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
            are_made: Arc::default(),
        })
    }

    /// Whether the server is there now.
    pub fn is_connected(&self) -> bool {
        self.client.connection_state() == async_nats::connection::State::Connected
    }

    /// Checks the connection. A process that just began is given the time to make it.
    pub async fn check(&self) -> Result<(), String> {
        let mut connections = self.connected.clone();
        // An error means that the client has ended.
        let _ = connections.wait_for(|&count| count > 0).await;
        if self.is_connected() { Ok(()) } else { Err("not connected".to_owned()) }
    }

    /// Changes whenever the connection was made again: whatever was only said meanwhile has been missed.
    pub fn connections(&self) -> watch::Receiver<u64> {
        self.connected.clone()
    }

    /// Makes the streams, or brings them up to date.
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

    /// Waits until the streams exist: before that nothing can be published or consumed, and messages wait in the outbox.
    /// One of the callers makes them, and the others wait for it.
    pub async fn made(&self, closing: &CancellationToken) {
        let make = async {
            let mut are_made = self.are_made.lock().await;
            while !*are_made {
                match self.ensure().await {
                    Ok(()) => {
                        self.succeeded();
                        *are_made = true;
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

    /// Logs a failed request once, until one succeeds. While the server is unavailable the checks of dependencies say so.
    pub fn failed(&self, error: &TransportError, consumer: &str) {
        if self.is_connected() && self.outage.begins() {
            tracing::warn!(%error, consumer, "NATS requests failed and are retried");
        } else {
            tracing::debug!(%error, consumer, "NATS request failed");
        }
    }

    fn succeeded(&self) {
        if self.outage.ends() {
            tracing::info!("NATS requests succeed again");
        }
    }

    /// Sends a message; await the answer to know that it is stored.
    pub async fn send(&self, subject: &str, message: PublishMessage) -> Result<PublishAckFuture, TransportError> {
        Ok(self.context.send_publish(self.subject(subject), message).await?)
    }

    /// Hears every message on these subjects from now on, in every process that asks, without memory.
    pub async fn hear(&self, subject: &str) -> Result<Subscriber, TransportError> {
        Ok(self.client.subscribe(self.subject(subject)).await?)
    }

    /// Waits, for a moment at most, until the server has taken what was sent, subscriptions included.
    pub async fn settled(&self) {
        let flushed = tokio::time::timeout(Duration::from_secs(2), self.client.flush()).await;
        if !matches!(flushed, Ok(Ok(()))) {
            tracing::debug!("NATS was not flushed");
        }
    }

    /// Reads a stream from its beginning as (subject without prefix, payload); for tests and tools.
    pub async fn replay(&self, stream: Stream) -> Result<Vec<(String, Bytes)>, TransportError> {
        let failed = |error: &dyn fmt::Display| TransportError::Consumer(error.to_string());
        let stream = self.context.get_stream(self.stream_name(stream)).await.map_err(|e| failed(&e))?;
        let state = &stream.cached_info().state;
        let mut read = Vec::new();
        for sequence in state.first_sequence.max(1)..=state.last_sequence {
            match stream.direct_get(sequence).await {
                Ok(message) => read.push((self.bare(&message.subject), message.payload)),
                // Done, or never there.
                Err(error) if error.kind() == DirectGetErrorKind::NotFound => {}
                Err(error) => return Err(failed(&error)),
            }
        }
        Ok(read)
    }

    /// Where a stream stands: what it is called by its moment of making, and the first and the last message it holds. A
    /// stream that was lost and made anew counts from one again, under another name.
    pub async fn extent(&self, stream: Stream) -> Result<Extent, TransportError> {
        let failed = |error: &dyn fmt::Display| TransportError::Consumer(error.to_string());
        let stream = self.context.get_stream(self.stream_name(stream)).await.map_err(|e| failed(&e))?;
        let info = stream.cached_info();
        Ok(Extent {
            made: i64::try_from(info.created.unix_timestamp_nanos() / 1_000_000).unwrap_or_default(),
            // An empty stream's first message is the next one.
            first: info.state.first_sequence.max(1),
            last: info.state.last_sequence,
        })
    }

    /// Reads messages on some subjects from one on, in order and without end; says also how many of them are there already.
    /// Nothing is acknowledged, and nobody else gets less by it. Where it fails, go on after the last one that was read.
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
        let told = messages.map(move |message| {
            let message = message.map_err(|e| failed(&e))?;
            let info = message.info().map_err(|e| failed(&e))?;
            Ok(StoredMessage {
                sequence: info.stream_sequence,
                subject: this.bare(&message.subject),
                id: message_id(&message),
                payload: message.payload.clone(),
            })
        });
        Ok((waiting, told.boxed()))
    }

    /// Removes the streams; for tests, which each have their own.
    pub async fn remove(&self) {
        for stream in [Stream::Facts, Stream::Work, Stream::Dead] {
            if let Err(error) = self.context.delete_stream(self.stream_name(stream)).await {
                tracing::debug!(%error, ?stream, "the stream was not removed");
            }
        }
    }

    /// Does the work on a subject until shutdown: at most `spec.at_once` items at a time, shared with every other
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
        // The server wants one or several, and not both.
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
            // A place is taken before a message is: what this process cannot work on stays for another one.
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
            // A fetch that shutdown interrupts may have been answered already; the item comes again after `ack_wait`.
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
        let attempt = message.info().map_or(1, |info| u64::try_from(info.delivered).unwrap_or(1));
        let delivery = Delivery {
            subject: self.bare(&message.subject),
            id: message_id(&message),
            payload: message.payload.clone(),
            attempt,
        };
        // Also what never came back to say so, because it took its process down each time.
        if attempt > spec.attempts {
            let error = anyhow::anyhow!("tried {} times without an outcome", attempt - 1);
            return self.settle(spec, &message, attempt, Err(Failure::GiveUp(error))).await;
        }
        let mut work = std::pin::pin!(AssertUnwindSafe(async { handler(delivery).await }).catch_unwind());
        // Long work is not work that was lost: tell the server before it gives the item to somebody else.
        let outcome = loop {
            tokio::select! {
                outcome = &mut work => break outcome.unwrap_or_else(|_| Err(Failure::retry(anyhow::anyhow!("the handler panicked")))),
                () = tokio::time::sleep(spec.ack_wait / 3) => {
                    if let Err(error) = message.ack_with(AckKind::Progress).await {
                        tracing::debug!(%error, consumer = &*spec.name, "progress was not told");
                    }
                }
            }
        };
        self.settle(spec, &message, attempt, outcome).await;
    }

    /// Tells the server how it went.
    async fn settle(&self, spec: &WorkSpec, message: &jetstream::Message, attempt: u64, outcome: Result<(), Failure>) {
        let (answer, label) = match outcome {
            Ok(()) => (AckKind::Ack, "done"),
            Err(Failure::Retry { error, after }) if attempt < spec.attempts => {
                tracing::warn!(error = %format_args!("{error:#}"), consumer = &*spec.name, attempt, "work will be tried again");
                (AckKind::Nak(Some(after.unwrap_or_else(|| spec.pause_after(attempt)))), "retried")
            }
            Err(Failure::Retry { error, .. } | Failure::GiveUp(error)) => {
                tracing::error!(error = %format_args!("{error:#}"), consumer = &*spec.name, attempt, "work was given up");
                if self.bury(spec, message, &error).await.is_err() {
                    // It cannot be set aside now, so it must not be lost: it comes again.
                    (AckKind::Nak(Some(spec.longest_pause)), "retried")
                } else {
                    (AckKind::Term, "given_up")
                }
            }
        };
        metrics::counter!("matchday_work_total", "consumer" => spec.name.to_string(), "outcome" => label).increment(1);
        if let Err(error) = message.ack_with(answer).await {
            tracing::warn!(%error, consumer = &*spec.name, "NATS was not told of the outcome; the item comes again");
        }
    }

    async fn bury(
        &self,
        spec: &WorkSpec,
        message: &jetstream::Message,
        error: &anyhow::Error,
    ) -> Result<(), TransportError> {
        let mut headers = message.headers.clone().unwrap_or_default();
        // Its place in its stream: buried once, however often it is given up.
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

/// Who to connect as: the client reads the address of a server from a URL, and passes over the name and password in it.
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

/// Where a stream stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Extent {
    /// When it was made, in milliseconds.
    pub made: i64,
    /// The oldest message that it holds.
    pub first: u64,
    /// The newest.
    pub last: u64,
}

/// A message as it stands in its stream.
#[derive(Clone, Debug)]
pub struct StoredMessage {
    /// Its place.
    pub sequence: u64,
    /// The subject without prefix.
    pub subject: String,
    /// The outbox id it was published under, if it came from there.
    pub id: Option<String>,
    /// The body.
    pub payload: Bytes,
}

/// How a kind of work is done.
#[derive(Clone, Debug)]
pub struct WorkSpec {
    /// The durable consumer's name; processes that use the same share the work.
    pub name: Cow<'static, str>,
    /// Where the work waits.
    pub stream: Stream,
    /// Which of it, without prefix, as in `work.rooms.>`.
    pub subject: Cow<'static, str>,
    /// And which else.
    pub also: &'static [&'static str],
    /// How many items this process works on at once.
    pub at_once: usize,
    /// How often an item is tried before it is given up.
    pub attempts: u64,
    /// How long the server waits for a sign of life before it gives an item to somebody else.
    pub ack_wait: Duration,
    /// The pause after a first failure; it doubles with each further one.
    pub first_pause: Duration,
    /// The longest pause.
    pub longest_pause: Duration,
    /// How many items may be with workers or wait for another try, over all processes; further ones are not looked at.
    pub most_waiting: i64,
    /// Whether an item waits until the one before it is done, in whatever process.
    pub in_order: bool,
    /// Where a consumer begins that is made for the first time.
    pub begin: Begin,
}

/// Where a stream is read from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Begin {
    /// All that it holds.
    AtTheOldest,
    /// What comes from now on: who begins to listen is not told the news of last week.
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
    /// Work with the usual patience.
    pub fn new(name: impl Into<Cow<'static, str>>, stream: Stream, subject: impl Into<Cow<'static, str>>) -> Self {
        Self {
            name: name.into(),
            stream,
            subject: subject.into(),
            also: &[],
            at_once: 4,
            attempts: 12,
            ack_wait: Duration::from_secs(30),
            first_pause: Duration::from_millis(500),
            longest_pause: Duration::from_mins(5),
            most_waiting: MAX_ACK_PENDING,
            in_order: false,
            begin: Begin::AtTheOldest,
        }
    }

    fn pause_after(&self, attempt: u64) -> Duration {
        let doublings = u32::try_from(attempt.saturating_sub(1)).unwrap_or(u32::MAX).min(20);
        self.first_pause.saturating_mul(2_u32.saturating_pow(doublings)).min(self.longest_pause)
    }
}

/// A piece of work, handed to a handler. It may come more than once.
#[derive(Clone, Debug)]
pub struct Delivery {
    /// The subject without prefix.
    pub subject: String,
    /// The outbox id it was published under, if it came from there.
    pub id: Option<String>,
    /// The body.
    pub payload: Bytes,
    /// 1 the first time.
    pub attempt: u64,
}

/// Why work was not done, and whether trying again can help.
#[derive(Debug)]
pub enum Failure {
    /// The cause may pass.
    Retry {
        /// What went wrong.
        error: anyhow::Error,
        /// When to try again, where the cause says so; otherwise the pauses grow.
        after: Option<Duration>,
    },
    /// It can never succeed: the item is set aside with the reason.
    GiveUp(anyhow::Error),
}

impl Failure {
    /// A cause that may pass.
    pub fn retry(error: impl Into<anyhow::Error>) -> Self {
        Self::Retry { error: error.into(), after: None }
    }
}

#[cfg(test)]
mod tests;
