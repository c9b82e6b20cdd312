//! The configuration of a process: defaults, then a TOML file, then `MATCHDAY_…` variables.
//!
//! Each key is documented where it is declared; `matchday config` prints the effective tree from these declarations.

use std::{fmt::Write as _, net::SocketAddr, path::Path, time::Duration};

use ipnet::IpNet;
use secrecy::ExposeSecret as _;
use url::Url;

use super::{
    settings::{
        CodeKey, CountryRule, Entry, Faults, HostPattern, Phrase, Secret, SecretUrl, Setting, Source, VapidKey,
        settings,
    },
    standard_webhooks::SigningSecret,
    zone::ZonedPlace,
};
use crate::sms::{
    self,
    registry::{self, Registration},
};

settings! {
    /// The listeners for apps and for machines, and what a request may cost.
    http: Http {
        /// Where apps reach the service.
        listen: SocketAddr = "127.0.0.1:8080",
        /// Address for Prometheus and the homeserver: metrics, health and pushed chat events. Keep it off the internet.
        private_listen: SocketAddr = "127.0.0.1:9090",
        /// How many connections may be open at once; further ones wait to be accepted.
        max_connections: usize = "20000",
        /// How many requests may be worked on at once; further ones get 503 at once.
        max_in_flight: usize = "1024",
        /// How many requests with a token a user may send to this process at once; further ones get 429. The live stream does
        /// not count. In `local` and `testing` a thousand times as many. 0: no limit.
        user_burst: u32 = "200",
        /// How many of them a user gets back in a second, in `local` and `testing` a thousand times as many.
        user_requests_per_second: u32 = "50",
        /// How long one request may take, and before that how long it may take to arrive.
        deadline: Duration = "10s",
        /// How long a connection may be idle.
        keep_alive: Duration = "75s",
        /// The largest body that is read, in bytes.
        body_limit: usize = "65536",
        /// Web origins that may call the interface, like `https://app.example.org`; `*` means any. Empty: none.
        cors_origins: Vec<String> = "",
        /// Networks of proxies in front of this service, like `10.0.0.0/8`. Only they are believed when they say in
        /// `X-Forwarded-For` whose request they pass on. Empty: the other end of the connection is the client.
        trusted_proxies: Vec<IpNet> = "",
        /// Where the internet reaches the service, like `https://api.example.org`. SMS providers report there.
        public_url: Option<Url> = "",
    }
    /// PostgreSQL: the truth.
    database: Database {
        /// How to reach it, as a role that works with the tables and owns none of them.
        url: SecretUrl,
        /// The same as the role that owns the tables, for whoever migrates. Empty: `database.url`.
        owner_url: Option<SecretUrl> = "",
        /// The most connections this process opens, besides one for each writer of predictions and of coins and two for
        /// checking tokens.
        max_connections: u32 = "16",
        /// How long a request waits for a free connection before it answers 503.
        acquire_timeout: Duration = "3s",
        /// How long the server works on one statement. A request that gives up leaves its statement behind; this ends it.
        statement_timeout: Duration = "10s",
        /// How long a migration waits for a table that somebody is using. Everybody who wants the table meanwhile waits
        /// behind it, so it gives up soon, lets them pass, and tries again.
        migration_lock_timeout: Duration = "500ms",
        /// How long it goes on trying.
        migration_patience: Duration = "10m",
    }
    /// Redis: what may be lost (rate limits, leaderboards). It must not throw keys away by itself: `noeviction`.
    redis: Redis {
        /// How to reach it.
        url: SecretUrl,
        /// Stands before every key, so that several deployments can share a server.
        prefix: String = "matchday",
        /// How long a call may take before the process decides by itself.
        timeout: Duration = "2s",
    }
    /// NATS with JetStream: what moves between processes.
    nats: Nats {
        /// How to reach it.
        url: SecretUrl,
        /// Stands before every subject and stream, so that several deployments can share a server.
        prefix: String = "matchday",
        /// How many servers keep each stream: 1 on a single server, 3 in a cluster.
        replicas: usize = "1",
        /// How long a call may take.
        timeout: Duration = "2s",
    }
    /// The Matrix homeserver: chat.
    matrix: Matrix {
        /// Where this process reaches its client-server interface. Empty: no chat.
        homeserver_url: Option<Url> = "",
        /// Where chat clients reach it, like `https://chat.example.org`. Empty, in development: at the same address.
        public_url: Option<Url> = "",
        /// What stands behind the colon of its users' ids, as in `@ada:example.org`.
        server_name: Option<String> = "",
        /// The `as_token` of this service's registration on the homeserver, by which it acts for users.
        as_token: Option<Secret> = "",
        /// The localpart of the service's own chat user, the registration's `sender_localpart`. It makes all rooms.
        bot: String = "matchday",
        /// The `id` of the registration by which the homeserver pushes what happens in rooms.
        push_id: String = "matchday_push",
        /// Its `as_token`.
        push_token: Option<Secret> = "",
        /// Its `hs_token`: what the homeserver shows when it pushes.
        hs_token: Option<Secret> = "",
        /// The access token of an administrator of the homeserver, who suspends users. Empty: users that are banned or
        /// muted here lose their chat devices instead, and get no new ones until that is over.
        admin_token: Option<Secret> = "",
        /// How long one call may take.
        timeout: Duration = "4s",
    }
    /// Chat rooms.
    rooms: Rooms {
        /// How many members one room of a match holds. The next one opens a further stand of the same match. A room is
        /// as slow as its homeserver's one process for it.
        match_capacity: u32 = "2000",
        /// Whether the bot tells a match's rooms what happens: kick-off, goals, full time, and who predicted best.
        announcements: bool = "true",
    }
    /// The codes that people log in with.
    codes: Codes {
        /// What codes are stored under: `version:64 hexadecimal digits`. The first key makes new codes, all of them check
        /// codes that are out. To change it, put a new one with another version in front; the old one can go after 5m.
        /// Restricted phone numbers are hashed under these keys too: keep an old key while `restricted_phones` has rows
        /// of its version, or those numbers are restricted no longer.
        keys: Vec<CodeKey>,
    }
    /// How codes are sent.
    sms: Sms {
        /// Providers that send the messages, like `twilio,vonage`. The first is asked first, the next one when it fails.
        /// `console` only logs messages, and production refuses it. Empty: `console`, and in production a fault.
        providers: Vec<&'static Registration> = "",
        /// How long one provider may take. All of them together must fit into a request.
        timeout: Duration = "4s",
        /// Who the message says it is from.
        app_name: String = "Matchday",
        /// The hash of 11 characters by which Android hands the message to the app. Empty: none.
        app_hash: Option<String> = "",
        /// The domain by which browsers hand the code to the page, like `app.example.org`. Empty: none.
        web_domain: Option<String> = "",
        /// The countries that codes are sent to, each with the most an hour if it is not the usual: `DE,GB:2000`. In
        /// `staging` and `production` nobody else is sent any; elsewhere everybody is.
        countries: Vec<CountryRule> = "",
        /// How long the log of messages is kept.
        log_for: Duration = "30d",
        ..accounts: registry::Accounts
    }
    /// What strangers may cause. In `local` and `testing` all but those of a phone are a thousand times as large.
    limits: Limits {
        /// How many codes may be sent to a phone at once.
        phone_burst: u32 = "5",
        /// Then one this often.
        phone_every: Duration = "1m",
        /// And so many in a day (UTC).
        phone_daily: u32 = "10",
        /// How many codes a network (an IPv4 address, or a /64 of IPv6) may ask for in an hour. Mobile carriers put
        /// thousands of phones behind one address.
        network_hourly: u32 = "60",
        /// How many codes may be sent in an hour to numbers that differ in the last four digits only.
        block_hourly: u32 = "60",
        /// How many codes may be sent in an hour to a country for which `sms.countries` says nothing else.
        country_hourly: u32 = "500",
        /// How many codes may be sent in a day (UTC) to everybody together.
        daily_budget: u32 = "10000",
        /// How many codes a network may try at once; then one every ten seconds.
        network_guesses: u32 = "30",
        /// How many usernames a network may ask for at once; then one every two seconds.
        network_names: u32 = "30",
    }
    /// Accounts.
    accounts: Accounts {
        /// The page of your app that undoes moving an account to another phone. The text to the old phone then has a link
        /// to it, with the undo code behind `#`. Empty: the text has the code alone.
        undo_url: Option<Url> = "",
        /// How many years old a user must be, by the date of birth they give. 0: any age.
        minimum_age: u16 = "13",
    }
    /// Tokens that apps carry.
    sessions: Sessions {
        /// A session ends when it was not used for this long.
        idle: Duration = "30d",
        /// A session ends after this long, used or not.
        lifetime: Duration = "180d",
        /// How many sessions a user may have; a new one ends the oldest.
        max_per_user: u32 = "10",
        /// How long a token that was checked is trusted without asking the database.
        cache_for: Duration = "30s",
        /// How many checked tokens are remembered.
        cache_entries: usize = "200000",
    }
    /// Predictions.
    predictions: Predictions {
        /// When others' predictions are shown: `always`, or `after_start` of their match. How many say what is shown
        /// from the beginning.
        reveal: Reveal = "always",
        /// How many writers this process has. Each takes what waits for it in one transaction. On one database two to
        /// four are enough.
        writers: usize = "2",
        /// How many predictions may wait for a writer; further ones get 503 at once.
        queue: usize = "1000",
    }
    /// Scores and leaderboards.
    scores: Scores {
        /// How many lanes of users this process works on at once after a result.
        workers: usize = "4",
        /// How many predictions a lane has.
        lane_size: u32 = "20000",
    }
    /// Coins.
    coins: Coins {
        /// What a new account gets.
        welcome: u32 = "100",
        /// What can be claimed every day (UTC).
        daily: u32 = "50",
        /// How much more that is for each further day in a row.
        streak_step: u32 = "10",
        /// At most so much more.
        streak_most: u32 = "60",
        /// Allowed values of `reason` when coins are spent, like `purchase,wager`. Empty: any text of 1 to 64 characters without
        /// control characters.
        reasons: Vec<Phrase> = "",
        /// What a point earned with a prediction is worth once its match has a result. Points below zero cost nothing. A
        /// match keeps what it was worth at its first result. 0: points are only points. Turn it on once no process of a
        /// version without coins is left: it would settle matches without paying.
        per_point: u32 = "0",
        /// How many writers of deductions this process has. Each takes what waits for it in one transaction.
        writers: usize = "2",
        /// How many deductions may wait for a writer; further ones get 503 at once.
        queue: usize = "1000",
    }
    /// The live stream.
    stream: Stream {
        /// How long a connection is silent at most.
        heartbeat: Duration = "15s",
        /// How long a connection lasts; clients come back by themselves, to whichever process has room.
        lifetime: Duration = "1h",
        /// How many may listen to this process at once; further ones get 503. `http.max_connections` bounds them too.
        max_listeners: usize = "10000",
        /// How many connections a user may listen on at once.
        max_per_user: usize = "5",
        /// How many facts a listener may be behind before it is sent away, to come back for the rest.
        behind: usize = "1024",
    }
    /// Where matches come from by themselves. Nothing named: nowhere.
    feeds: Feeds {
        /// The token that football-data.org gave you.
        football_data_token: Option<Secret> = "",
        /// Where football-data.org is.
        football_data_url: Url = "https://api.football-data.org",
        /// The competitions to follow there, by their codes, like `PL,CL`.
        football_data_competitions: Vec<String> = "",
        /// How many requests a minute your plan allows, all competitions together.
        football_data_per_minute: u32 = "10",
        /// Documents of openfootball to follow: files or URLs, each perhaps with the time zone of its times after a space, as
        /// in `https://example.org/2026-27/en.1.json Europe/London`. Without one, times are UTC unless they name theirs.
        openfootball: Vec<ZonedPlace> = "",
        /// How often a feed is looked at when none of its matches is near.
        idle: Duration = "1h",
        /// How often shortly before a kick-off and during a match.
        live: Duration = "1m",
        /// How often when a match may end.
        closing: Duration = "20s",
        /// How long one answer may take.
        timeout: Duration = "10s",
        /// How long a process that fell silent keeps others from looking at feeds.
        lease: Duration = "30s",
    }
    /// What app backends are told: see docs/webhooks.md.
    webhooks: Webhooks {
        /// What the endpoints' secrets are stored under: `version:64 hexadecimal digits`. The first key seals new ones, all
        /// of them open what was sealed. To change it, put a new one with another version in front, and run
        /// `matchday webhooks reseal`; then the old one can go. Empty: no endpoint can be added.
        keys: Vec<CodeKey> = "",
        /// How long an endpoint may take to answer.
        timeout: Duration = "10s",
        /// How many messages this process sends to one endpoint at once.
        at_once: usize = "4",
        /// The pauses after which a message is sent again that was not taken. After the last try it is set aside.
        pauses: Vec<Duration> = "5s,30s,2m,10m,30m,1h,2h,4h,8h,8h",
    }
    /// Reminders of matches: see docs/notifications.md.
    notifications: Notifications {
        /// How long before a match begins its fans are reminded of it.
        lead: Duration = "1h",
        /// The key that browsers' push services know us by (VAPID): 32 bytes in base64, as `matchday notifications key` makes
        /// one. Empty: browsers are not notified. Browsers that subscribed under another key must subscribe again.
        vapid_private_key: Option<VapidKey> = "",
        /// Whom push services write to when something is wrong, like `mailto:ops@example.org`.
        vapid_subject: Option<String> = "",
        /// The hosts of browsers' push services that are posted to; `*.` stands for any subdomain. Add those of other browsers
        /// that your users have. Empty: any host on the internet. In `local` and `testing` any address is taken.
        push_services: Vec<HostPattern> = "fcm.googleapis.com,updates.push.services.mozilla.com,*.push.apple.com,*.notify.windows.com",
        /// Where the app's own push is told whom to remind. Empty: nowhere.
        hook_url: Option<Url> = "",
        /// What that is signed with: `whsec_` and base64, see docs/webhooks.md.
        hook_secret: Option<SigningSecret> = "",
        /// How long a push service or the hook may take to answer.
        timeout: Duration = "10s",
        /// How many batches of fans this process notifies at once.
        workers: usize = "2",
        /// How many browsers each of them notifies at once.
        at_once: usize = "32",
    }
    /// The console for operators: see docs/console.md.
    console: Console {
        /// Whether this process serves the console. Empty: only in `local` and `testing`.
        enabled: Option<bool> = "",
        /// Address of the console's own listener. Only your single sign-on proxy should reach it. Without `console.token_issuer`
        /// and `console.proxy_secrets` it must be a loopback address.
        listen: SocketAddr = "127.0.0.1:9092",
        /// Secrets with which the proxy proves that a request comes from it, 32 characters or more each. The console accepts
        /// any of them, so that you can add a new one before you remove the old one. Set this or `console.token_issuer`.
        proxy_secrets: Vec<Secret> = "",
        /// Header in which the proxy sends its secret.
        proxy_secret_header: String = "X-Console-Secret",
        /// With `console.proxy_secrets`: header in which the proxy sends the operator's name. The proxy must replace what the
        /// browser sent.
        operator_header: String = "X-Forwarded-User",
        /// With `console.proxy_secrets`: header in which the proxy sends the operator's groups, separated by commas. The proxy
        /// must replace what the browser sent.
        groups_header: String = "X-Forwarded-Groups",
        /// Issuer (`iss`) of the identity tokens (JWT) that the proxy passes on, like `https://login.example.org/realms/staff`.
        token_issuer: Option<String> = "",
        /// Audiences (`aud`), one of which a token must name: usually the client id of the proxy.
        token_audiences: Vec<String> = "",
        /// URL of the issuer's signing keys (JWKS). The console fetches them when it needs them, every hour, and when a token
        /// names an unknown key, at most every 30 seconds. Set this or `console.token_keys_file`.
        token_keys_url: Option<Url> = "",
        /// File with the issuer's signing keys (JWKS), read again as often as the URL would be.
        token_keys_file: Option<String> = "",
        /// Header in which the proxy sends the token, with or without `Bearer` before it.
        token_header: String = "Authorization",
        /// Signature algorithms that the console accepts, out of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and `EdDSA`.
        token_algorithms: Vec<TokenAlgorithm> = "RS256,PS256,ES256,EdDSA",
        /// Claim that names the operator in the record of operator actions. It must be one that users cannot choose freely.
        name_claim: String = "email",
        /// Claim with the operator's groups or roles: a text or a list. Dots lead into objects, as in `realm_access.roles`.
        role_claim: String = "groups",
        /// Groups whose members may look at every page. `user:NAME` instead of a group names one operator.
        viewers: Vec<String> = "",
        /// The same for those who may also handle reports, and mute and ban users.
        moderators: Vec<String> = "",
        /// The same for those who may do everything.
        operators: Vec<String> = "",
    }
    /// The lists that are the same for everyone.
    pages: Pages {
        /// How long a page is served without rebuilding it.
        keep: Duration = "1s",
        /// How many pages are kept.
        cache_entries: usize = "2000",
    }
    /// The outbox and its relay.
    outbox: Outbox {
        /// How often the relay looks for messages that another process wrote.
        poll: Duration = "200ms",
        /// How long a relay that fell silent keeps others waiting.
        lease: Duration = "10s",
    }
    /// What the process writes about itself.
    log: Log {
        /// `json` for machines, `pretty` for people. `pretty` uses colours if standard error is a terminal and `NO_COLOR` is
        /// not set.
        format: LogFormat = "json",
        /// What is logged, as in `info,matchday=debug`.
        filter: String = "info,async_nats=warn,sqlx=warn",
        /// Which requests get a line of their own: `problems` (answers of 500 and above, and slow ones), `all` or `none`.
        requests: RequestLog = "problems",
    }
    /// OpenTelemetry traces.
    traces: Traces {
        /// Where to send them by OTLP over HTTP, like `http://127.0.0.1:4318`. Empty: nowhere.
        endpoint: Option<Url> = "",
        /// The share of requests that is traced, 0 to 1.
        sample: f64 = "0.1",
    }
    /// How a process ends.
    shutdown: Shutdown {
        /// How long readiness is off before the listener closes, so that balancers stop sending.
        notice: Duration = "0s",
        /// How long requests under way may take to finish.
        drain: Duration = "20s",
    }
}

