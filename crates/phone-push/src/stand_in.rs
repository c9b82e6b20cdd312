//! Local servers that behave like FCM and APNs, as far as their documentation describes it. They check credentials, headers
//! and bodies, count what they accept for each device, and misbehave on request.

mod apns;
pub mod bare;
mod fcm;
mod server;

use std::{
    collections::{HashMap, VecDeque},
    sync::Mutex,
};

use bytes::Bytes;
use http::{HeaderMap, StatusCode, request::Parts};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::{Duration, Instant};

use self::server::Answer;
pub use self::{apns::ApnsStandIn, fcm::FcmStandIn, server::Limits};
use crate::credentials::lock;

/// Reaction to a valid request.
#[derive(Clone, Debug)]
pub enum Reaction {
    Accept,
    Error(Refusal),
    /// Never respond.
    Hang,
    /// Close the connection without a response.
    Close,
    /// Refuse the HTTP/2 stream without processing it.
    RefuseStream,
    /// Accept, and announce the end of the connection.
    GoAway,
}

impl Reaction {
    /// Error response with the error code of FCM or the reason of APNs.
    pub fn error(status: u16, code: &str) -> Self {
        Self::Error(Refusal { status, code: code.to_owned(), retry_after: None, since: None, bad_field: false })
    }

    /// Response 429 with `Retry-After`.
    pub fn limited(seconds: u64) -> Self {
        Self::error(429, "QUOTA_EXCEEDED").retry_after(seconds.to_string())
    }

    /// Adds a `Retry-After` header to an error.
    #[must_use]
    pub fn retry_after(self, value: String) -> Self {
        self.changed(|refusal| refusal.retry_after = Some(value))
    }

    /// Sets the time since which the token is invalid (APNs).
    #[must_use]
    pub fn since(self, since: OffsetDateTime) -> Self {
        self.changed(|refusal| refusal.since = Some(since))
    }

    /// Names another field than the token as invalid (FCM).
    #[must_use]
    pub fn bad_field(self) -> Self {
        self.changed(|refusal| refusal.bad_field = true)
    }

    fn changed(self, change: impl FnOnce(&mut Refusal)) -> Self {
        match self {
            Self::Error(mut refusal) => {
                change(&mut refusal);
                Self::Error(refusal)
            }
            other => other,
        }
    }
}

#[derive(Clone, Debug)]
pub struct Refusal {
    status: u16,
    code: String,
    retry_after: Option<String>,
    since: Option<OffsetDateTime>,
    bad_field: bool,
}

/// A request that was accepted.
#[derive(Clone, Debug)]
pub struct Received {
    pub token: String,
    pub path: String,
    pub headers: HeaderMap,
    pub body: Value,
}

/// Counts of one device.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Valid requests, whatever the reaction was.
    pub attempts: u32,
    pub accepted: u32,
    /// Attempts before the end of an earlier `Retry-After`.
    pub too_early: u32,
}

/// Requests that a stand-in received, and its instructions.
#[derive(Debug, Default)]
pub struct Record {
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    devices: HashMap<String, Device>,
    total: Counts,
    ids: HashMap<String, u32>,
    received: VecDeque<Received>,
    next: VecDeque<Reaction>,
    always: Option<Reaction>,
    refused: Vec<String>,
}

#[derive(Debug, Default)]
struct Device {
    counts: Counts,
    reactions: VecDeque<Reaction>,
    not_before: Option<Instant>,
}

/// Number of accepted requests that are kept with their bodies.
const KEPT: usize = 1_000;

impl Record {
    /// Reacts to the next requests for a device in this order, and then as to other devices.
    pub fn react_for(&self, token: &str, reactions: impl IntoIterator<Item = Reaction>) {
        lock(&self.state).devices.entry(token.to_owned()).or_default().reactions.extend(reactions);
    }

    /// Reacts to the next requests, for any device, in this order.
    pub fn react(&self, reactions: impl IntoIterator<Item = Reaction>) {
        lock(&self.state).next.extend(reactions);
    }

    /// Reacts to all requests without another instruction.
    pub fn react_always(&self, reaction: Reaction) {
        lock(&self.state).always = Some(reaction);
    }

    pub fn counts(&self, token: &str) -> Counts {
        lock(&self.state).devices.get(token).map(|device| device.counts).unwrap_or_default()
    }

