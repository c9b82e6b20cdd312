//! Coins, idempotency keys and their audit entries.

use futures_util::future::join_all;
use serde_json::{Value, json};

use super::{Backend, backend, ola};
use crate::{
    identity::server_keys::scopes::Scope,
    testing::{TestApp, TestUser},
};

const COINS: [Scope; 2] = [Scope::CoinsRead, Scope::CoinsWrite];

fn path(user: &TestUser<'_>, movement: &str) -> String {
    format!("/users/{}/coins/{movement}", user.id)
}

async fn balance(backend: &Backend<'_>, user: &TestUser<'_>) -> Value {
    backend.get(&format!("/users/{}/coins", user.id)).await.expect(200)["data"]["balance"].clone()
}

#[tokio::test]
async fn replayed_grant_pays_once_and_is_recorded_once() {
    TestApp::run(async |app| {
        let (shop, user) = (backend(app, &COINS).await, app.user().await);
        let (body, grant) = (json!({"amount": 7, "reason": "campaign", "reference_id": "r1"}), path(&user, "grant"));
        let first = shop.post_as("k", &grant, &body).await;
        assert_eq!(first.header("idempotency-replayed"), None);
        let first = first.expect(200);
        let again = shop.post_as("k", &grant, &body).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        assert_eq!(again.expect(200), first);
        for other in [
            json!({"amount": 8, "reason": "campaign"}),
            json!({"amount": 7, "reason": "another", "reference_id": "r1"}),
        ] {
            assert_eq!(shop.post_as("k", &grant, &other).await.expect(422)["code"], "idempotency_key_reused");
        }
        assert_eq!(balance(&shop, &user).await, 107);
        let own = user.get("/api/auth/coins").await.expect(200);
        assert_eq!(own["data"]["history"][0]["reason"], "campaign");
        let [recorded] = <[_; 1]>::try_from(shop.audit().await).expect("one entry");
        assert_eq!(
            (recorded.operator, recorded.key_id, recorded.scope.as_deref(), recorded.action, recorded.target),
            (
                format!("key:{}", shop.id),
                Some(shop.id),
                Some("coins:write"),
                "coins.grant".into(),
                format!("user:{}", user.id)
            )
        );
        assert_eq!(recorded.details, json!({"transaction_id": first["data"]["transaction_id"], "amount": 7}));
        assert_eq!((recorded.reason.as_str(), recorded.outcome.as_str()), ("campaign", "done"));
        assert!(recorded.request_id.is_some());
    })
    .await;
}

#[tokio::test]
async fn idempotency_keys_belong_to_server_keys() {
    TestApp::run(async |app| {
        let (shop, other, user) = (backend(app, &COINS).await, backend(app, &COINS).await, app.user().await);
        let (body, grant) = (json!({"amount": 5, "reason": "campaign"}), path(&user, "grant"));
        let first = shop.post_as("k", &grant, &body).await.expect(200);
        let second = other.post_as("k", &grant, &body).await.expect(200);
        assert_ne!(first["data"]["transaction_id"], second["data"]["transaction_id"]);
        let rotated = app.app.server_keys.rotate(other.id, std::time::Duration::ZERO, &ola()).await.expect("rotated");
        let replayed = Backend::of(app, &rotated).post_as("k", &grant, &body).await;
        assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
        assert_eq!(replayed.expect(200), second);
        assert_eq!(balance(&shop, &user).await, 110);
    })
    .await;
}

#[tokio::test]
async fn racing_requests_with_one_key_pay_once() {
    TestApp::run(async |app| {
        let (shop, user) = (backend(app, &COINS).await, app.user().await);
        let (body, grant) = (json!({"amount": 3, "reason": "race"}), path(&user, "grant"));
        let answers = join_all((0..8).map(|_| shop.post_as("k", &grant, &body))).await;
        assert!(answers.iter().all(|answer| [200, 409].contains(&answer.status.as_u16())));
        assert_eq!(balance(&shop, &user).await, 103);
        assert_eq!(shop.actions().await, ["coins.grant"]);
    })
    .await;
}

#[tokio::test]
async fn refused_movements_leave_no_audit_entry() {
    TestApp::run(async |app| {
        let (shop, user) = (backend(app, &COINS).await, app.user().await);
        let spend = json!({"amount": 101, "reason": "shop"});
        let refused = shop.post_as("k", &path(&user, "deduct"), &spend).await.expect(400);
        assert_eq!(refused["code"], "insufficient_balance");
        let again = shop.post_as("k", &path(&user, "deduct"), &spend).await;
        assert_eq!(again.header("idempotency-replayed"), Some("true"));
        shop.post("/users/1099511627776/coins/grant", &json!({"amount": 1, "reason": "x"})).await.expect(404);
        shop.post("/users/nobody/coins/deduct", &json!({"amount": 1, "reason": "x"})).await.expect(404);
        assert_eq!(
            shop.post(&path(&user, "grant"), &json!({"amount": 0})).await.invalid_fields(),
            ["amount", "reason"]
        );
        assert_eq!(shop.actions().await, [""; 0]);
        let others = sqlx::query_scalar::<_, i64>("select count(*) from wallets where user_id = 1099511627776");
        assert_eq!(others.fetch_one(app.owner()).await.expect("counted"), 0);
    })
    .await;
}