/// Where a process runs. What is not one of the names is `production`: a misspelt name must not loosen anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Environment {
    /// A developer's machine.
    Local,
    /// Automated tests.
    Testing,
    /// A rehearsal of production.
    Staging,
    /// The real thing.
    Production,
}

impl Environment {
    /// Reads `MATCHDAY_ENV`.
    pub fn from_name(name: Option<&str>) -> Self {
        match name {
            Some("local") => Self::Local,
            Some("testing") => Self::Testing,
            Some("staging") => Self::Staging,
            _ => Self::Production,
        }
    }

    /// The name that `from_name` reads.
    pub fn name(self) -> &'static str {
        match self {
            Self::Local => "local",
            Self::Testing => "testing",
            Self::Staging => "staging",
            Self::Production => "production",
        }
    }

    /// How many times as much strangers may cause here: a developer, and a test that makes a hundred users, sit behind
    /// one address.
    pub fn leniency(self) -> u32 {
        if self.is_development() { 1_000 } else { 1 }
    }

    /// Whether conveniences for developers may exist here.
    pub fn is_development(self) -> bool {
        matches!(self, Self::Local | Self::Testing)
    }
}

/// See `log.format`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogFormat {
    /// One JSON object a line.
    Json,
    /// `time level message field=value`.
    Pretty,
}

