//! What every feature stands on and none of them owns.

pub mod batches;
pub mod breaker;
pub mod clock;
pub mod config;
pub mod database;
pub mod lanes;
pub mod lease;
pub mod outage;
pub mod outbox;
pub mod outward;
pub mod page_cache;
pub mod random;
pub mod rate_limit;
pub mod reference;
pub mod sealed;
pub mod settings;
pub mod shutdown;
pub mod standard_webhooks;
pub mod stream;
pub mod telemetry;
pub mod user_limit;
pub mod zone;
