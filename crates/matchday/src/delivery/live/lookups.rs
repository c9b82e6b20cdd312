//! Predictions of listeners who missed facts, read for many listeners with one query.
//!
//! After a restart, all listeners of a process reconnect at once and miss the same facts. Look-ups for the same match
//! that wait for their turn are therefore answered together.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use tokio::sync::{OnceCell, Semaphore};
use web::ids::{MatchId, UserId};

/// A prediction of a match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Predicted {
    /// `None` as long as the match does not count.
    pub(super) points: Option<i32>,
}

/// Predictions by user; users without a prediction are missing.
pub(super) type ByUser = HashMap<UserId, Predicted>;

type Found = Result<Arc<ByUser>, Arc<sqlx::Error>>;

/// Open look-ups by match.
pub(super) struct Lookups {
    open: Mutex<HashMap<MatchId, Arc<Lookup>>>,
    turns: Semaphore,
}

#[derive(Default)]
struct Lookup {
    users: Mutex<Vec<UserId>>,
    found: OnceCell<Found>,
}

impl Lookups {
    /// At most `concurrent` queries run at the same time.
    pub(super) fn new(concurrent: usize) -> Self {
        Self { open: Mutex::default(), turns: Semaphore::new(concurrent) }
    }

    /// Returns the user's prediction of the match. `read` reads the predictions of several users; only one of the callers
    /// that are answered together runs it. If that caller is dropped, another one takes over.
    pub(super) async fn find(
        &self,
        event: MatchId,
        user: UserId,
        read: impl AsyncFnOnce(Vec<UserId>) -> sqlx::Result<ByUser>,
    ) -> Result<Option<Predicted>, Arc<sqlx::Error>> {
        let lookup = {
            let mut open = self.lock();
            let lookup = open.entry(event).or_default();
            lock(&lookup.users).push(user);
            Arc::clone(lookup)
        };
        let found = lookup.found.get_or_init(async || {
            let _turn = self.turns.acquire().await;
            let users = self.close(event, &lookup);
            read(users).await.map(Arc::new).map_err(Arc::new)
        });
        found.await.as_ref().map(|predicted| predicted.get(&user).copied()).map_err(Arc::clone)
    }

    /// Returns the users of a look-up. Later callers start another one.
    fn close(&self, event: MatchId, lookup: &Arc<Lookup>) -> Vec<UserId> {
        let mut open = self.lock();
        if open.get(&event).is_some_and(|current| Arc::ptr_eq(current, lookup)) {
            open.remove(&event);
        }
        lock(&lookup.users).clone()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<MatchId, Arc<Lookup>>> {
        lock(&self.open)
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use futures_util::future::join_all;

    use super::*;

    const EVENT: MatchId = MatchId(7);

    /// Every user with an even id predicted, and earned as many points.
    fn predicted(users: &[UserId]) -> ByUser {
        let even = users.iter().filter(|user| user.0 % 2 == 0);
        even.map(|&user| (user, Predicted { points: i32::try_from(user.0).ok() })).collect()
    }

    #[tokio::test]
    async fn listeners_who_wait_for_the_same_match_share_a_query() {
        let (lookups, queries) = (Lookups::new(1), AtomicUsize::new(0));
        let turn = lookups.turns.acquire().await.expect("a turn");
        let read = async |users: Vec<UserId>| {
            queries.fetch_add(1, Ordering::Relaxed);
            Ok(predicted(&users))
        };
        let find = async |event: MatchId, user: i64| lookups.find(event, UserId(user), read).await.expect("found");
        let waiting = join_all((1..=1_000).map(|user| find(EVENT, user)));
        let (found, ()) = tokio::join!(waiting, async { drop(turn) });
        for (user, found) in (1..=1_000).zip(found) {
            assert_eq!(found, (user % 2 == 0).then_some(Predicted { points: Some(user) }), "{user}");
        }
        assert_eq!(queries.load(Ordering::Relaxed), 1);
        assert_eq!(find(EVENT, 2).await, Some(Predicted { points: Some(2) }));
        assert_eq!(queries.load(Ordering::Relaxed), 2, "a later look-up reads again");
        assert!(lookups.lock().is_empty());
    }

    #[tokio::test]
    async fn look_up_survives_the_caller_who_reads() {
        let lookups = Lookups::new(1);
        let mut first = Box::pin(lookups.find(EVENT, UserId(2), async |_| std::future::pending().await));
        let mut second = Box::pin(lookups.find(EVENT, UserId(4), async |users| Ok(predicted(&users))));
        assert!(futures_util::poll!(&mut first).is_pending());
        assert!(futures_util::poll!(&mut second).is_pending());
        drop(first);
        assert_eq!(second.await.expect("found"), Some(Predicted { points: Some(4) }));
    }

    #[tokio::test]
    async fn failed_query_fails_all_who_share_it() {
        let lookups = Lookups::new(1);
        let turn = lookups.turns.acquire().await.expect("a turn");
        let find = |user| lookups.find(EVENT, UserId(user), async |_| Err(sqlx::Error::PoolTimedOut));
        let (found, ()) = tokio::join!(join_all((1..=3).map(find)), async { drop(turn) });
        assert!(found.iter().all(Result::is_err));
        assert!(lookups.lock().is_empty());
    }
}
