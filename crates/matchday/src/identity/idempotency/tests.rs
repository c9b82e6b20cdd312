//! Tests of idempotency keys through the router, on a real database.

mod effects;

use std::{
    net::{IpAddr, Ipv4Addr},
    panic::AssertUnwindSafe,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Router, body::Body, extract::Request, http::header, response::Response, routing::post};
use futures_util::{FutureExt as _, future::join_all};
use http::{HeaderValue, Method, StatusCode};
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use sqlx::Connection as _;
use time::Duration;
use tower::Service as _;
use web::{IDEMPOTENCY_KEY, NO_STORE, PEER};

use super::{
    IdempotencyLayer, KeyedRequest, RequestKey, rules,
    service::{Begun, Claim, StoredResponse},
};
use crate::{
    app::App,
    testing::{Answer, TestApp, TestUser, eventually, unique},
};

const PRIMARY: &str = "/api/auth/teams/primary";
const PREDICTIONS: &str = "/api/auth/predictions";

async fn keyed(user: &TestUser<'_>, key: &str, path: &str, body: &Value) -> Answer {
    user.send_with(Method::POST, path, &[("idempotency-key", key)], Some(body.to_string())).await
}

fn is_replayed(response: &Answer) -> bool {
    response.header("idempotency-replayed") == Some("true")
}

/// Returns the number of keys and the number of stored responses.
async fn keys(app: &TestApp) -> (i64, i64) {
    let counts = sqlx::query_as("select count(*), count(status) from idempotency_keys").fetch_one(&app.app.core.db);
    counts.await.expect("counted")
}

/// Creates a match and returns a prediction for it.
async fn prediction(app: &TestApp) -> Value {
    // The database clock decides whether the match is open, and tests cannot move that clock.
    let event = app.fixtures().a_match("m").starting_in(Duration::days(365 * 75)).put().await;
    json!({"event_id": event, "prediction": "home", "confidence": 60})
}

#[tokio::test]
async fn retried_request_is_processed_once() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, prediction(app).await);
        let first = keyed(&user, "k1", PREDICTIONS, &body).await;
        assert!(!is_replayed(&first));
        for _ in 0..3 {
            let again = keyed(&user, "k1", PREDICTIONS, &body).await;
            assert!(is_replayed(&again));
            assert_eq!((again.status, &again.bytes), (StatusCode::CREATED, &first.bytes));
            assert_eq!(again.header("content-type"), Some("application/json"));
            assert_ne!(again.header("x-request-id"), first.header("x-request-id"), "a replay has its own request id");
        }
        first.expect(201);
        let other_key = keyed(&user, "k2", PREDICTIONS, &body).await;
        assert_eq!(other_key.expect(200)["message"], "Prediction replaced.", "another key makes another request");
        assert_eq!(keys(app).await, (2, 2));
    })
    .await;
}

#[tokio::test]
async fn rate_limit_headers_are_on_first_response_only() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let claim = async |key| keyed(&user, key, "/api/auth/daily-coins", &json!({})).await;
        let left = |response: &Answer| response.header("x-ratelimit-remaining").map(str::to_owned);
        let (first, again, refused) = (claim("k1").await, claim("k1").await, claim("k2").await);
        assert_eq!((is_replayed(&first), left(&first).as_deref()), (false, Some("9")));
        assert_eq!((is_replayed(&again), left(&again)), (true, None), "a replay does not count against the limit");
        assert_eq!((is_replayed(&refused), left(&refused).as_deref()), (false, Some("8")));
        assert_eq!(
            (first.expect(200), refused.expect(400)["code"].as_str()),
            (again.expect(200), Some("already_claimed"))
        );
    })
    .await;
}

