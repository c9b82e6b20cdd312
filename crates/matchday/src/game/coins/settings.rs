//! The `coins` section of the settings.

use platform::{
    section,
    settings::{Conditions, Phrase},
};

section! {
    /// Wallets, daily bonus and payouts.
    coins: Settings {
        /// Coins that a new account receives.
        welcome: u32 = "100",
        /// Coins that a user can claim once per day (UTC).
        daily: u32 = "50",
        /// Additional coins for each further consecutive day.
        streak_step: u32 = "10",
        /// Maximum of the additional coins.
        streak_most: u32 = "60",
        /// Allowed values of `reason` in deductions, for example `purchase,wager`. If empty, any text of 1 to 64
        /// characters without control characters is allowed.
        reasons: Vec<Phrase> = "",
        /// Coins paid per point once a match has a result. Negative points cost nothing. A match keeps the rate of its
        /// first result. 0 disables payouts. Enable payouts only after every process runs a version that supports
        /// coins: older versions settle matches without paying.
        per_point: u32 = "0",
        /// Number of batch writers for deductions in this process. Each writes all its waiting deductions in one
        /// transaction.
        writers: usize = "2",
        /// Maximum number of deductions that wait for a batch writer; further requests get 503 immediately.
        queue: usize = "1000",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.writers > 0, "coins.writers is 0: coins could not be spent"),
            (self.queue > 0, "coins.queue is 0: coins could not be spent"),
            (self.daily > 0, "coins.daily is 0: a claim would award no coins"),
            (self.per_point <= 1_000_000, "coins.per_point is above 1000000"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
