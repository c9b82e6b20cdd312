//! Notes about callers who wrote recently, shared by all processes through Redis.
//!
//! A missing note must mean that the caller did not write. Redis may have lost notes, or not got them, so after a restart or a
//! failure of Redis every caller is treated as a writer, for as long as a note is kept. Each process looks for
//! failures several times a second, also without requests.
//!
//! One case remains: a process that cannot reach Redis, while others can, notes nothing. Its callers may miss their own
//! writes in other processes, for at most `database.read_max_lag`.

use std::{
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use breaker::Breaker;
use redis::{FromRedisValue, Pipeline};
use tokio::time::Instant;

use super::Caller;
use crate::{
    outage::Outage,
    redis_client::{self, RunConnection},
};

/// A slower response counts as a failure.
const TIMEOUT: Duration = Duration::from_secs(1);

pub(super) struct Notes {
    redis: RunConnection,
    prefix: String,
    /// Time for which a note is kept.
    keep: Duration,
    /// Server whose notes are complete since a time.
    trusted: Mutex<Option<(Arc<str>, Instant)>>,
    breaker: Breaker,
    outage: Outage,
}

impl Notes {
    pub(super) fn new(settings: &redis_client::Settings, keep: Duration) -> redis::RedisResult<Self> {
        Ok(Self {
            redis: RunConnection::new(settings)?,
            prefix: format!("{}:wrote", settings.prefix),
            keep,
            trusted: Mutex::default(),
            breaker: Breaker::new(2, Duration::from_secs(1)),
            outage: Outage::default(),
        })
    }

    /// Notes that these callers wrote.
    pub(super) async fn note(&self, callers: &[Caller]) {
        let mut set = redis::pipe();
        let millis = u64::try_from(self.keep.as_millis()).unwrap_or(u64::MAX);
        for caller in callers {
            set.cmd("SET").arg(self.key(*caller)).arg(1).arg("PX").arg(millis).ignore();
        }
        let _ = self.run::<()>(&set).await;
    }

    /// Whether a caller wrote recently, or may have.
    pub(super) async fn wrote(&self, caller: Caller) -> bool {
        let mut exists = redis::pipe();
        exists.cmd("EXISTS").arg(self.key(caller));
        match self.run::<(bool,)>(&exists).await {
            Some(((found,), trusted_for)) => found || trusted_for < self.keep,
            None => true,
        }
    }

    /// Looks for a restart or failure of Redis.
    pub(super) async fn check(&self) {
        let mut ping = redis::pipe();
        ping.cmd("PING").ignore();
        let _ = self.run::<()>(&ping).await;
    }

    fn key(&self, caller: Caller) -> String {
        format!("{}:{caller}", self.prefix)
    }

    /// Returns the response, and how long the notes are known to be complete. `None` if Redis failed.
    async fn run<T: FromRedisValue>(&self, commands: &Pipeline) -> Option<(T, Duration)> {
        if self.breaker.admit().is_err() {
            self.trust(None);
            return None;
        }
        let answer = tokio::time::timeout(TIMEOUT, self.redis.query::<T>(commands)).await;
        self.breaker.record(matches!(answer, Ok(Ok(_))));
        let error = match answer {
            Ok(Ok((value, run))) => {
                if self.outage.ends() {
                    tracing::info!("recent writes of callers are known to all processes again");
                }
                return Some((value, self.trust(Some(run))));
            }
            Ok(Err(error)) => error.to_string(),
            Err(_) => format!("no response within {TIMEOUT:?}"),
        };
        self.trust(None);
        if self.outage.begins() {
            tracing::warn!(error, "recent writes of callers are unknown; the primary serves all reads");
        }
        None
    }

    /// Records which server responded, or that none did. Returns for how long its notes are complete.
    fn trust(&self, run: Option<Arc<str>>) -> Duration {
        let mut trusted = self.trusted.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(run) = run else {
            *trusted = None;
            return Duration::ZERO;
        };
        match &*trusted {
            Some((known, since)) if *known == run => since.elapsed(),
            _ => {
                *trusted = Some((run, Instant::now()));
                Duration::ZERO
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::testing::{settings, unique};

    const KEEP: Duration = Duration::from_millis(300);
    const ANN: Caller = Caller::new("user", 1);
    const BEN: Caller = Caller::new("user", 2);

    fn notes(prefix: &str) -> Notes {
        let settings = settings(&[("MATCHDAY_REDIS__PREFIX", prefix)], redis_client::Settings::read);
        Notes::new(&settings, KEEP).expect("a valid URL")
    }

    async fn trusted(notes: &Notes) {
        notes.check().await;
        tokio::time::sleep(KEEP).await;
    }

    #[tokio::test]
    async fn other_process_knows_who_wrote() {
        let prefix = unique("notes");
        let [one, two] = [notes(&prefix), notes(&prefix)];
        assert!(two.wrote(BEN).await, "notes may be missing after a start");
        tokio::join!(trusted(&one), trusted(&two));
        assert!(!two.wrote(ANN).await);
        one.note(&[ANN]).await;
        assert!(two.wrote(ANN).await && one.wrote(ANN).await);
        assert!(!two.wrote(BEN).await);
        tokio::time::sleep(KEEP + Duration::from_millis(20)).await;
        assert!(!two.wrote(ANN).await, "the note has expired");
    }

    #[tokio::test]
    async fn every_caller_counts_after_a_failure() {
        let notes = notes(&unique("notes"));
        trusted(&notes).await;
        assert!(!notes.wrote(ANN).await);
        notes.trust(None);
        assert!(notes.wrote(ANN).await);
        tokio::time::sleep(KEEP).await;
        assert!(!notes.wrote(ANN).await);
        notes.trust(Some("another server".into()));
        assert!(notes.wrote(ANN).await);
    }

    #[tokio::test]
    async fn every_caller_counts_without_redis() {
        let changes = [("MATCHDAY_REDIS__URL", "redis://127.0.0.1:1"), ("MATCHDAY_REDIS__TIMEOUT", "200ms")];
        let notes = Notes::new(&settings(&changes, redis_client::Settings::read), KEEP).expect("a valid URL");
        for _ in 0..4 {
            notes.note(&[ANN]).await;
            assert!(notes.wrote(BEN).await);
        }
    }
}
