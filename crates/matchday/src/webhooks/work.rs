//! What workers do about webhooks. One consumer reads the facts and puts a message on the queue for every endpoint that
//! wants to hear of them. Each endpoint has a consumer of its own that sends them: one that is slow, or away for hours
//! with thousands of messages waiting for it, takes nothing from the others.

use std::{collections::HashMap, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::{
    outbox,
    stream::{Delivery, Failure, Stream, TransportError, WorkSpec},
};
use tokio::sync::watch;
use tokio_util::{sync::CancellationToken, task::TaskTracker};
use web::ids::EndpointId;

use super::{
    rules::{self, FACTS, Verdict},
    service::{Endpoint, Item, WebhookError, Webhooks, subject_of},
    store,
};

/// How often it is looked which endpoints there are.
const LOOK: Duration = Duration::from_secs(2);
/// How many messages to one endpoint may be waiting for another try. Beyond, new ones wait for the old.
const MOST_WAITING: i64 = 100_000;

/// An endpoint that is being sent to.
struct Served {
    /// As it was when last looked at, or when it said that it is gone.
    latest: watch::Sender<Endpoint>,
    /// Ends the sending.
    stop: CancellationToken,
}

impl Webhooks {
    /// The facts that something is told of.
    pub fn work() -> WorkSpec {
        let (first, also) = FACTS;
        WorkSpec {
            also,
            // The database may be away for a day, and all of this must be told when it is back.
            attempts: 10_000,
            longest_pause: Duration::from_secs(30),
            ..WorkSpec::new("webhooks", Stream::Facts, first)
        }
    }

    /// Puts what is told of a fact on the queue, for every endpoint that wants it. A fact that comes again within minutes
    /// is dropped by the queue; after that endpoints tell by the message's id.
    pub async fn perform(&self, fact: Delivery) -> Result<(), Failure> {
        let told = rules::announce(&fact.subject, &fact.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let Some((kind, data)) = told else { return Ok(()) };
        let nameless = || Failure::GiveUp(anyhow::anyhow!("the fact has no id"));
        let fact_id = fact.id.ok_or_else(nameless)?;
        let happened_at = outbox::time_of(&fact_id).ok_or_else(nameless)?;
        let body = rules::body(kind, happened_at, &data).map_err(|error| Failure::GiveUp(error.into()))?;
        let mut sent = Vec::new();
        for endpoint in self.endpoints().await.map_err(Failure::retry)? {
            // Those that cannot be opened are complained of where they are served.
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

    /// Sends what waits for endpoints until shutdown, looking again and again which there are.
    pub async fn deliver(&self, shutdown: CancellationToken) {
        let (mut served, tasks) = (HashMap::new(), TaskTracker::new());
        let mut unreadable = Vec::new();
        while !shutdown.is_cancelled() {
            match self.endpoints().await {
                Ok(endpoints) => self.serve(endpoints, &mut served, &mut unreadable, &tasks, &shutdown),
                // What was known is known still.
                Err(error) => tracing::warn!(%error, "nobody looked which endpoints of webhooks there are"),
            }
            tokio::select! {
                () = shutdown.cancelled() => {}
                () = tokio::time::sleep(LOOK) => {}
            }
        }
        tasks.close();
        tasks.wait().await;
    }

    /// Begins to send to new endpoints, and ends it for those that are gone.
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
                tracing::error!(fault, "an endpoint of webhooks is told nothing; its messages wait");
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
            // What a process that died was sending is soon sent by another one.
            ack_wait: Duration::from_secs(5),
            most_waiting: MOST_WAITING,
            ..WorkSpec::new(format!("webhook_{id}"), Stream::Work, subject_of(id))
        }
    }

    /// Sends a message to its endpoint. It asks the database about disabled endpoints only: when that is away, messages
    /// are sent all the same, and no attempt is used up for it.
    async fn send(&self, latest: &watch::Sender<Endpoint>, delivery: Delivery) -> Result<(), Failure> {
        let inner = &*self.inner;
        let item: Item = serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let again = |error: anyhow::Error, asked| {
            let after = rules::pause_after(delivery.attempt, &inner.config.pauses, asked);
            Failure::Retry { error, after: Some(after) }
        };
        let mut endpoint = latest.borrow().clone();
        if endpoint.disabled_at.is_some() {
            // Unless it was enabled this moment.
            endpoint = self.endpoint(endpoint.id).await.map_err(|error| again(error.into(), None))?;
        }
        if endpoint.disabled_at.is_some() {
            count("disabled");
            return Err(Failure::GiveUp(anyhow::anyhow!("the endpoint is disabled")));
        }
        let answer = self.post(&endpoint, &item.message_id, item.body).await;
        let answer = answer.map_err(|error| {
            count(error.label());
            again(error.into(), None)
        })?;
        let verdict = Verdict::of(answer.status);
        count(verdict.label());
        let status = answer.status.as_u16();
        match verdict {
            Verdict::Taken => {
                tracing::debug!(
                    endpoint = endpoint.id.0,
                    kind = item.kind.name(),
                    item.message_id,
                    "a webhook was taken"
                );
                Ok(())
            }
            Verdict::Refused => Err(again(anyhow::anyhow!("answered {status}"), None)),
            Verdict::Busy => Err(again(anyhow::anyhow!("answered {status}"), answer.retry_after(inner.clock.now()))),
            Verdict::Gone => {
                let now = inner.clock.now();
                let disabled = store::set_disabled(&inner.db, endpoint.id, Some(now)).await;
                disabled.map_err(|error| again(error.into(), None))?;
                latest.send_modify(|latest| latest.disabled_at = Some(now));
                tracing::warn!(endpoint = endpoint.id.0, "an endpoint of webhooks is gone, and disabled now");
                Err(Failure::GiveUp(anyhow::anyhow!("answered 410: the endpoint is disabled")))
            }
        }
    }
}

fn count(outcome: &'static str) {
    metrics::counter!("matchday_webhooks_total", "outcome" => outcome).increment(1);
}
