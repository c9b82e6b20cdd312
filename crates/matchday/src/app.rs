//! What every handler, worker and command shares.

use std::{ops::Deref, sync::Arc};

use anyhow::Context as _;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use sqlx::PgPool;
use tokio::sync::Notify;

use crate::{
    events::service::Events,
    fixtures::service::Fixtures,
    http::Checks,
    platform::{
        clock::{Clock, SystemClock},
        config::Config,
        database,
        random::{Random, SystemRandom},
        rate_limit::RateLimiter,
        shutdown::Shutdown,
        stream::Streams,
    },
    sessions::service::Sessions,
    teams::service::Teams,
};

/// The application. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Parts>);

/// Its parts.
pub struct Parts {
    /// The configuration it was started with.
    pub config: Config,
    /// PostgreSQL.
    pub db: PgPool,
    /// Redis.
    pub redis: ConnectionManager,
    /// NATS.
    pub streams: Streams,
    /// For calls to other services.
    pub web: reqwest::Client,
    /// The time.
    pub clock: Arc<dyn Clock>,
    /// Randomness.
    pub random: Arc<dyn Random>,
    /// Limits shared by all processes.
    pub limits: RateLimiter,
    /// Which parts answer.
    pub checks: Checks,
    /// Notified when a message was written to the outbox here.
    pub outbox_written: Arc<Notify>,
    /// How the process ends.
    pub shutdown: Shutdown,
    /// Logins.
    pub sessions: Sessions,
    /// Matches.
    pub events: Arc<Events>,
    /// Teams and favourites.
    pub teams: Teams,
    /// Putting matches in.
    pub fixtures: Fixtures,
}

impl Deref for App {
    type Target = Parts;

    fn deref(&self) -> &Parts {
        &self.0
    }
}

impl App {
    /// Connects in the background to everything the configuration names.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        let db = database::pool(&config.database).context("database.url")?;
        Self::assemble(config, db, Arc::new(SystemClock), Arc::new(SystemRandom)).await
    }

    /// The same with some parts in hand.
    pub async fn assemble(
        config: Config,
        db: PgPool,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> anyhow::Result<Self> {
        let redis = redis(&config.redis).context("redis.url")?;
        let streams = Streams::connect(&config.nats).await.context("nats.url")?;
        let web = reqwest::Client::builder().timeout(std::time::Duration::from_secs(5)).build()?;
        let outbox_written = Arc::new(Notify::new());
        let sessions =
            Sessions::new(db.clone(), config.sessions.clone(), clock.clone(), random.clone(), outbox_written.clone());
        let events = Arc::new(Events::new(db.clone(), &config.pages));
        let fixtures = Fixtures::new(db.clone(), clock.clone(), events.clone(), outbox_written.clone());
        Ok(Self(Arc::new(Parts {
            limits: RateLimiter::new(redis.clone(), &config.redis.prefix, clock.clone()),
            checks: Checks::default(),
            teams: Teams::new(db.clone()),
            shutdown: Shutdown::default(),
            config,
            db,
            redis,
            streams,
            web,
            clock,
            random,
            outbox_written,
            sessions,
            events,
            fixtures,
        })))
    }
}

/// A connection that is made when it is first used and comes back by itself.
pub(crate) fn redis(config: &crate::platform::config::Redis) -> redis::RedisResult<ConnectionManager> {
    let client = redis::Client::open(config.url.expose())?;
    let options = ConnectionManagerConfig::new()
        .set_connection_timeout(Some(config.timeout))
        .set_response_timeout(Some(config.timeout))
        .set_number_of_retries(1);
    ConnectionManager::new_lazy_with_config(client, options)
}