#[tokio::test]
async fn client_errors_are_replayed() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let nowhere = json!({"team_id": 2_147_483_647});
        for (status, body) in [(404, nowhere.to_string()), (422, "{}".to_owned()), (400, "{".to_owned())] {
            let send = async || {
                let key = status.to_string();
                user.send_with(Method::POST, PRIMARY, &[("idempotency-key", &key)], Some(body.clone())).await
            };
            let first = send().await;
            assert!(!is_replayed(&first));
            let again = send().await;
            assert!(is_replayed(&again));
            assert_eq!(again.expect(status), first.expect(status));
        }
    })
    .await;
}

#[tokio::test]
async fn key_reused_for_another_request_is_422() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let (rovers, city) = (fixtures.team_id("rovers").await, fixtures.team_id("city").await);
        keyed(&user, "k", PRIMARY, &json!({"team_id": rovers})).await.expect(200);
        let reused = keyed(&user, "k", PRIMARY, &json!({"team_id": city})).await;
        assert!(!is_replayed(&reused));
        let reused = reused.expect(422);
        assert_eq!(reused["code"], "idempotency_key_reused");
        assert!(reused["errors"]["idempotency_key"].is_array(), "{reused}");
        let query = keyed(&user, "k", &format!("{PRIMARY}?team=2"), &json!({"team_id": rovers})).await;
        assert_eq!(query.expect(422)["code"], "idempotency_key_reused");
        let me = user.get("/api/auth/me").await.expect(200);
        assert_eq!(me["data"]["teams"]["primary"]["id"], rovers);
    })
    .await;
}

#[tokio::test]
async fn keys_are_separate_by_path_and_user() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let (user, other) = (app.user().await, app.user().await);
        let team = fixtures.team_id("rovers").await;
        let requests = [
            (&user, PRIMARY, json!({"team_id": team})),
            (&user, "/api/auth/teams/other", json!({"team_ids": [team]})),
            (&other, PRIMARY, json!({"team_id": fixtures.team_id("city").await})),
        ];
        for replayed in [false, true] {
            for (user, path, body) in &requests {
                let response = keyed(user, "k", path, body).await;
                assert_eq!(is_replayed(&response), replayed);
                response.expect(200);
            }
        }
        // A key belongs to the user, not to the session: an app can log in again and still retry.
        let later = app.login(user.id).await;
        assert!(is_replayed(&keyed(&later, "k", PRIMARY, &requests[0].2).await));
    })
    .await;
}

#[tokio::test]
async fn one_of_twenty_concurrent_requests_is_processed() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, prediction(app).await);
        let responses = join_all((0..20).map(|_| keyed(&user, "k", PREDICTIONS, &body))).await;
        let mut firsts = 0;
        for response in responses {
            if response.status == StatusCode::CONFLICT {
                assert_eq!(response.header("retry-after"), Some("1"));
                assert_eq!(response.expect(409)["code"], "idempotency_in_progress");
            } else {
                firsts += usize::from(!is_replayed(&response));
                assert_eq!(response.expect(201)["message"], "Prediction saved.");
            }
        }
        assert_eq!(firsts, 1);
        let replaced: i64 = sqlx::query_scalar("select count(*) from prediction_revisions")
            .fetch_one(&app.app.core.db)
            .await
            .expect("counted");
        assert_eq!((replaced, keys(app).await), (0, (1, 1)));
    })
    .await;
}

/// Claims a request like a process that dies afterwards.
async fn claim(app: &TestApp, user: &TestUser<'_>, body: &Value) -> Claim {
    let digest = rules::request_digest(b"k", None, body.to_string().as_bytes());
    let request = KeyedRequest { owner: user.id.into(), key: RequestKey::of(PRIMARY, b"k"), digest };
    match app.app.idempotency.begin(request).await.expect("begun") {
        Begun::First(claim) => claim,
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn expired_claim_of_dead_process_is_taken_over() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let (user, body) = (app.user().await, json!({"team_id": fixtures.team_id("rovers").await}));
        let dead = claim(app, &user, &body).await;
        // The claim lasts for the request deadline of ten seconds plus the grace of five.
        for _ in 0..2 {
            assert_eq!(keyed(&user, "k", PRIMARY, &body).await.expect(409)["code"], "idempotency_in_progress");
            app.clock.advance(Duration::milliseconds(7_500));
        }
        assert_eq!(
            keyed(&user, "k", PRIMARY, &json!({"team_id": 2_147_483_647})).await.expect(422)["code"],
            "idempotency_key_reused"
        );
        app.clock.advance(Duration::seconds(1));
        let done = keyed(&user, "k", PRIMARY, &body).await;
        assert!(!is_replayed(&done));
        // If the first process was only slow, its late result must not change anything.
        let late = StoredResponse { status: 500, content_type: None, body: b"late".to_vec() };
        app.app.idempotency.finish(dead, &late).await;
        app.app.idempotency.release(dead).await;
        let again = keyed(&user, "k", PRIMARY, &body).await;
        assert!(is_replayed(&again));
        assert_eq!(again.expect(200), done.expect(200));
    })
    .await;
}

