//! Leases in the database, for tasks that only one process may run at a time.
//!
//! A lease expires when its holder stops renewing it. This covers a paused process whose connections stay open, unlike
//! a lock bound to a connection.
//!
//! Each task has its own lease, but all leases of a process share their queries, so processes without a lease cost the
//! database next to nothing:
//!
//! - A process reads a lease before it writes it. If another process holds the lease, it does not ask again before the
//!   lease would expire.
//! - One query reads the leases of all tasks, and one statement renews them.
//! - A process that shuts down releases its leases and notifies the others, which then ask at once.

use std::{
    collections::BTreeMap,
    pin::pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use futures_util::StreamExt as _;
use sqlx::PgPool;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use crate::stream::{Streams, TransportError};

/// Subject of the message after a lease was released.
const RELEASED: &str = "wake.lease";

/// Longest time after which a process asks for released leases.
const HANDOVER: Duration = Duration::from_millis(300);

/// The leases of one process. Cheap to clone.
#[derive(Clone)]
pub struct Leases(Arc<Inner>);

struct Inner {
    db: PgPool,
    /// Unique to this process.
    holder: Uuid,
    /// Notifies other processes of released leases.
    streams: Option<Streams>,
    claims: Mutex<BTreeMap<&'static str, Claim>>,
    /// Held during the queries, so that tasks that ask at the same time share one.
    querying: tokio::sync::Mutex<()>,
    /// Changes when a lease may have become available.
    released: watch::Sender<u64>,
    is_closed: AtomicBool,
}

/// What this process knows about one lease.
#[derive(Clone, Copy, Debug)]
struct Claim {
    length: Duration,
    /// Time of the last grant by this process's monotonic clock, taken before the query was sent.
    granted: Option<Instant>,
    /// Latest time at which the task asked for the lease. A task that stopped asking loses it.
    asked: Option<Instant>,
    /// Time before which another process holds the lease.
    taken_until: Option<Instant>,
}

impl Claim {
    /// Whether this process holds the lease: `None` if that requires a query.
    fn known(&self, now: Instant) -> Option<bool> {
        match (self.granted, self.taken_until) {
            (Some(granted), _) => (now - granted < self.length / 3).then_some(true),
            (None, Some(until)) => (now < until).then_some(false),
            (None, None) => None,
        }
    }

    /// Whether the lease is held, its task still asks for it, and enough time has passed since the last grant.
    fn is_renewable(&self, now: Instant) -> bool {
        let is_asked_for = self.asked.is_some_and(|asked| now - asked < self.length);
        is_asked_for && self.granted.is_some_and(|granted| now - granted >= self.length / 6)
    }
}

impl Leases {
    /// Creates the leases of a process without acquiring any. `holder` must be unique to this process.
    pub fn new(db: PgPool, holder: Uuid, streams: Option<Streams>) -> Self {
        Self(Arc::new(Inner {
            db,
            holder,
            streams,
            claims: Mutex::default(),
            querying: tokio::sync::Mutex::default(),
            released: watch::Sender::new(0),
            is_closed: AtomicBool::new(false),
        }))
    }

    /// The lease of a task.
    pub fn lease(&self, name: &'static str, length: Duration) -> Lease {
        let claim = Claim { length, granted: None, asked: None, taken_until: None };
        self.0.claims().entry(name).or_insert(claim);
        Lease { leases: self.clone(), name, length }
    }

    /// Asks for leases again as soon as another process has released one, until shutdown.
    pub async fn listen(&self, closing: CancellationToken) {
        let Some(streams) = &self.0.streams else { return };
        while let Err(error) = self.listen_until_closing(streams, &closing).await {
            // Until then, leases are taken over when they expire.
            streams.failed(&error, "leases");
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(Duration::from_secs(1)) => {}
            }
        }
    }

    async fn listen_until_closing(&self, streams: &Streams, closing: &CancellationToken) -> Result<(), TransportError> {
        let mut releases = streams.hear(RELEASED).await?;
        loop {
            tokio::select! {
                () = closing.cancelled() => return Ok(()),
                Some(_) = releases.next() => {}
            }
            // One process is first and takes all released leases. Spread over all processes, they would cost more
            // queries.
            tokio::time::sleep(self.0.share_of(HANDOVER)).await;
            self.0.ask_again();
        }
    }

    /// Releases all leases at shutdown, and acquires no more.
    pub async fn close(&self) -> sqlx::Result<()> {
        self.0.is_closed.store(true, Ordering::Release);
        // A query that is under way could still acquire a lease.
        let _turn = self.0.querying.lock().await;
        let held = |(name, claim): (&&'static str, &Claim)| claim.granted.map(|_| *name);
        let held: Vec<&'static str> = self.0.claims().iter().filter_map(held).collect();
        self.0.release(&held).await?;
        // The process may end now.
        if let Some(streams) = self.0.streams.as_ref().filter(|streams| streams.is_connected()) {
            streams.settled().await;
        }
        Ok(())
    }
}

impl Inner {
    fn claims(&self) -> MutexGuard<'_, BTreeMap<&'static str, Claim>> {
        self.claims.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a task asks for its lease; returns whether this process holds it, or `None` if that requires a query.
    fn ask(&self, name: &'static str, now: Instant) -> Option<bool> {
        let mut claims = self.claims();
        let claim = claims.get_mut(name)?;
        claim.asked = Some(now);
        if self.is_closed.load(Ordering::Acquire) { Some(false) } else { claim.known(now) }
    }

    /// Forgets which leases other processes hold, and wakes the tasks that wait for one.
    fn ask_again(&self) {
        for claim in self.claims().values_mut() {
            claim.taken_until = None;
        }
        self.released.send_modify(|count| *count += 1);
    }

    /// Acquires the lease if it is available, and renews the leases that are due.
    async fn query(&self, name: &'static str) -> sqlx::Result<()> {
        let now = Instant::now();
        let is_held = self.claims().get(name).is_some_and(|claim| claim.granted.is_some());
        let is_available = is_held || self.read(name).await?;
        let mut wanted: Vec<(&'static str, f64)> = Vec::new();
        for (&other, claim) in self.claims().iter() {
            if claim.is_renewable(now) || (other == name && is_available) {
                wanted.push((other, claim.length.as_secs_f64()));
            }
        }
        if wanted.is_empty() {
            return Ok(());
        }
        let (names, lengths): (Vec<&str>, Vec<f64>) = wanted.iter().copied().unzip();
        // Rows are written in the order of their names, so that two processes cannot wait for each other.
        let granted = sqlx::query_scalar!(
            "insert into leases (name, holder, granted_at, expires_at)
             select name, $1, now(), now() + make_interval(secs => length)
             from unnest($2::text[], $3::float8[]) as wanted (name, length) order by name
             on conflict (name) do update
               set holder = excluded.holder, granted_at = excluded.granted_at, expires_at = excluded.expires_at
               where leases.holder = excluded.holder or leases.expires_at < excluded.granted_at
             returning name",
            self.holder,
            &names as &[&str],
            &lengths,
        )
        .fetch_all(&self.db)
        .await?;
        let mut claims = self.claims();
        for (name, _) in wanted {
            let is_granted = granted.iter().any(|granted| granted == name);
            if let Some(claim) = claims.get_mut(name) {
                claim.granted = is_granted.then_some(now);
                // Another process was faster. Read in a moment how long it holds the lease.
                claim.taken_until = (!is_granted).then(|| now + claim.length / 10);
            }
        }
        Ok(())
    }

    /// Reads the leases that this process does not hold; returns whether this one is available.
    async fn read(&self, name: &str) -> sqlx::Result<bool> {
        let now = Instant::now();
        let others: Vec<&str> =
            self.claims().iter().filter(|(_, claim)| claim.granted.is_none()).map(|(name, _)| *name).collect();
        let taken = sqlx::query!(
            r#"select name, extract(epoch from expires_at - now())::float8 as "seconds!" from leases
               where name = any($1) and holder <> $2 and expires_at >= now()"#,
            &others as &[&str],
            self.holder,
        )
        .fetch_all(&self.db)
        .await?;
        let mut claims = self.claims();
        let mut is_any_free = false;
        for other in others {
            let Some(claim) = claims.get_mut(other) else { continue };
            let left = taken.iter().find(|row| row.name == other).map(|row| row.seconds.max(0.0));
            claim.taken_until = left.map(|left| now + Duration::from_secs_f64(left) + self.share_of(claim.length / 10));
            is_any_free |= left.is_none() && other != name;
        }
        drop(claims);
        if is_any_free {
            self.released.send_modify(|count| *count += 1);
        }
        Ok(taken.iter().all(|row| row.name != name))
    }

    /// A part of `longest` that differs between processes, so that they do not all ask at the same moment.
    fn share_of(&self, longest: Duration) -> Duration {
        longest * u32::try_from(self.holder.as_u128() % 1_000).unwrap_or_default() / 1_000
    }

    async fn release(&self, names: &[&'static str]) -> sqlx::Result<()> {
        let mut held = Vec::new();
        for (name, claim) in self.claims().iter_mut().filter(|(name, _)| names.contains(*name)) {
            if claim.granted.take().is_some() {
                held.push(*name);
            }
        }
        if held.is_empty() {
            return Ok(());
        }
        let delete =
            sqlx::query!("delete from leases where name = any($1) and holder = $2", &held as &[&str], self.holder);
        delete.execute(&self.db).await?;
        if let Some(streams) = &self.streams {
            streams.wake(RELEASED).await;
        }
        Ok(())
    }
}

/// One process's claim to a task.
#[derive(Clone)]
pub struct Lease {
    leases: Leases,
    name: &'static str,
    length: Duration,
}

impl Lease {
    /// Acquires or renews the lease; returns whether this process holds it. The holder must call this more often than
    /// [`Self::renew_every`] to keep the lease. Other processes can call it at any rate: it only queries the database
    /// when the lease may have expired.
    pub async fn hold(&self) -> sqlx::Result<bool> {
        let inner = &*self.leases.0;
        if let Some(is_held) = inner.ask(self.name, Instant::now()) {
            return Ok(is_held);
        }
        let _turn = inner.querying.lock().await;
        // The query of another task may have included this lease.
        if let Some(is_held) = inner.ask(self.name, Instant::now()) {
            return Ok(is_held);
        }
        inner.query(self.name).await?;
        Ok(self.age().is_some())
    }

    /// Interval at which the holder renews the lease.
    pub fn renew_every(&self) -> Duration {
        self.length / 3
    }

    /// Waits until the lease of another process may have expired or was released, at most for `longest`.
    pub async fn wait(&self, longest: Duration) {
        let inner = &*self.leases.0;
        // Before the claim is read, so that a release in between is not missed.
        let mut released = inner.released.subscribe();
        let until = inner.claims().get(self.name).and_then(|claim| claim.taken_until);
        let left = until.map_or(Duration::ZERO, |until| until.saturating_duration_since(Instant::now()));
        tokio::select! {
            () = tokio::time::sleep(left.min(longest)) => {}
            _ = released.changed() => {}
        }
    }

    /// Runs a task to its end, and keeps renewing the lease meanwhile.
    pub async fn keep<T>(&self, task: impl Future<Output = T>) -> T {
        let mut task = pin!(task);
        tokio::select! {
            done = &mut task => return done,
            () = self.renew() => {}
        }
        // Losing the lease does not stop the task: it must tolerate a second one anyway.
        task.await
    }

    /// Runs a task while this process holds the lease; returns `None` if it lost the lease.
    pub async fn run_while_held<T>(&self, task: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            done = task => Some(done),
            () = self.renew() => None,
        }
    }

    /// Renews the lease until another process holds it.
    async fn renew(&self) {
        loop {
            tokio::time::sleep(self.renew_every()).await;
            match self.hold().await {
                Ok(true) => {}
                Ok(false) => return,
                Err(error) => tracing::debug!(%error, lease = self.name, "lease not renewed; retrying"),
            }
        }
    }

    /// Whether the lease is still valid, with a third of its length to spare.
    pub fn is_fresh(&self) -> bool {
        self.age().is_some_and(|age| age < self.length * 2 / 3)
    }

    /// Releases the lease, so another process need not wait until it expires.
    pub async fn release(&self) -> sqlx::Result<()> {
        // A query that is under way could renew the lease.
        let _turn = self.leases.0.querying.lock().await;
        self.leases.0.release(&[self.name]).await
    }

    fn age(&self) -> Option<Duration> {
        self.leases.0.claims().get(self.name)?.granted.map(|granted| granted.elapsed())
    }
}

#[cfg(test)]
mod tests {
    use sqlx::Executor as _;

    use super::*;
    use crate::testing::{as_service, eventually, streams_for_tests, with_database};

    /// Longer than any test.
    const LONG: Duration = Duration::from_hours(1);

    fn process(db: &PgPool, number: u128) -> Leases {
        Leases::new(db.clone(), Uuid::from_u128(number), None)
    }

    async fn held(lease: &Lease) -> bool {
        lease.hold().await.expect("queried")
    }

    async fn with_pool(test: impl AsyncFnOnce(PgPool)) {
        with_database(async |options| {
            let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
            test(db.clone()).await;
            db.close().await;
        })
        .await;
    }

    #[tokio::test]
    async fn lease_has_one_holder_until_it_expires() {
        with_pool(async |db| {
            let first = process(&db, 1).lease("one", Duration::from_secs(2));
            let second = process(&db, 2).lease("one", Duration::from_secs(10));
            assert!(held(&first).await && !held(&second).await);
            assert!(first.is_fresh() && !second.is_fresh());
            eventually("the first lease expires", async || held(&second).await).await;
            assert!(!first.is_fresh() && !held(&first).await);
            first.release().await.expect("queried");
            assert!(held(&second).await, "only the holder can release a lease");
            second.release().await.expect("queried");
            eventually("the released lease is available", async || held(&first).await).await;
        })
        .await;
    }

    #[tokio::test]
    async fn standby_does_not_ask_before_expiry() {
        with_pool(async |db| {
            let first = process(&db, 1).lease("one", LONG);
            let others = process(&db, 2);
            let second = others.lease("one", LONG);
            assert!(held(&first).await && !held(&second).await);
            db.execute("delete from leases").await.expect("deleted");
            assert!(!held(&second).await, "no query");
            others.0.ask_again();
            assert!(held(&second).await);
        })
        .await;
    }

    #[tokio::test]
    async fn one_statement_renews_the_leases_of_all_tasks_that_ask() {
        with_pool(async |db| {
            let (leases, length) = (process(&db, 1), Duration::from_mins(1));
            let [asking, other, silent] = ["asking", "other", "silent"].map(|name| leases.lease(name, length));
            assert!(held(&asking).await && held(&other).await && held(&silent).await);
            for (name, claim) in leases.0.claims().iter_mut() {
                claim.granted = claim.granted.and_then(|granted| granted.checked_sub(length / 2));
                if *name == "silent" {
                    claim.asked = claim.asked.and_then(|asked| asked.checked_sub(length));
                }
            }
            assert!(held(&asking).await);
            let query = "select name from leases where granted_at = (select max(granted_at) from leases) order by 1";
            let renewed: Vec<String> = sqlx::query_scalar(query).fetch_all(&db).await.expect("read");
            assert_eq!(renewed, ["asking", "other"], "a task that does not ask loses its lease");
        })
        .await;
    }

    #[tokio::test]
    async fn closing_process_hands_over_at_once() {
        with_pool(async |db| {
            let (streams, closing) = (streams_for_tests().await, CancellationToken::new());
            let process = |number| Leases::new(db.clone(), Uuid::from_u128(number), Some(streams.clone()));
            let (first, second) = (process(1), process(2));
            let (ours, theirs) = (first.lease("one", LONG), second.lease("one", LONG));
            assert!(held(&ours).await && !held(&theirs).await);
            let (listening, until) = (second.clone(), closing.clone());
            let listening = tokio::spawn(async move { listening.listen(until).await });
            let waiting = tokio::spawn(async move {
                while !held(&theirs).await {
                    theirs.wait(LONG).await;
                }
            });
            // The subscription may not have reached the server yet, so the message is repeated.
            first.close().await.expect("released");
            eventually("the other process takes over", async || {
                streams.wake(RELEASED).await;
                waiting.is_finished()
            })
            .await;
            assert!(!held(&ours).await, "a closed process acquires nothing");
            closing.cancel();
            listening.await.expect("ended");
            waiting.await.expect("taken over");
            streams.remove().await;
        })
        .await;
    }

    #[tokio::test]
    async fn task_ends_when_its_lease_is_lost() {
        with_pool(async |db| {
            let lease = process(&db, 1).lease("one", Duration::from_millis(300));
            assert!(held(&lease).await);
            assert_eq!(lease.run_while_held(std::future::ready(7)).await, Some(7));
            let running = lease.run_while_held(std::future::pending::<()>());
            let stolen = async {
                tokio::time::sleep(Duration::from_millis(500)).await;
                assert!(lease.is_fresh(), "renewed while the task runs");
                let steal = "update leases set holder = gen_random_uuid(), expires_at = now() + interval '1 hour'";
                db.execute(steal).await.expect("taken over");
            };
            let (outcome, ()) = tokio::join!(running, stolen);
            assert_eq!(outcome, None);
        })
        .await;
    }
}
