//! When to look again; no I/O. Moments come from whoever calls.

use std::{collections::VecDeque, time::Duration};

use time::OffsetDateTime;

use crate::catalogue::matches::rules::Status;

/// How long before a kick-off a feed is looked at often: line-ups, delays and late postponements come then.
pub(super) const NEAR: Duration = Duration::from_mins(10);
/// How long a match that should have begun is waited for.
const LATE: Duration = Duration::from_hours(3);
/// When a match may end: 90 minutes and a break at the earliest, extra time and penalties at the latest.
const ENDING: std::ops::Range<Duration> = Duration::from_mins(100)..Duration::from_hours(3);
/// How long results are corrected more often than later.
const FRESH: Duration = Duration::from_hours(3);
/// How often a fresh result is looked at.
const SETTLING: Duration = Duration::from_mins(5);
/// How long a match can be under way. One that still is has been forgotten by its source.
pub(super) const LONGEST: Duration = Duration::from_hours(6);
/// The first pause after a failure, and the longest after many.
const PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(15));
/// What a provider may tell us to wait at most; more would be a mistake of somebody's.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// What a provider counts as a minute, with a second for the way there.
const WINDOW: Duration = Duration::from_secs(61);

/// How often a feed is looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// When nothing is near.
    pub(super) idle: Duration,
    /// Around a kick-off and during a match.
    pub(super) live: Duration,
    /// When a match may end.
    pub(super) closing: Duration,
    /// Never more often than this.
    pub(super) least: Duration,
}

/// A match, as far as it says when to look again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixture {
    pub(super) start_time: OffsetDateTime,
    pub(super) status: Status,
}

/// When to look again after a look that went well.
pub(super) fn next_poll(now: OffsetDateTime, fixtures: &[Fixture], pace: Pace) -> OffsetDateTime {
    let soonest = fixtures.iter().filter_map(|fixture| wanted(now, *fixture, pace)).min();
    let idle = now + pace.idle;
    soonest.map_or(idle, |soonest| soonest.min(idle)).max(now + pace.least)
}

/// When a match wants to be looked at, if it does not leave that to the idle pace.
fn wanted(now: OffsetDateTime, fixture: Fixture, pace: Pace) -> Option<OffsetDateTime> {
    let since = now - fixture.start_time;
    match fixture.status {
        Status::Scheduled if fixture.start_time - NEAR > now => Some(fixture.start_time - NEAR),
        Status::Scheduled if since < LATE => Some(now + pace.live),
        // It is over when the source says so, whatever time was announced.
        Status::Live if since >= ENDING.start && since < ENDING.end => Some(now + pace.closing),
        Status::Live | Status::Suspended if since < LONGEST => Some(now + pace.live),
        Status::Finished | Status::Awarded | Status::Abandoned if since < FRESH => Some(now + SETTLING.max(pace.live)),
        _ => None,
    }
}

/// When to try again after a failure, the `failures`th in a row; `told` is what the provider asked for.
pub(super) fn next_try(now: OffsetDateTime, failures: u32, told: Option<Duration>, pace: Pace) -> OffsetDateTime {
    let grown = || PAUSES.0.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSES.1);
    let pause = told.map_or_else(grown, |told| told.clamp(Duration::from_secs(1), LONGEST_WAIT));
    now + pause.max(pace.least)
}

/// What a provider allows to all feeds of a process together.
#[derive(Debug)]
pub(super) struct Budget {
    per_minute: usize,
    /// When the requests of the last minute were sent, oldest first.
    sent: VecDeque<OffsetDateTime>,
    closed_until: Option<OffsetDateTime>,
}

