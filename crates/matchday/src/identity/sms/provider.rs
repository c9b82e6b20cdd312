//! Interface that all SMS providers implement: sending, a common set of errors, and delivery reports in a common form.

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use time::OffsetDateTime;

/// Exclusive upper bound of provider error codes. A longer number could be a phone number.
pub(super) const END_OF_CODES: u32 = 1_000_000;
/// Maximum length of a provider's message id. The known ones have up to 36 characters.
const LONGEST_ID: usize = 100;

#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// Phone number in E.164 format, with the plus sign.
    pub to: &'a str,
    pub text: &'a str,
    /// Our id of this message, which the provider includes in reports. If the provider's response was lost, only this
    /// id matches a report to the message. At most 40 characters: the shortest limit of all providers.
    pub reference: &'a str,
}

/// Omits the number and the text, which must not appear in logs.
impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Outgoing").field("reference", &self.reference).finish_non_exhaustive()
    }
}

/// A service that delivers text messages.
pub trait Provider: Send + Sync {
    /// Name in logs, metrics and the database.
    fn name(&self) -> &'static str;

    /// Sends one message. Never retries: a message that timed out may have been sent.
    fn send<'a>(&'a self, message: &'a Outgoing<'a>) -> BoxFuture<'a, Result<Accepted, SendError>>;

    /// Verifies the provider's signature of a delivery report, then parses the report. The route is public, so no part
    /// of the request may be trusted before the signature is verified. Signatures are compared in constant time.
    fn verify_report(&self, request: &ReportRequest<'_>, now: OffsetDateTime) -> Result<StatusReport, CallbackError>;
}

/// Request to a provider's report route, as received. The body is limited to `http.body_limit`.
#[derive(Clone, Copy)]
pub struct ReportRequest<'a> {
    /// GET, HEAD or POST.
    pub method: &'a Method,
    /// Query string, still percent-encoded.
    pub query: Option<&'a str>,
    pub headers: &'a HeaderMap,
    /// Empty unless the method is POST.
    pub body: &'a [u8],
}

/// A message that the provider accepted. A [`StatusReport`] later shows whether it was delivered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The provider's id of the message.
    pub message_id: String,
}

/// Reason that a provider did not accept a message.
///
/// Error texts contain the provider's error code and no other part of its response, because providers repeat the phone
/// number in their explanations.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// The number cannot receive texts: it is invalid, not a mobile number, or its owner has opted out. Another
    /// provider would fail too and might charge for it.
    #[error("the number cannot receive text messages (code {code})")]
    Number {
        /// The provider's error code.
        code: u32,
    },
    /// This provider, or our sender there, does not serve the destination. Another provider may. The error does not
    /// count against the provider: users with unsupported numbers must not be able to open its circuit breaker.
    #[error("the provider does not serve this destination (code {code})")]
    NotServed {
        /// The provider's error code.
        code: u32,
    },
    /// The account exceeded the provider's rate limit. The message was not sent.
    #[error("the provider's rate limit was exceeded")]
    Throttled {
        /// Time to wait, if the provider specified it.
        retry_after: Option<Duration>,
    },
    /// The provider could not be reached or reported an internal error.
    #[error("the provider is unavailable ({})", code.map_or_else(|| "no response".to_owned(), |code| format!("code {code}")))]
    Unavailable {
        /// The provider's error code or the HTTP status, if it responded.
        code: Option<u32>,
        /// The transport error, if the provider did not respond.
        source: Option<reqwest::Error>,
    },
    /// The provider did not respond in time. The message may have been sent.
    #[error("the provider did not respond in time")]
    TimedOut,
    /// The provider rejected the account or the request: wrong credentials, an unknown sender, insufficient funds. An
    /// operator must check the settings or the account.
    #[error("the provider rejected the account or the request (code {code})")]
    Misconfigured {
        /// The provider's error code, or the HTTP status if it returned none.
        code: u32,
    },
    /// The response does not match the provider's documentation. The message may have been sent.
    #[error("the provider returned an unexpected response (HTTP status {status})")]
    Unreadable { status: u16 },
}

#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The base URL does not use HTTP or HTTPS.
    #[error("the provider's URL does not use http or https")]
    BaseUrl,
    #[error("the HTTP client could not be created")]
    Client(#[source] reqwest::Error),
}

/// Delivery status of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The carrier confirmed delivery.
    Delivered,
    /// The message will not be delivered.
    Failed {
        /// The provider's error code, or the name of the status if it returned none.
        code: String,
    },
    /// No final status yet.
    Underway,
}

/// A provider's report about one message. Reports can be duplicated or arrive out of order, so a report without a final
/// status must not overwrite a final one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReport {
    /// The provider's id of the message.
    pub message_id: String,
    /// Our id of the message, if the report contains it.
    pub reference: Option<String>,
    pub delivery: Delivery,
}

/// Reason that a delivery report was rejected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The provider sends no reports, or a setting to verify them is missing.
    #[error("the provider is not configured to send status reports")]
    NotExpected,
    /// The provider does not send reports with this HTTP method.
    #[error("the provider does not send status reports with this method")]
    Method,
    /// The secret is empty. An empty secret would accept reports that any caller signed.
    #[error("the secret for status reports is empty")]
    NoSecret,
    #[error("the status report is not signed")]
    Unsigned,
    /// The signature is wrong.
    #[error("the status report's signature is wrong")]
    Forged,
    /// The report was signed too long ago, or its time is ahead of our clock.
    #[error("the status report's timestamp is not current")]
    Stale,
    /// The signature is valid, but this field is missing or malformed.
    #[error("the status report's {0} is missing or malformed")]
    Malformed(&'static str),
}

/// Parses a provider's error code.
pub(super) fn error_code(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&code| code < END_OF_CODES)
}

/// A failed delivery with its error code, or with the name of the status if it has none.
pub(super) fn failure(code: Option<&str>, status: &'static str) -> Delivery {
    let code = code.and_then(error_code).filter(|&code| code != 0);
    Delivery::Failed { code: code.map_or_else(|| status.to_owned(), |code| code.to_string()) }
}

/// Whether the text is plausible as a provider's message id.
pub(super) fn is_message_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// Parses a query string or a form body.
pub(super) fn form(text: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text).into_owned().collect()
}

pub(super) fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}
