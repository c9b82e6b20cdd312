use futures_util::future::join_all;
use serde_json::{Value, json};

use super::rules::Username;
use crate::testing::TestApp;

async fn check(app: &TestApp, username: &Value) -> Value {
    app.post("/api/auth/username/check", &json!({"username": username})).await.expect(200)
}

async fn generate(app: &TestApp, base: &str, numbers: bool) -> Vec<String> {
    let answer = app.post("/api/auth/username/generate", &json!({"base": base, "include_numbers": numbers})).await;
    let names = answer.expect(200)["suggestions"].as_array().expect("a list").clone();
    names.into_iter().map(|name| name.as_str().expect("a name").to_owned()).collect()
}

#[tokio::test]
async fn check_covers_free_taken_reserved_and_malformed_names() {
    TestApp::run(async |app| {
        let (_, login) = app.log_in("+14155550100").await;
        let taken = login["user"]["username"].as_str().expect("a name").to_owned();
        assert_eq!(
            check(app, &json!("striker_90")).await,
            json!({"available": true, "message": "The username is available."})
        );
        for name in [taken.clone(), taken.to_uppercase(), "admin".into(), "Matchday".into(), "supp0rt".into()] {
            let answer = check(app, &json!(name)).await;
            assert_eq!(answer["available"], false, "{name}");
            let suggestions = answer["suggestions"].as_array().expect("a list").clone();
            assert!(suggestions.len() >= 3, "{suggestions:?}");
            for (at, suggestion) in suggestions.iter().enumerate() {
                assert!(!suggestions[..at].contains(suggestion));
                assert_eq!(check(app, suggestion).await["available"], true, "{suggestion}");
            }
        }
        for name in [
            json!(""),
            json!("ab"),
            json!("a".repeat(31)),
            json!("emoji⚽"),
            json!(".dot"),
            json!("1234567"),
            json!(null),
            json!(7),
        ] {
            let answer = app.post("/api/auth/username/check", &json!({"username": name})).await;
            assert_eq!(answer.invalid_fields(), ["username"], "{name}");
        }
    })
    .await;
}

#[tokio::test]
async fn suggestions_for_any_base_are_available() {
    TestApp::run(async |app| {
        for base in ["Striker", "José Ñandú", "مرحبا", "a", "x".repeat(200).as_str(), "!!!", "", "admin"] {
            for numbers in [false, true] {
                let names = generate(app, base, numbers).await;
                assert!(names.len() >= 3, "{base}: {names:?}");
                for name in &names {
                    assert!(Username::parse(name).is_some(), "{name}");
                    assert_eq!(name.ends_with(|c: char| c.is_ascii_digit()), numbers, "{name}");
                    assert!(numbers || !name.contains(|c: char| c.is_ascii_digit()), "{name}");
                    assert_eq!(check(app, &json!(name)).await["available"], true, "{name}");
                }
            }
        }
        assert_eq!(
            app.post("/api/auth/username/generate", &json!({"include_numbers": "x"})).await.invalid_fields(),
            ["base", "include_numbers"]
        );
        let plain = app.post("/api/auth/username/generate", &json!({"base": "Striker"})).await.expect(200);
        assert!(plain["suggestions"].as_array().is_some_and(|names| names.len() >= 3), "numbers are optional");
    })
    .await;
}

#[tokio::test]
async fn suggestions_continue_when_likely_names_are_taken() {
    TestApp::run(async |app| {
        sqlx::query("insert into username_claims select 'striker', 1, now()")
            .execute(&app.app.core.db)
            .await
            .expect("taken");
        for _ in 0..40 {
            let names = generate(app, "Striker", false).await;
            assert!(names.len() >= 3 && names.iter().all(|name| name.contains("striker")), "{names:?}");
            sqlx::query("insert into username_claims select name, 1, now() from unnest($1::text[]) name")
                .bind(&names)
                .execute(&app.app.core.db)
                .await
                .expect("all suggestions were free");
        }
    })
    .await;
}

#[tokio::test]
async fn username_checks_are_limited_by_network() {
    let changes = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "US")];
    TestApp::run_with(&changes, async |app| {
        let status = async |n: u32| check_status(app, &format!("somebody{n}")).await;
        let statuses = join_all((0..40).map(status)).await;
        assert_eq!(statuses.iter().filter(|&&status| status == 429).count(), 10);
    })
    .await;
}

async fn check_status(app: &TestApp, username: &str) -> u16 {
    app.post("/api/auth/username/check", &json!({"username": username})).await.status.as_u16()
}

/// A user with the bot's name would receive the bot's credentials, and with them access to every room.
#[tokio::test]
async fn name_of_the_bot_is_reserved() {
    TestApp::run_with(&[("MATCHDAY_MATRIX__BOT", "stadium.voice")], async |app| {
        let checked = app.post("/api/auth/username/check", &json!({"username": "stadium.voice"})).await.expect(200);
        assert_eq!(checked["available"], false);
        let code = app.code("+14155550123").await;
        let body = json!({"phone": "+14155550123", "code": code, "username": "Stadium.Voice"});
        assert_eq!(app.post("/api/code/verify", &body).await.invalid_fields(), ["username"]);
    })
    .await;
}
