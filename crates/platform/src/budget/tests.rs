//! Tests of the budget with the real scripts, and with a model of a dependency in simulated time.

use std::collections::BTreeMap;

use redis::AsyncCommands as _;

use super::*;
use crate::testing::{SeededRandom, eventually, redis_for_tests, unreachable_redis};

const BOUNDS: Bounds = Bounds {
    first: 4,
    least: 2,
    most: 8,
    alone: 2,
    forgotten_after: Duration::from_secs(20),
    overloaded_for: Duration::from_secs(5),
};

fn all_of_it() -> Share {
    Share::new("test", 100, Duration::from_secs(5))
}

/// No call is as fast as this.
fn never_fast() -> Share {
    Share::new("test", 100, Duration::ZERO)
}

fn budget(redis: ConnectionManager, prefix: &str, seed: u64) -> Budget {
    Budget::new(redis, prefix, "test", Arc::new(SeededRandom::new(seed)), BOUNDS)
}

async fn now(budget: &Budget, share: &Share) -> Option<Call> {
    budget.take(share, Duration::ZERO, Duration::ZERO).await
}

/// Takes all calls that the budget allows.
async fn all(budget: &Budget, share: &Share) -> Vec<Call> {
    let mut calls = Vec::new();
    while let Taken::Call(call) = budget.try_take(share).await {
        calls.push(call);
    }
    calls
}

#[tokio::test]
async fn limit_is_shared_by_processes_and_purposes() {
    let (redis, prefix) = redis_for_tests();
    let (one, two) = (budget(redis.clone(), &prefix, 1), budget(redis, &prefix, 2));
    let first = all(&one, &Share::new("half", 50, Duration::from_secs(5))).await;
    assert_eq!(first.len(), 2, "half of the limit");
    let second = all(&two, &all_of_it()).await;
    assert_eq!(second.len(), 2, "the rest");
    assert!(now(&one, &all_of_it()).await.is_none());
    // A dropped call is returned in the background.
    drop(second);
    eventually("calls are returned", async || now(&one, &all_of_it()).await.is_some()).await;
    drop(first);
}

#[tokio::test]
async fn limit_follows_latency() {
    let (redis, prefix) = redis_for_tests();
    let budget = budget(redis, &prefix, 3);
    for _ in 0..20 {
        for call in all(&budget, &never_fast()).await {
            call.finish(true).await;
        }
    }
    assert_eq!(all(&budget, &all_of_it()).await.len(), 2, "slow calls lower the limit to the least");
    assert!(budget.is_overloaded().await);
    eventually("dropped calls are returned", async || all(&budget, &all_of_it()).await.len() == 2).await;
    for _ in 0..100 {
        for call in all(&budget, &all_of_it()).await {
            call.finish(true).await;
        }
    }
    eventually("fast calls raise the limit to the most", async || all(&budget, &all_of_it()).await.len() == 8).await;
    eventually("dropped calls are returned", async || all(&budget, &all_of_it()).await.len() == 8).await;
    for _ in 0..20 {
        for call in all(&budget, &all_of_it()).await {
            call.finish(false).await;
        }
    }
    assert_eq!(all(&budget, &all_of_it()).await.len(), 2, "failures lower the limit, however fast they are");
}

#[tokio::test]
async fn callers_wait_in_order_for_another_call_to_finish() {
    let (redis, prefix) = redis_for_tests();
    let (budget, share) = (budget(redis, &prefix, 4), Arc::new(all_of_it()));
    let mut calls = all(&budget, &share).await;
    let (order, mut arrived) = tokio::sync::mpsc::unbounded_channel();
    for number in 0..3 {
        let (budget, share, order) = (budget.clone(), Arc::clone(&share), order.clone());
        let waiting = async move {
            let call = budget.take(&share, Duration::from_secs(10), Duration::from_secs(10)).await;
            order.send((number, call)).expect("the test waits");
        };
        let mut waiting = Box::pin(waiting);
        // The first poll enters the queue.
        assert!(futures_util::poll!(&mut waiting).is_pending());
        tokio::spawn(waiting);
    }
    for number in 0..3 {
        calls.pop().expect("a call").finish(true).await;
        let (arrived, call) = arrived.recv().await.expect("a caller");
        assert_eq!(arrived, number);
        calls.insert(0, call.expect("a call"));
    }
}

#[tokio::test]
async fn process_without_redis_has_fixed_limit() {
    let (budget, share) = (budget(unreachable_redis(), "test", 5), all_of_it());
    let mut calls = all(&budget, &share).await;
    assert_eq!(calls.len(), 2);
    calls.pop().expect("a call").finish(true).await;
    assert!(now(&budget, &share).await.is_some());
}

/// Bounds and target of a crowd that joins rooms.
const CROWD: Bounds = Bounds { first: 8, least: 5, most: 256, ..BOUNDS };
const PERCENT: u32 = 60;
const TARGET: Duration = Duration::from_millis(500);

/// A dependency whose workers each take the same time for a call, and callers that always have another one. Time is
/// simulated; the limit is that of the real scripts.
struct Model {
    budget: Budget,
    redis: ConnectionManager,
    clock: String,
    share: Share,
    now: u64,
    /// Milliseconds that a worker takes for a call.
    service: u64,
    /// Time at which each worker is free.
    free_at: Vec<u64>,
    /// Calls in progress, by the time at which they finish: when they began, and their ids.
    calls: BTreeMap<(u64, u64), (u64, String)>,
    taken: u64,
}

