//! Handles shared by most services.

use std::sync::Arc;

use sqlx::PgPool;
use tokio::sync::Notify;

use crate::{
    Environment, clock::Clock, database::WriterSettings, random::Random, rate_limit::RateLimiter, reads::Reads,
    shards::Shards,
};

/// The database pool, clock and other handles that most services need. Cheap to clone.
#[derive(Clone)]
pub struct Core {
    pub env: Environment,
    pub db: PgPool,
    /// Databases for lists, which may be a little old.
    pub reads: Reads,
    /// Shards of the database, if it is distributed.
    pub shards: Shards,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Rate limits shared by all processes.
    pub limits: RateLimiter,
    /// Notified after this process wrote a message to the outbox, so the relay publishes it without waiting for a
    /// poll.
    pub outbox_written: Arc<Notify>,
    pub writer_settings: WriterSettings,
}

impl Core {
    /// Returns a copy with another clock.
    #[must_use]
    pub fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self.clone() }
    }
}
