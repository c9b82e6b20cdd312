use std::{
    collections::HashMap,
    sync::{Arc, Mutex, atomic::Ordering},
};

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair as _, UnparsedPublicKey,
};
use bytes::Bytes;
use http::{HeaderMap, Method, Response, header::AUTHORIZATION, request::Parts};
use serde_json::{Value, json};
use time::Duration;
use url::Url;
use uuid::Uuid;

use super::{
    Record, Refusal, answer,
    server::{Answer, Handler, Limits, Server},
};
use crate::{ApnsSettings, Now, credentials::lock};

/// Age at which APNs refuses a provider token.
const MAX_TOKEN_AGE: Duration = Duration::hours(1);
const MAX_PAYLOAD: usize = 4_096;
const KEY_ID: &str = "ABC123DEFG";
const TEAM_ID: &str = "DEF123GHIJ";
const TOPIC: &str = "org.example.app";

/// Server that behaves like APNs.
pub struct ApnsStandIn {
    server: Server,
    state: Arc<State>,
    key: String,
}

struct State {
    public_key: Vec<u8>,
    now: Now,
    /// Time of issue of tokens with a valid signature.
    tokens: Mutex<HashMap<String, i64>>,
    record: Record,
}

impl ApnsStandIn {
    pub async fn start(now: Now) -> std::io::Result<Self> {
        Self::start_with(now, Limits::default()).await
    }

    pub async fn start_with(now: Now, limits: Limits) -> std::io::Result<Self> {
        let fault = |_| std::io::Error::other("no key");
        let key = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(fault)?;
        let document = key.to_pkcs8v1().map_err(fault)?;
        let state = Arc::new(State {
            public_key: key.public_key().as_ref().to_vec(),
            now,
            tokens: Mutex::default(),
            record: Record::default(),
        });
        let server = Server::start(state.clone(), limits).await?;
        Ok(Self { server, state, key: super::pem("PRIVATE KEY", document.as_ref()) })
    }

    /// Requests and instructions.
    pub fn record(&self) -> &Record {
        &self.state.record
    }

    /// Host and port.
    pub fn address(&self) -> String {
        self.server.address.to_string()
    }

    pub fn url(&self) -> String {
        format!("http://{}", self.server.address)
    }

    /// Contents of the `.p8` file.
    pub fn key(&self) -> &str {
        &self.key
    }

    pub fn key_id(&self) -> &'static str {
        KEY_ID
    }

    pub fn team_id(&self) -> &'static str {
        TEAM_ID
    }

    pub fn topic(&self) -> &'static str {
        TOPIC
    }

    /// Number of different valid provider tokens received.
    pub fn provider_tokens(&self) -> usize {
        lock(&self.state.tokens).len()
    }

    /// Number of HTTP/2 connections accepted.
    pub fn connections(&self) -> usize {
        self.server.gauge.connections.load(Ordering::Relaxed)
    }

    /// Highest number of streams open at the same time.
    pub fn peak_streams(&self) -> usize {
        self.server.gauge.peak.load(Ordering::Relaxed)
    }

    /// Settings of a client of this server.
    pub fn settings(&self, timeout: std::time::Duration, connections: usize) -> ApnsSettings {
        ApnsSettings {
            url: Url::parse(&self.url()).unwrap_or_else(|_| unreachable!("an address is a URL")),
            key: self.key.clone().into(),
            key_id: KEY_ID.to_owned(),
            team_id: TEAM_ID.to_owned(),
            topic: TOPIC.to_owned(),
            timeout,
            connections,
        }
    }
}

impl State {
    fn authorize(&self, headers: &HeaderMap) -> Result<(), (u16, &'static str)> {
        let value = headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let token = value.and_then(|value| value.strip_prefix("bearer ")).ok_or((403, "MissingProviderToken"))?;
        let mut tokens = lock(&self.tokens);
        let issued_at = if let Some(issued_at) = tokens.get(token) {
            *issued_at
        } else {
            let issued_at = self.verify(token).ok_or((403, "InvalidProviderToken"))?;
            tokens.insert(token.to_owned(), issued_at);
            issued_at
        };
        let age = (self.now)().unix_timestamp() - issued_at;
        if age > MAX_TOKEN_AGE.whole_seconds() { Err((403, "ExpiredProviderToken")) } else { Ok(()) }
    }

    fn verify(&self, token: &str) -> Option<i64> {
        let (signed, signature, header, claims) = super::jwt(token)?;
        let key = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, &self.public_key);
        key.verify(signed.as_bytes(), &signature).ok()?;
        let valid = header["alg"] == "ES256" && header["kid"] == KEY_ID && claims["iss"] == TEAM_ID;
        valid.then(|| claims["iat"].as_i64())?
    }

    fn check(&self, head: &Parts, body: &Bytes) -> Result<(String, Value), (u16, &'static str)> {
        if head.method != Method::POST {
            return Err((405, "MethodNotAllowed"));
        }
        let token = head.uri.path().strip_prefix("/3/device/").ok_or((404, "BadPath"))?;
        self.authorize(&head.headers)?;
        let is_token = token.len() >= 64 && token.len().is_multiple_of(2);
        if !is_token || !token.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Err((400, "BadDeviceToken"));
        }
        let header = |name: &str| head.headers.get(name).and_then(|value| value.to_str().ok());
        match header("apns-topic") {
            None => return Err((400, "MissingTopic")),
            Some(TOPIC) => {}
            Some(_) => return Err((400, "TopicDisallowed")),
        }
        let checks = [
            (header("apns-push-type") == Some("alert"), "InvalidPushType"),
            (matches!(header("apns-priority"), Some("5" | "10")), "BadPriority"),
            (header("apns-expiration").is_some_and(|text| text.parse::<u64>().is_ok()), "BadExpirationDate"),
            (header("apns-collapse-id").is_some_and(|id| !id.is_empty() && id.len() <= 64), "BadCollapseId"),
            (header("apns-id").is_some_and(|id| Uuid::parse_str(id).is_ok()), "BadMessageId"),
        ];
        if let Some((_, reason)) = checks.iter().find(|(holds, _)| !holds) {
            return Err((400, reason));
        }
        if body.len() > MAX_PAYLOAD {
            return Err((413, "PayloadTooLarge"));
        }
        let payload: Value = serde_json::from_slice(body).map_err(|_| (400, "PayloadEmpty"))?;
        let alert = &payload["aps"]["alert"];
        if !alert["title"].is_string() || !alert["body"].is_string() {
            return Err((400, "PayloadEmpty"));
        }
        Ok((token.to_owned(), payload))
    }
}

impl Handler for State {
    fn handle(&self, head: &Parts, body: &Bytes) -> Answer {
        let (token, payload) = match self.check(head, body) {
            Ok(checked) => checked,
            Err((status, reason)) => {
                self.record.refuse(reason);
                return Answer::Response(super::json(status, &json!({"reason": reason})));
            }
        };
        let id = head.headers.get("apns-id").and_then(|id| id.to_str().ok());
        let reaction = self.record.decide(&token, id, head, &payload);
        let mut accepted = Response::new(Bytes::new());
        if let Some(id) = head.headers.get("apns-id") {
            accepted.headers_mut().insert("apns-id", id.clone());
        }
        answer(reaction, accepted, |refusal: &Refusal| {
            let mut body = json!({"reason": refusal.code});
            if let Some(since) = refusal.since {
                body["timestamp"] = json!(since.unix_timestamp_nanos() / 1_000_000);
            }
            body
        })
    }
}
