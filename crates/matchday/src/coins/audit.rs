//! Proving that the money adds up.

use std::collections::BTreeMap;

use futures_util::TryStreamExt as _;
use web::ids::UserId;

use super::{service::Coins, store};

/// How many users' ids are looked at by one statement.
const USERS_AT_ONCE: i64 = 10_000;

/// How many transactions, unless a single user has more: fewer users where they have many.
const TRANSACTIONS_AT_ONCE: i64 = 50_000;

/// Something that does not add up.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Whose wallet.
    pub user: UserId,
    /// The number of the transaction, where it is about one.
    pub number: Option<i64>,
    /// What is wrong, with what was found and what should be there.
    pub fault: String,
}

/// What all wallets and accounts hold together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// How many wallets there are.
    pub wallets: i64,
    /// How many transactions.
    pub transactions: i64,
    /// What the accounts hold, by name. Those of deductions are one.
    pub accounts: BTreeMap<String, i128>,
}

impl Totals {
    /// What is left when everything is added up: 0, or coins came from nowhere.
    pub fn sum(&self) -> i128 {
        self.accounts.values().sum()
    }
}

impl Coins {
    /// Looks at every wallet with all that happened to it, some users at a time, each as they stand at one moment; hands in
    /// what does not add up. `progress` is called with how many of how many wallets were looked at.
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
            let mut tx = store::begin_at_one_moment(db).await?;
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
            // Ids may lie far apart, and whatever wrote one that nobody has must not keep the rest from being looked at.
            next = match last.checked_add(1) {
                Some(after) => store::next_user(db, after).await?,
                None => None,
            };
        }
        Ok(totals)
    }
}
