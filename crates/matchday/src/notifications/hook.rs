//! The app's own push: one address of the operator's is told whom to notify of what, signed as webhooks are.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use platform::{
    clock::Clock,
    outward::{Outward, PostError},
    random::{self, Random},
    standard_webhooks::SigningSecret,
};
use serde::Serialize;
use time::OffsetDateTime;
use url::Url;
use web::ids::UserId;

use super::notifier::{Notified, Notifier, Outcome, Recipient, Reminder};

/// The hook.
pub(super) struct Hook {
    pub(super) url: Url,
    pub(super) secret: SigningSecret,
    pub(super) outward: Outward,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(with = "time::serde::rfc3339")]
    timestamp: OffsetDateTime,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    reminder: &'a Reminder,
    user_ids: Vec<UserId>,
}

impl Hook {
    async fn send(&self, reminder: &Reminder, to: &[Recipient]) -> Outcome {
        let now = self.clock.now();
        let user_ids = to.iter().map(|recipient| recipient.user).collect();
        let body = Body { kind: "reminder.due", timestamp: now, data: Data { reminder, user_ids } };
        let Ok(body) = serde_json::to_string(&body) else { return Outcome::Refused };
        // Each is sent once, so each has an id of its own.
        let id = format!("msg_{}", random::uuid_v7(&*self.random, &*self.clock));
        let headers = self.secret.headers(&id, now, body.as_bytes());
        match self.outward.post(&self.url, headers, body).await {
            Ok(answer) if answer.status.is_success() => Outcome::Taken,
            Ok(answer) => {
                tracing::warn!(status = answer.status.as_u16(), "the hook did not take a reminder");
                let status = answer.status;
                let may_pass = status.is_server_error() || status.as_u16() == 429 || status.as_u16() == 408;
                if may_pass { Outcome::Later } else { Outcome::Refused }
            }
            Err(error) => {
                tracing::warn!(%error, "the hook was not told of a reminder, or perhaps it was");
                match error {
                    PostError::Address(_) => Outcome::Refused,
                    error if error.is_definite() => Outcome::Later,
                    _ => Outcome::Unknown,
                }
            }
        }
    }
}

impl Notifier for Hook {
    fn name(&self) -> &'static str {
        "hook"
    }

    /// Whom the app can notify only the app knows.
    fn reaches(&self, _: &Recipient) -> bool {
        true
    }

    fn notify<'a>(&'a self, reminder: &'a Reminder, to: &'a [Recipient]) -> BoxFuture<'a, Notified> {
        async move {
            let outcome = if to.is_empty() { Outcome::NoWay } else { self.send(reminder, to).await };
            Notified { outcomes: vec![outcome; to.len()], gone: Vec::new() }
        }
        .boxed()
    }
}
