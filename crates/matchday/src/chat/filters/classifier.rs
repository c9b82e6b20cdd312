//! Asks an external classifier about messages.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use breaker::Breaker;
use futures_util::{StreamExt as _, future::BoxFuture, stream};
use platform::{
    Core,
    clock::Clock,
    outage::Outage,
    outbound_http::{OutboundHttp, PostError, Reach},
    random::{self, Random},
    standard_webhooks::SigningSecret,
};
use serde::Deserialize;
use serde_json::json;
use url::Url;

use super::{
    message::ChatMessage,
    rules::{Action, Hit},
    settings::{FailureMode, Settings},
};

/// Number of concurrent requests of this process.
const AT_ONCE: usize = 16;
/// Number of failures in a row after which the classifier is not asked for a while.
const TOLERATED: u32 = 5;
const PAUSE: Duration = Duration::from_secs(10);
/// Filter in the audit record of messages that the classifier decided on.
pub(super) const NAME: &str = "classifier";

/// HTTP client of the classifier.
pub(super) struct Classifier {
    url: Url,
    secret: SigningSecret,
    http_client: OutboundHttp,
    /// Limit for all messages of a push together.
    limit: Duration,
    failure: FailureMode,
    mute_seconds: i32,
    breaker: Breaker,
    outage: Outage,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

#[derive(Deserialize)]
struct Verdict {
    action: String,
}

/// Reason why the classifier gave no verdict.
#[derive(Debug, thiserror::Error)]
enum ClassifierError {
    #[error(transparent)]
    Post(#[from] PostError),
    #[error("status {0}")]
    Status(u16),
    #[error("the response has no known action")]
    Response,
}

impl Classifier {
    /// Builds the client. `None` without a URL.
    pub(super) fn new(core: &Core, settings: &Settings, mute_seconds: i32) -> reqwest::Result<Option<Self>> {
        let Settings { classifier_url, classifier_secret, classifier_timeout, classifier_failure, .. } = settings;
        let (Some(url), Some(secret)) = (classifier_url.clone(), classifier_secret.clone()) else { return Ok(None) };
        Ok(Some(Self {
            url,
            secret,
            http_client: OutboundHttp::new(Reach::of(core.env), *classifier_timeout)?,
            limit: *classifier_timeout * 2,
            failure: *classifier_failure,
            mute_seconds,
            breaker: Breaker::new(TOLERATED, PAUSE),
            outage: Outage::default(),
            clock: core.clock.clone(),
            random: core.random.clone(),
        }))
    }

    /// Asks about messages concurrently. Returns the hit of each, in their order. Messages without a verdict within the
    /// limit are allowed or removed, as configured.
    pub(super) async fn judge(&self, messages: &[&ChatMessage]) -> Vec<Option<Hit>> {
        let mut hits: Vec<Option<Option<Hit>>> = messages.iter().map(|_| None).collect();
        let mut requests: Vec<BoxFuture<'_, (usize, Option<Option<Hit>>)>> = Vec::with_capacity(messages.len());
        for (at, &message) in messages.iter().enumerate() {
            requests.push(Box::pin(async move { (at, self.ask(message).await) }));
        }
        let mut verdicts = stream::iter(requests).buffer_unordered(AT_ONCE);
        let asking = async {
            while let Some((at, verdict)) = verdicts.next().await {
                hits[at] = verdict;
            }
        };
        let is_late = tokio::time::timeout(self.limit, asking).await.is_err();
        drop(verdicts);
        if is_late {
            self.breaker.record(false);
        }
        hits.into_iter().map(|hit| hit.unwrap_or_else(|| self.failed())).collect()
    }

    /// Result for a message without a verdict.
    fn failed(&self) -> Option<Hit> {
        (self.failure == FailureMode::Closed).then(|| Hit {
            action: Action::Remove,
            reason: format!("{NAME} unavailable"),
            mute_seconds: None,
        })
    }

    /// Asks about one message. The outer `None` means that there is no verdict.
    async fn ask(&self, message: &ChatMessage) -> Option<Option<Hit>> {
        self.breaker.admit().ok()?;
        let began = Instant::now();
        let verdict = self.post(message).await;
        metrics::histogram!("matchday_filter_classifier_seconds").record(began.elapsed().as_secs_f64());
        self.breaker.record(verdict.is_ok());
        match verdict {
            Ok(action) => {
                if self.outage.ends() {
                    tracing::info!("classifier responds again");
                }
                let mute_seconds = action.filter(|action| *action == Action::Mute).map(|_| self.mute_seconds);
                Some(action.map(|action| Hit { action, reason: NAME.to_owned(), mute_seconds }))
            }
            Err(error) => {
                if self.outage.begins() {
                    tracing::warn!(%error, "classifier failed; filters.classifier_failure applies");
                }
                None
            }
        }
    }

    /// Returns the action; `None` to allow the message.
    async fn post(&self, message: &ChatMessage) -> Result<Option<Action>, ClassifierError> {
        let text = message.texts().collect::<Vec<_>>().join("\n");
        let body = json!({"room_id": message.matrix_room, "text": text}).to_string();
        let id = format!("msg_{}", random::uuid_v7(&*self.random, &*self.clock));
        let headers = self.secret.headers(&id, self.clock.now(), body.as_bytes());
        let answer = self.http_client.post(&self.url, headers, body).await?;
        if !answer.status.is_success() {
            return Err(ClassifierError::Status(answer.status.as_u16()));
        }
        let verdict: Verdict = serde_json::from_slice(&answer.body).map_err(|_| ClassifierError::Response)?;
        match verdict.action.as_str() {
            "allow" => Ok(None),
            other => other.parse().map(Some).map_err(|_| ClassifierError::Response),
        }
    }
}
