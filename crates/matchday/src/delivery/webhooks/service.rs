//! Endpoints and dead letters, as operators manage them. `work.rs` has the background work.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use platform::{
    Core,
    clock::Clock,
    database,
    encryption::{Encrypted, SecretCipher},
    outbound_http::{AddressFault, Answer, OutboundHttp, PostError, Reach},
    random::{self, Random},
    standard_webhooks::SigningSecret,
    stream::{DeadLetter, Stream, Streams, TransportError},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use url::Url;
use web::ids::EndpointId;

use super::{
    rules::{self, Kind},
    settings::Settings,
    store,
    work::CHANGED,
};
use crate::identity::operators::{
    self, Operator,
    service::{Action, Operators},
};

/// Work subject of queued messages, followed by the id of the endpoint.
pub const DELIVER: &str = "work.webhook.deliver";

/// Webhook endpoints and their messages. Cheap to clone.
#[derive(Clone)]
pub struct Webhooks {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) streams: Streams,
    pub(super) http_client: OutboundHttp,
    pub(super) config: Settings,
    pub(super) clock: Arc<dyn Clock>,
    sealer: SecretCipher,
    random: Arc<dyn Random>,
}

/// A receiver of messages.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// Id that operators use.
    pub id: EndpointId,
    pub url: Url,
    /// Secret that signs messages to the endpoint.
    pub secret: SigningSecret,
    /// Subscribed types; empty for all types.
    pub types: Vec<Kind>,
    pub created_at: OffsetDateTime,
    /// Time of the 410 response that disabled the endpoint.
    pub disabled_at: Option<OffsetDateTime>,
}

impl Endpoint {
    /// Returns true if the endpoint is enabled and subscribed to this type.
    pub fn wants(&self, kind: Kind) -> bool {
        self.disabled_at.is_none() && (self.types.is_empty() || self.types.contains(&kind))
    }
}

/// An endpoint as its operators may see it.
#[derive(Clone, Debug)]
pub struct EndpointSummary {
    pub id: EndpointId,
    pub url: String,
    /// Subscribed types; empty for all types.
    pub types: Vec<Kind>,
    /// Whether no 410 response disabled it.
    pub is_enabled: bool,
}

/// A queued message to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    pub endpoint_id: EndpointId,
    /// The same for every attempt.
    pub message_id: String,
    #[serde(rename = "type")]
    pub kind: Kind,
    /// Exact body, identical in each attempt.
    pub body: String,
}

/// A message that was given up.
#[derive(Clone, Debug)]
pub struct DeadMessage {
    /// `None` if the message cannot be parsed.
    pub item: Option<Item>,
    /// The dead letter with its reason.
    pub letter: DeadLetter,
    /// Time since the message was given up.
    pub age: time::Duration,
}

/// Selection of dead letters.
#[derive(Clone, Debug)]
pub enum Dead {
    All,
    /// All dead letters of an endpoint.
    Of(EndpointId),
    /// Dead letters with these sequence numbers.
    These(Vec<u64>),
}

