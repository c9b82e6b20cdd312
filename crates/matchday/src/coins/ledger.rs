//! The one way in which coins move: wallets are held, movements are decided one after another, and what came of them is
//! written down, all in one transaction of the database.

use std::{
    borrow::Cow,
    collections::{BTreeSet, HashMap},
};

use platform::batches::Attempt;
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::{EventId, UserId};

use super::{
    rules::{Kind, MOST, Reason, TransactionId},
    store,
};
use crate::idempotency::{KEPT_FOR, RequestKey};

/// Coins that are to move between a user's wallet and an account of the house.
#[derive(Clone, Debug)]
pub struct Movement {
    /// Whose wallet.
    pub user: UserId,
    /// What it will be known by.
    pub id: TransactionId,
    /// Why.
    pub kind: Kind,
    /// What the wallet gains; below zero what it loses. Never 0.
    pub amount: i64,
    /// The account of the house.
    pub account: Cow<'static, str>,
    /// What it is for.
    pub reason: Option<String>,
    /// What the app calls it. It happens once for a user, kind, reason and reference.
    pub reference: Option<String>,
    /// The key of the request that asks for it. It happens once for a user and key, as long as keys are kept.
    pub request: Option<RequestKey>,
    /// The number of the transaction that it takes back.
    pub reverses: Option<i64>,
    /// Who does it, if it is not the user.
    pub operator: Option<String>,
    /// What they say of it.
    pub remark: Option<String>,
    /// The match whose result it follows.
    pub event: Option<EventId>,
}

impl Movement {
    /// A movement that nothing more is said of.
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

/// The account that a deduction goes to.
pub fn spent_on(reason: &Reason) -> String {
    format!("spent:{}", reason.as_str())
}

/// User, kind, reason and reference.
pub(super) type ReferenceKey = (UserId, Kind, String, String);

/// A transaction in a wallet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posted {
    /// What clients know it by.
    pub id: TransactionId,
    /// Its number in the wallet.
    pub number: i64,
    /// What the wallet gained.
    pub amount: i64,
    /// What it held afterwards.
    pub balance: i64,
}

/// Why coins did not move.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Refusal {
    /// There are not so many.
    #[error("there are only {balance} coins")]
    Insufficient {
        /// How many there are.
        balance: i64,
    },
    /// The reference was used for another amount.
    #[error("the reference was used for another amount")]
    OtherAmount,
    /// The request's key was used for something else.
    #[error("the key was used for another request")]
    OtherRequest,
    /// A wallet holds no more.
    #[error("the wallet is full")]
    Full,
}

/// What a wallet holds.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Wallet {
    pub(super) balance: i64,
    /// How many transactions it has had.
    pub(super) transactions: i64,
}

/// A transaction, and what was asked for.
#[derive(Clone, Debug)]
pub(super) struct Asked {
    pub(super) posted: Posted,
    pub(super) reason: Option<String>,
    pub(super) reference: Option<String>,
}

/// Some users' wallets, held until the transaction ends.
#[derive(Debug, Default)]
pub(super) struct Book {
    wallets: HashMap<UserId, Wallet>,
    by_reference: HashMap<ReferenceKey, Posted>,
    by_request: HashMap<(UserId, RequestKey), Asked>,
    by_id: HashMap<TransactionId, Posted>,
    written: Vec<(Movement, Posted)>,
}

impl Book {
    /// Holds these users' wallets, and makes those that are missing. Wallets are made before any is held, and held in the
    /// order of their users, so that nobody waits for somebody who waits for them.
    pub(super) async fn open(
        connection: &mut PgConnection,
        users: impl IntoIterator<Item = UserId>,
    ) -> sqlx::Result<Self> {
        let users: Vec<i64> = users.into_iter().map(|user| user.0).collect::<BTreeSet<_>>().into_iter().collect();
        // Of one user there is nothing else to hold, and no need to look first.
        if users.len() > 1 && store::count_wallets(connection, &users).await? < users.len() {
            store::make_wallets(connection, &users).await?;
        }
        let mut wallets = store::hold_wallets(connection, &users).await?;
        if wallets.len() < users.len() {
            store::make_wallets(connection, &users).await?;
            wallets = store::hold_wallets(connection, &users).await?;
        }
        Ok(Self { wallets, ..Self::default() })
    }

