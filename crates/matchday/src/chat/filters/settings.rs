//! Settings of the filters.

use std::time::Duration;

use platform::{
    Environment,
    outbound_http::Reach,
    section,
    settings::{Conditions, HostPattern, Setting},
    standard_webhooks::SigningSecret,
};
use url::Url;

use super::rules::{Action, Check};

/// Longest mute by a filter. Longer ones are decisions of operators.
const LONGEST_MUTE: Duration = Duration::from_hours(24 * 7);

section! {
    /// Filters for chat messages of unencrypted rooms; see docs/moderation-filters.md.
    filters: Settings {
        /// Built-in word lists: slurs and severe insults in English, Spanish, Persian and Portuguese. `off`, or the action
        /// for a match: `remove`, `hold` or `mute`.
        words: Check = "remove",
        /// Links, except to `allowed_domains`: `off`, `remove`, `hold` or `mute`.
        links: Check = "off",
        /// More than `repeats_allowed` equal messages of a sender within a minute: `off`, `remove`, `hold` or `mute`.
        repeats: Check = "remove",
        /// Invitations to other chats, such as t.me and discord.gg: `off`, `remove`, `hold` or `mute`.
        invitations: Check = "remove",
        /// Hosts that links may have, such as `example.org` or `*.example.org`.
        allowed_domains: Vec<HostPattern> = "",
        /// Number of equal messages that a sender may send within a minute.
        repeats_allowed: usize = "5",
        /// Length of a mute by a built-in check, by the classifier, or by a pattern without its own length.
        mute_for: Duration = "10m",
        /// URL of a classifier, which is asked about each message that no filter matched. Empty: none.
        classifier_url: Option<Url> = "",
        /// Secret that signs requests to the classifier: `whsec_` and 24 to 64 bytes in base64.
        classifier_secret: Option<SigningSecret> = "",
        /// Time limit for a response of the classifier. All messages of a push together wait twice as long at most.
        classifier_timeout: Duration = "500ms",
        /// Effect of a classifier that does not respond: `open` allows the message, `closed` removes it.
        classifier_failure: FailureMode = "open",
    }
}

/// Effect of a classifier that does not respond.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    Open,
    Closed,
}

impl Setting for FailureMode {
    const EXPECTED: &'static str = "open or closed";
    const PLACEHOLDER: &'static str = "open";
    fn parse(text: &str) -> Option<Self> {
        match text {
            "open" => Some(Self::Open),
            "closed" => Some(Self::Closed),
            _ => None,
        }
    }
    fn show(&self) -> String {
        match self {
            Self::Open => "open",
            Self::Closed => "closed",
        }
        .to_owned()
    }
}

impl Settings {
    /// Whether a built-in check holds messages, for which their text must be encrypted.
    pub fn holds(&self) -> bool {
        [self.words, self.links, self.repeats, self.invitations].contains(&Check(Some(Action::Hold)))
    }

    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self, env: Environment) -> Conditions {
        let address = self.classifier_url.as_ref().map_or(Ok(()), |url| Reach::of(env).check(url));
        let mut conditions = vec![
            (self.repeats_allowed > 0, "filters.repeats_allowed is 0: every message would be a repeat".to_owned()),
            (
                (Duration::from_mins(1)..=LONGEST_MUTE).contains(&self.mute_for),
                "filters.mute_for must be from 1m to 7d".to_owned(),
            ),
            (
                self.classifier_url.is_none() || self.classifier_secret.is_some(),
                "filters.classifier_secret is not set, but filters.classifier_url is".to_owned(),
            ),
            (
                (Duration::from_millis(10)..=Duration::from_secs(5)).contains(&self.classifier_timeout),
                "filters.classifier_timeout must be from 10ms to 5s: pushes of the homeserver wait for it".to_owned(),
            ),
        ];
        if let Err(fault) = address {
            conditions.push((false, format!("filters.classifier_url cannot be used: {fault}")));
        }
        conditions
    }
}
