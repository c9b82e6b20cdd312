//! Users with open streams, and the users whom they have blocked.

use std::{
    collections::{HashMap, HashSet},
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicU64, Ordering},
    },
};

use sqlx::PgPool;
use web::ids::UserId;

use super::room::lock;
use crate::chat::blocks;

/// Number of users whose blocks are read together.
const AT_ONCE: usize = 500;

type Open = Arc<Mutex<HashMap<UserId, Weak<Reader>>>>;

pub(super) struct Readers {
    db: PgPool,
    open: Open,
}

/// A user with open streams. All streams of the user share it; the last one removes it.
pub(super) struct Reader {
    pub(super) user: UserId,
    blocked: Mutex<Blocked>,
    /// Number of queries that have begun.
    queries: AtomicU64,
    open: Open,
}

#[derive(Default)]
struct Blocked {
    users: Arc<HashSet<i64>>,
    /// Number of the query that found them.
    query: u64,
}

impl Readers {
    pub(super) fn new(db: PgPool) -> Self {
        Self { db, open: Open::default() }
    }

    /// Returns the shared state of a user's streams, with the current blocks.
    pub(super) async fn enter(&self, user: UserId) -> sqlx::Result<Arc<Reader>> {
        let reader = {
            let mut open = lock(&self.open);
            open.get(&user).and_then(Weak::upgrade).unwrap_or_else(|| {
                let reader = Arc::new(Reader::new(user, Arc::clone(&self.open)));
                open.insert(user, Arc::downgrade(&reader));
                reader
            })
        };
        // Read after the reader is registered. Otherwise a block in between would be missed.
        self.read(&[Arc::clone(&reader)]).await?;
        Ok(reader)
    }

    pub(super) fn find(&self, user: UserId) -> Option<Arc<Reader>> {
        lock(&self.open).get(&user).and_then(Weak::upgrade)
    }

    /// Returns all readers in groups of a size that [`Self::read`] handles in one query.
    pub(super) fn all(&self) -> Vec<Vec<Arc<Reader>>> {
        let readers: Vec<Arc<Reader>> = lock(&self.open).values().filter_map(Weak::upgrade).collect();
        readers.chunks(AT_ONCE).map(<[_]>::to_vec).collect()
    }

    /// Reads the blocks of some users.
    pub(super) async fn read(&self, readers: &[Arc<Reader>]) -> sqlx::Result<()> {
        let queries: Vec<u64> = readers.iter().map(|reader| reader.begin()).collect();
        let users: Vec<i64> = readers.iter().map(|reader| reader.user.0).collect();
        let mut blocked: HashMap<i64, HashSet<i64>> = HashMap::new();
        for (user, other) in blocks::blocked_by_each(&self.db, &users).await? {
            blocked.entry(user).or_default().insert(other);
        }
        for (reader, query) in readers.iter().zip(queries) {
            reader.finish(query, blocked.remove(&reader.user.0).unwrap_or_default());
        }
        Ok(())
    }
}

impl Reader {
    fn new(user: UserId, open: Open) -> Self {
        Self { user, blocked: Mutex::default(), queries: AtomicU64::new(0), open }
    }

    pub(super) fn blocked(&self) -> Arc<HashSet<i64>> {
        Arc::clone(&lock(&self.blocked).users)
    }

    pub(super) fn blocks(&self, user: UserId) -> bool {
        lock(&self.blocked).users.contains(&user.0)
    }

    /// Returns the number of a query, before it runs.
    fn begin(&self) -> u64 {
        self.queries.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Applies the result of a query, unless a query that began later has finished. That one has seen every block that this
    /// one had to see.
    fn finish(&self, query: u64, users: HashSet<i64>) {
        let mut blocked = lock(&self.blocked);
        if query > blocked.query {
            *blocked = Blocked { users: Arc::new(users), query };
        }
    }
}

impl Drop for Reader {
    fn drop(&mut self) {
        let mut open = lock(&self.open);
        // The user may have connected again since.
        if open.get(&self.user).is_some_and(|reader| reader.strong_count() == 0) {
            open.remove(&self.user);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn earlier_query_does_not_replace_later_result() {
        let reader = Reader::new(UserId(1), Open::default());
        let (first, second) = (reader.begin(), reader.begin());
        reader.finish(second, HashSet::from([7]));
        reader.finish(first, HashSet::new());
        assert_eq!(*reader.blocked(), HashSet::from([7]));
        let third = reader.begin();
        reader.finish(third, HashSet::new());
        assert!(reader.blocked().is_empty());
    }

    #[test]
    fn reader_is_removed_with_its_last_stream() {
        let open = Open::default();
        let enter = || {
            let reader = Arc::new(Reader::new(UserId(1), Arc::clone(&open)));
            lock(&open).insert(UserId(1), Arc::downgrade(&reader));
            reader
        };
        let first = enter();
        let second = enter();
        drop(first);
        assert!(lock(&open).contains_key(&UserId(1)), "the user has connected again");
        drop(second);
        assert!(lock(&open).is_empty());
    }
}
