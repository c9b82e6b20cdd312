//! The application: builds every service from the configuration.

use std::{
    ops::Deref,
    sync::{Arc, OnceLock},
};

use anyhow::Context as _;
use axum::extract::FromRef;
use ipnet::IpNet;
use platform::{
    Core,
    budget::Budget,
    claims::Claims,
    clock::{Clock, SystemClock},
    database::{self, WriterSettings},
    lease::Leases,
    outbox,
    random::{self, Random, SystemRandom},
    rate_limit::RateLimiter,
    reads::Reads,
    redis_client,
    shards::Shards,
    shutdown::Shutdown,
    stream::Streams,
};
use redis::aio::ConnectionManager;
use sqlx::PgPool;
use tokio::sync::Notify;
use web::{
    WebState,
    health::{Checks, DatabaseProbe, Dependencies},
};

use crate::{
    admin::console::{self, ConsoleState, service::Console},
    catalogue::{
        feeds::service::Feeds, fixtures::service::Fixtures, matches::service::Matches, rule_sets::service::RuleSets,
        teams::service::Teams,
    },
    chat::{
        self,
        accounts::{service::Chat, work::ChatWork},
        filters::service::Filters,
        keys::service::ChatKeys,
        membership_sync::service::MembershipSync,
        moderation::service::Moderation,
        removals::service::Removals,
        reports::service::Reports,
        room_moderation::service::RoomModeration,
        rooms::service::Rooms,
        view::service::ChatView,
    },
    config::Config,
    delivery::{
        announcements::service::{Announcements, Progress},
        facts::service::Facts,
        live::service::Live,
        mentions::service::Mentions,
        notifications::{
            alerts::Alerts,
            places_lost::LeagueNotifications,
            service::{Notifications, Setup},
        },
        webhooks::service::Webhooks,
    },
    demo::service::Demo,
    game::{
        coins::{payouts::Payouts, service::Coins},
        follows::service::Follows,
        leagues::{service::Leagues, work::LeagueWork},
        predictions::service::Predictions,
        profile::service::Profiles,
        questions::service::Questions,
        scores::{
            leaderboard::Leaderboards, leaderboard_cache::LeaderboardCache, room_leaderboards::RoomLeaderboards,
            rounds::Rounds, service::Scores,
        },
        seals::{service::Seals, timestamps::Timestamps},
    },
    identity::{
        account_deletion::{hooks::Hooks, service::AccountDeletion},
        accounts::{restrictions::RestrictedPhones, service::Accounts},
        avatars::{AvatarUrls, service::Avatars},
        callers::HasReads,
        codes::service::Codes,
        idempotency::service::Idempotency,
        login::service::Login,
        operators::service::Operators,
        phone_moves::service::PhoneMoves,
        privacy::service::PrivacySettings,
        server_keys::service::ServerKeys,
        sessions::{Authenticates, service::Sessions, user_limit::UserLimit},
        sms::service::Sms,
        usernames::service::Usernames,
    },
    server::{self, ServerState},
};

/// The application: its configuration, connections and services. Cheap to clone.
#[derive(Clone)]
pub struct App(Arc<Services>);

