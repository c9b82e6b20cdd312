//! The `seals` section of the settings.

use platform::section;
use url::Url;

section! {
    /// Seals over predictions; see docs/seals.md.
    seals: Settings {
        /// URL of a time-stamping authority (RFC 3161). Each seal then gets a time-stamp token, which proves to others when
        /// it existed. Empty: no tokens.
        timestamp_url: Option<Url> = "",
    }
}
