//! Batch writers, for writes that many users make within the same few minutes.
//!
//! Each writer has a bounded channel and serves a part of the users. It takes all waiting entries, writes them in one
//! transaction, and responds to each request after the commit. No timer is involved: while one batch commits, the next
//! one accumulates, so a lone request is written immediately. On Citus, a batch contains users of one shard only.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    io,
    ops::RangeInclusive,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use sqlx::{Executor as _, PgConnection, PgPool, Postgres, pool::PoolConnection};
use tokio::sync::{mpsc, oneshot};

use super::{
    database::{self, WriterSettings},
    shards::{Ranges, Shards, shard_of},
};

/// Maximum number of rows in a batch. Larger batches would not make a row cheaper, but every caller would wait longer.
const BATCH: usize = 500;

/// Maximum number of waiting entries with the same key. Each of them needs a separate batch.
const SAME_KEY: usize = 32;

/// Number of rows after which the plans of a connection are made again, for the first time and at most.
const ROWS_PER_PLAN: RangeInclusive<usize> = 1_000..=1_000_000;

/// Writes the entries of a part of the users.
pub trait Write: Send + Sync + 'static {
    type Entry: Clone + Send + Sync + 'static;
    /// Two entries with equal keys are never in the same batch.
    type Key: Eq + Hash + Send;
    /// Result of one entry, returned to the caller.
    type Outcome: Send + 'static;

    /// Name of the metric that counts batches.
    const BATCHES: &'static str;

    /// Key of an entry. An entry without a key can share a batch with any other.
    fn key(entry: &Self::Entry) -> Option<Self::Key>;

    /// Writes the entries in one transaction, all or none, and returns the outcome of each. On the second `attempt`,
    /// the first one may have been committed. The first attempt has ended once the rows that it locked can be locked
    /// again.
    fn write(
        &self,
        connection: &mut PgConnection,
        entries: &[Self::Entry],
        attempt: Attempt,
    ) -> impl Future<Output = sqlx::Result<Vec<Self::Outcome>>> + Send;
}

/// Whether the same entries may have been written before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Attempt {
    /// The entries were not written before.
    First,
    /// An earlier attempt failed; it may have been committed.
    Second,
}

/// An entry was not written, or its outcome is unknown.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BatchError {
    /// The queue is full, or the writer has stopped.
    #[error("the write queue is full")]
    Overloaded,
    #[error(transparent)]
    Database(Arc<sqlx::Error>),
}

/// Handle to the batch writers. They stop after the last handle is dropped and the waiting entries are written.
pub struct Batches<W: Write> {
    writers: Arc<[mpsc::Sender<Request<W>>]>,
}

impl<W: Write> Clone for Batches<W> {
    fn clone(&self) -> Self {
        Self { writers: Arc::clone(&self.writers) }
    }
}

/// A waiting entry, and the channel of the caller that waits for its outcome.
struct Request<W: Write> {
    user: i64,
    entry: W::Entry,
    answer: oneshot::Sender<Result<W::Outcome, BatchError>>,
}

impl<W: Write> Batches<W> {
    /// Starts one task for each writer, each with its own connection and a queue of length `queue`. A batch contains users
    /// of one of the `shards`.
    pub fn start(db: &PgPool, shards: &Shards, config: WriterSettings, queue: usize, writers: Vec<W>) -> Self {
        let db = database::writers(db, u32::try_from(writers.len()).unwrap_or(u32::MAX), config);
        let writers = writers.into_iter().map(|write| {
            let (sender, requests) = mpsc::channel(queue);
            let limit = config.statement_timeout + Duration::from_secs(2);
            let (db, shards) = (db.clone(), shards.clone());
            let growth = Growth::default();
            tokio::spawn(Writer { db, shards, connection: None, growth, limit, write }.run(requests));
            sender
        });
        Self { writers: writers.collect() }
    }

    /// Writes an entry of this user. The entry is committed if this returns an outcome.
    pub async fn write(&self, user: i64, entry: W::Entry) -> Result<W::Outcome, BatchError> {
        let (answer, outcome) = oneshot::channel();
        let writer = &self.writers[shard_of(user, self.writers.len())];
        writer.try_send(Request { user, entry, answer }).map_err(|_| BatchError::Overloaded)?;
        outcome.await.unwrap_or(Err(BatchError::Overloaded))
    }
}

