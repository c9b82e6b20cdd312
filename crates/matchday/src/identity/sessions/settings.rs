use std::time::Duration;

use platform::{section, settings::Conditions};

section! {
    /// Sessions and their tokens, which apps send with each request.
    sessions: Settings {
        /// A session ends if it is not used for this long. Uses are recorded once a day, or more often if this is less
        /// than 30 days; a session can end earlier by that interval.
        idle: Duration = "30d",
        /// Maximum age of a session, even if it is in use.
        lifetime: Duration = "180d",
        /// Maximum number of sessions per user. A new session ends the oldest.
        max_per_user: u32 = "10",
        /// Time for which a checked token is trusted without another database query, while the process receives
        /// revocations. A revocation ends this time immediately.
        cache_for: Duration = "2h",
        /// Time for which a checked token is trusted while revocations may not arrive, because NATS or the outbox relay
        /// is down. A token that was revoked in another process is refused after this time at the latest.
        cache_unheard: Duration = "30s",
        /// Maximum number of tokens in the cache; each takes at most about 200 bytes.
        cache_entries: usize = "500000",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.idle <= self.lifetime, "sessions.idle is longer than sessions.lifetime, so it would have no effect"),
            (self.max_per_user > 0, "sessions.max_per_user is 0, so users could not log in"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