    /// Looks whether some of these movements happened before.
    pub(super) async fn recall(
        &mut self,
        connection: &mut PgConnection,
        movements: &[Movement],
        attempt: Attempt,
        now: OffsetDateTime,
    ) -> sqlx::Result<()> {
        let references: Vec<ReferenceKey> = movements.iter().filter_map(Movement::reference_key).collect();
        if !references.is_empty() {
            self.by_reference = store::by_references(connection, &references).await?;
        }
        let requests: Vec<_> =
            movements.iter().filter_map(|movement| Some((movement.user, movement.request?))).collect();
        if !requests.is_empty() {
            self.by_request = store::by_requests(connection, &requests, now - KEPT_FOR).await?;
        }
        if attempt == Attempt::Second {
            let ids: Vec<_> = movements.iter().map(|movement| (movement.user, movement.id)).collect();
            self.by_id = store::by_ids(connection, &ids).await?;
        }
        Ok(())
    }

    /// How many coins a user has.
    pub(super) fn balance(&self, user: UserId) -> i64 {
        self.wallets.get(&user).map_or(0, |wallet| wallet.balance)
    }

    /// Decides a movement: it is done, was done before, or cannot be.
    pub(super) fn post(&mut self, movement: Movement) -> Result<Posted, Refusal> {
        if let Some(&posted) = self.by_id.get(&movement.id) {
            return Ok(posted);
        }
        let request = movement.request.map(|request| (movement.user, request));
        if let Some(asked) = request.as_ref().and_then(|request| self.by_request.get(request)) {
            let is_same = asked.posted.amount == movement.amount
                && asked.reason == movement.reason
                && asked.reference == movement.reference;
            return if is_same { Ok(asked.posted) } else { Err(Refusal::OtherRequest) };
        }
        let reference = movement.reference_key();
        if let Some(&posted) = reference.as_ref().and_then(|reference| self.by_reference.get(reference)) {
            return if posted.amount == movement.amount { Ok(posted) } else { Err(Refusal::OtherAmount) };
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
            let (reason, reference) = (movement.reason.clone(), movement.reference.clone());
            self.by_request.insert(request, Asked { posted, reason, reference });
        }
        if let Some(reference) = reference {
            self.by_reference.insert(reference, posted);
        }
        self.written.push((movement, posted));
        Ok(posted)
    }

    /// Writes down what was done.
    pub(super) async fn close(self, connection: &mut PgConnection, now: OffsetDateTime) -> sqlx::Result<Moved> {
        if self.written.is_empty() {
            return Ok(Moved(Vec::new()));
        }
        let users: BTreeSet<UserId> = self.written.iter().map(|(movement, _)| movement.user).collect();
        let wallets: Vec<(UserId, Wallet)> = users.into_iter().map(|user| (user, self.wallets[&user])).collect();
        store::set_wallets(connection, &wallets).await?;
        store::insert_transactions(connection, &self.written, now).await?;
        store::insert_entries(connection, &self.written).await?;
        Ok(Moved(self.written.iter().map(|(movement, posted)| (movement.kind, posted.amount)).collect()))
    }
}

/// What moved, to be counted once it is committed.
#[must_use = "what moved is counted after the commit"]
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

/// Moves coins, in the caller's transaction; says of each movement what became of it.
pub(super) async fn post(
    connection: &mut PgConnection,
    movements: Vec<Movement>,
    attempt: Attempt,
    now: OffsetDateTime,
) -> sqlx::Result<(Vec<Result<Posted, Refusal>>, Moved)> {
    let mut book = Book::open(connection, movements.iter().map(|movement| movement.user)).await?;
    book.recall(connection, &movements, attempt, now).await?;
    let outcomes = movements.into_iter().map(|movement| book.post(movement)).collect();
    Ok((outcomes, book.close(connection, now).await?))
}
