//! Work that waits in one process, known to all processes through Redis.
//!
//! A balancer passes the requests of a caller to any process. A process that waits with a caller's work claims it, so
//! that a repeated request does not start the work again elsewhere, and stores the outcome for the request that asks for
//! it. Claims are only a shortcut: if one is lost, or Redis is unavailable, the work may wait in two processes, and
//! must therefore be harmless if repeated.

use std::{
    collections::HashMap,
    sync::{Mutex, PoisonError},
    time::{Duration, Instant},
};

use breaker::Breaker;
use redis::aio::ConnectionManager;

use super::{
    outage::Outage,
    random::{self, Random},
};

/// Time for which a process counts as alive after it claimed anything. While callers wait, they return more often.
const ALIVE_FOR: Duration = Duration::from_secs(15);

/// Time for which an outcome is stored.
const OUTCOME_KEPT_FOR: Duration = Duration::from_mins(1);

/// First character of a stored outcome. A claim begins with the id of its process.
const OUTCOME: char = '=';

/// Returns the process that has the work, or an outcome, which it takes. A process that is not alive has nothing. Extends the
/// claim, because the caller is here. With the last argument, claims work that no process has.
const FIND: &str = r"
redis.call('SET', KEYS[2], '1', 'PX', ARGV[3])
local held = redis.call('GET', KEYS[1])
if held and string.sub(held, 1, 1) == '=' then
  redis.call('DEL', KEYS[1])
  return held
end
if held and (held == ARGV[1] or redis.call('EXISTS', ARGV[4] .. held) == 1) then
  redis.call('PEXPIRE', KEYS[1], ARGV[2])
  return held
end
if ARGV[5] == '0' then return '' end
redis.call('SET', KEYS[1], ARGV[1], 'PX', ARGV[2])
return ARGV[1]
";

/// Ends a claim of this process: stores the outcome, or nothing. Returns 0 if this process had no claim.
const END: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
if ARGV[2] == '' then redis.call('DEL', KEYS[1]) else redis.call('SET', KEYS[1], ARGV[2], 'PX', ARGV[3]) end
return 1
";

/// Result of a claim.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The work is this process's, perhaps because no process can be asked.
    Ours,
    /// It waits in another process.
    Others,
    /// It has ended in another process with this outcome.
    Ended(String),
}

/// Claims of this process.
pub struct Claims {
    redis: ConnectionManager,
    /// Beginning of all keys, with a hash tag, so that a cluster keeps them on one node.
    prefix: String,
    /// Id of this process.
    process: String,
    find: redis::Script,
    end: redis::Script,
    /// Outcomes that Redis could not store, with the time when they ended. Requests to this process get them.
    unstored: Mutex<HashMap<String, (Instant, String)>>,
    breaker: Breaker,
    outage: Outage,
}

impl Claims {
    pub fn new(redis: ConnectionManager, prefix: &str, name: &'static str, random: &dyn Random) -> Self {
        Self {
            redis,
            prefix: format!("{prefix}:claims:{{{name}}}"),
            process: hex::encode(random::bytes::<8>(random)),
            find: redis::Script::new(FIND),
            end: redis::Script::new(END),
            unstored: Mutex::default(),
            breaker: Breaker::new(2, Duration::from_secs(1)),
            outage: Outage::default(),
        }
    }

    /// Claims work for this process, unless another one has it. The claim lasts for `keep` from now.
    pub async fn claim(&self, work: &str, keep: Duration) -> Claim {
        self.look(work, keep, true).await.unwrap_or(Claim::Ours)
    }

    /// Returns the claim of work. It then lasts for `keep` from now. `None` if there is none, or if that is unknown.
    pub async fn find(&self, work: &str, keep: Duration) -> Option<Claim> {
        self.look(work, keep, false).await
    }

    async fn look(&self, work: &str, keep: Duration, claims: bool) -> Option<Claim> {
        if let Some(outcome) = self.take_unstored(work) {
            return Some(Claim::Ended(outcome));
        }
        let invoked = async {
            self.find
                .key(self.key(work))
                .key(self.alive(&self.process))
                .arg(&self.process)
                .arg(millis(keep))
                .arg(millis(ALIVE_FOR))
                .arg(self.alive(""))
                .arg(u8::from(claims))
                .invoke_async::<String>(&mut self.redis.clone())
                .await
        };
        let held = self.heard(invoked).await.filter(|held| !held.is_empty())?;
        Some(match held.strip_prefix(OUTCOME) {
            Some(outcome) => Claim::Ended(outcome.to_owned()),
            None if held == self.process => Claim::Ours,
            None => Claim::Others,
        })
    }

    /// Whether the work is still claimed. True if that is unknown.
    pub async fn is_claimed(&self, work: &str) -> bool {
        let mut redis = self.redis.clone();
        let exists = redis::cmd("EXISTS").arg(self.key(work)).to_owned();
        self.heard(async move { exists.query_async(&mut redis).await }).await.unwrap_or(true)
    }

