//! The transactional outbox. A message is written in the transaction that changes the state, and the [relay](Relay)
//! publishes it to NATS afterwards. So a message is published if and only if its change was committed: at least once,
//! and in order for each key.

mod relay;
mod settings;
mod store;
#[cfg(test)]
mod tests;

use serde::Serialize;
use sqlx::PgConnection;

pub use self::settings::Settings;
pub use relay::{PULSE, Relay, forward, forward_before_exit, id_of, time_of};
pub use store::{NewFact, delete_new_facts, has_new_facts, lock_new_facts, take_all};

/// A message to be published. Lock the row that `key` identifies before writing one. Message ids, and so the order of
/// publication, then follow the order of the changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Ordering key, like `event:12`. Messages with the same key are published in order.
    pub key: String,
    /// The subject without the deployment's prefix.
    pub subject: &'static str,
    pub payload: serde_json::Value,
    /// Whether the message is also a fact for the log that app backends read.
    is_logged: bool,
}

impl Message {
    pub fn new(subject: &'static str, key: impl Into<String>, payload: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { key: key.into(), subject, payload: serde_json::to_value(payload)?, is_logged: false })
    }

    /// Also adds the message to the log of facts.
    #[must_use]
    pub fn logged(self) -> Self {
        Self { is_logged: true, ..self }
    }
}

/// Writes messages in the caller's transaction.
pub async fn enqueue(connection: &mut PgConnection, messages: &[Message]) -> sqlx::Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    store::insert(connection, messages).await
}
