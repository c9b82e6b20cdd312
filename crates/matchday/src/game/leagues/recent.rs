//! Values that all requests of a process share for a second.

use std::{
    hash::{DefaultHasher, Hash, Hasher as _},
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

/// Time for which a value is shared.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// A value that takes longer to read is shared for this many times as long, so that reading it again and again keeps no
/// connection to the database busy.
const TIMES_READ: u32 = 5;
/// Number of locks that share the reads. Two keys may have the same one, and then wait for each other.
const LOCKS: usize = 64;

/// When a value was read.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadAt {
    pub(super) began: Instant,
    pub(super) took: Duration,
}

/// How old a value may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Age {
    /// At most a second, or some times as long as it takes to read.
    Second,
    /// Read at this time or later.
    Since(Instant),
}

impl Age {
    /// Whether a value whose read began at this time is recent enough.
    pub(super) fn allows(self, ReadAt { began, took }: ReadAt) -> bool {
        match self {
            Self::Second => began.elapsed() < KEPT_FOR.max(took * TIMES_READ),
            Self::Since(since) => began >= since,
        }
    }
}

/// Values by key.
pub(super) struct Recent<K, V> {
    kept: quick_cache::sync::Cache<K, (V, ReadAt)>,
    locks: [Mutex<()>; LOCKS],
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    pub(super) fn new(kept: usize) -> Self {
        Self { kept: quick_cache::sync::Cache::new(kept), locks: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Returns the value of a key, and when it was read. Requests that find none that is recent enough wait
    /// for the first of them.
    pub(super) async fn get<E>(
        &self,
        key: &K,
        age: Age,
        read: impl Future<Output = Result<V, E>>,
    ) -> Result<(V, ReadAt), E> {
        let current = || self.kept.get(key).filter(|(_, read_at)| age.allows(*read_at));
        if let Some(found) = current() {
            return Ok(found);
        }
        let mut hasher = DefaultHasher::new();
        key.hash(&mut hasher);
        let lock = usize::try_from(hasher.finish()).unwrap_or_default() % LOCKS;
        let _turn = self.locks[lock].lock().await;
        if let Some(found) = current() {
            return Ok(found);
        }
        let began = Instant::now();
        let value = read.await?;
        let found = (value, ReadAt { began, took: began.elapsed() });
        self.kept.insert(key.clone(), found.clone());
        Ok(found)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    #[tokio::test]
    async fn one_read_of_a_key_serves_concurrent_requests() {
        let (recent, reads) = (Recent::<u8, usize>::new(10), AtomicUsize::new(0));
        let get = async |key: u8, age: Age| {
            let read = async {
                tokio::task::yield_now().await;
                Ok::<_, ()>(reads.fetch_add(1, Ordering::AcqRel))
            };
            recent.get(&key, age, read).await.expect("read").0
        };
        assert_eq!(join_all((0..10).map(|_| get(1, Age::Second))).await, [0; 10]);
        assert_eq!(get(2, Age::Second).await, 1, "another key");
        assert_eq!(get(1, Age::Since(Instant::now())).await, 2, "an older value is read again");
        assert_eq!(get(1, Age::Second).await, 2);
    }

    #[test]
    fn value_that_takes_long_is_kept_longer() {
        let began = Instant::now().checked_sub(Duration::from_secs(9)).expect("an earlier time");
        assert!(Age::Second.allows(ReadAt { began, took: Duration::from_secs(2) }));
        assert!(!Age::Second.allows(ReadAt { began, took: Duration::from_secs(1) }));
        assert!(!Age::Since(Instant::now()).allows(ReadAt { began, took: Duration::from_secs(2) }));
    }
}
