//! Settings of coins.

use platform::{
    section,
    settings::{Conditions, Phrase},
};

section! {
    /// Coins.
    coins: Settings {
        /// What a new account gets.
        welcome: u32 = "100",
        /// What can be claimed every day (UTC).
        daily: u32 = "50",
        /// How much more that is for each further day in a row.
        streak_step: u32 = "10",
        /// At most so much more.
        streak_most: u32 = "60",
        /// Allowed values of `reason` when coins are spent, like `purchase,wager`. Empty: any text of 1 to 64 characters without
        /// control characters.
        reasons: Vec<Phrase> = "",
        /// What a point earned with a prediction is worth once its match has a result. Points below zero cost nothing. A
        /// match keeps what it was worth at its first result. 0: points are only points. Turn it on once no process of a
        /// version without coins is left: it would settle matches without paying.
        per_point: u32 = "0",
        /// How many writers of deductions this process has. Each takes what waits for it in one transaction.
        writers: usize = "2",
        /// How many deductions may wait for a writer; further ones get 503 at once.
        queue: usize = "1000",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.writers > 0, "coins.writers is 0: no coin could ever be spent"),
            (self.queue > 0, "coins.queue is 0: no coin could ever be spent"),
            (self.daily > 0, "coins.daily is 0: a claim would give nothing"),
            (self.per_point <= 1_000_000, "coins.per_point is above 1000000"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
