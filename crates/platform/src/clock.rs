//! Injected time. Closing times, expiry and streaks are rules about time, and a rule that reads a global clock can only
//! be tested by waiting. The lint configuration bans global clocks everywhere but here.

use std::fmt;

use time::OffsetDateTime;

/// A source of the wall-clock time in UTC.
pub trait Clock: Send + Sync + fmt::Debug {
    /// Current time in whole microseconds, the precision of the database, so a stored time reads back unchanged.
    fn now(&self) -> OffsetDateTime;
}

#[derive(Debug)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "the one place that reads the machine's clock")]
    fn now(&self) -> OffsetDateTime {
        let now = OffsetDateTime::now_utc();
        now.replace_nanosecond(now.nanosecond() / 1_000 * 1_000).unwrap_or(now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn clock_has_database_precision() {
        assert!((0..1_000).all(|_| SystemClock.now().nanosecond().is_multiple_of(1_000)));
    }
}
