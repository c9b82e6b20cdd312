//! Values that all requests of a process share for a second.

use std::{
    hash::{DefaultHasher, Hash, Hasher as _},
    time::{Duration, Instant},
};

use tokio::sync::Mutex;

/// Time for which a value is shared.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Number of locks that share the reads. Two keys may have the same one, and then wait for each other.
const LOCKS: usize = 64;

/// How old a value may be.
#[derive(Clone, Copy, Debug)]
pub(super) enum Age {
    /// At most a second.
    Second,
    /// Read at this time or later.
    Since(Instant),
}

impl Age {
    /// Whether a value whose read began at this time is recent enough.
    pub(super) fn allows(self, read_at: Instant) -> bool {
        match self {
            Self::Second => read_at.elapsed() < KEPT_FOR,
            Self::Since(since) => read_at >= since,
        }
    }
}

/// Values by key, with the times at which their reads began.
pub(super) struct Recent<K, V> {
    kept: quick_cache::sync::Cache<K, (V, Instant)>,
    locks: [Mutex<()>; LOCKS],
}

impl<K: Clone + Eq + Hash, V: Clone> Recent<K, V> {
    pub(super) fn new(kept: usize) -> Self {
        Self { kept: quick_cache::sync::Cache::new(kept), locks: std::array::from_fn(|_| Mutex::default()) }
    }

    /// Returns the value of a key, and the time at which its read began. Requests that find none that is recent enough wait
    /// for the first of them.
    pub(super) async fn get<E>(
        &self,
        key: &K,
        age: Age,
        read: impl Future<Output = Result<V, E>>,
    ) -> Result<(V, Instant), E> {
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
        let read_at = Instant::now();
        let found = (read.await?, read_at);
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
}
