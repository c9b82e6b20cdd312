//! Connections to Redis, with timeouts.

use std::time::Duration;

use redis::aio::{ConnectionManager, ConnectionManagerConfig};

use crate::{
    section,
    settings::{Conditions, SecretUrl},
};

section! {
    /// Redis, for data that can be rebuilt (rate limits, leaderboards). Set its eviction policy to `noeviction`.
    redis: Settings {
        /// Connection URL of the server.
        url: SecretUrl,
        /// Prefix of every key, so several deployments can share a server.
        prefix: String = "matchday",
        /// Maximum duration of a call. Afterwards the process decides without Redis.
        timeout: Duration = "2s",
    }
}

impl Settings {
    pub fn conditions(&self) -> Conditions {
        vec![prefix_condition("redis.prefix", &self.prefix)]
    }
}

/// Prefixes become part of Redis keys and NATS subjects, where dots and spaces have a meaning.
pub(crate) fn prefix_condition(name: &str, prefix: &str) -> (bool, String) {
    let fits = !prefix.is_empty() && prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_');
    (fits, format!("{name} may contain only lower-case letters, digits and underscores"))
}

/// Creates a connection that is established on first use and reconnects automatically.
pub fn connect(config: &Settings) -> redis::RedisResult<ConnectionManager> {
    let client = redis::Client::open(config.url.expose())?;
    let options = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(config.timeout))
        .set_response_timeout(Some(config.timeout))
        .set_number_of_retries(1);
    ConnectionManager::new_lazy_with_config(client, options)
}