/// Decides when to make the plans of a connection again. PostgreSQL keeps a plan that it made for a small table until the
/// table is analysed, which can be a minute later. Such a plan reads the whole table for every batch, so a burst that
/// follows an almost empty table would become slower and slower.
#[derive(Debug, PartialEq, Eq)]
struct Growth {
    /// Rows written since the plans were made.
    rows: usize,
    /// Number of them that the plans are kept for. It doubles, because a table that has grown to twice its size rarely
    /// needs another plan.
    kept_for: usize,
}

impl Default for Growth {
    fn default() -> Self {
        Self { rows: 0, kept_for: *ROWS_PER_PLAN.start() }
    }
}

impl Growth {
    /// Counts written rows. Returns whether to make new plans.
    fn add(&mut self, rows: usize) -> bool {
        self.rows += rows;
        let is_due = self.rows >= self.kept_for;
        if is_due {
            *self = Self { rows: 0, kept_for: (2 * self.kept_for).min(*ROWS_PER_PLAN.end()) };
        }
        is_due
    }
}

struct Writer<W> {
    db: PgPool,
    shards: Shards,
    /// Kept between batches, because releasing a connection to the pool costs as much as a small batch.
    connection: Option<PoolConnection<Postgres>>,
    /// Rows written through the connection.
    growth: Growth,
    /// Maximum duration of one batch.
    limit: Duration,
    write: W,
}

impl<W: Write> Writer<W> {
    async fn run(mut self, mut requests: mpsc::Receiver<Request<W>>) {
        let (mut waiting, mut batch) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        let shards = self.shards.clone();
        while !waiting.is_empty() || requests.recv_many(&mut waiting, BATCH).await > 0 {
            match known(&shards, &self.db).await {
                Ok(ranges) => next_batch(&mut waiting, &mut batch, ranges),
                Err(error) => answer_all(&mut waiting, error),
            }
            if !batch.is_empty() {
                self.write_and_answer(&mut batch).await;
            }
            // Entries held back by their key must not delay newly arrived ones.
            while !waiting.is_empty()
                && waiting.len() < BATCH
                && let Ok(request) = requests.try_recv()
            {
                admit(&mut waiting, request);
            }
        }
    }

    async fn write_and_answer(&mut self, batch: &mut Vec<Request<W>>) {
        let entries: Vec<W::Entry> = batch.iter().map(|request| request.entry.clone()).collect();
        metrics::counter!(W::BATCHES).increment(1);
        match self.write(&entries, Attempt::First).await {
            Ok(outcomes) => {
                for (request, outcome) in batch.drain(..).zip(outcomes) {
                    request.answer(Ok(outcome));
                }
                // After the responses, so that no caller waits for it.
                if self.growth.add(entries.len()) {
                    self.discard_plans().await;
                }
            }
            // One invalid entry must not fail the others.
            Err(error) if batch.len() > 1 && !database::is_unavailable(&error) => {
                let rows = batch.len();
                tracing::warn!(%error, rows, counter = W::BATCHES, "batch write failed; writing entries one by one");
                self.write_one_by_one(batch).await;
            }
            Err(error) => answer_all(batch, error),
        }
    }

    async fn discard_plans(&mut self) {
        let Some(connection) = &mut self.connection else { return };
        let discarding = connection.execute("discard plans");
        if !matches!(tokio::time::timeout(self.limit, discarding).await, Ok(Ok(_))) {
            drop(self.connection.take().map(PoolConnection::detach));
        }
    }

    /// Writes each entry in a separate transaction. Does not wait again for a cause that already failed an entry: once
    /// the database is unavailable, all remaining entries fail with that error; once another transaction blocks a
    /// user's rows, the remaining entries of that user fail.
    async fn write_one_by_one(&mut self, batch: &mut Vec<Request<W>>) {
        let mut gone: Option<Arc<sqlx::Error>> = None;
        let mut held: HashMap<i64, Arc<sqlx::Error>> = HashMap::new();
        for request in batch.drain(..) {
            if let Some(error) = gone.as_ref().or_else(|| held.get(&request.user)) {
                let error = BatchError::Database(Arc::clone(error));
                request.answer(Err(error));
                continue;
            }
            let outcome = match self.write(std::slice::from_ref(&request.entry), Attempt::Second).await {
                Ok(outcomes) => outcomes.into_iter().next().ok_or(BatchError::Overloaded),
                Err(error) => {
                    let (is_unavailable, is_conflict) =
                        (database::is_unavailable(&error), database::is_conflict(&error));
                    let error = Arc::new(error);
                    if is_unavailable {
                        gone = Some(Arc::clone(&error));
                    } else if is_conflict {
                        held.insert(request.user, Arc::clone(&error));
                    }
                    Err(BatchError::Database(error))
                }
            };
            request.answer(outcome);
        }
    }

