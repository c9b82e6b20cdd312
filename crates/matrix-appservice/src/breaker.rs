//! A circuit breaker: after the homeserver has been away a few times in a row, callers stop asking it for a while and
//! fail at once. Without it, every caller would wait out the deadline of a server that is gone.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

// Tokio's, so that a test can move it instead of waiting.
use tokio::time::Instant;

/// Counts failures in a row and says whether to ask.
pub(crate) struct Breaker {
    began: Instant,
    tolerated: u32,
    pause: Duration,
    failures: AtomicU32,
    /// Milliseconds since `began` until which nobody asks.
    rests_until: AtomicU64,
}

impl Breaker {
    /// Opens for `pause` after `tolerated` failures in a row.
    pub(crate) fn new(tolerated: u32, pause: Duration) -> Self {
        Self { began: Instant::now(), tolerated, pause, failures: AtomicU32::new(0), rests_until: AtomicU64::new(0) }
    }

    /// Lets the caller ask, or says how long nobody will. After the pause exactly one caller is let through to try; the
    /// others go on resting until its verdict, so that a server that comes back is not met by everybody at once. A
    /// caller that gives up without a verdict blocks nothing: after another pause the next one tries.
    pub(crate) fn admit(&self) -> Result<(), Duration> {
        if self.failures.load(Ordering::Acquire) < self.tolerated {
            return Ok(());
        }
        let now = self.elapsed();
        let until = self.rests_until.load(Ordering::Acquire);
        if now < until {
            return Err(Duration::from_millis(until - now));
        }
        let next = now.saturating_add(millis(self.pause));
        match self.rests_until.compare_exchange(until, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(taken) => Err(Duration::from_millis(taken.saturating_sub(now))),
        }
    }

    /// Whether nobody is let through right now.
    pub(crate) fn is_resting(&self) -> bool {
        self.failures.load(Ordering::Acquire) >= self.tolerated
            && self.elapsed() < self.rests_until.load(Ordering::Acquire)
    }

    /// Notes how a call went.
    pub(crate) fn record(&self, server_was_there: bool) {
        if server_was_there {
            self.failures.store(0, Ordering::Release);
        } else if self.failures.fetch_add(1, Ordering::AcqRel).saturating_add(1) >= self.tolerated {
            // Saturates: what matters is only whether the threshold was reached.
            self.failures.store(self.tolerated, Ordering::Release);
            self.rests_until.store(self.elapsed().saturating_add(millis(self.pause)), Ordering::Release);
        }
    }

    fn elapsed(&self) -> u64 {
        millis(self.began.elapsed())
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAUSE: Duration = Duration::from_secs(2);

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_only() {
        let breaker = Breaker::new(3, PAUSE);
        for there in [false, false, true, false, false] {
            breaker.record(there);
        }
        assert_eq!(breaker.admit(), Ok(()));
        assert!(!breaker.is_resting());
        breaker.record(false);
        assert_eq!(breaker.admit(), Err(PAUSE));
        assert!(breaker.is_resting());
        tokio::time::advance(PAUSE).await;
        assert!(!breaker.is_resting(), "it only looks, and takes nobody's turn");
        assert_eq!(breaker.admit(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn after_the_pause_one_caller_tries() {
        let breaker = Breaker::new(1, PAUSE);
        breaker.record(false);
        tokio::time::advance(PAUSE).await;
        assert_eq!((0..10).filter(|_| breaker.admit().is_ok()).count(), 1);
        breaker.record(false);
        assert_eq!(breaker.admit(), Err(PAUSE));

        tokio::time::advance(PAUSE).await;
        assert_eq!(breaker.admit(), Ok(()));
        breaker.record(true);
        assert!((0..10).all(|_| breaker.admit().is_ok()));
    }

    #[tokio::test(start_paused = true)]
    async fn a_caller_that_gives_up_blocks_nothing() {
        let breaker = Breaker::new(1, PAUSE);
        breaker.record(false);
        for _ in 0..3 {
            tokio::time::advance(PAUSE).await;
            assert_eq!((0..10).filter(|_| breaker.admit().is_ok()).count(), 1);
        }
    }
}
