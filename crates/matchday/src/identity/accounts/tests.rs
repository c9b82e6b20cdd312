use futures_util::future::join_all;
use serde_json::{Value, json};
use time::Duration;

use super::service::{NAME_CHANGED, REGISTERED, RENAMED};
use crate::testing::TestApp;

const PHONE: &str = "+14155550100";
const OTHER: &str = "+14155550111";

#[tokio::test]
async fn profile_update_changes_only_named_fields() {
    TestApp::run(async |app| {
        let (user, login) = app.log_in(PHONE).await;
        let update =
            async |body: Value| user.post("/api/auth/update-user-info", body).await.expect(200)["data"].clone();
        let saved =
            update(json!({"name": " Ada Obi ", "email": "ada@example.org", "date_of_birth": "1990-02-28"})).await;
        assert_eq!(
            (&saved["id"], &saved["name"], &saved["email"]),
            (&json!(user.id), &json!("Ada Obi"), &json!("ada@example.org"))
        );
        assert!(saved.get("matrix_credentials").is_none(), "chat credentials are unchanged");
        update(json!({"name": "Ada O.", "colour": "blue"})).await;
        let me = user.get("/api/auth/me").await.expect(200)["data"].clone();
        assert_eq!(
            (&me["name"], &me["email"], &me["date_of_birth"]),
            (&json!("Ada O."), &json!("ada@example.org"), &json!("1990-02-28"))
        );
        assert_eq!((&me["phone"], &me["username"]), (&json!(PHONE), &login["user"]["username"]));
        let cleared = update(json!({"name": null, "email": null, "date_of_birth": null})).await;
        assert_eq!(
            (&cleared["name"], &cleared["email"], &cleared["date_of_birth"]),
            (&Value::Null, &Value::Null, &Value::Null)
        );
        update(json!({})).await;
        let subjects: Vec<String> = app.published().await.into_iter().map(|(subject, _)| subject).collect();
        assert_eq!(subjects, [NAME_CHANGED; 3], "each name change is published to chat");
    })
    .await;
}

#[tokio::test]
async fn only_first_login_publishes_registration_without_phone() {
    TestApp::run(async |app| {
        let log_in = async || {
            let body = json!({"phone": PHONE, "code": app.code(PHONE).await});
            app.post("/api/code/verify", &body).await.expect(200)["data"]["user"].clone()
        };
        let user = log_in().await;
        let fact =
            json!({"user_id": user["id"], "username": user["username"], "created_at": "2026-11-20T15:00:00.000Z"});
        assert_eq!(app.published().await, [(REGISTERED.to_owned(), fact)]);
        assert_eq!(log_in().await["id"], user["id"]);
        assert_eq!(app.published().await, []);
        let taken = json!({"phone": OTHER, "code": app.code(OTHER).await, "username": user["username"]});
        assert_eq!(app.post("/api/code/verify", &taken).await.invalid_fields(), ["username"]);
        assert_eq!(app.published().await, [], "a failed login registers no account");
        app.user().await;
        assert_eq!(app.published().await, [], "test accounts are not published");
    })
    .await;
}

#[tokio::test]
async fn invalid_profile_fields_are_all_reported() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let update = async |body: Value| user.post("/api/auth/update-user-info", body).await;
        let all = json!({"name": "", "email": "x", "date_of_birth": "1990-02-30", "username": "no spaces"});
        assert_eq!(update(all).await.invalid_fields(), ["date_of_birth", "email", "name", "username"]);
        for (field, value) in [
            ("email", json!(5)),
            ("date_of_birth", json!("28/02/1990")),
            ("date_of_birth", json!("2999-01-01")),
            ("date_of_birth", json!("2013-11-21")),
            ("name", json!("x".repeat(300))),
            ("name", json!(5)),
            ("username", json!("admin")),
        ] {
            assert_eq!(update(json!({"name": "Ada", field: value})).await.invalid_fields(), [field]);
        }
        assert_eq!(user.get("/api/auth/me").await.expect(200)["data"]["name"], Value::Null);
        update(json!({"date_of_birth": "2013-11-20"})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn minimum_age_is_configurable() {
    for (age, allowed, refused, message) in [
        ("18", "2008-11-20", "2008-11-21", "The date of birth must be a date in the past, at least 18 years ago."),
        ("0", "2026-11-20", "2026-11-21", "The date of birth must be a date in the past."),
    ] {
        TestApp::run_with(&[("MATCHDAY_ACCOUNTS__MINIMUM_AGE", age)], async |app| {
            let (user, _) = app.log_in(PHONE).await;
            let update =
                async |born: &str| user.post("/api/auth/update-user-info", json!({"date_of_birth": born})).await;
            assert_eq!(update(refused).await.expect(422)["errors"]["date_of_birth"], json!([message]));
            update(allowed).await.expect(200);
        })
        .await;
    }
}

#[tokio::test]
async fn me_shows_the_favourite_teams() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let (user, _) = app.log_in(PHONE).await;
        assert_eq!(user.get("/api/auth/me").await.expect(200)["data"]["teams"], json!({"primary": null, "other": []}));
        let (rovers, city, albion) =
            (fixtures.team_id("rovers").await, fixtures.team_id("city").await, fixtures.team_id("albion").await);
        user.post("/api/auth/teams/primary", json!({"team_id": city})).await.expect(200);
        user.post("/api/auth/teams/other", json!({"team_ids": [rovers, albion]})).await.expect(200);
        let teams = user.get("/api/auth/me").await.expect(200)["data"]["teams"].clone();
        assert_eq!(
            (&teams["primary"]["id"], &teams["other"][0]["id"], &teams["other"][1]["id"]),
            (&json!(city), &json!(rovers), &json!(albion))
        );
    })
    .await;
}

