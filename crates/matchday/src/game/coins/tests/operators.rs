//! Tests of grants and reversals by operators.

use http::Method;
use serde_json::json;

use super::{assert_clean, balance, deduction};
use crate::{
    game::coins::{
        ledger::Refusal,
        rules::{CoinAmount, Kind, MOST, Reference, Remark, TransactionId},
        service::OperatorError,
    },
    testing::{TestApp, TestUser},
};

fn coins(amount: i64) -> CoinAmount {
    CoinAmount::new(amount).expect("an amount")
}

fn remark() -> Remark {
    "for the outage on Sunday".parse().expect("a remark")
}

async fn spend(user: &TestUser<'_>, amount: i64, reference: &str) -> TransactionId {
    let response = user.post("/api/auth/coins/deduct", deduction(amount, reference)).await.expect(200);
    response["data"]["transaction_id"].as_str().expect("an id").parse().expect("an id")
}

#[tokio::test]
async fn grant_appears_in_history_once_per_reference() {
    TestApp::run(async |app| {
        let (ledger, user) = (&app.app.coins, app.user().await);
        let reference: Reference = "outage-7".parse().expect("a reference");
        let first = ledger.grant(user.id, coins(40), &remark(), Some(&reference), "ada").await.expect("granted");
        let typo: Remark = "for the outtage".parse().expect("a remark");
        let again = ledger.grant(user.id, coins(40), &typo, Some(&reference), "ada").await.expect("granted before");
        assert!(first.1 && !again.1, "only the first call grants coins");
        assert_eq!(first.0, again.0);
        let other = ledger.grant(user.id, coins(41), &remark(), Some(&reference), "ada").await;
        assert!(matches!(other, Err(OperatorError::Refused(Refusal::OtherAmount))), "{other:?}");
        ledger.grant(user.id, coins(40), &remark(), None, "ada").await.expect("granted");
        assert_eq!(balance(&user).await, 180);
        let history = user.get("/api/auth/coins").await.expect(200)["data"]["history"].clone();
        assert_eq!((&history[0]["kind"], &history[0]["reason"]), (&json!("grant"), &json!("for the outage on Sunday")));
        let operator: Option<String> =
            sqlx::query_scalar("select operator from coin_transactions where user_id = $1 and number = 2")
                .bind(user.id)
                .fetch_one(&app.app.core.db)
                .await
                .expect("read");
        assert_eq!(operator.as_deref(), Some("ada"));
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn wallet_refuses_coins_above_its_limit() {
    TestApp::run(async |app| {
        let (ledger, user) = (&app.app.coins, app.user().await);
        // Sets the balance directly, because no test can grant this many coins. The audit would report it, so it is not
        // run.
        sqlx::query("update wallets set balance = $2 where user_id = $1")
            .bind(user.id)
            .bind(MOST - 10)
            .execute(&app.app.core.db)
            .await
            .expect("full");
        let refused = ledger.grant(user.id, coins(11), &remark(), None, "ada").await;
        assert!(matches!(refused, Err(OperatorError::Refused(Refusal::Full))), "{refused:?}");
        ledger.grant(user.id, coins(10), &remark(), None, "ada").await.expect("granted");
        assert_eq!(user.post("/api/auth/daily-coins", json!({})).await.expect(400)["code"], "wallet_full");
    })
    .await;
}

#[tokio::test]
async fn deduction_is_reversed_in_parts_up_to_its_amount() {
    TestApp::run(async |app| {
        let (ledger, user) = (&app.app.coins, app.user().await);
        let order = spend(&user, 60, "order-1").await;
        let reverse = async |amount, id| ledger.reverse(user.id, coins(amount), id, &remark(), "ada").await;
        let (meant, posted) = reverse(25, Some(order)).await.expect("reversed");
        assert_eq!((meant, posted.amount, posted.balance), (order, 25, 65));
        assert!(matches!(reverse(36, Some(order)).await, Err(OperatorError::TooMuch(35))));
        let (_, posted) = reverse(35, Some(order)).await.expect("reversed");
        assert_eq!(posted.balance, 100);
        assert!(matches!(reverse(1, Some(order)).await, Err(OperatorError::TooMuch(0))));
        assert!(matches!(reverse(35, Some(posted.id)).await, Err(OperatorError::NotReversible(Kind::Reversal))));
        let history = user.get("/api/auth/coins").await.expect(200)["data"]["history"].clone();
        assert_eq!((&history[0]["kind"], &history[0]["reverses"]), (&json!("reversal"), &json!(order.to_string())));
        // The reference remains used, so the same order is not charged a second time.
        let again = user.post("/api/auth/coins/deduct", deduction(60, "order-1")).await.expect(409);
        assert_eq!(again["code"], "reversed");
        assert_eq!(balance(&user).await, 100);
        let spent: i64 = sqlx::query_scalar(
            "select coalesce(sum(amount), 0)::bigint from coin_entries where user_id = $1 and account = 'spent:purchase'",
        )
        .bind(user.id)
        .fetch_one(&app.app.core.db)
        .await
        .expect("read");
        assert_eq!(spent, 0, "a reversal restores both sides of the transaction");
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn reversal_without_id_needs_a_unique_amount() {
    TestApp::run(async |app| {
        let (ledger, user) = (&app.app.coins, app.user().await);
        let reverse = async |amount, id| ledger.reverse(user.id, coins(amount), id, &remark(), "ada").await;
        assert!(matches!(reverse(20, None).await, Err(OperatorError::NoSuchTransaction)));
        let first = spend(&user, 20, "a").await;
        spend(&user, 30, "b").await;
        let (meant, _) = reverse(20, None).await.expect("reversed");
        assert_eq!(meant, first);
        assert!(matches!(reverse(20, None).await, Err(OperatorError::NoSuchTransaction)), "it was already reversed");
        let (third, fourth) = (spend(&user, 20, "c").await, spend(&user, 20, "d").await);
        let Err(OperatorError::Ambiguous(candidates)) = reverse(20, None).await else {
            panic!("the amount is ambiguous")
        };
        assert_eq!(candidates.iter().map(|candidate| candidate.id).collect::<Vec<_>>(), [fourth, third]);
        reverse(20, Some(third)).await.expect("reversed");
        assert_eq!(balance(&user).await, 50);
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn repeated_purchase_is_refused_after_its_reversal() {
    TestApp::run(async |app| {
        let (ledger, user) = (&app.app.coins, app.user().await);
        let buy = async |key: &str| {
            let body = deduction(80, "jersey").to_string();
            user.send_with(Method::POST, "/api/auth/coins/deduct", &[("idempotency-key", key)], Some(body)).await
        };
        let first = buy("one").await.expect(200);
        let order = first["data"]["transaction_id"].as_str().expect("an id").parse().expect("an id");
        let reverse = async |amount| ledger.reverse(user.id, coins(amount), Some(order), &remark(), "ada").await;
        reverse(30).await.expect("reversed");
        assert_eq!(buy("two").await.expect(200)["data"], first["data"], "the rest is still paid");
        reverse(50).await.expect("reversed");
        let refused = buy("three").await.expect(409);
        assert_eq!(refused["code"], "reversed");
        assert_eq!(buy("three").await.expect(409), refused, "the refusal is repeated");
        assert_eq!(buy("one").await.expect(200), first, "a key repeats the response to its own request");
        assert_eq!(
            user.post("/api/auth/coins/deduct", deduction(79, "jersey")).await.invalid_fields(),
            ["reference_id"]
        );
        assert_eq!(balance(&user).await, 100);
        let reference: Reference = "outage-7".parse().expect("a reference");
        let grant = async || ledger.grant(user.id, coins(40), &remark(), Some(&reference), "ada").await;
        let (granted, _) = grant().await.expect("granted");
        ledger.reverse(user.id, coins(40), Some(granted.id), &remark(), "ada").await.expect("reversed");
        assert!(matches!(grant().await, Err(OperatorError::Refused(Refusal::Reversed))));
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn grant_is_reversed_only_up_to_the_balance() {
    TestApp::run(async |app| {
        let (ledger, user) = (&app.app.coins, app.user().await);
        let (granted, _) = ledger.grant(user.id, coins(500), &remark(), None, "ada").await.expect("granted");
        spend(&user, 450, "all").await;
        let reverse = async |amount| ledger.reverse(user.id, coins(amount), Some(granted.id), &remark(), "ada").await;
        let refused = reverse(500).await;
        assert!(
            matches!(refused, Err(OperatorError::Refused(Refusal::Insufficient { balance: 150 }))),
            "the balance does not cover the grant: {refused:?}"
        );
        let (_, posted) = reverse(150).await.expect("reversed");
        assert_eq!(posted.balance, 0);
        let other = app.user().await;
        let not_theirs = ledger.reverse(other.id, coins(1), Some(granted.id), &remark(), "ada").await;
        assert!(matches!(not_theirs, Err(OperatorError::NoSuchTransaction)));
        assert_clean(app).await;
    })
    .await;
}
