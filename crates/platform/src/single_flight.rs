//! Runs work once for all requests of a process that need it at the same time.

use std::{
    collections::HashMap,
    hash::Hash,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::{sync::watch, time::Instant};

type Running<K> = HashMap<K, (Instant, watch::Receiver<()>)>;

/// Work in progress, by key.
#[derive(Debug)]
pub struct SingleFlight<K> {
    running: Arc<Mutex<Running<K>>>,
}

impl<K> Default for SingleFlight<K> {
    fn default() -> Self {
        Self { running: Arc::default() }
    }
}

/// Work that was started by this request or an earlier one.
#[derive(Debug)]
pub struct Flight {
    since: Instant,
    done: watch::Receiver<()>,
}

impl Flight {
    /// Waits until the work has finished, but not longer than `most` after it was started. All requests stop waiting
    /// at the same time, so slow work does not accumulate waiting requests.
    pub async fn wait(mut self, most: Duration) {
        let _ = tokio::time::timeout(most.saturating_sub(self.since.elapsed()), self.done.changed()).await;
    }
}

impl<K: Clone + Eq + Hash + Send + 'static> SingleFlight<K> {
    /// Starts work in a separate task, because it may outlast the request that starts it. Drops `work` if work for
    /// the same key is running.
    pub fn start(&self, key: K, work: impl Future<Output = ()> + Send + 'static) -> Flight {
        let mut running = lock(&self.running);
        if let Some((since, done)) = running.get(&key)
            // The channel of work that panicked is closed.
            && done.has_changed().is_ok()
        {
            return Flight { since: *since, done: done.clone() };
        }
        let ((finished, done), since) = (watch::channel(()), Instant::now());
        running.insert(key.clone(), (since, done.clone()));
        let running = Arc::clone(&self.running);
        tokio::spawn(async move {
            work.await;
            lock(&running).remove(&key);
            drop(finished);
        });
        Flight { since, done }
    }
}

fn lock<K>(running: &Mutex<Running<K>>) -> MutexGuard<'_, Running<K>> {
    running.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    #[tokio::test(start_paused = true)]
    async fn concurrent_requests_share_one_run() {
        let (flights, runs) = (SingleFlight::default(), Arc::new(AtomicUsize::new(0)));
        let start = |key: u8| {
            let runs = Arc::clone(&runs);
            flights.start(key, async move {
                tokio::time::sleep(SECOND).await;
                runs.fetch_add(1, Ordering::AcqRel);
            })
        };
        join_all((0..100).map(|number| start(number % 2).wait(2 * SECOND))).await;
        assert_eq!(runs.load(Ordering::Acquire), 2);
        start(0).wait(2 * SECOND).await;
        assert_eq!(runs.load(Ordering::Acquire), 3, "finished work is started again");
    }

    #[tokio::test(start_paused = true)]
    async fn slow_work_is_waited_for_until_one_common_time() {
        let (flights, began) = (SingleFlight::default(), Instant::now());
        flights.start((), tokio::time::sleep(10 * SECOND)).wait(2 * SECOND).await;
        flights.start((), tokio::time::sleep(10 * SECOND)).wait(2 * SECOND).await;
        assert_eq!(began.elapsed(), 2 * SECOND);
    }

    #[tokio::test]
    async fn work_that_panicked_is_started_again() {
        let flights = SingleFlight::default();
        flights.start((), async { panic!("for the test") }).wait(SECOND).await;
        let (ran, has_run) = tokio::sync::oneshot::channel();
        flights.start((), async move { ran.send(()).expect("a receiver") }).wait(SECOND).await;
        has_run.await.expect("the second run");
    }
}