#[tokio::test]
async fn me_shows_all_time_points() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let points = async || user.get("/api/auth/me").await.expect(200)["data"]["points"].clone();
        assert_eq!(points().await, 0, "no match is settled yet");
        sqlx::query("insert into user_scores values ($1, 'all', -12, 0, 0, 1), ($1, 'month:2026-11', 7, 0, 0, 1)")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("scores");
        assert_eq!(points().await, -12);
    })
    .await;
}

#[tokio::test]
async fn generated_username_is_replaced_once_and_stays_taken() {
    TestApp::run(async |app| {
        let (user, login) = app.log_in(PHONE).await;
        let old = login["user"]["username"].as_str().expect("a name").to_owned();
        let saved = user.post("/api/auth/update-user-info", json!({"username": "Ada_Obi"})).await.expect(200);
        assert_eq!(
            (&saved["data"]["username"], &saved["data"]["username_is_generated"]),
            (&json!("ada_obi"), &json!(false))
        );
        assert_eq!(saved["data"]["matrix_credentials"], Value::Null, "chat is unavailable in this test");
        let messages = app.published().await;
        assert_eq!(
            (messages[0].0.as_str(), &messages[0].1),
            (RENAMED, &json!({"user_id": user.id, "from": old, "to": "ada_obi"}))
        );
        for spent in ["ada_obi", old.as_str()] {
            let answer = app.post("/api/auth/username/check", &json!({"username": spent})).await.expect(200);
            assert_eq!(answer["available"], false, "{spent}");
        }
        let same =
            user.post("/api/auth/update-user-info", json!({"username": "ada_obi", "email": "ada@example.org"})).await;
        assert_eq!(same.expect(200)["data"]["email"], "ada@example.org", "the same username is accepted");
        for username in ["ada_again", old.as_str()] {
            let answer = user.post("/api/auth/update-user-info", json!({"username": username})).await;
            assert_eq!(answer.invalid_fields(), ["username"], "{username}");
        }
        let free = app.post("/api/auth/username/check", &json!({"username": "ada_again"})).await.expect(200);
        assert_eq!(free["available"], true, "a refused change claims nothing");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_of_username_succeed_once() {
    TestApp::run(async |app| {
        for round in 0..3 {
            let mut users = Vec::new();
            for n in 0..10 {
                users.push(app.log_in(&format!("+1415555{round}{n:03}")).await.0);
            }
            let wanted = format!("wanted_{round}");
            // Ten users replace a generated name, ten register with the name.
            let mut codes = Vec::new();
            for n in 0..10 {
                let phone = format!("+1415556{round}{n:03}");
                codes.push((app.code(&phone).await, phone));
            }
            let replacing =
                join_all(users.iter().map(|user| user.post("/api/auth/update-user-info", json!({"username": wanted}))));
            let bodies: Vec<Value> =
                codes.iter().map(|(code, phone)| json!({"phone": phone, "code": code, "username": wanted})).collect();
            let registering = join_all(bodies.iter().map(|body| app.post("/api/code/verify", body)));
            let (replaced, registered) = tokio::join!(replacing, registering);
            let statuses: Vec<u16> = replaced.iter().chain(&registered).map(|answer| answer.status.as_u16()).collect();
            assert_eq!(statuses.iter().filter(|&&status| status == 200).count(), 1, "{statuses:?}");
            assert_eq!(statuses.iter().filter(|&&status| status == 422).count(), 19, "{statuses:?}");
            let owners: i64 = sqlx::query_scalar("select count(*) from users where username = $1")
                .bind(&wanted)
                .fetch_one(&app.app.core.db)
                .await
                .expect("read");
            assert_eq!(owners, 1);
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn verified_phone_moves_account_and_frees_old_phone() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let begun = user.post("/api/auth/verify-phone/initiate", json!({"phone": "+1 415 555 0111"})).await.expect(200);
        assert_eq!(begun["data"], json!({"expires_in": 300, "phone": OTHER}));
        let code = app.codes(OTHER).await.remove(0);
        assert_eq!(
            user.post("/api/auth/verify-phone", json!({"phone": PHONE, "code": code})).await.invalid_fields(),
            ["phone"]
        );
        let done = user.post("/api/auth/verify-phone", json!({"phone": OTHER, "code": code})).await.expect(200);
        assert_eq!(done["data"], json!({"verified": true, "phone": OTHER}));
        user.post("/api/auth/verify-phone", json!({"phone": OTHER, "code": code})).await.expect(401);
        assert_eq!(user.get("/api/auth/me").await.expect(200)["data"]["phone"], OTHER);
        assert_eq!(app.log_in(OTHER).await.0.id, user.id);
        assert_ne!(app.log_in(PHONE).await.0.id, user.id);
        // Users can verify their current phone again.
        user.post("/api/auth/verify-phone/initiate", json!({"phone": OTHER})).await.expect(200);
        let code = app.codes(OTHER).await.remove(0);
        user.post("/api/auth/verify-phone", json!({"phone": OTHER, "code": code})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn taken_phone_is_revealed_only_after_correct_code() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let (other, _) = app.log_in(OTHER).await;
        user.post("/api/auth/verify-phone", json!({"phone": OTHER, "code": "123456"})).await.expect(401);
        let taken = user.post("/api/auth/verify-phone/initiate", json!({"phone": OTHER})).await;
        let free = user.post("/api/auth/verify-phone/initiate", json!({"phone": "+14155550122"})).await;
        assert_eq!((taken.status, taken.bytes.len()), (free.status, free.bytes.len()));
        user.post("/api/auth/verify-phone/initiate", json!({"phone": OTHER})).await.expect(200);
        let code = app.codes(OTHER).await.remove(0);
        let wrong = format!("{:06}", (code.parse::<u32>().expect("digits") + 1) % 1_000_000);
        user.post("/api/auth/verify-phone", json!({"phone": OTHER, "code": wrong})).await.expect(401);
        let refused = user.post("/api/auth/verify-phone", json!({"phone": OTHER, "code": code})).await;
        assert_eq!(refused.invalid_fields(), ["phone"]);
        user.post("/api/auth/verify-phone", json!({"phone": OTHER, "code": code})).await.expect(401);
        app.clock.advance(Duration::minutes(5));
        assert_eq!(app.log_in(OTHER).await.0.id, other.id);
        assert_eq!(user.get("/api/auth/me").await.expect(200)["data"]["phone"], PHONE);
    })
    .await;
}

/// Three users have a valid code for the same free phone while another user registers with it.
#[tokio::test(flavor = "multi_thread")]
async fn concurrent_claims_of_phone_succeed_once() {
    TestApp::run(async |app| {
        for round in 0..5 {
            let phone = format!("+1415557{round}000");
            let mut movers = Vec::new();
            for n in 0..3 {
                let (user, _) = app.log_in(&format!("+1415558{round}{n:03}")).await;
                user.post("/api/auth/verify-phone/initiate", json!({"phone": phone})).await.expect(200);
                let code = app.codes(&phone).await.remove(0);
                movers.push((user, code));
            }
            let code = app.code(&phone).await;
            let moving = join_all(
                movers.iter().map(|(user, code)| user.post("/api/auth/verify-phone", json!({"phone": phone, "code": code}))),
            );
            let body = json!({"phone": phone, "code": code});
            let (moved, registered) = tokio::join!(moving, app.post("/api/code/verify", &body));
            let winners = moved.iter().filter(|answer| answer.status == 200).count();
            assert!(moved.iter().all(|answer| [200, 422].contains(&answer.status.as_u16())));
            let id = registered.expect(200)["data"]["user"]["id"].as_i64().expect("an id");
            let (claimed, holders): (i64, i64) = sqlx::query_as(
                "select (select user_id from phone_claims where phone = $1), (select count(*) from users where phone = $1)",
            )
            .bind(&phone)
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
            // The first claim wins; the login found that account or created it.
            assert!(winners <= 1 && claimed == id && holders == 1, "{winners} {claimed} {id} {holders}");
        }
    })
    .await;
}
