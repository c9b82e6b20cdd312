//! Tests of deductions: validation, idempotency and concurrency.

use std::collections::BTreeSet;

use futures_util::future::join_all;
use platform::{batches::Attempt, clock::Clock as _, shards::Shards};
use serde_json::json;

use super::{assert_clean, balance, deduction};
use crate::{
    game::coins::{
        ledger::{Book, Movement},
        rules::{Kind, TransactionId},
    },
    identity::idempotency::RequestKey,
    testing::TestApp,
};

const DEDUCT: &str = "/api/auth/coins/deduct";

#[tokio::test]
async fn new_user_can_spend_welcome_coins() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let response = user.post(DEDUCT, deduction(30, "order-1")).await.expect(200);
        assert!(response["message"].is_string());
        let data = &response["data"];
        assert_eq!(
            (&data["previous_balance"], &data["amount_deducted"], &data["new_balance"]),
            (&json!(100), &json!(30), &json!(70))
        );
        let id = data["transaction_id"].as_str().and_then(|id| id.strip_prefix("txn_")).expect("an id");
        assert_eq!(uuid::Uuid::try_parse(id).expect("a UUID").get_version_num(), 7);
        assert_eq!(user.get("/api/auth/me").await.expect(200)["data"]["balance"], 70);
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn welcome_coins_are_granted_once_at_registration() {
    TestApp::run_with(&[("MATCHDAY_COINS__WELCOME", "7")], async |app| {
        let (user, _) = app.log_in("+14155550100").await;
        assert_eq!(balance(&user).await, 7);
        let (again, _) = app.log_in("+14155550100").await;
        assert_eq!((again.id, balance(&again).await), (user.id, 7));
        let history = user.get("/api/auth/coins").await.expect(200)["data"]["history"].clone();
        assert_eq!(history.as_array().map(Vec::len), Some(1));
        assert_eq!((&history[0]["kind"], &history[0]["amount"]), (&json!("welcome"), &json!(7)));
        assert_clean(app).await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn wallet_is_empty_without_welcome_coins() {
    TestApp::run_with(&[("MATCHDAY_COINS__WELCOME", "0")], async |app| {
        let user = app.user().await;
        assert_eq!(balance(&user).await, 0);
        assert_eq!(user.post(DEDUCT, deduction(1, "a")).await.expect(400)["code"], "insufficient_balance");
        assert_clean(app).await;
    })
    .await;
}

/// Covers users who registered with a version without coins.
#[tokio::test]
async fn user_without_wallet_gets_an_empty_one() {
    TestApp::run(async |app| {
        let id: i64 = sqlx::query_scalar(
            "insert into users (created_at, username) values (now(), 'early_bird') returning user_id",
        )
        .fetch_one(&app.app.core.db)
        .await
        .expect("a user");
        let user = app.login(web::ids::UserId(id)).await;
        assert_eq!(balance(&user).await, 0);
        user.post(DEDUCT, deduction(1, "a")).await.expect(400);
        assert_eq!(user.post("/api/auth/daily-coins", json!({})).await.expect(200)["data"]["new_balance"], 50);
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn reference_is_charged_once_for_one_amount() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let first = user.post(DEDUCT, deduction(10, "bet-1")).await.expect(200);
        assert_eq!(user.post(DEDUCT, deduction(10, "bet-1")).await.expect(200), first);
        assert_eq!(user.post(DEDUCT, deduction(11, "bet-1")).await.invalid_fields(), ["reference_id"]);
        // A different reason, a different user, and a missing reference each make a different deduction.
        let mut other = deduction(10, "bet-1");
        other["reason"] = json!("wager");
        assert_eq!(user.post(DEDUCT, other).await.expect(200)["data"]["new_balance"], 80);
        let other_user = app.user().await;
        assert_eq!(other_user.post(DEDUCT, deduction(10, "bet-1")).await.expect(200)["data"]["new_balance"], 90);
        for left in [75, 70] {
            let body = json!({"amount": 5, "reason": "purchase", "reference_id": null});
            assert_eq!(user.post(DEDUCT, body).await.expect(200)["data"]["new_balance"], left);
        }
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn refused_deduction_costs_nothing_and_can_be_retried() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let refused = user.post(DEDUCT, deduction(101, "big")).await.expect(400);
        assert_eq!(refused["code"], "insufficient_balance");
        assert_eq!(balance(&user).await, 100);
        user.post("/api/auth/daily-coins", json!({})).await.expect(200);
        assert_eq!(user.post(DEDUCT, deduction(101, "big")).await.expect(200)["data"]["new_balance"], 49);
        assert_eq!(user.post(DEDUCT, deduction(49, "rest")).await.expect(200)["data"]["new_balance"], 0);
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn invalid_deduction_fields_are_reported() {
    TestApp::run_with(&[("MATCHDAY_COINS__REASONS", "purchase,wager")], async |app| {
        let user = app.user().await;
        for (change, field) in [
            (json!({"amount": 0}), "amount"),
            (json!({"amount": -5}), "amount"),
            (json!({"amount": "5"}), "amount"),
            (json!({"amount": 1.5}), "amount"),
            (json!({"amount": null}), "amount"),
            (json!({"amount": 1_000_000_001}), "amount"),
            (json!({"amount": 9_223_372_036_854_775_808_u64}), "amount"),
            (json!({"reason": ""}), "reason"),
            (json!({"reason": null}), "reason"),
            (json!({"reason": 5}), "reason"),
            (json!({"reason": "a\u{0}b"}), "reason"),
            (json!({"reason": "x".repeat(65)}), "reason"),
            (json!({"reason": "gift"}), "reason"),
            (json!({"reference_id": ""}), "reference_id"),
            (json!({"reference_id": 7}), "reference_id"),
            (json!({"reference_id": "x".repeat(129)}), "reference_id"),
            (json!({"reference_id": "a\u{0}b"}), "reference_id"),
        ] {
            let mut body = deduction(1, "r");
            body.as_object_mut().expect("an object").extend(change.as_object().expect("an object").clone());
            assert_eq!(user.post(DEDUCT, body).await.invalid_fields(), [field], "{change}");
        }
        assert_eq!(balance(&user).await, 100);
        let mut body = deduction(1, "r");
        body["reason"] = json!("Match wager");
        let refused = user.post(DEDUCT, body).await.expect(422);
        assert_eq!(refused["errors"]["reason"], json!(["The reason must be one of: purchase, wager."]));
    })
    .await;
}

#[tokio::test]
async fn reason_is_free_text_unless_operator_lists_some() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for reason in ["Match wager", "7 % größer!", "😀", &"x".repeat(64)] {
            let body = json!({"amount": 1, "reason": reason});
            user.post(DEDUCT, body).await.expect(200);
            assert_eq!(user.get("/api/auth/coins").await.expect(200)["data"]["history"][0]["reason"], reason);
        }
        for reason in ["", "line\nbreak", &"x".repeat(65)] {
            let refused = user.post(DEDUCT, json!({"amount": 1, "reason": reason})).await.expect(422);
            let message = "The reason must be a string of 1 to 64 characters without control characters.";
            assert_eq!(refused["errors"]["reason"], json!([message]), "{reason:?}");
        }
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn racing_deductions_never_overdraw_or_charge_twice() {
    TestApp::run(async |app| {
        let user = app.user().await;
        // Twenty orders of 10 coins, each requested three times concurrently. The wallet covers ten.
        let tries = (0..60).map(|n| {
            let user = &user;
            async move { (n % 20, user.post(DEDUCT, deduction(10, &format!("order-{}", n % 20))).await) }
        });
        let mut done = BTreeSet::new();
        for (order, response) in join_all(tries).await {
            match response.status.as_u16() {
                200 => {
                    let body = response.expect(200);
                    done.insert((order, body["data"]["transaction_id"].as_str().expect("an id").to_owned()));
                }
                _ => assert_eq!(response.expect(400)["code"], "insufficient_balance"),
            }
        }
        assert_eq!(done.len(), 10, "one transaction for each order that was paid: {done:?}");
        assert_eq!(balance(&user).await, 0);
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn history_is_paged_and_explains_the_balance() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for order in 0..7 {
            user.post(DEDUCT, deduction(order + 1, &format!("order-{order}"))).await.expect(200);
        }
        let (mut seen, mut path) = (Vec::new(), "/api/auth/coins?per_page=3".to_owned());
        loop {
            let page = user.get(&path).await.expect(200);
            seen.extend(page["data"]["history"].as_array().expect("a list").clone());
            let Some(cursor) = page["meta"]["next_cursor"].as_str() else { break };
            path = format!("/api/auth/coins?per_page=3&cursor={cursor}");
        }
        let amounts: Vec<i64> = seen.iter().filter_map(|item| item["amount"].as_i64()).collect();
        assert_eq!(amounts, [-7, -6, -5, -4, -3, -2, -1, 100]);
        assert_eq!(seen[0]["balance"], 72);
        assert_eq!((&seen[1]["reference_id"], &seen[1]["reason"]), (&json!("order-5"), &json!("purchase")));
        assert_eq!(seen[0]["created_at"], "2026-11-20T15:00:00.000Z");
        assert_eq!(user.get("/api/auth/coins?cursor=x").await.invalid_fields(), ["cursor"]);
        let other = app.user().await;
        assert_eq!(other.get("/api/auth/coins").await.expect(200)["data"]["history"].as_array().map(Vec::len), Some(1));
    })
    .await;
}

#[tokio::test]
async fn idempotency_key_charges_once_after_a_crash() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let body = json!({"amount": 10, "reason": "wager"});
        let keyed = async |path, key, body: &serde_json::Value| {
            user.send_with(http::Method::POST, path, &[("idempotency-key", key)], Some(body.to_string())).await
        };
        let first = keyed(DEDUCT, "a", &body).await.expect(200);
        let again = keyed(DEDUCT, "a", &body).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.expect(200), first);
        let claim = keyed("/api/auth/daily-coins", "a", &json!({})).await.expect(200);
        // Simulates a process that died between the transaction and the response.
        sqlx::query("delete from idempotency_keys").execute(&app.app.core.db).await.expect("deleted");
        assert_eq!(keyed(DEDUCT, "a", &body).await.expect(200), first, "the ledger returns the first transaction");
        assert_eq!(keyed("/api/auth/daily-coins", "a", &json!({})).await.expect(200), claim);
        // The ledger distinguishes a repeated request from a different one.
        sqlx::query("delete from idempotency_keys").execute(&app.app.core.db).await.expect("deleted");
        for other in [json!({"amount": 11, "reason": "wager"}), json!({"amount": 10, "reason": "purchase"})] {
            let refused = keyed(DEDUCT, "a", &other).await.expect(422);
            assert_eq!(refused["code"], "idempotency_key_reused");
            sqlx::query("delete from idempotency_keys").execute(&app.app.core.db).await.expect("deleted");
        }
        assert_eq!(keyed(DEDUCT, "b", &body).await.expect(200)["data"]["previous_balance"], 140);
        assert_eq!(balance(&user).await, 130);
        // After a day, a key counts as new.
        app.clock.advance(time::Duration::hours(25));
        app.app.idempotency.sweep().await.expect("swept");
        assert_eq!(keyed(DEDUCT, "a", &body).await.expect(200)["data"]["previous_balance"], 130);
        assert_eq!(keyed("/api/auth/daily-coins", "a", &json!({})).await.expect(200)["data"]["streak_days"], 2);
        assert_clean(app).await;
    })
    .await;
}

/// A connection can break during a commit. The second attempt must find the transactions of the first and write only
/// the missing ones.
#[tokio::test]
async fn second_attempt_finds_transactions_of_the_first() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let movement = |id: u128, amount| {
            Movement::new(user.id, TransactionId(uuid::Uuid::from_u128(id)), Kind::Deduction, amount, "spent:purchase")
        };
        let post = async |movements: Vec<Movement>, attempt| {
            let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
            let mut book = Book::open(&mut tx, &Shards::one(), [user.id]).await.expect("opened");
            book.load_prior(&mut tx, &movements, attempt, app.clock.now()).await.expect("loaded");
            let outcomes: Vec<_> = movements.into_iter().map(|movement| book.post(movement)).collect();
            book.close(&mut tx, app.clock.now()).await.expect("written").count();
            tx.commit().await.expect("committed");
            outcomes
        };
        let first = post(vec![movement(1, -10), movement(2, -20)], Attempt::First).await;
        // The first two movements have neither a reference nor a key. The third was not part of the first attempt.
        let second = post(vec![movement(1, -10), movement(2, -20), movement(3, -5)], Attempt::Second).await;
        assert_eq!(second[..2], first[..]);
        assert_eq!(second[2].map(|posted| (posted.number, posted.balance)), Ok((4, 65)));
        assert_eq!(balance(&user).await, 65);
        assert_clean(app).await;
    })
    .await;
}

