//! Settings of the report queue.

use std::time::Duration;

use platform::{section, settings::Conditions};

section! {
    /// Reports of messages.
    reports: Settings {
        /// Time for which an operator who claims a report handles it alone. Claiming it again starts a new period.
        claimed_for: Duration = "30m",
        /// Time after which closed reports are deleted.
        kept_for: Duration = "365d",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![
            (
                (Duration::from_mins(1)..=Duration::from_hours(24)).contains(&self.claimed_for),
                "reports.claimed_for is not between one minute and one day".to_owned(),
            ),
            (
                (Duration::from_hours(7 * 24)..=Duration::from_hours(3_650 * 24)).contains(&self.kept_for),
                "reports.kept_for is not between 7 and 3650 days".to_owned(),
            ),
        ]
    }
}