#[tokio::test]
async fn slow_process_cannot_change_claim_that_was_taken_over() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, json!({"team_id": 1}));
        let slow = claim(app, &user, &body).await;
        app.clock.advance(Duration::seconds(16));
        let second = claim(app, &user, &body).await;
        app.app.idempotency.release(slow).await;
        app.app.idempotency.finish(slow, &StoredResponse { status: 200, content_type: None, body: vec![] }).await;
        assert_eq!(keys(app).await, (1, 0), "the second claim remains");
        app.app.idempotency.release(second).await;
        assert_eq!(keys(app).await, (0, 0));
    })
    .await;
}

#[tokio::test]
async fn failed_and_rate_limited_requests_can_be_retried() {
    let changes = [("MATCHDAY_LIMITS__PHONE_BURST", "1")];
    TestApp::run_with(&changes, async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let body = json!({"team_id": fixtures.team_id("rovers").await});
        sqlx::query("alter table teams rename to teams_gone").execute(app.owner()).await.expect("renamed");
        for _ in 0..2 {
            let failed = keyed(&user, "k", PRIMARY, &body).await;
            let id = failed.header("x-request-id").expect("an id").to_owned();
            assert_eq!(failed.expect(500)["request_id"], id, "the failure is not replayed");
        }
        assert_eq!(keys(app).await, (0, 0));
        sqlx::query("alter table teams_gone rename to teams").execute(app.owner()).await.expect("renamed");
        keyed(&user, "k", PRIMARY, &body).await.expect(200);

        let (path, phone) = ("/api/auth/verify-phone/initiate", json!({"phone": "+14155550111"}));
        keyed(&user, "a", path, &phone).await.expect(200);
        keyed(&user, "b", path, &phone).await.expect(429);
        app.clock.advance(Duration::minutes(2));
        let later = keyed(&user, "b", path, &phone).await;
        assert!(!is_replayed(&later));
        later.expect(200);
        assert!(is_replayed(&keyed(&user, "b", path, &phone).await), "no third message is sent");
        assert_eq!(app.codes("+14155550111").await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn timed_out_request_can_be_retried() {
    TestApp::run_with(&[("MATCHDAY_HTTP__DEADLINE", "2s")], async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let (user, body) = (app.user().await, json!({"team_id": fixtures.team_id("rovers").await}));
        let holder = app.hold_teams().await;
        assert_eq!(keyed(&user, "k", PRIMARY, &body).await.expect(503)["code"], "deadline_exceeded");
        eventually("the claim is released", async || keys(app).await == (0, 0)).await;
        holder.close().await.expect("released");
        keyed(&user, "k", PRIMARY, &body).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn disconnected_client_can_fetch_its_response() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let (user, body) = (app.user().await, json!({"team_id": fixtures.team_id("rovers").await}));
        let holder = app.hold_teams().await;
        tokio::select! {
            _ = keyed(&user, "k", PRIMARY, &body) => panic!("response without the locked table"),
            () = eventually("the request is claimed", async || keys(app).await == (1, 0)) => {}
        }
        assert_eq!(keyed(&user, "k", PRIMARY, &body).await.expect(409)["code"], "idempotency_in_progress");
        holder.close().await.expect("released");
        eventually("the response is stored", async || keys(app).await == (1, 1)).await;
        let again = keyed(&user, "k", PRIMARY, &body).await;
        assert!(is_replayed(&again));
        assert_eq!(again.expect(200)["data"]["team"]["id"], body["team_id"]);
    })
    .await;
}

#[tokio::test]
async fn requests_of_disconnected_clients_keep_their_permit() {
    TestApp::run_with(&[("MATCHDAY_HTTP__MAX_IN_FLIGHT", "1")], async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let (user, body) = (app.user().await, json!({"team_id": fixtures.team_id("rovers").await}));
        let holder = app.hold_teams().await;
        tokio::select! {
            _ = keyed(&user, "a", PRIMARY, &body) => panic!("response without the locked table"),
            () = eventually("the request is claimed", async || keys(app).await == (1, 0)) => {}
        }
        assert_eq!(keyed(&user, "b", PRIMARY, &body).await.expect(503)["code"], "overloaded");
        user.get("/api/auth/sessions").await.expect(200);
        holder.close().await.expect("released");
        eventually("the response is stored", async || keys(app).await == (1, 1)).await;
        eventually("the permit is released", async || keyed(&user, "b", PRIMARY, &body).await.status == 200).await;
    })
    .await;
}

#[tokio::test]
async fn invalid_key_is_422() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let long = "x".repeat(256);
        for bad in ["", "two words", "t\tab", &long] {
            assert_eq!(keyed(&user, bad, PRIMARY, &json!({})).await.invalid_fields(), ["idempotency_key"], "{bad:?}");
        }
        let twice = [("idempotency-key", "a"), ("idempotency-key", "b")];
        let twice = user.send_with(Method::POST, PRIMARY, &twice, Some("{}".to_owned())).await;
        assert_eq!(twice.invalid_fields(), ["idempotency_key"]);
        let bytes = Request::post(PRIMARY)
            .header(header::AUTHORIZATION, format!("Bearer {}", user.token))
            .header(IDEMPOTENCY_KEY, HeaderValue::from_bytes(b"\xff\xfe").expect("a header"))
            .body(Body::empty())
            .expect("a request");
        assert_eq!(app.send(bytes).await.invalid_fields(), ["idempotency_key"]);
        assert_eq!(keys(app).await, (0, 0));
        keyed(&user, &long[1..], PRIMARY, &json!({"team_id": 2_147_483_647})).await.expect(404);
    })
    .await;
}

