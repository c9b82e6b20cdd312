use std::time::Duration;

use platform::{
    section,
    settings::{CodeKey, Conditions, has_each_version_once},
};

section! {
    /// Webhooks to app backends; see docs/webhooks.md.
    webhooks: Settings {
        /// Keys that encrypt the stored secrets of endpoints, and chat messages that a filter holds for review: `version:64
        /// hexadecimal digits`. The first key encrypts; all keys decrypt. To rotate, put a key with a new version in
        /// front, run `matchday webhooks reseal`, wait until no held message is older, then remove the old key. Empty: no
        /// endpoint can be added, and no message held.
        keys: Vec<CodeKey> = "",
        /// Maximum time for a response of an endpoint.
        timeout: Duration = "10s",
        /// Number of messages that this process sends to one endpoint concurrently.
        at_once: usize = "4",
        /// Pauses before each retry of a message that was not accepted. After the last attempt it becomes a dead
        /// letter.
        pauses: Vec<Duration> = "5s,30s,2m,10m,30m,1h,2h,4h,8h,8h",
    }
}

impl Settings {
    /// Conditions across settings, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (has_each_version_once(&self.keys), "webhooks.keys has a version twice: give each key a unique version"),
            (self.at_once > 0, "webhooks.at_once is 0: no webhook would ever be sent"),
            (!self.timeout.is_zero(), "webhooks.timeout is 0: every webhook would fail"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
