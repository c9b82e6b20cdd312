//! Behaviour that both providers share: the circuit breaker, and the outcome of responses without a rule of their own.

use std::{future::Future, time::Duration};

use breaker::Breaker;
use http::StatusCode;
use time::OffsetDateTime;

use crate::{
    Outcome,
    connection::{Failure, Reply},
};

const TOLERATED_FAILURES: u32 = 5;
const PAUSE: Duration = Duration::from_secs(10);
/// Longest error code that is reported.
const MAX_CODE: usize = 64;

/// Circuit breaker of one provider.
pub(crate) struct Gate {
    provider: &'static str,
    timeout: Duration,
    breaker: Breaker,
}

impl Gate {
    pub(crate) fn new(provider: &'static str, timeout: Duration) -> Self {
        Self { provider, timeout, breaker: Breaker::new(TOLERATED_FAILURES, PAUSE) }
    }

    /// Refuses while the breaker is open. The caller backs off as after a failed request: if every notification came back
    /// when the breaker closes for a moment, an outage would rewrite all of them every few seconds.
    pub(crate) fn admit(&self) -> Result<(), Outcome> {
        self.breaker.admit().map_err(|_| Outcome::later(None))
    }

    /// Waits for a response, and returns the outcome if there is none.
    pub(crate) async fn watch(&self, sending: impl Future<Output = Result<Reply, Failure>>) -> Result<Reply, Outcome> {
        match sending.await {
            Ok(reply) => {
                if reply.status.is_server_error() {
                    self.failed(reply.status.as_str());
                } else {
                    self.breaker.record(true);
                }
                Ok(reply)
            }
            Err(failure) => {
                let outcome = match failure {
                    Failure::NotSent(_) => Outcome::later(None),
                    Failure::TimedOut | Failure::Broken(_) => Outcome::Unknown,
                };
                if matches!(failure, Failure::TimedOut) {
                    self.breaker.record_timeout(self.timeout);
                } else {
                    self.failed(&failure.to_string());
                }
                Err(outcome)
            }
        }
    }

    /// Records that the provider did not do its part.
    pub(crate) fn failed(&self, error: &str) {
        let was_open = self.breaker.is_open();
        self.breaker.record(false);
        if !was_open && self.breaker.is_open() {
            tracing::warn!(provider = self.provider, error, "push provider is unavailable");
        }
    }
}

/// Outcome of a response, once the rules of the provider found nothing special in it.
pub(crate) fn outcome(reply: &Reply, code: Option<&str>, now: OffsetDateTime) -> Outcome {
    match reply.status {
        StatusCode::OK => Outcome::Taken,
        StatusCode::TOO_MANY_REQUESTS => Outcome::Later { after: reply.retry_after(now), limited: true },
        StatusCode::INTERNAL_SERVER_ERROR | StatusCode::SERVICE_UNAVAILABLE => Outcome::later(reply.retry_after(now)),
        // A gateway responded, and the provider behind it may have processed the request.
        status if status.is_server_error() => Outcome::Unknown,
        status => Outcome::Refused { code: code.map_or_else(|| status.as_str().to_owned(), loggable) },
    }
}

/// Error codes come from outside and are logged.
fn loggable(code: &str) -> String {
    code.chars().filter(|character| character.is_ascii_alphanumeric() || *character == '_').take(MAX_CODE).collect()
}