#[tokio::test]
async fn header_is_ignored_without_user_or_post_route() {
    TestApp::run(async |app| {
        let send = async |path: &str, token: Option<&str>| {
            let mut request =
                Request::post(path).header(IDEMPOTENCY_KEY, "two words").header("x-forwarded-for", "192.0.2.1");
            if let Some(token) = token {
                request = request.header(header::AUTHORIZATION, format!("Bearer {token}"));
            }
            let body = Body::from(json!({"phone": "+14155550100"}).to_string());
            app.send(request.body(body).expect("a request")).await
        };
        for _ in 0..2 {
            let response = send("/api/code/request", None).await;
            assert!(!is_replayed(&response));
            response.expect(200);
        }
        assert_eq!(app.codes("+14155550100").await.len(), 2);
        send(PRIMARY, None).await.expect(401);
        send(PRIMARY, Some("md_1_none")).await.expect(401);
        let user = app.user().await;
        assert_eq!(send("/nowhere", Some(&user.token)).await.expect(404)["code"], "unknown_route");
        send("/api/auth/events", Some(&user.token)).await.expect(405);
        send("/api/auth/teams", Some(&user.token)).await.expect(405);
        user.send_with(Method::GET, "/api/auth/teams", &[("idempotency-key", "two words")], None).await.expect(200);
        sqlx::query("update users set banned_at = now() where user_id = $1")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("banned");
        app.app.sessions.forget_all();
        assert_eq!(send(PRIMARY, Some(&user.token)).await.expect(403)["code"], "account_suspended");
        assert_eq!(keys(app).await, (0, 0));
    })
    .await;
}

