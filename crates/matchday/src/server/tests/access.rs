//! Keys, scopes, networks, limits and the order of checks.

use std::time::Duration;

use axum::body::Body;
use http::{Method, Request, header};
use serde_json::json;
use utoipa::openapi::{OpenApi, path::Operation};
use web::openapi::{SERVER_KEY, operations_mut};

use super::{API, Backend, backend, ola, send, wish};
use crate::{
    identity::server_keys::{scopes::Scope, service::KeyRequest},
    router,
    server::description,
    testing::{TestApp, unique},
};

/// Method, path with parameters that name nothing, scope, and whether an idempotency key is needed.
fn operations(mut api: OpenApi) -> Vec<(Method, String, Option<String>, bool)> {
    let mut found = Vec::new();
    for (path, item) in &mut api.paths.paths {
        let path = path
            .replace("{room}", "%21nowhere%3Aexample.org")
            .replace("{event_id}", "%24nothing")
            .replace("{kind}", "mute");
        let path: String = path
            .split('/')
            .map(|part| if part.starts_with('{') { "1099511627776" } else { part })
            .collect::<Vec<_>>()
            .join("/");
        let methods = [
            (Method::GET, item.get.is_some()),
            (Method::POST, item.post.is_some()),
            (Method::PUT, item.put.is_some()),
            (Method::PATCH, item.patch.is_some()),
            (Method::DELETE, item.delete.is_some()),
        ];
        let methods = methods.into_iter().filter_map(|(method, exists)| exists.then_some(method));
        for (method, operation) in methods.collect::<Vec<_>>().into_iter().zip(operations_mut(item)) {
            let Some(scope) = scope_of(operation) else { continue };
            let parameters = serde_json::to_string(&operation.parameters).expect("parameters");
            found.push((method, path.clone(), scope, parameters.contains("IdempotencyKey")));
        }
    }
    found
}

/// The scope that an operation needs; `Some(None)` if any key suffices, and `None` if it needs no key or a token.
#[expect(clippy::option_option, reason = "three cases, in one place")]
fn scope_of(operation: &Operation) -> Option<Option<String>> {
    let security = serde_json::to_value(operation.security.as_ref()?).expect("JSON");
    let scopes = security[0].get(SERVER_KEY)?.as_array().expect("scopes");
    Some(scopes.first().map(|scope| scope.as_str().expect("a scope").to_owned()))
}

