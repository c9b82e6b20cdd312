//! Time, handed in. Closing times, expiry and streaks are rules about time; a rule that reads a global clock can only
//! be tested by waiting. The lint configuration bans the global clocks everywhere but here.

use std::fmt;

use time::OffsetDateTime;

/// Tells the wall-clock time in UTC.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment.
    fn now(&self) -> OffsetDateTime;
}

/// The machine's clock.
#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> OffsetDateTime {
        OffsetDateTime::now_utc()
    }
}
