//! SQL queries for coins.

use std::collections::{HashMap, HashSet};

use futures_util::Stream;
use platform::shards::Ranges;
use sqlx::{PgConnection, PgExecutor, PgPool, Postgres, Transaction as SqlTransaction};
use time::OffsetDateTime;
use web::{
    ids::{MatchId, UserId},
    paging::Cursor,
};

use super::{
    audit::{Difference, Totals},
    ledger::{Movement, Posted, PriorReference, PriorRequest, ReferenceKey, Wallet},
    rules::{Award, Kind, Paid, Payout, Streak, TransactionId},
    service::{Claimed, Transaction},
};
use crate::identity::idempotency::RequestKey;

/// Returns these users' wallets and locks them until the transaction ends.
pub(super) async fn lock_wallets(
    connection: &mut PgConnection,
    users: &[i64],
) -> sqlx::Result<HashMap<UserId, Wallet>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", balance, transactions
           from wallets where user_id = any($1) order by user_id for no key update"#,
        users,
    )
    .fetch_all(connection)
    .await?;
    let wallet = |balance, transactions| Wallet { balance, transactions };
    Ok(rows.into_iter().map(|row| (row.user_id, wallet(row.balance, row.transactions))).collect())
}

/// Returns which of these users exist and have not deleted their account.
pub(super) async fn existing_users(connection: &mut PgConnection, users: &[i64]) -> sqlx::Result<HashSet<UserId>> {
    let users = sqlx::query_scalar!(
        r#"select user_id as "user_id: UserId" from users where user_id = any($1) and deleted_at is null"#,
        users,
    )
    .fetch_all(connection)
    .await?;
    Ok(users.into_iter().collect())
}

