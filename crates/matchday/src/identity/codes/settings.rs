//! Settings for login codes and their limits.

use std::time::Duration;

use platform::{
    section,
    settings::{CodeKey, Conditions, has_each_version_once},
};

section! {
    /// Login codes: lifetime, keys and attempts.
    codes: Settings {
        /// Keys that hash stored codes: `version:64 hexadecimal digits`. New codes use the first key; pending codes are
        /// checked with the key of their version. To rotate, restart all processes twice: first with the new key last, then
        /// with the new key first; remove the old key after five minutes at the earliest. These keys also hash restricted
        /// phone numbers, and encrypt device tokens and league codes: keep an old key while `restricted_phones`, `devices`
        /// or `leagues` has rows of its version (docs/operating.md).
        keys: Vec<CodeKey>,
    }
}

section! {
    /// Rate limits for anonymous callers; a thousand times higher in development, except per phone.
    limits: Limits {
        /// Codes that one phone may receive in a burst.
        phone_burst: u32 = "5",
        /// Interval at which a phone may receive another code after the burst.
        phone_every: Duration = "1m",
        /// Codes that one phone may receive per day (UTC).
        phone_daily: u32 = "10",
        /// Codes that one network (an IPv4 address, or a /64 of IPv6) may request per hour. Mobile carriers put
        /// thousands of phones behind one address.
        network_hourly: u32 = "60",
        /// Codes per hour for numbers that differ only in the last four digits.
        block_hourly: u32 = "60",
        /// Codes per hour for a country without a limit in `sms.countries`.
        country_hourly: u32 = "500",
        /// Codes per day (UTC) for all phones together.
        daily_budget: u32 = "10000",
        /// Codes that one network may try in a burst; after that, one every ten seconds.
        network_guesses: u32 = "30",
        /// Usernames that one network may check in a burst; after that, one every two seconds.
        network_names: u32 = "30",
    }
}

impl Settings {
    /// Conditions that the settings must meet, each with the message to report if it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (!self.keys.is_empty(), "codes.keys is empty: codes cannot be stored without a key"),
            (has_each_version_once(&self.keys), "codes.keys repeats a version: give each key a different version"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
