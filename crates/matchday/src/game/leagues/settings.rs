//! The `leagues` section of the settings.

use platform::{section, settings::Conditions};

section! {
    /// Leagues of users.
    leagues: Settings {
        /// Greatest number of members that an owner can allow.
        max_members: u16 = "1000",
        /// Greatest number of members of a league that counts matches from a time on, or from the time at which a member
        /// joined. Its table is summed from predictions, which takes longer than summing scores.
        exact_limit: u16 = "1000",
        /// Number of leagues that a user can belong to.
        per_user: u16 = "50",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            ((2..=10_000).contains(&self.max_members), "leagues.max_members must be from 2 to 10000"),
            ((2..=10_000).contains(&self.exact_limit), "leagues.exact_limit must be from 2 to 10000"),
            (self.per_user > 0, "leagues.per_user is 0: users could not create leagues"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
