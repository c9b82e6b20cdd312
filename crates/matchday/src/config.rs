//! Configuration of a process: defaults, overridden by a TOML file, overridden by `MATCHDAY_…` variables.
//!
//! Each feature declares its section in its `settings.rs`; this module combines them. `matchday config` prints the
//! effective settings from these declarations.

mod reference;

use std::{fmt::Write as _, path::Path};

use platform::{
    Environment,
    settings::{Conditions, Entry, Faults, Source},
};

pub use self::reference::reference;
use crate::{
    admin::console,
    catalogue::feeds,
    chat::{self, filters, moderation, removals, reports, rooms, view},
    delivery::{live, notifications, webhooks},
    game::{coins, follows, leagues, predictions, questions, scores, seals},
    identity::{accounts, avatars, codes, server_keys, sessions, sms},
};

/// Combines the sections, in the order in which they are printed.
macro_rules! sections {
    ($($section:ident: $type:ty),* $(,)?) => {
        /// The effective configuration of a process.
        #[derive(Clone, Debug)]
        pub struct Config {
            /// Environment of this process (`MATCHDAY_ENV`).
            pub env: Environment,
            $( pub $section: $type, )*
        }

        impl Config {
            const SECTIONS: &'static [(&'static str, &'static str)] = &[$( <$type>::SECTION, )*];

            fn read_sections(env: Environment, source: &mut Source) -> Option<Self> {
                $( let $section = <$type>::read(source); )*
                Some(Self { env, $( $section: $section?, )* })
            }
        }
    };
}

sections! {
    http: web::settings::Http,
    database: platform::database::Settings,
    redis: platform::redis_client::Settings,
    nats: platform::stream::Settings,
    matrix: chat::accounts::settings::Matrix,
    rooms: rooms::settings::Settings,
    chat_view: view::settings::Settings,
    moderation: moderation::settings::Settings,
    removals: removals::settings::Settings,
    filters: filters::settings::Settings,
    reports: reports::settings::Settings,
    codes: codes::settings::Settings,
    sms: sms::settings::Settings,
    limits: codes::settings::Limits,
    accounts: accounts::settings::Settings,
    avatars: avatars::settings::Settings,
    sessions: sessions::settings::Settings,
    server_api: server_keys::settings::Settings,
    predictions: predictions::settings::Settings,
    scores: scores::settings::Settings,
    leagues: leagues::settings::Settings,
    follows: follows::settings::Settings,
    questions: questions::settings::Settings,
    seals: seals::settings::Settings,
    coins: coins::settings::Settings,
    stream: live::settings::Settings,
    feeds: feeds::settings::Settings,
    webhooks: webhooks::settings::Settings,
    notifications: notifications::settings::Settings,
    fcm: notifications::settings::FcmSettings,
    apns: notifications::settings::ApnsSettings,
    console: console::settings::Settings,
    pages: platform::page_cache::Settings,
    outbox: platform::outbox::Settings,
    log: platform::telemetry::LogSettings,
    traces: platform::telemetry::TraceSettings,
    shutdown: platform::shutdown::Settings,
}

/// A configuration, with the value and origin of each key.
#[derive(Debug)]
pub struct Loaded {
    pub config: Config,
    /// Effective value and origin of every key.
    entries: Vec<Entry>,
}

impl Config {
    /// Reads the environment variables and the file named by `file` or, without it, by `MATCHDAY_CONFIG`.
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

    /// Builds a configuration from the given variables and file contents.
    pub fn parse(variables: impl IntoIterator<Item = (String, String)>, file: Option<&str>) -> Result<Loaded, Faults> {
        let mut source = Source::new(variables, file);
        let env = Environment::from_name(source.variable("MATCHDAY_ENV"));
        let config = Self::read_sections(env, &mut source);
        if let Some(config) = &config {
            for (_, fault) in config.conditions().into_iter().filter(|(holds, _)| !holds) {
                source.fault(fault);
            }
        }
        let entries = source.finish()?;
        config.map(|config| Loaded { config, entries }).ok_or_else(|| Faults(Vec::new()))
    }

