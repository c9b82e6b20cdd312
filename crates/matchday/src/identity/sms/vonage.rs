//! Vonage SMS API: sends messages and verifies delivery receipts.

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

pub const REGISTRATION: Registration = Registration {
    name: "vonage",
    reaches_phones: true,
    read: |source| AccountSettings::read(source).map(|account| Arc::new(account) as _),
};

setting_group! {
    /// Settings of a Vonage account.
    AccountSettings: "sms.vonage_" {
        /// API key of the account.
        api_key: Option<String> = "",
        /// API secret of the account.
        api_secret: Option<Secret> = "",
        /// Sender: a number or a name.
        from: Option<String> = "",
        /// Secret with which Vonage signs its reports (HMAC-SHA256). Empty: reports are refused.
        signature_secret: Option<Secret> = "",
        /// Base URL of the Vonage API.
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

/// Maximum length of our reference in characters.
const LONGEST_REFERENCE: usize = 40;

/// Maximum difference between a receipt's time and ours, in seconds.
const TOLERANCE: u64 = 5 * 60;

/// Settings of the provider.
#[derive(Clone, Debug)]
pub struct Settings {
    /// API key of the account.
    pub api_key: String,
    /// Authenticates requests to Vonage.
    pub api_secret: SecretString,
    /// Sender: a number or a name, as the destination allows.
    pub from: String,
    /// Base URL of the API.
    pub base_url: Url,
    /// URL to which Vonage sends receipts. It overrides the setting of the account.
    pub callback: Option<Url>,
    /// Verifies receipts. Without it, they are refused.
    pub signature_secret: Option<SecretString>,
    /// Time limit for sending one message.
    pub timeout: Duration,
}

/// Sends messages through Vonage.
#[derive(Debug)]
pub struct Vonage {
    client: Client,
    endpoint: Url,
    settings: Settings,
}

/// Response to a request, with one part for each SMS that the text needs.
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
            // With `text`, characters outside the seven-bit alphabet would arrive as question marks.
            ("type", if gsm7::septets(message.text).is_some() { "text" } else { "unicode" }),
        ];
        form.extend(self.settings.callback.as_ref().map(|url| ("callback", url.as_str())));
        // Vonage would reject the message with a longer reference, and a truncated one could not be matched.
        if message.reference.chars().count() <= LONGEST_REFERENCE {
            form.push(("client-ref", message.reference));
        }
        let request = self.client.post(self.endpoint.clone()).form(&form);
        let response = client::send(request, self.settings.timeout).await?;
        let Ok(Parts { messages }) = serde_json::from_slice(&response.body) else {
            return Err(client::refused(response.status));
        };
        // Errors also have HTTP status 200. A partially delivered text is useless, so one refused part fails the
        // message.
        for part in &messages {
            match status_code(&part.status) {
                Some(0) => {}
                Some(code) => return Err(refusal(code)),
                None => return Err(SendError::Unreadable { status: response.status.as_u16() }),
            }
        }
        match messages.into_iter().next() {
            Some(Part { message_id, .. }) if provider::is_message_id(&message_id) => Ok(Accepted { message_id }),
            _ => Err(client::refused(response.status)),
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

    /// The account's dashboard selects the format of reports: GET with a query, or POST with a form or JSON.
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

/// Documented as a string; a number is accepted too.
fn status_code(status: &Value) -> Option<u32> {
    match status {
        Value::String(text) => error_code(text),
        Value::Number(number) => error_code(&number.to_string()),
        _ => None,
    }
}

/// Maps Vonage's error codes. Unlisted codes count as account problems.
fn refusal(code: u32) -> SendError {
    match code {
        // Rate limit of the account; too many connections.
        1 | 10 => SendError::Throttled { retry_after: None },
        5 => SendError::Unavailable { code: Some(code), source: None },
        // Nonexistent prefix; barred; deactivated.
        6 | 7 | 33 => SendError::Number { code },
        // The destination does not allow our sender: North America requires a local number.
        15 => SendError::NotServed { code },
        // Request errors: 2, 3, 12, 22 and 23. Account errors: 4, 8, 9, 11, 14, 29 and 32.
        _ => SendError::Misconfigured { code },
    }
}

/// Verifies a delivery receipt: Vonage must have signed it with SHA-256 HMAC within five minutes of `now`.
///
/// `parameters` must contain all fields of the query or body, because the signature covers all of them. The account
/// must have signed webhooks enabled with this method; the default, plain MD5, is not accepted.
pub fn verify_status(
    signature_secret: &SecretString,
    parameters: &[(String, String)],
    now: OffsetDateTime,
) -> Result<StatusReport, CallbackError> {
    if signature_secret.expose_secret().is_empty() {
        return Err(CallbackError::NoSecret);
    }
    let signature = parameter(parameters, "sig").filter(|text| !text.is_empty()).ok_or(CallbackError::Unsigned)?;
    // Vonage sends upper-case digits, its libraries lower-case ones; `hex` accepts both.
    let signature = hex::decode(signature).map_err(|_| CallbackError::Forged)?;
    if !is_signed(signature_secret, parameters, &signature) {
        return Err(CallbackError::Forged);
    }
    let timestamp = parameter(parameters, "timestamp").and_then(|text| text.parse::<i64>().ok());
    let timestamp = timestamp.ok_or(CallbackError::Malformed("timestamp"))?;
    // Also reject times ahead of our clock; otherwise the receipt could be replayed until that time.
    if now.unix_timestamp().abs_diff(timestamp) > TOLERANCE {
        return Err(CallbackError::Stale);
    }
    report(parameters)
}

/// Parses the parameters of a JSON receipt.
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

/// Compares signatures in constant time.
fn is_signed(secret: &SecretString, parameters: &[(String, String)], signature: &[u8]) -> bool {
    let mut sorted: Vec<_> = parameters.iter().filter(|(name, _)| name != "sig").collect();
    sorted.sort_unstable();
    // In the signed text, only `&` and `=` separate names from values, and they are masked in values only. A name that
    // contains one, or occurs twice, would make the text ambiguous. Vonage does not send these names.
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
        // `accepted` and `buffered` messages are on their way. An unknown status is not a known failure.
        _ => Delivery::Underway,
    };
    let reference = parameter(parameters, "client-ref").map(ToOwned::to_owned);
    Ok(StatusReport { message_id, reference, delivery })
}
