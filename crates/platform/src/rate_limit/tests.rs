use proptest::prelude::*;
use time::{Duration as Span, macros::datetime};

use super::*;
use crate::testing::{MockClock, redis_for_tests, unreachable_redis};

const LIMIT: Limit = Limit { name: "test", burst: 5, every: Duration::from_mins(1) };

proptest! {
    /// For any arrivals, no window of `burst × every` lets through more than twice the burst, and a refused caller that
    /// waits for `retry_after` is let through.
    #[test]
    fn limit_is_never_exceeded(
        burst in 1_u32..20, every in 1_u64..1_000, gaps in proptest::collection::vec(0_i64..2_000_000, 1..200),
    ) {
        let limit = Limit { name: "p", burst, every: Duration::from_millis(every) };
        let (mut now, mut arrival, mut passed) = (1_700_000_000_000_000_i64, 0, Vec::new());
        for gap in gaps {
            now += gap;
            let (taken, decision) = gcra(limit, arrival, now);
            if let Some(taken) = taken {
                arrival = taken;
                passed.push(now);
            } else {
                let later = now + i64::try_from(decision.retry_after.as_micros()).expect("fits");
                prop_assert!(gcra(limit, arrival, later).1.allowed);
                prop_assert!(!gcra(limit, arrival, later - 1).1.allowed);
            }
        }
        let window = i64::from(burst) * i64::try_from(every).expect("fits") * 1_000;
        for &start in &passed {
            let within = passed.iter().filter(|&&moment| (start..start + window).contains(&moment)).count();
            prop_assert!(within <= 2 * burst as usize, "{within} passed within one window");
        }
    }
}

#[tokio::test]
async fn redis_script_matches_the_rule() {
    let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:00 UTC)));
    let (redis, prefix) = redis_for_tests();
    let limiter = RateLimiter::new(redis, &prefix, clock.clone());
    let mut arrival = 0;
    for step in 0..60 {
        clock.advance(Span::milliseconds((step * 7_919) % 40_000));
        let (taken, expected) = gcra(LIMIT, arrival, micros(clock.now()));
        arrival = taken.unwrap_or(arrival);
        assert_eq!(limiter.take_shared(LIMIT, "k", micros(clock.now())).await, Some(expected), "step {step}");
    }
}

#[tokio::test]
async fn racing_callers_share_one_burst() {
    let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:00 UTC)));
    let (redis, prefix) = redis_for_tests();
    let limiters = [(); 4].map(|()| RateLimiter::new(redis.clone(), &prefix, clock.clone()));
    let attempts = (0..40).map(|n| limiters[n % 4].take(LIMIT, "shared"));
    let allowed = futures_util::future::join_all(attempts).await.into_iter().filter(|d| d.allowed).count();
    assert_eq!(allowed, 5);
}

#[tokio::test]
async fn half_the_burst_remains_without_redis() {
    let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:00 UTC)));
    let limiter = RateLimiter::new(unreachable_redis(), "x", clock.clone());
    let began = std::time::Instant::now();
    let mut allowed = 0;
    for _ in 0..50 {
        allowed += u32::from(limiter.take(LIMIT, "k").await.allowed);
    }
    assert_eq!(allowed, 2, "half of the burst of five");
    assert!(began.elapsed() < Duration::from_secs(5), "the circuit breaker avoids timeouts");
    clock.advance(Span::seconds(120));
    assert!(limiter.take(LIMIT, "k").await.allowed, "one every two minutes");
}

const QUOTA: Quota = Quota { name: "test", most: 5, per: Duration::from_hours(1) };

#[tokio::test]
async fn quota_is_exact_and_resets_on_the_hour() {
    let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:20 UTC)));
    let (redis, prefix) = redis_for_tests();
    let limiters = [(); 4].map(|()| RateLimiter::new(redis.clone(), &prefix, clock.clone()));
    let decisions = futures_util::future::join_all((0..40).map(|n| limiters[n % 4].count(QUOTA, "k"))).await;
    assert_eq!(decisions.iter().filter(|decision| decision.allowed).count(), 5);
    let refused = limiters[0].count(QUOTA, "k").await;
    let expected = Decision { allowed: false, limit: 5, remaining: 0, retry_after: Duration::from_mins(40) };
    assert_eq!(refused, expected);
    assert!(limiters[0].count(QUOTA, "another").await.allowed);
    clock.advance(Span::minutes(39));
    assert!(!limiters[0].count(QUOTA, "k").await.allowed);
    clock.advance(Span::minutes(1));
    assert_eq!(limiters[0].count(QUOTA, "k").await.remaining, 4);
    let none = Quota { most: 0, ..QUOTA };
    assert!(!limiters[0].count(none, "nobody").await.allowed);
}

#[tokio::test]
async fn half_the_quota_remains_without_redis() {
    let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:20 UTC)));
    let limiter = RateLimiter::new(unreachable_redis(), "x", clock.clone());
    let mut allowed = 0;
    for _ in 0..20 {
        allowed += u32::from(limiter.count(QUOTA, "k").await.allowed);
    }
    assert_eq!(allowed, 3);
    assert!(!limiter.count(Quota { most: 0, ..QUOTA }, "none").await.allowed, "half of zero is zero");
    clock.advance(Span::hours(1));
    assert!(limiter.count(QUOTA, "k").await.allowed);
}

#[tokio::test]
async fn shared_count_carries_over_without_redis() {
    let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:20 UTC)));
    let (redis, prefix) = redis_for_tests();
    let [one, two] = [(); 2].map(|()| RateLimiter::new(redis.clone(), &prefix, clock.clone()));
    for _ in 0..2 {
        assert!(one.count(QUOTA, "k").await.allowed);
    }
    assert!(two.count(QUOTA, "k").await.allowed);
    // Two failures open the circuit breaker.
    for limiter in [&one, &two] {
        limiter.inner.breaker.record(false);
        limiter.inner.breaker.record(false);
    }
    assert!(!two.count(QUOTA, "k").await.allowed, "it counted one itself, but has seen three");
    assert!(one.count(QUOTA, "k").await.allowed, "it has seen two, and half of five is three");
    assert!(!one.count(QUOTA, "k").await.allowed);
}

#[tokio::test]
async fn unused_attempt_is_returned() {
    let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:20 UTC)));
    let (redis, prefix) = redis_for_tests();
    let limiter = RateLimiter::new(redis, &prefix, clock.clone());
    for _ in 0..20 {
        assert!(limiter.count(QUOTA, "k").await.allowed && limiter.take(LIMIT, "k").await.allowed);
        limiter.uncount(QUOTA, "k").await;
        limiter.untake(LIMIT, "k").await;
    }
    assert_eq!(limiter.count(QUOTA, "k").await.remaining, 4);
    assert_eq!(limiter.take(LIMIT, "k").await.remaining, 4);
    // An attempt that was never taken cannot be returned.
    limiter.uncount(QUOTA, "other").await;
    limiter.untake(LIMIT, "other").await;
    assert_eq!(limiter.count(QUOTA, "other").await.remaining, 4);
    assert_eq!(limiter.take(LIMIT, "other").await.remaining, 4);
}
