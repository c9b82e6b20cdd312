//! Checks that the audit reports every inconsistency, and that the service role cannot cause one.

use serde_json::json;
use sqlx::AssertSqlSafe;

use super::{assert_clean, deduction, differences};
use crate::{
    game::coins::rules::CoinAmount,
    testing::{TestApp, TestUser},
};

/// Creates a user with four transactions: 1 welcome coins, 2 a daily bonus, 3 a purchase, 4 a partial reversal of it.
async fn user_with_history(app: &TestApp) -> TestUser<'_> {
    let user = app.user().await;
    user.post("/api/auth/daily-coins", json!({})).await.expect(200);
    user.post("/api/auth/coins/deduct", deduction(60, "order-1")).await.expect(200);
    let (amount, remark) = (CoinAmount::new(20).expect("an amount"), "a gesture".parse().expect("a remark"));
    let orders = user.get("/api/auth/coins").await.expect(200);
    let order = orders["data"]["history"][0]["transaction_id"].as_str().expect("an id").parse().expect("an id");
    app.app.coins.reverse(user.id, amount, Some(order), &remark, "ada").await.expect("reversed");
    user
}

/// Statements that falsify the ledger, and the faults that the audit reports.
const TAMPERING: &[(&str, &str)] = &[
    ("update wallets set balance = balance + 1", "the wallet holds 111, but its entries add up to 110"),
    ("delete from wallets", "the wallet holds no balance (no wallet row), but its entries add up to 110"),
    ("update wallets set transactions = 9", "the wallet counts 9 transactions, but 4 exist"),
    (
        "update coin_entries set amount = amount + 5 where number = 3 and account = 'wallet'",
        "3: the amount is -60, but the wallet entry is -55|3: the entries add up to 5 instead of 0",
    ),
    (
        "update coin_entries set amount = amount * 2 where number = 3",
        "3: the amount is -60, but the wallet entry is -120",
    ),
    (
        "delete from coin_entries where number = 3 and account <> 'wallet'",
        "3: the transaction has 1 entries instead of 2",
    ),
    (
        "insert into coin_entries select user_id, 3, 'pocket', 0 from wallets",
        "3: the transaction has 3 entries instead of 2",
    ),
    ("delete from coin_transactions where number = 3", "3: entries exist, but the transaction does not"),
    (
        "delete from coin_transactions where number = 2; delete from coin_entries where number = 2;
                 delete from daily_claims; update wallets set balance = balance - 50, transactions = 3",
        "3: the previous transaction is missing: expected number 2",
    ),
    (
        "update coin_transactions set balance = 91 where number = 3",
        "3: the balance is 91, but the transactions add up to 90",
    ),
    ("update daily_claims set number = 3", "2: the daily bonus has no claim|3: the claim of 2026-11-20"),
    ("delete from daily_claims", "2: the daily bonus has no claim"),
    (
        "insert into daily_claims select user_id, date '2026-11-21', 2, 10, 2 from wallets",
        "2: 2 claims refer to this transaction",
    ),
    (
        "insert into daily_claims select user_id, date '2026-11-21', 2, 10, 5 from wallets",
        "5: the claim of 2026-11-21 has no transaction",
    ),
    ("update coin_transactions set kind = 'points' where number = 1", "1: the points transaction has no payout"),
    (
        "insert into coin_payouts select user_id, 7, 1, 40, 40, 0, null from wallets",
        "the payout for result 1 of match 7 is 40, but 0 coins were moved",
    ),
    (
        "update coin_transactions set reverses = 2 where number = 4",
        "2: the transaction moved 50 coins, but 20 were reversed",
    ),
    (
        "update coin_transactions set amount = -10 where number = 3;
                 update coin_entries set amount = sign(amount) * 10 where number = 3",
        "3: the transaction moved -10 coins, but 20 were reversed",
    ),
    (
        "update coin_transactions set kind = 'points' where number = 3",
        "3: the transaction was reversed, but has the irreversible kind points",
    ),
    (
        "insert into coin_payouts select user_id, n, 1, 0, 0, 0, 3 from wallets, (values (7), (8)) v (n)",
        "3: 2 payouts refer to this transaction",
    ),
    ("update coin_transactions set reverses = 0 where number = 4", "0: the reversed transaction does not exist"),
];

