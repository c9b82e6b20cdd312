//! Settings of the outbox.

use std::time::Duration;

use crate::{section, settings::Conditions};

section! {
    /// The outbox and its relay.
    outbox: Settings {
        /// How often the relay looks for messages that another process wrote.
        poll: Duration = "200ms",
        /// How long a relay that fell silent keeps others waiting.
        lease: Duration = "10s",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        vec![
            (!self.poll.is_zero(), "outbox.poll is 0: the relay would never rest".to_owned()),
            (
                self.lease >= self.poll * 4,
                "outbox.lease is shorter than four times outbox.poll: relays would take turns all the time".to_owned(),
            ),
        ]
    }
}
