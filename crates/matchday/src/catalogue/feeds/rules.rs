//! When to poll a feed next; no I/O. The caller supplies the current time.

use std::{collections::VecDeque, time::Duration};

use time::OffsetDateTime;

use crate::catalogue::matches::rules::Status;

/// Time before a kick-off from which a feed is polled often: line-ups, delays and late postponements appear then.
pub(super) const NEAR: Duration = Duration::from_mins(10);
/// How long after its kick-off a match that has not started is still expected to start.
const LATE: Duration = Duration::from_hours(3);
/// When a match may end: after 90 minutes and a break at the earliest, after extra time and penalties at the latest.
const ENDING: std::ops::Range<Duration> = Duration::from_mins(100)..Duration::from_hours(3);
/// Time after kick-off during which corrections of a result are likely.
const FRESH: Duration = Duration::from_hours(3);
/// Poll interval while corrections of a result are likely.
const SETTLING: Duration = Duration::from_mins(5);
/// Longest time that a match can be live. A match that is live for longer was forgotten by its source.
pub(super) const LONGEST: Duration = Duration::from_hours(6);
/// Pause after the first failure, and the longest pause after many.
const PAUSES: (Duration, Duration) = (Duration::from_secs(30), Duration::from_mins(15));
/// Longest wait that a provider may request. A longer one is assumed to be a mistake.
const LONGEST_WAIT: Duration = Duration::from_hours(1);
/// One minute as the provider counts it, plus a second for network latency.
const WINDOW: Duration = Duration::from_secs(61);

/// Poll intervals of a feed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pace {
    /// While no match is near.
    pub(super) idle: Duration,
    /// Around a kick-off and during a match.
    pub(super) live: Duration,
    /// When a match may end.
    pub(super) closing: Duration,
    /// Lower bound for all intervals.
    pub(super) least: Duration,
}

/// The fields of a match that determine the next poll.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fixture {
    pub(super) start_time: OffsetDateTime,
    pub(super) status: Status,
}

/// Returns the time of the next poll after a successful one.
pub(super) fn next_poll(now: OffsetDateTime, fixtures: &[Fixture], pace: Pace) -> OffsetDateTime {
    let soonest = fixtures.iter().filter_map(|fixture| next_poll_for(now, *fixture, pace)).min();
    let idle = now + pace.idle;
    soonest.map_or(idle, |soonest| soonest.min(idle)).max(now + pace.least)
}

/// Returns when a match needs the next poll; `None` if the idle interval is enough.
fn next_poll_for(now: OffsetDateTime, fixture: Fixture, pace: Pace) -> Option<OffsetDateTime> {
    let since = now - fixture.start_time;
    match fixture.status {
        Status::Scheduled if fixture.start_time - NEAR > now => Some(fixture.start_time - NEAR),
        Status::Scheduled if since < LATE => Some(now + pace.live),
        // A live match ends when the source reports it, regardless of the announced times.
        Status::Live if since >= ENDING.start && since < ENDING.end => Some(now + pace.closing),
        Status::Live | Status::Suspended if since < LONGEST => Some(now + pace.live),
        Status::Finished | Status::Awarded | Status::Abandoned if since < FRESH => Some(now + SETTLING.max(pace.live)),
        _ => None,
    }
}

/// Returns the time of the next attempt after `failures` failures in a row. `requested` is the wait that the provider
/// requested.
pub(super) fn next_try(now: OffsetDateTime, failures: u32, requested: Option<Duration>, pace: Pace) -> OffsetDateTime {
    let grown = || PAUSES.0.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(PAUSES.1);
    let pause = requested.map_or_else(grown, |wait| wait.clamp(Duration::from_secs(1), LONGEST_WAIT));
    now + pause.max(pace.least)
}

/// Request budget that all feeds of one provider share in this process.
#[derive(Debug)]
pub(super) struct Budget {
    per_minute: usize,
    /// Times of the requests of the last minute, oldest first.
    sent: VecDeque<OffsetDateTime>,
    closed_until: Option<OffsetDateTime>,
}

impl Budget {
    pub(super) fn new(per_minute: u32) -> Self {
        Self { per_minute: per_minute.max(1) as usize, sent: VecDeque::new(), closed_until: None }
    }

    /// Returns when the next request may be sent; `now` if it may be sent immediately.
    pub(super) fn free_at(&self, now: OffsetDateTime) -> OffsetDateTime {
        let closed = self.closed_until.filter(|&until| until > now).unwrap_or(now);
        // Ignore times after `now`: the clock has been set back since.
        let mut recent = self.sent.iter().filter(|&&sent| sent <= now && now - sent < WINDOW);
        let count = recent.clone().count();
        match count.checked_sub(self.per_minute).and_then(|over| recent.nth(over)) {
            Some(&sent) => closed.max(sent + WINDOW),
            None => closed,
        }
    }

    /// Counts a request that is being sent.
    pub(super) fn spend(&mut self, now: OffsetDateTime) {
        self.sent.retain(|&sent| sent <= now && now - sent < WINDOW);
        self.sent.push_back(now);
    }

    /// Counts a request that another process sent, unless it is counted already.
    pub(super) fn remember(&mut self, now: OffsetDateTime, sent: OffsetDateTime) {
        if sent <= now
            && now - sent < WINDOW
            && let Err(at) = self.sent.binary_search(&sent)
        {
            self.sent.insert(at, sent);
        }
    }

