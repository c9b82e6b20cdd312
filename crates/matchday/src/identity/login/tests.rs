use std::time::Duration;

use futures_util::{StreamExt as _, stream::FuturesUnordered};
use serde_json::{Value, json};

use crate::testing::TestApp;

const PHONE: &str = "+14155550100";

async fn count(app: &TestApp, table: &str) -> i64 {
    let query = format!("select count(*) from {table}");
    sqlx::query_scalar(sqlx::AssertSqlSafe(query)).fetch_one(&app.app.core.db).await.expect("counted")
}

#[tokio::test]
async fn first_login_creates_account_and_second_finds_it() {
    TestApp::run(async |app| {
        let (first, data) = app.log_in(PHONE).await;
        assert_eq!(data["user"]["phone"], PHONE);
        assert_eq!(data["user"]["created_at"], "2026-11-20T15:00:00.000Z");
        assert_eq!(data["user"]["username_is_generated"], true);
        assert_eq!(data["matrix_credentials"], Value::Null, "chat is not configured in this test");
        assert!(data["token"].as_str().is_some_and(|token| token.starts_with("md_")));
        first.get("/api/auth/teams").await.expect(200);

        let code = app.code(PHONE).await;
        let again = app.post("/api/auth/login", &json!({"phone": PHONE, "code": code, "username": "ignored"})).await;
        let again = again.expect(200);
        assert_eq!(again["data"]["user"], data["user"], "the account is unchanged");
        assert_ne!(again["data"]["token"], data["token"]);
        first.get("/api/auth/teams").await.expect(200);
        assert_eq!((count(app, "users").await, count(app, "sessions").await), (1, 2));
    })
    .await;
}

#[tokio::test]
async fn unavailable_username_keeps_the_code_valid() {
    TestApp::run(async |app| {
        let (_, other) = app.log_in("+14155550111").await;
        let taken = other["user"]["username"].as_str().expect("a name");
        let code = app.code(PHONE).await;
        let attempt = async |username: &Value| {
            let body = json!({"phone": PHONE, "code": code, "username": username});
            app.post("/api/code/verify", &body).await
        };
        // More attempts than the code has guesses.
        for username in [
            json!(taken),
            json!("admin"),
            json!("no spaces"),
            json!(7),
            json!(taken.to_uppercase()),
            json!("matchday"),
            json!("x"),
            json!("support"),
            json!(taken),
        ] {
            assert_eq!(attempt(&username).await.invalid_fields(), ["username"], "{username}");
        }
        assert_eq!(count(app, "phone_claims").await, 1, "failed attempts left no claims");
        let answer = attempt(&json!("Ada.Obi")).await.expect(200);
        assert_eq!(answer["data"]["user"]["username"], "ada.obi");
        assert_eq!(answer["data"]["user"]["username_is_generated"], false);
    })
    .await;
}

#[tokio::test]
async fn wrong_code_does_not_reveal_taken_username() {
    TestApp::run(async |app| {
        let (_, other) = app.log_in("+14155550111").await;
        let code = app.code(PHONE).await;
        let wrong = format!("{:06}", (code.parse::<u32>().expect("digits") + 1) % 1_000_000);
        let body = json!({"phone": PHONE, "code": wrong, "username": other["user"]["username"]});
        app.post("/api/code/verify", &body).await.expect(401);
    })
    .await;
}

