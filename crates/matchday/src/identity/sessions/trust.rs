//! Decides for how long the result of a token lookup is trusted.
//!
//! A process keeps the results of lookups for hours. It evicts a user's results as soon as it receives the message that
//! one of the user's sessions has ended, or that a ban has changed. Three rules bound the time for which a revoked token
//! is accepted if that message does not arrive:
//!
//! - The outbox relay sends a pulse after each time it has published everything (see [`platform::outbox::PULSE`]). A
//!   process that receives pulses without a gap has received every revocation. Without a pulse for half of
//!   `sessions.cache_unheard`, results older than `sessions.cache_unheard` are looked up again. This covers a NATS
//!   server, a connection and a relay that are down, slow or unreachable.
//! - After a gap, only results from after the gap are trusted for longer than that.
//! - After a reconnection to NATS, no earlier result is trusted.
//!
//! So a revoked token is accepted for `sessions.cache_unheard` at most, whichever of these fails.
//!
//! Evictions are counted for each slot of users, in a table of fixed size. A lookup notes the count before it reads the
//! session. If the count differs later, the session may have ended since it was read, also if the lookup was still in
//! flight. Other users are not affected, except the few who share the slot: their next request costs a lookup.

use std::{
    sync::atomic::{AtomicU32, AtomicU64, Ordering},
    time::{Duration, Instant},
};

use tokio::sync::{Notify, futures::Notified};
use web::ids::UserId;

/// Number of slots that count evictions; they take 256 KiB.
const SLOTS: usize = 65_536;
/// Number of slots for waiting streams.
const WAITING_SLOTS: usize = 1_024;
/// Value of `heard_since` before the first pulse.
const NEVER: u64 = u64::MAX;

/// Decides which lookups are trusted. Times are microseconds since the process started.
pub(super) struct Trust {
    began: Instant,
    cache_for: u64,
    cache_unheard: u64,
    /// Number of evictions in each slot of users.
    evictions: Box<[AtomicU32]>,
    /// Wakes the streams of each slot of users.
    streams: Box<[Notify]>,
    /// Earlier lookups are not trusted.
    valid_from: AtomicU64,
    /// Begin of the series of pulses without a gap.
    heard_since: AtomicU64,
    last_pulse: AtomicU64,
}

/// State at the start of a lookup.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Mark {
    at: u64,
    evictions: u32,
}

impl Trust {
    pub(super) fn new(cache_for: Duration, cache_unheard: Duration) -> Self {
        Self {
            began: Instant::now(),
            cache_for: micros(cache_for),
            cache_unheard: micros(cache_unheard),
            evictions: std::iter::repeat_with(AtomicU32::default).take(SLOTS).collect(),
            streams: std::iter::repeat_with(Notify::new).take(WAITING_SLOTS).collect(),
            valid_from: AtomicU64::new(0),
            heard_since: AtomicU64::new(NEVER),
            last_pulse: AtomicU64::new(0),
        }
    }

    /// Call this before reading the user's session.
    pub(super) fn mark(&self, user: UserId) -> Mark {
        self.mark_at(user, self.now())
    }

    fn mark_at(&self, user: UserId, at: u64) -> Mark {
        Mark { at, evictions: self.evictions(user) }
    }

    /// Whether a cached lookup can stand for another one.
    pub(super) fn covers_request(&self, user: UserId, mark: Mark) -> bool {
        self.covers(user, mark, self.now(), self.cache_for)
    }

    /// Whether a stream can continue without another lookup. Streams have a maximum lifetime, so `cache_for` does not
    /// apply to them.
    pub(super) fn covers_stream(&self, user: UserId, mark: Mark) -> bool {
        self.covers(user, mark, self.now(), NEVER)
    }

    fn covers(&self, user: UserId, mark: Mark, now: u64, longest: u64) -> bool {
        let age = now.saturating_sub(mark.at);
        // `heard_since` is written before and read after `last_pulse`, so the first pulse after a gap is not taken for
        // a continuation.
        let silence = now.saturating_sub(self.last_pulse.load(Ordering::Acquire));
        let is_heard = silence < self.longest_silence() && mark.at >= self.heard_since.load(Ordering::Acquire);
        mark.evictions == self.evictions(user)
            && mark.at >= self.valid_from.load(Ordering::Acquire)
            && age < longest
            && (is_heard || age < self.cache_unheard)
    }

    /// Ends the trust in all lookups of a user, including those in flight, and wakes the user's streams.
    pub(super) fn evict(&self, user: UserId) {
        self.evictions[slot(user, SLOTS)].fetch_add(1, Ordering::SeqCst);
        self.streams[slot(user, WAITING_SLOTS)].notify_waiters();
    }

    /// Ends the trust in all lookups. Streams notice it at their next heartbeat: all at once, they would overload the
    /// database.
    pub(super) fn evict_all(&self) {
        self.evict_all_at(self.now());
    }

    fn evict_all_at(&self, now: u64) {
        self.valid_from.fetch_max(now + 1, Ordering::AcqRel);
    }

    /// Notes a pulse of the outbox relay. Only one task may call this.
    pub(super) fn note_pulse(&self) {
        self.note_pulse_at(self.now());
    }

