//! Reads that may be served by a replica of the database.
//!
//! A handler of a list asks [`Reads`] for a [`Reader`] of its caller, and runs its queries with [`Reader::read`]. The
//! reader chooses the database:
//!
//! - Without `database.read_url`, every read goes to the primary and costs nothing extra.
//! - A caller who wrote recently reads the primary, in every process (`notes`).
//! - A replica that may lack commits older than `database.read_max_lag` is not used (`lag`).
//! - A read that fails on the replica is repeated on the primary.
//!
//! A note about a write is kept for at least as long as the replica may be behind. A read by its writer therefore finds
//! the note, or a replica that has the write. Reads that decide about a write do not use this module.

mod lag;
mod notes;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use anyhow::Context as _;
use sqlx::{Connection as _, PgConnection, PgPool};
use tokio::{sync::watch, time::Instant};

use self::{
    lag::{Lag, Position},
    notes::Notes,
};
use crate::{database, redis_client};

/// Interval of the replica checks. A replica without delay is seen as up to two intervals behind.
const CHECK_EVERY: Duration = Duration::from_millis(500);
/// A replica that takes longer to respond to a check counts as down.
const CHECK_TIMEOUT: Duration = Duration::from_secs(1);
/// Shortest time for which a caller who wrote reads the primary.
const AFTER_WRITE: Duration = Duration::from_secs(2);
/// Least value of `database.read_max_lag`. It leaves room for one slow check.
pub(crate) const LEAST_MAX_LAG: Duration = Duration::from_secs(2);

/// A caller of the service, as far as reads of their own writes are concerned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    kind: &'static str,
    id: i64,
}

impl Caller {
    pub const fn new(kind: &'static str, id: i64) -> Self {
        Self { kind, id }
    }
}

impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}", self.kind, self.id)
    }
}

/// The primary and its replica, if there is one. Cheap to clone.
#[derive(Clone)]
pub struct Reads {
    primary: PgPool,
    replica: Option<Arc<Replica>>,
}

struct Replica {
    db: PgPool,
    notes: Notes,
    max_lag: Duration,
    state: watch::Sender<State>,
}

/// State of the replica at its last check.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    /// The process has just started.
    Unknown,
    /// It has every commit that the primary had acknowledged at this time, or later ones too.
    FreshAsOf(Instant),
    /// It responds, but how far it is behind is unknown, or it is not a replica of this primary.
    Unusable(&'static str),
    /// It does not respond.
    Down,
}

impl Reads {
    /// Reads only from the primary.
    pub fn from_primary(primary: PgPool) -> Self {
        Self { primary, replica: None }
    }

    /// Connects to the replica of the settings, if they name one. It is used after its first successful checks.
    pub fn connect(
        primary: PgPool,
        settings: &database::Settings,
        redis: &redis_client::Settings,
    ) -> anyhow::Result<Self> {
        let Some(db) = database::replica_pool(settings).context("database.read_url")? else {
            return Ok(Self::from_primary(primary));
        };
        let max_lag = settings.read_max_lag;
        let notes = Notes::new(redis, max_lag.max(AFTER_WRITE)).context("redis.url")?;
        let state = watch::Sender::new(State::Unknown);
        Ok(Self { primary, replica: Some(Arc::new(Replica { db, notes, max_lag, state })) })
    }

    /// Returns the reader of one request. Its caller sees their own writes.
    pub async fn reader(&self, caller: Caller) -> Reader {
        let Some(replica) = &self.replica else { return self.primary_reader() };
        // If the replica is out, the caller's writes are not worth a request to Redis.
        let found = match replica.usable() {
            Err(_) => Some("replica_out"),
            Ok(()) => replica.notes.wrote(caller).await.then_some("caller_wrote"),
        };
        Reader {
            primary: self.primary.clone(),
            replica: Some(Arc::clone(replica)),
            is_bound: AtomicBool::new(found.is_some()),
            reason: found.unwrap_or("replica_out"),
        }
    }

    /// Returns a reader that uses only the primary.
    pub fn primary_reader(&self) -> Reader {
        Reader::of_primary(self.primary.clone())
    }

    /// Records that these callers must see what was written just now. Must complete before the writer gets the response.
    pub async fn note_write(&self, callers: &[Caller]) {
        if let Some(replica) = &self.replica
            && !callers.is_empty()
        {
            replica.notes.note(callers).await;
        }
    }

    pub fn has_replica(&self) -> bool {
        self.replica.is_some()
    }

    /// Returns the address of the replica, if there is one that was checked, and why it is not used.
    pub fn replica(&self) -> Option<(String, Result<(), String>)> {
        let replica = self.replica.as_ref().filter(|replica| *replica.state.borrow() != State::Unknown)?;
        let options = replica.db.connect_options();
        Some((format!("{}:{}", options.get_host(), options.get_port()), replica.usable().map_err(str::to_owned)))
    }