    /// Conditions of every section, and conditions that involve several sections.
    fn conditions(&self) -> Conditions {
        let (deadline, env) = (self.http.deadline, self.env);
        let providers = u32::try_from(self.sms.providers.len()).unwrap_or(u32::MAX);
        let between = [
            (
                providers == 0 || self.sms.timeout * providers < deadline,
                "sms.timeout is too long to try all sms.providers within http.deadline: make it shorter",
            ),
            (
                self.matrix.homeserver_url.is_none() || self.matrix.timeout < deadline,
                "matrix.timeout is not shorter than http.deadline: callers would not learn that chat is unavailable",
            ),
            (
                !self.filters.holds() || !self.webhooks.keys.is_empty(),
                "webhooks.keys is not set, but a setting of filters is hold: held texts are encrypted with it",
            ),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()));
        [
            self.http.conditions(),
            self.database.conditions(),
            self.redis.conditions(),
            self.nats.conditions(),
            self.matrix.conditions(env),
            self.rooms.conditions(),
            self.moderation.conditions(),
            self.chat_view.conditions(),
            self.removals.conditions(),
            self.filters.conditions(env),
            self.reports.conditions(),
            self.codes.conditions(),
            self.sms.conditions(env),
            self.accounts.conditions(),
            self.avatars.conditions(),
            self.sessions.conditions(),
            self.server_api.conditions(),
            self.predictions.conditions(),
            self.scores.conditions(),
            self.leagues.conditions(),
            self.follows.conditions(),
            self.questions.conditions(),
            self.coins.conditions(),
            self.feeds.conditions(),
            self.webhooks.conditions(),
            self.notifications.conditions(),
            self.fcm.conditions(env),
            self.apns.conditions(env),
            self.console
                .conditions(env, &[Some(self.http.listen), Some(self.http.private_listen), self.http.server_listen]),
            self.outbox.conditions(),
            self.traces.conditions(),
            between.into(),
        ]
        .concat()
    }

    /// Whether this process serves the console.
    pub fn has_console(&self) -> bool {
        self.console.is_enabled(self.env)
    }
}

