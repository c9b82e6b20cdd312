//! Payouts: coins for points, if the operator enables them.
//!
//! The first result of a match fixes its rate in coins per point. When a chunk's scores include a result, each of its
//! users is paid the coins that the result is worth, minus the coins already received for the match; a negative
//! difference is reclaimed. Each user is paid once per result, because the payout is written in the same transaction as
//! the movement, while the wallet is locked.

use std::sync::Arc;

use platform::{
    Core,
    clock::Clock,
    random::{self, Random},
    shards::Shards,
};
use sqlx::{PgConnection, PgPool};
use web::ids::{MatchId, UserId};

use super::{
    ledger::{Book, Moved, Movement},
    rules::{self, Kind, Paid, Payout, TransactionId},
    store,
};

/// Number of users paid in one transaction. Larger batches would lock wallets longer than a purchase should wait.
const AT_ONCE: i64 = if cfg!(test) { 2 } else { 500 };

/// Pays coins for points.
#[derive(Clone)]
pub struct Payouts {
    per_point: i64,
    shards: Shards,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// A range of users of a match to be paid for a result.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    pub event: MatchId,
    /// Revision of the result.
    pub revision: i64,
    /// First user id of the range.
    pub from_user: i64,
    /// Exclusive upper bound of the range.
    pub until_user: i64,
}

/// Outcome of paying some users, to be counted after the commit.
pub(crate) struct Settled {
    /// Remaining users of the range.
    pub(crate) left: Option<Slice>,
    slice: Slice,
    moved: Moved,
    written_off: i64,
}

impl Settled {
    /// Records metrics. Call it after the commit.
    pub(crate) fn count(self) {
        let (Slice { event, revision, .. }, written_off) = (self.slice, self.written_off);
        self.moved.count();
        if written_off > 0 {
            metrics::counter!("matchday_coins_written_off_total").increment(written_off.unsigned_abs());
            tracing::warn!(%event, revision, written_off, "coins were written off after a result correction");
        }
    }
}

impl Payouts {
    pub fn new(core: &Core, per_point: u32) -> Self {
        let Core { shards, clock, random, .. } = core.clone();
        Self { per_point: per_point.into(), shards, clock, random }
    }

    /// Returns the coins per point for a match; 0 if it pays nothing. The first result with points fixes the rate, so a
    /// correction uses the rate of the original result.
    pub(crate) async fn rate(&self, db: &PgPool, event: MatchId, has_points: bool) -> sqlx::Result<i64> {
        if has_points {
            store::fix_rate(db, event, self.per_point).await?;
        }
        store::rate(db, event).await
    }

    /// Pays the first users of a slice in the caller's transaction. The caller must ensure that no other worker pays
    /// the same users for another result at the same time.
    pub(crate) async fn pay_some(
        &self,
        connection: &mut PgConnection,
        slice: Slice,
        per_point: i64,
    ) -> sqlx::Result<Settled> {
        let Slice { event, revision, from_user, until_user } = slice;
        let end = store::end_of_slice(connection, event, from_user, until_user, AT_ONCE).await?;
        let points = store::points(connection, event, revision, from_user, end.unwrap_or(until_user)).await?;
        let mut book = Book::open(connection, &self.shards, points.iter().map(|&(user, _)| user)).await?;
        let users: Vec<i64> = points.iter().map(|(user, _)| user.0).collect();
        let paid = store::paid(connection, event, &users).await?;
        let mut payouts: Vec<(UserId, Payout, Paid, Option<i64>)> = Vec::new();
        for (user, points) in points {
            let (paid_by, before) = paid.get(&user).copied().unwrap_or_default();
            if paid_by >= revision {
                continue;
            }
            let payout = before.payout_for(rules::worth(points, per_point), book.balance(user));
            let number = if payout.amount == 0 {
                None
            } else {
                let id = TransactionId(random::uuid_v7(&*self.random, &*self.clock));
                let movement = Movement::new(user, id, Kind::Points, payout.amount, "points");
                // The amount was computed to fit the wallet, so the ledger does not refuse it.
                book.post(Movement { event: Some(event), ..movement }).ok().map(|posted| posted.number)
            };
            payouts.push((user, payout, before.after(payout), number));
        }
        let moved = book.close(connection, self.clock.now()).await?;
        store::insert_payouts(connection, event, revision, &payouts).await?;
        let written_off = payouts.iter().map(|(_, payout, ..)| payout.written_off).sum();
        let left = end.map(|from_user| Slice { from_user, ..slice });
        Ok(Settled { left, slice, moved, written_off })
    }
}
