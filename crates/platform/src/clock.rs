//! Time, handed in. Closing times, expiry and streaks are rules about time; a rule that reads a global clock can only
//! be tested by waiting. The lint configuration bans the global clocks everywhere but here.

use std::fmt;

use time::OffsetDateTime;

/// Tells the wall-clock time in UTC.
pub trait Clock: Send + Sync + fmt::Debug {
    /// The present moment, in whole microseconds: a moment that was stored is the one that is read.
    fn now(&self) -> OffsetDateTime;
}

/// The machine's clock.
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
    fn the_time_is_as_exact_as_the_database() {
        assert!((0..1_000).all(|_| SystemClock.now().nanosecond().is_multiple_of(1_000)));
    }
}
