//! Settings of chat rooms.

use platform::{section, settings::Conditions};

section! {
    /// Capacity of match rooms, and announcements.
    rooms: Settings {
        /// Number of members that one room of a match holds. When it is full, another stand of the same match opens.
        /// The homeserver handles each room in a single process, so larger rooms are slower.
        match_capacity: u32 = "2000",
        /// Number of rooms of a match that take new members at the same time, if so many join that they would wait for
        /// long. Otherwise one room fills after the other.
        parallel_stands: u32 = "4",
        /// Whether the bot announces kick-off, goals, full time and the best predictors in a match's rooms.
        announcements: bool = "true",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![
            (self.match_capacity > 0, "rooms.match_capacity is 0, but must be at least 1".to_owned()),
            (self.parallel_stands > 0, "rooms.parallel_stands is 0, but must be at least 1".to_owned()),
        ]
    }
}