#[tokio::test]
async fn reference_happens_once_for_backends_users_and_operators() {
    TestApp::run(async |app| {
        let (shop, other, user) = (backend(app, &COINS).await, backend(app, &COINS).await, app.user().await);
        let grant = |reason: &str, amount: i64| json!({"amount": amount, "reason": reason, "reference_id": "once"});
        let first = shop.post(&path(&user, "grant"), &grant("campaign", 9)).await.expect(200);
        let again = other.post(&path(&user, "grant"), &grant("another reason", 9)).await.expect(200);
        assert_eq!(again, first, "the first result, with its reason");
        assert_eq!(shop.post(&path(&user, "grant"), &grant("campaign", 10)).await.invalid_fields(), ["reference_id"]);
        let (amount, remark) = ("9".parse().expect("an amount"), "campaign".parse().expect("a remark"));
        let reference = "once".parse().expect("a reference");
        let (_, is_new) =
            app.app.coins.grant(user.id, amount, &remark, Some(&reference), "ada").await.expect("granted");
        assert!(!is_new);
        let order = json!({"amount": 4, "reason": "shop", "reference_id": "order"});
        let spent = shop.post(&path(&user, "deduct"), &order).await.expect(200);
        assert_eq!(spent["data"]["amount"], -4);
        let own = user.post("/api/auth/coins/deduct", order).await.expect(200);
        assert_eq!(own["data"]["transaction_id"], spent["data"]["transaction_id"]);
        assert_eq!(balance(&shop, &user).await, 105);
        assert_eq!((shop.actions().await.len(), other.actions().await.len()), (2, 0));
    })
    .await;
}

#[tokio::test]
async fn reversals_return_what_remains() {
    TestApp::run(async |app| {
        let (shop, user, stranger) = (backend(app, &COINS).await, app.user().await, app.user().await);
        let spent = shop.post(&path(&user, "deduct"), &json!({"amount": 30, "reason": "shop"})).await.expect(200);
        let id = &spent["data"]["transaction_id"];
        let reverse = path(&user, "reverse");
        let part = json!({"transaction_id": id, "amount": 10, "reason": "returned"});
        let first = shop.post_as("part", &reverse, &part).await.expect(200);
        assert_eq!((&first["data"]["amount"], &first["data"]["reverses"]), (&json!(10), id));
        let replayed = shop.post_as("part", &reverse, &part).await;
        assert_eq!(replayed.header("idempotency-replayed"), Some("true"));
        assert_eq!(replayed.expect(200), first);
        let much = json!({"transaction_id": id, "amount": 21, "reason": "returned"});
        assert_eq!(shop.post(&reverse, &much).await.invalid_fields(), ["amount"]);
        let rest = json!({"transaction_id": id, "reason": "returned"});
        let last = shop.post(&reverse, &rest).await.expect(200);
        assert_eq!((&last["data"]["amount"], &last["data"]["new_balance"]), (&json!(20), &json!(100)));
        assert_eq!(shop.post(&reverse, &rest).await.expect(409)["code"], "already_reversed");
        shop.post(&path(&stranger, "reverse"), &rest).await.expect(404);
        let again = json!({"transaction_id": last["data"]["transaction_id"], "reason": "returned"});
        assert_eq!(shop.post(&reverse, &again).await.invalid_fields(), ["transaction_id"]);
        assert_eq!(shop.actions().await, ["coins.deduct", "coins.reverse", "coins.reverse"]);
    })
    .await;
}

#[tokio::test]
async fn repeated_movement_is_refused_after_its_reversal() {
    TestApp::run(async |app| {
        let (shop, user) = (backend(app, &COINS).await, app.user().await);
        for what in ["grant", "deduct"] {
            let movement = json!({"amount": 30, "reason": "jersey", "reference_id": "jersey"});
            let moved = shop.post_as(what, &path(&user, what), &movement).await.expect(200);
            let reversal = json!({"transaction_id": moved["data"]["transaction_id"], "reason": "returned"});
            shop.post(&path(&user, "reverse"), &reversal).await.expect(200);
            assert_eq!(shop.post(&path(&user, what), &movement).await.expect(409)["code"], "reversed", "{what}");
            assert_eq!(shop.post_as(what, &path(&user, what), &movement).await.expect(200), moved, "its own key");
        }
        assert_eq!(balance(&shop, &user).await, 100);
        assert_eq!(shop.actions().await, ["coins.grant", "coins.reverse", "coins.deduct", "coins.reverse"]);
    })
    .await;
}
