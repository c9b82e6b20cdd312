//! The `leagues` section of the settings.

use platform::{section, settings::Conditions};

section! {
    /// Leagues of users.
    leagues: Settings {
        /// Greatest number of members that an owner can allow.
        max_members: u32 = "1000",
        /// A league that allows more members than this has its table in Redis, copied from the scores every few seconds.
        /// The table of a smaller one is summed when it is read.
        large_from: u16 = "1000",
        /// Greatest number of members of a league that counts matches from a time on, or from the time at which a member
        /// joined. Its table reads the predictions of the round in which a member starts, which takes longer than summing
        /// scores.
        exact_limit: u16 = "1000",
        /// Number of leagues that a user can belong to.
        per_user: u16 = "50",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            ((2..=1_000_000).contains(&self.max_members), "leagues.max_members must be from 2 to 1000000"),
            ((1..=10_000).contains(&self.large_from), "leagues.large_from must be from 1 to 10000"),
            ((2..=10_000).contains(&self.exact_limit), "leagues.exact_limit must be from 2 to 10000"),
            (self.per_user > 0, "leagues.per_user is 0: users could not create leagues"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
