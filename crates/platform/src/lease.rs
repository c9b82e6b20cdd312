//! Leases in the database, for work that only one process may do at a time.
//!
//! A lease expires when its holder stops renewing it. This covers a paused process whose connections stay open, unlike
//! a lock bound to a connection.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use sqlx::PgPool;
use uuid::Uuid;

/// One process's claim to a named task.
#[derive(Debug)]
pub struct Lease {
    name: &'static str,
    holder: Uuid,
    length: Duration,
    /// Time of the last grant by this process's monotonic clock, taken before the query was sent.
    granted: Mutex<Option<Instant>>,
}

impl Lease {
    /// Creates a claim without acquiring it. `holder` must be unique to this process.
    pub fn new(name: &'static str, holder: Uuid, length: Duration) -> Self {
        Self { name, holder, length, granted: Mutex::new(None) }
    }

    /// Acquires or renews the lease; returns whether this process holds it.
    pub async fn hold(&self, db: &PgPool) -> sqlx::Result<bool> {
        if self.age().is_some_and(|age| age < self.length / 3) {
            return Ok(true);
        }
        let asked = Instant::now();
        let granted = sqlx::query_scalar!(
            r#"insert into leases (name, holder, granted_at, expires_at)
               values ($1, $2, now(), now() + make_interval(secs => $3))
               on conflict (name) do update
                 set holder = excluded.holder, granted_at = excluded.granted_at, expires_at = excluded.expires_at
                 where leases.holder = excluded.holder or leases.expires_at < excluded.granted_at
               returning true as "granted!""#,
            self.name,
            self.holder,
            self.length.as_secs_f64(),
        )
        .fetch_optional(db)
        .await?
        .is_some();
        *self.granted.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = granted.then_some(asked);
        Ok(granted)
    }

    /// Whether the lease is still valid, with a third of its length to spare.
    pub fn is_fresh(&self) -> bool {
        self.age().is_some_and(|age| age < self.length * 2 / 3)
    }

    /// Releases the lease, so another process need not wait until it expires.
    pub async fn release(&self, db: &PgPool) -> sqlx::Result<()> {
        *self.granted.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        sqlx::query!("delete from leases where name = $1 and holder = $2", self.name, self.holder).execute(db).await?;
        Ok(())
    }

    fn age(&self) -> Option<Duration> {
        self.granted.lock().unwrap_or_else(std::sync::PoisonError::into_inner).map(|granted| granted.elapsed())
    }
}
