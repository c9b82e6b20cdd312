//! Operations on coins for users and operators.

use std::{sync::Arc, time::Duration};

use futures_util::future::BoxFuture;
use platform::{
    Core,
    batches::{Attempt, BatchError, Batches},
    clock::Clock,
    random::{self, Random},
    rate_limit::{Decision, Limit, RateLimiter},
    reads::Reader,
    shards::Shards,
};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use time::{Date, OffsetDateTime};
use web::{
    ids::{MatchId, UserId},
    paging::{Cursor, CursorPaging, part},
};

use super::{
    ledger::{Book, Movement, Posted, PriorRequest, Refusal, spent_on},
    rules::{self, Bonus, CoinAmount, Kind, Reason, Reference, Remark, Streak, TransactionId},
    settings::Settings,
    store,
    writers::{Decided, Entry, Writer},
};
use crate::identity::{
    accounts::hooks::Welcome,
    idempotency::{KEPT_FOR, KeyOutcome, KeyedRequest, RequestKey, find_used_keys},
    operators::{
        self, Operator,
        service::{Action, CompletedAction},
    },
};

/// Rate limit per user for claiming the daily bonus.
const CLAIMS: Limit = Limit { name: "claim", burst: 10, every: Duration::from_secs(6) };

#[derive(Clone)]
pub struct Coins {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    writers: Batches<Writer>,
    shards: Shards,
    limits: RateLimiter,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    welcome: i64,
    bonus: Bonus,
    reasons: Vec<Reason>,
}

/// A deduction that a user requests.
#[derive(Clone, Debug)]
pub struct Deduction {
    pub amount: CoinAmount,
    pub reason: Reason,
    /// Reference chosen by the app.
    pub reference: Option<Reference>,
    /// The request, if it has an idempotency key.
    pub request: Option<KeyedRequest>,
}

/// A movement that the ledger has.
#[derive(Clone, Debug)]
pub struct Booked {
    pub posted: Posted,
    /// Whether the ledger has it under the idempotency key of the request.
    pub(crate) key_outcome: Option<KeyOutcome>,
    /// Remark of the earlier grant, if the ledger had it under its reference.
    pub(crate) prior_remark: Option<String>,
}

/// A grant that a backend requests.
#[derive(Clone, Debug)]
pub struct Grant {
    pub amount: CoinAmount,
    /// Shown to the user.
    pub remark: Remark,
    pub reference: Option<Reference>,
    pub request: Option<KeyedRequest>,
}

/// A reversal by an operator or a backend.
#[derive(Clone, Debug)]
pub struct Reversal {
    /// `None`: all that is not reversed yet.
    pub amount: Option<CoinAmount>,
    /// `None`: the only transaction of this amount.
    pub id: Option<TransactionId>,
    pub remark: Remark,
    pub request: Option<KeyedRequest>,
}

