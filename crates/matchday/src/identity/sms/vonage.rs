//! Vonage's SMS API: sending, and believing its delivery receipts.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::{Method, header::CONTENT_TYPE};
use platform::{setting_group, settings::Secret};
use reqwest::Client;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde_json::Value;
use sha2::Sha256;
use time::OffsetDateTime;
use url::Url;

use super::{
    client, gsm7,
    provider::{
        self, Accepted, CallbackError, Delivery, Outgoing, Provider, ReportRequest, SendError, SetupError,
        StatusReport, error_code, parameter,
    },
    registry::{Account, Registration, Setup},
};

/// See [`super::PROVIDERS`].
pub const REGISTRATION: Registration = Registration {
    name: "vonage",
    reaches_phones: true,
    read: |source| AccountSettings::read(source).map(|account| Arc::new(account) as _),
};

setting_group! {
    /// Settings of a Vonage account.
    AccountSettings: "sms.vonage_" {
        /// Vonage's name for the account.
        api_key: Option<String> = "",
        /// Its secret.
        api_secret: Option<Secret> = "",
        /// The sender: a number or a name.
        from: Option<String> = "",
        /// What Vonage signs its reports with (HMAC-SHA256). Empty: its reports are refused.
        signature_secret: Option<Secret> = "",
        /// Where Vonage is.
        url: Url = "https://rest.nexmo.com",
    }
}

impl Account for AccountSettings {
    fn required(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("sms.vonage_api_key", self.api_key.is_some()),
            ("sms.vonage_api_secret", self.api_secret.is_some()),
            ("sms.vonage_from", self.from.is_some()),
        ]
    }

    fn open(&self, setup: Setup) -> Result<Box<dyn Provider>, SetupError> {
        let settings = Settings {
            api_key: self.api_key.clone().unwrap_or_default(),
            api_secret: self.api_secret.as_ref().map(|secret| secret.inner().clone()).unwrap_or_default(),
            from: self.from.clone().unwrap_or_default(),
            base_url: self.url.clone(),
            callback: setup.report_url,
            signature_secret: self.signature_secret.as_ref().map(|secret| secret.inner().clone()),
            timeout: setup.timeout,
        };
        Ok(Box::new(Vonage::new(settings)?))
    }
}

/// How much of our own reference a message carries.
const LONGEST_REFERENCE: usize = 40;

/// How far a receipt's time may be from ours, in seconds.
const TOLERANCE: u64 = 5 * 60;

/// How to use an account.
#[derive(Clone, Debug)]
pub struct Settings {
    /// The account.
    pub api_key: String,
    /// Authenticates us to Vonage.
    pub api_secret: SecretString,
    /// Who the messages come from: a number or a name, as the destination allows.
    pub from: String,
    /// Where the API is.
    pub base_url: Url,
    /// Where Vonage reports what became of a message, instead of the account's own setting.
    pub callback: Option<Url>,
    /// Verifies reports. Without it they are refused.
    pub signature_secret: Option<SecretString>,
    /// How long sending may take.
    pub timeout: Duration,
}

/// Sends by Vonage.
#[derive(Debug)]
pub struct Vonage {
    client: Client,
    endpoint: Url,
    settings: Settings,
}

/// One part per SMS that the text needs.
#[derive(Deserialize)]
struct Parts {
    messages: Vec<Part>,
}

#[derive(Deserialize)]
struct Part {
    status: Value,
    #[serde(rename = "message-id", default)]
    message_id: String,
}

impl Vonage {
    /// Sends from this account.
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        let endpoint = client::endpoint(&settings.base_url, &["sms", "json"])?;
        Ok(Self { client: client::build(settings.timeout)?, endpoint, settings })
    }

    async fn submit(&self, message: &Outgoing<'_>) -> Result<Accepted, SendError> {
        let mut form = vec![
            ("api_key", self.settings.api_key.as_str()),
            ("api_secret", self.settings.api_secret.expose_secret()),
            ("from", &self.settings.from),
            ("to", message.to.strip_prefix('+').unwrap_or(message.to)),
            ("text", message.text),
            // What is outside of the seven-bit alphabet would arrive as question marks otherwise.
            ("type", if gsm7::septets(message.text).is_some() { "text" } else { "unicode" }),
        ];
        form.extend(self.settings.callback.as_ref().map(|url| ("callback", url.as_str())));
        // A longer one would refuse the whole message, and a part of it would find nothing.
        if message.reference.chars().count() <= LONGEST_REFERENCE {
            form.push(("client-ref", message.reference));
        }
        let request = self.client.post(self.endpoint.clone()).form(&form);
        let answer = client::ask(request, self.settings.timeout).await?;
        let Ok(Parts { messages }) = serde_json::from_slice(&answer.body) else {
            return Err(client::refused(answer.status));
        };
        // Errors come with status 200 too. A text that arrives in part is of no use: one refusal is enough.
        for part in &messages {
            match status_code(&part.status) {
                Some(0) => {}
                Some(code) => return Err(refusal(code)),
                None => return Err(SendError::Unreadable { status: answer.status.as_u16() }),
            }
        }
        match messages.into_iter().next() {
            Some(Part { message_id, .. }) if provider::is_message_id(&message_id) => Ok(Accepted { message_id }),
            _ => Err(client::refused(answer.status)),
        }
    }
}

