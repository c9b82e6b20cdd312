//! Settings of webhooks.

use std::time::Duration;

use platform::{
    section,
    settings::{CodeKey, Conditions, has_each_version_once},
};

section! {
    /// What app backends are told: see docs/webhooks.md.
    webhooks: Settings {
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
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (has_each_version_once(&self.keys), "webhooks.keys has a version twice: give each key its own"),
            (self.at_once > 0, "webhooks.at_once is 0: no webhook could ever be sent"),
            (!self.timeout.is_zero(), "webhooks.timeout is 0: every webhook would fail"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