    /// Counts of all devices with a request.
    pub fn all_counts(&self) -> Vec<(String, Counts)> {
        let state = lock(&self.state);
        let seen = state.devices.iter().filter(|(_, device)| device.counts.attempts > 0);
        seen.map(|(token, device)| (token.clone(), device.counts)).collect()
    }

    /// Sum of all devices.
    pub fn total(&self) -> Counts {
        lock(&self.state).total
    }

    /// Number of accepted requests with this `apns-id`.
    pub fn accepted_with_id(&self, id: &str) -> u32 {
        lock(&self.state).ids.get(id).copied().unwrap_or_default()
    }

    /// The last accepted requests, oldest first.
    pub fn received(&self) -> Vec<Received> {
        lock(&self.state).received.iter().cloned().collect()
    }

    /// Error codes of requests that were malformed or had no valid credentials.
    pub fn refused(&self) -> Vec<String> {
        lock(&self.state).refused.clone()
    }

    fn refuse(&self, code: &str) {
        lock(&self.state).refused.push(code.to_owned());
    }

    /// Counts a valid request, and decides how to react to it.
    fn decide(&self, token: &str, id: Option<&str>, head: &Parts, body: &Value) -> Reaction {
        let now = Instant::now();
        let mut state = lock(&self.state);
        let state = &mut *state;
        let device = match state.devices.get_mut(token) {
            Some(device) => device,
            None => state.devices.entry(token.to_owned()).or_default(),
        };
        let is_early = device.not_before.take().is_some_and(|moment| now < moment);
        let own = device.reactions.pop_front();
        let reaction = state.next.pop_front().or(own).or_else(|| state.always.clone()).unwrap_or(Reaction::Accept);
        let is_accepted = matches!(reaction, Reaction::Accept | Reaction::GoAway);
        for counts in [&mut device.counts, &mut state.total] {
            counts.attempts += 1;
            counts.too_early += u32::from(is_early);
            counts.accepted += u32::from(is_accepted);
        }
        if let Reaction::Error(refusal) = &reaction {
            let seconds = refusal.retry_after.as_ref().and_then(|text| text.parse().ok());
            device.not_before = seconds.map(|seconds| now + Duration::from_secs(seconds));
        }
        if is_accepted {
            if let Some(id) = id {
                *state.ids.entry(id.to_owned()).or_default() += 1;
            }
            if state.received.len() == KEPT {
                state.received.pop_front();
            }
            let (path, headers) = (head.uri.path().to_owned(), head.headers.clone());
            state.received.push_back(Received { token: token.to_owned(), path, headers, body: body.clone() });
        }
        reaction
    }
}

fn answer(reaction: Reaction, accepted: http::Response<Bytes>, error: impl FnOnce(&Refusal) -> Value) -> Answer {
    match reaction {
        Reaction::Accept => Answer::Response(accepted),
        Reaction::GoAway => Answer::GoAway(accepted),
        Reaction::Hang => Answer::Hang,
        Reaction::Close => Answer::Close,
        Reaction::RefuseStream => Answer::Refuse,
        Reaction::Error(refusal) => {
            let mut response = json(refusal.status, &error(&refusal));
            if let Some(value) = refusal.retry_after.and_then(|value| value.try_into().ok()) {
                response.headers_mut().insert(http::header::RETRY_AFTER, value);
            }
            Answer::Response(response)
        }
    }
}

fn json(status: u16, body: &Value) -> http::Response<Bytes> {
    let mut response = http::Response::new(Bytes::from(body.to_string()));
    *response.status_mut() = StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let kind = http::HeaderValue::from_static("application/json");
    response.headers_mut().insert(http::header::CONTENT_TYPE, kind);
    response
}

/// Encodes a key as the providers hand it out.
fn pem(label: &str, der: &[u8]) -> String {
    use base64::Engine as _;
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text.as_bytes().chunks(64).filter_map(|line| std::str::from_utf8(line).ok()).collect();
    format!("-----BEGIN {label}-----\n{}\n-----END {label}-----\n", lines.join("\n"))
}

/// Splits a JWT into the signed text, the signature, the header and the claims.
fn jwt(token: &str) -> Option<(&str, Vec<u8>, Value, Value)> {
    use base64::Engine as _;
    let decode = |text: &str| base64::engine::general_purpose::URL_SAFE_NO_PAD.decode(text).ok();
    let (signed, signature) = token.rsplit_once('.')?;
    let (header, claims) = signed.split_once('.')?;
    let parse = |text: &str| serde_json::from_slice(&decode(text)?).ok();
    Some((signed, decode(signature)?, parse(header)?, parse(claims)?))
}
