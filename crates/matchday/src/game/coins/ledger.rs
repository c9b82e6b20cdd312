//! The only code that moves coins. In one database transaction, it locks wallets, decides movements one after another,
//! and writes the outcome.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

use platform::{
    batches::Attempt,
    shards::{Ranges, Shards},
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::{MatchId, UserId};

use super::{
    rules::{Kind, MOST, Reason, TransactionId},
    store,
};
use crate::identity::idempotency::{KEPT_FOR, RequestKey};

/// A movement of coins between a user's wallet and a house account.
#[derive(Clone, Debug)]
pub struct Movement {
    /// Owner of the wallet.
    pub user: UserId,
    pub id: TransactionId,
    pub kind: Kind,
    /// Coins added to the wallet; negative if coins are removed. Never 0.
    pub amount: i64,
    /// House account on the other side of the movement.
    pub account: Cow<'static, str>,
    pub reason: Option<String>,
    /// Reference chosen by the app. A movement happens once per user, kind, reason and reference.
    pub reference: Option<String>,
    /// Idempotency key of the request. A movement happens once per user and key, for as long as keys are kept.
    pub request: Option<RequestKey>,
    /// Number of the transaction that this one reverses.
    pub reverses: Option<i64>,
    /// Operator who moves the coins, if it is not the user.
    pub operator: Option<String>,
    pub remark: Option<String>,
    /// Match whose result causes a payout.
    pub event: Option<MatchId>,
}

impl Movement {
    /// Creates a movement with only the mandatory fields.
    pub fn new(
        user: UserId,
        id: TransactionId,
        kind: Kind,
        amount: i64,
        account: impl Into<Cow<'static, str>>,
    ) -> Self {
        Self {
            user,
            id,
            kind,
            amount,
            account: account.into(),
            reason: None,
            reference: None,
            request: None,
            reverses: None,
            operator: None,
            remark: None,
            event: None,
        }
    }

    fn reference_key(&self) -> Option<ReferenceKey> {
        let reference = self.reference.clone()?;
        Some((self.user, self.kind, self.reason.clone().unwrap_or_default(), reference))
    }
}

/// Returns the house account that a deduction is booked to.
pub fn spent_on(reason: &Reason) -> String {
    format!("spent:{}", reason.as_str())
}

pub(super) type ReferenceKey = (UserId, Kind, String, String);

/// A transaction that was written to a wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    pub id: TransactionId,
    /// Number of the transaction in the wallet, from 1.
    pub number: i64,
    /// Coins added to the wallet; negative if coins were removed.
    pub amount: i64,
    /// Balance after the transaction.
    pub balance: i64,
}

/// Reason why the ledger refused a movement.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    #[error("the wallet has only {balance} coins")]
    Insufficient {
        /// Current balance of the wallet.
        balance: i64,
    },
    #[error("the reference was used for another amount")]
    OtherAmount,
    /// Repeating the first response would state a movement that no longer counts.
    #[error("the transaction with this reference was reversed")]
    Reversed,
    /// The idempotency key was used before, for another movement or for a refused movement.
    #[error("the idempotency key was used before")]
    KeyUsed,
    #[error("the user does not exist")]
    NoSuchUser,
    /// The balance would exceed [`MOST`].
    #[error("the wallet is full")]
    Full,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wallet {
    pub(super) balance: i64,
    /// Number of transactions in the wallet; the last one has this number.
    pub(super) transactions: i64,
}

/// A transaction found by reference.
#[derive(Clone, Debug)]
pub(super) struct PriorReference {
    pub(super) posted: Posted,
    /// Remark of a grant.
    pub(super) remark: Option<String>,
    /// Whether all of it was reversed.
    pub(super) is_reversed: bool,
}

/// A transaction found by idempotency key, with the fields that show whether a request repeats it.
#[derive(Clone, Debug)]
pub(super) struct PriorRequest {
    pub(super) posted: Posted,
    pub(super) reason: Option<String>,
    pub(super) reference: Option<String>,
    pub(super) remark: Option<String>,
    /// Number of the transaction that it reverses.
    pub(super) reverses: Option<i64>,
}

/// Locked wallets of some users, with the movements decided so far.
#[derive(Debug, Default)]
pub(super) struct Book {
    wallets: HashMap<UserId, Wallet>,
    by_reference: HashMap<ReferenceKey, PriorReference>,
    by_request: HashMap<(UserId, RequestKey), PriorRequest>,
    by_id: HashMap<TransactionId, Posted>,
    written: Vec<(Movement, Posted)>,
    shards: Ranges,
}

impl Book {
    /// Locks these users' wallets and creates missing ones. To prevent deadlocks, it creates wallets before it locks
    /// any, and locks them in the order of shards and user ids. A statement can lock rows of one shard only.
    pub(super) async fn open(
        connection: &mut PgConnection,
        shards: &Shards,
        users: impl IntoIterator<Item = UserId>,
    ) -> sqlx::Result<Self> {
        let users: Vec<i64> = users.into_iter().map(|user| user.0).collect::<BTreeSet<_>>().into_iter().collect();
        // A single user needs no lock order, so the count is skipped.
        if users.len() > 1 && store::count_wallets(connection, &users).await? < users.len() {
            store::make_wallets(connection, &users).await?;
        }
        let shards = shards.get(connection).await?.clone();
        let mut wallets = HashMap::with_capacity(users.len());
        for group in shards.group(&users) {
            let mut locked = store::lock_wallets(connection, &group).await?;
            if locked.len() < group.len() {
                store::make_wallets(connection, &group).await?;
                locked = store::lock_wallets(connection, &group).await?;
            }
            wallets.extend(locked);
        }
        Ok(Self { wallets, shards, ..Self::default() })
    }