/// See `log.requests`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RequestLog {
    /// Server errors and slow answers.
    Problems,
    /// Every request.
    All,
    /// No request.
    None,
}

/// See `predictions.reveal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reveal {
    /// From the beginning.
    Always,
    /// Once nobody can copy them any more.
    AfterStart,
}

/// See `console.token_algorithms`. Symmetric algorithms and `none` are not among them: with those, a public key would be enough
/// to sign a token, or nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TokenAlgorithm(pub jsonwebtoken::Algorithm);

impl Setting for TokenAlgorithm {
    const EXPECTED: &'static str = "RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 or EdDSA";
    const LISTED: &'static str =
        "a list of RS256, RS384, RS512, PS256, PS384, PS512, ES256, ES384 and EdDSA, separated by commas";
    fn parse(text: &str) -> Option<Self> {
        let algorithm: jsonwebtoken::Algorithm = text.parse().ok()?;
        (algorithm.family() != jsonwebtoken::AlgorithmFamily::Hmac).then_some(Self(algorithm))
    }
    fn show(&self) -> String {
        format!("{:?}", self.0)
    }
}

macro_rules! setting_by_name {
    ($type:ty, $expected:literal, $($name:literal => $value:expr),+) => {
        impl Setting for $type {
            const EXPECTED: &'static str = $expected;
            const LISTED: &'static str = concat!("a list of ", $expected, ", separated by commas");
            fn parse(text: &str) -> Option<Self> {
                match text { $($name => Some($value),)+ _ => None }
            }
            fn show(&self) -> String {
                [$(($name, $value)),+].into_iter().find(|(_, value)| value == self).map(|(name, _)| name.to_owned()).unwrap_or_default()
            }
        }
    };
}
setting_by_name!(LogFormat, "json or pretty", "json" => Self::Json, "pretty" => Self::Pretty);
setting_by_name!(Reveal, "always or after_start", "always" => Self::Always, "after_start" => Self::AfterStart);
setting_by_name!(RequestLog, "problems, all or none", "problems" => Self::Problems, "all" => Self::All, "none" => Self::None);

