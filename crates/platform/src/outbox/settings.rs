//! Settings of the outbox relay.

use std::time::Duration;

use crate::{section, settings::Conditions};

section! {
    /// The outbox and its relay to NATS.
    outbox: Settings {
        /// Interval at which the relay polls for messages written by other processes.
        poll: Duration = "200ms",
        /// Time after which another process takes over from a relay that stopped responding.
        lease: Duration = "10s",
    }
}

impl Settings {
    pub fn conditions(&self) -> Conditions {
        vec![
            (!self.poll.is_zero(), "outbox.poll is 0: the relay would poll without a pause".to_owned()),
            (
                self.lease >= self.poll * 4,
                "outbox.lease is shorter than four times outbox.poll: relays would keep losing it".to_owned(),
            ),
        ]
    }
}