/// Result of running a model for a while.
#[derive(Debug)]
struct Run {
    /// Share of the time during which the workers were busy.
    utilisation: f64,
    slowest: Duration,
    most_in_progress: usize,
}

impl Model {
    fn new(workers: usize, service: u64) -> Self {
        let (redis, prefix) = redis_for_tests();
        let clock = format!("{prefix}:now");
        let scripts = Scripts::with_clock(&format!("local now = tonumber(redis.call('GET', '{clock}'))\n"));
        let random = Arc::new(SeededRandom::new(7));
        let budget = Budget::with_scripts(redis.clone(), &prefix, "model", random, CROWD, scripts);
        let share = Share::new("test", PERCENT, TARGET);
        let (free_at, calls) = (vec![0; workers], BTreeMap::new());
        Self { budget, redis, clock, share, now: 0, service, free_at, calls, taken: 0 }
    }

    async fn set_time(&mut self, now: u64) {
        self.now = now;
        let _: () = self.redis.set_ex(&self.clock, now, 60).await.expect("set");
    }

    /// Takes calls until the budget refuses one. The first free worker handles each.
    async fn take_all(&mut self) {
        while let Taken::Call(mut call) = self.budget.try_take(&self.share).await {
            call.state = CallState::Finished;
            let worker = self.free_at.iter_mut().min().expect("a worker");
            *worker = self.now.max(*worker) + self.service;
            self.taken += 1;
            self.calls.insert((*worker, self.taken), (self.now, std::mem::take(&mut call.id)));
        }
    }

    /// Runs for this many seconds.
    async fn run(&mut self, seconds: u64) -> Run {
        let (from, until) = (self.now, self.now + seconds * 1_000);
        let (mut served, mut slowest, mut most_in_progress) = (0, 0, 0);
        self.set_time(from).await;
        while self.now < until {
            self.take_all().await;
            most_in_progress = most_in_progress.max(self.calls.len());
            let ((finished_at, _), (began, id)) = self.calls.pop_first().expect("a call is always in progress");
            let latency = Duration::from_millis(finished_at - began);
            self.set_time(finished_at.max(self.now)).await;
            let outcome = Outcome::of(latency, TARGET, true);
            self.budget.finish(&id, PERCENT, outcome, latency).await;
            served += self.service;
            slowest = slowest.max(finished_at - began);
            // Another process notices it with its next poll.
            let poll = u64::try_from(POLL.as_millis()).expect("short");
            self.set_time(self.now.div_ceil(poll) * poll).await;
        }
        #[expect(clippy::cast_precision_loss, reason = "a few minutes")]
        let utilisation = served as f64 / ((self.now - from) * self.free_at.len() as u64) as f64;
        Run { utilisation, slowest: Duration::from_millis(slowest), most_in_progress }
    }
}

/// The limit keeps a dependency busy without a long queue there, whether it is slow, fast or has several workers.
#[tokio::test]
async fn limit_keeps_dependency_busy_within_latency() {
    for (workers, service) in [(1, 250), (1, 110), (1, 60), (4, 110), (2, 30)] {
        let mut model = Model::new(workers, service);
        model.run(10).await;
        let run = model.run(30).await;
        assert!(run.utilisation >= 0.9, "{workers} workers, {service} ms: {run:?}");
        assert!(run.slowest <= Duration::from_millis(800), "{workers} workers, {service} ms: {run:?}");
    }
}

#[tokio::test]
async fn limit_adapts_when_dependency_becomes_slower_and_faster() {
    let mut model = Model::new(4, 50);
    model.run(10).await;
    let fast = model.run(20).await;
    model.service = 250;
    let change = model.run(15).await;
    let slow = model.run(30).await;
    assert!(change.slowest > slow.slowest && slow.slowest <= Duration::from_millis(800), "{change:?} {slow:?}");
    assert!(slow.most_in_progress < fast.most_in_progress, "{fast:?} {slow:?}");
    model.service = 50;
    model.run(20).await;
    let again = model.run(20).await;
    for run in [fast, slow, again] {
        assert!(run.utilisation >= 0.9, "{run:?}");
    }
}

#[tokio::test]
async fn rush_of_one_kind_leaves_calls_to_others() {
    let (redis, prefix) = redis_for_tests();
    let budget = budget(redis, &prefix, 1);
    let share = |name| Share::new(name, 50, Duration::from_secs(5));
    let logins = all(&budget, &share("login")).await;
    assert_eq!(logins.len(), 2, "half of the limit");
    assert_eq!(all(&budget, &share("join")).await.len(), 2, "the other half");
}

#[tokio::test]
async fn calls_that_redis_was_not_told_about_are_returned_later() {
    let (redis, prefix) = redis_for_tests();
    let budget = budget(redis, &prefix, 1);
    let calls = all(&budget, &all_of_it()).await;
    assert_eq!(calls.len(), 4);
    // The breaker is open while they end.
    while budget.inner.breaker.admit().is_ok() {
        budget.inner.breaker.record(false);
    }
    for call in calls {
        call.finish(true).await;
    }
    eventually("the breaker admits a request, which returns the calls", async || {
        matches!(budget.try_take(&all_of_it()).await, Taken::Call(Call { state: CallState::Shared, .. }))
    })
    .await;
    assert!(budget.late().is_empty());
}
