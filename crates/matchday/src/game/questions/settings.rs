//! The `questions` section of the settings.

use platform::{section, settings::Conditions};

section! {
    /// Answering bonus questions.
    questions: Settings {
        /// Number of batch writers in this process. Each writes all its waiting answers in one transaction.
        writers: usize = "2",
        /// Maximum number of answers that wait for a batch writer; further requests get 503 immediately.
        queue: usize = "1000",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.writers > 0, "questions.writers is 0: answers could not be saved"),
            (self.queue > 0, "questions.queue is 0: answers could not be saved"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
