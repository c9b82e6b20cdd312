//! Twilio Programmable Messaging: sends messages and verifies status reports.

use std::{sync::Arc, time::Duration};

use base64::{Engine as _, engine::general_purpose::STANDARD};
use futures_util::future::BoxFuture;
use hmac::{Hmac, KeyInit as _, Mac as _};
use http::Method;
use platform::{setting_group, settings::Secret};
use reqwest::Client;
use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use sha1::Sha1;
use time::OffsetDateTime;
use url::Url;

use super::{
    client,
    provider::{
        self, Accepted, CallbackError, Delivery, Outgoing, Provider, ReportRequest, SendError, SetupError,
        StatusReport, parameter,
    },
    registry::{Account, Registration, Setup},
};

pub const REGISTRATION: Registration = Registration {
    name: "twilio",
    reaches_phones: true,
    read: |source| AccountSettings::read(source).map(|account| Arc::new(account) as _),
};

setting_group! {
    /// Settings of a Twilio account.
    AccountSettings: "sms.twilio_" {
        /// Account SID, which starts with `AC`.
        account_sid: Option<String> = "",
        /// Auth token of the account. Twilio also signs its reports with it.
        auth_token: Option<Secret> = "",
        /// Sender: a number, or a messaging service `MG…`.
        from: Option<String> = "",
        /// Base URL of the Twilio API.
        url: Url = "https://api.twilio.com",
    }
}

impl Account for AccountSettings {
    fn required(&self) -> Vec<(&'static str, bool)> {
        vec![
            ("sms.twilio_account_sid", self.account_sid.is_some()),
            ("sms.twilio_auth_token", self.auth_token.is_some()),
            ("sms.twilio_from", self.from.is_some()),
        ]
    }

    fn open(&self, setup: Setup) -> Result<Box<dyn Provider>, SetupError> {
        let settings = Settings {
            account_sid: self.account_sid.clone().unwrap_or_default(),
            auth_token: self.auth_token.as_ref().map(|token| token.inner().clone()).unwrap_or_default(),
            from: Sender::parse(self.from.as_deref().unwrap_or_default()),
            base_url: self.url.clone(),
            status_callback: setup.report_url,
            timeout: setup.timeout,
        };
        Ok(Box::new(Twilio::new(settings)?))
    }
}

/// Header with the signature of a status report.
pub const SIGNATURE_HEADER: &str = "x-twilio-signature";

/// Query parameter of the callback URL that contains our reference. Twilio has no field for it.
const REFERENCE: &str = "reference";

/// Settings of the provider.
#[derive(Clone, Debug)]
pub struct Settings {
    /// Account SID, which starts with `AC`.
    pub account_sid: String,
    /// Authenticates requests to Twilio and verifies its reports.
    pub auth_token: SecretString,
    pub from: Sender,
    /// Base URL of the API.
    pub base_url: Url,
    /// Our public URL to which Twilio sends status reports.
    pub status_callback: Option<Url>,
    /// Time limit for sending one message.
    pub timeout: Duration,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Sender {
    /// A phone number, short code or alphanumeric sender of the account.
    Number(String),
    /// A messaging service, which selects a number suitable for the destination.
    MessagingService(String),
}

impl Sender {
    /// Distinguishes the id of a messaging service (`MG` and 32 hexadecimal digits) from other senders.
    pub fn parse(text: &str) -> Self {
        match text.strip_prefix("MG") {
            Some(rest) if rest.len() == 32 && rest.bytes().all(|byte| byte.is_ascii_hexdigit()) => {
                Self::MessagingService(text.to_owned())
            }
            _ => Self::Number(text.to_owned()),
        }
    }

    fn field(&self) -> (&'static str, &str) {
        match self {
            Self::Number(number) => ("From", number),
            Self::MessagingService(sid) => ("MessagingServiceSid", sid),
        }
    }
}

/// Sends messages through Twilio.
#[derive(Debug)]
pub struct Twilio {
    client: Client,
    endpoint: Url,
    settings: Settings,
}

#[derive(Deserialize)]
struct Created {
    sid: String,
}

#[derive(Deserialize)]
struct Refused {
    code: u32,
}

impl Twilio {
    pub fn new(settings: Settings) -> Result<Self, SetupError> {
        let path = ["2010-04-01", "Accounts", &settings.account_sid, "Messages.json"];
        let endpoint = client::endpoint(&settings.base_url, &path)?;
        Ok(Self { client: client::build(settings.timeout)?, endpoint, settings })
    }

    async fn create(&self, message: &Outgoing<'_>) -> Result<Accepted, SendError> {
        let callback = self.settings.status_callback.as_ref().map(|url| callback_url(url, message.reference));
        let mut form = vec![("To", message.to), self.settings.from.field(), ("Body", message.text)];
        form.extend(callback.as_ref().map(|url| ("StatusCallback", url.as_str())));
        let request = self
            .client
            .post(self.endpoint.clone())
            .basic_auth(&self.settings.account_sid, Some(self.settings.auth_token.expose_secret()))
            .form(&form);
        let response = client::send(request, self.settings.timeout).await?;
        if response.status.is_success() {
            return match serde_json::from_slice(&response.body) {
                Ok(Created { sid }) if provider::is_message_id(&sid) => Ok(Accepted { message_id: sid }),
                _ => Err(SendError::Unreadable { status: response.status.as_u16() }),
            };
        }
        Err(match serde_json::from_slice(&response.body) {
            Ok(Refused { code }) if code < provider::END_OF_CODES => refusal(code),
            _ => client::refused(response.status),
        })
    }
}

impl Provider for Twilio {
    fn name(&self) -> &'static str {
        REGISTRATION.name
    }

