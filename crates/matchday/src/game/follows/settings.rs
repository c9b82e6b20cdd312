//! The `follows` section of the settings.

use platform::{section, settings::Conditions};

section! {
    /// Users who follow other users.
    follows: Settings {
        /// Number of users whom a user can follow. It limits the cost of a leaderboard among them.
        max: u16 = "1000",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![((1..=10_000).contains(&self.max), "follows.max must be from 1 to 10000".to_owned())]
    }
}
