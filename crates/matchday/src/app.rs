//! What every handler, worker and command shares.

use std::{ops::Deref, sync::Arc};

use anyhow::Context as _;
use axum::extract::FromRef;
use ipnet::IpNet;
use redis::aio::{ConnectionManager, ConnectionManagerConfig};
use sqlx::PgPool;
use tokio::sync::Notify;

use crate::{
    accounts::service::Accounts,
    announcements::service::Announcements,
    chat::{self, service::Chat, work::ChatWork},
    codes::service::Codes,
    coins::{payouts::Payouts, service::Coins},
    console::{self, ConsoleState, service::Console},
    demo::service::Demo,
    events::service::Events,
    feeds::service::Feeds,
    fixtures::service::Fixtures,
    http::{
        WebState,
        health::{Checks, Dependencies},
    },
    idempotency::service::Idempotency,
    leaving::service::Leaving,
    live::service::Live,
    login::service::Login,
    mirror::service::Mirror,
    notifications::service::Notifications,
    operators::service::Operators,
    phones::service::Phones,
    platform::{
        clock::{Clock, SystemClock},
        config::Config,
        database,
        random::{Random, SystemRandom},
        rate_limit::RateLimiter,
        shutdown::Shutdown,
        stream::Streams,
        user_limit::UserLimit,
    },
    predictions::service::Predictions,
    rooms::service::Rooms,
    safety::{phones::RestrictedPhones, service::Safety},
    scores::{boards::Boards, leaderboard::Leaderboards, service::Scores},
    sessions::{Authenticates, service::Sessions},
    sms::service::Sms,
    teams::service::Teams,
    usernames::service::Usernames,
    webhooks::service::Webhooks,
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
    /// The limit of each user in this process.
    pub user_limit: Option<UserLimit>,
    /// Which parts answer.
    pub checks: Checks,
    /// Notified when a message was written to the outbox here.
    pub outbox_written: Arc<Notify>,
    /// How the process ends.
    pub shutdown: Shutdown,
    /// Text messages.
    pub sms: Sms,
    /// What proves a phone.
    pub codes: Codes,
    /// Names.
    pub usernames: Usernames,
    /// Who people are.
    pub accounts: Accounts,
    /// Phones that move.
    pub phones: Phones,
    /// The way into chat.
    pub chat: Chat,
    /// What is to be done there.
    pub chat_work: ChatWork,
    /// What happens there.
    pub mirror: Mirror,
    /// Where it happens.
    pub rooms: Rooms,
    /// What keeps people safe.
    pub safety: Safety,
    /// The way in.
    pub login: Login,
    /// Logins.
    pub sessions: Sessions,
    /// The way out.
    pub leaving: Leaving,
    /// Requests that happen once.
    pub idempotency: Idempotency,
    /// Matches.
    pub events: Arc<Events>,
    /// Teams and favourites.
    pub teams: Teams,
    /// Putting matches in.
    pub fixtures: Fixtures,
    /// Matches that come in by themselves.
    pub feeds: Feeds,
    /// What people earn and spend.
    pub coins: Coins,
    /// What people say of matches.
    pub predictions: Predictions,
    /// What it has earned them.
    pub scores: Scores,
    /// The same, in order, for ranks among millions.
    pub boards: Boards,
    /// Who has earned the most.
    pub leaderboards: Leaderboards,
    /// What happens, as it happens.
    pub live: Live,
    /// The same, in the rooms of matches.
    pub announcements: Announcements,
    /// What app backends are told.
    pub webhooks: Webhooks,
    /// What people are reminded of.
    pub notifications: Notifications,
    /// What operators did.
    pub operators: Operators,
    /// What they see.
    pub console: Console,
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
        // Boxed: every command awaits this, and would carry all of it along.
        Box::pin(Self::assemble(config, db, Arc::new(SystemClock), Arc::new(SystemRandom))).await
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
        let (web, outbox_written) = (web()?, Arc::new(Notify::new()));
        let sessions = Sessions::new(db.clone(), &config, clock.clone(), random.clone(), outbox_written.clone());
        let limits = RateLimiter::new(redis.clone(), &config.redis.prefix, clock.clone());
        let sms = Sms::new(db.clone(), &config, clock.clone())?;
        let codes = Codes::new(db.clone(), &config, limits.clone(), sms.clone(), clock.clone(), random.clone());
        let homeserver = chat::service::homeserver(&config.matrix, web.clone())?;
        let usernames =
            Usernames::new(db.clone(), &config, limits.clone(), homeserver.clone(), clock.clone(), random.clone());
        let coins = Coins::new(db.clone(), &config, limits.clone(), clock.clone(), random.clone());
        let restricted_phones = RestrictedPhones::new(&config.codes.keys);
        let accounts = Accounts::new(
            db.clone(),
            usernames.clone(),
            coins.clone(),
            config.accounts.minimum_age,
            restricted_phones.clone(),
            clock.clone(),
            outbox_written.clone(),
        );
        let chat = Chat::new(&config.matrix, homeserver, sessions.clone(), accounts.clone(), limits.clone());
        let login = Login {
            db: db.clone(),
            codes: codes.clone(),
            accounts: accounts.clone(),
            sessions: sessions.clone(),
            chat: chat.clone(),
        };
        let phones = phones(&config, &login, &sms, &clock, &random, &outbox_written);
        let events = Arc::new(Events::new(db.clone(), clock.clone(), &config.pages));
        let mirror = Mirror::new(db.clone(), chat.clone(), &config.matrix, clock.clone(), outbox_written.clone());
        let rooms = Rooms::new(
            db.clone(),
            &config,
            chat.clone(),
            mirror.clone(),
            accounts.clone(),
            events.clone(),
            limits.clone(),
            clock.clone(),
            random.clone(),
            outbox_written.clone(),
        );
        let chat_work =
            ChatWork { db: db.clone(), chat: chat.clone(), rooms: rooms.clone(), accounts: accounts.clone() };
        let safety = safety(&config, &login, restricted_phones, &limits, &clock, &outbox_written);
        let fixtures = Fixtures::new(db.clone(), clock.clone(), events.clone(), rooms.clone(), outbox_written.clone());
        let predictions = Predictions::new(db.clone(), &events, &config, &*random);
        let (boards, leaderboards, scores) = ranking(&config, &db, &redis, &streams, &clock, &random, &outbox_written);
        let (live, announcements) = followers(&config, &db, &streams, &chat, &sessions, &predictions, &leaderboards);
        let checks = Checks::new(Dependencies {
            db: db.clone(),
            redis: redis.clone(),
            redis_address: config.redis.url.address(6379),
            streams: streams.clone(),
            nats_address: config.nats.url.address(4222),
            homeserver: config.matrix.homeserver_url.clone(),
            web: web.clone(),
        });
        Ok(Self(Arc::new(Parts {
            leaving: leaving(&config, &login, &phones, &mirror, &limits, &clock, &outbox_written),
            feeds: Feeds::new(db.clone(), &config.feeds, fixtures.clone(), clock.clone())?,
            webhooks: Webhooks::new(db.clone(), streams.clone(), &config, clock.clone(), random.clone())?,
            notifications: Notifications::new(db.clone(), streams.clone(), &config, clock.clone(), random.clone())?,
            idempotency: Idempotency::new(db.clone(), &config, clock.clone(), random.clone()),
            operators: Operators::new(db.clone(), clock.clone()),
            console: Console::new(db.clone(), &config, clock.clone())?,
            limits,
            user_limit: UserLimit::new(&config, clock.clone(), &*random),
            checks,
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
            sms,
            codes,
            usernames,
            accounts,
            phones,
            chat,
            chat_work,
            mirror,
            rooms,
            safety,
            login,
            sessions,
            events,
            fixtures,
            coins,
            predictions,
            scores,
            boards,
            leaderboards,
            live,
            announcements,
        })))
    }
}