/// Reason why a deduction or a grant failed.
#[derive(Debug, thiserror::Error)]
pub enum MoveError {
    /// The settings do not allow this reason.
    #[error("the reason is not allowed")]
    UnknownReason {
        /// Reasons that the settings allow.
        allowed: Vec<Reason>,
    },
    /// The ledger refused the movement.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The batch writer failed. The coins may or may not have been moved.
    #[error(transparent)]
    Failed(#[from] BatchError),
}

/// A claimed daily bonus.
#[derive(Clone, Copy, Debug)]
pub struct Claimed {
    /// Total, including the streak bonus.
    pub coins: i64,
    /// Balance after the claim.
    pub balance: i64,
    /// Day of the claim (UTC).
    pub day: Date,
    /// Consecutive days, including this one.
    pub streak_days: i32,
    /// Streak bonus, included in `coins`.
    pub bonus: i64,
}

/// Reason why a claim failed.
#[derive(Debug, thiserror::Error)]
pub enum ClaimError {
    /// The user has already claimed today's bonus.
    #[error("today's bonus has already been claimed")]
    AlreadyClaimed {
        /// Time of the next possible claim.
        next: OffsetDateTime,
    },
    /// The ledger refused the movement.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// A user's balance, streak and history.
#[derive(Debug)]
pub struct Overview {
    pub balance: i64,
    /// Consecutive days on which the user claimed the daily bonus, up to today or yesterday.
    pub streak_days: i32,
    /// Whether the user has claimed today's bonus.
    pub claimed_today: bool,
    /// Coins that the next claim awards.
    pub next_coins: i64,
    /// Earliest time of the next claim.
    pub next_claim_at: OffsetDateTime,
    /// One page of transactions, newest first.
    pub history: Vec<Transaction>,
    /// Cursor of the next page.
    pub next: Option<Cursor>,
}

/// A transaction as its user sees it.
#[derive(Clone, Debug)]
pub struct Transaction {
    /// Number of the transaction in the wallet, from 1.
    pub number: i64,
    pub id: TransactionId,
    pub kind: Kind,
    /// Coins added to the wallet; negative if coins were removed.
    pub amount: i64,
    /// Balance after the transaction.
    pub balance: i64,
    /// Purpose of a deduction, or the operator's explanation.
    pub reason: Option<String>,
    /// Reference chosen by the app.
    pub reference: Option<String>,
    /// Transaction that this one reverses.
    pub reverses: Option<TransactionId>,
    /// Match whose result caused the payout.
    pub event: Option<MatchId>,
    pub created_at: OffsetDateTime,
}

/// Reason why an operator's request failed.
#[derive(Debug, thiserror::Error)]
pub enum OperatorError {
    /// No transaction has this id, or no unreversed transaction has this amount.
    #[error("the user has no matching transaction that can be reversed")]
    NoSuchTransaction,
    /// Several transactions have this amount.
    #[error("several transactions match")]
    Ambiguous(Vec<Candidate>),
    /// Reversals and payouts cannot be reversed.
    #[error("transactions of kind {} cannot be reversed", .0.name())]
    NotReversible(Kind),
    /// The amount exceeds the part of the transaction that is not reversed yet.
    #[error("only {0} coins of the transaction can still be reversed")]
    TooMuch(i64),
    /// The ledger refused the movement.
    #[error(transparent)]
    Refused(#[from] Refusal),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

/// A transaction that the operator may have meant.
#[derive(Clone, Debug)]
pub struct Candidate {
    pub id: TransactionId,
    pub kind: Kind,
    /// Coins added to the wallet; negative if coins were removed.
    pub amount: i64,
    pub created_at: OffsetDateTime,
}

impl Welcome for Coins {
    fn welcome_in<'a>(&'a self, connection: &'a mut PgConnection, user: UserId) -> BoxFuture<'a, sqlx::Result<()>> {
        Box::pin(self.open_wallet_in(connection, user))
    }
}

impl Coins {
    pub fn new(core: &Core, coins: &Settings) -> Self {
        let Core { db, shards, clock, random, limits, .. } = core.clone();
        let writers = (0..coins.writers).map(|_| Writer { shards: shards.clone(), clock: clock.clone() }).collect();
        let writers = Batches::start(&db, &shards, core.writer_settings, coins.queue, writers);
        Self {
            inner: Arc::new(Inner {
                writers,
                shards,
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

    /// Opens the wallet of a user who is being created, with the welcome coins.
    async fn open_wallet_in(&self, connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
        let mut book = Book::open(connection, &self.inner.shards, [user]).await?;
        if self.inner.welcome > 0 {
            let movement = Movement::new(user, self.new_id(), Kind::Welcome, self.inner.welcome, "welcome");
            // An empty wallet never refuses this amount.
            let _ = book.post(movement);
        }
        // The metrics are updated before the commit, because the caller commits. Almost every registration that reaches
        // this point succeeds.
        book.close(connection, self.inner.clock.now()).await?.count();
        Ok(())
    }

    pub async fn balance(&self, user: UserId) -> sqlx::Result<i64> {
        store::balance(&self.inner.db, user).await
    }

    /// Deducts coins from a user's wallet. A deduction happens once per reason and reference, and once per idempotency
    /// key.
    pub async fn deduct(&self, user: UserId, deduction: Deduction) -> Result<Booked, MoveError> {
        self.deduct_as(user, deduction, None).await
    }

    /// Like [`Self::deduct`], for a backend. Whether the user exists is checked as well.
    pub async fn deduct_by(&self, user: UserId, deduction: Deduction, by: Operator) -> Result<Booked, MoveError> {
        self.deduct_as(user, deduction, Some(by)).await
    }

    async fn deduct_as(&self, user: UserId, deduction: Deduction, by: Option<Operator>) -> Result<Booked, MoveError> {
        let Deduction { amount, reason, reference, request } = deduction;
        let reasons = &self.inner.reasons;
        if !reasons.is_empty() && !reasons.contains(&reason) {
            return Err(MoveError::UnknownReason { allowed: reasons.clone() });
        }
        let account = spent_on(&reason);
        let movement = Movement {
            reason: Some(reason.as_str().to_owned()),
            reference: reference.map(|reference| reference.as_str().to_owned()),
            request: request.map(|request| request.key),
            operator: by.as_ref().map(|by| by.name.clone()),
            ..Movement::new(user, self.new_id(), Kind::Deduction, -amount.coins(), account)
        };
        let requested = movement.id;
        let action = by.map(|by| action_of("coins.deduct", &movement, by));
        let outcome = self.inner.writers.write(user.0, Entry { movement, request, action }).await;
        let label = match &outcome {
            Ok(Ok(decided)) if decided.posted.id == requested => "done",
            Ok(Ok(_)) => "repeated",
            Ok(Err(_)) => "refused",
            Err(_) => "failed",
        };
        metrics::counter!("matchday_coins_deductions_total", "outcome" => label).increment(1);
        Ok(outcome??.into())
    }

    /// Grants coins to a user for a backend, once per reference and once per idempotency key.
    pub async fn grant_by(&self, user: UserId, grant: Grant, by: Operator) -> Result<Booked, MoveError> {
        let Grant { amount, remark, reference, request } = grant;
        let movement = Movement {
            request: request.map(|request| request.key),
            ..self.granted(user, amount, &remark, reference.as_ref(), &by.name)
        };
        let action = Some(action_of("coins.grant", &movement, by));
        Ok(self.inner.writers.write(user.0, Entry { movement, request, action }).await??.into())
    }

    fn granted(
        &self,
        user: UserId,
        amount: CoinAmount,
        remark: &Remark,
        reference: Option<&Reference>,
        operator: &str,
    ) -> Movement {
        Movement {
            reason: Some("grant".to_owned()),
            reference: reference.map(|reference| reference.as_str().to_owned()),
            operator: Some(operator.to_owned()),
            remark: Some(remark.as_str().to_owned()),
            ..Movement::new(user, self.new_id(), Kind::Grant, amount.coins(), "granted")
        }
    }

    /// Applies the rate limit for claims.
    pub async fn take_claim(&self, user: UserId) -> Decision {
        self.inner.limits.take(CLAIMS, &user.to_string()).await
    }

    /// Pays a user the daily bonus, at most once per day.
    pub async fn claim(&self, user: UserId, request: Option<RequestKey>) -> Result<Claimed, ClaimError> {
        let now = self.inner.clock.now();
        let today = now.to_offset(time::UtcOffset::UTC).date();
        let mut tx = platform::database::begin(&self.inner.db).await?;
        let mut book = Book::open(&mut tx, &self.inner.shards, [user]).await?;
        if let Some(request) = request
            && let Some(claimed) = store::claim_by_request(&mut tx, user, request, now - KEPT_FOR).await?
        {
            return Ok(claimed);
        }
        let streak = store::streak(&mut *tx, user).await?;
        let Some(award) = self.inner.bonus.award(streak, today) else {
            // The last claim may be for a later day, if another process has a clock that is ahead or midnight passed
            // while this transaction waited.
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

    /// Returns a user's balance and streak with one page of the history.
    pub async fn overview(&self, reader: &Reader, user: UserId, paging: CursorPaging) -> sqlx::Result<Overview> {
        let read = async |db: PgPool| {
            // Reads one snapshot, so that the history explains the balance.
            let mut tx = platform::database::begin_with(&db, "begin isolation level repeatable read read only").await?;
            let balance = store::balance(&mut *tx, user).await?;
            let streak: Option<Streak> = store::streak(&mut *tx, user).await?;
            let history = store::history(&mut *tx, user, paging.after, paging.limit + 1).await?;
            tx.commit().await?;
            Ok((balance, streak, history))
        };
        let (balance, streak, history) = reader.read(read).await?;
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

    /// Grants coins to a user, once per reference. Returns whether this call granted them.
    pub async fn grant(
        &self,
        user: UserId,
        amount: CoinAmount,
        reason: &Remark,
        reference: Option<&Reference>,
        operator: &str,
    ) -> Result<(Posted, bool), OperatorError> {
        let movement = self.granted(user, amount, reason, reference, operator);
        let (now, id) = (self.inner.clock.now(), movement.id);
        let mut tx = platform::database::begin(&self.inner.db).await?;
        let mut book = Book::open(&mut tx, &self.inner.shards, [user]).await?;
        book.load_prior(&mut tx, std::slice::from_ref(&movement), Attempt::First, now).await?;
        let posted = book.post(movement)?;
        let moved = book.close(&mut tx, now).await?;
        if posted.id == id {
            let action = described("coins.grant", user, id, posted.amount);
            operators::service::record(&mut tx, &Operator::new(operator, reason.as_str()), &action, now).await?;
        }
        tx.commit().await?;
        moved.count();
        Ok((posted, posted.id == id))
    }

    /// Reverses a transaction, or part of it, with a new transaction that refers to it. A reversed deduction returns
    /// coins; a reversed credit removes them. Without an id, the amount must identify the transaction.
    pub async fn reverse(
        &self,
        user: UserId,
        amount: CoinAmount,
        id: Option<TransactionId>,
        reason: &Remark,
        operator: &str,
    ) -> Result<(TransactionId, Posted), OperatorError> {
        let reversal = Reversal { amount: Some(amount), id, remark: reason.clone(), request: None };
        let by = Operator::new(operator, reason.as_str());
        self.reverse_by(user, &reversal, &by).await.map(|(meant, booked)| (meant, booked.posted))
    }

    /// Like [`Self::reverse`], also for a backend. Returns the reversed transaction and the new one.
    pub async fn reverse_by(
        &self,
        user: UserId,
        reversal: &Reversal,
        by: &Operator,
    ) -> Result<(TransactionId, Booked), OperatorError> {
        let (now, remark) = (self.inner.clock.now(), reversal.remark.as_str());
        let mut tx = platform::database::begin(&self.inner.db).await?;
        let mut book = Book::open(&mut tx, &self.inner.shards, [user]).await?;
        let mut movement = Movement {
            reason: Some("reversal".to_owned()),
            operator: Some(by.name.clone()),
            remark: Some(remark.to_owned()),
            request: reversal.request.map(|request| request.key),
            ..Movement::new(user, self.new_id(), Kind::Reversal, 0, "")
        };
        if let Some(request) = reversal.request {
            book.load_prior(&mut tx, std::slice::from_ref(&movement), Attempt::First, now).await?;
            if let Some(prior) = book.prior_request(user, request.key) {
                return replayed(&mut tx, user, prior, reversal).await;
            }
            // A request that was refused before is refused again.
            if find_used_keys(&mut tx, &self.inner.shards, &[request]).await?.contains(request) {
                return Err(Refusal::KeyUsed.into());
            }
        }
        let meant = meant(&mut tx, user, reversal).await?;
        let left = meant.amount.abs() - meant.reversed;
        let amount = reversal.amount.map_or(left, CoinAmount::coins);
        if amount > left || left == 0 {
            return Err(OperatorError::TooMuch(left));
        }
        movement.amount = -amount * meant.amount.signum();
        movement.account = meant.account.into();
        movement.reverses = Some(meant.number);
        let posted = book.post(movement)?;
        let moved = book.close(&mut tx, now).await?;
        let action = described("coins.reverse", user, posted.id, posted.amount);
        operators::service::record(&mut tx, by, &action, now).await?;
        tx.commit().await?;
        moved.count();
        let key_outcome = reversal.request.map(|_| KeyOutcome::Stored);
        Ok((meant.id, Booked { posted, key_outcome, prior_remark: None }))
    }
}

/// Returns the transaction that an operator or a backend wants to reverse.
async fn meant(
    connection: &mut PgConnection,
    user: UserId,
    reversal: &Reversal,
) -> Result<store::Reversible, OperatorError> {
    const SHOWN: i64 = 10;
    let amount = reversal.amount.map_or(0, CoinAmount::coins);
    let mut found = store::reversible(connection, user, reversal.id, amount, SHOWN).await?;
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
    match meant.kind {
        Kind::Reversal | Kind::Points => Err(OperatorError::NotReversible(meant.kind)),
        _ => Ok(meant),
    }
}

/// Returns the outcome of a reversal whose idempotency key the ledger has, if it was the same reversal.
async fn replayed(
    connection: &mut PgConnection,
    user: UserId,
    prior: &PriorRequest,
    reversal: &Reversal,
) -> Result<(TransactionId, Booked), OperatorError> {
    let reversed = match prior.reverses {
        Some(number) => store::transaction_id(connection, user, number).await?,
        None => None,
    };
    let is_same = prior.remark.as_deref() == Some(reversal.remark.as_str())
        && reversal.amount.is_none_or(|amount| amount.coins() == prior.posted.amount.abs());
    match reversed.filter(|&id| is_same && reversal.id.is_none_or(|meant| meant == id)) {
        Some(id) => {
            let key_outcome = Some(KeyOutcome::Replayed);
            Ok((id, Booked { posted: prior.posted, key_outcome, prior_remark: None }))
        }
        None => Err(Refusal::KeyUsed.into()),
    }
}

/// Describes a movement for the audit log.
fn described(action: &'static str, user: UserId, id: TransactionId, amount: i64) -> Action {
    Action::new(action, format!("user:{user}")).with(json!({"transaction_id": id.to_string(), "amount": amount}))
}

/// Entry of the audit log for a movement that a batch writes.
fn action_of(action: &'static str, movement: &Movement, operator: Operator) -> CompletedAction {
    let action = described(action, movement.user, movement.id, movement.amount);
    CompletedAction { operator, action, request_id: operators::service::request_id() }
}

impl From<Decided> for Booked {
    fn from(Decided { posted, key_outcome, prior_remark }: Decided) -> Self {
        Self { posted, key_outcome, prior_remark }
    }
}
