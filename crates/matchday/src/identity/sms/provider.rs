//! What every provider of text messages has in common: one way to send, one set of errors that says whose fault it
//! was, and one form of the reports that come back later.

use std::{fmt, time::Duration};

use futures_util::future::BoxFuture;
use http::{HeaderMap, Method};
use time::OffsetDateTime;

/// Their error codes are short numbers. Anything longer could be a phone number.
pub(super) const END_OF_CODES: u32 = 1_000_000;
/// How long a provider's identifier of a message may be. Theirs have up to 36 characters.
const LONGEST_ID: usize = 100;

/// A message to be sent.
#[derive(Clone, Copy)]
pub struct Outgoing<'a> {
    /// The phone number in E.164 form, with the plus sign.
    pub to: &'a str,
    /// What it says.
    pub text: &'a str,
    /// Our own identifier of this message. It comes back with its status, which is all there is to find the message
    /// by when the provider's answer never arrived. At most 40 characters: the least that all providers carry.
    pub reference: &'a str,
}

/// Without the number and the text: both must stay out of logs.
impl fmt::Debug for Outgoing<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("Outgoing").field("reference", &self.reference).finish_non_exhaustive()
    }
}

/// Somebody who delivers text messages.
pub trait Provider: Send + Sync {
    /// Its name in logs, metrics and the database.
    fn name(&self) -> &'static str;

    /// Hands one message over. Never tries twice: a message that timed out may have been sent.
    fn send<'a>(&'a self, message: &'a Outgoing<'a>) -> BoxFuture<'a, Result<Accepted, SendError>>;

    /// Verifies that the provider signed a delivery report, and parses it. Nothing of the request may be believed before:
    /// the route is open to the internet. Signatures are compared in constant time.
    fn verify_report(&self, request: &ReportRequest<'_>, now: OffsetDateTime) -> Result<StatusReport, CallbackError>;
}

/// A request to the report route of a provider, as received. The body has been limited to `http.body_limit`.
#[derive(Clone, Copy)]
pub struct ReportRequest<'a> {
    /// GET, HEAD or POST.
    pub method: &'a Method,
    /// The query, still encoded.
    pub query: Option<&'a str>,
    /// All headers.
    pub headers: &'a HeaderMap,
    /// The body. Empty unless the method is POST.
    pub body: &'a [u8],
}

/// A message that the provider took over. Whether it arrives is told by a [`StatusReport`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Accepted {
    /// The provider's identifier of the message.
    pub message_id: String,
}

/// Why a provider did not take a message.
///
/// The texts carry the provider's own error code and nothing else of its answer: providers repeat the phone number in
/// their explanations.
#[derive(Debug, thiserror::Error)]
pub enum SendError {
    /// This number cannot be texted: it is invalid, not a mobile one, or its owner wants no messages. Another provider
    /// would come to the same end and might charge for it.
    #[error("the number cannot receive text messages (code {code})")]
    Number {
        /// The provider's code.
        code: u32,
    },
    /// This provider, or our sender with it, does not reach the place of this number. Another provider may, and it
    /// says nothing of how this one is doing: people with such numbers must not be able to make it look broken.
    #[error("the provider does not serve this destination (code {code})")]
    NotServed {
        /// The provider's code.
        code: u32,
    },
    /// We send faster than the account may. Nothing was sent.
    #[error("the provider wants fewer messages at a time")]
    Throttled {
        /// How long to wait, if it said so.
        retry_after: Option<Duration>,
    },
    /// The provider could not be reached, or is not well.
    #[error("the provider is unavailable ({})", code.map_or_else(|| "no answer".to_owned(), |code| format!("code {code}")))]
    Unavailable {
        /// The provider's code or the HTTP status, if it answered.
        code: Option<u32>,
        /// What went wrong on the way, if it did not answer.
        source: Option<reqwest::Error>,
    },
    /// The provider did not answer in time. The message may have been sent.
    #[error("the provider did not answer in time")]
    TimedOut,
    /// The provider refuses us: wrong credentials, a sender that is not ours, no funds. Somebody has to look at the
    /// settings or the account.
    #[error("the provider refuses our account or our request (code {code})")]
    Misconfigured {
        /// The provider's code, or the HTTP status if it gave none.
        code: u32,
    },
    /// The provider answered something else than it documents. The message may have been sent.
    #[error("the provider's answer could not be understood (HTTP status {status})")]
    Unreadable {
        /// The HTTP status of the answer.
        status: u16,
    },
}

/// Why a provider could not be set up.
#[derive(Debug, thiserror::Error)]
pub enum SetupError {
    /// The base address is not one that requests can be sent to.
    #[error("the provider's address is not an http or https one")]
    BaseUrl,
    /// The HTTP client could not be made.
    #[error("the HTTP client could not be made")]
    Client(#[source] reqwest::Error),
}

/// What became of a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Delivery {
    /// The carrier says that it arrived.
    Delivered,
    /// It will not arrive.
    Failed {
        /// The provider's code, or the name of the status if it gave none.
        code: String,
    },
    /// Nothing final is known yet.
    Underway,
}

/// A provider's report about one message. Reports can come twice and out of order: a final one must not be undone by
/// one that says less.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StatusReport {
    /// The provider's identifier of the message.
    pub message_id: String,
    /// Our own identifier of it, if the report carries it.
    pub reference: Option<String>,
    /// What became of it.
    pub delivery: Delivery,
}

/// Why a status report is not believed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum CallbackError {
    /// The provider sends no reports, or lacks a setting that they are verified with.
    #[error("the provider is not set up to send status reports")]
    NotExpected,
    /// The provider does not send its reports by this method.
    #[error("status reports do not come by this method")]
    Method,
    /// There is no secret to check it with. An empty one would accept what anybody signs.
    #[error("no secret is set to check status reports with")]
    NoSecret,
    /// It carries no signature.
    #[error("the status report is not signed")]
    Unsigned,
    /// Its signature is wrong.
    #[error("the status report's signature is wrong")]
    Forged,
    /// It was signed too long ago, or ahead of our clock.
    #[error("the status report was not signed just now")]
    Stale,
    /// It is signed, but not what a status report looks like.
    #[error("the status report's {0} is missing or malformed")]
    Malformed(&'static str),
}

/// A provider's error code, if it can be one.
pub(super) fn error_code(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&code| code < END_OF_CODES)
}

/// The code of a failed delivery, or else the name of the status.
pub(super) fn failure(code: Option<&str>, status: &'static str) -> Delivery {
    let code = code.and_then(error_code).filter(|&code| code != 0);
    Delivery::Failed { code: code.map_or_else(|| status.to_owned(), |code| code.to_string()) }
}

/// Whether this can be a provider's identifier of a message.
pub(super) fn is_message_id(text: &str) -> bool {
    (1..=LONGEST_ID).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

/// The parameters of a query or of a form in a body.
pub(super) fn form(text: &[u8]) -> Vec<(String, String)> {
    url::form_urlencoded::parse(text).into_owned().collect()
}

/// The first parameter of that name.
pub(super) fn parameter<'a>(parameters: &'a [(String, String)], name: &str) -> Option<&'a str> {
    parameters.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str())
}