#[tokio::test]
async fn responses_with_credentials_are_not_stored() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, _) = app.log_in("+14155550100").await;
        let once = async |path: &str, body: Value| {
            let response = keyed(&user, "k", path, &body).await;
            assert_eq!(response.header("cache-control"), Some("no-store"), "{path}");
            assert!(!is_replayed(&response), "{path}");
            response.expect(200)
        };
        let first = once("/api/auth/matrix-credentials", json!({})).await;
        let second = once("/api/auth/matrix-credentials", json!({})).await;
        assert!(first["data"]["matrix_credentials"]["access_token"].is_string());
        assert_ne!(first, second, "each response has new credentials");
        // A user who is already logged in logs in again.
        for (path, phone) in [("/api/code/verify", "+14155550101"), ("/api/auth/login", "+14155550102")] {
            let code = app.code(phone).await;
            once(path, json!({"phone": phone, "code": code, "username": unique("fan")})).await;
        }
        sqlx::query("update users set username_is_generated = true where user_id = $1")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("marked as generated");
        let renamed = once("/api/auth/update-user-info", json!({"username": unique("ada")})).await;
        assert!(renamed["data"]["matrix_credentials"]["access_token"].is_string());
        assert_eq!(keys(app).await, (0, 0), "no response is stored");
        // A response without credentials is stored.
        let named = keyed(&user, "k", "/api/auth/update-user-info", &json!({"name": "Ada"})).await;
        assert_eq!(named.header("cache-control"), None);
        named.expect(200);
        assert_eq!(keys(app).await, (1, 1));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn logout_is_not_replayed_for_another_session() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let other = app.login(user.id).await;
        keyed(&user, "k", "/api/auth/logout", &json!({})).await.expect(200);
        keyed(&user, "k", "/api/auth/logout", &json!({})).await.expect(401);
        keyed(&other, "k", "/api/auth/logout", &json!({})).await.expect(200);
        other.get("/api/auth/me").await.expect(401);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn replayed_response_is_compressed_on_request() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, prediction(app).await);
        let packed = async |key: &str| {
            let headers = [("idempotency-key", key), ("accept-encoding", "gzip")];
            user.send_with(Method::POST, PREDICTIONS, &headers, Some(body.to_string())).await
        };
        assert_eq!(packed("k").await.header("content-encoding"), Some("gzip"));
        let plain = keyed(&user, "k", PREDICTIONS, &body).await;
        assert!(is_replayed(&plain));
        assert_eq!(plain.expect(201)["message"], "Prediction saved.");
        let again = packed("k").await;
        assert!(is_replayed(&again));
        assert_eq!(again.header("content-encoding"), Some("gzip"));
    })
    .await;
}

#[tokio::test]
async fn keys_are_swept_after_a_day() {
    TestApp::run(async |app| {
        let (user, body) = (app.user().await, json!({"team_id": 2_147_483_647}));
        keyed(&user, "k", PRIMARY, &body).await.expect(404);
        app.clock.advance(Duration::hours(23));
        claim(app, &app.user().await, &body).await;
        assert_eq!(app.app.idempotency.sweep().await.expect("swept"), 0);
        assert!(is_replayed(&keyed(&user, "k", PRIMARY, &body).await));
        app.clock.advance(Duration::hours(1));
        assert_eq!(app.app.idempotency.sweep().await.expect("swept"), 1);
        assert!(!is_replayed(&keyed(&user, "k", PRIMARY, &body).await));
        app.clock.advance(Duration::hours(24));
        assert_eq!(app.app.idempotency.sweep().await.expect("swept"), 2, "unfinished requests are swept too");
    })
    .await;
}

