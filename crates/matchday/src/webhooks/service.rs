//! Endpoints, and what an operator does about them. What workers do is in `work.rs`.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use platform::{
    Core,
    clock::Clock,
    outward::{AddressFault, Answer, Outward, PostError, Reach},
    random::{self, Random},
    sealed::{Sealed, Sealer},
    standard_webhooks::SigningSecret,
    stream::{DeadLetter, Stream, Streams, TransportError},
};
use serde::{Deserialize, Serialize};
use serde_json::json;
use sqlx::PgPool;
use time::OffsetDateTime;
use url::Url;
use web::ids::EndpointId;

use super::{
    rules::{self, Kind},
    settings::Settings,
    store,
};
use crate::operators::{
    Operator,
    service::{Deed, Operators},
};

/// Where messages wait for their endpoint, whose id follows.
pub const DELIVER: &str = "work.webhook.deliver";

/// The webhooks.
#[derive(Clone)]
pub struct Webhooks {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) streams: Streams,
    pub(super) outward: Outward,
    pub(super) config: Settings,
    pub(super) clock: Arc<dyn Clock>,
    sealer: Sealer,
    random: Arc<dyn Random>,
}

/// Where messages are sent.
#[derive(Clone, Debug)]
pub struct Endpoint {
    /// What operators call it.
    pub id: EndpointId,
    /// Its address.
    pub url: Url,
    /// What messages to it are signed with.
    pub secret: SigningSecret,
    /// What it wants to be told of; empty is everything.
    pub types: Vec<Kind>,
    /// Since when it is there.
    pub created_at: OffsetDateTime,
    /// Since when it wants nothing any more.
    pub disabled_at: Option<OffsetDateTime>,
}

impl Endpoint {
    /// Whether it is to be told of this.
    pub fn wants(&self, kind: Kind) -> bool {
        self.disabled_at.is_none() && (self.types.is_empty() || self.types.contains(&kind))
    }
}

/// A message on its way to one endpoint.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Item {
    /// To whom.
    pub endpoint_id: EndpointId,
    /// The same whenever the message is sent.
    pub message_id: String,
    /// What it is about.
    #[serde(rename = "type")]
    pub kind: Kind,
    /// What is sent, to the letter: each attempt has the same.
    pub body: String,
}

/// A message that was given up.
#[derive(Clone, Debug)]
pub struct DeadMessage {
    /// The message; `None` where it cannot be read.
    pub item: Option<Item>,
    /// Where it lies, and why.
    pub letter: DeadLetter,
    /// For how long.
    pub age: time::Duration,
}