pub struct Services {
    pub config: Config,
    pub core: Core,
    pub redis: ConnectionManager,
    pub streams: Streams,
    leases: OnceLock<Leases>,
    pub checks: Checks,
    pub shutdown: Shutdown,
    pub user_limit: Option<UserLimit>,
    pub server_keys: ServerKeys,
    pub sms: Sms,
    pub codes: Codes,
    pub usernames: Usernames,
    pub accounts: Accounts,
    pub avatar_urls: AvatarUrls,
    pub privacy: PrivacySettings,
    pub follows: Follows,
    pub profiles: Profiles,
    pub avatars: Avatars,
    pub phone_moves: PhoneMoves,
    pub chat: Chat,
    pub chat_work: ChatWork,
    pub chat_keys: ChatKeys,
    pub chat_view: ChatView,
    pub filters: Filters,
    pub membership_sync: MembershipSync,
    pub rooms: Rooms,
    pub moderation: Moderation,
    pub room_moderation: RoomModeration,
    pub removals: Removals,
    pub reports: Reports,
    pub login: Login,
    pub sessions: Sessions,
    pub account_deletion: AccountDeletion,
    pub idempotency: Idempotency,
    pub matches: Arc<Matches>,
    pub teams: Teams,
    pub rule_sets: RuleSets,
    pub fixtures: Fixtures,
    pub feeds: Feeds,
    pub coins: Coins,
    pub predictions: Predictions,
    pub questions: Questions,
    pub scores: Scores,
    pub seals: Seals,
    pub leaderboard_cache: LeaderboardCache,
    pub leaderboards: Leaderboards,
    pub rounds: Rounds,
    pub leagues: Leagues,
    pub league_work: LeagueWork,
    pub live: Live,
    pub mentions: Mentions,
    pub announcements: Announcements,
    pub facts: Facts,
    pub webhooks: Webhooks,
    pub notifications: Notifications,
    pub league_notifications: LeagueNotifications,
    pub alerts: Alerts,
    pub operators: Operators,
    pub console: Console,
}

impl Deref for App {
    type Target = Services;

    fn deref(&self) -> &Services {
        &self.0
    }
}

impl App {
    /// Builds the application from its configuration. Connections to dependencies are established in the background.
    pub async fn connect(config: Config) -> anyhow::Result<Self> {
        let db = database::pool(&config.database).context("database.url")?;
        Self::assemble(config, db, Arc::new(SystemClock), Arc::new(SystemRandom)).await
    }

    /// Builds every service on the given database, clock and source of randomness.
    pub async fn assemble(
        config: Config,
        db: PgPool,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
    ) -> anyhow::Result<Self> {
        // Boxed because every command and test awaits this future and would otherwise contain it inline.
        Box::pin(Self::build(config, db, clock, random)).await
    }

