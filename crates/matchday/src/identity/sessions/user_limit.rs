//! Per-user rate limit in the memory of one process.
//!
//! It runs before every request with a token, so it takes no lock, allocates nothing and calls no other process. A
//! user's limit is one word: the user's tag and the theoretical arrival time of GCRA (see
//! [`rate_limit`](platform::rate_limit)). Once the arrival time has passed, the user has the full burst again, like a
//! new user, so the word can be reused for another user. This bounds the memory: a table of fixed size holds all users
//! who sent a request in the last few milliseconds.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use platform::{
    Core,
    clock::Clock,
    random,
    rate_limit::{Decision, Limit, gcra, note},
};
use time::OffsetDateTime;
use web::{ids::UserId, settings::Http};

/// Number of lines, a power of two. All lines together take 512 KiB.
const LINES: usize = 8_192;
/// Number of words in a line of the processor's cache.
const WORDS: usize = 8;
/// Bits of a word for the microseconds since the process started, enough for nine years; the remaining bits are the
/// tag. Of the pairs of users who send requests in the same milliseconds, one in 500 million shares both line and tag,
/// and therefore a limit.
const TIME_BITS: u32 = 48;
const TIME_MASK: u64 = (1 << TIME_BITS) - 1;

#[repr(align(64))]
#[derive(Default)]
struct Line([AtomicU64; WORDS]);

pub struct UserLimit {
    limit: Limit,
    lines: Box<[Line]>,
    /// Prevents users from choosing an id that shares a line with another user.
    seed: u64,
    clock: Arc<dyn Clock>,
    began: OffsetDateTime,
}

impl UserLimit {
    /// Returns `None` if the settings disable the limit.
    pub fn new(core: &Core, http: &Http) -> Option<Self> {
        let (scale, clock, random) = (core.env.leniency(), core.clock.clone(), &*core.random);
        let (burst, per_second) = (http.user_burst, http.user_requests_per_second);
        let every = Duration::from_secs(1).checked_div(per_second.saturating_mul(scale))?;
        let limit = Limit { name: "user", burst: burst.saturating_mul(scale), every };
        (burst > 0).then(|| Self::of(limit, clock, u64::from_ne_bytes(random::bytes(random))))
    }

    fn of(limit: Limit, clock: Arc<dyn Clock>, seed: u64) -> Self {
        let lines = std::iter::repeat_with(Line::default).take(LINES).collect();
        Self { limit, lines, seed, began: clock.now(), clock }
    }

    /// Counts one request against the user's limit.
    pub fn take(&self, user: UserId) -> Decision {
        let now = (self.clock.now() - self.began).whole_microseconds();
        note(self.limit.name, self.take_at(user, u64::try_from(now).unwrap_or_default() & TIME_MASK))
    }

    fn take_at(&self, user: UserId, now: u64) -> Decision {
        let hash = mixed(user.0.cast_unsigned() ^ self.seed);
        let tag = hash >> TIME_BITS;
        let line = &self.lines[usize::try_from(hash).unwrap_or_default() % LINES].0;
        loop {
            // Use the user's word, or else an expired one.
            let words = line.each_ref().map(|word| word.load(Ordering::Acquire));
            let own = words.iter().position(|word| word >> TIME_BITS == tag);
            let Some(at) = own.or_else(|| words.iter().position(|word| word & TIME_MASK <= now)) else {
                // Other active users fill the line, so this user's request passes uncounted.
                return gcra(self.limit, 0, 0).1;
            };
            let (arrival, now) = (if own.is_some() { words[at] & TIME_MASK } else { 0 }, signed(now));
            // An arrival time beyond the window is possible only if the machine's clock was set back.
            let is_possible = signed(arrival) <= now.saturating_add(self.window());
            let (taken, decision) = gcra(self.limit, if is_possible { signed(arrival) } else { 0 }, now);
            let Some(taken) = taken else { return decision };
            let word = (tag << TIME_BITS) | (u64::try_from(taken).unwrap_or_default() & TIME_MASK);
            if line[at].compare_exchange(words[at], word, Ordering::AcqRel, Ordering::Acquire).is_ok() {
                return decision;
            }
        }
    }