/// A configuration with the story of each key.
#[derive(Debug)]
pub struct Loaded {
    /// The values.
    pub config: Config,
    /// Every key as it ended up.
    pub(super) entries: Vec<Entry>,
}

impl Config {
    /// Reads the process's variables and the file that `file`, or else `MATCHDAY_CONFIG`, names.
    pub fn load(file: Option<&Path>) -> Result<Loaded, Faults> {
        let variables: Vec<(String, String)> = std::env::vars_os()
            .filter_map(|(name, value)| Some((name.into_string().ok()?, value.into_string().ok()?)))
            .collect();
        let named = variables.iter().find(|(name, _)| name == "MATCHDAY_CONFIG").map(|(_, path)| path.as_str());
        let text = match file.or(named.map(Path::new)) {
            Some(path) => Some(
                std::fs::read_to_string(path)
                    .map_err(|error| Faults(vec![format!("the file {} cannot be read: {error}", path.display())]))?,
            ),
            None => None,
        };
        Self::parse(variables, text.as_deref())
    }

    /// The same from values in hand.
    pub fn parse(variables: impl IntoIterator<Item = (String, String)>, file: Option<&str>) -> Result<Loaded, Faults> {
        let mut source = Source::new(variables, file);
        let env = Environment::from_name(source.variable("MATCHDAY_ENV"));
        let config = Self::read_sections(env, &mut source);
        if let Some(config) = &config {
            for fault in config.contradictions() {
                source.fault(fault);
            }
        }
        let entries = source.finish()?;
        config.map(|config| Loaded { config, entries }).ok_or_else(|| Faults(Vec::new()))
    }

    /// What no single key can see.
    fn contradictions(&self) -> Vec<String> {
        let mut faults = Vec::new();
        let mut check = |holds: bool, fault: &str| {
            if !holds {
                faults.push(fault.to_owned());
            }
        };
        check(
            self.http.listen != self.http.private_listen || self.http.listen.port() == 0,
            "http.listen and http.private_listen are the same address: give each its own",
        );
        check(self.predictions.writers > 0, "predictions.writers is 0: no prediction could ever be saved");
        check(self.predictions.queue > 0, "predictions.queue is 0: no prediction could ever be saved");
        check(self.coins.writers > 0, "coins.writers is 0: no coin could ever be spent");
        check(self.coins.queue > 0, "coins.queue is 0: no coin could ever be spent");
        check(self.coins.daily > 0, "coins.daily is 0: a claim would give nothing");
        check(self.coins.per_point <= 1_000_000, "coins.per_point is above 1000000");
        check(self.scores.workers > 0, "scores.workers is 0: no score would ever follow a result");
        check(self.scores.lane_size > 0, "scores.lane_size is 0: no lane could hold anybody");
        check(self.http.max_in_flight > 0, "http.max_in_flight is 0: no request could ever be answered");
        check(self.http.max_connections > 0, "http.max_connections is 0: nobody could ever connect");
        check(!self.http.deadline.is_zero(), "http.deadline is 0: every request would fail");
        check(
            self.database.max_connections >= 8,
            "database.max_connections is below 8: workers alone may need that many at once",
        );
        check(
            self.database.migration_lock_timeout.as_millis() > 0,
            "database.migration_lock_timeout is 0: PostgreSQL takes that for ever, and everybody would wait behind a migration",
        );
        check(
            self.sessions.idle <= self.sessions.lifetime,
            "sessions.idle is longer than sessions.lifetime: an idle session could not last that long",
        );
        check(self.rooms.match_capacity > 0, "rooms.match_capacity is 0: nobody could join a match's room");
        check(self.sessions.max_per_user > 0, "sessions.max_per_user is 0: nobody could log in");
        check((0.0..=1.0).contains(&self.traces.sample), "traces.sample is not between 0 and 1");
        check(!self.outbox.poll.is_zero(), "outbox.poll is 0: the relay would never rest");
        check(
            self.outbox.lease >= self.outbox.poll * 4,
            "outbox.lease is shorter than four times outbox.poll: relays would take turns all the time",
        );
        for (name, prefix) in [("nats.prefix", &self.nats.prefix), ("redis.prefix", &self.redis.prefix)] {
            check(
                !prefix.is_empty() && prefix.chars().all(|c| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_'),
                &format!("{name} is not made of lower-case letters, digits and underscores"),
            );
        }
        let more = [
            self.needed(),
            self.sms.needed(),
            self.feeds.promises(),
            self.outward(),
            self.of_users(),
            self.console_access(),
        ];
        for (holds, fault) in more.concat() {
            check(holds, &fault);
        }
        check(
            self.sms.providers.is_empty()
                || self.sms.timeout * u32::try_from(self.sms.providers.len()).unwrap_or(u32::MAX) < self.http.deadline,
            "sms.timeout leaves no time to ask all of sms.providers within http.deadline: make it shorter",
        );
        check(
            self.matrix.homeserver_url.is_none() || self.matrix.timeout < self.http.deadline,
            "matrix.timeout is not shorter than http.deadline: nobody would hear that chat is away",
        );
        check(
            !self.matrix.bot.is_empty()
                && self
                    .matrix
                    .bot
                    .bytes()
                    .all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._=-/+".contains(&byte)),
            "matrix.bot is no localpart of a Matrix user: only a-z, 0-9 and . _ = - / + are allowed",
        );
        check(!self.codes.keys.is_empty(), "codes.keys is empty: codes could not be stored");
        check(has_each_version_once(&self.codes.keys), "codes.keys has a version twice: give each key its own");
        check(
            self.sms.app_hash.as_ref().is_none_or(|hash| hash.len() == 11 && hash.is_ascii()),
            "sms.app_hash does not have 11 characters",
        );
        check(
            self.sms.app_hash.is_none() || self.sms.web_domain.is_none(),
            "sms.app_hash and sms.web_domain are both set: each must be the last line of a message, so choose one",
        );
        check(
            self.env.is_development() || !self.sms.countries.is_empty(),
            "sms.countries is empty: name the countries that codes may be sent to, like DE,GB",
        );
        if self.env == Environment::Production {
            self.sms.reaching_phones().iter().for_each(|(holds, fault)| check(*holds, fault));
        }
        for origin in self.http.cors_origins.iter().filter(|origin| *origin != "*") {
            check(
                Url::parse(origin).is_ok_and(|url| url.origin().ascii_serialization() == *origin),
                &format!("http.cors_origins: `{origin}` is no web origin like https://app.example.org"),
            );
        }
        faults
    }
}

impl Config {
    /// Whether operators have a console.
    pub fn has_console(&self) -> bool {
        self.console.enabled.unwrap_or(self.env.is_development())
    }