    /// Writes entries with distinct keys, all or none.
    async fn write(&mut self, entries: &[W::Entry], attempt: Attempt) -> sqlx::Result<Vec<W::Outcome>> {
        let was_kept = self.connection.is_some();
        match self.write_once(entries, attempt).await {
            // A connection kept from an earlier batch may have been dead for a while.
            Err(error) if was_kept && database::is_unavailable(&error) => {
                self.write_once(entries, Attempt::Second).await
            }
            outcome => outcome,
        }
    }

    async fn write_once(&mut self, entries: &[W::Entry], attempt: Attempt) -> sqlx::Result<Vec<W::Outcome>> {
        let mut connection = if let Some(kept) = self.connection.take() {
            kept
        } else {
            self.growth = Growth::default();
            self.db.acquire().await?
        };
        // A panic must not end the writer, because each shard has only one.
        let writing = AssertUnwindSafe(self.write.write(&mut connection, entries, attempt)).catch_unwind();
        // The server enforces the statement timeout. This limit covers a dead host, which TCP would report much later.
        let written = match tokio::time::timeout(self.limit, writing).await {
            Ok(Ok(written)) => written,
            Ok(Err(_)) => Err(sqlx::Error::WorkerCrashed),
            Err(_) => Err(io::Error::from(io::ErrorKind::TimedOut).into()),
        };
        match written {
            Ok(outcomes) => {
                self.connection = Some(connection);
                Ok(outcomes)
            }
            Err(error) => {
                // The connection's state is unknown, so close it instead of returning it to the pool.
                drop(connection.detach());
                Err(error)
            }
        }
    }
}

impl<W: Write> Request<W> {
    fn answer(self, outcome: Result<W::Outcome, BatchError>) {
        // The caller may have stopped waiting.
        drop(self.answer.send(outcome));
    }
}

/// Shards of the database. An entry cannot be written before they are known.
async fn known<'a>(shards: &'a Shards, db: &PgPool) -> sqlx::Result<&'a Ranges> {
    match shards.known() {
        Some(ranges) => Ok(ranges),
        None => shards.get(&mut *db.acquire().await?).await,
    }
}

/// Returns the error to all callers.
fn answer_all<W: Write>(requests: &mut Vec<Request<W>>, error: sqlx::Error) {
    let error = Arc::new(error);
    for request in requests.drain(..) {
        request.answer(Err(BatchError::Database(Arc::clone(&error))));
    }
}

/// Adds an entry to the waiting ones, unless too many with the same key are waiting.
fn admit<W: Write>(waiting: &mut Vec<Request<W>>, request: Request<W>) {
    let has_room = W::key(&request.entry).is_none_or(|key| {
        waiting.iter().filter(|other| W::key(&other.entry).as_ref() == Some(&key)).count() < SAME_KEY
    });
    if has_room {
        waiting.push(request);
    } else {
        request.answer(Err(BatchError::Overloaded));
    }
}

