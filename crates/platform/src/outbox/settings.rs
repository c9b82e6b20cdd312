//! Settings of the outbox relay.

use std::time::Duration;

use crate::{section, settings::Conditions};

section! {
    /// The outbox and its relay to NATS.
    outbox: Settings {
        /// Interval at which the relay polls for messages whose wake-up was lost.
        poll: Duration = "1s",
        /// Time after which another process takes over from a relay that stopped responding.
        lease: Duration = "10s",
    }
}

impl Settings {
    pub fn conditions(&self) -> Conditions {
        vec![
            (!self.poll.is_zero(), "outbox.poll is 0: the relay would poll without a pause".to_owned()),
            (!self.lease.is_zero(), "outbox.lease is 0: no relay could hold it".to_owned()),
        ]
    }
}