    #[expect(clippy::too_many_lines, reason = "builds every service once, lower domains first")]
    async fn build(config: Config, db: PgPool, clock: Arc<dyn Clock>, random: Arc<dyn Random>) -> anyhow::Result<Self> {
        let redis = redis_client::connect(&config.redis).context("redis.url")?;
        let streams = Streams::connect(&config.nats).await.context("nats.url")?;
        let core = Core {
            env: config.env,
            reads: Reads::connect(db.clone(), &config.database, &config.redis)?,
            limits: RateLimiter::new(redis.clone(), &config.redis.prefix, clock.clone()),
            outbox_written: Arc::new(Notify::new()),
            writer_settings: WriterSettings::from(&config.database),
            shards: Shards::default(),
            db,
            clock,
            random,
        };
        let web = web()?;
        let matrix = &config.matrix;
        let server = chat::accounts::service::homeserver(matrix, web.clone())?;
        let issuer = server.as_ref().map(|server| server.issuer.clone());

        let sessions = Sessions::new(&core, &config.sessions, matrix.homeserver_url.is_some());
        let catalogue = config.notifications.catalogue()?;
        let sms = Sms::new(&core, &config.sms, config.http.public_url.as_ref(), Arc::clone(&catalogue))?;
        let codes = Codes::new(&core, &config.codes, &config.limits, &config.sms.countries, sms.clone());
        let usernames = Usernames::new(&core, config.limits.network_names, matrix.bot.clone(), issuer);
        let avatar_urls = AvatarUrls::new(&config.avatars, config.http.public_url.as_ref());
        let avatars = Avatars::new(&core, &config.avatars, avatar_urls.clone())?;
        let coins = Coins::new(&core, &config.coins);
        let restricted_phones = RestrictedPhones::new(&config.codes.keys);
        let accounts = Accounts::new(
            &core,
            &config.accounts,
            usernames.clone(),
            Arc::new(coins.clone()),
            restricted_phones.clone(),
        );
        let budget = Budget::new(
            redis.clone(),
            &config.redis.prefix,
            "homeserver",
            core.random.clone(),
            chat::accounts::service::BUDGET,
        );
        let chat = Chat::new(&core, matrix, server.as_ref(), sessions.clone(), accounts.clone(), budget);
        let login = Login {
            db: core.db.clone(),
            reads: core.reads.clone(),
            codes: codes.clone(),
            accounts: accounts.clone(),
            sessions: sessions.clone(),
            chat: Arc::new(chat.clone()),
        };
        let phone_moves = PhoneMoves {
            core: core.clone(),
            accounts: accounts.clone(),
            codes: codes.clone(),
            sessions: sessions.clone(),
            sms: sms.clone(),
            undo_url: config.accounts.undo_url.clone(),
        };
        let matches = Arc::new(Matches::new(&core, &config.pages));
        let chat_view =
            ChatView::new(&core, streams.clone(), chat.clone(), avatar_urls.clone(), matrix, &config.chat_view);
        let filters =
            Filters::new(&core, streams.clone(), chat.clone(), matrix, &config.filters, &config.webhooks.keys)?;
        let membership_sync = MembershipSync::new(&core, chat.clone(), chat_view.clone(), filters.clone(), matrix);
        let rooms = Rooms::new(
            &core,
            &config.rooms,
            chat.clone(),
            membership_sync.clone(),
            accounts.clone(),
            filters.clone(),
            matches.clone(),
            Claims::new(redis.clone(), &config.redis.prefix, "joins", &*core.random),
        );
        let follows = Follows::new(&core, accounts.clone(), &config.follows);
        let moderation = Moderation::new(
            &core,
            accounts.clone(),
            sessions.clone(),
            restricted_phones,
            Arc::new(follows.clone()),
            &config.moderation,
        );
        let reports = Reports::new(&core, chat.clone(), &config.reports);
        let room_moderation = RoomModeration::new(&core, rooms.clone(), accounts.clone());
        let removals =
            Removals::new(&core, &config.removals, chat.clone(), rooms.clone(), accounts.clone(), moderation.clone());
        let chat_work = ChatWork {
            db: core.db.clone(),
            chat: chat.clone(),
            rooms: rooms.clone(),
            accounts: accounts.clone(),
            avatars: avatars.clone(),
            moderation: moderation.clone(),
            sms: sms.clone(),
            has_pushers: matrix.gateway_url.is_some(),
        };
        let chat_keys = ChatKeys::new(&core, accounts.clone(), codes.clone(), chat.clone());
        let questions = Questions::new(&core, &config.questions);
        let fixtures = Fixtures::new(&core, matches.clone(), Arc::new(rooms.clone()), Arc::new(questions.clone()));
        let predictions = Predictions::new(&core, &matches, &config.predictions);
        let seals = Seals::new(&core, predictions.clone(), Timestamps::new(&core, &config.seals)?);
        let leaderboard_cache = LeaderboardCache::new(&core, redis.clone(), &config.redis).context("redis.url")?;
        let room_leaderboards = RoomLeaderboards::new(&core, redis.clone(), &config.redis.prefix);
        let leaderboards = Leaderboards::new(&core, leaderboard_cache.clone(), room_leaderboards);
        let payouts = Payouts::new(&core, config.coins.per_point);
        let scores = Scores::new(&core, streams.clone(), leaderboard_cache.clone(), payouts, &config.scores);
        let leagues = Leagues::new(&core, redis.clone(), &config.redis.prefix, &config.codes.keys, &config.leagues);
        let live = Live::new(
            streams.clone(),
            predictions.clone(),
            (leaderboards.clone(), leagues.clone()),
            sessions.clone(),
            chat_view.clone(),
            core.random.clone(),
            &config.stream,
        );
        let rounds = Rounds { db: core.db.clone(), streams: streams.clone(), leaderboards: leaderboards.clone() };
        let teams = Teams::new(&core);
        let profiles = Profiles {
            db: core.db.clone(),
            accounts: accounts.clone(),
            privacy: PrivacySettings::new(&core),
            follows: follows.clone(),
            teams: teams.clone(),
            predictions: predictions.clone(),
            leaderboards: leaderboards.clone(),
            leagues: leagues.clone(),
        };
        let setup = Setup {
            settings: &config.notifications,
            fcm: &config.fcm,
            apns: &config.apns,
            keys: &config.codes.keys,
            catalogue: Arc::clone(&catalogue),
            has_pushers: matrix.gateway_url.is_some(),
        };
        let notifications = Notifications::new(&core, streams.clone(), setup)?;
        let private_url = matrix.gateway_url.clone();
        let mentions = Mentions::new(&core, chat.clone(), accounts.clone(), notifications.clone(), private_url);
        let league_work = LeagueWork { leagues: leagues.clone(), rooms: rooms.clone() };
        let announcements = Announcements {
            db: core.db.clone(),
            streams: streams.clone(),
            chat: chat.clone(),
            predictions: predictions.clone(),
            clock: core.clock.clone(),
            texts: catalogue,
            are_enabled: config.rooms.announcements,
            progress: Progress::default(),
        };
        let account_deletion = AccountDeletion::new(
            &core,
            login.clone(),
            phone_moves.clone(),
            avatars.clone(),
            Hooks {
                memberships: Arc::new(membership_sync.clone()),
                receipts: Arc::new(predictions.clone()),
                follows: Arc::new(follows.clone()),
            },
            server,
            matrix.server_name.clone(),
            streams.clone(),
        );
        let checks = Checks::new(Dependencies {
            db: DatabaseProbe::new(core.db.clone()),
            reads: core.reads.clone(),
            redis: redis.clone(),
            redis_address: config.redis.url.address(6379),
            streams: streams.clone(),
            nats_address: config.nats.url.address(4222),
            homeserver: config.matrix.homeserver_url.clone(),
            web,
        });
        Ok(Self(Arc::new(Services {
            feeds: Feeds::new(&core, &config.feeds, fixtures.clone())?,
            facts: Facts::new(&core),
            webhooks: Webhooks::new(&core, streams.clone(), &config.webhooks)?,
            league_notifications: LeagueNotifications {
                notifications: notifications.clone(),
                leagues: leagues.clone(),
            },
            alerts: Alerts { notifications: notifications.clone(), leagues: leagues.clone() },
            notifications,
            idempotency: Idempotency::new(&core, &config.http),
            operators: Operators::new(&core),
            console: Console::new(&core, &config.console, &config.codes.keys, config.coins.per_point)?,
            user_limit: UserLimit::new(&core, &config.http),
            server_keys: ServerKeys::new(&core, &config.server_api),
            privacy: PrivacySettings::new(&core),
            avatar_urls,
            avatars,
            teams: teams.clone(),
            rule_sets: RuleSets::new(&core),
            shutdown: Shutdown::default(),
            leases: OnceLock::new(),
            checks,
            config,
            core,
            redis,
            streams,
            sms,
            codes,
            usernames,
            accounts,
            follows,
            profiles,
            phone_moves,
            chat,
            chat_work,
            chat_keys,
            chat_view,
            filters,
            membership_sync,
            rooms,
            moderation,
            room_moderation,
            removals,
            reports,
            login,
            sessions,
            account_deletion,
            matches,
            fixtures,
            coins,
            predictions,
            questions,
            scores,
            seals,
            leaderboard_cache,
            leaderboards,
            rounds,
            leagues,
            league_work,
            live,
            mentions,
            announcements,
        })))
    }
}