/// Moves entries with distinct keys from `waiting` to `batch`: those of the shard whose entry has waited longest. A
/// second entry with the same key waits for the next batch, so entries with equal keys are written in the order of
/// arrival.
fn next_batch<W: Write>(waiting: &mut Vec<Request<W>>, batch: &mut Vec<Request<W>>, ranges: &Ranges) {
    // Drops entries whose callers stopped waiting: no outcome was promised to them.
    waiting.retain(|request| !request.answer.is_closed());
    let Some(shard) = waiting.first().map(|request| ranges.shard_of(request.user)) else { return };
    let mut taken = HashSet::with_capacity(waiting.len());
    batch.extend(waiting.extract_if(.., |request| {
        ranges.shard_of(request.user) == shard && W::key(&request.entry).is_none_or(|key| taken.insert(key))
    }));
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Mutex};

    use tokio::sync::Semaphore;

    use super::*;
    use crate::testing::{eventually, with_pools};

    const FIVE_SECONDS: WriterSettings =
        WriterSettings { statement_timeout: Duration::from_secs(5), transaction_pooling: false };

    /// Entries are pairs of an optional key and a number.
    struct Toy;

    impl Write for Toy {
        type Entry = (Option<u8>, u32);
        type Key = u8;
        type Outcome = ();
        const BATCHES: &'static str = "toys";

        fn key(entry: &Self::Entry) -> Option<u8> {
            entry.0
        }

        async fn write(&self, _: &mut PgConnection, _: &[Self::Entry], _: Attempt) -> sqlx::Result<Vec<()>> {
            unreachable!("never called")
        }
    }

    type Answered = oneshot::Receiver<Result<(), BatchError>>;

    fn requests(entries: impl IntoIterator<Item = (Option<u8>, u32)>) -> (Vec<Request<Toy>>, Vec<Answered>) {
        let request = |entry| {
            let (answer, outcome) = oneshot::channel();
            (Request { user: 1, entry, answer }, outcome)
        };
        entries.into_iter().map(request).unzip()
    }

    #[test]
    fn entries_with_equal_keys_are_written_in_order() {
        let (mut waiting, answers) = requests([
            (Some(1), 10),
            (Some(2), 20),
            (Some(1), 30),
            (Some(3), 40),
            (None, 45),
            (None, 46),
            (Some(1), 50),
        ]);
        let mut read = || {
            let mut batch = Vec::new();
            next_batch(&mut waiting, &mut batch, &Ranges::default());
            batch.iter().map(|request| request.entry.1).collect::<Vec<_>>()
        };
        assert_eq!([read(), read(), read(), read()], [vec![10, 20, 40, 45, 46], vec![30], vec![50], vec![]]);
        drop(answers);
    }

    #[test]
    fn batch_contains_one_shard() {
        let halves = Ranges::from(vec![i32::MIN, 0]);
        let (mut waiting, answers) = requests((1..=20).map(|number| (None, number)));
        for request in &mut waiting {
            request.user = i64::from(request.entry.1);
        }
        let first = halves.shard_of(1);
        for shard in [first, 1 - first] {
            let mut batch = Vec::new();
            next_batch(&mut waiting, &mut batch, &halves);
            let expected: Vec<u32> = (1..=20).filter(|&user| halves.shard_of(user.into()) == shard).collect();
            assert_eq!(batch.iter().map(|request| request.entry.1).collect::<Vec<_>>(), expected);
        }
        assert!(waiting.is_empty());
        drop(answers);
    }

    #[test]
    fn excess_entries_of_one_key_are_refused() {
        let keys = std::iter::repeat_n(Some(1), SAME_KEY + 2).chain([Some(2), None]);
        let (requests, mut answers) = requests(keys.map(|key| (key, 0)));
        let mut waiting = Vec::new();
        for request in requests {
            admit(&mut waiting, request);
        }
        assert_eq!(waiting.len(), SAME_KEY + 2);
        let refused = answers.iter_mut().filter_map(|answer| answer.try_recv().ok());
        assert_eq!(refused.filter(|answer| matches!(answer, Err(BatchError::Overloaded))).count(), 2);
    }

    #[test]
    fn abandoned_entry_is_not_written() {
        let (mut waiting, mut answers) = requests([1, 2, 3].map(|key| (Some(key), u32::from(key))));
        answers.remove(1);
        let mut batch = Vec::new();
        next_batch(&mut waiting, &mut batch, &Ranges::default());
        assert_eq!(batch.iter().map(|request| request.entry.1).collect::<Vec<_>>(), [1, 3]);
        assert!(waiting.is_empty());
    }

    /// Behaviour of a scripted writer in one call.
    #[derive(Clone, Copy)]
    enum Act {
        Write,
        /// Fails like a broken connection: the outcome is unknown.
        Break,
        /// Fails like a refused statement: nothing was written.
        Refuse,
        /// Fails like a lock held by another transaction.
        Wait,
        Panic,
    }

    /// Entries and attempt of each call.
    type Calls = Vec<(Vec<u32>, Attempt)>;

    /// Follows a script, then writes; records its calls.
    #[derive(Clone)]
    struct Scripted {
        script: Arc<Mutex<VecDeque<Act>>>,
        calls: Arc<Mutex<Calls>>,
        /// Blocks each call until a permit is added.
        gate: Arc<Semaphore>,
    }

    impl Write for Scripted {
        type Entry = u32;
        type Key = u32;
        type Outcome = u32;
        const BATCHES: &'static str = "scripted";

        fn key(_: &u32) -> Option<u32> {
            None
        }

        async fn write(
            &self,
            connection: &mut PgConnection,
            entries: &[u32],
            attempt: Attempt,
        ) -> sqlx::Result<Vec<u32>> {
            self.calls.lock().expect("not poisoned").push((entries.to_vec(), attempt));
            self.gate.acquire().await.expect("open").forget();
            let act = self.script.lock().expect("not poisoned").pop_front().unwrap_or(Act::Write);
            match act {
                Act::Write => Ok(entries.to_vec()),
                Act::Break => Err(io::Error::from(io::ErrorKind::ConnectionReset).into()),
                Act::Refuse => Err(sqlx::Error::RowNotFound),
                Act::Wait => {
                    let raise = "do $$ begin raise lock_not_available; end $$";
                    connection.execute(raise).await.map(|_| Vec::new())
                }
                Act::Panic => panic!("on purpose"),
            }
        }
    }

    /// Writes 1 alone, then 2, 3 and 4 in one batch, following the script from the second call on. Returns the outcomes
    /// of these three and of a fifth entry, and the calls.
    async fn play(acts: &[Act]) -> (Vec<Option<u32>>, Calls) {
        let mut played = None;
        with_pools(async |db, _| {
            let scripted = Scripted {
                script: Arc::new(Mutex::new([&[Act::Write], acts].concat().into())),
                calls: Arc::default(),
                gate: Arc::new(Semaphore::new(0)),
            };
            let batches = Batches::start(&db, &Shards::one(), FIVE_SECONDS, 10, vec![scripted.clone()]);
            let write = |entry| {
                let batches = batches.clone();
                tokio::spawn(async move { batches.write(1, entry).await.ok() })
            };
            let first = write(1);
            eventually("the first batch is being written", async || {
                scripted.calls.lock().expect("not poisoned").len() == 1
            })
            .await;
            let rest = [2, 3, 4].map(&write);
            eventually("the other entries wait", async || batches.writers[0].capacity() == 7).await;
            scripted.gate.add_permits(100);
            assert_eq!(first.await.expect("ended"), Some(1));
            let mut outcomes = Vec::new();
            for one in rest {
                outcomes.push(one.await.expect("ended"));
            }
            outcomes.push(write(5).await.expect("ended"));
            let calls = scripted.calls.lock().expect("not poisoned").clone();
            played = Some((outcomes, calls));
        })
        .await;
        played.expect("played")
    }

    /// Adds numbers to a table, and records the plan that it would find them with.
    #[derive(Clone, Default)]
    struct Planned(Arc<Mutex<Vec<String>>>);

    impl Write for Planned {
        type Entry = i64;
        type Key = std::convert::Infallible;
        type Outcome = ();
        const BATCHES: &'static str = "planned";

        fn key(_: &i64) -> Option<Self::Key> {
            None
        }

        async fn write(&self, connection: &mut PgConnection, entries: &[i64], _: Attempt) -> sqlx::Result<Vec<()>> {
            let is_first = self.0.lock().expect("not poisoned").is_empty();
            if is_first {
                let find =
                    "prepare find (bigint[]) as select n.id from unnest($1) as f (id) join numbers n on n.id = f.id";
                connection.execute(find).await?;
            }
            let plan: Vec<String> =
                sqlx::query_scalar("explain (costs off) execute find('{1}')").fetch_all(&mut *connection).await?;
            self.0.lock().expect("not poisoned").push(plan.join(" "));
            sqlx::query("insert into numbers select unnest($1::bigint[])").bind(entries).execute(connection).await?;
            Ok(vec![(); entries.len()])
        }
    }

    #[tokio::test]
    async fn plans_follow_a_growing_table() {
        with_pools(async |_, owner| {
            let table = "create table numbers (id bigint primary key)";
            sqlx::raw_sql(table).execute(&owner).await.expect("created");
            // As after a restored backup. Autovacuum would otherwise analyse the table in the middle of the test.
            let analyse = "alter table numbers set (autovacuum_enabled = false); vacuum analyze numbers";
            for statement in analyse.split("; ") {
                sqlx::raw_sql(statement).execute(&owner).await.expect("analysed");
            }
            let planned = Planned::default();
            let batches = Batches::start(&owner, &Shards::one(), FIVE_SECONDS, 10_000, vec![planned.clone()]);
            for first in (0..2_000).step_by(100) {
                let hundred = (first..first + 100).map(|number| batches.write(1, number));
                let written = futures_util::future::join_all(hundred).await;
                assert!(written.iter().all(Result::is_ok), "{written:?}");
            }
            let plans = planned.0.lock().expect("not poisoned").clone();
            let reads_by_key = |plan: &String| plan.contains("Index Cond: (id = f.id)");
            assert!(!reads_by_key(&plans[0]), "the test needs a plan for an empty table: {}", plans[0]);
            assert!(plans.last().is_some_and(reads_by_key), "{:?}", plans.last());
        })
        .await;
    }

    #[test]
    fn plans_are_kept_twice_as_long_each_time() {
        let mut growth = Growth::default();
        let rows_until_due = |growth: &mut Growth| (1..10_000).find(|_| growth.add(1));
        assert_eq!([(); 3].map(|()| rows_until_due(&mut growth)), [Some(1_000), Some(2_000), Some(4_000)]);
        growth.kept_for = 900_000;
        assert!(growth.add(900_000));
        assert_eq!(growth, Growth { rows: 0, kept_for: 1_000_000 });
    }

    #[tokio::test]
    async fn kept_connection_gets_a_second_attempt() {
        let (outcomes, calls) = play(&[Act::Break]).await;
        assert_eq!(outcomes, [Some(2), Some(3), Some(4), Some(5)]);
        let all = vec![2, 3, 4];
        let expected = [
            (vec![1], Attempt::First),
            (all.clone(), Attempt::First),
            (all, Attempt::Second),
            (vec![5], Attempt::First),
        ];
        assert_eq!(calls, expected);
        // If the second attempt fails too, every caller gets the error, and no third attempt follows.
        let (outcomes, calls) = play(&[Act::Break, Act::Break]).await;
        assert_eq!(outcomes, [None, None, None, Some(5)]);
        assert_eq!(calls.len(), 4);
    }

    #[tokio::test]
    async fn invalid_entry_does_not_fail_the_others() {
        // The batch breaks and its second attempt is refused, so each entry may have been written.
        let (outcomes, calls) = play(&[Act::Break, Act::Refuse, Act::Write, Act::Refuse, Act::Write]).await;
        assert_eq!(outcomes, [Some(2), None, Some(4), Some(5)]);
        let alone = [(vec![2], Attempt::Second), (vec![3], Attempt::Second), (vec![4], Attempt::Second)];
        assert_eq!(calls[3..6], alone);
    }

    #[tokio::test]
    async fn remaining_entries_do_not_wait_for_known_failure() {
        // All three entries belong to one user, whose rows are locked by another transaction.
        let (outcomes, calls) = play(&[Act::Wait, Act::Wait]).await;
        assert_eq!(outcomes, [None, None, None, Some(5)]);
        assert_eq!(calls[1..3], [(vec![2, 3, 4], Attempt::First), (vec![2], Attempt::Second)]);
        assert_eq!(calls.len(), 4, "the other two are not tried");
        // The database becomes unavailable midway: the entry that hits this is retried, the next one is not tried.
        let (outcomes, calls) = play(&[Act::Refuse, Act::Write, Act::Break, Act::Break]).await;
        assert_eq!(outcomes, [Some(2), None, None, Some(5)]);
        assert_eq!(calls[2..5], [2, 3, 3].map(|entry| (vec![entry], Attempt::Second)));
    }

    #[tokio::test]
    async fn panic_stops_neither_writer_nor_other_entries() {
        let (outcomes, calls) = play(&[Act::Panic, Act::Write, Act::Panic, Act::Write]).await;
        assert_eq!(outcomes, [Some(2), None, Some(4), Some(5)]);
        assert_eq!(calls.len(), 6);
    }
}
