//! Batches of users who are notified of a change or a result of a match.
//!
//! A batch is a range of user ids. Its row says up to which user notifications are claimed. A worker moves this mark
//! before it sends, and only from the place where it found it, so of two workers one gets the range. This costs one
//! statement for many users, where a row for each of a million users would cost more than sending.
//!
//! The first plan of a fact determines the batches: the row of each batch is inserted before it is queued, and every later
//! plan of this fact continues after the last row. Each user is therefore in one batch, even if users delete their
//! accounts between two plans.

use sqlx::PgPool;
use web::ids::{MatchId, UserId};

use super::store;

/// The fact whose users are notified, and the place of a batch among its users.
#[derive(Clone, Debug)]
pub(super) struct BatchKey {
    pub(super) event: MatchId,
    /// Kind of fact, and what distinguishes it from others of the same match.
    pub(super) topic: String,
    /// The batch starts after this user.
    pub(super) after: UserId,
}

/// Progress of the claims in a batch.
#[derive(Debug)]
pub(super) struct BatchClaims {
    key: BatchKey,
    /// Users up to this one are claimed.
    claimed: UserId,
    /// Last user of the batch.
    until: UserId,
}

impl BatchClaims {
    /// Reads a batch; `None` if its row was swept.
    pub(super) async fn read(db: &PgPool, key: &BatchKey) -> sqlx::Result<Option<Self>> {
        let row = store::batch(db, key).await?;
        Ok(row.map(|(claimed, until)| Self { key: key.clone(), claimed, until }))
    }

    /// Returns the range of users who are not claimed yet: after the first one, up to the second one. `None` if all are.
    pub(super) fn rest(&self) -> Option<(UserId, UserId)> {
        (self.claimed < self.until).then_some((self.claimed, self.until))
    }

    /// Claims the users up to this one. Returns false if another worker has claimed users meanwhile; the rest then starts
    /// after those.
    pub(super) async fn claim(&mut self, db: &PgPool, until: UserId) -> sqlx::Result<bool> {
        if until <= self.claimed {
            return Ok(true);
        }
        if store::claim_users(db, &self.key, self.claimed, until).await? {
            self.claimed = until;
            return Ok(true);
        }
        // A batch without a row has nothing left to claim.
        self.claimed = store::batch(db, &self.key).await?.map_or(self.until, |(claimed, _)| claimed);
        Ok(false)
    }
}