/// Builds a router with one handler behind the layer. The handler receives the number of earlier calls.
fn router<F: Future<Output = Response> + Send + 'static>(
    app: &TestApp,
    handler: impl Fn(Option<RequestKey>, usize) -> F + Clone + Send + Sync + 'static,
) -> Router {
    router_with(IdempotencyLayer::storing_responses(app.app.clone()), handler)
}

fn router_with<F: Future<Output = Response> + Send + 'static>(
    layer: IdempotencyLayer<App>,
    handler: impl Fn(Option<RequestKey>, usize) -> F + Clone + Send + Sync + 'static,
) -> Router {
    let calls = Arc::new(AtomicUsize::new(0));
    let handler = move |key: Option<RequestKey>| handler(key, calls.fetch_add(1, Ordering::SeqCst));
    Router::new().route("/here", post(handler)).layer(layer)
}

async fn send(router: &Router, user: &TestUser<'_>, key: Option<&str>) -> (StatusCode, bool, Vec<u8>) {
    send_body(router, user, key, "{}").await
}

async fn send_body(
    router: &Router,
    user: &TestUser<'_>,
    key: Option<&str>,
    body: &'static str,
) -> (StatusCode, bool, Vec<u8>) {
    let mut request = Request::post("/here").header(header::AUTHORIZATION, format!("Bearer {}", user.token));
    if let Some(key) = key {
        request = request.header(IDEMPOTENCY_KEY, key);
    }
    let response = router.clone().call(request.body(Body::from(body)).expect("a request")).await;
    let (parts, body) = response.unwrap_or_else(|never| match never {}).into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    (parts.status, parts.headers.contains_key("idempotency-replayed"), bytes.to_vec())
}

fn text_response(text: impl Into<Body>) -> Response {
    Response::new(text.into())
}

#[tokio::test]
async fn panic_propagates_and_releases_the_key() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let router = router(app, async |_, call| {
            assert!(call > 0, "the first call panics");
            text_response("fine")
        });
        let panic = AssertUnwindSafe(send(&router, &user, Some("k"))).catch_unwind().await.expect_err("a panic");
        assert!(
            panic.downcast_ref::<String>().is_some_and(|text| text.contains("first call"))
                || panic.downcast_ref::<&str>().is_some_and(|text| text.contains("first call"))
        );
        assert_eq!(keys(app).await, (0, 0));
        assert_eq!(send(&router, &user, Some("k")).await, (StatusCode::OK, false, b"fine".to_vec()));
        assert_eq!(send(&router, &user, Some("k")).await, (StatusCode::OK, true, b"fine".to_vec()));
    })
    .await;
}

/// A route that is safe to repeat stores only final responses, and claims nothing meanwhile.
#[tokio::test]
async fn repeatable_route_stores_final_responses_without_claims() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let router = router_with(IdempotencyLayer::without_claims(app.app.clone()), async |key, call| {
            assert!(key.is_some());
            let mut response = text_response(format!("call {call}"));
            if call == 0 {
                *response.status_mut() = StatusCode::SERVICE_UNAVAILABLE;
            }
            response
        });
        let call = |number: u8| format!("call {number}").into_bytes();
        assert_eq!(send(&router, &user, Some("k")).await, (StatusCode::SERVICE_UNAVAILABLE, false, call(0)));
        assert_eq!(keys(app).await, (0, 0), "nothing is stored");
        assert_eq!(send(&router, &user, Some("k")).await, (StatusCode::OK, false, call(1)));
        assert_eq!(send(&router, &user, Some("k")).await, (StatusCode::OK, true, call(1)));
        let (status, _, body) = send_body(&router, &user, Some("k"), "{\"other\": 1}").await;
        assert_eq!(status, StatusCode::UNPROCESSABLE_ENTITY, "{}", String::from_utf8_lossy(&body));
        assert_eq!(send(&router, &user, Some("other")).await, (StatusCode::OK, false, call(2)), "no call in between");
    })
    .await;
}

