use futures_util::future::join_all;
use http::Method;
use platform::shards::Ranges;
use serde_json::{Value, json};
use time::Duration;

use super::{
    lookups::Token,
    rules::TokenHash,
    service::REVOKED,
    store::{self, Use},
};
use crate::testing::{TestApp, TestUser, eventually};

/// Returns every operation that requires a token according to the API description, with `1` for each path parameter.
fn guarded() -> Vec<(Method, String)> {
    let api = serde_json::to_value(crate::router::description()).expect("JSON");
    let mut found = Vec::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            // An empty alternative means that a token is optional, and an empty list that it is not used.
            if operation["security"].as_array().is_some_and(|ways| !ways.is_empty() && !ways.contains(&json!({}))) {
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
        let list = async |user: &TestUser<'_>| -> Vec<Value> {
            user.get("/api/auth/sessions").await.expect(200)["data"].as_array().expect("a list").clone()
        };
        let old = list(&first).await[0].clone();
        assert_eq!(
            (&old["current"], &old["created_at"], &old["user_agent"]),
            (&json!(true), &json!("2026-11-20T15:00:00.000Z"), &json!("test"))
        );
        assert_eq!(old["expires_at"], "2026-12-20T15:00:00.000Z");
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
async fn use_is_recorded_once_a_day() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let last_used = async || {
            user.get("/api/auth/sessions").await.expect(200)["data"][0]["last_used_at"]
                .as_str()
                .expect("a moment")
                .to_owned()
        };
        for (hours, expected) in [(0, "20T15"), (23, "20T15"), (1, "21T15"), (23, "21T15"), (2, "22T16")] {
            app.clock.advance(Duration::hours(hours));
            assert_eq!(last_used().await, format!("2026-11-{expected}:00:00.000Z"));
        }
    })
    .await;
}

/// An update of an indexed column would write to every index of the table.
#[tokio::test]
async fn recorded_use_is_a_hot_update() {
    TestApp::run(async |app| {
        let users = [app.user().await, app.user().await, app.user().await];
        let (now, day) = (time::macros::datetime!(2026-11-21 15:00 UTC), Duration::DAY);
        let noted: Vec<Use> = users
            .iter()
            .map(|user| Use { token: Token { user: user.id, hash: TokenHash::of(&user.token) }, expires_at: now + day })
            .collect();
        let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
        store::note_uses(&mut tx, &Ranges::default(), &noted, now).await.expect("noted");
        let updates: (i64, i64) = sqlx::query_as(
            "select pg_stat_get_xact_tuples_updated('sessions'::regclass),
                    pg_stat_get_xact_tuples_hot_updated('sessions'::regclass)",
        )
        .fetch_one(&mut *tx)
        .await
        .expect("read");
        assert_eq!(updates, (3, 3));
        tx.rollback().await.expect("rolled back");
    })
    .await;
}

/// Deletes a user's sessions without the messages that evict them. Requests succeed as long as the token is cached.
async fn delete_sessions(app: &TestApp, user: &TestUser<'_>) {
    sqlx::query("delete from sessions where user_id = $1")
        .bind(user.id)
        .execute(&app.app.core.db)
        .await
        .expect("deleted");
}

fn revocation(user: &TestUser<'_>) -> Vec<u8> {
    let hash = TokenHash::of(&user.token).to_hex();
    json!({"user_id": user.id, "session_id": 1, "token_hash": hash}).to_string().into_bytes()
}

#[tokio::test]
async fn token_is_looked_up_again_within_bound_without_revocations() {
    let changes = [("MATCHDAY_SESSIONS__CACHE_FOR", "1h"), ("MATCHDAY_SESSIONS__CACHE_UNHEARD", "100ms")];
    TestApp::run_with(&changes, async |app| {
        let user = app.user().await;
        user.get("/api/auth/teams").await.expect(200);
        delete_sessions(app, &user).await;
        let deleted = std::time::Instant::now();
        eventually("the token is refused", async || user.get("/api/auth/teams").await.status == 401).await;
        assert!(deleted.elapsed() < std::time::Duration::from_secs(5), "{:?}", deleted.elapsed());
    })
    .await;
}

