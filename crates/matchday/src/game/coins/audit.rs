//! Audit of the ledger: checks that wallets, transactions and entries add up.

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use web::ids::UserId;

use super::{service::Coins, store};

/// Size of the id range that one statement checks.
const USERS_AT_ONCE: i64 = 10_000;

/// Maximum number of transactions that one statement checks, unless a single user has more. The id range shrinks if its
/// users have too many.
const TRANSACTIONS_AT_ONCE: i64 = 50_000;

/// An inconsistency in the ledger.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Owner of the wallet.
    pub user: UserId,
    /// Number of the transaction, if the inconsistency concerns one.
    pub number: Option<i64>,
    /// Description with the found and the expected value.
    pub fault: String,
}

/// Totals over all wallets and accounts.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    pub wallets: i64,
    pub transactions: i64,
    /// Balance by account name. All accounts for deductions are combined into one.
    pub accounts: BTreeMap<String, i128>,
}

impl Totals {
    /// Sum over all accounts. Any value other than 0 means that coins were created or lost.
    pub fn sum(&self) -> i128 {
        self.accounts.values().sum()
    }
}

impl Coins {
    /// Checks every wallet and its history in batches of users, each on one snapshot of the database, and passes every
    /// inconsistency to `differs`. Calls `progress` with the number of wallets checked so far and the total.
    pub async fn audit(
        &self,
        progress: impl Fn(i64, i64),
        mut differs: impl FnMut(Difference),
    ) -> sqlx::Result<Totals> {
        let db = self.database();
        let all = store::wallets(db).await?;
        let mut totals = Totals::default();
        let mut next = store::next_user(db, i64::MIN).await?;
        while let Some(from) = next {
            let mut tx = store::begin_snapshot(db).await?;
            let last = from.saturating_add(USERS_AT_ONCE - 1);
            let too_many = store::user_of_transaction(&mut tx, from, last, TRANSACTIONS_AT_ONCE).await?;
            let last = too_many.map_or(last, |user| (user - 1).max(from));
            {
                let mut faults = std::pin::pin!(store::faults(&mut tx, from, last));
                while let Some(difference) = faults.try_next().await? {
                    differs(difference);
                }
            }
            store::add_totals(&mut tx, from, last, &mut totals).await?;
            tx.commit().await?;
            progress(totals.wallets, all.max(totals.wallets));
            // Skips gaps between ids: a stray row with a huge id must not make the audit walk the whole id range.
            next = match last.checked_add(1) {
                Some(after) => store::next_user(db, after).await?,
                None => None,
            };
        }
        Ok(totals)
    }
}
