//! Rate limits by the generic cell rate algorithm (GCRA), shared by all processes through Redis.
//!
//! A limit of "burst `b`, then one every `i`" is stored as one number per key: the theoretical arrival time, up to
//! which capacity is used. While Redis is unavailable, each process enforces half of each limit alone. Without this
//! fallback, a Redis outage would lift every limit.

use std::{
    convert::Infallible,
    sync::{Arc, Mutex},
    time::Duration,
};

use breaker::Breaker;
use redis::aio::ConnectionManager;
use time::OffsetDateTime;

use super::{clock::Clock, outage::Outage};

/// A rate limit with a burst.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limit {
    /// Part of the key and of the metric labels.
    pub name: &'static str,
    /// Number of attempts allowed without a pause.
    pub burst: u32,
    /// Interval between further attempts.
    pub every: Duration,
}

impl Limit {
    /// Limit of a single process while Redis is unavailable.
    fn strict(self) -> Self {
        Self { burst: (self.burst / 2).max(1), every: self.every * 2, ..self }
    }
}

/// A fixed number per clock hour or day, for operations that cost money, where the bound must be easy to verify.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Quota {
    /// Part of the key and of the metric labels.
    pub name: &'static str,
    /// Maximum number in each window.
    pub most: u32,
    /// Length of a window.
    pub per: Duration,
}

impl Quota {
    /// Quota of a single process while Redis is unavailable.
    fn strict(self) -> Self {
        Self { most: self.most.div_ceil(2), ..self }
    }

    fn decide(self, taken: u32, allowed: bool, until_next: Duration) -> Decision {
        Decision {
            allowed,
            limit: self.most,
            remaining: self.most.saturating_sub(taken),
            retry_after: if allowed { Duration::ZERO } else { until_next },
        }
    }
}

/// Result of one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Decision {
    /// Whether the attempt is within the limit.
    pub allowed: bool,
    /// Burst of the limit, for `X-RateLimit-Limit`.
    pub limit: u32,
    /// Number of further attempts allowed now.
    pub remaining: u32,
    /// Time until an attempt is allowed again; zero if one is allowed now.
    pub retry_after: Duration,
}

/// The GCRA rule, in microseconds: takes the stored arrival time, returns the new one and the decision.
pub fn gcra(limit: Limit, arrival: i64, now: i64) -> (Option<i64>, Decision) {
    let every = i64::try_from(limit.every.as_micros()).unwrap_or(i64::MAX / 1_000_000).max(1);
    let window = every * i64::from(limit.burst);
    let new_arrival = arrival.max(now) + every;
    let wait = new_arrival - window - now;
    let allowed = wait <= 0;
    let spoken_for = if allowed { new_arrival } else { arrival } - now;
    let remaining = u32::try_from((window - spoken_for).max(0) / every).unwrap_or(u32::MAX);
    let retry_after = Duration::from_micros(u64::try_from(wait.max(0)).unwrap_or(0));
    (allowed.then_some(new_arrival), Decision { allowed, limit: limit.burst, remaining, retry_after })
}

/// The same rule as a Redis script, which runs atomically. `%.0f` because Lua would otherwise round microseconds since
/// 1970 to 14 digits.
const SCRIPT: &str = r"
local every, burst, now = tonumber(ARGV[1]), tonumber(ARGV[2]), tonumber(ARGV[3])
local arrival = tonumber(redis.call('GET', KEYS[1]) or '0')
local new_arrival = math.max(arrival, now) + every
local wait = new_arrival - every * burst - now
if wait <= 0 then
  redis.call('SET', KEYS[1], string.format('%.0f', new_arrival), 'PX', math.ceil((new_arrival - now) / 1000))
  arrival = new_arrival
end
return { string.format('%.0f', arrival), string.format('%.0f', wait) }
";

/// Counts up to the maximum. A refused attempt does not count.
const COUNT: &str = r"
local taken = tonumber(redis.call('GET', KEYS[1]) or '0')
if taken >= tonumber(ARGV[1]) then return { taken, 0 } end
taken = redis.call('INCR', KEYS[1])
redis.call('PEXPIRE', KEYS[1], ARGV[2])
return { taken, 1 }
";