    /// Loads transactions that were already written for these movements.
    pub(super) async fn load_prior(
        &mut self,
        connection: &mut PgConnection,
        movements: &[Movement],
        attempt: Attempt,
        now: OffsetDateTime,
    ) -> sqlx::Result<()> {
        let references: Vec<ReferenceKey> = movements.iter().filter_map(Movement::reference_key).collect();
        if !references.is_empty() {
            self.by_reference = store::by_references(connection, &self.shards, &references).await?;
        }
        let requests: Vec<_> =
            movements.iter().filter_map(|movement| Some((movement.user, movement.request?))).collect();
        if !requests.is_empty() {
            self.by_request = store::by_requests(connection, &self.shards, &requests, now - KEPT_FOR).await?;
        }
        if attempt == Attempt::Second {
            let ids: Vec<_> = movements.iter().map(|movement| (movement.user, movement.id)).collect();
            self.by_id = store::by_ids(connection, &ids).await?;
        }
        Ok(())
    }

    /// Whether a transaction has the idempotency key of this movement.
    pub(super) fn has_request(&self, movement: &Movement) -> bool {
        movement.request.is_some_and(|request| self.by_request.contains_key(&(movement.user, request)))
    }

    /// The transaction with this idempotency key.
    pub(super) fn prior_request(&self, user: UserId, request: RequestKey) -> Option<&PriorRequest> {
        self.by_request.get(&(user, request))
    }

    /// Remark of the earlier transaction with the reference of this movement.
    pub(super) fn prior_remark(&self, movement: &Movement) -> Option<String> {
        self.by_reference.get(&movement.reference_key()?)?.remark.clone()
    }

    /// Number of movements that [`Self::close`] writes.
    pub(super) fn written(&self) -> usize {
        self.written.len()
    }

    pub(super) fn balance(&self, user: UserId) -> i64 {
        self.wallets.get(&user).map_or(0, |wallet| wallet.balance)
    }

    /// Decides a movement: posts it, returns the transaction of an earlier attempt, or refuses it.
    pub(super) fn post(&mut self, movement: Movement) -> Result<Posted, Refusal> {
        if let Some(&posted) = self.by_id.get(&movement.id) {
            return Ok(posted);
        }
        let request = movement.request.map(|request| (movement.user, request));
        if let Some(prior) = request.as_ref().and_then(|request| self.by_request.get(request)) {
            let is_same = prior.posted.amount == movement.amount
                && prior.reason == movement.reason
                && prior.reference == movement.reference
                && prior.remark == movement.remark;
            return if is_same { Ok(prior.posted) } else { Err(Refusal::KeyUsed) };
        }
        let reference = movement.reference_key();
        if let Some(prior) = reference.as_ref().and_then(|reference| self.by_reference.get(reference)) {
            return match prior {
                PriorReference { posted, .. } if posted.amount != movement.amount => Err(Refusal::OtherAmount),
                PriorReference { is_reversed: true, .. } => Err(Refusal::Reversed),
                PriorReference { posted, .. } => Ok(*posted),
            };
        }
        let wallet = self.wallets.entry(movement.user).or_default();
        let balance = wallet.balance.checked_add(movement.amount).filter(|&balance| balance <= MOST);
        let balance = balance.ok_or(Refusal::Full)?;
        if balance < 0 {
            return Err(Refusal::Insufficient { balance: wallet.balance });
        }
        *wallet = Wallet { balance, transactions: wallet.transactions + 1 };
        let posted = Posted { id: movement.id, number: wallet.transactions, amount: movement.amount, balance };
        if let Some(request) = request {
            let Movement { reason, reference, remark, reverses, .. } = movement.clone();
            self.by_request.insert(request, PriorRequest { posted, reason, reference, remark, reverses });
        }
        if let Some(reference) = reference {
            let prior = PriorReference { posted, remark: movement.remark.clone(), is_reversed: false };
            self.by_reference.insert(reference, prior);
        }
        self.written.push((movement, posted));
        Ok(posted)
    }

    /// Writes the decided movements to the database.
    pub(super) async fn close(self, connection: &mut PgConnection, now: OffsetDateTime) -> sqlx::Result<Moved> {
        if self.written.is_empty() {
            return Ok(Moved(Vec::new()));
        }
        let users: BTreeSet<UserId> = self.written.iter().map(|(movement, _)| movement.user).collect();
        let wallets: Vec<(UserId, Wallet)> = users.into_iter().map(|user| (user, self.wallets[&user])).collect();
        store::set_wallets(connection, &self.shards, &wallets).await?;
        store::insert_transactions(connection, &self.written, now).await?;
        store::insert_entries(connection, &self.written).await?;
        Ok(Moved(self.written.iter().map(|(movement, posted)| (movement.kind, posted.amount)).collect()))
    }
}

/// Coins moved by a transaction, for the metrics. Count them only after the commit.
#[must_use = "count the moved coins after the commit"]
pub(super) struct Moved(Vec<(Kind, i64)>);

impl Moved {
    pub(super) fn count(self) {
        for (kind, amount) in self.0 {
            let direction = if amount > 0 { "in" } else { "out" };
            metrics::counter!("matchday_coins_moved_total", "kind" => kind.name(), "direction" => direction)
                .increment(amount.unsigned_abs());
        }
    }
}
