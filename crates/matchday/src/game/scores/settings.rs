//! The `scores` section of the settings.

use platform::{section, settings::Conditions};

section! {
    /// Scoring of results, and leaderboards.
    scores: Settings {
        /// Number of score chunks that this process applies concurrently after a result.
        workers: usize = "4",
        /// Number of predictions per score chunk.
        lane_size: u32 = "20000",
        /// Number of past weeks whose scores are stored. Scores of earlier weeks are deleted, and a late correction of
        /// a result does not change them. Scores of months, tournaments and all time are kept.
        weeks_kept: u16 = "8",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.workers > 0, "scores.workers is 0: results would never reach the scores"),
            (self.lane_size > 0, "scores.lane_size is 0: a chunk could not hold any predictions"),
            (
                self.weeks_kept >= 2,
                "scores.weeks_kept is below 2: the leaderboard of the last week still exists in Redis",
            ),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
