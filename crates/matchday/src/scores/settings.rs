//! Settings of scores.

use platform::{section, settings::Conditions};

section! {
    /// Scores and leaderboards.
    scores: Settings {
        /// How many lanes of users this process works on at once after a result.
        workers: usize = "4",
        /// How many predictions a lane has.
        lane_size: u32 = "20000",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.workers > 0, "scores.workers is 0: no score would ever follow a result"),
            (self.lane_size > 0, "scores.lane_size is 0: no lane could hold anybody"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