#[tokio::test]
async fn audit_reports_each_kind_of_tampering() {
    TestApp::run(async |app| {
        let user = user_with_history(app).await;
        let honest = user_with_history(app).await;
        assert_clean(app).await;
        for &(tampering, expected) in TAMPERING {
            // The audit uses its own connection, so the tampering is committed, and undone from a copy.
            let copy = "create table kept_{t} as table {t}";
            let tables = ["wallets", "coin_transactions", "coin_entries", "daily_claims", "coin_payouts"];
            for table in tables {
                sqlx::query(AssertSqlSafe(copy.replace("{t}", table))).execute(app.owner()).await.expect("kept");
            }
            for statement in tampering.split(';') {
                let of = format!("user_id = {}", user.id);
                let glue = if statement.contains(" where ") { "and" } else { "where" };
                let statement = AssertSqlSafe(format!("{statement} {glue} {of}"));
                sqlx::query(statement).execute(app.owner()).await.expect("done");
            }
            let mut found = Vec::new();
            app.app.coins.audit(|_, _| (), |difference| found.push(difference)).await.expect("audited");
            let reported: Vec<String> = found
                .iter()
                .map(|difference| match difference.number {
                    Some(number) => format!("{number}: {}", difference.fault),
                    None => difference.fault.clone(),
                })
                .collect();
            for expected in expected.split('|') {
                assert!(reported.iter().any(|fault| fault.contains(expected)), "{tampering}: {reported:#?}");
            }
            assert!(found.iter().all(|difference| difference.user == user.id), "{tampering}: {found:#?}");
            for table in tables {
                let back = format!(
                    "delete from {table}; insert into {table} select * from kept_{table}; drop table kept_{table}"
                );
                sqlx::raw_sql(AssertSqlSafe(back)).execute(app.owner()).await.expect("back");
            }
        }
        assert_clean(app).await;
        assert_ne!(user.id, honest.id);
    })
    .await;
}

#[tokio::test]
async fn service_can_append_to_ledger_but_not_change_it() {
    TestApp::run(async |app| {
        let user = user_with_history(app).await;
        let tables: Vec<String> = sqlx::query_scalar(
            "select relid::text from unnest(array['coin_transactions', 'coin_entries', 'daily_claims', 'coin_payouts']) t
             cross join pg_partition_tree(t::regclass)",
        )
        .fetch_all(&app.app.core.db)
        .await
        .expect("the tables with their partitions");
        assert_eq!(tables.len(), 4 * 9);
        for table in tables {
            for statement in [
                format!("update {table} set user_id = user_id where user_id = {}", user.id),
                format!("delete from {table} where user_id = {}", user.id),
                format!("truncate {table}"),
                format!("drop table {table}"),
                format!("alter table {table} disable trigger all"),
            ] {
                let refused = sqlx::query(AssertSqlSafe(statement.clone())).execute(&app.app.core.db).await;
                let code = refused.expect_err(&statement).into_database_error().and_then(|e| e.code().map(Into::into));
                assert_eq!(code, Some(String::from("42501")), "{statement}");
            }
        }
        // The service role can update a wallet, but not below zero.
        let overdrawn =
            sqlx::query("update wallets set balance = -1").execute(&app.app.core.db).await.expect_err("refused");
        assert!(overdrawn.to_string().contains("wallets_balance"), "{overdrawn}");
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn audit_covers_all_users_and_reports_progress() {
    TestApp::run(async |app| {
        assert_eq!(differences(app).await, [], "the ledger is empty");
        let first = app.user().await;
        // Ids far apart, so that the audit takes several steps.
        sqlx::query(
            "insert into users (user_id, created_at, username) overriding system value values (25000, now(), 'far_away')",
        )
        .execute(&app.app.core.db)
        .await
        .expect("a user");
        let far = app.login(web::ids::UserId(25_000)).await;
        far.post("/api/auth/daily-coins", json!({})).await.expect(200);
        let steps = std::sync::Mutex::new(Vec::new());
        let progress = |done, of| steps.lock().expect("not poisoned").push((done, of));
        let totals = app.app.coins.audit(progress, |difference| panic!("{difference:?}")).await.expect("audited");
        assert_eq!(*steps.lock().expect("not poisoned"), [(1, 2), (2, 2)]);
        assert!(first.id.0 < 10_000);
        assert_eq!((totals.wallets, totals.transactions), (2, 2));
        let accounts: Vec<(&str, i128)> = totals.accounts.iter().map(|(name, &amount)| (name.as_str(), amount)).collect();
        assert_eq!(accounts, [("daily", -50), ("wallet", 150), ("welcome", -100)]);
    })
    .await;
}