/// Error from a webhook operation.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The URL is not allowed.
    #[error("the URL cannot be used: {0}")]
    Address(#[from] AddressFault),
    #[error("endpoint {0} does not exist: `matchday webhooks list` lists all")]
    NoSuchEndpoint(EndpointId),
    #[error("webhook dead letter {0} does not exist: `matchday webhooks dead` lists all")]
    NoSuchLetter(u64),
    /// No key is configured to encrypt secrets.
    #[error("webhooks.keys is not set: secrets cannot be stored")]
    NoKey,
    /// The secret was encrypted with a key that is not configured, or it was modified.
    #[error("the secret of endpoint {0} cannot be decrypted: webhooks.keys lacks the key that encrypted it")]
    Unreadable(EndpointId),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Webhooks {
    pub fn new(core: &Core, streams: Streams, settings: &Settings) -> reqwest::Result<Self> {
        let Core { db, clock, random, env, .. } = core.clone();
        let http_client = OutboundHttp::new(Reach::of(env), settings.timeout)?;
        let (sealer, config) = (SecretCipher::new(&settings.keys), settings.clone());
        Ok(Self { inner: Arc::new(Inner { db, streams, http_client, config, clock, sealer, random }) })
    }

    /// Adds an endpoint for these types, or for all types if there are none. This is the only time that its secret is
    /// shown.
    pub async fn add(&self, url: &Url, types: &[Kind]) -> Result<(EndpointId, SigningSecret), WebhookError> {
        let secret = SigningSecret::make(&*self.inner.random);
        let mut connection = self.inner.db.acquire().await?;
        let id = self.add_in(&mut connection, url, types, &secret).await?;
        self.note_added(id, url).await;
        Ok((id, secret))
    }

    /// Adds an endpoint with a secret that the caller chose.
    pub async fn add_by(
        &self,
        url: &Url,
        types: &[Kind],
        secret: &SigningSecret,
        operator: &Operator,
    ) -> Result<EndpointId, WebhookError> {
        let mut tx = database::begin(&self.inner.db).await?;
        let id = self.add_in(&mut tx, url, types, secret).await?;
        let names: Vec<&str> = types.iter().map(|kind| kind.name()).collect();
        let details = json!({"host": url.host_str(), "types": names});
        let action = Action::new("webhook.add", format!("webhook:{id}")).with(details);
        operators::service::record(&mut tx, operator, &action, self.inner.clock.now()).await?;
        tx.commit().await?;
        self.note_added(id, url).await;
        Ok(id)
    }

    async fn add_in(
        &self,
        connection: &mut PgConnection,
        url: &Url,
        types: &[Kind],
        secret: &SigningSecret,
    ) -> Result<EndpointId, WebhookError> {
        let inner = &*self.inner;
        inner.http_client.reach().check(url)?;
        let sealed = inner.sealer.seal(&*inner.random, url.as_str(), secret.expose().as_bytes());
        let sealed = sealed.ok_or(WebhookError::NoKey)?;
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        Ok(store::insert(connection, url.as_str(), &sealed, &types, inner.clock.now()).await?)
    }

    async fn note_added(&self, id: EndpointId, url: &Url) {
        tracing::info!(endpoint = id.0, host = url.host_str(), "webhook endpoint added");
        self.inner.streams.wake_before_exit(CHANGED).await;
    }

    /// Returns all endpoints without their secrets.
    pub async fn summaries(&self) -> sqlx::Result<Vec<EndpointSummary>> {
        let rows = store::list(&self.inner.db).await?;
        let summary = |row: store::Row| EndpointSummary {
            id: row.id,
            url: row.url,
            types: row.types.iter().filter_map(|name| name.parse().ok()).collect(),
            is_enabled: row.disabled_at.is_none(),
        };
        Ok(rows.into_iter().map(summary).collect())
    }

    /// Returns all endpoints. An endpoint whose secret cannot be decrypted is an error in the list.
    pub async fn endpoints(&self) -> sqlx::Result<Vec<Result<Endpoint, WebhookError>>> {
        let rows = store::list(&self.inner.db).await?;
        Ok(rows.into_iter().map(|row| self.open(row)).collect())
    }

    pub(super) async fn endpoint(&self, id: EndpointId) -> Result<Endpoint, WebhookError> {
        let row = store::list(&self.inner.db).await?.into_iter().find(|row| row.id == id);
        self.open(row.ok_or(WebhookError::NoSuchEndpoint(id))?)
    }

    fn open(&self, row: store::Row) -> Result<Endpoint, WebhookError> {
        let sealed = Encrypted { key_version: row.key_version, bytes: row.secret };
        let unreadable = || WebhookError::Unreadable(row.id);
        let opened = self.inner.sealer.open(&row.url, &sealed).ok_or_else(unreadable)?;
        let secret = String::from_utf8(opened).ok().and_then(|text| SigningSecret::parse(&text));
        Ok(Endpoint {
            id: row.id,
            url: row.url.parse().map_err(|_| AddressFault::NotHttp)?,
            secret: secret.ok_or_else(unreadable)?,
            // Types that a later version added are ignored.
            types: row.types.iter().filter_map(|name| name.parse().ok()).collect(),
            created_at: row.created_at,
            disabled_at: row.disabled_at,
        })
    }

    /// Removes an endpoint and its queued messages.
    pub async fn remove(&self, id: EndpointId) -> Result<(), WebhookError> {
        if !store::delete(&self.inner.db, id).await? {
            return Err(WebhookError::NoSuchEndpoint(id));
        }
        self.note_removed(id).await;
        Ok(())
    }

    /// Like [`Self::remove`]; the audit entry is part of the transaction.
    pub async fn remove_by(&self, id: EndpointId, operator: &Operator) -> Result<(), WebhookError> {
        let mut tx = database::begin(&self.inner.db).await?;
        if !store::delete(&mut *tx, id).await? {
            return Err(WebhookError::NoSuchEndpoint(id));
        }
        let action = Action::new("webhook.remove", format!("webhook:{id}"));
        operators::service::record(&mut tx, operator, &action, self.inner.clock.now()).await?;
        tx.commit().await?;
        self.note_removed(id).await;
        Ok(())
    }

    async fn note_removed(&self, id: EndpointId) {
        tracing::info!(endpoint = id.0, "webhook endpoint removed");
        self.inner.streams.wake_before_exit(CHANGED).await;
        if let Err(error) = self.tidy().await {
            tracing::warn!(%error, "messages of the removed endpoint were not discarded; the next cleanup retries");
        }
    }

    /// Enables an endpoint that a 410 response disabled.
    pub async fn enable(&self, id: EndpointId) -> Result<(), WebhookError> {
        if !store::set_disabled(&self.inner.db, id, None).await? {
            return Err(WebhookError::NoSuchEndpoint(id));
        }
        self.inner.streams.wake_before_exit(CHANGED).await;
        Ok(())
    }

    /// Encrypts all secrets with the first key. Returns how many used another key.
    pub async fn reseal(&self) -> Result<usize, WebhookError> {
        let inner = &*self.inner;
        let current = inner.sealer.current().ok_or(WebhookError::NoKey)?;
        let mut resealed = 0;
        for row in store::list(&inner.db).await?.into_iter().filter(|row| row.key_version != current) {
            let before = Encrypted { key_version: row.key_version, bytes: row.secret };
            let secret = inner.sealer.open(&row.url, &before).ok_or(WebhookError::Unreadable(row.id))?;
            let after = inner.sealer.seal(&*inner.random, &row.url, &secret).ok_or(WebhookError::NoKey)?;
            resealed += usize::from(store::reseal(&inner.db, row.id, &before, &after).await?);
        }
        Ok(resealed)
    }

    /// Sends a test message once, without queueing. Returns the response and its duration.
    pub async fn test(&self, id: EndpointId) -> Result<(Result<Answer, PostError>, Duration), WebhookError> {
        let inner = &*self.inner;
        let endpoint = self.endpoint(id).await?;
        let message_id = format!("msg_test_{}", random::uuid_v7(&*inner.random, &*inner.clock));
        let data = json!({"endpoint_id": id});
        let body = rules::body(Kind::Test, inner.clock.now(), &data)?;
        let began = Instant::now();
        let answer = self.post(&endpoint, &message_id, body).await;
        Ok((answer, began.elapsed()))
    }

    /// Returns the selected dead letters, oldest first.
    pub async fn dead(&self, which: &Dead) -> Result<Vec<DeadMessage>, WebhookError> {
        let streams = &self.inner.streams;
        let letters = match which {
            Dead::All => streams.dead(&format!("{DELIVER}.*")).await?,
            Dead::Of(endpoint) => streams.dead(&subject_of(*endpoint)).await?,
            Dead::These(sequences) => {
                let mut letters = Vec::with_capacity(sequences.len());
                for &sequence in sequences {
                    let letter = streams.dead_letter(sequence).await?;
                    let ours = letter.filter(|letter| endpoint_of(&letter.subject).is_some());
                    letters.push(ours.ok_or(WebhookError::NoSuchLetter(sequence))?);
                }
                letters
            }
        };
        let now = self.inner.clock.now();
        let message = |letter: DeadLetter| DeadMessage {
            item: serde_json::from_slice(&letter.payload).ok(),
            age: now - letter.given_up_at,
            letter,
        };
        Ok(letters.into_iter().map(message).collect())
    }

    /// Requeues dead letters with their original message ids. Returns how many. Messages of removed endpoints stay dead
    /// letters.
    pub async fn replay(&self, which: &Dead) -> Result<usize, WebhookError> {
        let known: Vec<EndpointId> = store::list(&self.inner.db).await?.into_iter().map(|row| row.id).collect();
        let mut replayed = 0;
        for DeadMessage { letter, .. } in self.dead(which).await? {
            let Some(endpoint) = endpoint_of(&letter.subject).filter(|endpoint| known.contains(endpoint)) else {
                continue;
            };
            self.inner.streams.revive(&letter).await?;
            replayed += 1;
            tracing::info!(endpoint = endpoint.0, sequence = letter.sequence, "dead letter requeued");
        }
        Ok(replayed)
    }

    /// Like [`Self::replay`], on behalf of an operator. Records an operator action.
    pub async fn replay_by(
        &self,
        operators: &Operators,
        operator: &Operator,
        which: &Dead,
    ) -> Result<usize, WebhookError> {
        let (target, details) = match which {
            Dead::All => ("webhooks".to_owned(), json!({})),
            Dead::Of(endpoint) => (format!("endpoint:{endpoint}"), json!({})),
            Dead::These(sequences) => ("webhooks".to_owned(), json!({"letters": sequences})),
        };
        let action = Action::new("webhook.replay", target).with(details);
        operators.record_around(operator, action, self.replay(which), |replayed| json!({"replayed": replayed})).await
    }

    /// Discards the queued messages and the consumers of removed endpoints.
    pub async fn tidy(&self) -> Result<(), WebhookError> {
        let streams = &self.inner.streams;
        // List the queue before the endpoints. In the other order, an endpoint added in between would be treated as
        // removed.
        let waiting = streams.waiting(Stream::Work, &format!("{DELIVER}.*")).await?;
        let consumers = streams.consumers(Stream::Work).await?;
        let known: Vec<EndpointId> = store::list(&self.inner.db).await?.into_iter().map(|row| row.id).collect();
        for subject in waiting {
            if endpoint_of(&subject).is_some_and(|endpoint| !known.contains(&endpoint)) {
                streams.discard(Stream::Work, &subject).await?;
            }
        }
        for consumer in consumers {
            let endpoint = consumer.strip_prefix("webhook_").and_then(|id| id.parse().ok());
            if endpoint.is_some_and(|endpoint| !known.contains(&endpoint)) {
                streams.end_consumer(Stream::Work, &consumer).await?;
            }
        }
        Ok(())
    }

    /// Sends a message without retries.
    pub(super) async fn post(&self, endpoint: &Endpoint, message_id: &str, body: String) -> Result<Answer, PostError> {
        let headers = endpoint.secret.headers(message_id, self.inner.clock.now(), body.as_bytes());
        self.inner.http_client.post(&endpoint.url, headers, body).await
    }
}

/// Returns the subject on which messages to an endpoint are queued.
pub(super) fn subject_of(endpoint: EndpointId) -> String {
    format!("{DELIVER}.{endpoint}")
}

/// Returns the endpoint whose messages are queued on a subject.
pub(crate) fn endpoint_of(subject: &str) -> Option<EndpointId> {
    subject.strip_prefix(DELIVER)?.strip_prefix('.')?.parse().ok()
}
