//! Writing in batches, for what everybody does in the same few minutes.
//!
//! Each lane has a bounded channel and one writer. The writer takes all that is waiting, writes it in one transaction,
//! and answers each request after the commit. There is no timer: while one batch commits, the next one gathers, so a lone
//! request waits for nobody.

use std::{
    collections::{HashMap, HashSet},
    hash::Hash,
    io,
    panic::AssertUnwindSafe,
    sync::Arc,
    time::Duration,
};

use futures_util::FutureExt as _;
use sqlx::{PgConnection, PgPool, Postgres, pool::PoolConnection};
use tokio::sync::{mpsc, oneshot};

use super::{database, lanes::lane_of};

/// The most rows of one batch. More would not make a row cheaper, and everybody in it would wait longer.
const BATCH: usize = 500;

/// How many entries with the same key may wait. Each needs a batch of its own.
const SAME_KEY: usize = 32;

/// How a lane's entries are written.
pub trait Write: Send + Sync + 'static {
    /// What is to be written.
    type Entry: Clone + Send + Sync + 'static;
    /// What two entries of one batch must not share.
    type Key: Eq + Hash + Send;
    /// What became of an entry.
    type Outcome: Send + 'static;

    /// The counter of batches.
    const BATCHES: &'static str;

    /// The key of an entry; one without may be in a batch with any other.
    fn key(entry: &Self::Entry) -> Option<Self::Key>;

    /// Writes the entries in one transaction, all or none, and says of each what became of it. Where it is a second
    /// `attempt`, nobody knows whether the first one was committed; it is over in any case once the rows that it held can
    /// be held again.
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
    /// They were not.
    First,
    /// Something broke while they were.
    Second,
}

/// Why an entry was not written, or nobody knows whether it was.
#[derive(Clone, Debug, thiserror::Error)]
pub enum BatchError {
    /// Too many are waiting, or nobody writes any more.
    #[error("too many are waiting to be written")]
    Overloaded,
    /// The database failed.
    #[error(transparent)]
    Database(Arc<sqlx::Error>),
}

/// The way to the writers. They end when the last of these is dropped, after they have written what was waiting.
pub struct Batches<W: Write> {
    lanes: Arc<[mpsc::Sender<Request<W>>]>,
}

impl<W: Write> Clone for Batches<W> {
    fn clone(&self) -> Self {
        Self { lanes: Arc::clone(&self.lanes) }
    }
}

/// An entry that waits to be written, and who waits for it.
struct Request<W: Write> {
    user: i64,
    entry: W::Entry,
    answer: oneshot::Sender<Result<W::Outcome, BatchError>>,
}

impl<W: Write> Batches<W> {
    /// Starts as many writers as `writers` makes, each with a connection of its own and a queue of this length. A statement
    /// of theirs may take so long.
    pub fn start(db: &PgPool, timeout: Duration, queue: usize, writers: Vec<W>) -> Self {
        let db = database::writers(db, u32::try_from(writers.len()).unwrap_or(u32::MAX), timeout);
        let lanes = writers.into_iter().map(|write| {
            let (sender, requests) = mpsc::channel(queue);
            let patience = timeout + Duration::from_secs(2);
            tokio::spawn(Writer { db: db.clone(), connection: None, patience, write }.run(requests));
            sender
        });
        Self { lanes: lanes.collect() }
    }

    /// Has an entry of this user written. It is committed when this returns an outcome.
    pub async fn write(&self, user: i64, entry: W::Entry) -> Result<W::Outcome, BatchError> {
        let (answer, answered) = oneshot::channel();
        let lane = &self.lanes[lane_of(user, self.lanes.len())];
        lane.try_send(Request { user, entry, answer }).map_err(|_| BatchError::Overloaded)?;
        answered.await.unwrap_or(Err(BatchError::Overloaded))
    }
}

struct Writer<W> {
    db: PgPool,
    /// Kept from batch to batch: giving one back to the pool costs as much as a small batch does.
    connection: Option<PoolConnection<Postgres>>,
    /// How long one batch may take.
    patience: Duration,
    write: W,
}

