//! Adaptive limit for concurrent calls to a dependency, shared by all processes through Redis.
//!
//! The limit follows the observed latency: it grows by one for every full set of fast calls, and shrinks by a fifth when
//! a call is slow or fails (additive increase, multiplicative decrease). The dependency thus has as much work as it
//! handles within the target latency, however many processes and callers there are. It always has the next call when it
//! finishes one, because the limit never falls below a few calls. Other callers wait here, in order, or are refused.
//!
//! A call is a member of a sorted set in Redis until it finishes. A process that dies leaves its calls there; they expire.
//! While Redis is unavailable, each process applies a small fixed limit.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use breaker::Breaker;
use redis::aio::ConnectionManager;
use tokio::{sync::Semaphore, time::Instant};

use super::{
    outage::Outage,
    random::{self, Random},
};

/// Interval at which the first waiting caller of a process tries again. All processes poll, so that none is preferred when a
/// call finishes.
const POLL: Duration = Duration::from_millis(20);

/// Number of calls that are returned late at most.
const MOST_LATE: usize = 256;

/// Reads the time of Redis in milliseconds, because the clocks of processes differ.
const CLOCK: &str = r"
local now = redis.call('TIME')
now = tonumber(now[1]) * 1000 + math.floor(tonumber(now[2]) / 1000)
";

/// Counts the calls of a call's share. Their ids begin with its name. There are few calls, so this is fast.
const OWN: &str = r"
local function own(call)
  local count, share = 0, string.match(call, '^[^:]*:')
  for _, id in ipairs(redis.call('ZRANGE', KEYS[1], 0, -1)) do
    if string.sub(id, 1, #share) == share then count = count + 1 end
  end
  return count
end
";

/// Takes a call from the budget. Returns whether it was taken, the limit in thousandths, and whether a call was slow
/// recently. First returns the calls that could not be returned earlier.
const TAKE: &str = r"
redis.call('ZREMRANGEBYSCORE', KEYS[1], '-inf', now)
for late = 6, #ARGV do redis.call('ZREM', KEYS[1], ARGV[late]) end
local state = redis.call('HMGET', KEYS[2], 'limit', 'slow_at')
local limit = tonumber(state[1] or ARGV[4])
local is_overloaded = state[2] and now - tonumber(state[2]) < tonumber(ARGV[5])
local most = math.max(1, math.floor(limit * tonumber(ARGV[3]) / 100))
local taken = 0
if redis.call('ZCARD', KEYS[1]) < math.floor(limit) and own(ARGV[1]) < most then
  redis.call('ZADD', KEYS[1], now + tonumber(ARGV[2]), ARGV[1])
  redis.call('PEXPIRE', KEYS[1], 2 * tonumber(ARGV[2]))
  taken = 1
end
return {taken, math.floor(limit * 1000), is_overloaded and 1 or 0}
";

/// Returns a call to the budget and adapts the limit to its outcome. Returns the limit in thousandths.
///
/// Only a call that began after the last decrease lowers the limit again: the others began when the limit was higher, so
/// they say nothing about the new one. The limit grows only if it was used up, or the share of this kind of call.
const FINISH: &str = r"
local used, of_share = redis.call('ZCARD', KEYS[1]), own(ARGV[1])
redis.call('ZREM', KEYS[1], ARGV[1])
local state = redis.call('HMGET', KEYS[2], 'limit', 'lowered_at', 'slow_at')
local limit = tonumber(state[1] or ARGV[4])
local lowered_at, slow_at = tonumber(state[2] or 0), tonumber(state[3] or 0)
local most = math.max(1, math.floor(limit * tonumber(ARGV[7]) / 100))
if ARGV[2] == 'fast' and (of_share >= most or used >= math.floor(limit)) then
  limit = math.min(tonumber(ARGV[6]), limit + 1 / limit)
elseif ARGV[2] == 'slow' then
  if now - tonumber(ARGV[3]) >= lowered_at then
    limit = math.max(tonumber(ARGV[5]), limit * 0.8)
    lowered_at = now
  end
  slow_at = now
end
redis.call('HSET', KEYS[2], 'limit', tostring(limit), 'lowered_at', lowered_at, 'slow_at', slow_at)
redis.call('PEXPIRE', KEYS[2], 3600000)
return math.floor(limit * 1000)
";

/// Whether a call was slow recently.
const LOOK: &str = r"
local slow_at = redis.call('HGET', KEYS[1], 'slow_at')
return slow_at and now - tonumber(slow_at) < tonumber(ARGV[1]) and 1 or 0
";

/// Bounds of a budget.
#[derive(Clone, Copy, Debug)]
pub struct Bounds {
    /// Limit before any call was observed.
    pub first: u32,
    pub least: u32,
    pub most: u32,
    /// Limit of a single process while Redis is unavailable.
    pub alone: usize,
    /// Time after which a call that never finished is forgotten. Longer than any call.
    pub forgotten_after: Duration,
    /// Time after a slow call during which the dependency counts as overloaded.
    pub overloaded_for: Duration,
}

/// Part of the limit that a kind of call may use, and its queue in this process.
#[derive(Debug)]
pub struct Share {
    /// Name in metrics.
    name: &'static str,
    /// Percentage of the limit. Calls of this kind never use more, so that others remain possible.
    percent: u32,
    /// Latency up to which a call counts as fast.
    target: Duration,
    /// Held by the first waiting caller. Only this caller asks Redis.
    turn: Semaphore,
}

impl Share {
    pub const fn new(name: &'static str, percent: u32, target: Duration) -> Self {
        Self { name, percent, target, turn: Semaphore::const_new(1) }
    }

    fn call(&self, budget: &Budget, id: String, state: CallState) -> Call {
        let Self { percent, target, .. } = *self;
        Call { budget: budget.clone(), percent, target, id, began: Instant::now(), state }
    }
}

/// Outcome of a call, which adapts the limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Outcome {
    Fast,
    /// Slow or failed.
    Slow,
    /// The caller stopped waiting.
    Unknown,
}