impl Budget {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.max(1) as usize, sent: VecDeque::new(), closed_until: None }
    }

    /// When the next request may be sent; `now` or earlier if at once.
    pub(super) fn free_at(&self, now: OffsetDateTime) -> OffsetDateTime {
        let closed = self.closed_until.filter(|&until| until > now).unwrap_or(now);
        // Moments after now are those of a clock that was put back since.
        let mut recent = self.sent.iter().filter(|&&sent| sent <= now && now - sent < WINDOW);
        let count = recent.clone().count();
        match count.checked_sub(self.per_minute).and_then(|over| recent.nth(over)) {
            Some(&sent) => closed.max(sent + WINDOW),
            None => closed,
        }
    }

    /// A request is sent.
    pub(super) fn spend(&mut self, now: OffsetDateTime) {
        self.sent.retain(|&sent| sent <= now && now - sent < WINDOW);
        self.sent.push_back(now);
    }

    /// A request was sent then, by whoever did this before; unless it was counted already.
    pub(super) fn remember(&mut self, now: OffsetDateTime, sent: OffsetDateTime) {
        if sent <= now
            && now - sent < WINDOW
            && let Err(at) = self.sent.binary_search(&sent)
        {
            self.sent.insert(at, sent);
        }
    }

    /// The provider said how many requests it still takes, and when it begins to count anew.
    pub(super) fn told(&mut self, now: OffsetDateTime, left: u32, anew_in: Duration) {
        if left == 0 {
            self.pause(now, anew_in);
        }
    }

    /// The provider wants to be left alone for this long.
    pub(super) fn pause(&mut self, now: OffsetDateTime, wait: Duration) {
        let until = now + wait.clamp(Duration::from_secs(1), LONGEST_WAIT);
        self.closed_until = Some(self.closed_until.map_or(until, |before| before.max(until)));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    const NOW: OffsetDateTime = datetime!(2026-11-20 15:00 UTC);
    const PACE: Pace = Pace {
        idle: Duration::from_hours(1),
        live: Duration::from_mins(1),
        closing: Duration::from_secs(20),
        least: Duration::ZERO,
    };

    fn fixture(status: Status, minutes_ago: i64) -> Fixture {
        Fixture { start_time: NOW - time::Duration::minutes(minutes_ago), status }
    }

    #[test]
    fn a_match_decides_when_to_look_again() {
        use Status::{Abandoned, Awarded, Cancelled, Finished, Live, Postponed, Scheduled, Suspended};
        for (status, minutes_ago, seconds) in [
            (Scheduled, -600, 3_600),
            // An hour from now it would be too late for the ten minutes before the kick-off.
            (Scheduled, -65, 55 * 60),
            (Scheduled, -11, 60),
            (Scheduled, -9, 60),
            (Scheduled, 0, 60),
            (Scheduled, 179, 60),
            (Scheduled, 181, 3_600),
            (Live, -5, 60),
            (Live, 50, 60),
            (Live, 99, 60),
            (Live, 100, 20),
            (Live, 179, 20),
            (Live, 180, 60),
            (Live, 359, 60),
            (Live, 360, 3_600),
            (Suspended, 110, 60),
            (Suspended, 400, 3_600),
            (Finished, 110, 300),
            (Finished, 200, 3_600),
            (Awarded, 110, 300),
            (Abandoned, 110, 300),
            (Postponed, 10, 3_600),
            (Cancelled, 10, 3_600),
        ] {
            let next = next_poll(NOW, &[fixture(status, minutes_ago)], PACE);
            assert_eq!((next - NOW).whole_seconds(), seconds, "{status} since {minutes_ago} minutes");
        }
        assert_eq!(next_poll(NOW, &[], PACE), NOW + PACE.idle);
    }

    #[test]
    fn pauses_after_failures_grow_to_a_bound() {
        let pauses: Vec<i64> =
            (1..=8).map(|failures| (next_try(NOW, failures, None, PACE) - NOW).whole_seconds()).collect();
        assert_eq!(pauses, [30, 60, 120, 240, 480, 900, 900, 900]);
        let told = |seconds| (next_try(NOW, 7, Some(Duration::from_secs(seconds)), PACE) - NOW).whole_seconds();
        assert_eq!((told(0), told(41), told(1_000_000)), (1, 41, 3_600));
        let rare = Pace { least: Duration::from_mins(5), ..PACE };
        assert_eq!(next_try(NOW, 1, None, rare), NOW + rare.least);
    }

    #[test]
    fn what_the_provider_says_closes_the_budget() {
        let mut budget = Budget::new(10);
        budget.told(NOW, 3, Duration::from_secs(40));
        assert_eq!(budget.free_at(NOW), NOW);
        budget.told(NOW, 0, Duration::from_secs(40));
        budget.pause(NOW, Duration::from_secs(20));
        assert_eq!(budget.free_at(NOW), NOW + Duration::from_secs(40), "a shorter wait does not end a longer one");
        let later = NOW + Duration::from_secs(41);
        assert_eq!(budget.free_at(later), later);
    }

    #[test]
    fn what_was_sent_before_counts_once() {
        let mut budget = Budget::new(2);
        let before = NOW - Duration::from_secs(30);
        budget.remember(NOW, before);
        budget.remember(NOW, before);
        budget.remember(NOW, NOW - Duration::from_mins(2));
        budget.remember(NOW, NOW + Duration::from_mins(2));
        assert_eq!(budget.free_at(NOW), NOW);
        budget.spend(NOW);
        assert_eq!(budget.free_at(NOW), before + WINDOW);
    }

    fn status() -> impl Strategy<Value = Status> {
        proptest::sample::select(Status::ALL.to_vec())
    }

    fn fixtures() -> impl Strategy<Value = Vec<Fixture>> {
        let one = (status(), -3_000_i64..3_000).prop_map(|(status, minutes)| fixture(status, minutes));
        proptest::collection::vec(one, 0..20)
    }

    fn pace() -> impl Strategy<Value = Pace> {
        (1_u64..400, 1_u64..7_200, 1_u64..7_200, 0_u64..900).prop_map(|(idle, live, closing, least)| Pace {
            idle: Duration::from_mins(idle),
            live: Duration::from_secs(live),
            closing: Duration::from_secs(closing),
            least: Duration::from_secs(least),
        })
    }

    proptest! {
        #[test]
        fn it_looks_again_neither_too_soon_nor_too_late(fixtures in fixtures(), pace in pace()) {
            let pause = next_poll(NOW, &fixtures, pace) - NOW;
            prop_assert!(pause >= pace.least);
            prop_assert!(pause <= pace.idle.max(pace.least));
            let soonest = pace.live.min(pace.closing).min(pace.idle);
            let kick_off = fixtures.iter().any(|fixture| fixture.start_time - NEAR > NOW);
            prop_assert!(kick_off || pause >= soonest.min(SETTLING));
        }

        /// A match that is near or on is looked at as often as it should be, whatever else is on.
        #[test]
        fn a_match_that_is_on_keeps_its_pace(mut fixtures in fixtures(), pace in pace(), minutes in -9_i64..99) {
            for status in [Status::Scheduled, Status::Live] {
                fixtures.push(fixture(status, minutes));
                prop_assert!(next_poll(NOW, &fixtures, pace) - NOW <= pace.live.max(pace.least));
                fixtures.pop();
            }
        }

        /// No kick-off is slept through: the look before it is at most ten minutes ahead, or follows at that time.
        #[test]
        fn no_kick_off_is_slept_through(fixtures in fixtures(), pace in pace()) {
            let next = next_poll(NOW, &fixtures, pace);
            for fixture in fixtures.iter().filter(|fixture| fixture.status == Status::Scheduled) {
                let from = fixture.start_time - NEAR;
                prop_assert!(from <= NOW || next <= from.max(NOW + pace.least));
            }
        }

        #[test]
        fn more_matches_never_make_it_later(fixtures in fixtures(), further in fixtures(), pace in pace()) {
            let both: Vec<Fixture> = fixtures.iter().chain(&further).copied().collect();
            prop_assert!(next_poll(NOW, &both, pace) <= next_poll(NOW, &fixtures, pace));
        }

        #[test]
        fn pauses_never_shrink(failures in 1_u32..u32::MAX, pace in pace()) {
            prop_assert!(next_try(NOW, failures, None, pace) <= next_try(NOW, failures + 1, None, pace));
            prop_assert!(next_try(NOW, failures, None, pace) - NOW <= PAUSES.1.max(pace.least));
        }

        /// Whoever asks whenever it is free never sends more than allowed in any minute, and is let on again.
        #[test]
        fn no_minute_has_more_than_allowed(
            allowed in 1_u32..20,
            waits in proptest::collection::vec(0_u64..30, 1..100),
            pauses in proptest::collection::vec((0_usize..100, 0_u64..200), 0..3),
        ) {
            let (mut budget, mut now, mut sent) = (Budget::new(allowed), NOW, Vec::new());
            for (at, wait) in waits.into_iter().enumerate() {
                now += Duration::from_secs(wait);
                let free = budget.free_at(now);
                let told = pauses.iter().map(|(_, seconds)| *seconds).max().unwrap_or_default();
                prop_assert!(free - now <= WINDOW.max(Duration::from_secs(told)));
                now = now.max(free);
                prop_assert_eq!(budget.free_at(now), now);
                budget.spend(now);
                sent.push(now);
                for (_, seconds) in pauses.iter().filter(|(when, _)| *when == at) {
                    budget.told(now, 0, Duration::from_secs(*seconds));
                }
            }
            for (at, first) in sent.iter().enumerate() {
                let within = sent[at..].iter().filter(|&&later| later - *first < Duration::from_mins(1)).count();
                prop_assert!(within <= allowed as usize);
            }
        }
    }
}
