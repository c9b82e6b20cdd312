use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use axum::body::Body;
use http::{Method, Request};
use platform::rate_limit::Limit;
use serde_json::{Value, json};
use sqlx::Connection as _;
use web::server::Answers as _;

use crate::testing::{LogCapture, TestApp, eventually};

#[tokio::test]
async fn request_id_is_kept_or_generated() {
    TestApp::run(async |app| {
        let with_id = async |id: &[u8]| {
            let request =
                Request::get("/api/auth/teams").header("x-request-id", id).body(Body::empty()).expect("a request");
            app.send(request).await.header("x-request-id").expect("an id").to_owned()
        };
        assert_eq!(with_id(b"req-7.a:b").await, "req-7.a:b");
        for harmful in [&b""[..], b"two words", b"<script>", "\u{e9}".as_bytes(), "x".repeat(129).as_bytes()] {
            assert_ne!(with_id(harmful).await.as_bytes(), harmful);
        }
        let mut made = BTreeSet::new();
        for _ in 0..10 {
            made.insert(app.anonymous(Method::GET, "/nowhere").await.header("x-request-id").expect("an id").to_owned());
        }
        assert_eq!(made.len(), 10, "every generated id is unique");
    })
    .await;
}

#[tokio::test]
async fn unknown_paths_and_methods_return_standard_errors() {
    TestApp::run(async |app| {
        assert_eq!(app.anonymous(Method::GET, "/nowhere").await.expect(404)["code"], "unknown_route");
        let user = app.user().await;
        assert_eq!(user.get("/api/auth/events/").await.expect(404)["code"], "unknown_route");
        let stranger = app.anonymous(Method::GET, "/api/auth/nowhere").await;
        assert_eq!(stranger.header("www-authenticate"), Some("Bearer"), "unauthenticated callers cannot probe routes");
        stranger.expect(401);
        let wrong = app.anonymous(Method::DELETE, "/api/auth/events").await;
        assert_eq!(wrong.header("allow"), Some("GET,HEAD"));
        assert_eq!(wrong.expect(405)["code"], "method_not_allowed");
    })
    .await;
}

#[tokio::test]
async fn large_body_is_413_and_unknown_fields_are_ignored() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        fixtures.import_teams().await;
        let user = app.user().await;
        let large = json!({"team_id": 1, "padding": "x".repeat(66_000)});
        assert_eq!(user.post("/api/auth/teams/primary", large).await.expect(413)["code"], "body_too_large");
        let team = fixtures.team_id("rovers").await;
        user.post("/api/auth/teams/primary", json!({"team_id": team, "colour": "blue"})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn internal_error_reveals_only_its_request_id() {
    TestApp::run(async |app| {
        let user = app.user().await;
        sqlx::query("alter table teams rename to teams_gone").execute(app.owner()).await.expect("renamed");
        let answer = user.get("/api/auth/teams").await;
        let id = answer.header("x-request-id").expect("an id").to_owned();
        assert_eq!(
            answer.expect(500),
            json!({"message": "Something went wrong on our side.", "code": "internal_error", "request_id": id})
        );
    })
    .await;
}

#[tokio::test]
async fn unavailable_database_is_503_with_retry_after() {
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_FOR", "10m")], async |app| {
        let user = app.user().await;
        user.get("/api/auth/teams").await.expect(200);
        let broken = crate::app::App::assemble(
            app.app.config.clone(),
            sqlx::postgres::PgPoolOptions::new()
                .acquire_timeout(std::time::Duration::from_millis(100))
                .connect_lazy("postgres://matchday@127.0.0.1:1/none")
                .expect("a pool"),
            app.clock.clone(),
            app.app.core.random.clone(),
        )
        .await
        .expect("an app");
        let public = super::public(&broken);
        let fetch = async |path: &str| {
            let request = Request::get(path).header("authorization", format!("Bearer {}", user.token));
            public.answer(request.body(Body::empty()).expect("a request")).await
        };
        let teams = fetch("/api/auth/teams").await;
        assert_eq!((teams.status().as_u16(), teams.headers()["retry-after"].to_str().ok()), (503, Some("1")));
        assert_eq!(fetch("/readyz").await.status(), 503);
        assert_eq!(fetch("/healthz").await.status(), 200);
    })
    .await;
}

