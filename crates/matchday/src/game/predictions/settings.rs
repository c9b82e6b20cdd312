//! The `predictions` section of the settings.

use platform::{section, setting_by_name, settings::Conditions};

section! {
    /// Saving and showing predictions.
    predictions: Settings {
        /// When users see the predictions of other users: `always`, or `after_start` of the match. The summary of all
        /// predictions is always visible.
        reveal: Reveal = "always",
        /// Number of batch writers in this process. Each writes all its waiting predictions in one transaction. Two to
        /// four are enough for one database.
        writers: usize = "2",
        /// Maximum number of predictions that wait for a batch writer; further requests get 503 immediately.
        queue: usize = "1000",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.writers > 0, "predictions.writers is 0: predictions could not be saved"),
            (self.queue > 0, "predictions.queue is 0: predictions could not be saved"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reveal {
    /// Predictions are always visible.
    Always,
    /// Predictions become visible once the match has started, so that users cannot copy them.
    AfterStart,
}

setting_by_name!(Reveal, "always or after_start", "always" => Self::Always, "after_start" => Self::AfterStart);
