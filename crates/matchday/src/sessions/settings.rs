//! Settings of sessions.

use std::time::Duration;

use platform::{section, settings::Conditions};

section! {
    /// Tokens that apps carry.
    sessions: Settings {
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
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (
                self.idle <= self.lifetime,
                "sessions.idle is longer than sessions.lifetime: an idle session could not last that long",
            ),
            (self.max_per_user > 0, "sessions.max_per_user is 0: nobody could log in"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
