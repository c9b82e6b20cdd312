//! A provider for development: sends nothing, and logs that it would have.

use std::sync::Arc;

use futures_util::future::BoxFuture;
use time::OffsetDateTime;

use super::{
    provider::{Accepted, CallbackError, Outgoing, Provider, ReportRequest, SendError, SetupError, StatusReport},
    registry::{Account, Registration, Setup},
};

/// See [`super::PROVIDERS`].
pub const REGISTRATION: Registration =
    Registration { name: "console", reaches_phones: false, read: |_| Some(Arc::new(Inbox)) };

/// The console has no settings.
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

/// "Sends" by writing a line to the log. The line has neither the number nor the text: logs are kept and shared, and a
/// service that was deployed with this provider by mistake must not leak codes.
#[derive(Clone, Debug)]
pub struct Console {
    read_at: String,
}

impl Console {
    /// `read_at` tells developers where they find the message instead.
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
                "a text message was written, but no provider is set to send it"
            );
            Ok(Accepted { message_id: format!("console-{}", message.reference) })
        })
    }

    fn verify_report(&self, _: &ReportRequest<'_>, _: OffsetDateTime) -> Result<StatusReport, CallbackError> {
        Err(CallbackError::NotExpected)
    }
}