const UNCOUNT: &str = r"
if tonumber(redis.call('GET', KEYS[1]) or '0') <= 0 then return 0 end
return redis.call('DECR', KEYS[1])
";

const UNTAKE: &str = r"
local arrival = tonumber(redis.call('GET', KEYS[1]) or '0')
if arrival == 0 then return 0 end
redis.call('SET', KEYS[1], string.format('%.0f', arrival - tonumber(ARGV[1])), 'KEEPTTL')
return 1
";

/// Checks and updates rate limits and quotas.
#[derive(Clone)]
pub struct RateLimiter {
    inner: Arc<Inner>,
}

struct Inner {
    redis: ConnectionManager,
    prefix: String,
    script: redis::Script,
    count: redis::Script,
    uncount: redis::Script,
    untake: redis::Script,
    clock: Arc<dyn Clock>,
    breaker: Breaker,
    outage: Outage,
    /// Arrival times of the fallback. Bounded, because clients determine the keys.
    own: quick_cache::sync::Cache<String, Arc<Mutex<i64>>>,
}

impl RateLimiter {
    pub fn new(redis: ConnectionManager, prefix: &str, clock: Arc<dyn Clock>) -> Self {
        Self {
            inner: Arc::new(Inner {
                redis,
                prefix: prefix.to_owned(),
                script: redis::Script::new(SCRIPT),
                count: redis::Script::new(COUNT),
                uncount: redis::Script::new(UNCOUNT),
                untake: redis::Script::new(UNTAKE),
                clock,
                breaker: Breaker::new(2, Duration::from_secs(1)),
                outage: Outage::default(),
                own: quick_cache::sync::Cache::new(100_000),
            }),
        }
    }

    /// Takes one attempt from the limit of `key`.
    pub async fn take(&self, limit: Limit, key: &str) -> Decision {
        let inner = &*self.inner;
        let now = micros(inner.clock.now());
        let decision = match self.take_shared(limit, key, now).await {
            Some(decision) => decision,
            None => self.take_own(limit.strict(), key, now),
        };
        note(limit.name, decision)
    }

    /// Counts one attempt towards the quota of `key`.
    pub async fn count(&self, quota: Quota, key: &str) -> Decision {
        let (key, until_next) = self.window(quota, key);
        let decision = match self.count_shared(quota, &key, until_next).await {
            Some(decision) => {
                // Remember the shared count, so this process does not start from zero when Redis becomes
                // unavailable.
                let slot = self.own_slot(&key);
                let mut own = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
                *own = (*own).max(i64::from(quota.most.saturating_sub(decision.remaining)));
                decision
            }
            None => self.count_own(quota.strict(), &key, until_next),
        };
        note(quota.name, decision)
    }

    /// Returns a counted attempt whose operation did not happen. Best effort: if it fails, slightly less remains.
    pub async fn uncount(&self, quota: Quota, key: &str) {
        let (key, _) = self.window(quota, key);
        {
            let slot = self.own_slot(&key);
            let mut own = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            *own = (*own - 1).max(0);
        }
        if self.inner.breaker.admit().is_err() {
            return;
        }
        let answer: redis::RedisResult<i64> = self
            .inner
            .uncount
            .key(format!("{}:quota:{key}", self.inner.prefix))
            .invoke_async(&mut self.inner.redis.clone())
            .await;
        self.heard(quota.name, answer);
    }

    /// Returns a taken attempt whose operation did not happen.
    pub async fn untake(&self, limit: Limit, key: &str) {
        if self.inner.breaker.admit().is_err() {
            return;
        }
        let every = i64::try_from(limit.every.as_micros()).unwrap_or(i64::MAX / 1_000_000).max(1);
        let answer: redis::RedisResult<i64> = self
            .inner
            .untake
            .key(format!("{}:limit:{}:{key}", self.inner.prefix, limit.name))
            .arg(every)
            .invoke_async(&mut self.inner.redis.clone())
            .await;
        self.heard(limit.name, answer);
    }

    /// Key of the current window, and the time until it ends.
    fn window(&self, quota: Quota, key: &str) -> (String, Duration) {
        let now = micros(self.inner.clock.now());
        let per = i64::try_from(quota.per.as_micros()).unwrap_or(i64::MAX).max(1);
        let until_next = Duration::from_micros(u64::try_from(per - now.rem_euclid(per)).unwrap_or(0));
        (format!("{}:{}:{key}", quota.name, now.div_euclid(per)), until_next)
    }

