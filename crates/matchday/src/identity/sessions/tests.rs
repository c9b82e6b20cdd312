use futures_util::future::join_all;
use http::Method;
use serde_json::{Value, json};
use time::Duration;

use super::service::REVOKED;
use crate::testing::TestApp;

/// Returns every operation that requires a token according to the API description, with `1` for each path parameter.
fn guarded() -> Vec<(Method, String)> {
    let api = serde_json::to_value(crate::router::description()).expect("JSON");
    let mut found = Vec::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            // An empty alternative means that a token is optional.
            if operation["security"].as_array().is_some_and(|ways| ways.iter().all(|way| way != &json!({}))) {
                let method = Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method");
                let path = path.split('/').map(|part| if part.starts_with('{') { "1" } else { part });
                found.push((method, path.collect::<Vec<_>>().join("/")));
            }
        }
    }
    assert!(found.len() >= 10, "{found:?}");
    found
}

#[tokio::test]
async fn guarded_endpoints_refuse_missing_and_invalid_tokens() {
    TestApp::run(async |app| {
        let mut stranger = app.user().await;
        for (method, path) in guarded() {
            app.anonymous(method.clone(), &path).await.expect(401);
            // Parameters are not validated before authentication.
            app.anonymous(method.clone(), &format!("{path}?page=x")).await.expect(401);
            for token in ["", "nonsense", "md_1_x_y"] {
                token.clone_into(&mut stranger.token);
                let response = stranger.send(method.clone(), &path, Some("{}".to_owned())).await;
                assert_eq!(response.header("www-authenticate"), Some("Bearer"), "{method} {path}");
                assert_eq!(response.expect(401)["code"], "unauthenticated");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn only_bearer_scheme_is_accepted_in_any_case() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for (scheme, status) in [("Bearer", 200), ("bearer", 200), ("Basic", 401), ("", 401)] {
            let request = http::Request::get("/api/auth/teams")
                .header("authorization", format!("{scheme} {}", user.token))
                .body(axum::body::Body::empty())
                .expect("a request");
            app.send(request).await.expect(status);
        }
    })
    .await;
}

#[tokio::test]
async fn logout_invalidates_token_in_every_process() {
    TestApp::run(async |app| {
        let user = app.user().await;
        user.get("/api/auth/teams").await.expect(200);
        assert!(user.post("/api/auth/logout", json!({})).await.expect(200)["message"].is_string());
        user.get("/api/auth/teams").await.expect(401);
        let messages = app.published().await;
        assert_eq!((messages.len(), messages[0].0.as_str(), &messages[0].1["user_id"]), (1, REVOKED, &json!(user.id)));
    })
    .await;
}

#[tokio::test]
async fn session_can_end_only_sessions_of_its_user() {
    TestApp::run(async |app| {
        let first = app.user().await;
        let list = async |user: &crate::testing::TestUser<'_>| -> Vec<Value> {
            user.get("/api/auth/sessions").await.expect(200)["data"].as_array().expect("a list").clone()
        };
        let old = list(&first).await[0].clone();
        assert_eq!(
            (&old["current"], &old["created_at"], &old["user_agent"]),
            (&json!(true), &json!("2026-11-20T15:00:00Z"), &json!("test"))
        );
        assert_eq!(old["expires_at"], "2026-12-20T15:00:00Z");
        app.clock.advance(Duration::seconds(1));
        let second = app.login(first.id).await;
        let both = list(&second).await;
        assert_eq!(
            both.iter().map(|s| s["current"].as_bool()).collect::<Vec<_>>(),
            [Some(true), Some(false)],
            "newest first"
        );
        let paged = second.get("/api/auth/sessions?per_page=1&page=2").await.expect(200);
        assert_eq!(paged["meta"], json!({"current_page": 2, "last_page": 2, "per_page": 1, "total": 2}));
        assert_eq!(paged["data"][0]["id"], old["id"]);
        let path = format!("/api/auth/sessions/{}", old["id"]);
        let stranger = app.user().await;
        stranger.delete(&path).await.expect(404);
        first.get("/api/auth/teams").await.expect(200);
        second.delete(&path).await.expect(200);
        first.get("/api/auth/teams").await.expect(401);
        second.get("/api/auth/teams").await.expect(200);
        second.delete(&path).await.expect(404);
        for nonsense in ["x", "0", "-1"] {
            second.delete(&format!("/api/auth/sessions/{nonsense}")).await.expect(404);
        }
        assert_eq!(app.published().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn use_extends_session_up_to_its_lifetime() {
    TestApp::run(async |app| {
        let (used, idle) = (app.user().await, app.user().await);
        for _ in 0..8 {
            app.clock.advance(Duration::days(20));
            app.app.sessions.forget_all();
            used.get("/api/auth/teams").await.expect(200);
        }
        idle.get("/api/auth/teams").await.expect(401);
        app.clock.advance(Duration::days(19));
        app.app.sessions.forget_all();
        used.get("/api/auth/teams").await.expect(200);
        app.clock.advance(Duration::days(1));
        used.get("/api/auth/teams").await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn cached_token_expires_on_time() {
    TestApp::run(async |app| {
        let user = app.user().await;
        user.get("/api/auth/teams").await.expect(200);
        app.clock.advance(Duration::days(30));
        user.get("/api/auth/teams").await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn use_is_recorded_once_in_five_minutes() {
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_FOR", "0s")], async |app| {
        let user = app.user().await;
        let last_used = async || {
            user.get("/api/auth/sessions").await.expect(200)["data"][0]["last_used_at"]
                .as_str()
                .expect("a moment")
                .to_owned()
        };
        app.clock.advance(Duration::minutes(4));
        assert_eq!(last_used().await, "2026-11-20T15:00:00Z");
        app.clock.advance(Duration::minutes(1));
        assert_eq!(last_used().await, "2026-11-20T15:05:00Z");
    })
    .await;
}

#[tokio::test]
async fn eleventh_session_ends_the_oldest() {
    TestApp::run(async |app| {
        let first = app.user().await;
        first.get("/api/auth/teams").await.expect(200);
        let mut others = Vec::new();
        for _ in 0..10 {
            app.clock.advance(Duration::seconds(1));
            others.push(app.login(first.id).await);
        }
        first.get("/api/auth/teams").await.expect(401);
        for other in &others {
            other.get("/api/auth/teams").await.expect(200);
        }
        assert_eq!(app.published().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn expired_sessions_do_not_count_towards_maximum() {
    TestApp::run_with(&[("MATCHDAY_SESSIONS__MAX_PER_USER", "2")], async |app| {
        let kept = app.user().await;
        app.clock.advance(Duration::days(20));
        app.login(kept.id).await;
        kept.get("/api/auth/teams").await.expect(200);
        app.clock.advance(Duration::seconds(1));
        sqlx::query("update sessions set expires_at = $1 where created_at > '2026-12-01'")
            .bind(time::macros::datetime!(2026-12-02 00:00 UTC))
            .execute(&app.app.core.db)
            .await
            .expect("expired");
        let newest = app.login(kept.id).await;
        kept.get("/api/auth/teams").await.expect(200);
        newest.get("/api/auth/teams").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn concurrent_logins_leave_at_most_ten_sessions() {
    TestApp::run(async |app| {
        let id = app.user().await.id;
        join_all((0..30).map(|_| app.login(id))).await;
        let left: i64 = sqlx::query_scalar("select count(*) from sessions where user_id = $1")
            .bind(id)
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(left, 10);
        assert_eq!(app.published().await.len(), 21);
    })
    .await;
}

/// A check that reads a session before it ends must not put it back into the cache afterwards.
#[tokio::test]
async fn token_checked_during_revocation_is_refused_afterwards() {
    TestApp::run(async |app| {
        for _ in 0..20 {
            let user = app.user().await;
            let checks = join_all((0..8).map(|_| user.get("/api/auth/teams")));
            let revoke = user.post("/api/auth/logout", json!({}));
            let (_, revoked) = tokio::join!(checks, revoke);
            revoked.expect(200);
            user.get("/api/auth/teams").await.expect(401);
        }
        assert_eq!(app.published().await.len(), 20);
    })
    .await;
}

#[tokio::test]
async fn sweep_deletes_only_expired_sessions() {
    TestApp::run(async |app| {
        let old = app.user().await;
        app.clock.advance(Duration::days(31));
        let fresh = app.user().await;
        assert_eq!(app.app.sessions.sweep().await.expect("swept"), 1);
        assert_eq!(app.app.sessions.sweep().await.expect("swept"), 0);
        old.get("/api/auth/teams").await.expect(401);
        fresh.get("/api/auth/teams").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn tokens_are_stored_only_as_hashes() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let stored: String = sqlx::query_scalar("select row_to_json(s)::text from sessions s")
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        let secret = user.token.split('_').nth(2).expect("the secret part");
        assert!(!stored.contains(secret) && !stored.contains(&user.token));
    })
    .await;
}

#[tokio::test]
async fn batched_lookups_do_not_wait_for_locked_sessions() {
    TestApp::run(async |app| {
        let (held, free, gone) = (app.user().await, app.user().await, app.user().await);
        app.app.sessions.end(gone.id, session_of(&gone).await).await.expect("ended");
        app.clock.advance(Duration::minutes(10));
        app.app.sessions.forget_all();
        let mut holder = app.app.core.db.begin().await.expect("begun");
        sqlx::query("select from sessions where user_id = $1 for update")
            .bind(held.id.0)
            .execute(&mut *holder)
            .await
            .expect("held");
        let status = async |user: &crate::testing::TestUser<'_>| user.get("/api/auth/teams").await.status.as_u16();
        let began = std::time::Instant::now();
        let statuses = tokio::join!(status(&held), status(&free), status(&gone), status(&held));
        assert_eq!(statuses, (200, 200, 401, 200));
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "lookups waited for a locked session");
        holder.rollback().await.expect("rolled back");
        // The next lookup records the use.
        app.app.sessions.forget_all();
        assert_eq!(status(&held).await, 200);
        app.app.sessions.forget_all();
        let listed = held.get("/api/auth/sessions").await.expect(200);
        assert_eq!(listed["data"][0]["last_used_at"], "2026-11-20T15:10:00Z");
        assert_eq!(app.published().await.len(), 1);
    })
    .await;
}

async fn session_of(user: &crate::testing::TestUser<'_>) -> web::ids::SessionId {
    let listed = user.get("/api/auth/sessions").await.expect(200);
    web::ids::SessionId(listed["data"][0]["id"].as_i64().expect("an id"))
}