    /// Ends a claim. A request for the work then gets the outcome, once, or may claim the work again.
    pub async fn end(&self, work: &str, outcome: Option<&str>) {
        let stored = outcome.map(|outcome| format!("{OUTCOME}{outcome}")).unwrap_or_default();
        let invoked = async {
            self.end
                .key(self.key(work))
                .arg(&self.process)
                .arg(stored)
                .arg(millis(OUTCOME_KEPT_FOR))
                .invoke_async::<bool>(&mut self.redis.clone())
                .await
        };
        if self.heard(invoked).await != Some(true)
            && let Some(outcome) = outcome
        {
            let mut unstored = self.unstored.lock().unwrap_or_else(PoisonError::into_inner);
            unstored.retain(|_, (ended_at, _)| ended_at.elapsed() < OUTCOME_KEPT_FOR);
            unstored.insert(work.to_owned(), (Instant::now(), outcome.to_owned()));
        }
    }

    fn take_unstored(&self, work: &str) -> Option<String> {
        let (ended_at, outcome) = self.unstored.lock().unwrap_or_else(PoisonError::into_inner).remove(work)?;
        (ended_at.elapsed() < OUTCOME_KEPT_FOR).then_some(outcome)
    }

    fn key(&self, work: &str) -> String {
        format!("{}:of:{work}", self.prefix)
    }

    /// Key that exists while a process is alive.
    fn alive(&self, process: &str) -> String {
        format!("{}:alive:{process}", self.prefix)
    }

    async fn heard<T>(&self, request: impl Future<Output = redis::RedisResult<T>>) -> Option<T> {
        self.breaker.admit().ok()?;
        let answer = request.await;
        self.breaker.record(answer.is_ok());
        match answer {
            Ok(value) => {
                if self.outage.ends() {
                    tracing::info!("waiting work is known to all processes again");
                }
                Some(value)
            }
            Err(error) => {
                if self.outage.begins() {
                    tracing::warn!(%error, "Redis request failed; waiting work is known only to its process");
                }
                None
            }
        }
    }
}

fn millis(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use redis::AsyncCommands as _;

    use super::*;
    use crate::testing::{SeededRandom, redis_for_tests, unreachable_redis};

    const KEEP: Duration = Duration::from_secs(20);

    fn processes() -> (ConnectionManager, [Claims; 2]) {
        let (redis, prefix) = redis_for_tests();
        let claims = [1, 2].map(|seed| Claims::new(redis.clone(), &prefix, "test", &SeededRandom::new(seed)));
        (redis, claims)
    }

    #[tokio::test]
    async fn work_waits_in_one_process() {
        let (_, [one, two]) = processes();
        assert_eq!(one.find("a", KEEP).await, None);
        assert_eq!(one.claim("a", KEEP).await, Claim::Ours);
        assert_eq!(two.claim("a", KEEP).await, Claim::Others);
        assert_eq!(one.find("a", KEEP).await, Some(Claim::Ours));
        assert_eq!(two.find("a", KEEP).await, Some(Claim::Others));
        assert_eq!(two.claim("b", KEEP).await, Claim::Ours, "other work");
        assert_eq!(one.claim("a", KEEP).await, Claim::Ours, "claimed again");
        two.end("a", None).await;
        assert!(one.is_claimed("a").await, "only its process ends a claim");
        one.end("a", None).await;
        assert!(!one.is_claimed("a").await);
        assert_eq!(two.claim("a", KEEP).await, Claim::Ours);
    }

    #[tokio::test]
    async fn outcome_reaches_the_next_request_at_any_process() {
        let (_, [one, two]) = processes();
        one.claim("a", KEEP).await;
        one.end("a", Some("done")).await;
        assert_eq!(two.claim("a", KEEP).await, Claim::Ended("done".to_owned()));
        assert_eq!(two.claim("a", KEEP).await, Claim::Ours, "it is reported once");
    }

    #[tokio::test]
    async fn claims_end_with_their_callers_and_processes() {
        let (mut redis, [one, two]) = processes();
        one.claim("a", KEEP).await;
        assert_eq!(two.claim("a", Duration::from_mins(5)).await, Claim::Others);
        let left: u64 = redis.pttl(one.key("a")).await.expect("a time");
        assert!((290_000..=300_000).contains(&left), "the caller extends the claim at any process");
        let left: u64 = redis.pttl(one.alive(&one.process)).await.expect("a time");
        assert!(left <= 15_000, "a process that ended is soon forgotten");
        redis.del::<_, ()>(one.alive(&one.process)).await.expect("deleted");
        assert_eq!(two.claim("a", KEEP).await, Claim::Ours, "its process ended");
        assert_eq!(one.claim("a", KEEP).await, Claim::Others);
    }

    #[tokio::test]
    async fn every_process_works_alone_without_redis() {
        let claims = Claims::new(unreachable_redis(), "test", "test", &SeededRandom::new(1));
        for _ in 0..3 {
            assert_eq!(claims.find("a", KEEP).await, None);
            assert_eq!(claims.claim("a", KEEP).await, Claim::Ours);
            assert!(claims.is_claimed("a").await);
        }
        claims.end("a", Some("done")).await;
        assert_eq!(claims.find("a", KEEP).await, Some(Claim::Ended("done".to_owned())));
        assert_eq!(claims.find("a", KEEP).await, None, "it is reported once");
    }

    #[tokio::test]
    async fn outcome_without_a_claim_is_kept_in_its_process() {
        let (_, [one, two]) = processes();
        one.end("a", Some("done")).await;
        assert_eq!(two.find("a", KEEP).await, None);
        assert_eq!(one.claim("a", KEEP).await, Claim::Ended("done".to_owned()));
    }
}
