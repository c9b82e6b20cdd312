//! Points become coins, if the operator wants that.
//!
//! What a point is worth is fixed for a match with its first result. Once a chunk of users has a result in its scores, its
//! users are paid what that result is worth to them beyond what they have had, or lose what it is worth less: once for
//! each user and result, because what was paid is written with the transaction that pays it, while the wallet is held.

use std::sync::Arc;

use platform::{
    Core,
    clock::Clock,
    random::{self, Random},
};
use sqlx::{PgConnection, PgPool};
use web::ids::{MatchId, UserId};

use super::{
    ledger::{Book, Moved, Movement},
    rules::{self, Kind, Paid, Payout, TransactionId},
    store,
};

/// How many users are paid by one transaction. More would hold their wallets for longer than a purchase likes to wait.
const AT_ONCE: i64 = if cfg!(test) { 2 } else { 500 };

/// What pays for points.
#[derive(Clone)]
pub struct Payouts {
    per_point: i64,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// Users of a match who are to be paid by a result.
#[derive(Clone, Copy, Debug)]
pub struct Slice {
    /// The match.
    pub event: MatchId,
    /// Its result.
    pub revision: i64,
    /// Users from this id.
    pub from_user: i64,
    /// Up to this one.
    pub until_user: i64,
}

/// Users who were paid, once the transaction is committed.
pub(crate) struct Settled {
    /// Who is still to be paid.
    pub(crate) left: Option<Slice>,
    slice: Slice,
    moved: Moved,
    written_off: i64,
}

impl Settled {
    /// Counts what moved, after the commit.
    pub(crate) fn count(self) {
        let (Slice { event, revision, .. }, written_off) = (self.slice, self.written_off);
        self.moved.count();
        if written_off > 0 {
            metrics::counter!("matchday_coins_written_off_total").increment(written_off.unsigned_abs());
            tracing::warn!(%event, revision, written_off, "coins that a corrected result takes back were spent already");
        }
    }
}

impl Payouts {
    /// Pays so many coins for each point.
    pub fn new(core: &Core, per_point: u32) -> Self {
        Self { per_point: per_point.into(), clock: core.clock.clone(), random: core.random.clone() }
    }

    /// What a point earned with a match is worth; 0 where it pays nothing. Its first result with points fixes that, so that
    /// a correction is paid as the first one was.
    pub(crate) async fn rate(&self, db: &PgPool, event: MatchId, has_points: bool) -> sqlx::Result<i64> {
        if has_points {
            store::fix_rate(db, event, self.per_point).await?;
        }
        store::rate(db, event).await
    }

    /// Pays some users of a slice in the caller's transaction, so much for each point. The caller makes sure that nobody
    /// pays the same users by another result meanwhile.
    pub(crate) async fn pay_some(
        &self,
        connection: &mut PgConnection,
        slice: Slice,
        per_point: i64,
    ) -> sqlx::Result<Settled> {
        let Slice { event, revision, from_user, until_user } = slice;
        let end = store::end_of_slice(connection, event, from_user, until_user, AT_ONCE).await?;
        let points = store::points(connection, event, revision, from_user, end.unwrap_or(until_user)).await?;
        let mut book = Book::open(connection, points.iter().map(|&(user, _)| user)).await?;
        let users: Vec<i64> = points.iter().map(|(user, _)| user.0).collect();
        let paid = store::paid(connection, event, &users).await?;
        let mut payouts: Vec<(UserId, Payout, Paid, Option<i64>)> = Vec::new();
        for (user, points) in points {
            let (paid_by, before) = paid.get(&user).copied().unwrap_or_default();
            if paid_by >= revision {
                continue;
            }
            let payout = before.bring_to(rules::worth(points, per_point), book.balance(user));
            let number = if payout.amount == 0 {
                None
            } else {
                let id = TransactionId(random::uuid_v7(&*self.random, &*self.clock));
                let movement = Movement::new(user, id, Kind::Points, payout.amount, "points");
                // It was made to fit the wallet.
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
