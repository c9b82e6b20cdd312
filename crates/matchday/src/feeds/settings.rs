//! Settings of feeds.

use std::time::Duration;

use platform::{
    section,
    settings::{Conditions, Secret},
};
use url::Url;

use super::zone::ZonedPlace;

section! {
    /// Where matches come from by themselves. Nothing named: nowhere.
    feeds: Settings {
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
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
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
            "feeds.lease is not longer than feeds.timeout: while one process waits for an answer, another would ask again"
                .to_owned(),
        ));
        conditions.push((
            self.football_data_per_minute > 0,
            "feeds.football_data_per_minute is 0: nothing could ever be asked".to_owned(),
        ));
        conditions.extend(self.football_data_competitions.iter().map(|code| {
            let is_code = (1..=10).contains(&code.len())
                && code.bytes().all(|byte| byte.is_ascii_uppercase() || byte.is_ascii_digit());
            (is_code, format!("feeds.football_data_competitions: `{code}` is no code like PL or BL1"))
        }));
        let places = self.openfootball.iter().map(|zoned| &zoned.place);
        let named: Vec<&String> = places.chain(&self.football_data_competitions).collect();
        conditions.extend(
            named
                .iter()
                .enumerate()
                .map(|(at, name)| (!named[..at].contains(name), format!("feeds: `{name}` is named twice"))),
        );
        conditions
    }
}
