//! Work that only one process may do at a time, held by a lease in the database.
//!
//! A lease ends by itself when its holder falls silent, also when the holder is merely paused and its connections stay
//! open, which a lock bound to a connection would not survive.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use sqlx::PgPool;
use uuid::Uuid;

/// One process's claim to a named piece of work.
#[derive(Debug)]
pub struct Lease {
    name: &'static str,
    holder: Uuid,
    length: Duration,
    /// When it was last granted, by this process's monotonic clock, taken before the question was asked.
    granted: Mutex<Option<Instant>>,
}

impl Lease {
    /// A claim that has not been made yet. `holder` must be this process's alone.
    pub fn new(name: &'static str, holder: Uuid, length: Duration) -> Self {
        Self { name, holder, length, granted: Mutex::new(None) }
    }

    /// Takes or renews the lease where it is free or ours; returns whether we hold it.
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

    /// Whether what we were granted still lasts, with a third of its length to spare.
    pub fn is_fresh(&self) -> bool {
        self.age().is_some_and(|age| age < self.length * 2 / 3)
    }

    /// Gives the lease back, so that another process need not wait for its end.
    pub async fn release(&self, db: &PgPool) -> sqlx::Result<()> {
        *self.granted.lock().unwrap_or_else(std::sync::PoisonError::into_inner) = None;
        sqlx::query!("delete from leases where name = $1 and holder = $2", self.name, self.holder).execute(db).await?;
        Ok(())
    }

    fn age(&self) -> Option<Duration> {
        self.granted.lock().unwrap_or_else(std::sync::PoisonError::into_inner).map(|granted| granted.elapsed())
    }
}