    async fn count_shared(&self, quota: Quota, key: &str, until_next: Duration) -> Option<Decision> {
        let inner = &*self.inner;
        if inner.breaker.admit().is_err() {
            return None;
        }
        let answer: redis::RedisResult<(u32, u8)> = inner
            .count
            .key(format!("{}:quota:{key}", inner.prefix))
            .arg(quota.most)
            .arg(u64::try_from(until_next.as_millis()).unwrap_or(u64::MAX).saturating_add(1_000))
            .invoke_async(&mut inner.redis.clone())
            .await;
        let (taken, allowed) = self.heard(quota.name, answer)?;
        Some(quota.decide(taken, allowed == 1, until_next))
    }

    fn count_own(&self, quota: Quota, key: &str, until_next: Duration) -> Decision {
        let slot = self.own_slot(key);
        let mut taken = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let allowed = *taken < i64::from(quota.most);
        *taken += i64::from(allowed);
        quota.decide(u32::try_from(*taken).unwrap_or(u32::MAX), allowed, until_next)
    }

    /// Unwraps a Redis reply and logs outages; `None` if this process must decide alone.
    fn heard<T>(&self, limit: &'static str, answer: redis::RedisResult<T>) -> Option<T> {
        self.inner.breaker.record(answer.is_ok());
        match &answer {
            Ok(_) if self.inner.outage.ends() => tracing::info!("rate limits are shared through Redis again"),
            Ok(_) => {}
            Err(error) => {
                metrics::counter!("matchday_rate_limit_fallback_total").increment(1);
                if self.inner.outage.begins() {
                    tracing::warn!(%error, limit, "Redis request failed; rate limits apply per process");
                }
            }
        }
        answer.ok()
    }

    fn own_slot(&self, name: &str) -> Arc<Mutex<i64>> {
        match self.inner.own.get_or_insert_with(name, || Ok::<_, Infallible>(Arc::default())) {
            Ok(slot) => slot,
            Err(never) => match never {},
        }
    }

    async fn take_shared(&self, limit: Limit, key: &str, now: i64) -> Option<Decision> {
        let inner = &*self.inner;
        if inner.breaker.admit().is_err() {
            return None;
        }
        let every = i64::try_from(limit.every.as_micros()).unwrap_or(i64::MAX / 1_000_000).max(1);
        let answer: redis::RedisResult<(String, String)> = inner
            .script
            .key(format!("{}:limit:{}:{key}", inner.prefix, limit.name))
            .arg(every)
            .arg(limit.burst)
            .arg(now)
            .invoke_async(&mut inner.redis.clone())
            .await;
        let (arrival, wait) = self.heard(limit.name, answer)?;
        let (arrival, wait) = (arrival.parse::<i64>().unwrap_or(now), wait.parse::<i64>().unwrap_or(0));
        let window = every * i64::from(limit.burst);
        Some(Decision {
            allowed: wait <= 0,
            limit: limit.burst,
            remaining: u32::try_from((window - (arrival - now)).max(0) / every).unwrap_or(u32::MAX),
            retry_after: Duration::from_micros(u64::try_from(wait.max(0)).unwrap_or(0)),
        })
    }

    fn take_own(&self, limit: Limit, key: &str, now: i64) -> Decision {
        let slot = self.own_slot(&format!("{}:{key}", limit.name));
        let mut arrival = slot.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        let (taken, decision) = gcra(limit, *arrival, now);
        if let Some(taken) = taken {
            *arrival = taken;
        }
        decision
    }
}

/// Counts a refusal in the metrics.
pub fn note(name: &'static str, decision: Decision) -> Decision {
    if !decision.allowed {
        metrics::counter!("matchday_rate_limited_total", "limit" => name).increment(1);
    }
    decision
}

fn micros(moment: OffsetDateTime) -> i64 {
    i64::try_from(moment.unix_timestamp_nanos() / 1_000).unwrap_or(i64::MAX)
}

#[cfg(test)]
mod tests;
