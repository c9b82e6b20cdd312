use std::{fmt, sync::Mutex, time::Duration};

use bytes::Bytes;
use http::{
    HeaderName, HeaderValue, Request, StatusCode,
    header::{AUTHORIZATION, USER_AGENT},
};
use secrecy::{ExposeSecret as _, SecretString};
use serde::{Deserialize, Serialize, Serializer, ser::SerializeMap as _};
use time::OffsetDateTime;
use url::Url;
use uuid::Uuid;

use crate::{
    AGENT, Notification, Now, Outcome, SettingsError,
    connection::{Connections, Reply},
    credentials::{ProviderTokens, lock},
    notification::Data,
    provider::{self, Gate},
};

/// Time for which nothing is sent after APNs refused this service.
const OFF: Duration = Duration::from_mins(5);

const TOPIC: HeaderName = HeaderName::from_static("apns-topic");
const PUSH_TYPE: HeaderName = HeaderName::from_static("apns-push-type");
const PRIORITY: HeaderName = HeaderName::from_static("apns-priority");
const EXPIRATION: HeaderName = HeaderName::from_static("apns-expiration");
const COLLAPSE_ID: HeaderName = HeaderName::from_static("apns-collapse-id");
const ID: HeaderName = HeaderName::from_static("apns-id");

/// Settings of [`Apns`].
#[derive(Clone, Debug)]
pub struct ApnsSettings {
    /// `https`, or `http` (HTTP/2 with prior knowledge) where the caller allows it.
    pub url: Url,
    /// Contents of the `.p8` file.
    pub key: SecretString,
    pub key_id: String,
    pub team_id: String,
    /// Bundle id of the app.
    pub topic: String,
    /// Maximum time for a response.
    pub timeout: Duration,
    /// Number of HTTP/2 connections.
    pub connections: usize,
}

/// Client of the Apple Push Notification service.
pub struct Apns {
    /// URL without the device token.
    base: String,
    topic: HeaderValue,
    tokens: ProviderTokens,
    connections: Connections,
    gate: Gate,
    off_until: Mutex<OffsetDateTime>,
    now: Now,
}

impl Apns {
    pub fn new(settings: ApnsSettings, now: Now) -> Result<Self, SettingsError> {
        let (key, url) = (settings.key.expose_secret(), &settings.url);
        Ok(Self {
            base: format!("{}/3/device/", url.as_str().trim_end_matches('/')),
            topic: HeaderValue::try_from(settings.topic).map_err(|_| SettingsError::Header("apns.topic"))?,
            tokens: ProviderTokens::new(key, &settings.key_id, &settings.team_id, now.clone())?,
            connections: Connections::new(url, settings.timeout, settings.connections)?,
            gate: Gate::new("apns", settings.timeout),
            off_until: Mutex::new(OffsetDateTime::UNIX_EPOCH),
            now,
        })
    }

    /// Attempts to deliver a notification to the device with this token. A repeated attempt has the same `apns_id`.
    pub async fn send(&self, token: &str, apns_id: Uuid, notification: &Notification) -> Outcome {
        self.attempt(token, apns_id, notification).await.unwrap_or_else(|outcome| outcome)
    }

    async fn attempt(&self, token: &str, id: Uuid, notification: &Notification) -> Result<Outcome, Outcome> {
        let off = *lock(&self.off_until) - (self.now)();
        if off.is_positive() {
            return Err(Outcome::later(Some(off.unsigned_abs())));
        }
        self.gate.admit()?;
        let body = Bytes::from(serde_json::to_string(&Payload(notification)).unwrap_or_default());
        let mut expired = None;
        loop {
            let Some(authorization) = self.tokens.get(expired.as_ref()) else {
                return Ok(Outcome::Refused { code: "unsigned".to_owned() });
            };
            let request = self.request(token, id, notification, authorization.clone())?;
            let reply = self.gate.watch(self.connections.send(&request, &body)).await?;
            let error: ErrorReply = serde_json::from_slice(&reply.body).unwrap_or_default();
            if reply.status != StatusCode::FORBIDDEN {
                return Ok(self.judge(&reply, &error));
            }
            if expired.is_some() || error.reason != "ExpiredProviderToken" {
                return Ok(self.switch_off(&error.reason));
            }
            expired = Some(authorization);
        }
    }

    fn request(
        &self,
        token: &str,
        id: Uuid,
        notification: &Notification,
        authorization: HeaderValue,
    ) -> Result<Request<()>, Outcome> {
        Request::post(format!("{}{token}", self.base))
            .header(AUTHORIZATION, authorization)
            .header(TOPIC, self.topic.clone())
            .header(PUSH_TYPE, HeaderValue::from_static("alert"))
            .header(PRIORITY, HeaderValue::from_static(if notification.high_priority { "10" } else { "5" }))
            .header(EXPIRATION, notification.expires_at.unix_timestamp())
            .header(COLLAPSE_ID, &*notification.collapse_key)
            .header(ID, id.hyphenated().to_string())
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .body(())
            // The caller checks tokens and collapse keys when they arise.
            .map_err(|_| Outcome::Refused { code: "invalid_request".to_owned() })
    }

    fn judge(&self, reply: &Reply, error: &ErrorReply) -> Outcome {
        match (reply.status, &*error.reason) {
            (StatusCode::GONE, "Unregistered" | "ExpiredToken") => Outcome::Gone { since: error.since() },
            (StatusCode::BAD_REQUEST, "BadDeviceToken" | "DeviceTokenNotForTopic") => Outcome::Gone { since: None },
            (_, reason) => provider::outcome(reply, Some(reason).filter(|reason| !reason.is_empty()), (self.now)()),
        }
    }

    /// The key, team or topic is wrong: each further request would be refused too.
    fn switch_off(&self, reason: &str) -> Outcome {
        let mut off_until = lock(&self.off_until);
        let now = (self.now)();
        // Requests that were under way at the same time report the same fault.
        if *off_until <= now {
            tracing::error!(
                provider = "apns",
                reason,
                "push provider refused the credentials and is off for 5 minutes"
            );
            *off_until = now + OFF;
        }
        Outcome::later(Some((*off_until - now).unsigned_abs()))
    }
}

impl fmt::Debug for Apns {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Apns").field("topic", &self.topic).finish_non_exhaustive()
    }
}

struct Payload<'a>(&'a Notification);

impl Serialize for Payload<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let notification = self.0;
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry(
            "aps",
            &Aps {
                alert: Alert { title: &notification.title, body: &notification.body },
                sound: "default",
                thread_id: &notification.collapse_key,
            },
        )?;
        Data { notification, strings_only: false }.serialize_into(&mut map)?;
        map.end()
    }
}

#[derive(Serialize)]
struct Aps<'a> {
    alert: Alert<'a>,
    sound: &'static str,
    #[serde(rename = "thread-id")]
    thread_id: &'a str,
}

#[derive(Serialize)]
struct Alert<'a> {
    title: &'a str,
    body: &'a str,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorReply {
    reason: String,
    /// Milliseconds since 1970.
    timestamp: Option<i64>,
}

impl ErrorReply {
    fn since(&self) -> Option<OffsetDateTime> {
        OffsetDateTime::from_unix_timestamp_nanos(i128::from(self.timestamp?) * 1_000_000).ok()
    }
}