    fn window(&self) -> i64 {
        i64::try_from((self.limit.every * self.limit.burst).as_micros()).unwrap_or(i64::MAX)
    }
}

fn signed(micros: u64) -> i64 {
    i64::try_from(micros).unwrap_or(i64::MAX)
}

/// The finalizer of `SplitMix64`: every bit of the input changes half of the bits.
fn mixed(number: u64) -> u64 {
    let number = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let number = (number ^ (number >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    number ^ (number >> 31)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;
    use crate::testing::MockClock;

    const START: u64 = 1_000_000;

    fn limiter(burst: u32, every: Duration) -> UserLimit {
        let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:00 UTC)));
        UserLimit::of(Limit { name: "user", burst, every }, clock, 7)
    }

    fn allowed(limit: &UserLimit, user: i64, now: u64, tries: usize) -> usize {
        (0..tries).filter(|_| limit.take_at(UserId(user), now).allowed).count()
    }

    #[test]
    fn burst_is_spent_and_returns_with_time() {
        let limit = limiter(200, Duration::from_millis(20));
        assert_eq!(allowed(&limit, 1, START, 300), 200);
        let refused = limit.take_at(UserId(1), START);
        assert_eq!((refused.allowed, refused.remaining, refused.limit), (false, 0, 200));
        assert_eq!(refused.retry_after, Duration::from_millis(20));
        assert_eq!(allowed(&limit, 1, START + 1_000_000, 300), 50);
        assert_eq!(allowed(&limit, 1, START + 10_000_000, 300), 200);
    }

    #[test]
    fn users_do_not_share_a_limit() {
        let limit = limiter(3, Duration::from_secs(1));
        for user in 1..=1_000 {
            assert_eq!(allowed(&limit, user, START, 5), 3, "user {user}");
        }
    }

    #[test]
    fn concurrent_requests_are_all_counted() {
        let limit = limiter(1_000, Duration::from_secs(1));
        let taken: usize = std::thread::scope(|scope| {
            let racers: Vec<_> = (0..4).map(|_| scope.spawn(|| allowed(&limit, 1, START, 500))).collect();
            racers.into_iter().map(|racer| racer.join().expect("no panic")).sum()
        });
        assert_eq!(taken, 1_000);
    }

    #[test]
    fn clock_set_back_does_not_lock_users_out() {
        let limit = limiter(10, Duration::from_millis(20));
        let hour = 3_600_000_000;
        assert_eq!(allowed(&limit, 1, hour + START, 20), 10);
        assert_eq!(allowed(&limit, 1, START, 20), 10);
    }

    #[test]
    fn crowded_table_lets_requests_pass() {
        let limit = limiter(1, Duration::from_hours(1));
        let users = LINES * WORDS * 4;
        let allowed = (1_i64..).take(users).filter(|&user| limit.take_at(UserId(user), START).allowed).count();
        // A few share line and tag with another user.
        assert!(users - allowed < users / 1_000, "{allowed} of {users}");
    }

    proptest! {
        #[test]
        fn no_user_gets_more_than_burst_and_rate(
            steps in prop::collection::vec((1_i64..5, 0_u64..50_000), 1..400), burst in 1_u32..20,
        ) {
            let (every, mut now) = (10_000, START);
            let limit = limiter(burst, Duration::from_micros(every));
            let mut taken = std::collections::HashMap::<i64, u64>::new();
            for (user, pause) in steps {
                now += pause;
                if limit.take_at(UserId(user), now).allowed {
                    *taken.entry(user).or_default() += 1;
                }
            }
            for (user, taken) in taken {
                prop_assert!(taken <= u64::from(burst) + (now - START) / every, "user {} sent {}", user, taken);
            }
        }
    }
}