/// Each login has a valid code and has seen that the phone has no account before any can continue: the test holds the
/// claims table locked until all fifty wait for it.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_first_logins_create_one_account() {
    let changes = [("MATCHDAY_LIMITS__PHONE_BURST", "100"), ("MATCHDAY_LIMITS__PHONE_DAILY", "1000")];
    TestApp::run_with(&changes, async |app| {
        let mut held = platform::database::begin(&app.app.core.db).await.expect("a transaction");
        sqlx::query("lock table phone_claims in exclusive mode").execute(&mut *held).await.expect("held");
        let waiting = async || -> i64 {
            sqlx::query_scalar(
                "select count(*) from pg_locks where relation = 'phone_claims'::regclass and not granted
                   and database = (select oid from pg_database where datname = current_database())",
            )
            .fetch_one(&app.app.core.db)
            .await
            .expect("locks")
        };
        let mut logins = FuturesUnordered::new();
        for number in 0..50 {
            let code = app.code(PHONE).await;
            logins.push(async move { app.post("/api/code/verify", &json!({"phone": PHONE, "code": code})).await });
            while waiting().await <= number {
                // No login can finish yet; polling only advances it to the lock.
                let early = tokio::time::timeout(Duration::from_millis(1), logins.next()).await;
                assert!(early.is_err(), "a login passed the held claims");
            }
        }
        held.commit().await.expect("released");
        let answers: Vec<_> = logins.collect().await;
        let ids: Vec<Value> =
            answers.into_iter().map(|answer| answer.expect(200)["data"]["user"]["id"].clone()).collect();
        assert!(ids.len() == 50 && ids.iter().all(|id| *id == ids[0]), "{ids:?}");
        assert_eq!(
            (count(app, "users").await, count(app, "phone_claims").await, count(app, "username_claims").await),
            (1, 1, 1)
        );
        assert_eq!(
            (count(app, "sessions").await, app.published().await.len()),
            (10, 41),
            "the newest ten sessions remain; messages report one registration and forty ended sessions"
        );
    })
    .await;
}

/// A login that has found the owner of a phone waits for the owner's row, while the owner moves to another phone.
#[tokio::test(flavor = "multi_thread")]
async fn phone_moved_during_login_gets_a_new_account() {
    TestApp::run(async |app| {
        let (owner, _) = app.log_in(PHONE).await;
        let code = app.code(PHONE).await;
        let mut moving = platform::database::begin(&app.app.core.db).await.expect("a transaction");
        sqlx::query("select from users where user_id = $1 for update")
            .bind(owner.id)
            .execute(&mut *moving)
            .await
            .expect("held");
        let body = json!({"phone": PHONE, "code": code});
        let mut login = Box::pin(app.post("/api/code/verify", &body));
        let waits = "select exists (select from pg_locks l join pg_stat_activity a using (pid)
                                    where not l.granted and a.datname = current_database())";
        while !sqlx::query_scalar::<_, bool>(waits).fetch_one(&app.app.core.db).await.expect("locks") {
            let early = tokio::time::timeout(Duration::from_millis(1), &mut login).await;
            assert!(early.is_err(), "the login passed the held account");
        }
        for statement in
            ["delete from phone_claims where user_id = $1", "update users set phone = null where user_id = $1"]
        {
            sqlx::query(statement).bind(owner.id).execute(&mut *moving).await.expect("moved");
        }
        moving.commit().await.expect("released");
        let id = login.await.expect(200)["data"]["user"]["id"].as_i64().expect("an id");
        assert_ne!(id, owner.id.0, "the login created another account");
    })
    .await;
}

#[tokio::test]
async fn sms_log_filters_by_phone_date_and_status() {
    TestApp::run(async |app| {
        app.code(PHONE).await;
        let get = async |query: &str| {
            app.anonymous(http::Method::GET, &format!("/api/logs/sms?{query}")).await.expect(200)["data"].clone()
        };
        let entry = get("phone=%2B14155550100").await[0].clone();
        assert_eq!(entry["phone"], PHONE);
        assert_eq!(
            (&entry["status"], &entry["provider"], &entry["attempts"]),
            (&json!("sent"), &json!("console"), &json!(0))
        );
        assert_eq!(
            (&entry["created_at"], &entry["expires_at"]),
            (&json!("2026-11-20T15:00:00.000Z"), &json!("2026-11-20T15:05:00.000Z"))
        );
        assert!(entry.get("error").is_none());
        assert_eq!(get("phone=+14155550100").await[0], entry, "an unencoded plus sign");
        assert_eq!(get("date=2026-11-20&status=sent").await[0], entry);
        for nothing in ["date=2026-11-19", "status=failed", "phone=%2B14155550101"] {
            assert_eq!(get(nothing).await, json!([]), "{nothing}");
        }
        for (query, field) in
            [("status=lost", "status"), ("date=yesterday", "date"), ("phone=x", "phone"), ("page=0", "page")]
        {
            let answer = app.anonymous(http::Method::GET, &format!("/api/logs/sms?{query}")).await;
            assert_eq!(answer.invalid_fields(), [field]);
        }
    })
    .await;
}