impl<W: Write> Writer<W> {
    async fn run(mut self, mut requests: mpsc::Receiver<Request<W>>) {
        let (mut waiting, mut batch) = (Vec::with_capacity(BATCH), Vec::with_capacity(BATCH));
        while !waiting.is_empty() || requests.recv_many(&mut waiting, BATCH).await > 0 {
            next_batch(&mut waiting, &mut batch);
            if !batch.is_empty() {
                self.write_and_answer(&mut batch).await;
            }
            // Those whose key is taken keep nobody else waiting.
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
            }
            // One that cannot be written must not harm the others.
            Err(error) if batch.len() > 1 && !database::is_away(&error) => {
                tracing::warn!(%error, rows = batch.len(), counter = W::BATCHES, "a batch is written one by one");
                self.write_one_by_one(batch).await;
            }
            Err(error) => {
                let error = Arc::new(error);
                for request in batch.drain(..) {
                    request.answer(Err(BatchError::Database(Arc::clone(&error))));
                }
            }
        }
    }

    /// Writes each entry by itself. Nobody waits twice for the same: where the database is gone, all that is left fails with
    /// it, and where somebody else holds what a user's entry needs, all that is left of that user does.
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
                    let (is_away, is_conflict) = (database::is_away(&error), database::is_conflict(&error));
                    let error = Arc::new(error);
                    if is_away {
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

    /// Writes entries that share no key, all or none.
    async fn write(&mut self, entries: &[W::Entry], attempt: Attempt) -> sqlx::Result<Vec<W::Outcome>> {
        let was_kept = self.connection.is_some();
        match self.write_once(entries, attempt).await {
            // A connection that was idle may have been dead for long.
            Err(error) if was_kept && database::is_away(&error) => self.write_once(entries, Attempt::Second).await,
            outcome => outcome,
        }
    }

    async fn write_once(&mut self, entries: &[W::Entry], attempt: Attempt) -> sqlx::Result<Vec<W::Outcome>> {
        let mut connection = match self.connection.take() {
            Some(kept) => kept,
            None => self.db.acquire().await?,
        };
        // A fault of ours must not end the writer: nobody would take its place.
        let writing = AssertUnwindSafe(self.write.write(&mut connection, entries, attempt)).catch_unwind();
        // The server ends a statement in time, unless it is gone without a word; then the network says so much later.
        let written = match tokio::time::timeout(self.patience, writing).await {
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
                // Nobody knows what it is in the middle of: it is closed, and not given to the next one who asks.
                drop(connection.detach());
                Err(error)
            }
        }
    }
}

impl<W: Write> Request<W> {
    fn answer(self, outcome: Result<W::Outcome, BatchError>) {
        // Whoever does not wait any more does not need to be told.
        drop(self.answer.send(outcome));
    }
}

/// Lets an entry wait with those that do, unless too many with its key do already.
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

/// Moves what can be written together from those that wait. A second entry with the same key waits for the next batch: so
/// each of them is written, in the order in which they came.
fn next_batch<W: Write>(waiting: &mut Vec<Request<W>>, batch: &mut Vec<Request<W>>) {
    // Nobody waits for these any more, and they were not promised anything.
    waiting.retain(|request| !request.answer.is_closed());
    let mut taken = HashSet::with_capacity(waiting.len());
    batch.extend(waiting.extract_if(.., |request| W::key(&request.entry).is_none_or(|key| taken.insert(key))));
}

#[cfg(test)]
mod tests {
    use std::{collections::VecDeque, sync::Mutex};

    use sqlx::Executor as _;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::testing::{eventually, with_pools};

