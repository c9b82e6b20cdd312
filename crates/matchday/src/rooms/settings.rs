//! Settings of chat rooms.

use platform::{section, settings::Conditions};

section! {
    /// Chat rooms.
    rooms: Settings {
        /// How many members one room of a match holds. The next one opens a further stand of the same match. A room is
        /// as slow as its homeserver's one process for it.
        match_capacity: u32 = "2000",
        /// Whether the bot tells a match's rooms what happens: kick-off, goals, full time, and who predicted best.
        announcements: bool = "true",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![(self.match_capacity > 0, "rooms.match_capacity is 0: nobody could join a match's room".to_owned())]
    }
}
