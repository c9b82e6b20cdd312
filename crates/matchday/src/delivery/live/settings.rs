//! Settings for the live stream.

use std::time::Duration;

use platform::section;

section! {
    /// Settings for the live stream (server-sent events).
    stream: Settings {
        /// Interval between heartbeats on a connection.
        heartbeat: Duration = "15s",
        /// Longest lifetime of a connection; each one is up to a quarter shorter, at random. Clients reconnect
        /// automatically, possibly to another process.
        lifetime: Duration = "1h",
        /// Maximum number of listeners of this process; further ones get 503. `http.max_connections` limits them too.
        max_listeners: usize = "10000",
        /// Maximum number of connections a user may listen on at the same time.
        max_per_user: usize = "5",
        /// Number of facts a listener may lag behind before it is disconnected. It can reconnect and resume.
        behind: usize = "1024",
    }
}