impl Outcome {
    fn of(latency: Duration, target: Duration, succeeded: bool) -> Self {
        if succeeded && latency <= target { Self::Fast } else { Self::Slow }
    }

    fn name(self) -> &'static str {
        match self {
            Self::Fast => "fast",
            Self::Slow => "slow",
            Self::Unknown => "unknown",
        }
    }
}

/// Limits concurrent calls. Cheap to clone.
#[derive(Clone)]
pub struct Budget {
    inner: Arc<Inner>,
}

struct Inner {
    /// Name in metrics and keys.
    name: &'static str,
    redis: ConnectionManager,
    /// Keys with a hash tag, so that a cluster keeps them on one node.
    calls: String,
    state: String,
    bounds: Bounds,
    random: Arc<dyn Random>,
    scripts: Scripts,
    breaker: Breaker,
    outage: Outage,
    /// Calls in progress without Redis.
    alone: AtomicUsize,
    /// Calls that ended while Redis was unavailable.
    late: Mutex<Vec<String>>,
}

struct Scripts {
    take: redis::Script,
    finish: redis::Script,
    look: redis::Script,
}

impl Scripts {
    /// Scripts that read the time with this one.
    fn with_clock(clock: &str) -> Self {
        let script = |body: &str| redis::Script::new(&format!("{clock}{OWN}{body}"));
        Self { take: script(TAKE), finish: script(FINISH), look: script(LOOK) }
    }
}

/// Result of trying to take a call.
enum Taken {
    Call(Call),
    /// The budget is used up.
    Nothing {
        is_overloaded: bool,
    },
}

impl Budget {
    pub fn new(
        redis: ConnectionManager,
        prefix: &str,
        name: &'static str,
        random: Arc<dyn Random>,
        bounds: Bounds,
    ) -> Self {
        Self::with_scripts(redis, prefix, name, random, bounds, Scripts::with_clock(CLOCK))
    }