    fn note_pulse_at(&self, now: u64) {
        let silence = now.saturating_sub(self.last_pulse.load(Ordering::Acquire));
        if silence >= self.longest_silence() || self.heard_since.load(Ordering::Acquire) == NEVER {
            self.heard_since.store(now, Ordering::Release);
        }
        self.last_pulse.store(now, Ordering::Release);
    }

    /// Number of evictions in the user's slot.
    pub(super) fn evictions(&self, user: UserId) -> u32 {
        self.evictions[slot(user, SLOTS)].load(Ordering::SeqCst)
    }

    /// Waits for the next eviction of the user, or of another user with the same slot.
    pub(super) fn next_eviction(&self, user: UserId) -> Notified<'_> {
        self.streams[slot(user, WAITING_SLOTS)].notified()
    }

    fn longest_silence(&self) -> u64 {
        self.cache_unheard / 2
    }

    fn now(&self) -> u64 {
        micros(self.began.elapsed())
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}

fn slot(user: UserId, slots: usize) -> usize {
    usize::try_from(user.0).unwrap_or_default() % slots
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const USER: UserId = UserId(7);
    const SECOND: u64 = 1_000_000;

    fn trust() -> Trust {
        Trust::new(Duration::from_mins(5), Duration::from_secs(30))
    }

    fn covers(trust: &Trust, mark: Mark, second: u64) -> bool {
        trust.covers(USER, mark, second * SECOND, trust.cache_for)
    }

    /// Sends a pulse in each of these seconds.
    fn pulses(trust: &Trust, seconds: std::ops::RangeInclusive<u64>) {
        for second in seconds {
            trust.note_pulse_at(second * SECOND);
        }
    }

    #[test]
    fn lookup_is_trusted_for_minutes_while_pulses_arrive() {
        let trust = trust();
        pulses(&trust, 1..=400);
        let mark = trust.mark_at(USER, 100 * SECOND);
        assert!(covers(&trust, mark, 399));
        assert!(!covers(&trust, mark, 400), "cache_for has passed");
        assert!(trust.covers(USER, mark, 400 * SECOND, NEVER), "a stream needs no lookup");
    }

    #[test]
    fn lookup_is_trusted_briefly_without_pulses() {
        let trust = trust();
        let mark = trust.mark_at(USER, 100 * SECOND);
        assert!(covers(&trust, mark, 129) && !covers(&trust, mark, 130));
        pulses(&trust, 120..=200);
        assert!(!covers(&trust, mark, 150), "revocations before the first pulse may have been missed");
        assert!(covers(&trust, trust.mark_at(USER, 125 * SECOND), 200));
    }

    #[test]
    fn lookup_from_before_a_gap_is_not_trusted_after_it() {
        let trust = trust();
        pulses(&trust, 1..=100);
        let (old, new) = (trust.mark_at(USER, 50 * SECOND), trust.mark_at(USER, 110 * SECOND));
        assert!(covers(&trust, old, 114), "a relay may be replaced within 15 s");
        assert!(!covers(&trust, old, 115) && covers(&trust, new, 115));
        pulses(&trust, 116..=200);
        assert!(!covers(&trust, old, 117), "a revocation may have been lost in the gap");
        assert!(covers(&trust, trust.mark_at(USER, 116 * SECOND), 200));
    }

    #[test]
    fn eviction_affects_only_the_users_lookups() {
        let trust = trust();
        let marks = [1, 2, 7].map(|user| (UserId(user), trust.mark(UserId(user))));
        trust.evict(USER);
        assert_eq!(marks.map(|(user, mark)| trust.covers_request(user, mark)), [true, true, false]);
        assert!(trust.covers_request(USER, trust.mark(USER)), "a later lookup is trusted again");
    }

    #[test]
    fn reconnection_ends_trust_in_all_earlier_lookups() {
        let trust = trust();
        pulses(&trust, 1..=100);
        let mark = trust.mark_at(USER, 99 * SECOND);
        trust.evict_all_at(100 * SECOND);
        assert!(!covers(&trust, mark, 100));
        assert!(covers(&trust, trust.mark_at(USER, 101 * SECOND), 102));
    }

    proptest! {
        /// A session ends, and the message about it is lost. Pulses stop before the message would have arrived. They
        /// continue after a gap, or after a reconnection.
        #[test]
        fn revoked_token_is_refused_within_the_bound(
            pulses in prop::collection::vec(0_u64..200, 0..100), looked_up in 0_u64..200,
            later in 200_u64..400, is_reconnected: bool, pause in 0_u64..200,
        ) {
            let (trust, revoked) = (trust(), 200);
            let mut pulses = pulses;
            pulses.sort_unstable();
            for &second in &pulses {
                trust.note_pulse_at(second * SECOND);
            }
            let mark = trust.mark_at(USER, looked_up * SECOND);
            if is_reconnected {
                trust.evict_all_at(later * SECOND);
            } else {
                let last = pulses.last().copied().unwrap_or_default();
                prop_assume!(later >= last + 15);
            }
            trust.note_pulse_at(later * SECOND);
            let now = later.max(revoked + 30) + pause;
            trust.note_pulse_at(now * SECOND);
            prop_assert!(!trust.covers(USER, mark, now * SECOND, NEVER));
        }
    }
}