/// A ledger that was analysed before its first purchase must not be read as a whole for each of the next ones.
#[tokio::test]
async fn purchases_are_found_by_key_after_early_analysis() {
    TestApp::run(async |app| {
        let users: Vec<_> = join_all((0..20).map(|_| app.user())).await;
        sqlx::raw_sql("vacuum analyze coin_transactions").execute(app.owner()).await.expect("analysed");
        let purchases = "insert into coin_transactions
             (user_id, number, transaction_id, kind, amount, balance, reason, reference, request_key, created_at)
             select user_id, n, gen_random_uuid(), 'deduction', -1, 1, 'purchase', 'past-' || n, sha256(n::text::bytea), now()
             from wallets, generate_series(2, 101) n";
        sqlx::raw_sql(purchases).execute(app.owner()).await.expect("inserted");

        let writers = platform::database::writers(&app.app.core.db, 1, app.app.core.writer_settings);
        let mut tx = platform::database::begin(&writers).await.expect("begun");
        let movements: Vec<_> = users
            .iter()
            .map(|user| Movement {
                reason: Some("purchase".to_owned()),
                reference: Some("past-50".to_owned()),
                request: Some(RequestKey([0; 32])),
                ..Movement::new(user.id, TransactionId(uuid::Uuid::nil()), Kind::Deduction, -1, "spent:purchase")
            })
            .collect();
        let mut book = Book::open(&mut tx, &Shards::one(), users.iter().map(|user| user.id)).await.expect("opened");
        book.load_prior(&mut tx, &movements, Attempt::First, app.clock.now()).await.expect("loaded");
        let read = "select sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0))::bigint
                    from pg_stat_xact_user_tables where relname like 'coin_transactions%'";
        let read: i64 = sqlx::query_scalar(read).fetch_one(&mut *tx).await.expect("counted");
        assert_eq!(read, 20, "one transaction of each user has the reference, none has the key");
    })
    .await;
}

#[tokio::test]
async fn locked_wallet_delays_only_its_user() {
    TestApp::run_with(&[("MATCHDAY_COINS__WRITERS", "1")], async |app| {
        let (stuck, other) = (app.user().await, app.user().await);
        let mut holder = platform::database::begin(app.owner()).await.expect("begun");
        sqlx::query("select from wallets where user_id = $1 for update")
            .bind(stuck.id)
            .execute(&mut *holder)
            .await
            .expect("held");
        // The first batch waits for the stuck wallet; the next one contains both wallets.
        let tries = [(&stuck, "a"), (&other, "b"), (&stuck, "c"), (&other, "d")]
            .map(|(user, reference)| user.post(DEDUCT, deduction(5, reference)));
        let statuses: Vec<u16> = join_all(tries).await.iter().map(|response| response.status.as_u16()).collect();
        assert_eq!(statuses, [503, 200, 503, 200]);
        holder.rollback().await.expect("released");
        stuck.post(DEDUCT, deduction(5, "a")).await.expect(200);
        assert_eq!((balance(&stuck).await, balance(&other).await), (95, 90));
        assert_clean(app).await;
    })
    .await;
}
