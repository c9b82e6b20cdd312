//! A circuit breaker: after a part of the system has failed a few times in a row, callers stop asking it for a while
//! and take their other way at once. Without it, every request would wait out the deadline of a part that is gone.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

/// Counts failures of one remote and says whether to ask it.
#[derive(Debug)]
pub struct Breaker {
    began: Instant,
    tolerated: u32,
    pause: Duration,
    failures: AtomicU32,
    /// Milliseconds since `began` until which nobody asks.
    closed_again_at: AtomicU64,
}

impl Breaker {
    /// Opens for `pause` after `tolerated` failures in a row.
    pub fn new(tolerated: u32, pause: Duration) -> Self {
        Self {
            began: Instant::now(),
            tolerated,
            pause,
            failures: AtomicU32::new(0),
            closed_again_at: AtomicU64::new(0),
        }
    }

    /// Whether the remote may be asked. After the pause exactly one caller is let through to try; the others go on
    /// waiting for its verdict, so that a part that comes back is not met by everybody at once.
    pub fn allows(&self) -> bool {
        if self.failures.load(Ordering::Acquire) < self.tolerated {
            return true;
        }
        let now = self.elapsed();
        let until = self.closed_again_at.load(Ordering::Acquire);
        now >= until
            && self
                .closed_again_at
                .compare_exchange(until, now + self.pause_millis(), Ordering::AcqRel, Ordering::Acquire)
                .is_ok()
    }

    /// Notes how a call went.
    pub fn record(&self, succeeded: bool) {
        if succeeded {
            self.failures.store(0, Ordering::Release);
        } else if self.failures.fetch_add(1, Ordering::AcqRel) + 1 >= self.tolerated {
            // Saturates: what matters is only whether the threshold was reached.
            self.failures.store(self.tolerated, Ordering::Release);
            self.closed_again_at.store(self.elapsed() + self.pause_millis(), Ordering::Release);
        }
    }

    fn elapsed(&self) -> u64 {
        u64::try_from(self.began.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    fn pause_millis(&self) -> u64 {
        u64::try_from(self.pause.as_millis()).unwrap_or(u64::MAX)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_opens_after_failures_in_a_row_only() {
        let breaker = Breaker::new(3, Duration::from_mins(1));
        for succeeded in [false, false, true, false, false] {
            breaker.record(succeeded);
        }
        assert!(breaker.allows());
        breaker.record(false);
        assert!(!breaker.allows());
    }

    #[test]
    fn after_the_pause_one_caller_tries_and_a_success_closes_it() {
        let breaker = Breaker::new(1, Duration::ZERO);
        breaker.record(false);
        assert!(breaker.allows(), "the pause is over");
        breaker.record(true);
        assert!(breaker.allows() && breaker.allows());

        let breaker = Breaker::new(1, Duration::from_mins(1));
        breaker.closed_again_at.store(0, Ordering::Release);
        breaker.failures.store(1, Ordering::Release);
        assert_eq!((0..10).filter(|_| breaker.allows()).count(), 1);
    }
}