#[tokio::test]
async fn missed_revocations_do_not_outlive_a_reconnection() {
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h")], async |app| {
        let user = app.user().await;
        user.get("/api/auth/teams").await.expect(200);
        delete_sessions(app, &user).await;
        user.get("/api/auth/teams").await.expect(200);
        app.app.sessions.forget_all();
        user.get("/api/auth/teams").await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn malformed_revocation_clears_the_cache() {
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h")], async |app| {
        let user = app.user().await;
        user.get("/api/auth/teams").await.expect(200);
        delete_sessions(app, &user).await;
        app.app.sessions.heard(b"{}");
        user.get("/api/auth/teams").await.expect(401);
    })
    .await;
}

/// An eviction discards a lookup in flight only if it concerns the same user.
#[tokio::test]
async fn lookup_in_flight_survives_unrelated_evictions() {
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h")], async |app| {
        let (one, two, other) = (app.user().await, app.user().await, app.user().await);
        let mut holder = platform::database::begin(app.owner()).await.expect("begun");
        sqlx::query("lock table sessions in access exclusive mode").execute(&mut *holder).await.expect("locked");
        let requests = async { tokio::join!(one.get("/api/auth/teams"), two.get("/api/auth/teams")) };
        let evict_during_lookups = async {
            eventually("both lookups wait", async || {
                let waiting = "select count(*) from pg_locks l join pg_database d on d.oid = l.database
                               where d.datname = current_database()
                                 and l.relation = 'sessions'::regclass and not l.granted";
                sqlx::query_scalar::<_, i64>(waiting).fetch_one(&app.app.core.db).await.expect("read") == 2
            })
            .await;
            app.app.sessions.heard(&revocation(&other));
            app.app.sessions.forget_user(other.id);
            app.app.sessions.heard(&revocation(&two));
            holder.rollback().await.expect("released");
        };
        let ((first, second), ()) = tokio::join!(requests, evict_during_lookups);
        first.expect(200);
        second.expect(200);
        delete_sessions(app, &one).await;
        delete_sessions(app, &two).await;
        one.get("/api/auth/teams").await.expect(200);
        two.get("/api/auth/teams").await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn cache_never_exceeds_its_maximum() {
    let changes = [("MATCHDAY_SESSIONS__CACHE_ENTRIES", "20"), ("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h")];
    TestApp::run_with(&changes, async |app| {
        for _ in 0..60 {
            app.user().await.get("/api/auth/teams").await.expect(200);
        }
        let cached = app.app.sessions.cached_tokens();
        assert!((1..=20).contains(&cached), "{cached} tokens are cached");
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
async fn sweep_finds_sessions_that_were_used_before_they_expired() {
    TestApp::run(async |app| {
        let user = app.user().await;
        app.clock.advance(Duration::days(20));
        user.get("/api/auth/teams").await.expect(200);
        for (days, swept) in [(11, 0), (18, 0), (1, 1)] {
            app.clock.advance(Duration::days(days));
            assert_eq!(app.app.sessions.sweep().await.expect("swept"), swept, "{days} days later");
        }
        user.get("/api/auth/teams").await.expect(401);
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
        app.clock.advance(Duration::hours(25));
        let mut holder = platform::database::begin(&app.app.core.db).await.expect("begun");
        sqlx::query("select from sessions where user_id = $1 for update")
            .bind(held.id.0)
            .execute(&mut *holder)
            .await
            .expect("held");
        let status = async |user: &TestUser<'_>| user.get("/api/auth/teams").await.status.as_u16();
        let began = std::time::Instant::now();
        let statuses = tokio::join!(status(&held), status(&free), status(&gone), status(&held));
        assert_eq!(statuses, (200, 200, 401, 200));
        assert!(began.elapsed() < std::time::Duration::from_secs(5), "lookups waited for a locked session");
        holder.rollback().await.expect("rolled back");
        // A lookup an hour later records the use.
        app.clock.advance(Duration::hours(1));
        assert_eq!(status(&held).await, 200);
        let listed = held.get("/api/auth/sessions").await.expect(200);
        assert_eq!(listed["data"][0]["last_used_at"], "2026-11-21T17:00:00.000Z");
        assert_eq!(app.published().await.len(), 1);
    })
    .await;
}

async fn session_of(user: &TestUser<'_>) -> web::ids::SessionId {
    let listed = user.get("/api/auth/sessions").await.expect(200);
    web::ids::SessionId(listed["data"][0]["id"].as_i64().expect("an id"))
}
