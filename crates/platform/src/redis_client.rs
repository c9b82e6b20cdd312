//! Connections to Redis, with timeouts.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use redis::{
    AsyncConnectionConfig, FromRedisValue, Pipeline, RedisResult,
    aio::{ConnectionManager, ConnectionManagerConfig, MultiplexedConnection},
};

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

/// A connection that knows the run id of its server, for reading data that is valid only during one run.
///
/// A connection does not survive a restart of the server, so the run id is read once for each connection instead of
/// with every call.
pub struct RunConnection {
    client: redis::Client,
    options: AsyncConnectionConfig,
    current: Mutex<Option<Connected>>,
    /// Held while connecting, so that callers share one attempt.
    connecting: tokio::sync::Mutex<()>,
}

#[derive(Clone)]
struct Connected {
    connection: MultiplexedConnection,
    run: Arc<str>,
}

impl RunConnection {
    /// Creates a connection that is established on first use.
    pub fn new(config: &Settings) -> RedisResult<Self> {
        let options = AsyncConnectionConfig::new()
            .set_connection_timeout(Some(config.timeout))
            .set_response_timeout(Some(config.timeout));
        let client = redis::Client::open(config.url.expose())?;
        Ok(Self { client, options, current: Mutex::default(), connecting: tokio::sync::Mutex::default() })
    }

    /// Runs commands in one round trip. Returns their responses and the run id of the server that gave them. Commands
    /// must be safe to repeat: if the connection broke since its last use, they are sent again over a new one.
    pub async fn query<T: FromRedisValue>(&self, commands: &Pipeline) -> RedisResult<(T, Arc<str>)> {
        if let Some(connected) = self.current() {
            match self.run(connected, commands).await {
                Err(error) if error.is_unrecoverable_error() && !error.is_timeout() => {}
                response => return response,
            }
        }
        let connected = self.connect().await?;
        self.run(connected, commands).await
    }

    async fn run<T: FromRedisValue>(&self, connected: Connected, commands: &Pipeline) -> RedisResult<(T, Arc<str>)> {
        let Connected { mut connection, run } = connected;
        match commands.query_async(&mut connection).await {
            Ok(responses) => Ok((responses, run)),
            Err(error) => {
                // Also after a timeout: the server may hang, and its replacement is reached by a new connection.
                if error.is_unrecoverable_error() || error.is_timeout() {
                    self.current.lock().unwrap_or_else(PoisonError::into_inner).take();
                }
                Err(error)
            }
        }
    }

    async fn connect(&self) -> RedisResult<Connected> {
        let _turn = self.connecting.lock().await;
        if let Some(connected) = self.current() {
            return Ok(connected);
        }
        let mut connection = self.client.get_multiplexed_async_connection_with_config(&self.options).await?;
        let info: String = redis::cmd("INFO").arg("server").query_async(&mut connection).await?;
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:")).unwrap_or_default().trim().into();
        let connected = Connected { connection, run };
        *self.current.lock().unwrap_or_else(PoisonError::into_inner) = Some(connected.clone());
        Ok(connected)
    }

    fn current(&self) -> Option<Connected> {
        self.current.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::settings;

    #[tokio::test]
    async fn broken_connection_is_replaced() {
        let connection = RunConnection::new(&settings(&[], Settings::read)).expect("a valid URL");
        let mut id = redis::pipe();
        id.cmd("CLIENT").arg("ID");
        let ((first,), run): ((u64,), _) = connection.query(&id).await.expect("connected");
        assert_eq!(run.len(), 40);
        assert_eq!(connection.query::<(u64,)>(&id).await.expect("connected").0, (first,), "the connection is kept");
        let (mut other, _) = crate::testing::redis_for_tests();
        redis::cmd("CLIENT").arg("KILL").arg("ID").arg(first).exec_async(&mut other).await.expect("killed");
        let ((second,), again) = connection.query::<(u64,)>(&id).await.expect("connected again");
        assert_ne!(second, first);
        assert_eq!(again, run, "the server did not restart");
    }

    #[tokio::test]
    async fn unreachable_server_is_an_error() {
        let changes = [("MATCHDAY_REDIS__URL", "redis://127.0.0.1:1"), ("MATCHDAY_REDIS__TIMEOUT", "200ms")];
        let connection = RunConnection::new(&settings(&changes, Settings::read)).expect("a valid URL");
        let mut ping = redis::pipe();
        ping.cmd("PING");
        assert!(connection.query::<(String,)>(&ping).await.is_err());
    }
}