impl Loaded {
    /// Renders the effective configuration as a commented TOML file with secrets hidden.
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

fn literal(value: &str) -> String {
    if value.parse::<f64>().is_ok() || value == "true" || value == "false" {
        value.to_owned()
    } else {
        toml::Value::from(value).to_string()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

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
    fn variables_override_file_and_file_overrides_defaults() {
        let file = "[http]\nmax_in_flight = 7\nlisten = \"127.0.0.1:1\"\n\
                    cors_origins = [\"https://a.example\", \"https://b.example\"]\n";
        let config =
            Config::parse(variables(&[("MATCHDAY_HTTP__LISTEN", "127.0.0.1:2")]), Some(file)).expect("valid").config;
        assert_eq!(config.http.listen.port(), 2);
        assert_eq!(config.http.max_in_flight, 7);
        assert_eq!(config.http.cors_origins, ["https://a.example", "https://b.example"]);
        assert_eq!(config.http.deadline, Duration::from_secs(10));
    }

    #[test]
    fn reports_every_fault_with_its_key() {
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
        http.deadline (from file): `soon` is not a duration with a unit, like 500ms, 10s, 5m, 12h or 30d
        database.url (from MATCHDAY_DATABASE__URL): its value is not a URL with a host, like scheme://user:password@host:1234
        database.owner_url (from MATCHDAY_DATABASE__OWNER_URL): its value is not a URL with a host, like scheme://user:password@host:1234
        MATCHDAY_SESSIONS__IDEL is not a known variable: did you mean MATCHDAY_SESSIONS__IDLE?
        outbx.poll is not a known key: did you mean outbox.poll?
        ");
    }

    #[test]
    fn missing_setting_error_names_its_variable() {
        let Faults(found) = Config::parse(Vec::new(), None).expect_err("nothing is set");
        assert_eq!(found.len(), 6, "four keys, and two required in production: {found:?}");
        assert_eq!(
            found[0],
            "database.url is not set: add it to the file or set MATCHDAY_DATABASE__URL; it must be a URL with a host, \
             like scheme://user:password@host:1234"
        );
    }

    #[test]
    fn contradictions_are_reported_with_other_faults() {
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
        http.deadline (from MATCHDAY_HTTP__DEADLINE): `soon` is not a duration with a unit, like 500ms, 10s, 5m, 12h or 30d
        database.url (from MATCHDAY_DATABASE__URL): its value is not a URL with a host, like scheme://user:password@host:1234
        codes.keys (from MATCHDAY_CODES__KEYS): its value is not a list of `version:64 hexadecimal digits`, separated by commas
        sessions.lifetime (from MATCHDAY_SESSIONS__LIFETIME): `ever` is not a duration with a unit, like 500ms, 10s, 5m, 12h or 30d
        coins.queue (from MATCHDAY_COINS__QUEUE): `many` is not a whole number, 0 or more
        coins.daily is 0: a claim would award no coins
        MATCHDAY_LOG__LEVEL is not a known variable: `matchday config` lists them all
        ");
    }

    #[test]
    fn reports_contradicting_settings() {
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
    fn invalid_feed_settings_are_refused() {
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
        feeds.lease is not longer than feeds.timeout: while one process waits, another would poll too
        feeds.football_data_per_minute is 0: no request could ever be sent
        feeds.football_data_competitions: `pl/../x` is not a competition code like PL or BL1
        feeds: `cup.json` is listed twice
        feeds: `PL` is listed twice
        ");
        let found = faults(&[("MATCHDAY_FEEDS__OPENFOOTBALL", "cup.json Europe/Lodnon")], None);
        assert_eq!(
            found,
            ["feeds.openfootball (from MATCHDAY_FEEDS__OPENFOOTBALL): `cup.json Europe/Lodnon` is not a list \
              separated by commas, each a file or URL, optionally followed by a time zone, as in en.1.json \
              Europe/London"]
        );
    }

    #[test]
    fn production_requires_a_real_sms_provider() {
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
    fn console_is_enabled_by_default_in_development_only() {
        let has_console = |extra: &[(&str, &str)]| {
            Config::parse(variables(extra), None)
                .map(|loaded| loaded.config.has_console())
                .map_err(|Faults(found)| found)
        };
        let staging = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "DE")];
        let enabled = [staging[0], staging[1], ("MATCHDAY_CONSOLE__ENABLED", "true")];
        assert_eq!(has_console(&[]), Ok(true));
        assert_eq!(has_console(&[("MATCHDAY_CONSOLE__ENABLED", "false")]), Ok(false));
        let unverified = "console.enabled is true, but the console cannot verify its operators: set \
                          console.proxy_secrets or console.token_issuer, or console.enabled to false";
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
    fn console_outside_development_requires_verification() {
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
        console.listen is the address of another listener: give the console its own address
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
    fn ignores_variables_of_other_tools() {
        assert!(Config::parse(variables(&[("MATCHDAY_URL", "x"), ("MATCHDAY_BIN", "y")]), None).is_ok());
    }

    #[test]
    fn printed_configuration_hides_secrets_and_parses() {
        let owner = ("MATCHDAY_DATABASE__OWNER_URL", "postgres://owner:hunter2@db.example.org/md");
        let loaded = Config::parse(variables(&[owner]), None).expect("valid");
        let text = loaded.explain();
        assert!(!text.contains("hunter2"), "{text}");
        assert!(text.contains("postgres://md:hidden@db.example.org/md"));
        assert!(text.contains("postgres://owner:hidden@db.example.org/md"));
        assert!(text.contains("# Address on which apps reach the service. (default)"));
        assert!(!text.contains("00112233"), "{text}");
        let secrets =
            variables(&[]).into_iter().filter(|(name, _)| name == "MATCHDAY_CODES__KEYS" || name == "MATCHDAY_ENV");
        let again = Config::parse(secrets, Some(&text)).expect("the printed file is valid except for its secrets");
        assert_eq!(again.config.http.listen, loaded.config.http.listen);
    }
}