    fn send<'a>(&'a self, message: &'a Outgoing<'a>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(self.create(message))
    }

    /// Twilio signs the URL that we gave it, so reports can be verified only if our public URL is configured.
    fn verify_report(&self, request: &ReportRequest<'_>, _: OffsetDateTime) -> Result<StatusReport, CallbackError> {
        if request.method != Method::POST {
            return Err(CallbackError::Method);
        }
        let mut url = self.settings.status_callback.clone().ok_or(CallbackError::NotExpected)?;
        url.set_query(request.query);
        let signature = request.headers.get(SIGNATURE_HEADER).and_then(|value| value.to_str().ok());
        verify_status(&self.settings.auth_token, url.as_str(), signature, &provider::form(request.body))
    }
}

/// URL to which Twilio reports on the message with this reference.
pub fn callback_url(status_callback: &Url, reference: &str) -> Url {
    let mut url = status_callback.clone();
    url.query_pairs_mut().append_pair(REFERENCE, reference);
    url
}

/// Maps Twilio's error codes. Twilio keeps adding codes. Unlisted ones count as account problems: an operator must
/// check them, and the next provider is tried.
fn refusal(code: u32) -> SendError {
    match code {
        // Invalid; a short code; our own number; opted out; not a mobile number; a landline.
        21211 | 21265 | 21266 | 21610 | 21614 | 21635 => SendError::Number { code },
        // The region is disabled for the account or not served; our sender cannot reach this number.
        21408 | 21612 => SendError::NotServed { code },
        // Too many requests; full queue of the sender; rate limit of the account.
        20429 | 21611 | 63017 => SendError::Throttled { retry_after: None },
        _ => SendError::Misconfigured { code },
    }
}

/// Verifies Twilio's signature of a status report and parses the report.
///
/// `url` is the URL that Twilio called, exactly as we gave it to Twilio, including the query. Behind a proxy, the
/// caller must build it from the configured callback and the query of the request. `form` must contain all fields of
/// the body, because the signature covers all of them, including fields that Twilio may add in the future.
///
/// The signature covers no timestamp. A report can be replayed, but only repeats a status that was once true.
pub fn verify_status(
    auth_token: &SecretString,
    url: &str,
    signature: Option<&str>,
    form: &[(String, String)],
) -> Result<StatusReport, CallbackError> {
    if auth_token.expose_secret().is_empty() {
        return Err(CallbackError::NoSecret);
    }
    let signature = signature.filter(|text| !text.is_empty()).ok_or(CallbackError::Unsigned)?;
    let signature = STANDARD.decode(signature).map_err(|_| CallbackError::Forged)?;

    let mut parameters: Vec<_> = form.iter().collect();
    parameters.sort_unstable();
    // Twilio signs a repeated value once.
    parameters.dedup();
    // According to its documentation, Twilio does not consistently sign the port, so accept both forms.
    let [with, without] = with_and_without_port(url).map(|url| is_signed(auth_token, &url, &parameters, &signature));
    if with || without { report(url, form) } else { Err(CallbackError::Forged) }
}

/// Compares signatures in constant time.
fn is_signed(auth_token: &SecretString, url: &str, parameters: &[&(String, String)], signature: &[u8]) -> bool {
    let Ok(mut mac) = Hmac::<Sha1>::new_from_slice(auth_token.expose_secret().as_bytes()) else { return false };
    mac.update(url.as_bytes());
    for (name, value) in parameters {
        mac.update(name.as_bytes());
        mac.update(value.as_bytes());
    }
    mac.verify_slice(signature).is_ok()
}

fn report(url: &str, form: &[(String, String)]) -> Result<StatusReport, CallbackError> {
    let message_id = parameter(form, "MessageSid").filter(|id| provider::is_message_id(id));
    let message_id = message_id.ok_or(CallbackError::Malformed("MessageSid"))?.to_owned();
    let code = parameter(form, "ErrorCode");
    let delivery = match parameter(form, "MessageStatus").ok_or(CallbackError::Malformed("MessageStatus"))? {
        "delivered" | "read" => Delivery::Delivered,
        "undelivered" => provider::failure(code, "undelivered"),
        "failed" => provider::failure(code, "failed"),
        "canceled" => provider::failure(code, "canceled"),
        // Accepted, queued, sending, sent, and any intermediate status that Twilio may add.
        _ => Delivery::Underway,
    };
    let reference = Url::parse(url)
        .ok()
        .and_then(|url| url.query_pairs().find(|(name, _)| name == REFERENCE).map(|(_, value)| value.into_owned()));
    Ok(StatusReport { message_id, reference, delivery })
}

/// The URL with its port (the default port if it has none) and without. Works on the text, because parsing would change
/// the signed form.
fn with_and_without_port(url: &str) -> [String; 2] {
    let unchanged = || [url.to_owned(), url.to_owned()];
    let Some((scheme, rest)) = url.split_once("://") else { return unchanged() };
    let end = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    let (authority, path) = rest.split_at(end);
    let host_start = authority.rfind('@').map_or(0, |at| at + 1);
    // Colons of an IPv6 address are inside brackets.
    let port_start = authority.rfind(':').filter(|&colon| colon >= host_start && !authority[colon..].contains(']'));
    if let Some(colon) = port_start {
        return [url.to_owned(), format!("{scheme}://{}{path}", &authority[..colon])];
    }
    let port = if scheme.eq_ignore_ascii_case("https") { 443 } else { 80 };
    [format!("{scheme}://{authority}:{port}{path}"), url.to_owned()]
}