    fn with_scripts(
        redis: ConnectionManager,
        prefix: &str,
        name: &'static str,
        random: Arc<dyn Random>,
        bounds: Bounds,
        scripts: Scripts,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                name,
                redis,
                calls: format!("{prefix}:budget:{{{name}}}:calls"),
                state: format!("{prefix}:budget:{{{name}}}:state"),
                bounds,
                random,
                scripts,
                breaker: Breaker::new(2, Duration::from_secs(1)),
                outage: Outage::default(),
                alone: AtomicUsize::new(0),
                late: Mutex::default(),
            }),
        }
    }

    /// Takes a call, or waits up to `patience` for another one to finish. While the dependency is overloaded, waits only
    /// up to `patience_if_overloaded`. The callers of a share wait in order.
    pub async fn take(&self, share: &Share, patience: Duration, patience_if_overloaded: Duration) -> Option<Call> {
        let taken = self.wait(share, patience, patience_if_overloaded).await;
        if taken.is_none() {
            metrics::counter!("matchday_budget_refused_total", "budget" => self.inner.name, "purpose" => share.name)
                .increment(1);
        }
        taken
    }

    async fn wait(&self, share: &Share, patience: Duration, patience_if_overloaded: Duration) -> Option<Call> {
        let began = Instant::now();
        let _turn = tokio::time::timeout(patience, share.turn.acquire()).await.ok()?.ok()?;
        loop {
            let is_overloaded = match self.try_take(share).await {
                Taken::Call(call) => return Some(call),
                Taken::Nothing { is_overloaded } => is_overloaded,
            };
            let patience = if is_overloaded { patience.min(patience_if_overloaded) } else { patience };
            if began.elapsed() + POLL > patience {
                return None;
            }
            tokio::time::sleep(POLL).await;
        }
    }

    /// Whether the dependency was slow recently. False if that is unknown.
    pub async fn is_overloaded(&self) -> bool {
        let inner = &*self.inner;
        if inner.breaker.admit().is_err() {
            return false;
        }
        let answer: redis::RedisResult<u8> = inner
            .scripts
            .look
            .key(&inner.state)
            .arg(millis(inner.bounds.overloaded_for))
            .invoke_async(&mut inner.redis.clone())
            .await;
        self.heard(answer) == Some(1)
    }

    async fn try_take(&self, share: &Share) -> Taken {
        let inner = &*self.inner;
        let id = format!("{}:{}", share.name, hex::encode(random::bytes::<8>(&*inner.random)));
        // Created first, so that a call that Redis has counted is returned even if this future is dropped.
        let mut call = share.call(self, id, CallState::Shared);
        if inner.breaker.admit().is_ok() {
            let late = self.late().clone();
            let answer: redis::RedisResult<(u8, u64, u8)> = inner
                .scripts
                .take
                .key(&inner.calls)
                .key(&inner.state)
                .arg(&call.id)
                .arg(millis(inner.bounds.forgotten_after))
                .arg(share.percent)
                .arg(inner.bounds.first)
                .arg(millis(inner.bounds.overloaded_for))
                .arg(&late)
                .invoke_async(&mut inner.redis.clone())
                .await;
            if let Some((taken, limit, is_overloaded)) = self.heard(answer) {
                self.late().retain(|id| !late.contains(id));
                self.show(limit);
                if taken == 1 {
                    call.began = Instant::now();
                    return Taken::Call(call);
                }
                call.state = CallState::Finished;
                return Taken::Nothing { is_overloaded: is_overloaded == 1 };
            }
            // Redis may have counted the call although the response did not arrive.
            self.note_late(std::mem::take(&mut call.id));
        }
        call.state = CallState::Finished;
        let taken = inner.alone.fetch_update(Ordering::AcqRel, Ordering::Acquire, |calls| {
            (calls < inner.bounds.alone).then_some(calls + 1)
        });
        if taken.is_err() {
            return Taken::Nothing { is_overloaded: true };
        }
        Taken::Call(share.call(self, String::new(), CallState::Alone))
    }

    fn late(&self) -> MutexGuard<'_, Vec<String>> {
        self.inner.late.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes a call that is returned with the next request. Of many, only the first ones: the others are forgotten anyway.
    fn note_late(&self, id: String) {
        let mut late = self.late();
        if late.len() < MOST_LATE {
            late.push(id);
        }
    }

    async fn finish(&self, id: &str, percent: u32, outcome: Outcome, latency: Duration) {
        let inner = &*self.inner;
        if inner.breaker.admit().is_err() {
            return self.note_late(id.to_owned());
        }
        let bounds = &inner.bounds;
        let answer: redis::RedisResult<u64> = inner
            .scripts
            .finish
            .key(&inner.calls)
            .key(&inner.state)
            .arg(id)
            .arg(outcome.name())
            .arg(millis(latency))
            .arg(bounds.first)
            .arg(bounds.least)
            .arg(bounds.most)
            .arg(percent)
            .invoke_async(&mut inner.redis.clone())
            .await;
        match self.heard(answer) {
            Some(limit) => self.show(limit),
            None => self.note_late(id.to_owned()),
        }
    }

    /// Returns a call that only this process counts.
    fn finish_alone(&self) {
        self.inner.alone.fetch_sub(1, Ordering::AcqRel);
    }

    fn show(&self, thousandths: u64) {
        #[expect(clippy::cast_precision_loss, reason = "the limit is far below 2^52")]
        metrics::gauge!("matchday_budget_limit", "budget" => self.inner.name).set(thousandths as f64 / 1000.0);
    }

    /// Unwraps a Redis reply and logs outages; `None` if this process must decide alone.
    fn heard<T>(&self, answer: redis::RedisResult<T>) -> Option<T> {
        self.inner.breaker.record(answer.is_ok());
        match &answer {
            Ok(_) if self.inner.outage.ends() => {
                tracing::info!(budget = self.inner.name, "calls are limited over all processes again");
            }
            Ok(_) => {}
            Err(error) => {
                if self.inner.outage.begins() {
                    tracing::warn!(%error, budget = self.inner.name, "Redis request failed; calls are limited per process");
                }
            }
        }
        answer.ok()
    }
}

