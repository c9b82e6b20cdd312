//! Connections to Redis.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use crate::{
    section,
    settings::{Conditions, SecretUrl},
};

section! {
    /// Redis: what may be lost (rate limits, leaderboards). It must not throw keys away by itself: `noeviction`.
    redis: Settings {
        /// How to reach it.
        url: SecretUrl,
        /// Stands before every key, so that several deployments can share a server.
        prefix: String = "matchday",
        /// How long a call may take before the process decides by itself.
        timeout: Duration = "2s",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![prefix_condition("redis.prefix", &self.prefix)]
    }
}

/// Prefixes are part of Redis keys and of NATS subjects, where dots and spaces have a meaning.
pub(crate) fn prefix_condition(name: &str, prefix: &str) -> (bool, String) {
    let fits = !prefix.is_empty() && prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (fits, format!("{name} is not made of lower-case letters, digits and underscores"))
}

/// A connection that is made when it is first used and comes back by itself.
pub fn connect(config: &Settings) -> redis::RedisResult<ConnectionManager> {
    let client = redis::Client::open(config.url.expose())?;
    let options = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(config.timeout))
        .set_response_timeout(Some(config.timeout))
        .set_number_of_retries(1);
    ConnectionManager::new_lazy_with_config(client, options)
}
