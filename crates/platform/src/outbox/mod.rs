//! The transactional outbox: what others must learn is written in the transaction that changes the state, and carried
//! to NATS by a [relay](Relay) afterwards. So a message is published if and only if its change was committed, at
//! least once, and in order for each key.

mod relay;
mod settings;
mod store;
#[cfg(test)]
mod tests;

use serde::Serialize;
use sqlx::PgConnection;

pub use self::settings::Settings;
pub use relay::{Relay, time_of};
pub use store::take_all;

/// A message to be published. Lock the row that `key` stands for before writing one: then the ids, and with them the
/// order of publication, follow the order of the changes.
#[derive(Clone, Debug, PartialEq)]
pub struct Message {
    /// Messages with the same key keep their order, as in `event:12`.
    pub key: String,
    /// The subject without the deployment's prefix.
    pub subject: &'static str,
    /// The body.
    pub payload: serde_json::Value,
}

impl Message {
    /// A message with this body.
    pub fn new(subject: &'static str, key: impl Into<String>, payload: &impl Serialize) -> serde_json::Result<Self> {
        Ok(Self { key: key.into(), subject, payload: serde_json::to_value(payload)? })
    }
}

/// Writes messages in the caller's transaction.
pub async fn enqueue(connection: &mut PgConnection, messages: &[Message]) -> sqlx::Result<()> {
    if messages.is_empty() {
        return Ok(());
    }
    store::insert(connection, messages).await
}
