//! Settings of predictions.

use platform::{section, setting_by_name, settings::Conditions};

section! {
    /// Predictions.
    predictions: Settings {
        /// When others' predictions are shown: `always`, or `after_start` of their match. How many say what is shown
        /// from the beginning.
        reveal: Reveal = "always",
        /// How many writers this process has. Each takes what waits for it in one transaction. On one database two to
        /// four are enough.
        writers: usize = "2",
        /// How many predictions may wait for a writer; further ones get 503 at once.
        queue: usize = "1000",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.writers > 0, "predictions.writers is 0: no prediction could ever be saved"),
            (self.queue > 0, "predictions.queue is 0: no prediction could ever be saved"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}

/// See `predictions.reveal`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reveal {
    /// From the beginning.
    Always,
    /// Once nobody can copy them any more.
    AfterStart,
}

setting_by_name!(Reveal, "always or after_start", "always" => Self::Always, "after_start" => Self::AfterStart);
