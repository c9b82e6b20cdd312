//! What users and operators do with coins.

use std::{sync::Arc, time::Duration};

use platform::{
    Core,
    batches::{Attempt, BatchError, Batches},
    clock::Clock,
    random::{self, Random},
    rate_limit::{Decision, Limit, RateLimiter},
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use time::{Date, OffsetDateTime};
use web::{
    ids::{EventId, UserId},
    paging::{Cursor, CursorPaging, part},
};

use super::{
    ledger::{Book, Movement, Posted, Refusal, spent_on},
    rules::{self, Bonus, CoinAmount, Kind, Reason, Reference, Remark, Streak, TransactionId},
    settings::Settings,
    store,
    writers::Writer,
};
use crate::{
    idempotency::{KEPT_FOR, RequestKey},
    operators::{self, Operator, service::Deed},
};

/// How often a user may try to claim the daily bonus.
const CLAIMS: Limit = Limit { name: "claim", burst: 10, every: Duration::from_secs(6) };

/// The coins of everybody.
#[derive(Clone)]
pub struct Coins {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    writers: Batches<Writer>,
    limits: RateLimiter,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    welcome: i64,
    bonus: Bonus,
    reasons: Vec<Reason>,
}

/// What a user spends.
#[derive(Clone, Debug)]
pub struct Deduction {
    /// How much.
    pub amount: CoinAmount,
    /// What for.
    pub reason: Reason,
    /// What the app calls it.
    pub reference: Option<Reference>,
    /// The key of the request that asks for it.
    pub request: Option<RequestKey>,
}

/// Why nothing was deducted.
#[derive(Debug, thiserror::Error)]
pub enum DeductError {
    /// The operator allows other reasons only.
    #[error("the reason is not allowed")]
    UnknownReason {
        /// All of them.
        allowed: Vec<Reason>,
    },
    /// The ledger refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// It may have been deducted or not.
    #[error(transparent)]
    Failed(#[from] BatchError),
}

/// A daily bonus that was claimed.
#[derive(Clone, Copy, Debug)]
pub struct Claimed {
    /// All of it.
    pub coins: i64,
    /// How many coins the user had afterwards.
    pub balance: i64,
    /// The day, in UTC.
    pub day: Date,
    /// How many days in a row, this one included.
    pub streak_days: i32,
    /// The part that is for the streak.
    pub bonus: i64,
}

/// Why no bonus was given.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The user has had it.
    #[error("today's bonus was claimed already")]
    AlreadyClaimed {
        /// When there is another one.
        next: OffsetDateTime,
    },
    /// The ledger refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// How a user stands.
#[derive(Debug)]
pub struct Overview {
    /// How many coins they have.
    pub balance: i64,
    /// How many days in a row they have claimed the daily bonus, up to today or yesterday.
    pub streak_days: i32,
    /// Whether today's is among them.
    pub claimed_today: bool,
    /// What they get with the next claim.
    pub next_coins: i64,
    /// When they can claim it.
    pub next_claim_at: OffsetDateTime,
    /// What moved, the newest first.
    pub history: Vec<Transaction>,
    /// Where the rest of it begins.
    pub next: Option<Cursor>,
}

/// A transaction, as its user sees it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Its number in the wallet.
    pub number: i64,
    /// What clients know it by.
    pub id: TransactionId,
    /// Why coins moved.
    pub kind: Kind,
    /// What the wallet gained.
    pub amount: i64,
    /// What it held afterwards.
    pub balance: i64,
    /// What it was for.
    pub reason: Option<String>,
    /// What the app calls it.
    pub reference: Option<String>,
    /// The transaction that it takes back.
    pub reverses: Option<TransactionId>,
    /// The match whose result it follows.
    pub event: Option<EventId>,
    /// When.
    pub created_at: OffsetDateTime,
}

/// Why an operator's wish was not carried out.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// The user has none with that id, or of that size.
    #[error("the user has no such transaction that was not taken back")]
    NoSuchTransaction,
    /// Several fit.
    #[error("several transactions fit")]
    Ambiguous(Vec<Candidate>),
    /// A reversal, or coins that follow results.
    #[error("a transaction of kind {} is not taken back by hand", .0.name())]
    NotReversible(Kind),
    /// Less is left of it.
    #[error("only {0} of it are left to be taken back")]
    TooMuch(i64),
    /// The ledger refuses.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// A transaction that an operator may have meant.
#[derive(Clone, Debug)]
pub struct Candidate {
    /// What clients know it by.
    pub id: TransactionId,
    /// Why coins moved.
    pub kind: Kind,
    /// What the wallet gained.
    pub amount: i64,
    /// When.
    pub created_at: OffsetDateTime,
}

impl Coins {
    /// Coins in this database.
    pub fn new(core: &Core, coins: &Settings) -> Self {
        let Core { db, clock, random, limits, .. } = core.clone();
        let writers = (0..coins.writers).map(|_| Writer { clock: clock.clone() }).collect();
        let writers = Batches::start(&db, core.statement_timeout, coins.queue, writers);
        Self {
            inner: Arc::new(Inner {
                writers,
                limits,
                clock,
                random,
                welcome: coins.welcome.into(),
                bonus: Bonus {
                    daily: coins.daily.into(),
                    step: coins.streak_step.into(),
                    most: coins.streak_most.into(),
                },
                reasons: coins.reasons.clone(),
                db,
            }),
        }
    }

    pub(super) fn database(&self) -> &PgPool {
        &self.inner.db
    }

    fn new_id(&self) -> TransactionId {
        TransactionId(random::uuid_v7(&*self.inner.random, &*self.inner.clock))
    }

    /// Opens the wallet of a user who is being made, with what every newcomer gets.
    pub async fn welcome_in(&self, connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
        let mut book = Book::open(connection, [user]).await?;
        if self.inner.welcome > 0 {
            let movement = Movement::new(user, self.new_id(), Kind::Welcome, self.inner.welcome, "welcome");
            // An empty wallet takes it.
            let _ = book.post(movement);
        }
        // Nearly every registration that came this far is committed.
        book.close(connection, self.inner.clock.now()).await?.count();
        Ok(())
    }

    /// How many coins a user has.
    pub async fn balance(&self, user: UserId) -> sqlx::Result<i64> {
        store::balance(&self.inner.db, user).await
    }

    /// Takes coins out of a user's wallet: once for a reason and reference, and once for a request.
    pub async fn deduct(&self, user: UserId, deduction: Deduction) -> Result<Posted, DeductError> {
        let Deduction { amount, reason, reference, request } = deduction;
        let reasons = &self.inner.reasons;
        if !reasons.is_empty() && !reasons.contains(&reason) {
            return Err(DeductError::UnknownReason { allowed: reasons.clone() });
        }
        let account = spent_on(&reason);
        let movement = Movement {
            reason: Some(reason.as_str().to_owned()),
            reference: reference.map(|reference| reference.as_str().to_owned()),
            request,
            ..Movement::new(user, self.new_id(), Kind::Deduction, -amount.coins(), account)
        };
        let wanted = movement.id;
        let outcome = self.inner.writers.write(user.0, movement).await;
        let label = match &outcome {
            Ok(Ok(posted)) if posted.id == wanted => "done",
            Ok(Ok(_)) => "repeated",
            Ok(Err(_)) => "refused",
            Err(_) => "failed",
        };
        metrics::counter!("matchday_coins_deductions_total", "outcome" => label).increment(1);
        Ok(outcome??)
    }

    /// Whether a user may try to claim the daily bonus now.
    pub async fn take_claim(&self, user: UserId) -> Decision {
        self.inner.limits.take(CLAIMS, &user.to_string()).await
    }

    /// Gives a user the bonus of the day, once.
    pub async fn claim(&self, user: UserId, request: Option<RequestKey>) -> Result<Claimed, ClaimError> {
        let now = self.inner.clock.now();
        let today = now.to_offset(time::UtcOffset::UTC).date();
        let mut tx = self.inner.db.begin().await?;
        let mut book = Book::open(&mut tx, [user]).await?;
        if let Some(request) = request
            && let Some(claimed) = store::claim_by_request(&mut tx, user, request, now - KEPT_FOR).await?
        {
            return Ok(claimed);
        }
        let streak = store::streak(&mut *tx, user).await?;
        let Some(award) = self.inner.bonus.award(streak, today) else {
            // The last claim may be of a day that has begun by another process's clock, or while this one waited.
            let last = streak.map_or(today, |streak| streak.last.max(today));
            return Err(ClaimError::AlreadyClaimed { next: rules::next_midnight(last) });
        };
        let movement = Movement { request, ..Movement::new(user, self.new_id(), Kind::Daily, award.coins, "daily") };
        let posted = book.post(movement)?;
        let moved = book.close(&mut tx, now).await?;
        store::insert_claim(&mut tx, user, &award, posted.number).await?;
        tx.commit().await?;
        moved.count();
        let (streak_days, bonus) = (award.streak.days, award.bonus);
        Ok(Claimed { coins: award.coins, balance: posted.balance, day: today, streak_days, bonus })
    }

    /// How a user stands, with a part of what moved.
    pub async fn overview(&self, user: UserId, paging: CursorPaging) -> sqlx::Result<Overview> {
        // One state of the wallet: a balance that its history does not explain helps nobody.
        let mut tx = self.inner.db.begin_with("begin isolation level repeatable read read only").await?;
        let balance = store::balance(&mut *tx, user).await?;
        let streak: Option<Streak> = store::streak(&mut *tx, user).await?;
        let history = store::history(&mut *tx, user, paging.after, paging.limit + 1).await?;
        tx.commit().await?;
        let today = self.inner.clock.now().to_offset(time::UtcOffset::UTC).date();
        let bonus = self.inner.bonus;
        let award = bonus.award(streak, today);
        let after = |streak: Streak| streak.last.next_day().and_then(|day| bonus.award(Some(streak), day));
        let next_coins = award.or_else(|| streak.and_then(after)).map_or(bonus.daily, |award| award.coins);
        let (history, next) = part(history, paging.limit, |transaction| transaction.number);
        Ok(Overview {
            balance,
            streak_days: streak.map_or(0, |streak| streak.days_on(today)),
            claimed_today: award.is_none(),
            next_coins,
            next_claim_at: if award.is_some() { self.inner.clock.now() } else { rules::next_midnight(today) },
            history,
            next,
        })
    }

    /// Gives a user coins; once for a reference, and says whether that was now.
    pub async fn grant(
        &self,
        user: UserId,
        amount: CoinAmount,
        reason: &Remark,
        reference: Option<&Reference>,
        operator: &str,
    ) -> Result<(Posted, bool), OperatorError> {
        let movement = Movement {
            reason: Some("grant".to_owned()),
            reference: reference.map(|reference| reference.as_str().to_owned()),
            operator: Some(operator.to_owned()),
            remark: Some(reason.as_str().to_owned()),
            ..Movement::new(user, self.new_id(), Kind::Grant, amount.coins(), "granted")
        };
        let (now, id) = (self.inner.clock.now(), movement.id);
        let mut tx = self.inner.db.begin().await?;
        let mut book = Book::open(&mut tx, [user]).await?;
        book.recall(&mut tx, std::slice::from_ref(&movement), Attempt::First, now).await?;
        let posted = book.post(movement)?;
        let moved = book.close(&mut tx, now).await?;
        if posted.id == id {
            let details = json!({"amount": amount.coins(), "transaction": id.to_string()});
            let deed = Deed::new("coins.grant", format!("user:{user}")).with(details);
            operators::service::record(&mut tx, &Operator::new(operator, reason.as_str()), &deed, now).await?;
        }
        tx.commit().await?;
        moved.count();
        Ok((posted, posted.id == id))
    }

    /// Takes back a transaction, or a part of it, by a new one that names it: what was spent returns, what was given goes.
    /// Without an id the amount must tell which one is meant.
    pub async fn reverse(
        &self,
        user: UserId,
        amount: CoinAmount,
        id: Option<TransactionId>,
        reason: &Remark,
        operator: &str,
    ) -> Result<(TransactionId, Posted), OperatorError> {
        const SHOWN: i64 = 10;
        let mut tx = self.inner.db.begin().await?;
        let mut book = Book::open(&mut tx, [user]).await?;
        let mut found = store::reversible(&mut tx, user, id, amount.coins(), SHOWN).await?;
        if found.len() > 1 {
            let candidate = |found: store::Reversible| Candidate {
                id: found.id,
                kind: found.kind,
                amount: found.amount,
                created_at: found.created_at,
            };
            return Err(OperatorError::Ambiguous(found.into_iter().map(candidate).collect()));
        }
        let meant = found.pop().ok_or(OperatorError::NoSuchTransaction)?;
        if matches!(meant.kind, Kind::Reversal | Kind::Points) {
            return Err(OperatorError::NotReversible(meant.kind));
        }
        let left = meant.amount.abs() - meant.reversed;
        if amount.coins() > left {
            return Err(OperatorError::TooMuch(left));
        }
        let change = -amount.coins() * meant.amount.signum();
        let movement = Movement {
            reason: Some("reversal".to_owned()),
            reverses: Some(meant.number),
            operator: Some(operator.to_owned()),
            remark: Some(reason.as_str().to_owned()),
            ..Movement::new(user, self.new_id(), Kind::Reversal, change, meant.account)
        };
        let (posted, now) = (book.post(movement)?, self.inner.clock.now());
        let moved = book.close(&mut tx, now).await?;
        let details = json!({"amount": amount.coins(), "transaction": meant.id.to_string()});
        let deed = Deed::new("coins.reverse", format!("user:{user}")).with(details);
        operators::service::record(&mut tx, &Operator::new(operator, reason.as_str()), &deed, now).await?;
        tx.commit().await?;
        moved.count();
        Ok((meant.id, posted))
    }
}
