//! Shared dependencies of services.

use std::{sync::Arc, time::Duration};

use sqlx::PgPool;
use tokio::sync::Notify;

use crate::{Environment, clock::Clock, random::Random, rate_limit::RateLimiter};

/// Dependencies that most services share. Cheap to clone.
#[derive(Clone)]
pub struct Core {
    pub env: Environment,
    pub db: PgPool,
    pub clock: Arc<dyn Clock>,
    pub random: Arc<dyn Random>,
    /// Limits shared by all processes.
    pub limits: RateLimiter,
    /// Notified when a message was written to the outbox in this process, so that the relay need not poll for it.
    pub outbox_written: Arc<Notify>,
    /// How long the database works on one statement.
    pub statement_timeout: Duration,
}

impl Core {
    /// The same with another clock.
    #[must_use]
    pub fn with_clock(&self, clock: Arc<dyn Clock>) -> Self {
        Self { clock, ..self.clone() }
    }
}
