//! Settings of the live stream.

use std::time::Duration;

use platform::section;

section! {
    /// The live stream.
    stream: Settings {
        /// How long a connection is silent at most.
        heartbeat: Duration = "15s",
        /// How long a connection lasts; clients come back by themselves, to whichever process has room.
        lifetime: Duration = "1h",
        /// How many may listen to this process at once; further ones get 503. `http.max_connections` bounds them too.
        max_listeners: usize = "10000",
        /// How many connections a user may listen on at once.
        max_per_user: usize = "5",
        /// How many facts a listener may be behind before it is sent away, to come back for the rest.
        behind: usize = "1024",
    }
}
