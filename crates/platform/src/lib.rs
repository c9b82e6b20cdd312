//! Infrastructure shared by all features: settings, database, messaging, rate limits, telemetry.

pub mod batches;
pub mod budget;
pub mod citus;
pub mod claims;
pub mod clock;
mod core;
pub mod database;
pub mod encryption;
mod environment;
pub mod lease;
pub mod outage;
pub mod outbound_http;
pub mod outbox;
pub mod page_cache;
pub mod random;
pub mod rate_limit;
pub mod reads;
pub mod redis_client;
pub mod settings;
pub mod shards;
pub mod shutdown;
pub mod single_flight;
pub mod standard_webhooks;
pub mod stream;
pub mod telemetry;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod timestamp;

pub use self::{core::Core, environment::Environment};