    /// Checks the replica until the future is dropped. Returns at once without a replica.
    pub async fn watch(&self) {
        let Some(replica) = &self.replica else { return };
        let mut check = Check { primary: None, replica: None, lag: Lag::default() };
        loop {
            tokio::join!(check.run(&self.primary, replica), replica.notes.check());
            tokio::time::sleep(CHECK_EVERY).await;
        }
    }
}

impl Replica {
    /// Whether it may serve a read now, or why not.
    fn usable(&self) -> Result<(), &'static str> {
        match *self.state.borrow() {
            State::Unknown => Err("not checked yet"),
            // Evaluated at each read: without further checks the replica counts as behind.
            State::FreshAsOf(then) if then.elapsed() <= self.max_lag => Ok(()),
            State::FreshAsOf(_) => Err("further behind than database.read_max_lag"),
            State::Unusable(reason) => Err(reason),
            State::Down => Err("no response"),
        }
    }

    /// Runs a read until the replica is found to be down.
    async fn read<T>(&self, read: impl Future<Output = sqlx::Result<T>>) -> sqlx::Result<T> {
        let mut state = self.state.subscribe();
        tokio::select! {
            result = read => result,
            // A replica that hangs would hold the request until its deadline.
            _ = state.wait_for(|state| *state == State::Down) => Err(sqlx::Error::PoolTimedOut),
        }
    }

    /// Takes the replica out after a failed read, until the next successful check.
    fn take_out(&self) {
        self.state.send_if_modified(|state| {
            // Other reads may still wait to see that it is down.
            let was_used = matches!(state, State::FreshAsOf(_));
            if was_used {
                *state = State::Unusable("a read failed");
            }
            was_used
        });
    }
}

/// Databases of one request.
pub struct Reader {
    primary: PgPool,
    replica: Option<Arc<Replica>>,
    /// Whether all further reads go to the primary. A request that has read the primary does not return to an older
    /// state.
    is_bound: AtomicBool,
    /// Why the reader began with the primary, for metrics.
    reason: &'static str,
}

impl Reader {
    /// Reads only from the primary.
    pub fn of_primary(primary: PgPool) -> Self {
        Self { primary, replica: None, is_bound: AtomicBool::new(true), reason: "" }
    }

    /// Whether all reads go to the primary. A value that other callers share must not be served to such a reader if it
    /// was read from the replica.
    pub fn is_bound_to_primary(&self) -> bool {
        self.is_bound.load(Ordering::Acquire)
    }

    /// Runs a read on the replica, or on the primary if the caller needs it or the replica cannot serve it. `read` may
    /// run twice, and its statements see one database.
    ///
    /// Any error of the replica leads to a second attempt: besides being unavailable, it may cancel a statement that
    /// conflicts with replication, or lack a table that the latest migration has created.
    pub async fn read<T>(&self, read: impl AsyncFnOnce(PgPool) -> sqlx::Result<T> + Clone) -> sqlx::Result<T> {
        let Some(replica) = &self.replica else { return read(self.primary.clone()).await };
        let mut reason = self.reason;
        if !self.is_bound_to_primary() && replica.usable().is_ok() {
            match replica.read(read.clone()(replica.db.clone())).await {
                Ok(value) => {
                    metrics::counter!("matchday_reads_total", "target" => "replica", "reason" => "").increment(1);
                    return Ok(value);
                }
                Err(error) => {
                    tracing::warn!(%error, "read failed on the replica; repeating it on the primary");
                    if database::is_unavailable(&error) {
                        replica.take_out();
                    }
                    reason = "replica_failed";
                }
            }
        }
        self.is_bound.store(true, Ordering::Release);
        metrics::counter!("matchday_reads_total", "target" => "primary", "reason" => reason).increment(1);
        read(self.primary.clone()).await
    }
}

/// Periodic check of how far the replica is behind. It has its own connections, because a busy pool does not mean that a
/// server is down.
struct Check {
    primary: Option<PgConnection>,
    replica: Option<PgConnection>,
    lag: Lag,
}

/// Response of the replica to a check.
#[derive(sqlx::FromRow)]
struct Replayed {
    in_recovery: bool,
    is_citus: bool,
    position: Option<i64>,
}

const REPLAYED: &str = "select pg_is_in_recovery() as in_recovery,
       exists (select from pg_extension where extname = 'citus') as is_citus,
       pg_wal_lsn_diff(pg_last_wal_replay_lsn(), '0/0')::bigint as position";
const FLUSHED: &str = "select pg_wal_lsn_diff(pg_current_wal_flush_lsn(), '0/0')::bigint";

impl Check {
    async fn run(&mut self, primary: &PgPool, replica: &Replica) {
        let state = self.state(primary, replica).await;
        replica.state.send_replace(state);
        metrics::gauge!("matchday_replica_lag_seconds").set(self.lag.behind(Instant::now()).as_secs_f64());
    }