impl App {
    /// The console's view of the service.
    pub(crate) fn console_state(&self) -> ConsoleState {
        ConsoleState::new(console::Services {
            console: self.console.clone(),
            clock: self.clock.clone(),
            streams: self.streams.clone(),
            checks: self.checks.clone(),
            codes: self.codes.clone(),
            feeds: self.feeds.clone(),
            fixtures: self.fixtures.clone(),
            live: self.live.clone(),
            mirror: self.mirror.clone(),
            operators: self.operators.clone(),
            safety: self.safety.clone(),
            scores: self.scores.clone(),
            webhooks: self.webhooks.clone(),
            has_chat: self.config.matrix.homeserver_url.is_some(),
            server_name: self.config.matrix.server_name.clone(),
        })
    }

    /// The services that the demo uses.
    pub fn demo(&self) -> Demo {
        Demo {
            config: self.config.clone(),
            db: self.db.clone(),
            clock: self.clock.clone(),
            random: self.random.clone(),
            limits: self.limits.clone(),
            shutdown: self.shutdown.clone(),
            accounts: self.accounts.clone(),
            chat: self.chat.clone(),
            codes: self.codes.clone(),
            fixtures: self.fixtures.clone(),
            predictions: self.predictions.clone(),
            rooms: self.rooms.clone(),
            scores: self.scores.clone(),
            sms: self.sms.clone(),
            teams: self.teams.clone(),
        }
    }
}