impl App {
    /// Leases of the background tasks of this process.
    pub fn leases(&self) -> &Leases {
        self.0.leases.get_or_init(|| {
            let holder = random::uuid_v7(&*self.core.random, &*self.core.clock);
            Leases::new(self.core.db.clone(), holder, Some(self.streams.clone()))
        })
    }

    /// Wakes the outbox relay before a command ends, if the command wrote a message.
    pub async fn wake_relay(&self) {
        outbox::forward_before_exit(&self.core.outbox_written, &self.streams).await;
    }

    /// Returns the services and settings that the console uses.
    pub(crate) fn console_state(&self) -> ConsoleState {
        ConsoleState::new(console::Services {
            console: self.console.clone(),
            avatars: self.avatars.clone(),
            clock: self.core.clock.clone(),
            streams: self.streams.clone(),
            checks: self.checks.clone(),
            codes: self.codes.clone(),
            feeds: self.feeds.clone(),
            fixtures: self.fixtures.clone(),
            live: self.live.clone(),
            membership_sync: self.membership_sync.clone(),
            operators: self.operators.clone(),
            moderation: self.moderation.clone(),
            filters: self.filters.clone(),
            questions: self.questions.clone(),
            removals: self.removals.clone(),
            reports: self.reports.clone(),
            scores: self.scores.clone(),
            server_keys: self.server_keys.clone(),
            webhooks: self.webhooks.clone(),
            has_chat: self.config.matrix.homeserver_url.is_some(),
            server_name: self.config.matrix.server_name.clone(),
        })
    }

