//! Provider for development: logs that a message would have been sent, and sends nothing.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use time::OffsetDateTime;

use super::{
    provider::{Accepted, CallbackError, Outgoing, Provider, ReportRequest, SendError, SetupError, StatusReport},
    registry::{Account, Registration, Setup},
};

pub const REGISTRATION: Registration =
    Registration { name: "console", reaches_phones: false, read: |_| Some(Arc::new(Inbox)) };

/// Settings of the console provider, which has none.
#[derive(Debug)]
struct Inbox;

impl Account for Inbox {
    fn required(&self) -> Vec<(&'static str, bool)> {
        Vec::new()
    }

    fn open(&self, _: Setup) -> Result<Box<dyn Provider>, SetupError> {
        Ok(Box::new(Console::new("/api/logs/sms")))
    }
}

/// Writes a log line instead of sending. The line contains neither the number nor the text: logs are kept and shared,
/// and a service that was deployed with this provider by mistake must not leak codes.
#[derive(Clone, Debug)]
pub struct Console {
    read_at: String,
}

impl Console {
    /// `read_at` is logged to show developers where to read the message.
    pub fn new(read_at: impl Into<String>) -> Self {
        Self { read_at: read_at.into() }
    }
}

impl Provider for Console {
    fn name(&self) -> &'static str {
        REGISTRATION.name
    }

    fn send<'a>(&'a self, message: &'a Outgoing<'a>) -> BoxFuture<'a, Result<Accepted, SendError>> {
        Box::pin(async move {
            tracing::info!(
                reference = message.reference,
                characters = message.text.chars().count(),
                read_at = self.read_at,
                "console provider logged a text message instead of sending it"
            );
            Ok(Accepted { message_id: format!("console-{}", message.reference) })
        })
    }

    fn verify_report(&self, _: &ReportRequest<'_>, _: OffsetDateTime) -> Result<StatusReport, CallbackError> {
        Err(CallbackError::NotExpected)
    }
}