/// Returns how many of these users have a wallet.
pub(super) async fn count_wallets(connection: &mut PgConnection, users: &[i64]) -> sqlx::Result<usize> {
    let count = sqlx::query_scalar!(r#"select count(*) as "count!" from wallets where user_id = any($1)"#, users)
        .fetch_one(connection)
        .await?;
    Ok(usize::try_from(count).unwrap_or_default())
}

/// Creates empty wallets for these users, where missing.
pub(super) async fn make_wallets(connection: &mut PgConnection, users: &[i64]) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into wallets (user_id, balance, transactions)
         select user_id, 0, 0 from unnest($1::bigint[]) as u (user_id) order by user_id
         on conflict (user_id) do nothing",
        users,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// A stored transaction with the fields that show whether a request repeats it.
struct Found {
    user_id: UserId,
    reason: Option<String>,
    reference: Option<String>,
    request_key: Option<Vec<u8>>,
    remark: Option<String>,
    reverses: Option<i64>,
    id: TransactionId,
    number: i64,
    amount: i64,
    balance: i64,
}

impl Found {
    fn posted(&self) -> Posted {
        Posted { id: self.id, number: self.number, amount: self.amount, balance: self.balance }
    }
}

/// Returns the transactions with these references.
pub(super) async fn by_references(
    connection: &mut PgConnection,
    shards: &Ranges,
    references: &[ReferenceKey],
) -> sqlx::Result<HashMap<ReferenceKey, PriorReference>> {
    let users: Vec<i64> = references.iter().map(|(user, ..)| user.0).collect();
    let kinds: Vec<&str> = references.iter().map(|(_, kind, ..)| kind.name()).collect();
    let reasons: Vec<&str> = references.iter().map(|(_, _, reason, _)| reason.as_str()).collect();
    let names: Vec<&str> = references.iter().map(|(.., reference)| reference.as_str()).collect();
    let found = sqlx::query!(
        r#"select t.user_id as "user_id: UserId", t.kind as "kind: Kind", t.reason, t.reference, t.remark,
                  t.transaction_id as "id: TransactionId", t.number, t.amount, t.balance,
                  t.amount + coalesce(v.amount, 0) = 0 as "is_reversed!"
           from unnest($1::bigint[], $2::text[], $3::text[], $4::text[]) as w (user_id, kind, reason, reference)
           join coin_transactions t
             on t.user_id = w.user_id and t.kind = w.kind and t.reason = w.reason and t.reference = w.reference
           left join lateral (select sum(r.amount) as amount from coin_transactions r
                              where r.user_id = t.user_id and r.reverses = t.number) v on true
           where ($5::bigint[] is null or t.user_id = any($5))"#,
        &users,
        &kinds as &[&str],
        &reasons as &[&str],
        &names as &[&str],
        shards.only(&users),
    )
    .fetch_all(connection)
    .await?;
    Ok(found
        .into_iter()
        .map(|row| {
            let key = (row.user_id, row.kind, row.reason.unwrap_or_default(), row.reference.unwrap_or_default());
            let posted = Posted { id: row.id, number: row.number, amount: row.amount, balance: row.balance };
            (key, PriorReference { posted, remark: row.remark, is_reversed: row.is_reversed })
        })
        .collect())
}

/// Returns the transactions with these idempotency keys, created after `since`.
pub(super) async fn by_requests(
    connection: &mut PgConnection,
    shards: &Ranges,
    requests: &[(UserId, RequestKey)],
    since: OffsetDateTime,
) -> sqlx::Result<HashMap<(UserId, RequestKey), PriorRequest>> {
    let users: Vec<i64> = requests.iter().map(|(user, _)| user.0).collect();
    let keys: Vec<&[u8]> = requests.iter().map(|(_, key)| key.0.as_slice()).collect();
    let found = sqlx::query_as!(
        Found,
        r#"select t.user_id as "user_id: UserId", t.reason, t.reference, t.request_key, t.remark, t.reverses,
                  t.transaction_id as "id: TransactionId", t.number, t.amount, t.balance
           from unnest($1::bigint[], $2::bytea[]) as w (user_id, request_key)
           join coin_transactions t on t.user_id = w.user_id and t.request_key = w.request_key
           where t.created_at > $3 and ($4::bigint[] is null or t.user_id = any($4))"#,
        &users,
        &keys as &[&[u8]],
        since,
        shards.only(&users),
    )
    .fetch_all(connection)
    .await?;
    let keyed = |row: Found| {
        let key = RequestKey(row.request_key.as_deref()?.try_into().ok()?);
        let posted = row.posted();
        let Found { user_id, reason, reference, remark, reverses, .. } = row;
        Some(((user_id, key), PriorRequest { posted, reason, reference, remark, reverses }))
    };
    Ok(found.into_iter().filter_map(keyed).collect())
}

/// Returns the transactions among these that were written. Reads the users' whole history, because transaction ids have
/// no index. This is acceptable because it runs only after a connection broke.
pub(super) async fn by_ids(
    connection: &mut PgConnection,
    ids: &[(UserId, TransactionId)],
) -> sqlx::Result<HashMap<TransactionId, Posted>> {
    let users: Vec<i64> = ids.iter().map(|(user, _)| user.0).collect();
    let ids: Vec<uuid::Uuid> = ids.iter().map(|(_, id)| id.0).collect();
    let found = sqlx::query_as!(
        Posted,
        r#"select transaction_id as "id: TransactionId", number, amount, balance
           from coin_transactions where user_id = any($1) and transaction_id = any($2)"#,
        &users,
        &ids,
    )
    .fetch_all(connection)
    .await?;
    Ok(found.into_iter().map(|posted| (posted.id, posted)).collect())
}

/// Writes the new state of wallets that the caller has locked.
pub(super) async fn set_wallets(
    connection: &mut PgConnection,
    shards: &Ranges,
    wallets: &[(UserId, Wallet)],
) -> sqlx::Result<()> {
    let users: Vec<i64> = wallets.iter().map(|(user, _)| user.0).collect();
    let balances: Vec<i64> = wallets.iter().map(|(_, wallet)| wallet.balance).collect();
    let transactions: Vec<i64> = wallets.iter().map(|(_, wallet)| wallet.transactions).collect();
    sqlx::query!(
        "update wallets w set balance = n.balance, transactions = n.transactions
         from unnest($1::bigint[], $2::bigint[], $3::bigint[]) as n (user_id, balance, transactions)
         where w.user_id = n.user_id and ($4::bigint[] is null or w.user_id = any($4))",
        &users,
        &balances,
        &transactions,
        shards.only(&users),
    )
    .execute(connection)
    .await?;
    Ok(())
}

pub(super) async fn insert_transactions(
    connection: &mut PgConnection,
    written: &[(Movement, Posted)],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let users: Vec<i64> = written.iter().map(|(movement, _)| movement.user.0).collect();
    let numbers: Vec<i64> = written.iter().map(|(_, posted)| posted.number).collect();
    let ids: Vec<uuid::Uuid> = written.iter().map(|(_, posted)| posted.id.0).collect();
    let kinds: Vec<&str> = written.iter().map(|(movement, _)| movement.kind.name()).collect();
    let amounts: Vec<i64> = written.iter().map(|(_, posted)| posted.amount).collect();
    let balances: Vec<i64> = written.iter().map(|(_, posted)| posted.balance).collect();
    let reasons: Vec<Option<&str>> = written.iter().map(|(movement, _)| movement.reason.as_deref()).collect();
    let references: Vec<Option<&str>> = written.iter().map(|(movement, _)| movement.reference.as_deref()).collect();
    let requests: Vec<Option<&[u8]>> =
        written.iter().map(|(movement, _)| movement.request.as_ref().map(|key| key.0.as_slice())).collect();
    let reverses: Vec<Option<i64>> = written.iter().map(|(movement, _)| movement.reverses).collect();
    let operators: Vec<Option<&str>> = written.iter().map(|(movement, _)| movement.operator.as_deref()).collect();
    let remarks: Vec<Option<&str>> = written.iter().map(|(movement, _)| movement.remark.as_deref()).collect();
    let events: Vec<Option<i64>> = written.iter().map(|(movement, _)| movement.event.map(|event| event.0)).collect();
    sqlx::query!(
        "insert into coin_transactions
             (user_id, number, transaction_id, kind, amount, balance, reason, reference, request_key, reverses, operator,
              remark, event_id, created_at)
         select user_id, number, transaction_id, kind, amount, balance, reason, reference, request_key, reverses, operator,
                remark, event_id, $14
         from unnest($1::bigint[], $2::bigint[], $3::uuid[], $4::text[], $5::bigint[], $6::bigint[], $7::text[],
                     $8::text[], $9::bytea[], $10::bigint[], $11::text[], $12::text[], $13::bigint[])
           as n (user_id, number, transaction_id, kind, amount, balance, reason, reference, request_key, reverses, operator,
                 remark, event_id)",
        &users,
        &numbers,
        &ids,
        &kinds as &[&str],
        &amounts,
        &balances,
        &reasons as &[Option<&str>],
        &references as &[Option<&str>],
        &requests as &[Option<&[u8]>],
        &reverses as &[Option<i64>],
        &operators as &[Option<&str>],
        &remarks as &[Option<&str>],
        &events as &[Option<i64>],
        now,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Inserts two entries per transaction: the wallet's gain and the house account's loss.
pub(super) async fn insert_entries(connection: &mut PgConnection, written: &[(Movement, Posted)]) -> sqlx::Result<()> {
    let users: Vec<i64> = written.iter().map(|(movement, _)| movement.user.0).collect();
    let numbers: Vec<i64> = written.iter().map(|(_, posted)| posted.number).collect();
    let accounts: Vec<&str> = written.iter().map(|(movement, _)| movement.account.as_ref()).collect();
    let amounts: Vec<i64> = written.iter().map(|(_, posted)| posted.amount).collect();
    sqlx::query!(
        "insert into coin_entries (user_id, number, account, amount)
         select n.user_id, n.number, e.account, e.amount
         from unnest($1::bigint[], $2::bigint[], $3::text[], $4::bigint[]) as n (user_id, number, account, amount)
         cross join lateral (values ('wallet', n.amount), (n.account, -n.amount)) as e (account, amount)",
        &users,
        &numbers,
        &accounts as &[&str],
        &amounts,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns a user's balance; 0 without a wallet.
pub(super) async fn balance(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<i64> {
    let balance =
        sqlx::query_scalar!("select balance from wallets where user_id = $1", user.0).fetch_optional(executor).await?;
    Ok(balance.unwrap_or_default())
}

/// Returns one page of a wallet's transactions, newest first.
pub(super) async fn history(
    executor: impl PgExecutor<'_>,
    user: UserId,
    after: Option<Cursor>,
    limit: i64,
) -> sqlx::Result<Vec<Transaction>> {
    sqlx::query_as!(
        Transaction,
        r#"select t.number, t.transaction_id as "id: TransactionId", t.kind as "kind: Kind", t.amount, t.balance,
                  coalesce(t.remark, t.reason) as reason, t.reference,
                  -- A join may read all transactions of the user for each row.
                  (select r.transaction_id from coin_transactions r
                   where r.user_id = t.user_id and r.number = t.reverses) as "reverses?: TransactionId",
                  t.event_id as "event: MatchId", t.created_at
           from coin_transactions t
           where t.user_id = $1 and t.number < $2
           order by t.number desc limit $3"#,
        user.0,
        after.map_or(i64::MAX, Cursor::id),
        limit,
    )
    .fetch_all(executor)
    .await
}

/// Returns the user's streak; `None` if the user never claimed a daily bonus.
pub(super) async fn streak(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<Option<Streak>> {
    sqlx::query_as!(
        Streak,
        "select day as last, streak_days as days from daily_claims where user_id = $1 order by day desc limit 1",
        user.0,
    )
    .fetch_optional(executor)
    .await
}

pub(super) async fn insert_claim(
    connection: &mut PgConnection,
    user: UserId,
    award: &Award,
    number: i64,
) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into daily_claims (user_id, day, streak_days, bonus, number) values ($1, $2, $3, $4, $5)",
        user.0,
        award.streak.last,
        award.streak.days,
        award.bonus,
        number,
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the claim with this idempotency key, created after `since`.
pub(super) async fn claim_by_request(
    connection: &mut PgConnection,
    user: UserId,
    request: RequestKey,
    since: OffsetDateTime,
) -> sqlx::Result<Option<Claimed>> {
    sqlx::query_as!(
        Claimed,
        "select t.amount as coins, t.balance, c.day, c.streak_days, c.bonus
         from coin_transactions t join daily_claims c on c.user_id = t.user_id and c.number = t.number
         where t.user_id = $1 and t.request_key = $2 and t.kind = 'daily' and t.created_at > $3
         order by t.number desc limit 1",
        user.0,
        request.0.as_slice(),
        since,
    )
    .fetch_optional(connection)
    .await
}

/// A transaction that an operator wants to reverse.
pub(super) struct Reversible {
    pub(super) number: i64,
    pub(super) id: TransactionId,
    pub(super) kind: Kind,
    pub(super) amount: i64,
    pub(super) account: String,
    /// Coins that were already reversed.
    pub(super) reversed: i64,
    pub(super) created_at: OffsetDateTime,
}

/// Returns the user's transaction with this id. Without an id, returns transactions of this amount with no reversal,
/// newest first.
pub(super) async fn reversible(
    connection: &mut PgConnection,
    user: UserId,
    id: Option<TransactionId>,
    amount: i64,
    limit: i64,
) -> sqlx::Result<Vec<Reversible>> {
    sqlx::query_as!(
        Reversible,
        r#"select t.number, t.transaction_id as "id: TransactionId", t.kind as "kind: Kind", t.amount, e.account,
                  coalesce(r.amount, 0)::bigint as "reversed!", t.created_at
           from coin_transactions t
           join coin_entries e on e.user_id = t.user_id and e.number = t.number and e.account <> 'wallet'
           left join lateral (select abs(sum(b.amount)) as amount from coin_transactions b
                              where b.user_id = t.user_id and b.reverses = t.number) r on true
           where t.user_id = $1
             and case when $2::uuid is null
                      then abs(t.amount) = $3 and t.kind not in ('reversal', 'points') and r.amount is null
                      else t.transaction_id = $2 end
           order by t.number desc limit $4"#,
        user.0,
        id.map(|id| id.0),
        amount,
        limit,
    )
    .fetch_all(connection)
    .await
}

/// Returns the id of a transaction of a wallet.
pub(super) async fn transaction_id(
    connection: &mut PgConnection,
    user: UserId,
    number: i64,
) -> sqlx::Result<Option<TransactionId>> {
    sqlx::query_scalar!(
        r#"select transaction_id as "id: TransactionId" from coin_transactions where user_id = $1 and number = $2"#,
        user.0,
        number,
    )
    .fetch_optional(connection)
    .await
}

/// Fixes the coins per point for a match, unless they are already fixed.
pub(super) async fn fix_rate(executor: impl PgExecutor<'_>, event: MatchId, per_point: i64) -> sqlx::Result<()> {
    sqlx::query!(
        "insert into coin_rates (event_id, per_point) values ($1, $2) on conflict (event_id) do nothing",
        event.0,
        per_point,
    )
    .execute(executor)
    .await?;
    Ok(())
}

/// Returns the coins per point for a match; 0 if they are not fixed.
pub(super) async fn rate(executor: impl PgExecutor<'_>, event: MatchId) -> sqlx::Result<i64> {
    let rate = sqlx::query_scalar!("select per_point from coin_rates where event_id = $1", event.0)
        .fetch_optional(executor)
        .await?;
    Ok(rate.unwrap_or_default())
}

/// Returns the user who follows the first `size` predictions of the range; `None` if the range has at most `size`
/// predictions.
pub(super) async fn end_of_slice(
    connection: &mut PgConnection,
    event: MatchId,
    from_user: i64,
    until_user: i64,
    size: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "select user_id from predictions where event_id = $1 and user_id >= $2 and user_id < $3
         order by user_id offset $4 limit 1",
        event.0,
        from_user,
        until_user,
        size,
    )
    .fetch_optional(connection)
    .await
}

/// Returns the points of a result, for users of the range who earn points or were paid for the match before.
pub(super) async fn points(
    connection: &mut PgConnection,
    event: MatchId,
    revision: i64,
    from_user: i64,
    until_user: i64,
) -> sqlx::Result<Vec<(UserId, i32)>> {
    let rows = sqlx::query_file!("src/game/coins/points.sql", event.0, revision, from_user, until_user)
        .fetch_all(connection)
        .await?;
    Ok(rows.into_iter().map(|row| (row.user_id, row.points)).collect())
}

/// Returns the revision that each user was last paid for, and the coins received for the match so far.
pub(super) async fn paid(
    connection: &mut PgConnection,
    event: MatchId,
    users: &[i64],
) -> sqlx::Result<HashMap<UserId, (i64, Paid)>> {
    let rows = sqlx::query!(
        r#"select user_id as "user_id: UserId", max(revision) as "revision!",
                  (array_agg(had order by revision desc))[1] as "had!", sum(written_off)::bigint as "written_off!"
           from coin_payouts where user_id = any($1) and event_id = $2 group by user_id"#,
        users,
        event.0,
    )
    .fetch_all(connection)
    .await?;
    let paid = |had, written_off| Paid { had, written_off };
    Ok(rows.into_iter().map(|row| (row.user_id, (row.revision, paid(row.had, row.written_off)))).collect())
}

/// Records payouts together with the numbers of their transactions.
pub(super) async fn insert_payouts(
    connection: &mut PgConnection,
    event: MatchId,
    revision: i64,
    payouts: &[(UserId, Payout, Paid, Option<i64>)],
) -> sqlx::Result<()> {
    let users: Vec<i64> = payouts.iter().map(|(user, ..)| user.0).collect();
    let due: Vec<i64> = payouts.iter().map(|(_, payout, ..)| payout.due).collect();
    let had: Vec<i64> = payouts.iter().map(|(_, _, after, _)| after.had).collect();
    let written_off: Vec<i64> = payouts.iter().map(|(_, payout, ..)| payout.written_off).collect();
    let numbers: Vec<Option<i64>> = payouts.iter().map(|&(.., number)| number).collect();
    sqlx::query!(
        "insert into coin_payouts (user_id, event_id, revision, due, had, written_off, number)
         select user_id, $1, $2, due, had, written_off, number
         from unnest($3::bigint[], $4::bigint[], $5::bigint[], $6::bigint[], $7::bigint[])
           as n (user_id, due, had, written_off, number)",
        event.0,
        revision,
        &users,
        &due,
        &had,
        &written_off,
        &numbers as &[Option<i64>],
    )
    .execute(connection)
    .await?;
    Ok(())
}

/// Returns the number of all wallets.
pub(super) async fn wallets(executor: impl PgExecutor<'_>) -> sqlx::Result<i64> {
    sqlx::query_scalar!(r#"select count(*) as "count!" from wallets"#).fetch_one(executor).await
}

/// Returns the smallest user id, from `from` on, with any row in the coin tables.
pub(super) async fn next_user(executor: impl PgExecutor<'_>, from: i64) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "select least((select min(user_id) from wallets where user_id >= $1),
                      (select min(user_id) from coin_transactions where user_id >= $1),
                      (select min(user_id) from coin_entries where user_id >= $1),
                      (select min(user_id) from daily_claims where user_id >= $1),
                      (select min(user_id) from coin_payouts where user_id >= $1))",
        from,
    )
    .fetch_one(executor)
    .await
}

/// Begins a read-only transaction with a single snapshot (repeatable read) and without a statement timeout.
pub(super) async fn begin_snapshot(db: &PgPool) -> sqlx::Result<SqlTransaction<'static, Postgres>> {
    platform::database::begin_with(
        db,
        "begin isolation level repeatable read read only; set local statement_timeout = 0;
         set local work_mem = '64MB'",
    )
    .await
}

/// Returns the owner of the transaction at offset `after`, among the transactions of these users.
pub(super) async fn user_of_transaction(
    connection: &mut PgConnection,
    from: i64,
    last: i64,
    after: i64,
) -> sqlx::Result<Option<i64>> {
    sqlx::query_scalar!(
        "select user_id from coin_transactions where user_id between $1 and $2 order by user_id, number offset $3 limit 1",
        from,
        last,
        after,
    )
    .fetch_optional(connection)
    .await
}

/// Streams all inconsistencies of users from `from` to `last`, inclusive.
pub(super) fn faults(
    connection: &mut PgConnection,
    from: i64,
    last: i64,
) -> impl Stream<Item = sqlx::Result<Difference>> + '_ {
    sqlx::query_file_as!(Difference, "src/game/coins/audit.sql", from, last).fetch(connection)
}

/// Adds the wallets, transactions and balances of users from `from` to `last`, inclusive.
pub(super) async fn add_totals(
    connection: &mut PgConnection,
    from: i64,
    last: i64,
    totals: &mut Totals,
) -> sqlx::Result<()> {
    let counts = sqlx::query!(
        r#"select (select count(*) from wallets where user_id between $1 and $2) as "wallets!",
                  (select count(*) from coin_transactions where user_id between $1 and $2) as "transactions!""#,
        from,
        last,
    )
    .fetch_one(&mut *connection)
    .await?;
    totals.wallets += counts.wallets;
    totals.transactions += counts.transactions;
    let accounts = sqlx::query!(
        r#"select split_part(account, ':', 1) as "account!", sum(amount)::text as "amount!"
           from coin_entries where user_id between $1 and $2 group by 1"#,
        from,
        last,
    )
    .fetch_all(connection)
    .await?;
    for row in accounts {
        *totals.accounts.entry(row.account).or_default() += row.amount.parse::<i128>().unwrap_or_default();
    }
    Ok(())
}