    /// Closes the budget until the provider's counter resets, if no requests remain.
    pub(super) fn observe(&mut self, now: OffsetDateTime, left: u32, resets_in: Duration) {
        if left == 0 {
            self.pause(now, resets_in);
        }
    }

    /// Closes the budget for this long. A longer pause that is already in effect remains.
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
    fn match_state_determines_next_poll() {
        use Status::{Abandoned, Awarded, Cancelled, Finished, Live, Postponed, Scheduled, Suspended};
        for (status, minutes_ago, seconds) in [
            (Scheduled, -600, 3_600),
            // A poll in one hour would miss the ten minutes before the kick-off.
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
    fn failure_pauses_grow_up_to_limit() {
        let pauses: Vec<i64> =
            (1..=8).map(|failures| (next_try(NOW, failures, None, PACE) - NOW).whole_seconds()).collect();
        assert_eq!(pauses, [30, 60, 120, 240, 480, 900, 900, 900]);
        let pause = |seconds| (next_try(NOW, 7, Some(Duration::from_secs(seconds)), PACE) - NOW).whole_seconds();
        assert_eq!((pause(0), pause(41), pause(1_000_000)), (1, 41, 3_600));
        let rare = Pace { least: Duration::from_mins(5), ..PACE };
        assert_eq!(next_try(NOW, 1, None, rare), NOW + rare.least);
    }

    #[test]
    fn provider_response_closes_budget() {
        let mut budget = Budget::new(10);
        budget.observe(NOW, 3, Duration::from_secs(40));
        assert_eq!(budget.free_at(NOW), NOW);
        budget.observe(NOW, 0, Duration::from_secs(40));
        budget.pause(NOW, Duration::from_secs(20));
        assert_eq!(budget.free_at(NOW), NOW + Duration::from_secs(40), "a shorter wait does not end a longer one");
        let later = NOW + Duration::from_secs(41);
        assert_eq!(budget.free_at(later), later);
    }

    #[test]
    fn earlier_requests_count_once() {
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
        fn next_poll_stays_within_bounds(fixtures in fixtures(), pace in pace()) {
            let pause = next_poll(NOW, &fixtures, pace) - NOW;
            prop_assert!(pause >= pace.least);
            prop_assert!(pause <= pace.idle.max(pace.least));
            let soonest = pace.live.min(pace.closing).min(pace.idle);
            let kick_off = fixtures.iter().any(|fixture| fixture.start_time - NEAR > NOW);
            prop_assert!(kick_off || pause >= soonest.min(SETTLING));
        }

        /// A match that is near or live keeps the feed at the live interval, regardless of its other matches.
        #[test]
        fn live_match_keeps_live_interval(mut fixtures in fixtures(), pace in pace(), minutes in -9_i64..99) {
            for status in [Status::Scheduled, Status::Live] {
                fixtures.push(fixture(status, minutes));
                prop_assert!(next_poll(NOW, &fixtures, pace) - NOW <= pace.live.max(pace.least));
                fixtures.pop();
            }
        }

        /// The next poll is never later than ten minutes before a kick-off, unless the lower bound for intervals delays
        /// it.
        #[test]
        fn no_kick_off_is_missed(fixtures in fixtures(), pace in pace()) {
            let next = next_poll(NOW, &fixtures, pace);
            for fixture in fixtures.iter().filter(|fixture| fixture.status == Status::Scheduled) {
                let from = fixture.start_time - NEAR;
                prop_assert!(from <= NOW || next <= from.max(NOW + pace.least));
            }
        }

        #[test]
        fn more_matches_never_delay_the_poll(fixtures in fixtures(), further in fixtures(), pace in pace()) {
            let both: Vec<Fixture> = fixtures.iter().chain(&further).copied().collect();
            prop_assert!(next_poll(NOW, &both, pace) <= next_poll(NOW, &fixtures, pace));
        }

        #[test]
        fn failure_pauses_never_shrink(failures in 1_u32..u32::MAX, pace in pace()) {
            prop_assert!(next_try(NOW, failures, None, pace) <= next_try(NOW, failures + 1, None, pace));
            prop_assert!(next_try(NOW, failures, None, pace) - NOW <= PAUSES.1.max(pace.least));
        }

        /// A caller that sends whenever the budget is free never exceeds the limit in any minute, and is never blocked
        /// for longer than the window or a requested pause.
        #[test]
        fn budget_is_never_exceeded_in_a_minute(
            allowed in 1_u32..20,
            waits in proptest::collection::vec(0_u64..30, 1..100),
            pauses in proptest::collection::vec((0_usize..100, 0_u64..200), 0..3),
        ) {
            let (mut budget, mut now, mut sent) = (Budget::new(allowed), NOW, Vec::new());
            for (at, wait) in waits.into_iter().enumerate() {
                now += Duration::from_secs(wait);
                let free = budget.free_at(now);
                let longest = pauses.iter().map(|(_, seconds)| *seconds).max().unwrap_or_default();
                prop_assert!(free - now <= WINDOW.max(Duration::from_secs(longest)));
                now = now.max(free);
                prop_assert_eq!(budget.free_at(now), now);
                budget.spend(now);
                sent.push(now);
                for (_, seconds) in pauses.iter().filter(|(when, _)| *when == at) {
                    budget.observe(now, 0, Duration::from_secs(*seconds));
                }
            }
            for (at, first) in sent.iter().enumerate() {
                let within = sent[at..].iter().filter(|&&later| later - *first < Duration::from_mins(1)).count();
                prop_assert!(within <= allowed as usize);
            }
        }
    }
}
