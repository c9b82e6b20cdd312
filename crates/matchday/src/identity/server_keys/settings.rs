//! The `server_api` section of the settings.

use platform::{section, settings::Conditions};

section! {
    /// API for backends, which call it with server keys.
    server_api: Settings {
        /// Number of requests that a key can send without a pause. Further ones get 429. Multiplied by 1,000 in `local`
        /// and `testing`.
        burst: u32 = "600",
        /// Sustained number of requests per second and key. Multiplied by 1,000 in `local` and `testing`.
        rate: u32 = "50",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (self.burst > 0, "server_api.burst is 0: every request would be refused"),
            (self.rate > 0, "server_api.rate is 0: no key could send another request"),
            (self.rate <= 1_000, "server_api.rate is above 1000"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
