//! The push hook: posts the notification and the ids of the users to a URL that the operator configured, signed like a
//! webhook. The app then notifies the users through its own channels.

use std::sync::Arc;

use futures_util::{FutureExt as _, future::BoxFuture};
use platform::{
    clock::Clock,
    outbound_http::{OutboundHttp, PostError},
    random::{self, Random},
    standard_webhooks::SigningSecret,
};
use serde::Serialize;
use time::OffsetDateTime;
use url::Url;
use web::ids::UserId;

use super::notifier::{Notice, Notified, Notifier, Outcome, Place, Recipient};

pub(super) struct Hook {
    pub(super) url: Url,
    pub(super) secret: SigningSecret,
    pub(super) http_client: OutboundHttp,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
}

#[derive(Serialize)]
struct Body<'a> {
    #[serde(rename = "type")]
    kind: &'static str,
    #[serde(with = "platform::timestamp")]
    timestamp: OffsetDateTime,
    data: Data<'a>,
}

#[derive(Serialize)]
struct Data<'a> {
    #[serde(flatten)]
    notice: &'a Notice,
    user_ids: Vec<UserId>,
    /// Users with their places, in a notification about a league.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    users: Vec<PlacedUser>,
}

#[derive(Serialize)]
struct PlacedUser {
    user_id: UserId,
    #[serde(flatten)]
    place: Place,
}

impl Hook {
    async fn send(&self, notice: &Notice, to: &[Recipient]) -> Outcome {
        let now = self.clock.now();
        let user_ids = to.iter().map(|recipient| recipient.user).collect();
        let placed = |one: &Recipient| Some(PlacedUser { user_id: one.user, place: one.place? });
        let data = Data { notice, user_ids, users: to.iter().filter_map(placed).collect() };
        let body = Body { kind: notice.kind(), timestamp: now, data };
        let Ok(body) = serde_json::to_string(&body) else { return Outcome::Refused };
        // Each request is sent once, so each one gets a new id.
        let id = format!("msg_{}", random::uuid_v7(&*self.random, &*self.clock));
        let headers = self.secret.headers(&id, now, body.as_bytes());
        match self.http_client.post(&self.url, headers, body).await {
            Ok(response) if response.status.is_success() => Outcome::Taken,
            Ok(response) => {
                tracing::warn!(status = response.status.as_u16(), "push hook refused a notification");
                let status = response.status;
                let is_temporary = status.is_server_error() || status.as_u16() == 429 || status.as_u16() == 408;
                if is_temporary { Outcome::Later } else { Outcome::Refused }
            }
            Err(error) => {
                tracing::warn!(%error, "push hook request failed");
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

    /// Always true, because only the app can decide which users it reaches.
    fn reaches(&self, _: &Recipient) -> bool {
        true
    }

    fn notify<'a>(&'a self, notice: &'a Notice, to: &'a [Recipient]) -> BoxFuture<'a, Notified> {
        async move {
            let outcome = if to.is_empty() { Outcome::NotReached } else { self.send(notice, to).await };
            Notified { outcomes: vec![outcome; to.len()], gone: Vec::new() }
        }
        .boxed()
    }
}
