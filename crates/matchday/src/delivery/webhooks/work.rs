//! Background work for webhooks. One consumer reads the facts and queues a message for every subscribed endpoint. Each
//! endpoint has a separate consumer that sends its messages. A slow endpoint, or an outage of hours with thousands of
//! waiting messages, therefore does not delay the other endpoints.

use std::{collections::HashMap, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::{
    outbox,
    stream::{Delivery, Failure, Stream, TransportError, WorkSpec, next_wake},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use web::ids::EndpointId;

use super::{
    rules::{self, FACTS, Verdict},
    service::{Endpoint, Item, WebhookError, Webhooks, subject_of},
    store,
};

/// Interval at which the list of endpoints is read, if no message said that it changed.
const REFRESH: Duration = Duration::from_secs(10);
/// Subject of the message after an endpoint was added, enabled or removed.
pub(super) const CHANGED: &str = "wake.webhooks";
/// Maximum number of messages to one endpoint that wait for a retry. Beyond it, new messages wait for the old ones.
const MOST_WAITING: i64 = 100_000;

/// An endpoint with a running consumer.
struct Served {
    /// Latest known state of the endpoint. A 410 response updates it too.
    latest: watch::Sender<Endpoint>,
    stop: CancellationToken,
}

impl Webhooks {
    /// Returns the specification of the consumer that reads facts.
    pub fn work() -> WorkSpec {
        let (first, also) = FACTS;
        WorkSpec { also, longest_pause: Duration::from_secs(30), ..WorkSpec::new("webhooks", Stream::Facts, first) }
    }

    /// Queues the message about a fact for every subscribed endpoint. If a fact is redelivered within minutes, the
    /// queue drops the duplicates. After that, receivers deduplicate by message id.
    pub async fn perform(&self, fact: Delivery) -> Result<(), Failure> {
        let message = rules::announce(&fact.subject, &fact.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let Some((kind, data)) = message else { return Ok(()) };
        let nameless = || Failure::GiveUp(anyhow::anyhow!("the fact has no id"));
        let fact_id = fact.id.ok_or_else(nameless)?;
        let happened_at = outbox::time_of(&fact_id).ok_or_else(nameless)?;
        let body = rules::body(kind, happened_at, &data).map_err(|error| Failure::GiveUp(error.into()))?;
        let mut sent = Vec::new();
        for endpoint in self.endpoints().await.map_err(Failure::retry)? {
            // Unusable endpoints are logged in `serve`.
            let Some(endpoint) = endpoint.ok().filter(|endpoint| endpoint.wants(kind)) else { continue };
            let item =
                Item { endpoint_id: endpoint.id, message_id: rules::message_id(&fact_id), kind, body: body.clone() };
            let payload = serde_json::to_vec(&item).map_err(|error| Failure::GiveUp(error.into()))?;
            let id = format!("webhook-{fact_id}-{}", endpoint.id);
            let message = PublishMessage::build().message_id(id).payload(payload.into());
            let subject = subject_of(endpoint.id);
            sent.push(self.inner.streams.send(&subject, message).await.map_err(Failure::retry)?);
        }
        for acknowledgement in sent {
            acknowledgement.await.map_err(|error| Failure::retry(TransportError::from(error)))?;
        }
        Ok(())
    }

    /// Delivers queued messages until shutdown, and refreshes the list of endpoints periodically.
    pub async fn deliver(&self, shutdown: CancellationToken) {
        let (mut served, tasks) = (HashMap::new(), TaskTracker::new());
        let mut unreadable = Vec::new();
        let mut changes = None;
        while !shutdown.is_cancelled() {
            if changes.is_none() {
                changes = self.inner.streams.hear(CHANGED).await.ok();
            }
            match self.endpoints().await {
                Ok(endpoints) => self.serve(endpoints, &mut served, &mut unreadable, &tasks, &shutdown),
                // The consumers of known endpoints keep running.
                Err(error) => tracing::warn!(%error, "webhook endpoints could not be read"),
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = next_wake(&mut changes) => {}
                () = tokio::time::sleep(REFRESH) => {}
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    /// Starts consumers of new endpoints, and stops consumers of removed ones.
    fn serve(
        &self,
        endpoints: Vec<Result<Endpoint, WebhookError>>,
        served: &mut HashMap<EndpointId, Served>,
        unreadable: &mut Vec<String>,
        tasks: &TaskTracker,
        shutdown: &CancellationToken,
    ) {
        let (mut found, mut faults) = (Vec::new(), Vec::new());
        for endpoint in endpoints {
            match endpoint {
                Ok(endpoint) => found.push(endpoint),
                Err(error) => faults.push(error.to_string()),
            }
        }
        if faults != *unreadable {
            for fault in &faults {
                tracing::error!(fault, "webhook endpoint is unusable; it receives no messages");
            }
            *unreadable = faults;
        }
        served.retain(|id, served| {
            let stays = found.iter().any(|endpoint| endpoint.id == *id);
            if !stays {
                served.stop.cancel();
            }
            stays
        });
        for endpoint in found {
            if let Some(served) = served.get(&endpoint.id) {
                served.latest.send_replace(endpoint);
                continue;
            }
            let (id, stop) = (endpoint.id, shutdown.child_token());
            let latest = watch::Sender::new(endpoint);
            tasks.spawn(self.clone().send_to(id, latest.clone(), stop.clone()));
            served.insert(id, Served { latest, stop });
        }
    }

    async fn send_to(self, id: EndpointId, latest: watch::Sender<Endpoint>, stop: CancellationToken) {
        let (spec, streams) = (self.delivery(id), self.inner.streams.clone());
        let perform = move |delivery| {
            let (this, latest) = (self.clone(), latest.clone());
            async move { this.send(&latest, delivery).await }
        };
        streams.consume(spec, perform, stop).await;
    }

    fn delivery(&self, id: EndpointId) -> WorkSpec {
        WorkSpec {
            at_once: self.inner.config.at_once,
            attempts: self.inner.config.pauses.len() as u64 + 1,
            retried_for: Duration::ZERO,
            // Short: another process must soon resend the messages of a process that died.
            ack_wait: Duration::from_secs(5),
            most_waiting: MOST_WAITING,
            ..WorkSpec::new(format!("webhook_{id}"), Stream::Work, subject_of(id))
        }
    }

    /// Sends a message to its endpoint. Reads the database only if the endpoint is disabled, so a database outage does
    /// not delay messages to enabled endpoints or use up their attempts.
    async fn send(&self, latest: &watch::Sender<Endpoint>, delivery: Delivery) -> Result<(), Failure> {
        let inner = &*self.inner;
        let item: Item = serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let again = |error: anyhow::Error, asked| {
            let after = rules::pause_after(delivery.attempt, &inner.config.pauses, asked);
            Failure::Retry { error, after: Some(after) }
        };
        let mut endpoint = latest.borrow().clone();
        if endpoint.disabled_at.is_some() {
            // An operator may have just enabled the endpoint.
            endpoint = self.endpoint(endpoint.id).await.map_err(|error| again(error.into(), None))?;
        }
        if endpoint.disabled_at.is_some() {
            count("disabled");
            return Err(Failure::GiveUp(anyhow::anyhow!("the endpoint is disabled")));
        }
        let response = self.post(&endpoint, &item.message_id, item.body).await;
        let response = response.map_err(|error| {
            count(error.label());
            again(error.into(), None)
        })?;
        let verdict = Verdict::of(response.status);
        count(verdict.label());
        let status = response.status.as_u16();
        match verdict {
            Verdict::Taken => {
                tracing::debug!(
                    endpoint = endpoint.id.0,
                    kind = item.kind.name(),
                    item.message_id,
                    "webhook delivered"
                );
                Ok(())
            }
            Verdict::Refused => Err(again(anyhow::anyhow!("responded with {status}"), None)),
            Verdict::Busy => {
                Err(again(anyhow::anyhow!("responded with {status}"), response.retry_after(inner.clock.now())))
            }
            Verdict::Gone => {
                let now = inner.clock.now();
                let disabled = store::set_disabled(&inner.db, endpoint.id, Some(now)).await;
                disabled.map_err(|error| again(error.into(), None))?;
                latest.send_modify(|latest| latest.disabled_at = Some(now));
                tracing::warn!(endpoint = endpoint.id.0, "webhook endpoint responded with 410 and was disabled");
                Err(Failure::GiveUp(anyhow::anyhow!("responded with 410: the endpoint is disabled")))
            }
        }
    }
}

fn count(outcome: &'static str) {
    metrics::counter!("matchday_webhooks_total", "outcome" => outcome).increment(1);
}
