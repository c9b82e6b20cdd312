//! How far a replica is behind its primary; no I/O.
//!
//! The time of the last replayed commit says nothing while the primary is idle, and the replica's own view of its
//! primary says nothing while they are disconnected. So the process notes at which time the primary was at which position
//! of its log. A replica that has replayed up to a noted position has all commits until that time.

use std::{collections::VecDeque, time::Duration};

use tokio::time::Instant;

/// Position in the write-ahead log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Position(pub(super) i64);

pub(super) struct Lag {
    /// Positions of the primary, oldest first. The first one is the last that the replica has replayed, if any.
    noted: VecDeque<(Instant, Position)>,
    /// Time until which the replica is known to have all commits, or of the first check.
    fresh_as_of: Instant,
    /// A replica ahead of its primary has commits that the primary lacks, because another server was promoted. It counts
    /// again when it replays beyond this position, which it can only do after it follows the primary.
    diverged_at: Option<Position>,
}

impl Default for Lag {
    fn default() -> Self {
        Self { noted: VecDeque::new(), fresh_as_of: Instant::now(), diverged_at: None }
    }
}

impl Lag {
    /// Records a check: the replica had replayed until `replayed`, and the primary was asked afterwards, at `asked`.
    /// Returns the time until which the replica has all commits; `None` if that is unknown or longer ago than `max_lag`.
    pub(super) fn observe(
        &mut self,
        replayed: Position,
        asked: Instant,
        flushed: Position,
        max_lag: Duration,
    ) -> Option<Instant> {
        if replayed > flushed {
            self.noted.clear();
            self.diverged_at = Some(replayed);
        }
        // The primary was restored or replaced, so earlier positions belong to another history.
        if self.noted.back().is_some_and(|(_, last)| *last > flushed) {
            self.noted.clear();
        }
        let known = self.noted.iter().rev().find(|(_, position)| *position <= replayed).map(|(then, _)| *then);
        while self.noted.get(1).is_some_and(|(_, position)| *position <= replayed) {
            self.noted.pop_front();
        }
        self.noted.retain(|(then, _)| asked.duration_since(*then) <= max_lag);
        self.noted.push_back((asked, flushed));
        if self.diverged_at.is_some_and(|at| replayed <= at) {
            return None;
        }
        self.diverged_at = None;
        if let Some(then) = known {
            self.fresh_as_of = then;
        }
        known
    }

    /// Returns how far the replica is behind, at most.
    pub(super) fn behind(&self, now: Instant) -> Duration {
        now.saturating_duration_since(self.fresh_as_of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MAX_LAG: Duration = Duration::from_secs(5);

    struct Checks {
        lag: Lag,
        began: Instant,
    }

    impl Checks {
        fn new() -> Self {
            Self { lag: Lag::default(), began: Instant::now() }
        }

        /// Returns until which second the replica has all commits.
        fn at(&mut self, second: u64, replayed: i64, flushed: i64) -> Option<u64> {
            let asked = self.began + Duration::from_secs(second);
            let then = self.lag.observe(Position(replayed), asked, Position(flushed), MAX_LAG)?;
            Some((then - self.began).as_secs())
        }
    }

    #[test]
    fn replica_without_delay_is_one_check_behind() {
        let mut checks = Checks::new();
        assert_eq!(checks.at(0, 10, 10), None, "the position was noted only now");
        assert_eq!(checks.at(1, 10, 10), Some(0), "an idle primary makes no replica stale");
        assert_eq!(checks.at(2, 15, 20), Some(1));
        assert_eq!(checks.at(3, 25, 30), Some(2));
    }

    #[test]
    fn paused_replica_stays_at_its_time() {
        let mut checks = Checks::new();
        for second in 0..3 {
            checks.at(second, 10, 10);
        }
        assert_eq!(checks.at(3, 10, 20), Some(2));
        assert_eq!(checks.at(4, 10, 30), Some(2));
        assert_eq!(checks.at(5, 10, 40), Some(2));
        assert_eq!(checks.at(6, 35, 50), Some(4), "it catches up");
        assert_eq!(checks.at(7, 50, 50), Some(6));
    }

    #[test]
    fn long_delay_is_unknown() {
        let mut checks = Checks::new();
        checks.at(0, 10, 10);
        assert_eq!(checks.at(1, 10, 20), Some(0));
        for second in 2..20 {
            checks.at(second, 10, 20 + second.cast_signed());
        }
        assert_eq!(checks.at(20, 10, 60), None);
        assert!(checks.lag.noted.len() <= 7, "old positions are dropped");
        assert_eq!(checks.at(21, 60, 70), Some(20));
    }

    #[test]
    fn replica_of_a_lost_history_is_not_used() {
        let mut checks = Checks::new();
        checks.at(0, 100, 100);
        assert_eq!(checks.at(1, 100, 100), Some(0));
        // Another server with fewer commits is the primary now.
        assert_eq!(checks.at(2, 100, 80), None);
        assert_eq!(checks.at(3, 100, 90), None);
        assert_eq!(checks.at(4, 100, 110), None, "the primary has passed it");
        assert_eq!(checks.at(5, 100, 120), None);
        assert_eq!(checks.at(6, 120, 130), Some(5), "it follows");
    }
}