enum CallState {
    /// Redis counts it.
    Shared,
    /// Only this process counts it.
    Alone,
    /// No longer counted.
    Finished,
}

/// A call that counts towards the limit until it finishes or is dropped.
pub struct Call {
    budget: Budget,
    percent: u32,
    target: Duration,
    id: String,
    began: Instant,
    state: CallState,
}

impl Call {
    /// Ends the call, whose latency adapts the limit. `succeeded` is false if the dependency failed.
    pub async fn finish(mut self, succeeded: bool) {
        let latency = self.began.elapsed();
        let outcome = Outcome::of(latency, self.target, succeeded);
        match std::mem::replace(&mut self.state, CallState::Finished) {
            CallState::Shared => self.budget.finish(&self.id, self.percent, outcome, latency).await,
            CallState::Alone => self.budget.finish_alone(),
            CallState::Finished => {}
        }
    }
}

impl Drop for Call {
    fn drop(&mut self) {
        match std::mem::replace(&mut self.state, CallState::Finished) {
            CallState::Shared => {
                let (budget, id, percent) = (self.budget.clone(), std::mem::take(&mut self.id), self.percent);
                if let Ok(runtime) = tokio::runtime::Handle::try_current() {
                    runtime.spawn(async move { budget.finish(&id, percent, Outcome::Unknown, Duration::ZERO).await });
                }
            }
            CallState::Alone => self.budget.finish_alone(),
            CallState::Finished => {}
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests;
