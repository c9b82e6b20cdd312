//! The audit finds whatever does not add up, and the service cannot cause it.

use serde_json::json;
use sqlx::AssertSqlSafe;

use super::{assert_clean, deduction, differences};
use crate::{
    coins::rules::CoinAmount,
    testing::{TestApp, TestUser},
};

/// Somebody to whom everything has happened: 1 the welcome, 2 the daily bonus, 3 a purchase, 4 a part of it taken back.
async fn somebody(app: &TestApp) -> TestUser<'_> {
    let user = app.user().await;
    user.post("/api/auth/daily-coins", json!({})).await.expect(200);
    user.post("/api/auth/coins/deduct", deduction(60, "order-1")).await.expect(200);
    let (amount, remark) = (CoinAmount::new(20).expect("an amount"), "a gesture".parse().expect("a remark"));
    let orders = user.get("/api/auth/coins").await.expect(200);
    let order = orders["data"]["history"][0]["transaction_id"].as_str().expect("an id").parse().expect("an id");
    app.app.coins.reverse(user.id, amount, Some(order), &remark, "ada").await.expect("reversed");
    user
}

#[tokio::test]
async fn each_way_to_cheat_is_found_and_named() {
    TestApp::run(async |app| {
        let user = somebody(app).await;
        let honest = somebody(app).await;
        assert_clean(app).await;
        for (cheat, named) in [
            ("update wallets set balance = balance + 1", "the wallet holds 111, but its entries add up to 110"),
            ("delete from wallets", "the wallet holds nothing, there is none, but its entries add up to 110"),
            ("update wallets set transactions = 9", "the wallet has had 9 transactions, it says, but there are 4"),
            (
                "update coin_entries set amount = amount + 5 where number = 3 and account = 'wallet'",
                "3: its entries add up to 5 instead of 0|3: it says that the wallet gained -60, but its entry says -55",
            ),
            (
                "update coin_entries set amount = amount * 2 where number = 3",
                "3: it says that the wallet gained -60, but its entry says -120",
            ),
            ("delete from coin_entries where number = 3 and account <> 'wallet'", "3: it has 1 entries instead of 2"),
            (
                "insert into coin_entries select user_id, 3, 'pocket', 0 from wallets",
                "3: it has 3 entries instead of 2",
            ),
            ("delete from coin_transactions where number = 3", "3: it has entries, but there is no such transaction"),
            (
                "delete from coin_transactions where number = 2; delete from coin_entries where number = 2;
                 delete from daily_claims; update wallets set balance = balance - 50, transactions = 3",
                "3: the one before it is missing: it should have the number 2",
            ),
            (
                "update coin_transactions set balance = 91 where number = 3",
                "3: it left a balance of 91, it says, but of 90 by what was moved",
            ),
            ("update daily_claims set number = 3", "2: a daily bonus that nobody claimed|3: the claim of 2026-11-20"),
            ("delete from daily_claims", "2: a daily bonus that nobody claimed"),
            ("insert into daily_claims select user_id, date '2026-11-21', 2, 10, 2 from wallets", "2: 2 days claim it"),
            (
                "insert into daily_claims select user_id, date '2026-11-21', 2, 10, 5 from wallets",
                "5: the claim of 2026-11-21 has no such transaction",
            ),
            (
                "update coin_transactions set kind = 'points' where number = 1",
                "1: coins for points that no result explains",
            ),
            (
                "insert into coin_payouts select user_id, 7, 1, 40, 40, 0, null from wallets",
                "result 1 of match 7 paid 40, it says, but 0 were moved",
            ),
            ("update coin_transactions set reverses = 2 where number = 4", "2: it moved 50, but 20 were taken back"),
            (
                "update coin_transactions set amount = -10 where number = 3;
                 update coin_entries set amount = sign(amount) * 10 where number = 3",
                "3: it moved -10, but 20 were taken back",
            ),
            (
                "update coin_transactions set kind = 'points' where number = 3",
                "3: it is taken back, though it is of kind points",
            ),
            (
                "insert into coin_payouts select user_id, n, 1, 0, 0, 0, 3 from wallets, (values (7), (8)) v (n)",
                "3: 2 results pay by it",
            ),
            (
                "update coin_transactions set reverses = 0 where number = 4",
                "0: it is taken back, but there is no such transaction",
            ),
        ] {
            // The audit looks from outside, so the cheat is committed, and undone from a copy.
            let copy = "create table kept_{t} as table {t}";
            let tables = ["wallets", "coin_transactions", "coin_entries", "daily_claims", "coin_payouts"];
            for table in tables {
                sqlx::query(AssertSqlSafe(copy.replace("{t}", table))).execute(app.owner()).await.expect("kept");
            }
            for statement in cheat.split(';') {
                let of = format!("user_id = {}", user.id);
                let glue = if statement.contains(" where ") { "and" } else { "where" };
                let statement = AssertSqlSafe(format!("{statement} {glue} {of}"));
                sqlx::query(statement).execute(app.owner()).await.expect("done");
            }
            let mut found = Vec::new();
            app.app.coins.audit(|_, _| (), |difference| found.push(difference)).await.expect("audited");
            let told: Vec<String> = found
                .iter()
                .map(|difference| match difference.number {
                    Some(number) => format!("{number}: {}", difference.fault),
                    None => difference.fault.clone(),
                })
                .collect();
            for named in named.split('|') {
                assert!(told.iter().any(|told| told.contains(named)), "{cheat}: {told:#?}");
            }
            assert!(found.iter().all(|difference| difference.user == user.id), "{cheat}: {found:#?}");
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
async fn the_service_can_add_to_the_ledger_and_never_change_it() {
    TestApp::run(async |app| {
        let user = somebody(app).await;
        for table in ["coin_transactions", "coin_entries", "daily_claims", "coin_payouts"] {
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
        // The wallet can be written, but not below zero.
        let overdrawn =
            sqlx::query("update wallets set balance = -1").execute(&app.app.core.db).await.expect_err("refused");
        assert!(overdrawn.to_string().contains("wallets_balance"), "{overdrawn}");
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn an_audit_goes_through_everybody_and_says_how_far_it_is() {
    TestApp::run(async |app| {
        assert_eq!(differences(app).await, [], "nobody is there");
        let first = app.user().await;
        // Far apart, so that it takes several steps.
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