/// Which dead messages are meant.
#[derive(Clone, Debug)]
pub enum Dead {
    /// All of them.
    All,
    /// Those of an endpoint.
    Of(EndpointId),
    /// These.
    These(Vec<u64>),
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum WebhookError {
    /// The address cannot be posted to.
    #[error("the address cannot be used: {0}")]
    Address(#[from] AddressFault),
    /// There is no such endpoint.
    #[error("there is no endpoint {0}: `matchday webhooks list` lists them")]
    NoSuchEndpoint(EndpointId),
    /// There is no such dead letter.
    #[error("there is no dead letter {0} of a webhook: `matchday webhooks dead` lists them")]
    NoSuchLetter(u64),
    /// Nothing to store secrets under.
    #[error("webhooks.keys is not set: secrets could not be stored")]
    NoKey,
    /// It was sealed under a key that is not there, or somebody changed it.
    #[error("the secret of endpoint {0} cannot be opened: webhooks.keys lacks the key it was stored under")]
    Unreadable(EndpointId),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// NATS failed.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl Webhooks {
    /// Webhooks to endpoints in this database.
    pub fn new(core: &Core, streams: Streams, settings: &Settings) -> reqwest::Result<Self> {
        let Core { db, clock, random, env, .. } = core.clone();
        let outward = Outward::new(Reach::of(env), settings.timeout)?;
        let (sealer, config) = (Sealer::new(&settings.keys), settings.clone());
        Ok(Self { inner: Arc::new(Inner { db, streams, outward, config, clock, sealer, random }) })
    }

    /// Makes an endpoint that is told of these types, or of everything. Its secret is shown to whoever makes it, and to
    /// nobody ever after.
    pub async fn add(&self, url: &Url, types: &[Kind]) -> Result<(EndpointId, SigningSecret), WebhookError> {
        let inner = &*self.inner;
        inner.outward.reach().check(url)?;
        let secret = SigningSecret::make(&*inner.random);
        let sealed = inner.sealer.seal(&*inner.random, url.as_str(), secret.expose().as_bytes());
        let sealed = sealed.ok_or(WebhookError::NoKey)?;
        let types: Vec<String> = types.iter().map(ToString::to_string).collect();
        let id = store::insert(&inner.db, url.as_str(), &sealed, &types, inner.clock.now()).await?;
        tracing::info!(endpoint = id.0, host = url.host_str(), "an endpoint of webhooks was added");
        Ok((id, secret))
    }

    /// All endpoints; those whose secret cannot be opened as an error that says so.
    pub async fn endpoints(&self) -> sqlx::Result<Vec<Result<Endpoint, WebhookError>>> {
        let rows = store::list(&self.inner.db).await?;
        Ok(rows.into_iter().map(|row| self.open(row)).collect())
    }

    pub(super) async fn endpoint(&self, id: EndpointId) -> Result<Endpoint, WebhookError> {
        let row = store::list(&self.inner.db).await?.into_iter().find(|row| row.id == id);
        self.open(row.ok_or(WebhookError::NoSuchEndpoint(id))?)
    }

    fn open(&self, row: store::Row) -> Result<Endpoint, WebhookError> {
        let sealed = Sealed { key_version: row.key_version, bytes: row.secret };
        let unreadable = || WebhookError::Unreadable(row.id);
        let opened = self.inner.sealer.open(&row.url, &sealed).ok_or_else(unreadable)?;
        let secret = String::from_utf8(opened).ok().and_then(|text| SigningSecret::parse(&text));
        Ok(Endpoint {
            id: row.id,
            url: row.url.parse().map_err(|_| AddressFault::NotHttp)?,
            secret: secret.ok_or_else(unreadable)?,
            // What a later version knows and this one does not, this one cannot tell of.
            types: row.types.iter().filter_map(|name| name.parse().ok()).collect(),
            created_at: row.created_at,
            disabled_at: row.disabled_at,
        })
    }

    /// Removes an endpoint, with all that waits for it.
    pub async fn remove(&self, id: EndpointId) -> Result<(), WebhookError> {
        if !store::delete(&self.inner.db, id).await? {
            return Err(WebhookError::NoSuchEndpoint(id));
        }
        tracing::info!(endpoint = id.0, "an endpoint of webhooks was removed");
        if let Err(error) = self.tidy().await {
            tracing::warn!(%error, "what waited for the endpoint is taken away later");
        }
        Ok(())
    }

    /// Sends to an endpoint again that said it was gone.
    pub async fn enable(&self, id: EndpointId) -> Result<(), WebhookError> {
        let found = store::set_disabled(&self.inner.db, id, None).await?;
        if found { Ok(()) } else { Err(WebhookError::NoSuchEndpoint(id)) }
    }

    /// Puts all secrets under the first key; returns how many were under another one.
    pub async fn reseal(&self) -> Result<usize, WebhookError> {
        let inner = &*self.inner;
        let current = inner.sealer.current().ok_or(WebhookError::NoKey)?;
        let mut resealed = 0;
        for row in store::list(&inner.db).await?.into_iter().filter(|row| row.key_version != current) {
            let before = Sealed { key_version: row.key_version, bytes: row.secret };
            let secret = inner.sealer.open(&row.url, &before).ok_or(WebhookError::Unreadable(row.id))?;
            let after = inner.sealer.seal(&*inner.random, &row.url, &secret).ok_or(WebhookError::NoKey)?;
            resealed += usize::from(store::reseal(&inner.db, row.id, &before, &after).await?);
        }
        Ok(resealed)
    }

    /// Sends a message that says nothing, at once and once; returns what came back, and how long that took.
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

    /// The messages that were given up, oldest first.
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

    /// Sends messages again that were given up, with the ids that they had; returns how many. What is for an endpoint that
    /// was removed stays where it is.
    pub async fn replay(&self, which: &Dead) -> Result<usize, WebhookError> {
        let known: Vec<EndpointId> = store::list(&self.inner.db).await?.into_iter().map(|row| row.id).collect();
        let mut replayed = 0;
        for DeadMessage { letter, .. } in self.dead(which).await? {
            let Some(endpoint) = endpoint_of(&letter.subject).filter(|endpoint| known.contains(endpoint)) else {
                continue;
            };
            self.inner.streams.revive(&letter).await?;
            replayed += 1;
            tracing::info!(endpoint = endpoint.0, sequence = letter.sequence, "a dead letter is sent again");
        }
        Ok(replayed)
    }

    /// The same for an operator, of whom it is recorded.
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
        let deed = Deed::new("webhook.replay", target).with(details);
        operators.witness(operator, deed, self.replay(which), |replayed| json!({"replayed": replayed})).await
    }

    /// Takes away what waits for endpoints that are not there any more, and those who would send it.
    pub async fn tidy(&self) -> Result<(), WebhookError> {
        let streams = &self.inner.streams;
        // First what waits and then who is there: whatever waits for somebody who is not there was for one who was removed.
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

    /// Sends a message, once.
    pub(super) async fn post(&self, endpoint: &Endpoint, message_id: &str, body: String) -> Result<Answer, PostError> {
        let headers = endpoint.secret.headers(message_id, self.inner.clock.now(), body.as_bytes());
        self.inner.outward.post(&endpoint.url, headers, body).await
    }
}

/// Where messages to an endpoint wait.
pub(super) fn subject_of(endpoint: EndpointId) -> String {
    format!("{DELIVER}.{endpoint}")
}

/// For whom messages are that wait here.
pub(crate) fn endpoint_of(subject: &str) -> Option<EndpointId> {
    subject.strip_prefix(DELIVER)?.strip_prefix('.')?.parse().ok()
}
