use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
};

use aws_lc_rs::{
    encoding::{AsDer as _, Pkcs8V1Der},
    rsa::KeySize,
    signature::{KeyPair as _, RSA_PKCS1_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey},
};
use bytes::Bytes;
use http::{Method, header::AUTHORIZATION, request::Parts};
use serde::Deserialize;
use serde_json::{Value, json};
use url::{Url, form_urlencoded};

use super::{
    Record, Refusal, answer,
    server::{Answer, Handler, Limits, Server},
};
use crate::{FcmSettings, Now, ServiceAccount, credentials::lock};

const PROJECT: &str = "matchday-test";
const EMAIL: &str = "push@matchday-test.iam.gserviceaccount.example";
const SEND_PATH: &str = "/v1/projects/matchday-test/messages:send";
const FCM_ERROR: &str = "type.googleapis.com/google.firebase.fcm.v1.FcmError";

/// Server that behaves like FCM and like the token server of its service account.
pub struct FcmStandIn {
    server: Server,
    state: Arc<State>,
    account: String,
}

struct State {
    public_key: Vec<u8>,
    token_uri: Mutex<String>,
    now: Now,
    /// Access tokens with their expiry.
    tokens: Mutex<HashMap<String, i64>>,
    token_requests: AtomicUsize,
    token_life: AtomicI64,
    token_server_fails: AtomicBool,
    messages: AtomicU64,
    record: Record,
}

impl FcmStandIn {
    pub async fn start(now: Now) -> std::io::Result<Self> {
        Self::start_with(now, Limits::default()).await
    }

    pub async fn start_with(now: Now, limits: Limits) -> std::io::Result<Self> {
        let fault = |_| std::io::Error::other("no key");
        let key = RsaKeyPair::generate(KeySize::Rsa2048).map_err(fault)?;
        let document: Pkcs8V1Der<'_> = key.as_der().map_err(fault)?;
        let state = Arc::new(State {
            public_key: key.public_key().as_ref().to_vec(),
            token_uri: Mutex::default(),
            now,
            tokens: Mutex::default(),
            token_requests: AtomicUsize::new(0),
            token_life: AtomicI64::new(3_600),
            token_server_fails: AtomicBool::new(false),
            messages: AtomicU64::new(0),
            record: Record::default(),
        });
        let server = Server::start(state.clone(), limits).await?;
        let token_uri = format!("http://{}/token", server.address);
        (*lock(&state.token_uri)).clone_from(&token_uri);
        let account = json!({
            "type": "service_account",
            "project_id": PROJECT,
            "private_key_id": "key-1",
            "private_key": super::pem("PRIVATE KEY", document.as_ref()),
            "client_email": EMAIL,
            "token_uri": token_uri,
        });
        Ok(Self { server, state, account: account.to_string() })
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

    /// Contents of the service account file.
    pub fn account(&self) -> &str {
        &self.account
    }

    /// Number of requests for an access token.
    pub fn token_requests(&self) -> usize {
        self.state.token_requests.load(Ordering::Relaxed)
    }

    /// Sets the lifetime of access tokens issued from now on, in seconds.
    pub fn set_token_life(&self, seconds: i64) {
        self.state.token_life.store(seconds, Ordering::Relaxed);
    }

    /// Makes the token server respond with 503, or normally again.
    pub fn fail_token_requests(&self, fails: bool) {
        self.state.token_server_fails.store(fails, Ordering::Relaxed);
    }

    /// Makes all access tokens invalid.
    pub fn revoke_tokens(&self) {
        lock(&self.state.tokens).clear();
    }

    /// Number of HTTP/2 connections accepted.
    pub fn connections(&self) -> usize {
        self.server.gauge.connections.load(Ordering::Relaxed)
    }

    /// Settings of a client of this server.
    pub fn settings(&self, timeout: std::time::Duration, connections: usize) -> FcmSettings {
        FcmSettings {
            url: Url::parse(&self.url()).unwrap_or_else(|_| unreachable!("an address is a URL")),
            account: ServiceAccount::parse(&self.account).unwrap_or_else(|_| unreachable!("the account is valid")),
            timeout,
            connections,
        }
    }
}

impl State {
    /// Token server (RFC 7523).
    fn issue(&self, body: &Bytes) -> (u16, Value) {
        let number = self.token_requests.fetch_add(1, Ordering::Relaxed);
        if self.token_server_fails.load(Ordering::Relaxed) {
            return (503, json!({"error": "backend_error"}));
        }
        let form: HashMap<String, String> = form_urlencoded::parse(body).into_owned().collect();
        let grant = form.get("grant_type").map(String::as_str);
        if grant != Some("urn:ietf:params:oauth:grant-type:jwt-bearer") {
            return (400, json!({"error": "unsupported_grant_type"}));
        }
        let now = (self.now)().unix_timestamp();
        if !form.get("assertion").is_some_and(|assertion| self.is_valid(assertion, now)) {
            self.record.refuse("invalid_grant");
            return (400, json!({"error": "invalid_grant"}));
        }
        let life = self.token_life.load(Ordering::Relaxed);
        let token = format!("ya29.{number}");
        lock(&self.tokens).insert(token.clone(), now + life);
        (200, json!({"access_token": token, "expires_in": life, "token_type": "Bearer"}))
    }