    /// Entries of a key, if they have one, and a number.
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
            unreachable!("nothing is written here")
        }
    }

    type Answered = oneshot::Receiver<Result<(), BatchError>>;

    fn requests(entries: impl IntoIterator<Item = (Option<u8>, u32)>) -> (Vec<Request<Toy>>, Vec<Answered>) {
        let request = |entry| {
            let (answer, answered) = oneshot::channel();
            (Request { user: 1, entry, answer }, answered)
        };
        entries.into_iter().map(request).unzip()
    }

    #[test]
    fn a_second_entry_with_a_key_waits_for_the_next_batch_and_in_order() {
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
            next_batch(&mut waiting, &mut batch);
            batch.iter().map(|request| request.entry.1).collect::<Vec<_>>()
        };
        assert_eq!([read(), read(), read(), read()], [vec![10, 20, 40, 45, 46], vec![30], vec![50], vec![]]);
        drop(answers);
    }

    #[test]
    fn who_wants_too_much_at_once_is_told_so_and_keeps_nobody_else_out() {
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
    fn who_went_away_is_not_written() {
        let (mut waiting, mut answers) = requests([1, 2, 3].map(|key| (Some(key), u32::from(key))));
        answers.remove(1);
        let mut batch = Vec::new();
        next_batch(&mut waiting, &mut batch);
        assert_eq!(batch.iter().map(|request| request.entry.1).collect::<Vec<_>>(), [1, 3]);
        assert!(waiting.is_empty());
    }

    /// What a scripted writer does at each call.
    #[derive(Clone, Copy)]
    enum Act {
        Write,
        /// As when the connection breaks: nobody knows what was written.
        Break,
        /// As when the database does not take it: nothing was written.
        Refuse,
        /// As when somebody else holds what it needs.
        Wait,
        Panic,
    }

    /// What was to be written at each call.
    type Calls = Vec<(Vec<u32>, Attempt)>;

    /// Acts by a script, and then writes; remembers what it was called with.
    #[derive(Clone)]
    struct Scripted {
        script: Arc<Mutex<VecDeque<Act>>>,
        calls: Arc<Mutex<Calls>>,
        /// Holds each call back until it is let through.
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
                Act::Panic => panic!("a fault of ours"),
            }
        }
    }

    /// Writes 1 alone, and then 2, 3 and 4 in one batch, with acts from the second call on; returns what came of the
    /// three, of a fifth afterwards, and the calls.
    async fn play(acts: &[Act]) -> (Vec<Option<u32>>, Calls) {
        let mut played = None;
        with_pools(async |db, _| {
            let scripted = Scripted {
                script: Arc::new(Mutex::new([&[Act::Write], acts].concat().into())),
                calls: Arc::default(),
                gate: Arc::new(Semaphore::new(0)),
            };
            let batches = Batches::start(&db, Duration::from_secs(5), 10, vec![scripted.clone()]);
            let write = |entry| {
                let batches = batches.clone();
                tokio::spawn(async move { batches.write(1, entry).await.ok() })
            };
            let first = write(1);
            eventually("the first one is being written", async || {
                scripted.calls.lock().expect("not poisoned").len() == 1
            })
            .await;
            let rest = [2, 3, 4].map(&write);
            eventually("the others wait", async || batches.lanes[0].capacity() == 7).await;
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

    #[tokio::test]
    async fn a_connection_that_was_kept_gets_a_second_attempt_which_says_that_it_is_one() {
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
        // If it breaks again, everybody is told, and nobody is tried a third time.
        let (outcomes, calls) = play(&[Act::Break, Act::Break]).await;
        assert_eq!(outcomes, [None, None, None, Some(5)]);
        assert_eq!(calls.len(), 4);
    }

    #[tokio::test]
    async fn one_that_cannot_be_written_harms_no_other_and_none_is_taken_for_new_again() {
        // The batch breaks, and its second attempt is refused: then each of them may have been written.
        let (outcomes, calls) = play(&[Act::Break, Act::Refuse, Act::Write, Act::Refuse, Act::Write]).await;
        assert_eq!(outcomes, [Some(2), None, Some(4), Some(5)]);
        let alone = [(vec![2], Attempt::Second), (vec![3], Attempt::Second), (vec![4], Attempt::Second)];
        assert_eq!(calls[3..6], alone);
    }

    #[tokio::test]
    async fn nobody_waits_twice_for_the_same() {
        // All three are of one user, whose rows somebody holds.
        let (outcomes, calls) = play(&[Act::Wait, Act::Wait]).await;
        assert_eq!(outcomes, [None, None, None, Some(5)]);
        assert_eq!(calls[1..3], [(vec![2, 3, 4], Attempt::First), (vec![2], Attempt::Second)]);
        assert_eq!(calls.len(), 4, "the other two are not tried");
        // The database goes away in the middle: the one that noticed tries again, the next one does not.
        let (outcomes, calls) = play(&[Act::Refuse, Act::Write, Act::Break, Act::Break]).await;
        assert_eq!(outcomes, [Some(2), None, None, Some(5)]);
        assert_eq!(calls[2..5], [2, 3, 3].map(|entry| (vec![entry], Attempt::Second)));
    }

    #[tokio::test]
    async fn a_panic_ends_neither_the_others_nor_the_writer() {
        let (outcomes, calls) = play(&[Act::Panic, Act::Write, Act::Panic, Act::Write]).await;
        assert_eq!(outcomes, [Some(2), None, Some(4), Some(5)]);
        assert_eq!(calls.len(), 6);
    }
}
