//! Settings of the spectator view.

use platform::{section, settings::Conditions};

section! {
    /// View of a room's chat for spectators, who read without joining.
    chat_view: Settings {
        /// Number of messages per second that spectators see of a busy room. Further ones are left out, fairly over
        /// their senders. Messages of the bot, of the room's creator and of `always_shown` are never left out.
        rate: u32 = "5",
        /// Number of messages that spectators see at once before `rate` applies.
        burst: u32 = "50",
        /// Usernames of operators whose messages are never left out.
        always_shown: Vec<String> = "",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![
            (self.rate > 0, "chat_view.rate is 0, but must be at least 1".to_owned()),
            (self.burst > 0, "chat_view.burst is 0, but must be at least 1".to_owned()),
        ]
    }
}
