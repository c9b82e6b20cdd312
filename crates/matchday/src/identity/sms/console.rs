//! A provider for development: sends nothing, and logs that it would have.

use futures_util::future::BoxFuture;

use super::provider::{Accepted, Outgoing, Provider, SendError};

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
        "console"
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
}