    /// Returns the services and settings that the server API uses.
    pub(crate) fn server_state(&self) -> ServerState {
        ServerState::new(server::Services {
            keys: self.server_keys.clone(),
            accounts: self.accounts.clone(),
            announcements: self.announcements.clone(),
            clock: self.core.clock.clone(),
            coins: self.coins.clone(),
            idempotency: self.idempotency.clone(),
            reads: self.core.reads.clone(),
            facts: self.facts.clone(),
            fixtures: self.fixtures.clone(),
            leagues: self.leagues.clone(),
            moderation: self.moderation.clone(),
            removals: self.removals.clone(),
            rooms: self.rooms.clone(),
            sessions: self.sessions.clone(),
            shutdown: self.shutdown.clone(),
            webhooks: self.webhooks.clone(),
            body_limit: self.config.http.body_limit,
            trusted_proxies: self.config.http.trusted_proxies.clone(),
        })
    }

    /// Base URL of the demo's team crests.
    fn crests_url(&self) -> String {
        let http = &self.config.http;
        let base = http.public_url.as_ref().map(|url| url.as_str().trim_end_matches('/').to_owned());
        format!("{}/demo/crests", base.unwrap_or_else(|| format!("http://{}", http.listen)))
    }

    /// Returns the services that the demo uses.
    pub fn demo(&self) -> Demo {
        Demo {
            core: self.core.clone(),
            coins: self.config.coins.clone(),
            crests: self.crests_url(),
            shutdown: self.shutdown.clone(),
            accounts: self.accounts.clone(),
            chat: self.chat.clone(),
            codes: self.codes.clone(),
            fixtures: self.fixtures.clone(),
            predictions: self.predictions.clone(),
            rooms: self.rooms.clone(),
            scores: self.scores.clone(),
            seals: self.seals.clone(),
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

impl HasReads for App {
    fn reads(&self) -> &Reads {
        &self.core.reads
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

/// Lets a handler extract a single service as its state.
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
    avatar_urls: AvatarUrls,
    avatars: Avatars,
    chat: Chat,
    chat_keys: ChatKeys,
    checks: Checks,
    codes: Codes,
    coins: Coins,
    matches: Arc<Matches>,
    idempotency: Idempotency,
    follows: Follows,
    leaderboards: Leaderboards,
    leagues: Leagues,
    account_deletion: AccountDeletion,
    live: Live,
    login: Login,
    notifications: Notifications,
    phone_moves: PhoneMoves,
    predictions: Predictions,
    privacy: PrivacySettings,
    profiles: Profiles,
    questions: Questions,
    rooms: Rooms,
    seals: Seals,
    moderation: Moderation,
    removals: Removals,
    room_moderation: RoomModeration,
    reports: Reports,
    sessions: Sessions,
    shutdown: Shutdown,
    sms: Sms,
    teams: Teams,
    rule_sets: RuleSets,
    usernames: Usernames,
}

/// HTTP client for calls to other services.
fn web() -> reqwest::Result<reqwest::Client> {
    reqwest::Client::builder()
        .timeout(std::time::Duration::from_secs(5))
        // Following a redirect would send our tokens to another host.
        .redirect(reqwest::redirect::Policy::none())
        .build()
}
