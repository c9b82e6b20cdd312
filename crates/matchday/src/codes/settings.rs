//! Settings of codes.

use std::time::Duration;

use platform::{
    section,
    settings::{CodeKey, Conditions, has_each_version_once},
};

section! {
    /// The codes that people log in with.
    codes: Settings {
        /// What codes are stored under: `version:64 hexadecimal digits`. The first key makes new codes, all of them check
        /// codes that are out. To change it, put a new one with another version in front; the old one can go after 5m.
        /// Restricted phone numbers are hashed under these keys too: keep an old key while `restricted_phones` has rows
        /// of its version, or those numbers are restricted no longer.
        keys: Vec<CodeKey>,
    }
}

section! {
    /// What strangers may cause. In `local` and `testing` all but those of a phone are a thousand times as large.
    limits: Limits {
        /// How many codes may be sent to a phone at once.
        phone_burst: u32 = "5",
        /// Then one this often.
        phone_every: Duration = "1m",
        /// And so many in a day (UTC).
        phone_daily: u32 = "10",
        /// How many codes a network (an IPv4 address, or a /64 of IPv6) may ask for in an hour. Mobile carriers put
        /// thousands of phones behind one address.
        network_hourly: u32 = "60",
        /// How many codes may be sent in an hour to numbers that differ in the last four digits only.
        block_hourly: u32 = "60",
        /// How many codes may be sent in an hour to a country for which `sms.countries` says nothing else.
        country_hourly: u32 = "500",
        /// How many codes may be sent in a day (UTC) to everybody together.
        daily_budget: u32 = "10000",
        /// How many codes a network may try at once; then one every ten seconds.
        network_guesses: u32 = "30",
        /// How many usernames a network may ask for at once; then one every two seconds.
        network_names: u32 = "30",
    }
}

impl Settings {
    /// Conditions across keys, each with the fault to report where it does not hold.
    pub fn conditions(&self) -> Conditions {
        [
            (!self.keys.is_empty(), "codes.keys is empty: codes could not be stored"),
            (has_each_version_once(&self.keys), "codes.keys has a version twice: give each key its own"),
        ]
        .map(|(holds, fault)| (holds, fault.to_owned()))
        .into()
    }
}