impl WebState for App {
    fn body_limit(&self) -> usize {
        self.config.http.body_limit
    }

    fn trusted_proxies(&self) -> &[IpNet] {
        &self.config.http.trusted_proxies
    }
}

impl Authenticates for App {
    fn sessions(&self) -> &Sessions {
        &self.0.sessions
    }

    fn user_limit(&self) -> Option<&UserLimit> {
        self.0.user_limit.as_ref()
    }
}

/// Lets handlers take a service as their state.
macro_rules! services {
    ($($field:ident: $type:ty),* $(,)?) => {$(
        impl FromRef<App> for $type {
            fn from_ref(app: &App) -> Self {
                app.0.$field.clone()
            }
        }
    )*};
}

services! {
    accounts: Accounts,
    chat: Chat,
    checks: Checks,
    codes: Codes,
    coins: Coins,
    events: Arc<Events>,
    idempotency: Idempotency,
    leaderboards: Leaderboards,
    leaving: Leaving,
    live: Live,
    login: Login,
    notifications: Notifications,
    phones: Phones,
    predictions: Predictions,
    rooms: Rooms,
    safety: Safety,
    sessions: Sessions,
    shutdown: Shutdown,
    sms: Sms,
    teams: Teams,
    usernames: Usernames,
}

/// Who has earned what, and the most.
fn ranking(
    config: &Config,
    db: &PgPool,
    redis: &ConnectionManager,
    streams: &Streams,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
    outbox_written: &Arc<Notify>,
) -> (Boards, Leaderboards, Scores) {
    let boards = Boards::new(redis.clone(), &config.redis.prefix, db.clone(), clock.clone(), random.clone());
    let leaderboards = Leaderboards::new(db.clone(), boards.clone(), clock.clone());
    let payouts = Payouts::new(config.coins.per_point, clock.clone(), random.clone());
    let scores =
        Scores::new(db.clone(), streams.clone(), boards.clone(), payouts, &config.scores, outbox_written.clone());
    (boards, leaderboards, scores)
}

/// The way out.
fn leaving(
    config: &Config,
    login: &Login,
    phones: &Phones,
    mirror: &Mirror,
    limits: &RateLimiter,
    clock: &Arc<dyn Clock>,
    outbox_written: &Arc<Notify>,
) -> Leaving {
    let server_name = config.matrix.server_name.clone();
    let (login, phones, mirror) = (login.clone(), phones.clone(), mirror.clone());
    Leaving::new(login, phones, mirror, limits.clone(), server_name, clock.clone(), outbox_written.clone())
}

/// Phones that move.
fn phones(
    config: &Config,
    login: &Login,
    sms: &Sms,
    clock: &Arc<dyn Clock>,
    random: &Arc<dyn Random>,
    outbox_written: &Arc<Notify>,
) -> Phones {
    Phones {
        db: login.db.clone(),
        accounts: login.accounts.clone(),
        codes: login.codes.clone(),
        sessions: login.sessions.clone(),
        sms: sms.clone(),
        clock: clock.clone(),
        random: random.clone(),
        outbox_written: outbox_written.clone(),
        undo_url: config.accounts.undo_url.clone(),
    }
}

/// Moderation.
fn safety(
    config: &Config,
    login: &Login,
    restricted_phones: RestrictedPhones,
    limits: &RateLimiter,
    clock: &Arc<dyn Clock>,
    outbox_written: &Arc<Notify>,
) -> Safety {
    Safety::new(
        login.db.clone(),
        config,
        login.chat.clone(),
        login.accounts.clone(),
        login.sessions.clone(),
        restricted_phones,
        limits.clone(),
        clock.clone(),
        outbox_written.clone(),
    )
}

/// For calls to other services.
fn web() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .timeout(std::time::Duration::from_secs(5))
        // A redirect would carry our tokens to somebody else.
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

/// Those who follow the facts.
fn followers(
    config: &Config,
    db: &PgPool,
    streams: &Streams,
    chat: &Chat,
    sessions: &Sessions,
    predictions: &Predictions,
    leaderboards: &Leaderboards,
) -> (Live, Announcements) {
    let live = Live::new(streams.clone(), predictions.clone(), leaderboards.clone(), sessions.clone(), &config.stream);
    let announcements = Announcements {
        db: db.clone(),
        chat: chat.clone(),
        predictions: predictions.clone(),
        are_wanted: config.rooms.announcements,
    };
    (live, announcements)
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