    /// Conditions for a console that only verified operators can use, each with the fault to report if it does not hold.
    fn console_access(&self) -> Vec<(bool, String)> {
        let console = &self.console;
        let headers = [
            ("proxy_secret_header", &console.proxy_secret_header),
            ("operator_header", &console.operator_header),
            ("groups_header", &console.groups_header),
            ("token_header", &console.token_header),
        ];
        let mut conditions: Vec<(bool, String)> = headers
            .iter()
            .map(|(key, name)| {
                let is_name = http::HeaderName::try_from(name.as_str()).is_ok();
                (is_name, format!("console.{key}: `{name}` is not the name of a header, like X-Forwarded-User"))
            })
            .collect();
        if !self.has_console() {
            return conditions;
        }
        let (by_secret, by_token) = (!console.proxy_secrets.is_empty(), console.token_issuer.is_some());
        let is_verified = by_secret || by_token;
        let keys = (console.token_keys_url.as_ref(), console.token_keys_file.as_ref());
        let has_roles = [&console.viewers, &console.moderators, &console.operators].iter().any(|list| !list.is_empty());
        let taken = [self.http.listen, self.http.private_listen];
        let further = [
            (
                console.listen.port() == 0 || !taken.contains(&console.listen),
                "console.listen is also http.listen or http.private_listen: give the console its own address",
            ),
            (
                is_verified || self.env.is_development(),
                "console.enabled is true, but the console cannot verify its operators: set console.proxy_secrets or \
                 console.token_issuer, or console.enabled to false",
            ),
            (
                is_verified || !self.env.is_development() || console.listen.ip().is_loopback(),
                "console.listen is not a loopback address, but the console cannot verify its operators: set \
                 console.proxy_secrets or console.token_issuer",
            ),
            (
                !(by_secret && by_token),
                "console.proxy_secrets and console.token_issuer are both set: choose one way to verify operators",
            ),
            (
                console.proxy_secrets.iter().all(|secret| secret.inner().expose_secret().len() >= 32),
                "console.proxy_secrets has a secret of fewer than 32 characters: make one with `openssl rand -hex 32`",
            ),
            (
                !by_token || !console.token_audiences.is_empty(),
                "console.token_audiences is not set, but console.token_issuer is",
            ),
            (
                !by_token || matches!(keys, (Some(_), None) | (None, Some(_))),
                "console.token_issuer is set: set either console.token_keys_url or console.token_keys_file too",
            ),
            (
                by_token || keys == (None, None),
                "console.token_issuer is not set, but console.token_keys_url or console.token_keys_file is",
            ),
            (
                keys.0.is_none_or(|url| url.scheme() == "https" || self.env.is_development()),
                "console.token_keys_url does not begin with https://",
            ),
            (!by_token || !console.token_algorithms.is_empty(), "console.token_algorithms is empty"),
            (
                !is_verified || has_roles,
                "console.operators, console.moderators and console.viewers are all empty: no one could use the console",
            ),
        ];
        conditions.extend(further.map(|(holds, fault)| (holds, fault.to_owned())));
        conditions
    }

    /// Who sends codes, in order.
    pub fn sms_providers(&self) -> &[&'static Registration] {
        if self.sms.providers.is_empty() { &[&sms::console::REGISTRATION] } else { &self.sms.providers }
    }