    /// Asks the replica first, so that its position cannot be greater than that of its primary.
    async fn state(&mut self, primary: &PgPool, replica: &Replica) -> State {
        let Some(replayed) = timely(replayed(&mut self.replica, &replica.db)).await else {
            self.replica = None;
            return State::Down;
        };
        let position = match replayed {
            Replayed { is_citus: true, .. } => return State::Unusable("not supported with Citus"),
            Replayed { in_recovery: false, .. } => return State::Unusable("the server is not a replica"),
            Replayed { position: None, .. } => return State::Unusable("nothing replayed yet"),
            Replayed { position: Some(position), .. } => Position(position),
        };
        // Before the question, because the response includes everything that was committed until then.
        let asked = Instant::now();
        let Some(flushed) = timely(flushed(&mut self.primary, primary)).await else {
            self.primary = None;
            return State::Unusable("the primary does not respond to the check");
        };
        match self.lag.observe(position, asked, Position(flushed), replica.max_lag) {
            Some(then) => State::FreshAsOf(then),
            None if *replica.state.borrow() == State::Unknown => State::Unknown,
            None => State::Unusable("further behind than database.read_max_lag"),
        }
    }
}

async fn timely<T>(query: impl Future<Output = sqlx::Result<T>>) -> Option<T> {
    match tokio::time::timeout(CHECK_TIMEOUT, query).await {
        Ok(Ok(value)) => Some(value),
        Ok(Err(error)) => {
            tracing::debug!(%error, "check of the replica failed");
            None
        }
        Err(_) => None,
    }
}

async fn replayed(kept: &mut Option<PgConnection>, db: &PgPool) -> sqlx::Result<Replayed> {
    sqlx::query_as(REPLAYED).fetch_one(connected(kept, db).await?).await
}

async fn flushed(kept: &mut Option<PgConnection>, db: &PgPool) -> sqlx::Result<i64> {
    sqlx::query_scalar(FLUSHED).fetch_one(connected(kept, db).await?).await
}

async fn connected<'a>(kept: &'a mut Option<PgConnection>, db: &PgPool) -> sqlx::Result<&'a mut PgConnection> {
    match kept {
        Some(connection) => Ok(connection),
        None => Ok(kept.insert(PgConnection::connect_with(&db.connect_options()).await?)),
    }
}

#[cfg(test)]
mod tests {
    use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
    use tokio::net::TcpListener;

    use super::*;
    use crate::testing::{settings, with_pools};

    const ANN: Caller = Caller::new("user", 1);

    /// A replica at a port, which passed a check just now, and a Redis that has been trusted long enough.
    async fn reads(primary: &PgPool, port: u16) -> (Reads, Arc<Replica>) {
        let options = PgConnectOptions::new_without_pgpass().host("127.0.0.1").port(port).username("matchday");
        let db = PgPoolOptions::new().connect_lazy_with(options);
        let notes = Notes::new(&settings(&[], redis_client::Settings::read), Duration::ZERO).expect("a valid URL");
        notes.check().await;
        let state = watch::Sender::new(State::FreshAsOf(Instant::now()));
        let replica = Arc::new(Replica { db, notes, max_lag: Duration::from_mins(1), state });
        (Reads { primary: primary.clone(), replica: Some(Arc::clone(&replica)) }, replica)
    }

    async fn one(reader: &Reader) -> i32 {
        reader.read(async |db| sqlx::query_scalar("select 1").fetch_one(&db).await).await.expect("a response")
    }

    #[tokio::test]
    async fn unreachable_replica_is_replaced_by_primary() {
        with_pools(async |primary, _| {
            let (reads, replica) = reads(&primary, 1).await;
            let reader = reads.reader(ANN).await;
            assert!(!reader.is_bound_to_primary());
            assert_eq!(one(&reader).await, 1);
            assert!(reader.is_bound_to_primary(), "a request does not return to an older state");
            assert!(replica.usable().is_err(), "out until the next check");
            assert!(reads.reader(ANN).await.is_bound_to_primary());
        })
        .await;
    }

    #[tokio::test]
    async fn hanging_reads_move_to_primary_when_replica_is_down() {
        with_pools(async |primary, _| {
            // Accepts connections and never responds, like a stopped process.
            let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
            let (reads, replica) = reads(&primary, listener.local_addr().expect("an address").port()).await;
            let readers = [reads.reader(ANN).await, reads.reader(ANN).await];
            let found_down = async {
                let _connections = [listener.accept().await, listener.accept().await];
                replica.state.send_replace(State::Down);
                // Kept open until the reads have moved.
                std::future::pending::<()>().await;
            };
            tokio::select! {
                values = futures_util::future::join_all(readers.iter().map(one)) => assert_eq!(values, [1, 1]),
                () = found_down => {}
            }
        })
        .await;
    }

    #[tokio::test]
    async fn check_that_stops_takes_replica_out() {
        with_pools(async |primary, _| {
            let (_, replica) = reads(&primary, 1).await;
            assert_eq!(replica.usable(), Ok(()));
            let long_ago = Instant::now().checked_sub(Duration::from_secs(61)).expect("a time");
            replica.state.send_replace(State::FreshAsOf(long_ago));
            assert!(replica.usable().is_err());
        })
        .await;
    }
}