/// Two requests with one key that are processed at the same time get one response.
#[tokio::test]
async fn concurrent_requests_to_repeatable_route_get_one_response() {
    TestApp::run(async |app| {
        let (user, together) = (app.user().await, Arc::new(tokio::sync::Barrier::new(2)));
        let router = router_with(IdempotencyLayer::without_claims(app.app.clone()), move |_, call| {
            let together = Arc::clone(&together);
            async move {
                together.wait().await;
                text_response(format!("call {call}"))
            }
        });
        let (one, two) = tokio::join!(send(&router, &user, Some("k")), send(&router, &user, Some("k")));
        assert_eq!(one.2, two.2);
        assert_eq!([one.1, two.1].iter().filter(|replayed| **replayed).count(), 1, "the later one is replayed");
    })
    .await;
}

#[tokio::test]
async fn handlers_receive_key_and_peer() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let router = router(app, async |key, _| {
            let peer = PEER.try_with(|peer| *peer).ok();
            let mut response = text_response(format!("{:?} {peer:?}", key.map(|key| key.0)));
            response.headers_mut().extend([NO_STORE]);
            response
        });
        let peer = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 7));
        let expected = |key: Option<RequestKey>| format!("{:?} {:?}", key.map(|key| key.0), Some(peer)).into_bytes();
        for key in ["a", "a", "b"] {
            let (_, replayed, text) = PEER.scope(peer, send(&router, &user, Some(key))).await;
            assert_eq!((replayed, text), (false, expected(Some(RequestKey::of("/here", key.as_bytes())))));
        }
        let (_, _, text) = PEER.scope(peer, send(&router, &user, None)).await;
        assert_eq!(text, expected(None));
    })
    .await;
}

#[tokio::test]
async fn large_and_streamed_responses_are_not_stored() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for (size, kept) in [(65_536, true), (65_537, false)] {
            let router = router(app, move |_, _| std::future::ready(text_response(vec![b'x'; size])));
            let key = size.to_string();
            for replayed in [false, kept] {
                assert_eq!(send(&router, &user, Some(&key)).await, (StatusCode::OK, replayed, vec![b'x'; size]));
            }
        }
        let streamed = router(app, async |_, _| {
            text_response(Body::from_stream(futures_util::stream::iter([Ok::<_, std::io::Error>("bit by bit")])))
        });
        for _ in 0..2 {
            let response = send(&streamed, &user, Some("stream")).await;
            assert_eq!(response, (StatusCode::OK, false, b"bit by bit".to_vec()));
        }
    })
    .await;
}

#[tokio::test]
async fn response_is_sent_even_if_storing_fails() {
    TestApp::run(async |app| {
        let (user, owner) = (app.user().await, app.owner().clone());
        let router = router(app, move |_, _| {
            let owner = owner.clone();
            async move {
                sqlx::query("alter table idempotency_keys rename to gone").execute(&owner).await.expect("renamed");
                text_response("done")
            }
        });
        assert_eq!(send(&router, &user, Some("k")).await, (StatusCode::OK, false, b"done".to_vec()));
    })
    .await;
}

/// A short database failure must not turn a request with a key into one without a key: the request would be processed,
/// and processed again on a retry.
#[tokio::test]
async fn unidentifiable_caller_is_not_treated_as_anonymous() {
    TestApp::run(async |app| {
        let mut user = app.user().await;
        let router = router(app, async |_, _| text_response("done"));
        sqlx::query("alter table sessions rename to gone").execute(app.owner()).await.expect("renamed");
        let (status, _, body) = send(&router, &user, Some("k")).await;
        assert_eq!(status, StatusCode::INTERNAL_SERVER_ERROR, "{}", String::from_utf8_lossy(&body));
        sqlx::query("alter table gone rename to sessions").execute(app.owner()).await.expect("renamed");
        assert_eq!(send(&router, &user, Some("k")).await, (StatusCode::OK, false, b"done".to_vec()));
        user.token = "md_1_x_y".to_owned();
        assert_eq!(
            send(&router, &user, Some("k")).await.0,
            StatusCode::OK,
            "requests without a valid token go to the handler"
        );
    })
    .await;
}