#[tokio::test]
async fn readiness_lists_dependencies_and_fails_while_draining() {
    TestApp::run_with_chat(&[], async |app| {
        eventually("NATS is connected", async || app.app.streams.is_connected()).await;
        let body = app.anonymous(Method::GET, "/readyz").await.expect(200);
        assert_eq!(
            body,
            json!({"status": "ready", "parts": {"postgres": "up", "redis": "up", "nats": "up", "homeserver": "up"}})
        );
        app.app.shutdown.draining().cancel();
        let answer = app.anonymous(Method::GET, "/readyz").await;
        assert_eq!(answer.status, 503);
        assert_eq!(serde_json::from_slice::<Value>(&answer.bytes).expect("JSON")["status"], "draining");
    })
    .await;
}

#[tokio::test]
async fn excess_requests_are_shed_but_health_responds() {
    TestApp::run_with(&[("MATCHDAY_HTTP__MAX_IN_FLIGHT", "2")], async |app| {
        let user = app.user().await;
        user.get("/api/auth/sessions").await.expect(200);
        let holder = app.hold_teams().await;
        let slow = futures_util::future::join(user.get("/api/auth/teams"), user.get("/api/auth/teams"));
        let others = async {
            eventually("the third is shed", async || user.get("/api/auth/sessions").await.status == 503).await;
            let shed = user.get("/api/auth/sessions").await;
            assert_eq!(shed.header("retry-after"), Some("1"));
            assert!(shed.header("x-request-id").is_some());
            assert_eq!(shed.expect(503)["code"], "overloaded");
            app.anonymous(Method::GET, "/healthz").await.expect(200);
            app.anonymous(Method::GET, "/readyz").await.expect(200);
            holder.close().await.expect("released");
        };
        let ((a, b), ()) = tokio::join!(slow, others);
        a.expect(200);
        b.expect(200);
        user.get("/api/auth/sessions").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn user_who_sends_too_many_requests_gets_429() {
    let changes = [
        ("MATCHDAY_ENV", "staging"),
        ("MATCHDAY_SMS__COUNTRIES", "US"),
        ("MATCHDAY_HTTP__USER_BURST", "5"),
        ("MATCHDAY_HTTP__USER_REQUESTS_PER_SECOND", "2"),
    ];
    TestApp::run_with(&changes, async |app| {
        let (user, other) = (app.user().await, app.user().await);
        // Sessions of one user share the limit, and a request with an idempotency key counts once.
        user.get("/api/auth/teams").await.expect(200);
        app.login(user.id).await.get("/api/auth/events").await.expect(200);
        user.get("/api/auth/nowhere").await.expect(404);
        let key = [("idempotency-key", "k")];
        user.send_with(Method::POST, "/api/auth/teams/other", &key, Some(json!({"team_ids": []}).to_string()))
            .await
            .expect(200);
        user.get("/api/auth/me").await.expect(200);
        let refused = user.get("/api/auth/me").await;
        assert_eq!((refused.header("retry-after"), refused.header("x-ratelimit-limit")), (Some("1"), Some("5")));
        assert_eq!(refused.header("x-ratelimit-remaining"), Some("0"));
        assert_eq!(refused.expect(429)["code"], "rate_limited");
        // Lists from memory count too.
        for _ in 0..5 {
            other.get("/api/auth/events").await.expect(200);
        }
        other.get("/api/auth/events").await.expect(429);
        app.anonymous(Method::GET, "/healthz").await.expect(200);
        app.clock.advance(time::Duration::SECOND);
        user.get("/api/auth/me").await.expect(200);
        user.get("/api/auth/me").await.expect(200);
        user.get("/api/auth/me").await.expect(429);
        // The live stream has separate limits.
        let stream = Request::get("/api/auth/stream?event_id=1")
            .header("authorization", format!("Bearer {}", user.token))
            .body(Body::empty())
            .expect("a request");
        assert_ne!(app.open(stream).await.status(), 429);
    })
    .await;
}

#[tokio::test]
async fn user_limit_can_be_turned_off() {
    let changes = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "US"), ("MATCHDAY_HTTP__USER_BURST", "0")];
    TestApp::run_with(&changes, async |app| {
        assert!(app.app.user_limit.is_none());
        let user = app.user().await;
        for _ in 0..300 {
            user.get("/api/auth/events").await.expect(200);
        }
    })
    .await;
}

#[tokio::test]
async fn unavailable_dependency_is_logged_once_with_its_address() {
    let log = LogCapture::start();
    let changes = [
        ("MATCHDAY_NATS__URL", "nats://us3r:s3cret@127.0.0.1:1"),
        ("MATCHDAY_NATS__TIMEOUT", "100ms"),
        ("MATCHDAY_REDIS__URL", "redis://us3r:s3cret@127.0.0.1:2"),
        ("MATCHDAY_REDIS__TIMEOUT", "100ms"),
    ];
    TestApp::run_with(&changes, async |app| {
        crate::tasks::listen(&app.app);
        crate::tasks::queues(&app.app);
        let count = |text: &str| log.lines().iter().filter(|line| line.contains(text)).count();
        eventually("both are logged", async || count("WARN") >= 2).await;
        // Consumers and checks keep retrying.
        eventually("NATS was tried again", async || count("NATS request failed") >= 3).await;
        for _ in 0..3 {
            app.app.checks.refresh().await;
        }
        // Requests that would use Redis do not log the outage either.
        for _ in 0..5 {
            app.app.core.limits.take(Limit { name: "test", burst: 9, every: Duration::from_secs(1) }, "key").await;
        }
        let text = log.lines().join("\n");
        for (dependency, address) in [("nats", "127.0.0.1:1"), ("redis", "127.0.0.1:2")] {
            let line = format!("dependency unavailable dependency=\"{dependency}\" address=\"{address}\"");
            assert_eq!(count(&line), 1, "{text}");
        }
        assert_eq!(count("rate limits apply per process"), 1, "{text}");
        assert_eq!(count("WARN"), 3, "{text}");
        assert!(!text.contains("s3cret") && !text.contains("us3r"), "{text}");
        app.app.shutdown.closing().cancel();
    })
    .await;
}

#[tokio::test]
async fn recovered_dependency_is_logged_once() {
    let log = LogCapture::start();
    TestApp::run(async |app| {
        app.app.checks.refresh().await;
        let count = |text: &str| log.lines().iter().filter(|line| line.contains(text)).count();
        assert_eq!(count("dependency"), 0, "{:?}", log.lines());
        app.app.checks.assume_down("redis");
        for _ in 0..3 {
            app.app.checks.refresh().await;
        }
        assert_eq!((count("dependency available again dependency=\"redis\""), count("dependency")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn slow_request_exceeds_its_deadline() {
    TestApp::run_with(&[("MATCHDAY_HTTP__DEADLINE", "2s")], async |app| {
        let user = app.user().await;
        user.get("/api/auth/teams").await.expect(200);
        let holder = app.hold_teams().await;
        assert_eq!(user.get("/api/auth/teams").await.expect(503)["code"], "deadline_exceeded");
        holder.close().await.expect("released");
    })
    .await;
}

#[tokio::test]
async fn only_configured_origins_are_allowed() {
    let preflight = |origin: &'static str| {
        Request::builder()
            .method(Method::OPTIONS)
            .uri("/api/auth/events")
            .header("origin", origin)
            .header("access-control-request-method", "GET")
            .header("access-control-request-headers", "authorization")
            .body(Body::empty())
            .expect("a request")
    };
    TestApp::run(async |app| {
        assert_eq!(app.send(preflight("https://app.example.org")).await.header("access-control-allow-origin"), None);
    })
    .await;
    TestApp::run_with(&[("MATCHDAY_HTTP__CORS_ORIGINS", "https://app.example.org,https://b.example")], async |app| {
        let allowed = app.send(preflight("https://app.example.org")).await;
        assert_eq!(allowed.header("access-control-allow-origin"), Some("https://app.example.org"));
        assert!(
            allowed.header("access-control-allow-headers").is_some_and(|headers| headers.contains("authorization"))
        );
        assert!(
            allowed.header("access-control-allow-headers").is_some_and(|headers| headers.contains("idempotency-key"))
        );
        assert_eq!(app.send(preflight("https://evil.example")).await.header("access-control-allow-origin"), None);
    })
    .await;
}

#[tokio::test]
async fn browser_can_read_a_refusal() {
    let changes = [("MATCHDAY_HTTP__CORS_ORIGINS", "https://app.example.org"), ("MATCHDAY_HTTP__DEADLINE", "2s")];
    TestApp::run_with(&changes, async |app| {
        let user = app.user().await;
        let origin = [("origin", "https://app.example.org")];
        user.send_with(Method::GET, "/api/auth/teams", &origin, None).await.expect(200);
        let holder = app.hold_teams().await;
        let answer = user.send_with(Method::GET, "/api/auth/teams", &origin, None).await;
        assert_eq!(answer.header("access-control-allow-origin"), Some("https://app.example.org"));
        for name in ["retry-after", "idempotency-replayed"] {
            assert!(answer.header("access-control-expose-headers").is_some_and(|names| names.contains(name)), "{name}");
        }
        assert_eq!(answer.expect(503)["code"], "deadline_exceeded");
        holder.close().await.expect("released");
    })
    .await;
}

#[tokio::test]
async fn responses_are_compressed_on_request() {
    TestApp::run(async |app| {
        let request = Request::get("/api/openapi.json")
            .header("accept-encoding", "br, gzip")
            .body(Body::empty())
            .expect("a request");
        let packed = app.send(request).await;
        // Stored as gzip, and not compressed for each request.
        assert_eq!(packed.header("content-encoding"), Some("gzip"));
        assert!(packed.bytes.len() < app.anonymous(Method::GET, "/api/openapi.json").await.bytes.len() / 2);
        let tag = packed.header("etag").expect("a validator").to_owned();
        let again = Request::get("/api/openapi.json").header("if-none-match", tag);
        let again = app.send(again.body(Body::empty()).expect("a request")).await;
        assert_eq!((again.status, again.bytes.len()), (http::StatusCode::NOT_MODIFIED, 0));
        let user = app.user().await;
        let listed =
            user.send_with(Method::GET, "/api/auth/rule-sets/1", &[("accept-encoding", "br, gzip")], None).await;
        assert_eq!(listed.header("content-encoding"), Some("br"));
    })
    .await;
}

fn operations(api: &Value) -> Vec<(String, &Value)> {
    let paths = api["paths"].as_object().expect("paths");
    paths
        .iter()
        .flat_map(|(path, item)| {
            let methods = item.as_object().expect("methods");
            methods.iter().map(move |(method, operation)| (format!("{} {path}", method.to_uppercase()), operation))
        })
        .collect()
}

#[test]
#[expect(clippy::too_many_lines, reason = "lists all operations")]
fn openapi_lists_every_operation_and_its_errors() {
    let api = serde_json::to_value(super::description()).expect("JSON");
    assert_eq!(api["openapi"], "3.1.0");
    let listed: Vec<String> = operations(&api)
        .iter()
        .map(|(name, operation)| {
            let statuses: Vec<&str> =
                operation["responses"].as_object().expect("responses").keys().map(String::as_str).collect();
            format!("{name} {} {}", operation["operationId"].as_str().expect("an id"), statuses.join(" "))
        })
        .collect();
    insta::assert_snapshot!(listed.join("\n"), @r"
    GET /.well-known/matrix/client get_client_discovery 200 404 500 503
    GET /api/auth/blocks list_blocks 200 401 403 422 429 500 503
    DELETE /api/auth/blocks/{user} unblock_user 200 401 403 404 429 500 503
    POST /api/auth/blocks/{user} block_user 200 401 403 404 409 422 429 500 503
    POST /api/auth/chat-room create_room 201 400 401 403 409 413 422 429 500 503
    GET /api/auth/chat-rooms list_rooms 200 401 403 422 429 500 503
    POST /api/auth/chat-rooms/{room}/invite invite_to_room 200 400 401 403 404 409 413 422 429 500 503
    POST /api/auth/chat-rooms/{room}/join join_room 200 401 403 404 409 422 429 500 503
    POST /api/auth/chat-rooms/{room}/leave leave_room 200 401 403 404 409 422 429 500 503
    GET /api/auth/chat-rooms/{room}/member-stats get_member_stats 200 401 403 404 429 500 503
    POST /api/auth/chat-rooms/{room}/messages send_message 201 400 401 403 404 409 413 422 429 500 503
    DELETE /api/auth/chat-rooms/{room}/messages/{event_id} remove_message 200 400 401 403 404 413 422 429 500 503
    GET /api/auth/chat-rooms/{room}/moderators list_moderators 200 401 403 404 429 500 503
    DELETE /api/auth/chat-rooms/{room}/moderators/{user} dismiss_moderator 200 401 403 404 422 429 500 503
    PUT /api/auth/chat-rooms/{room}/moderators/{user} appoint_moderator 200 401 403 404 409 429 500 503
    DELETE /api/auth/chat-rooms/{room}/mutes/{user} unmute_member 200 401 403 404 429 500 503
    PUT /api/auth/chat-rooms/{room}/mutes/{user} mute_member 200 400 401 403 404 413 422 429 500 503
    GET /api/auth/chat-rooms/{room}/predictions list_room_predictions 200 401 403 404 422 429 500 503
    POST /api/auth/chat-rooms/{room}/reports report_message 200 201 400 401 403 404 409 413 422 429 500 503
    PUT /api/auth/chat-rooms/{room}/slow-mode set_slow_mode 200 400 401 403 404 413 422 429 500 503
    GET /api/auth/coins get_coins 200 401 403 422 429 500 503
    POST /api/auth/coins/deduct deduct_coins 200 400 401 403 409 413 422 429 500 503
    POST /api/auth/daily-coins claim_daily_coins 200 400 401 403 409 422 429 500 503
    GET /api/auth/devices list_devices 200 401 403 429 500 503
    DELETE /api/auth/devices/{device} remove_device 200 401 403 404 429 500 503
    GET /api/auth/devices/{device} get_device 200 401 403 404 429 500 503
    PUT /api/auth/devices/{device} save_device 200 400 401 403 404 409 413 422 429 500 503
    GET /api/auth/events list_events 200 304 401 403 422 429 500 503
    GET /api/auth/events/{event} get_event 200 401 403 404 429 500 503
    GET /api/auth/events/{event}/points-preview preview_points 200 401 403 404 422 429 500 503
    GET /api/auth/events/{event}/predictions list_event_predictions 200 401 403 404 422 429 500 503
    GET /api/auth/followers list_followers 200 401 403 422 429 500 503
    GET /api/auth/follows list_follows 200 401 403 422 429 500 503
    DELETE /api/auth/follows/{user} unfollow_user 200 401 403 404 429 500 503
    PUT /api/auth/follows/{user} follow_user 200 401 403 404 409 422 429 500 503
    GET /api/auth/leaderboards get_leaderboard 200 401 403 422 429 500 503
    GET /api/auth/leagues list_leagues 200 401 403 422 429 500 503
    POST /api/auth/leagues create_league 201 400 401 403 409 413 422 429 500 503
    POST /api/auth/leagues/join join_league 200 400 401 403 404 409 413 422 429 500 503
    GET /api/auth/leagues/{league} get_league 200 401 403 404 429 500 503
    PATCH /api/auth/leagues/{league} change_league 200 400 401 403 404 413 422 429 500 503
    POST /api/auth/leagues/{league}/code rotate_code 200 401 403 404 409 422 429 500 503
    POST /api/auth/leagues/{league}/leave leave_league 200 401 403 404 409 422 429 500 503
    DELETE /api/auth/leagues/{league}/members/{user} remove_member 200 401 403 404 422 429 500 503
    POST /api/auth/leagues/{league}/owner hand_over 200 400 401 403 404 409 413 422 429 500 503
    GET /api/auth/leagues/{league}/table get_league_table 200 401 403 404 422 429 500 503
    POST /api/auth/login log_in 200 400 401 403 413 422 429 500 503
    POST /api/auth/logout log_out 200 401 403 409 422 429 500 503
    POST /api/auth/matrix-credentials get_matrix_credentials 200 401 403 409 422 429 500 503
    POST /api/auth/matrix-keys/reset reset_matrix_keys 200 400 401 403 409 413 422 429 500 503
    POST /api/auth/matrix-keys/reset/initiate initiate_key_reset 200 401 403 409 422 429 500 503
    DELETE /api/auth/me delete_me 200 400 401 403 409 413 422 429 500 503
    GET /api/auth/me get_me 200 401 403 429 500 503
    DELETE /api/auth/me/avatar delete_avatar 200 401 403 429 500 503
    PUT /api/auth/me/avatar save_avatar 200 401 403 409 413 415 422 429 500 503
    GET /api/auth/me/calibration get_calibration 200 401 403 429 500 503
    POST /api/auth/me/deletion request_deletion 200 401 403 409 422 429 500 503
    GET /api/auth/me/export export_me 200 401 403 429 500 503
    GET /api/auth/me/notifications get_notifications 200 401 403 429 500 503
    PUT /api/auth/me/notifications save_notifications 200 400 401 403 413 422 429 500 503
    POST /api/auth/me/notifications/push add_push_subscription 200 400 401 403 409 413 422 429 500 503
    DELETE /api/auth/me/notifications/push/{id} remove_push_subscription 200 401 403 404 429 500 503
    GET /api/auth/me/privacy get_privacy 200 401 403 429 500 503
    PUT /api/auth/me/privacy change_privacy 200 400 401 403 413 422 429 500 503
    GET /api/auth/predictions list_own_predictions 200 401 403 422 429 500 503
    POST /api/auth/predictions save_prediction 200 201 400 401 403 404 409 413 422 429 500 503
    GET /api/auth/predictions/{id}/explanation explain_prediction 200 401 403 404 429 500 503
    GET /api/auth/predictions/{id}/proof get_proof 200 401 403 404 409 429 500 503
    GET /api/auth/predictions/{id}/receipt get_receipt 200 401 403 404 429 500 503
    GET /api/auth/questions list_questions 200 401 403 422 429 500 503
    GET /api/auth/questions/{question} get_question 200 401 403 404 429 500 503
    PUT /api/auth/questions/{question}/answer answer_question 200 201 400 401 403 404 409 413 422 429 500 503
    GET /api/auth/questions/{question}/answers list_answers 200 401 403 404 422 429 500 503
    GET /api/auth/removed-messages list_removed_messages 200 401 403 422 429 500 503
    GET /api/auth/reports list_own_reports 200 401 403 422 429 500 503
    POST /api/auth/resend-code resend_code 200 400 401 403 409 413 422 429 500 503
    GET /api/auth/rule-sets/{id} get_rule_set 200 401 403 404 429 500 503
    GET /api/auth/sessions list_sessions 200 401 403 422 429 500 503
    DELETE /api/auth/sessions/{id} end_session 200 401 403 404 429 500 503
    GET /api/auth/sports list_sports 200 401 403 422 429 500 503
    GET /api/auth/stream listen 200 400 401 403 404 422 429 500 503
    GET /api/auth/teams list_teams 200 401 403 422 429 500 503
    POST /api/auth/teams/other save_other_teams 200 400 401 403 409 413 422 429 500 503
    POST /api/auth/teams/primary save_primary_team 200 400 401 403 404 409 413 422 429 500 503
    GET /api/auth/tournaments list_tournaments 200 401 403 422 429 500 503
    POST /api/auth/update-user-info update_user_info 200 400 401 403 409 413 422 429 500 503
    POST /api/auth/username/check check_username 200 400 413 422 429 500 503
    POST /api/auth/username/generate generate_usernames 200 400 413 422 429 500 503
    GET /api/auth/users/{user} get_profile 200 401 403 404 429 500 503
    POST /api/auth/verify-phone verify_phone 200 400 401 403 409 413 422 429 500 503
    POST /api/auth/verify-phone/initiate initiate_verification 200 400 401 403 409 413 422 429 500 503
    GET /api/avatars/{file} get_avatar 200 304 404 422 500 503
    POST /api/code/request request_code 200 400 413 422 429 500 503
    POST /api/code/verify verify_code 200 400 401 403 413 422 429 500 503
    GET /api/contact get_contact 200 404 500 503
    GET /api/logs/sms list_sms_log 200 404 422 500 503
    POST /api/phone/undo-move undo_phone_move 200 400 401 409 413 422 429 500 503
    GET /api/seals list_seals 200 304 422 500 503
    GET /api/seals/{sequence} get_seal 200 404 500 503
    GET /api/sms/{provider}/status take_sms_report_by_query 200 400 403 404 405 500 503
    POST /api/sms/{provider}/status take_sms_report 200 400 403 404 413 500 503
    GET /healthz get_health 200
    GET /readyz get_readiness 200 503
    ");
}

#[test]
fn openapi_is_complete() {
    let api = serde_json::to_value(super::description()).expect("JSON");
    let mut ids = BTreeSet::new();
    for (name, operation) in operations(&api) {
        assert!(ids.insert(operation["operationId"].to_string()), "{name}: duplicate operation id");
        assert!(operation["summary"].is_string() && operation["tags"].is_array(), "{name}: summary and tag");
        let before_login = ["/api/auth/login", "/api/auth/username/check", "/api/auth/username/generate"];
        let guarded = name.contains("/api/auth/") && !before_login.iter().any(|path| name.ends_with(path));
        let takes_code =
            ["/api/code/verify", "/api/auth/login", "/api/phone/undo-move"].iter().any(|path| name.ends_with(path));
        assert_eq!(operation["security"] != json!([]), guarded, "{name}: security");
        assert_eq!(operation["responses"]["401"].is_object(), guarded || takes_code, "{name}: 401");
        let parameters = operation["parameters"].as_array().into_iter().flatten();
        let keys = parameters.filter(|parameter| parameter["$ref"] == "#/components/parameters/IdempotencyKey").count();
        assert_eq!(keys, usize::from(guarded && name.starts_with("POST ")), "{name}: Idempotency-Key");
    }
    // Every `$ref` resolves.
    let text = api.to_string();
    for part in text.split("\"$ref\":\"#").skip(1) {
        let pointer = part.split('"').next().expect("a pointer");
        assert!(api.pointer(pointer).is_some(), "{pointer} is missing");
    }
}

/// Linters and generators of clients need these; `clients/check` and `dev/generate-clients` run some of them.
#[test]
fn descriptions_are_valid_and_fit_for_generated_clients() {
    for description in [super::description(), crate::server::description()] {
        let api = serde_json::to_value(description).expect("JSON");
        assert!(api["servers"][0]["url"].is_string() && api["info"]["contact"]["name"].is_string());
        let declared: Vec<&Value> = api["tags"].as_array().expect("tags").iter().map(|tag| &tag["name"]).collect();
        let mut ids = BTreeSet::new();
        for (name, operation) in operations(&api) {
            assert!(ids.insert(operation["operationId"].to_string()), "{name}: duplicate operation id");
            let tags = operation["tags"].as_array().expect("tags");
            assert!(tags.iter().all(|tag| declared.contains(&tag)), "{name}: undeclared tag");
            assert!(operation["security"].is_array(), "{name}: an operation states that it is public");
            for (status, response) in operation["responses"].as_object().expect("responses") {
                let described = response["$ref"].is_string() || response["description"].is_string();
                assert!(described, "{name}: {status} has no description");
            }
            let parts =
                operation["responses"].as_object().expect("responses").values().chain([&operation["requestBody"]]);
            let contents = parts.flat_map(|part| part["content"].as_object().into_iter().flatten());
            for (_, content) in contents.filter(|(kind, _)| kind.starts_with("image/")) {
                // Without it, an image would be a list of numbers.
                assert_eq!(content["schema"], json!({"type": "string", "format": "binary"}), "{name}");
            }
            // Generated code would have two arguments with the same name.
            let mut names = BTreeSet::new();
            for parameter in operation["parameters"].as_array().into_iter().flatten() {
                let Some(parameter) = parameter["name"].as_str() else { continue };
                assert!(names.insert(parameter.to_lowercase().replace('-', "_")), "{name}: {parameter} twice");
            }
        }
        let stream = &api["paths"]["/api/auth/stream"]["get"]["x-events"]["data"];
        for kind in api["components"]["schemas"]["StreamEventKind"]["enum"].as_array().into_iter().flatten() {
            assert!(stream[kind.as_str().expect("a name")].is_object(), "the data of {kind} is not described");
        }
        let schemas = api["components"]["schemas"].as_object().expect("schemas");
        for (name, schema) in schemas {
            // Generated Go code has a function `NewThing` for each schema `Thing`.
            assert!(!name.starts_with("New"), "{name}");
            for (field, kind) in schema["properties"].as_object().into_iter().flatten() {
                // A map in `allOf` becomes a type that does not compile.
                let mut parts = kind["allOf"].as_array().into_iter().flatten();
                assert!(parts.all(|part| part["additionalProperties"].is_null()), "{name}.{field}");
            }
        }
        assert_eq!(schemas["ErrorBody"]["properties"]["errors"]["type"], "object");
    }
}

/// Collects the schemas reachable from a node of the description, by pointer.
fn schemas_of(api: &Value, part: &Value, found: &mut BTreeMap<String, Value>) {
    match part {
        Value::Object(fields) => {
            if let Some(pointer) = fields.get("$ref").and_then(Value::as_str) {
                let schema = api.pointer(&pointer[1..]).expect("the reference resolves");
                if found.insert(pointer.to_owned(), schema.clone()).is_none() {
                    schemas_of(api, schema, found);
                }
            }
            fields.values().for_each(|value| schemas_of(api, value, found));
        }
        Value::Array(values) => values.iter().for_each(|value| schemas_of(api, value, found)),
        _ => {}
    }
}

/// Each optional response property is either nullable or omittable, never both, so clients handle one case only.
#[test]
fn nullable_response_properties_are_always_present() {
    let api = serde_json::to_value(super::description()).expect("JSON");
    let (mut taken, mut answered) = (BTreeMap::new(), BTreeMap::new());
    for (_, operation) in operations(&api) {
        schemas_of(&api, &operation["requestBody"], &mut taken);
        schemas_of(&api, &operation["responses"], &mut answered);
    }
    let mut both = Vec::new();
    for (pointer, schema) in answered.iter().filter(|(pointer, _)| !taken.contains_key(*pointer)) {
        let parts = schema["allOf"].as_array().into_iter().flatten().chain([schema]);
        for (part, (property, kind)) in
            parts.flat_map(|part| part["properties"].as_object().into_iter().flatten().map(move |it| (part, it)))
        {
            let is_required = part["required"].as_array().is_some_and(|names| names.contains(&json!(property)));
            let is_nullable = kind["type"].as_array().is_some_and(|types| types.contains(&json!("null")))
                || kind["oneOf"].as_array().is_some_and(|types| types.contains(&json!({"type": "null"})));
            if is_nullable && !is_required {
                both.push(format!("{}.{property}", pointer.rsplit('/').next().expect("a name")));
            }
        }
    }
    // Exception: credentials are present only after a username change, and null means that they follow later.
    assert_eq!(both, ["SavedInfo.matrix_credentials"]);
}

#[tokio::test]
async fn reference_page_loads_nothing_external() {
    TestApp::run(async |app| {
        let page = app.anonymous(Method::GET, "/docs").await;
        let policy = page.header("content-security-policy").expect("a policy").to_owned();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("http"), "{policy}");
        let html = String::from_utf8(page.bytes).expect("text");
        assert!(!html.contains("http://") && !html.contains("https://"), "{html}");
        let scripts: Vec<&str> = html.split("src=\"").skip(1).filter_map(|rest| rest.split('"').next()).collect();
        assert_eq!(scripts, ["/docs/viewer.js", "/docs/setup.js"]);
        for script in scripts {
            let answer = app.anonymous(Method::GET, script).await;
            assert_eq!(answer.status, 200, "{script}");
            assert!(answer.header("content-type").is_some_and(|kind| kind.starts_with("text/javascript")));
        }
    })
    .await;
}
