use std::time::Duration;

use platform::{
    section,
    settings::{Conditions, Secret},
};
use url::Url;

use super::zone::ZonedPlace;

section! {
    /// Feeds that matches are imported from automatically. By default there are none.
    feeds: Settings {
        /// API token issued by football-data.org.
        football_data_token: Option<Secret> = "",
        /// Base URL of football-data.org.
        football_data_url: Url = "https://api.football-data.org",
        /// Codes of the football-data.org competitions to follow, like `PL,CL`.
        football_data_competitions: Vec<String> = "",
        /// Number of requests a minute that your plan allows, for all competitions together.
        football_data_per_minute: u32 = "10",
        /// openfootball documents to follow: files or URLs, each optionally followed by a space and the time zone of
        /// its times, as in `https://example.org/2026-27/en.1.json Europe/London`. Without a time zone, times are UTC
        /// unless they name their own.
        openfootball: Vec<ZonedPlace> = "",
        /// Poll interval while no match of the feed is near.
        idle: Duration = "1h",
        /// Poll interval shortly before a kick-off and during a match.
        live: Duration = "1m",
        /// Poll interval when a match may end.
        closing: Duration = "20s",
        /// Maximum time for one response.
        timeout: Duration = "10s",
        /// Time after which another process takes over polling when the lease holder stops renewing its lease.
        lease: Duration = "30s",
    }
}

impl Settings {
    /// Conditions across settings, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        let token = (
            self.football_data_competitions.is_empty() || self.football_data_token.is_some(),
            "feeds.football_data_token is not set, but feeds.football_data_competitions is".to_owned(),
        );
        let pauses = [("idle", self.idle), ("live", self.live), ("closing", self.closing), ("timeout", self.timeout)];
        let pauses = pauses.into_iter().map(|(name, pause)| (!pause.is_zero(), format!("feeds.{name} is 0")));
        let mut conditions: Conditions = std::iter::once(token).chain(pauses).collect();
        conditions.push((
            self.lease > self.timeout,
            "feeds.lease is not longer than feeds.timeout: while one process waits, another would poll too".to_owned(),
        ));
        conditions.push((
            self.football_data_per_minute > 0,
            "feeds.football_data_per_minute is 0: no request could ever be sent".to_owned(),
        ));
        conditions.extend(self.football_data_competitions.iter().map(|code| {
            let is_code = (1..=10).contains(&code.len())
                && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
            (is_code, format!("feeds.football_data_competitions: `{code}` is not a competition code like PL or BL1"))
        }));
        let places = self.openfootball.iter().map(|zoned| &zoned.place);
        let named: Vec<&String> = places.chain(&self.football_data_competitions).collect();
        conditions.extend(
            named
                .iter()
                .enumerate()
                .map(|(at, name)| (!named[..at].contains(name), format!("feeds: `{name}` is listed twice"))),
        );
        conditions
    }
}
