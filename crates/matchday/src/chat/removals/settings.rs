//! Settings of removed messages and of escalation.

use std::time::Duration;

use platform::{section, settings::Conditions};

use super::rules::Step;

section! {
    /// Consequences of removed messages for their senders.
    removals: Settings {
        /// Consequences of a user's first, second and further offences: warn, mute:TIME or ban:TIME. The last one applies
        /// to all further offences. An offence is a message removed by an operator, a filter or a moderator of a match room,
        /// together with those removed within ten minutes after it. Messages that the moderators of a fan room remove count
        /// in that room only, and mute there.
        escalation: Vec<Step> = "warn,mute:1h,mute:24h",
        /// Time after which an offence no longer counts.
        escalation_period: Duration = "30d",
        /// Time for which removals are kept, without the text of the messages.
        kept_for: Duration = "90d",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![(
            self.kept_for >= self.escalation_period,
            "removals.kept_for is shorter than removals.escalation_period".to_owned(),
        )]
    }
}
