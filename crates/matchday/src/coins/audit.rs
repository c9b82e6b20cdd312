//! Proving that the money adds up.

use sqlx::{PgPool, Postgres, Transaction};

use super::service::Coins;
use crate::ids::UserId;

/// How many users' ids are looked at by one statement.
const AT_ONCE: i64 = 10_000;

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
    /// What the accounts hold, wallets first. Those of deductions are one.
    pub accounts: std::collections::BTreeMap<String, i128>,
}

impl Totals {
    /// What is left when everything is added up: 0, or coins came from nowhere.
    pub fn sum(&self) -> i128 {
        self.accounts.values().sum()
    }
}

impl Coins {
    /// Looks at every wallet with all that happened to it, some users at a time, each as they stand at one moment; hands in
    /// what does not add up. `progress` is called with how many of how many users' ids were looked at.
    pub async fn audit(
        &self,
        progress: impl Fn(i64, i64),
        mut differs: impl FnMut(Difference),
    ) -> sqlx::Result<Totals> {
        let db = self.database();
        let (mut from, last) = bounds(db).await?;
        let first = from;
        let mut totals = Totals::default();
        while from <= last {
            let until = from.saturating_add(AT_ONCE);
            let mut tx = begin_at_one_moment(db).await?;
            for row in sqlx::query_file!("src/coins/audit.sql", from, until).fetch_all(&mut *tx).await? {
                differs(Difference { user: UserId(row.user_id), number: row.number, fault: row.fault });
            }
            add_totals(&mut tx, from, until, &mut totals).await?;
            tx.commit().await?;
            from = until;
            progress((from - first).min(last - first + 1), last - first + 1);
        }
        Ok(totals)
    }
}

async fn begin_at_one_moment(db: &PgPool) -> sqlx::Result<Transaction<'static, Postgres>> {
    db.begin_with("begin isolation level repeatable read read only; set local statement_timeout = 0").await
}

/// The least and the greatest id of a user who has anything to do with coins; 1 and 0 without any.
async fn bounds(db: &PgPool) -> sqlx::Result<(i64, i64)> {
    let bounds = sqlx::query!(
        r#"select coalesce(min(first), 1) as "first!", coalesce(max(last), 0) as "last!"
           from (select min(user_id) as first, max(user_id) as last from wallets
                 union all select min(user_id), max(user_id) from coin_transactions
                 union all select min(user_id), max(user_id) from coin_entries
                 union all select min(user_id), max(user_id) from daily_claims
                 union all select min(user_id), max(user_id) from coin_payouts) b"#,
    )
    .fetch_one(db)
    .await?;
    Ok((bounds.first, bounds.last))
}

async fn add_totals(
    tx: &mut Transaction<'static, Postgres>,
    from: i64,
    until: i64,
    totals: &mut Totals,
) -> sqlx::Result<()> {
    let counts = sqlx::query!(
        r#"select (select count(*) from wallets where user_id >= $1 and user_id < $2) as "wallets!",
                  (select count(*) from coin_transactions where user_id >= $1 and user_id < $2) as "transactions!""#,
        from,
        until,
    )
    .fetch_one(&mut **tx)
    .await?;
    totals.wallets += counts.wallets;
    totals.transactions += counts.transactions;
    let accounts = sqlx::query!(
        r#"select split_part(account, ':', 1) as "account!", sum(amount)::text as "amount!"
           from coin_entries where user_id >= $1 and user_id < $2 group by 1"#,
        from,
        until,
    )
    .fetch_all(&mut **tx)
    .await?;
    for row in accounts {
        *totals.accounts.entry(row.account).or_default() += row.amount.parse::<i128>().unwrap_or_default();
    }
    Ok(())
}
