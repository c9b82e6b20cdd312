//! Attempts that concurrent callers share.

use std::{
    future::Future,
    sync::atomic::{AtomicU64, Ordering},
    time::Duration,
};

use tokio::{sync::Mutex as AsyncMutex, time::timeout};

/// Connection attempts to one server, of which at most one is under way. Callers that wait for it share its failure: if each
/// of them repeated it, all callers of an unreachable server would wait for each other.
#[derive(Default)]
pub(crate) struct Attempts {
    /// Locked during an attempt. Holds the last error.
    running: AsyncMutex<String>,
    failures: AtomicU64,
}

impl Attempts {
    /// Returns the result of an earlier attempt, if there is one, or makes an attempt. `limit` applies to the wait for
    /// another caller's attempt, and again to the attempt.
    pub(crate) async fn share<T>(
        &self,
        limit: Duration,
        earlier: impl Fn() -> Option<T>,
        attempt: impl Future<Output = Result<T, String>>,
    ) -> Result<T, String> {
        let late = |_| "no connection in time".to_owned();
        let seen = self.failures.load(Ordering::Acquire);
        let mut last_error = timeout(limit, self.running.lock()).await.map_err(late)?;
        if let Some(result) = earlier() {
            return Ok(result);
        }
        if self.failures.load(Ordering::Acquire) != seen {
            return Err(last_error.clone());
        }
        let result = timeout(limit, attempt).await.map_err(late).flatten();
        if let Err(error) = &result {
            last_error.clone_from(error);
            self.failures.fetch_add(1, Ordering::AcqRel);
        }
        result
    }
}

#[cfg(test)]
mod tests {
    use std::{cell::Cell, future::pending};

    use futures_util::future::{join, join_all};
    use tokio::{sync::oneshot, time::Instant};

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_share_failure() {
        let (attempts, made) = (Attempts::default(), Cell::new(0));
        let fail = async || {
            let number = made.replace(made.get() + 1);
            tokio::time::sleep(SECOND / 2).await;
            Err::<(), _>(format!("error {number}"))
        };
        for number in 0..3 {
            let began = Instant::now();
            let results = join_all((0..64).map(|_| attempts.share(SECOND, || None, fail()))).await;
            assert_eq!(results, vec![Err(format!("error {number}")); 64]);
            assert_eq!((made.get(), began.elapsed()), (number + 1, SECOND / 2));
        }
    }

    #[tokio::test(start_paused = true)]
    async fn waiting_callers_share_time_limit() {
        let (attempts, began) = (Attempts::default(), Instant::now());
        let results = join_all((0..64).map(|_| attempts.share(SECOND, || None::<()>, pending()))).await;
        assert!(results.iter().all(Result::is_err), "{results:?}");
        assert_eq!(began.elapsed(), SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn wait_for_other_caller_has_time_limit() {
        let (attempts, began) = (Attempts::default(), Instant::now());
        let (end, ended) = oneshot::channel();
        let slow = async { ended.await.map_err(|_| "dropped".to_owned()) };
        let waiting = async {
            let result = attempts.share(SECOND, || None, async { Ok(2) }).await;
            end.send(1).expect("the slow attempt is under way");
            result
        };
        let (slow, waiting) = join(attempts.share(60 * SECOND, || None, slow), waiting).await;
        assert_eq!((slow, waiting), (Ok(1), Err("no connection in time".to_owned())));
        assert_eq!(began.elapsed(), SECOND);
    }

    #[tokio::test]
    async fn waiting_caller_repeats_attempt_without_lasting_result() {
        let attempts = Attempts::default();
        let (end, ended) = oneshot::channel();
        let first = async { ended.await.map_err(|_| "dropped".to_owned()) };
        let second = async {
            let result = attempts.share(SECOND, || None, async { Ok(2) });
            let begin = async { end.send(1).expect("the first attempt is under way") };
            join(result, begin).await.0
        };
        let results = join(attempts.share(SECOND, || None, first), second).await;
        assert_eq!(results, (Ok(1), Ok(2)));
    }
}
