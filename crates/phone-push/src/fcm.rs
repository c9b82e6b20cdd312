use std::{fmt, time::Duration};

use bytes::Bytes;
use http::{
    HeaderValue, Request, StatusCode, Uri,
    header::{AUTHORIZATION, CONTENT_TYPE, USER_AGENT},
};
use serde::{Deserialize, Serialize};
use url::Url;

use crate::{
    AGENT, Notification, Now, Outcome, ServiceAccount, SettingsError,
    connection::Reply,
    credentials::AccessTokens,
    notification::Data,
    plain::AnyVersion,
    provider::{self, Gate},
};

/// FCM keeps messages for four weeks at most.
const MAX_LIFE: i64 = 28 * 24 * 60 * 60;
const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";
const BAD_REQUEST: &str = "type.googleapis.com/google.rpc.BadRequest";

/// Settings of [`Fcm`].
#[derive(Clone, Debug)]
pub struct FcmSettings {
    /// `https`, or `http` where the caller allows it.
    pub url: Url,
    pub account: ServiceAccount,
    /// Maximum time for a response.
    pub timeout: Duration,
    /// Number of HTTP/2 connections.
    pub connections: usize,
}

/// Client of Firebase Cloud Messaging.
pub struct Fcm {
    uri: Uri,
    tokens: AccessTokens,
    connections: AnyVersion,
    gate: Gate,
    now: Now,
}

impl Fcm {
    pub fn new(settings: FcmSettings, now: Now) -> Result<Self, SettingsError> {
        let mut url = settings.url.clone();
        url.path_segments_mut().map_err(|()| SettingsError::Url)?.pop_if_empty().extend([
            "v1",
            "projects",
            settings.account.project_id(),
            "messages:send",
        ]);
        let client = reqwest::Client::builder()
            .timeout(settings.timeout)
            .connect_timeout(settings.timeout / 2)
            .redirect(reqwest::redirect::Policy::none())
            .user_agent(AGENT)
            .build()
            .map_err(|error| SettingsError::Tls(error.to_string()))?;
        Ok(Self {
            uri: Uri::try_from(url.as_str()).map_err(|_| SettingsError::Url)?,
            connections: AnyVersion::new(&settings.url, settings.timeout, settings.connections, client.clone())?,
            tokens: AccessTokens::new(settings.account, client, now.clone()),
            gate: Gate::new("fcm", settings.timeout),
            now,
        })
    }

    /// Attempts to deliver a notification to the device with this registration token.
    pub async fn send(&self, token: &str, notification: &Notification) -> Outcome {
        self.attempt(token, notification).await.unwrap_or_else(|outcome| outcome)
    }

    async fn attempt(&self, token: &str, notification: &Notification) -> Result<Outcome, Outcome> {
        self.gate.admit()?;
        let body = Bytes::from(self.body(token, notification));
        let access = self.tokens.get().await.map_err(|error| self.no_token(&error))?;
        let reply = self.post(access.header.clone(), &body).await?;
        if reply.status != StatusCode::UNAUTHORIZED || is_about_device(&reply) {
            return Ok(self.judge(&reply));
        }
        let Some(access) = self.tokens.replace(&access).await.map_err(|error| self.no_token(&error))? else {
            return Ok(self.judge(&reply));
        };
        let reply = self.post(access.header.clone(), &body).await?;
        if reply.status == StatusCode::UNAUTHORIZED {
            self.tokens.replacement_refused();
        }
        Ok(self.judge(&reply))
    }

    fn no_token(&self, error: &str) -> Outcome {
        self.gate.failed(error);
        Outcome::later(None)
    }

    async fn post(&self, authorization: HeaderValue, body: &Bytes) -> Result<Reply, Outcome> {
        let request = Request::post(self.uri.clone())
            .header(AUTHORIZATION, authorization)
            .header(CONTENT_TYPE, HeaderValue::from_static("application/json"))
            .header(USER_AGENT, HeaderValue::from_static(AGENT))
            .body(())
            .map_err(|error| Outcome::Refused { code: error.to_string() })?;
        self.gate.watch(self.connections.send(&request, body)).await
    }

    fn body(&self, token: &str, notification: &Notification) -> String {
        let life = (notification.expires_at - (self.now)()).whole_seconds().clamp(0, MAX_LIFE);
        let key = &*notification.collapse_key;
        let send = SendBody {
            message: Message {
                token,
                notification: Texts { title: &notification.title, body: &notification.body },
                data: Data { notification, strings_only: true },
                android: Android {
                    collapse_key: key,
                    priority: if notification.high_priority { "HIGH" } else { "NORMAL" },
                    ttl: format!("{life}s"),
                    notification: Tag { tag: key },
                },
            },
        };
        // Strings and integers only, which cannot fail.
        serde_json::to_string(&send).unwrap_or_default()
    }

    fn judge(&self, reply: &Reply) -> Outcome {
        let error = ErrorBody::of(reply);
        let code = error.code();
        let has_bad_field = error.details.iter().any(|detail| detail.kind == BAD_REQUEST);
        match (reply.status, code) {
            (StatusCode::NOT_FOUND, Some("UNREGISTERED")) | (StatusCode::FORBIDDEN, Some("SENDER_ID_MISMATCH")) => {
                Outcome::Gone { since: None }
            }
            // With `BadRequest`, the fault is in another field than the token.
            (StatusCode::BAD_REQUEST, Some("INVALID_ARGUMENT")) if !has_bad_field => Outcome::Gone { since: None },
            _ => provider::outcome(reply, code.or(error.status.as_deref()), (self.now)()),
        }
    }
}

impl fmt::Debug for Fcm {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Fcm").field("uri", &self.uri).finish_non_exhaustive()
    }
}

#[derive(Serialize)]
struct SendBody<'a> {
    message: Message<'a>,
}

#[derive(Serialize)]
struct Message<'a> {
    token: &'a str,
    notification: Texts<'a>,
    data: Data<'a>,
    android: Android<'a>,
}

#[derive(Serialize)]
struct Texts<'a> {
    title: &'a str,
    body: &'a str,
}

#[derive(Serialize)]
struct Android<'a> {
    collapse_key: &'a str,
    priority: &'static str,
    ttl: String,
    notification: Tag<'a>,
}

#[derive(Serialize)]
struct Tag<'a> {
    tag: &'a str,
}

#[derive(Default, Deserialize)]
struct ErrorReply {
    #[serde(default)]
    error: ErrorBody,
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct ErrorBody {
    status: Option<String>,
    details: Vec<Detail>,
}

impl ErrorBody {
    fn of(reply: &Reply) -> Self {
        serde_json::from_slice::<ErrorReply>(&reply.body).unwrap_or_default().error
    }

    fn code(&self) -> Option<&str> {
        self.details.iter().find(|detail| detail.kind == FCM_ERROR).and_then(|detail| detail.code.as_deref())
    }
}

/// Whether the credentials that Firebase has for the platform of one device are wrong. A new access token would not help,
/// and the one that was used is valid for other devices.
fn is_about_device(reply: &Reply) -> bool {
    ErrorBody::of(reply).code() == Some("THIRD_PARTY_AUTH_ERROR")
}

#[derive(Default, Deserialize)]
#[serde(default)]
struct Detail {
    #[serde(rename = "@type")]
    kind: String,
    #[serde(rename = "errorCode")]
    code: Option<String>,
}