impl Provider for Vonage {
    fn name(&self) -> &'static str {
        REGISTRATION.name
    }

    fn send<'a>(&'a self, message: &'a Outgoing<'a>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(self.submit(message))
    }

    /// The account's dashboard chooses the form of reports: a GET with a query, or a POST with a form or with JSON.
    fn verify_report(&self, request: &ReportRequest<'_>, now: OffsetDateTime) -> Result<StatusReport, CallbackError> {
        let secret = self.settings.signature_secret.as_ref().ok_or(CallbackError::NotExpected)?;
        let content_type = request.headers.get(CONTENT_TYPE);
        let parameters = if request.method != Method::POST {
            provider::form(request.query.unwrap_or_default().as_bytes())
        } else if content_type.is_some_and(|kind| kind.as_bytes().starts_with(b"application/json")) {
            parameters_of_json(request.body)?
        } else {
            provider::form(request.body)
        };
        verify_status(secret, &parameters, now)
    }
}

/// Documented as a text; a number would mean the same.
fn status_code(status: &Value) -> Option<u32> {
    match status {
        Value::String(text) => error_code(text),
        Value::Number(number) => error_code(&number.to_string()),
        _ => None,
    }
}

/// Whose fault a refusal is. Codes that are not listed are taken to be about the account.
fn refusal(code: u32) -> SendError {
    match code {
        // Faster than the account may; too many connections.
        1 | 10 => SendError::Throttled { retry_after: None },
        5 => SendError::Unavailable { code: Some(code), source: None },
        // A prefix that does not exist; barred; deactivated.
        6 | 7 | 33 => SendError::Number { code },
        // Our sender is not allowed there: North America wants a number of its own.
        15 => SendError::NotServed { code },
        // 2, 3, 12, 22 and 23: the request; 4, 8, 9, 11, 14, 29 and 32: the account.
        _ => SendError::Misconfigured { code },
    }
}

/// Believes a delivery receipt if Vonage signed it, with SHA-256 HMAC, within five minutes of `now`.
///
/// `parameters` is everything in the query or in the body: everything is signed. The account must have signed webhooks
/// switched on, and that method chosen; its default is a plain MD5, which is not accepted.
pub fn verify_status(
    signature_secret: &SecretString,
    parameters: &[(String, String)],
    now: OffsetDateTime,
) -> Result<StatusReport, CallbackError> {
    if signature_secret.expose_secret().is_empty() {
        return Err(CallbackError::NoSecret);
    }
    let signature = parameter(parameters, "sig").filter(|text| !text.is_empty()).ok_or(CallbackError::Unsigned)?;
    // Vonage writes capitals, its libraries small letters; either is read.
    let signature = hex::decode(signature).map_err(|_| CallbackError::Forged)?;
    if !is_signed(signature_secret, parameters, &signature) {
        return Err(CallbackError::Forged);
    }
    let timestamp = parameter(parameters, "timestamp").and_then(|text| text.parse::<i64>().ok());
    let timestamp = timestamp.ok_or(CallbackError::Malformed("timestamp"))?;
    // Also ahead of our clock, or such a receipt could be replayed for as long.
    if now.unix_timestamp().abs_diff(timestamp) > TOLERANCE {
        return Err(CallbackError::Stale);
    }
    report(parameters)
}

/// The parameters of a receipt that came as JSON.
pub fn parameters_of_json(body: &[u8]) -> Result<Vec<(String, String)>, CallbackError> {
    let object: serde_json::Map<String, Value> =
        serde_json::from_slice(body).map_err(|_| CallbackError::Malformed("body"))?;
    object
        .into_iter()
        .map(|(name, value)| match value {
            Value::String(text) => Ok((name, text)),
            Value::Number(_) | Value::Bool(_) => Ok((name, value.to_string())),
            _ => Err(CallbackError::Malformed("body")),
        })
        .collect()
}

/// In constant time.
fn is_signed(secret: &SecretString, parameters: &[(String, String)], signature: &[u8]) -> bool {
    let mut sorted: Vec<_> = parameters.iter().filter(|(name, _)| name != "sig").collect();
    sorted.sort_unstable();
    // In what is signed, names are not told from values but by these two characters, which are masked in values only,
    // and a name that comes twice could be read either way. Vonage sends no such names.
    let ambiguous = sorted.iter().any(|(name, _)| name.contains(['&', '=']));
    let repeated = sorted.windows(2).any(|pair| pair[0].0 == pair[1].0);
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(secret.expose_secret().as_bytes()) else { return false };
    for (name, value) in sorted {
        mac.update(format!("&{name}={}", value.replace(['&', '='], "_")).as_bytes());
    }
    mac.verify_slice(signature).is_ok() && !ambiguous && !repeated
}

fn report(parameters: &[(String, String)]) -> Result<StatusReport, CallbackError> {
    let message_id = parameter(parameters, "messageId").filter(|id| provider::is_message_id(id));
    let message_id = message_id.ok_or(CallbackError::Malformed("messageId"))?.to_owned();
    let code = parameter(parameters, "err-code");
    let delivery = match parameter(parameters, "status").ok_or(CallbackError::Malformed("status"))? {
        "delivered" => Delivery::Delivered,
        "expired" => provider::failure(code, "expired"),
        "failed" => provider::failure(code, "failed"),
        "rejected" => provider::failure(code, "rejected"),
        // Accepted and buffered are on their way. What is unknown is not known to have failed.
        _ => Delivery::Underway,
    };
    let reference = parameter(parameters, "client-ref").map(ToOwned::to_owned);
    Ok(StatusReport { message_id, reference, delivery })
}
