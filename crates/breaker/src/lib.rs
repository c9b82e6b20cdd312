//! Circuit breaker: after several failures in a row, callers skip a dependency for a while and use their fallback
//! immediately. Without it, every caller would wait for the timeout of a dependency that is down.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::Duration,
};

// Tokio's clock, so that tests can advance it instead of waiting.
use tokio::time::Instant;

/// Counts the failures of one dependency and decides whether callers may use it.
#[derive(Debug)]
pub struct Breaker {
    began: Instant,
    tolerated: u32,
    pause: Duration,
    failures: AtomicU32,
    /// End of the current pause, in milliseconds since `began`.
    open_until: AtomicU64,
    /// Time of the last success, in milliseconds since `began`.
    succeeded_at: AtomicU64,
}

impl Breaker {
    /// Opens for `pause` after `tolerated` failures in a row.
    pub fn new(tolerated: u32, pause: Duration) -> Self {
        Self {
            began: Instant::now(),
            tolerated,
            pause,
            failures: AtomicU32::new(0),
            open_until: AtomicU64::new(0),
            succeeded_at: AtomicU64::new(0),
        }
    }

    /// Admits the caller, or returns the time until the next attempt.
    ///
    /// After the pause, exactly one caller is admitted, so that a recovering dependency does not receive all callers at
    /// the same time. The others are refused until that caller records its result. If it never does, the next caller is
    /// admitted after another pause.
    pub fn admit(&self) -> Result<(), Duration> {
        if self.failures.load(Ordering::Acquire) < self.tolerated {
            return Ok(());
        }
        let now = self.elapsed();
        let until = self.open_until.load(Ordering::Acquire);
        if now < until {
            return Err(Duration::from_millis(until - now));
        }
        let next = now.saturating_add(millis(self.pause));
        match self.open_until.compare_exchange(until, next, Ordering::AcqRel, Ordering::Acquire) {
            Ok(_) => Ok(()),
            Err(taken) => Err(Duration::from_millis(taken.saturating_sub(now))),
        }
    }

    /// Whether callers are refused now. Unlike [`Self::admit`], it does not use up the one attempt after a pause.
    pub fn is_open(&self) -> bool {
        self.failures.load(Ordering::Acquire) >= self.tolerated
            && self.elapsed() < self.open_until.load(Ordering::Acquire)
    }

    /// Records the result of a call. A success closes the breaker.
    pub fn record(&self, succeeded: bool) {
        if succeeded {
            self.succeeded_at.store(self.elapsed(), Ordering::Release);
            self.close();
        } else if self.failures.fetch_add(1, Ordering::AcqRel).saturating_add(1) >= self.tolerated {
            // Storing the threshold keeps the counter from overflowing. Counts above it have no meaning.
            self.failures.store(self.tolerated, Ordering::Release);
            self.open_until.store(self.elapsed().saturating_add(millis(self.pause)), Ordering::Release);
        }
    }

    /// Admits callers again, without a successful call.
    pub fn close(&self) {
        self.failures.store(0, Ordering::Release);
    }

    /// Records a call that got no response within `waited`. It is a failure only if no other call has succeeded since it
    /// began: a dependency that responds to others is slow, but not down.
    pub fn record_timeout(&self, waited: Duration) {
        let succeeded_at = self.succeeded_at.load(Ordering::Acquire);
        if succeeded_at == 0 || succeeded_at < self.elapsed().saturating_sub(millis(waited)) {
            self.record(false);
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
    async fn opens_only_after_consecutive_failures() {
        let breaker = Breaker::new(3, PAUSE);
        for succeeded in [false, false, true, false, false] {
            breaker.record(succeeded);
        }
        assert_eq!(breaker.admit(), Ok(()));
        assert!(!breaker.is_open());
        breaker.record(false);
        assert_eq!(breaker.admit(), Err(PAUSE));
        assert!(breaker.is_open());
        tokio::time::advance(PAUSE).await;
        assert!(!breaker.is_open(), "checking does not use up the attempt");
        assert_eq!(breaker.admit(), Ok(()));
    }

    #[tokio::test(start_paused = true)]
    async fn admits_one_caller_after_pause() {
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
    async fn caller_without_result_does_not_block_others() {
        let breaker = Breaker::new(1, PAUSE);
        breaker.record(false);
        for _ in 0..3 {
            tokio::time::advance(PAUSE).await;
            assert_eq!((0..10).filter(|_| breaker.admit().is_ok()).count(), 1);
        }
    }

    #[tokio::test(start_paused = true)]
    async fn timeouts_of_slow_dependency_do_not_open() {
        let (breaker, second) = (Breaker::new(2, PAUSE), Duration::from_secs(1));
        for _ in 0..10 {
            tokio::time::advance(second).await;
            breaker.record(true);
            breaker.record_timeout(3 * second);
        }
        assert_eq!(breaker.admit(), Ok(()));
        // The dependency stops responding.
        tokio::time::advance(4 * second).await;
        breaker.record_timeout(3 * second);
        assert!(!breaker.is_open());
        breaker.record_timeout(3 * second);
        assert!(breaker.is_open());
        let never_succeeded = Breaker::new(1, PAUSE);
        never_succeeded.record_timeout(3 * second);
        assert!(never_succeeded.is_open());
    }

    #[tokio::test(start_paused = true)]
    async fn zero_pause_admits_next_caller_immediately() {
        let breaker = Breaker::new(1, Duration::ZERO);
        breaker.record(false);
        assert_eq!(breaker.admit(), Ok(()));
        breaker.record(true);
        assert!((0..10).all(|_| breaker.admit().is_ok()));
    }
}