#[test]
fn every_route_is_described_with_its_scope() {
    let described: Vec<String> = operations(description())
        .into_iter()
        .map(|(method, path, scope, keyed)| {
            let path = path.trim_start_matches(API).replace("1099511627776", "_");
            format!("{method} {path} {}{}", scope.as_deref().unwrap_or("any"), if keyed { " keyed" } else { "" })
        })
        .collect();
    insta::assert_snapshot!(described.join("\n"), @r"
    GET /key any
    GET /users/_ users:read
    POST /users/lookup users:read
    PUT /users/_/restrictions/mute users:write
    DELETE /users/_/restrictions/mute users:write
    DELETE /users/_/sessions users:write
    GET /users/_/coins coins:read
    POST /users/_/coins/grant coins:write keyed
    POST /users/_/coins/deduct coins:write keyed
    POST /users/_/coins/reverse coins:write keyed
    POST /catalogue/import catalogue:write keyed
    PUT /events/_/result catalogue:write
    GET /rooms rooms:read
    GET /rooms/%21nowhere%3Aexample.org rooms:read
    POST /rooms/%21nowhere%3Aexample.org/announcements rooms:write keyed
    DELETE /rooms/%21nowhere%3Aexample.org/messages/%24nothing moderation:write
    GET /webhooks webhooks:write
    POST /webhooks webhooks:write keyed
    DELETE /webhooks/_ webhooks:write
    DELETE /leagues/_/members/_ leagues:write
    GET /facts export:read
    ");
}

#[tokio::test]
async fn each_route_accepts_only_its_scope() {
    TestApp::run(async |app| {
        let mut backends = Vec::new();
        for &scope in Scope::ALL {
            backends.push((scope.name(), backend(app, &[scope]).await));
        }
        let user = app.user().await;
        for (method, path, needed, _) in operations(description()) {
            let path = path.trim_start_matches(API);
            let (key, body) = (unique("key"), json!({}));
            let headers = [("idempotency-key", key.as_str())];
            let body = (method != Method::GET).then_some(&body);
            for (scope, backend) in &backends {
                let answer = backend.send(method.clone(), path, &headers, body).await;
                let (status, challenge) =
                    (answer.status.as_u16(), answer.header("www-authenticate").map(str::to_owned));
                match &needed {
                    Some(needed) if needed != scope => {
                        assert_eq!(answer.expect(403)["code"], "insufficient_scope", "{method} {path} with {scope}");
                        let expected = format!("Bearer error=\"insufficient_scope\", scope=\"{needed}\"");
                        assert_eq!(challenge.as_deref(), Some(expected.as_str()));
                    }
                    _ => assert!([200, 404, 422].contains(&status), "{method} {path} with {scope}: {status}"),
                }
            }
            for token in ["", user.token.as_str(), "mk_test_1_x"] {
                let answer = send(app, token, method.clone(), path, &headers, body).await;
                assert_eq!(answer.header("www-authenticate"), Some("Bearer"), "{method} {path}");
                assert_eq!(answer.expect(401)["code"], "unauthenticated");
            }
        }
        assert_eq!(backends[0].1.actions().await, [""; 0]);
    })
    .await;
}

#[tokio::test]
async fn server_key_is_refused_on_user_routes() {
    TestApp::run(async |app| {
        let backend = backend(app, Scope::ALL).await;
        let mut tried = 0;
        for (path, item) in &router::description().paths.paths {
            let methods = [(Method::GET, &item.get), (Method::POST, &item.post), (Method::DELETE, &item.delete)];
            for (method, operation) in methods {
                let Some(security) = operation.as_ref().and_then(|operation| operation.security.as_ref()) else {
                    continue;
                };
                if security.is_empty() {
                    continue;
                }
                let security = serde_json::to_string(security).expect("JSON");
                let path = path.replace(['{', '}'], "");
                let request = Request::builder().method(method.clone()).uri(&path);
                let request = request.header(header::AUTHORIZATION, format!("Bearer {}", backend.key));
                let answer = app.send(request.body(Body::empty()).expect("a request")).await;
                assert_eq!(answer.status.as_u16(), 401, "{method} {path} {security}");
                tried += 1;
            }
        }
        assert!(tried > 40, "{tried}");
    })
    .await;
}

#[tokio::test]
async fn revoked_key_is_refused_by_other_processes_within_a_second() {
    TestApp::run(async |app| {
        let (first, other) = (backend(app, &[Scope::ExportRead]).await, app.second(app.app.config.clone()).await);
        let second = Backend { app: &other, id: first.id, key: first.key.clone() };
        first.get("/key").await.expect(200);
        second.get("/key").await.expect(200);
        let revoked = app.app.server_keys.revoke(first.id, &ola()).await.expect("revoked");
        first.get("/key").await.expect(401);
        tokio::time::sleep(Duration::from_secs(1)).await;
        second.get("/key").await.expect(401);
        app.clock.advance(time::Duration::hours(1));
        let again = app.app.server_keys.revoke(first.id, &ola()).await.expect("revoked before");
        assert_eq!(again.revoked_at, revoked.revoked_at);
        let rotated = app.app.server_keys.rotate(first.id, Duration::ZERO, &ola()).await;
        assert!(rotated.is_err(), "a revoked key cannot be rotated");
    })
    .await;
}

#[tokio::test]
async fn expired_key_is_refused() {
    TestApp::run(async |app| {
        let request = KeyRequest { expires_in: Some(Duration::from_mins(1)), ..wish(&[Scope::ExportRead]) };
        let backend = Backend::with(app, &request).await;
        app.clock.advance(time::Duration::seconds(59));
        backend.get("/key").await.expect(200);
        app.clock.advance(time::Duration::seconds(1));
        backend.get("/key").await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn rotated_key_keeps_its_id_and_previous_text() {
    TestApp::run(async |app| {
        let first = backend(app, &[Scope::CoinsRead]).await;
        let rotate = async |grace| {
            let issued = app.app.server_keys.rotate(first.id, grace, &ola()).await.expect("rotated");
            (Backend::of(app, &issued), issued.key.previous_valid_until)
        };
        let (second, until) = rotate(Duration::from_hours(1)).await;
        assert_eq!((second.id, until), (first.id, Some(app.app.core.clock.now() + time::Duration::HOUR)));
        assert_ne!(second.key, first.key);
        first.get("/key").await.expect(200);
        second.get("/key").await.expect(200);
        app.clock.advance(time::Duration::HOUR);
        first.get("/key").await.expect(401);
        let (third, until) = rotate(Duration::ZERO).await;
        assert_eq!(until, None);
        second.get("/key").await.expect(401);
        third.get("/key").await.expect(200);
        let long = app.app.server_keys.rotate(first.id, Duration::from_hours(7 * 24 + 1), &ola()).await;
        assert!(long.is_err(), "longer than seven days");
    })
    .await;
}

#[tokio::test]
async fn key_is_limited_to_its_networks() {
    TestApp::run(async |app| {
        let networks = ["203.0.113.0/24", "2001:db8::/32"].map(|network| network.parse().expect("a network"));
        let request = KeyRequest { networks: networks.to_vec(), ..wish(&[Scope::ExportRead]) };
        let backend = Backend::with(app, &request).await;
        for (address, status) in
            [("203.0.113.9", 200), ("203.0.114.9", 403), ("2001:db8:1::2", 200), ("2001:db9::1", 403)]
        {
            let answer = backend.send(Method::GET, "/key", &[("x-forwarded-for", address)], None).await.expect(status);
            assert!(status == 200 || answer["code"] == "network_not_allowed", "{address}");
        }
    })
    .await;
}

#[tokio::test]
async fn use_is_recorded_once_a_minute() {
    TestApp::run(async |app| {
        let backend = backend(app, &[Scope::ExportRead]).await;
        let last = async || app.app.server_keys.list().await.expect("listed")[0].last_used_at;
        assert_eq!(last().await, None);
        backend.get("/key").await.expect(200);
        let first = last().await.expect("recorded");
        app.clock.advance(time::Duration::seconds(59));
        tokio::time::sleep(Duration::from_millis(600)).await;
        backend.get("/key").await.expect(200);
        assert_eq!(last().await, Some(first), "the cached key has expired, and a minute has not passed");
        app.clock.advance(time::Duration::seconds(1));
        tokio::time::sleep(Duration::from_millis(600)).await;
        backend.get("/key").await.expect(200);
        assert_eq!(last().await, Some(first + time::Duration::MINUTE));
    })
    .await;
}

/// Each request fails all later checks as well.
#[tokio::test]
async fn checks_happen_in_the_documented_order() {
    TestApp::run_with(
        &[
            // Limits are a thousand times as high in development.
            ("MATCHDAY_ENV", "staging"),
            ("MATCHDAY_SMS__COUNTRIES", "US"),
            ("MATCHDAY_SERVER_API__BURST", "20"),
            ("MATCHDAY_SERVER_API__RATE", "1"),
        ],
        async |app| {
            let away = KeyRequest {
                networks: vec!["203.0.113.0/24".parse().expect("a network")],
                ..wish(&[Scope::ExportRead])
            };
            let (away, other) = (Backend::with(app, &away).await, backend(app, &[Scope::ExportRead]).await);
            let shop = backend(app, &[Scope::CoinsWrite]).await;
            let path = "/users/nobody/coins/grant";
            let code = async |backend: &Backend<'_>, headers: &[(&str, &str)], status| {
                let answer = backend.send(Method::POST, path, headers, Some(&json!({}))).await.expect(status);
                answer["code"].as_str().expect("a code").to_owned()
            };
            assert_eq!(code(&away, &[], 403).await, "network_not_allowed");
            assert_eq!(code(&other, &[], 403).await, "insufficient_scope");
            assert_eq!(code(&shop, &[], 422).await, "idempotency_key_required");
            assert_eq!(code(&shop, &[("idempotency-key", "two words")], 422).await, "validation_failed");
            assert_eq!(code(&shop, &[("idempotency-key", "k")], 404).await, "not_found");
            let user = app.user().await;
            let body = shop.post(&format!("/users/{}/coins/grant", user.id), &json!({})).await;
            assert_eq!(body.header("x-ratelimit-limit"), Some("20"), "the burst");
            assert_eq!(body.invalid_fields(), ["amount", "reason"]);
            // The rate limit comes before the scope. The first request was counted already.
            for _ in 1..20 {
                other.get("/key").await.expect(200);
            }
            assert_eq!(code(&other, &[], 429).await, "rate_limited");
            shop.get("/key").await.expect(200);
        },
    )
    .await;
}

#[tokio::test]
async fn description_and_api_are_on_the_configured_listener() {
    TestApp::run(async |app| {
        let document = app.anonymous(Method::GET, &format!("{API}/openapi.json")).await.expect(200);
        assert_eq!(document, serde_json::to_value(description()).expect("JSON"));
    })
    .await;
    TestApp::run_with(&[("MATCHDAY_HTTP__SERVER_LISTEN", "127.0.0.1:0")], async |app| {
        app.anonymous(Method::GET, &format!("{API}/openapi.json")).await.expect(404);
        let backend = backend(app, &[Scope::ExportRead]).await;
        backend.get("/key").await.expect(404);
        let server = router::server(&app.app).expect("a listener of its own");
        let request =
            Request::get(format!("{API}/key")).header(header::AUTHORIZATION, format!("Bearer {}", backend.key));
        let answer = web::server::Answers::answer(&server, request.body(Body::empty()).expect("a request")).await;
        assert_eq!(answer.status().as_u16(), 200);
    })
    .await;
}