    fn is_valid(&self, assertion: &str, now: i64) -> bool {
        let Some((signed, signature, header, claims)) = super::jwt(assertion) else { return false };
        let key = UnparsedPublicKey::new(&RSA_PKCS1_2048_8192_SHA256, &self.public_key);
        let (Some(issued), Some(expires)) = (claims["iat"].as_i64(), claims["exp"].as_i64()) else { return false };
        key.verify(signed.as_bytes(), &signature).is_ok()
            && header["alg"] == "RS256"
            && claims["iss"] == EMAIL
            && claims["aud"] == **lock(&self.token_uri)
            && claims["scope"] == "https://www.googleapis.com/auth/firebase.messaging"
            && issued <= now
            && now < expires
            && expires - issued <= 3_600
    }

    fn is_authorized(&self, head: &Parts) -> bool {
        let value = head.headers.get(AUTHORIZATION).and_then(|value| value.to_str().ok());
        let Some(token) = value.and_then(|value| value.strip_prefix("Bearer ")) else { return false };
        lock(&self.tokens).get(token).is_some_and(|expires| (self.now)().unix_timestamp() < *expires)
    }

    fn send(&self, head: &Parts, body: &Bytes) -> Answer {
        let refuse = |status: u16, code: &str, bad_field: bool| {
            self.record.refuse(code);
            Answer::Response(super::json(status, &error(status, code, bad_field)))
        };
        if !self.is_authorized(head) {
            return refuse(401, "UNAUTHENTICATED", false);
        }
        let Ok(request) = serde_json::from_slice::<Request>(body) else {
            return refuse(400, "INVALID_ARGUMENT", true);
        };
        let android = &request.message.android;
        let seconds = android.ttl.strip_suffix('s').and_then(|seconds| seconds.parse::<u32>().ok());
        let is_valid = seconds.is_some_and(|seconds| seconds <= 2_419_200)
            && matches!(&*android.priority, "HIGH" | "NORMAL")
            && !request.message.token.is_empty()
            && body.len() <= 4_096 + 4_096;
        if !is_valid {
            return refuse(400, "INVALID_ARGUMENT", true);
        }
        let body = serde_json::from_slice(body).unwrap_or_default();
        let reaction = self.record.decide(&request.message.token, None, head, &body);
        let number = self.messages.fetch_add(1, Ordering::Relaxed);
        let accepted = super::json(200, &json!({"name": format!("projects/{PROJECT}/messages/{number}")}));
        answer(reaction, accepted, |refusal: &Refusal| error(refusal.status, &refusal.code, refusal.bad_field))
    }
}

impl Handler for State {
    fn handle(&self, head: &Parts, body: &Bytes) -> Answer {
        match (&head.method, head.uri.path()) {
            (&Method::POST, "/token") => {
                let (status, body) = self.issue(body);
                Answer::Response(super::json(status, &body))
            }
            (&Method::POST, SEND_PATH) => self.send(head, body),
            _ => Answer::Response(super::json(404, &error(404, "", false))),
        }
    }
}

/// Error in the form of Google's APIs.
fn error(status: u16, code: &str, bad_field: bool) -> Value {
    let general = match status {
        400 => "INVALID_ARGUMENT",
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        _ => "INTERNAL",
    };
    let mut details = Vec::new();
    if !code.is_empty() {
        details.push(json!({"@type": FCM_ERROR, "errorCode": code}));
    }
    if bad_field {
        details.push(json!({
            "@type": "type.googleapis.com/google.rpc.BadRequest",
            "fieldViolations": [{"field": "message", "description": "Invalid value"}],
        }));
    }
    json!({"error": {"code": status, "message": general, "status": general, "details": details}})
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Request {
    message: Message,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Message {
    token: String,
    #[expect(dead_code, reason = "only its shape is checked")]
    notification: Texts,
    #[expect(dead_code, reason = "only its shape is checked")]
    data: HashMap<String, String>,
    android: Android,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is checked")]
struct Texts {
    title: String,
    body: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Android {
    #[expect(dead_code, reason = "only its shape is checked")]
    collapse_key: String,
    priority: String,
    ttl: String,
    #[expect(dead_code, reason = "only its shape is checked")]
    notification: Tag,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
#[expect(dead_code, reason = "only its shape is checked")]
struct Tag {
    tag: String,
}