    /// What must hold of those who are told something: whether it does, and what to say if not.
    fn outward(&self) -> Vec<(bool, String)> {
        let (webhooks, notifications) = (&self.webhooks, &self.notifications);
        let subject = notifications.vapid_subject.as_deref();
        [
            (has_each_version_once(&webhooks.keys), "webhooks.keys has a version twice: give each key its own"),
            (webhooks.at_once > 0, "webhooks.at_once is 0: no webhook could ever be sent"),
            (!webhooks.timeout.is_zero(), "webhooks.timeout is 0: every webhook would fail"),
            (!notifications.lead.is_zero(), "notifications.lead is 0: nobody could be reminded of anything"),
            (!notifications.timeout.is_zero(), "notifications.timeout is 0: every notification would fail"),
            (notifications.workers > 0, "notifications.workers is 0: nobody would ever be notified"),
            (notifications.at_once > 0, "notifications.at_once is 0: nobody would ever be notified"),
            (
                notifications.vapid_private_key.is_none() || subject.is_some(),
                "notifications.vapid_subject is not set, but notifications.vapid_private_key is",
            ),
            (
                subject.is_none_or(|subject| subject.starts_with("mailto:") || subject.starts_with("https://")),
                "notifications.vapid_subject is neither like mailto:ops@example.org nor like https://example.org",
            ),
            (
                notifications.hook_url.is_none() || notifications.hook_secret.is_some(),
                "notifications.hook_secret is not set, but notifications.hook_url is",
            ),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }

    /// What must hold for users: whether it does, and what to say if not.
    fn of_users(&self) -> Vec<(bool, String)> {
        [
            (self.accounts.minimum_age <= 150, "accounts.minimum_age is above 150: no user could be that old"),
            (
                self.http.user_burst == 0 || self.http.user_requests_per_second > 0,
                "http.user_requests_per_second is 0, but http.user_burst is not: no user could send another request",
            ),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }

    /// Keys that only some other setting makes necessary: whether each is there, and what to say if not.
    fn needed(&self) -> Vec<(bool, String)> {
        let chat = self.matrix.homeserver_url.is_some();
        [
            (
                !self.feeds.football_data_competitions.is_empty(),
                "feeds.football_data_token",
                self.feeds.football_data_token.is_some(),
                "feeds.football_data_competitions is",
            ),
            (chat, "matrix.server_name", self.matrix.server_name.is_some(), "matrix.homeserver_url is"),
            (
                chat && !self.env.is_development(),
                "matrix.public_url",
                self.matrix.public_url.is_some(),
                "matrix.homeserver_url is, and clients must not be sent to an inner address",
            ),
            (chat, "matrix.as_token", self.matrix.as_token.is_some(), "matrix.homeserver_url is"),
            (chat, "matrix.push_token", self.matrix.push_token.is_some(), "matrix.homeserver_url is"),
            (chat, "matrix.hs_token", self.matrix.hs_token.is_some(), "matrix.homeserver_url is"),
        ]
        .into_iter()
        .map(|(wanted, key, set, because)| (!wanted || set, format!("{key} is not set, but {because}")))
        .collect()
    }
}

impl Sms {
    /// Keys that the providers in use require: whether each is set, and the fault if not.
    fn needed(&self) -> Vec<(bool, String)> {
        let used = self.providers.iter().filter_map(|provider| Some((provider.name, self.accounts.of(provider)?)));
        used.flat_map(|(name, account)| account.required().into_iter().map(move |(key, set)| (name, key, set)))
            .map(|(name, key, set)| (set, format!("{key} is not set, but sms.providers names {name}")))
            .collect()
    }

    /// What production needs of the providers: whether it holds, and the fault if not.
    fn reaching_phones(&self) -> Vec<(bool, String)> {
        let real = registry::reaching_phones().collect::<Vec<_>>().join(" or ");
        let named = (!self.providers.is_empty(), format!("sms.providers is empty: name {real}, or several"));
        let each = self.providers.iter().map(|provider| {
            let fault = format!("sms.providers names {}, which sends nothing: production needs {real}", provider.name);
            (provider.reaches_phones, fault)
        });
        [named].into_iter().chain(each).collect()
    }
}

impl Feeds {
    /// What must hold, and what to say if it does not.
    fn promises(&self) -> Vec<(bool, String)> {
        let pauses = [("idle", self.idle), ("live", self.live), ("closing", self.closing), ("timeout", self.timeout)];
        let mut promises: Vec<(bool, String)> =
            pauses.into_iter().map(|(name, pause)| (!pause.is_zero(), format!("feeds.{name} is 0"))).collect();
        promises.push((
            self.lease > self.timeout,
            "feeds.lease is not longer than feeds.timeout: while one process waits for an answer, another would ask again"
                .to_owned(),
        ));
        promises.push((
            self.football_data_per_minute > 0,
            "feeds.football_data_per_minute is 0: nothing could ever be asked".to_owned(),
        ));
        promises.extend(self.football_data_competitions.iter().map(|code| {
            let is_code = (1..=10).contains(&code.len())
                && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
            (is_code, format!("feeds.football_data_competitions: `{code}` is no code like PL or BL1"))
        }));
        let places = self.openfootball.iter().map(|zoned| &zoned.place);
        let named: Vec<&String> = places.chain(&self.football_data_competitions).collect();
        promises.extend(
            named
                .iter()
                .enumerate()
                .map(|(at, name)| (!named[..at].contains(name), format!("feeds: `{name}` is named twice"))),
        );
        promises
    }
}

impl Loaded {
    /// The effective configuration as a TOML file that explains itself, secrets hidden.
    pub fn explain(&self) -> String {
        let mut text = format!("# MATCHDAY_ENV is {}\n", self.config.env.name());
        for (section, meaning) in Config::SECTIONS {
            let _ = write!(text, "\n#{}\n[{section}]\n", meaning.trim_end());
            for entry in self.entries.iter().filter(|entry| entry.key.split('.').next() == Some(section)) {
                let name = entry.key.rsplit('.').next().unwrap_or(entry.key);
                let _ = writeln!(text, "#{} ({})", entry.meaning.trim_end().replace('\n', "\n#"), entry.origin);
                let _ = match &entry.value {
                    Some(value) => writeln!(text, "{name} = {}", literal(value)),
                    None => writeln!(text, "# {name} = \"\""),
                };
            }
        }
        text
    }
}

fn has_each_version_once(keys: &[CodeKey]) -> bool {
    let versions: Vec<u16> = keys.iter().map(CodeKey::version).collect();
    versions.iter().enumerate().all(|(at, version)| !versions[..at].contains(version))
}

fn literal(value: &str) -> String {
    if value.parse::<f64>().is_ok() || value == "true" || value == "false" {
        value.to_owned()
    } else {
        toml::Value::from(value).to_string()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn variables(extra: &[(&str, &str)]) -> Vec<(String, String)> {
        [
            ("MATCHDAY_DATABASE__URL", "postgres://md:hunter2@db.example.org/md"),
            ("MATCHDAY_REDIS__URL", "redis://127.0.0.1"),
            ("MATCHDAY_NATS__URL", "nats://127.0.0.1"),
            ("MATCHDAY_CODES__KEYS", "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff"),
            ("MATCHDAY_ENV", "testing"),
        ]
        .iter()
        .chain(extra)
        .map(|&(name, value)| (name.to_owned(), value.to_owned()))
        .collect()
    }

    fn faults(extra: &[(&str, &str)], file: Option<&str>) -> Vec<String> {
        Config::parse(variables(extra), file).expect_err("a faulty configuration").0
    }

    #[test]
    fn defaults_yield_to_the_file_and_the_file_to_variables() {
        let file = "[http]\nmax_in_flight = 7\nlisten = \"127.0.0.1:1\"\ncors_origins = [\"https://a.example\", \"https://b.example\"]\n";
        let config =
            Config::parse(variables(&[("MATCHDAY_HTTP__LISTEN", "127.0.0.1:2")]), Some(file)).expect("valid").config;
        assert_eq!(config.http.listen.port(), 2);
        assert_eq!(config.http.max_in_flight, 7);
        assert_eq!(config.http.cors_origins, ["https://a.example", "https://b.example"]);
        assert_eq!(config.http.deadline, Duration::from_secs(10));
    }

    #[test]
    fn every_fault_is_reported_at_once_and_named() {
        let found = faults(
            &[
                ("MATCHDAY_HTTP__LISTEN", "8080"),
                ("MATCHDAY_SESSIONS__IDEL", "1d"),
                ("MATCHDAY_DATABASE__URL", "hunter3"),
                ("MATCHDAY_DATABASE__OWNER_URL", "hunter4"),
            ],
            Some("[http]\ndeadline = \"soon\"\n[outbx]\npoll = \"1s\"\n"),
        );
        insta::assert_snapshot!(found.join("\n"), @r"
        http.listen (from MATCHDAY_HTTP__LISTEN): `8080` is not an address with a port, like 127.0.0.1:8080
        http.deadline (from file): `soon` is not a time with its unit, like 500ms, 10s, 5m, 12h or 30d
        database.url (from MATCHDAY_DATABASE__URL): its value is not a URL with a host, like scheme://user:password@host:1234
        database.owner_url (from MATCHDAY_DATABASE__OWNER_URL): its value is not a URL with a host, like scheme://user:password@host:1234
        MATCHDAY_SESSIONS__IDEL is no variable of Matchday: did you mean MATCHDAY_SESSIONS__IDLE?
        outbx.poll is no key of the file of Matchday: did you mean outbox.poll?
        ");
    }

    #[test]
    fn what_must_be_set_says_where() {
        let Faults(found) = Config::parse(Vec::new(), None).expect_err("nothing is set");
        assert_eq!(found.len(), 6, "four keys, and what production needs: {found:?}");
        assert_eq!(
            found[0],
            "database.url is not set: put it in the file or in MATCHDAY_DATABASE__URL; it must be a URL with a host, like scheme://user:password@host:1234"
        );
    }

    #[test]
    fn contradictions_are_reported_with_faults_of_other_keys() {
        let found = faults(
            &[
                ("MATCHDAY_HTTP__LISTEN", "8080"),
                ("MATCHDAY_HTTP__DEADLINE", "soon"),
                ("MATCHDAY_DATABASE__URL", "hunter2"),
                ("MATCHDAY_CODES__KEYS", "1:short"),
                ("MATCHDAY_COINS__DAILY", "0"),
                ("MATCHDAY_COINS__QUEUE", "many"),
                ("MATCHDAY_SESSIONS__IDLE", "400d"),
                ("MATCHDAY_SESSIONS__LIFETIME", "ever"),
                ("MATCHDAY_LOG__LEVEL", "info"),
            ],
            None,
        );
        insta::assert_snapshot!(found.join("\n"), @r"
        http.listen (from MATCHDAY_HTTP__LISTEN): `8080` is not an address with a port, like 127.0.0.1:8080
        http.deadline (from MATCHDAY_HTTP__DEADLINE): `soon` is not a time with its unit, like 500ms, 10s, 5m, 12h or 30d
        database.url (from MATCHDAY_DATABASE__URL): its value is not a URL with a host, like scheme://user:password@host:1234
        codes.keys (from MATCHDAY_CODES__KEYS): its value is not a list of `version:64 hexadecimal digits`, separated by commas
        sessions.lifetime (from MATCHDAY_SESSIONS__LIFETIME): `ever` is not a time with its unit, like 500ms, 10s, 5m, 12h or 30d
        coins.queue (from MATCHDAY_COINS__QUEUE): `many` is not a whole number, 0 or more
        coins.daily is 0: a claim would give nothing
        MATCHDAY_LOG__LEVEL is no variable of Matchday: `matchday config` lists them all
        ");
    }

    #[test]
    fn contradictions_are_found() {
        let found = faults(
            &[
                ("MATCHDAY_SESSIONS__IDLE", "400d"),
                ("MATCHDAY_HTTP__MAX_IN_FLIGHT", "0"),
                ("MATCHDAY_NATS__PREFIX", "a.b"),
            ],
            None,
        );
        assert_eq!(found.len(), 3, "{found:?}");
    }

    #[test]
    fn feeds_are_checked_before_they_are_asked() {
        let found = faults(
            &[
                ("MATCHDAY_FEEDS__FOOTBALL_DATA_COMPETITIONS", "PL,pl/../x,PL"),
                ("MATCHDAY_FEEDS__OPENFOOTBALL", "cup.json,cup.json Europe/London"),
                ("MATCHDAY_FEEDS__LEASE", "10s"),
                ("MATCHDAY_FEEDS__IDLE", "0s"),
                ("MATCHDAY_FEEDS__FOOTBALL_DATA_PER_MINUTE", "0"),
            ],
            None,
        );
        insta::assert_snapshot!(found.join("\n"), @r"
        feeds.football_data_token is not set, but feeds.football_data_competitions is
        feeds.idle is 0
        feeds.lease is not longer than feeds.timeout: while one process waits for an answer, another would ask again
        feeds.football_data_per_minute is 0: nothing could ever be asked
        feeds.football_data_competitions: `pl/../x` is no code like PL or BL1
        feeds: `cup.json` is named twice
        feeds: `PL` is named twice
        ");
        let found = faults(&[("MATCHDAY_FEEDS__OPENFOOTBALL", "cup.json Europe/Lodnon")], None);
        assert_eq!(
            found,
            [
                "feeds.openfootball (from MATCHDAY_FEEDS__OPENFOOTBALL): `cup.json Europe/Lodnon` is not a list separated by commas, \
              each a file or URL, perhaps with a time zone after it, as in en.1.json Europe/London"
            ]
        );
    }

    #[test]
    fn production_wants_a_real_way_to_reach_people() {
        let production = ("MATCHDAY_ENV", "production");
        let found = faults(&[production], None);
        assert_eq!(
            found,
            [
                "sms.countries is empty: name the countries that codes may be sent to, like DE,GB",
                "sms.providers is empty: name twilio or vonage, or several"
            ]
        );
        let found = faults(
            &[production, ("MATCHDAY_SMS__COUNTRIES", "DE,GB:2000"), ("MATCHDAY_SMS__PROVIDERS", "vonage,console")],
            None,
        );
        insta::assert_snapshot!(found.join("\n"), @r"
        sms.vonage_api_key is not set, but sms.providers names vonage
        sms.vonage_api_secret is not set, but sms.providers names vonage
        sms.vonage_from is not set, but sms.providers names vonage
        sms.providers names console, which sends nothing: production needs twilio or vonage
        ");
        let found = faults(&[("MATCHDAY_CODES__KEYS", "1:short"), ("MATCHDAY_SMS__COUNTRIES", "ZZ")], None);
        insta::assert_snapshot!(found.join("\n"), @r"
        codes.keys (from MATCHDAY_CODES__KEYS): its value is not a list of `version:64 hexadecimal digits`, separated by commas
        sms.countries (from MATCHDAY_SMS__COUNTRIES): `ZZ` is not a list of country codes like DE or GB:2000, separated by commas
        ");
    }

    #[test]
    fn the_console_is_there_for_developers_unless_somebody_says_otherwise() {
        let has_console = |extra: &[(&str, &str)]| {
            Config::parse(variables(extra), None)
                .map(|loaded| loaded.config.has_console())
                .map_err(|Faults(found)| found)
        };
        let staging = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "DE")];
        let enabled = [staging[0], staging[1], ("MATCHDAY_CONSOLE__ENABLED", "true")];
        assert_eq!(has_console(&[]), Ok(true));
        assert_eq!(has_console(&[("MATCHDAY_CONSOLE__ENABLED", "false")]), Ok(false));
        let unverified = "console.enabled is true, but the console cannot verify its operators: set console.proxy_secrets or \
                          console.token_issuer, or console.enabled to false";
        assert_eq!((has_console(&staging), has_console(&enabled)), (Ok(false), Err(vec![unverified.to_owned()])));
        assert_eq!(
            has_console(&[("MATCHDAY_CONSOLE__OPERATOR_HEADER", "Who is it")]),
            Err(vec![
                "console.operator_header: `Who is it` is not the name of a header, like X-Forwarded-User".to_owned()
            ])
        );
        let text = Config::parse(variables(&[]), None).expect("valid").explain();
        assert!(text.contains("operator_header = \"X-Forwarded-User\""), "{text}");
    }

    #[test]
    fn console_without_verification_is_a_fault_outside_development() {
        let secret = "0123456789abcdef0123456789abcdef";
        for environment in ["staging", "production", "prod"] {
            let base = [
                ("MATCHDAY_ENV", environment),
                ("MATCHDAY_SMS__COUNTRIES", "DE"),
                ("MATCHDAY_SMS__PROVIDERS", "twilio"),
                ("MATCHDAY_SMS__TWILIO_ACCOUNT_SID", "AC0"),
                ("MATCHDAY_SMS__TWILIO_AUTH_TOKEN", "token"),
                ("MATCHDAY_SMS__TWILIO_FROM", "+12015550100"),
                ("MATCHDAY_CONSOLE__ENABLED", "true"),
            ];
            let parse = |extra: &[(&str, &str)]| {
                Config::parse(variables(&[&base, extra].concat()), None).map(|_| ()).map_err(|Faults(found)| found)
            };
            let unverified = parse(&[]).expect_err("no verification");
            assert_eq!(unverified.len(), 1, "{unverified:?}");
            assert!(unverified[0].contains("cannot verify its operators"), "{unverified:?}");
            let roles = ("MATCHDAY_CONSOLE__OPERATORS", "staff");
            assert_eq!(parse(&[("MATCHDAY_CONSOLE__PROXY_SECRETS", secret), roles]), Ok(()));
            let token = [
                ("MATCHDAY_CONSOLE__TOKEN_ISSUER", "https://login.example.org"),
                ("MATCHDAY_CONSOLE__TOKEN_AUDIENCES", "console"),
                ("MATCHDAY_CONSOLE__TOKEN_KEYS_URL", "https://login.example.org/keys"),
                roles,
            ];
            assert_eq!(parse(&token), Ok(()));
        }
    }

    #[test]
    fn half_configured_console_verification_is_a_fault() {
        let secret = ("MATCHDAY_CONSOLE__PROXY_SECRETS", "0123456789abcdef0123456789abcdef");
        let issuer = ("MATCHDAY_CONSOLE__TOKEN_ISSUER", "https://login.example.org");
        let found = faults(&[secret, issuer, ("MATCHDAY_CONSOLE__TOKEN_KEYS_FILE", "/etc/keys")], None);
        insta::assert_snapshot!(found.join("\n"), @r"
        console.proxy_secrets and console.token_issuer are both set: choose one way to verify operators
        console.token_audiences is not set, but console.token_issuer is
        console.operators, console.moderators and console.viewers are all empty: no one could use the console
        ");
        let found = faults(
            &[
                ("MATCHDAY_CONSOLE__PROXY_SECRETS", "short"),
                ("MATCHDAY_CONSOLE__TOKEN_KEYS_URL", "http://login.example.org/keys"),
                ("MATCHDAY_CONSOLE__VIEWERS", "staff"),
                ("MATCHDAY_CONSOLE__LISTEN", "127.0.0.1:9090"),
            ],
            None,
        );
        insta::assert_snapshot!(found.join("\n"), @r"
        console.listen is also http.listen or http.private_listen: give the console its own address
        console.proxy_secrets has a secret of fewer than 32 characters: make one with `openssl rand -hex 32`
        console.token_issuer is not set, but console.token_keys_url or console.token_keys_file is
        ");
        let found = faults(&[("MATCHDAY_CONSOLE__LISTEN", "0.0.0.0:9092")], None);
        assert_eq!(
            found,
            ["console.listen is not a loopback address, but the console cannot verify its operators: set \
              console.proxy_secrets or console.token_issuer"]
        );
        for algorithm in ["HS256", "none", "RS256,HS512"] {
            let found = faults(&[("MATCHDAY_CONSOLE__TOKEN_ALGORITHMS", algorithm)], None);
            assert!(found.len() == 1 && found[0].starts_with("console.token_algorithms"), "{found:?}");
        }
    }

    #[test]
    fn variables_of_other_tools_are_left_alone() {
        assert!(Config::parse(variables(&[("MATCHDAY_URL", "x"), ("MATCHDAY_BIN", "y")]), None).is_ok());
    }

    #[test]
    fn an_unknown_environment_is_production() {
        for (name, expected) in [
            (None, Environment::Production),
            (Some("Local"), Environment::Production),
            (Some(""), Environment::Production),
            (Some("local"), Environment::Local),
            (Some("testing"), Environment::Testing),
            (Some("staging"), Environment::Staging),
        ] {
            assert_eq!(Environment::from_name(name), expected, "{name:?}");
        }
    }

    #[test]
    fn the_printed_configuration_hides_secrets_and_reads_back() {
        let owner = ("MATCHDAY_DATABASE__OWNER_URL", "postgres://owner:hunter2@db.example.org/md");
        let loaded = Config::parse(variables(&[owner]), None).expect("valid");
        let text = loaded.explain();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("postgres://md:hidden@db.example.org/md"));
        assert!(text.contains("postgres://owner:hidden@db.example.org/md"));
        assert!(text.contains("# Where apps reach the service. (default)"));
        assert!(!text.contains("00112233"), "{text}");
        let secrets =
            variables(&[]).into_iter().filter(|(name, _)| name == "MATCHDAY_CODES__KEYS" || name == "MATCHDAY_ENV");
        let again = Config::parse(secrets, Some(&text)).expect("the printed file is a valid one, but for the secrets");
        assert_eq!(again.config.http.listen, loaded.config.http.listen);
    }
}
