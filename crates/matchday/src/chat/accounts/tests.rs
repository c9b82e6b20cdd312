//! Tests of chat accounts and credentials against a real homeserver.

use std::time::Duration;

use http::Method;
use platform::{
    budget::{Budget, Share},
    stream::{Delivery, Failure},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use web::ids::UserId;

use super::{service::Chat, work::ChatWork};
use crate::{
    identity::{
        accounts::restrictions::Restriction,
        login::hooks::ChatAccess as _,
        operators::Operator,
        sessions::service::{DEVICE_ENDED, DeviceState, REVOKED},
    },
    testing::{TestApp, unique},
};

/// Returns a phone number that no other test logs in with. Generated usernames depend on it.
fn phone(n: u32) -> String {
    format!("+1415555{n:04}")
}

/// Owner of a chat token according to the homeserver, as (status, body).
async fn whoami(app: &TestApp, token: &Value) -> (u16, Value) {
    let base = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
    let url = base.join("_matrix/client/v3/account/whoami").expect("a URL");
    let response = app.web.get(url).bearer_auth(token.as_str().expect("a token")).send().await.expect("a response");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

/// Marks the username as generated. Tests choose their usernames, because generated ones may be taken on the shared
/// homeserver.
async fn mark_username_generated(app: &TestApp, user: UserId) {
    sqlx::query("update users set username_is_generated = true where user_id = $1")
        .bind(user)
        .execute(&app.app.core.db)
        .await
        .expect("written");
}

/// Handles the published chat messages like a worker, and returns the subjects of the others.
async fn work(app: &TestApp) -> Vec<String> {
    let mut others = Vec::new();
    for (subject, payload) in app.published().await {
        if subject.starts_with("work.chat") {
            perform(&app.app.chat_work, &subject, &payload).await.expect("done");
            // Messages may be redelivered.
            perform(&app.app.chat_work, &subject, &payload).await.expect("done again");
        } else {
            others.push(subject);
        }
    }
    others
}

async fn perform(chat: &ChatWork, subject: &str, payload: &Value) -> Result<(), Failure> {
    let delivery = Delivery {
        subject: subject.to_owned(),
        id: None,
        payload: payload.to_string().into_bytes().into(),
        attempt: 1,
    };
    chat.perform(delivery).await
}

#[tokio::test]
async fn login_creates_device_that_ends_with_session() {
    TestApp::run_with_chat(&[], async |app| {
        let (first, one) = app.log_in(&phone(1)).await;
        let (second, two) = app.log_in(&phone(1)).await;
        let (one, two) = (&one["matrix_credentials"], &two["matrix_credentials"]);
        assert_eq!(one["user_id"], two["user_id"]);
        assert_ne!(one["device_id"], two["device_id"]);
        for credentials in [one, two] {
            let (status, body) = whoami(app, &credentials["access_token"]).await;
            assert_eq!(
                (status, &body["user_id"], &body["device_id"]),
                (200, &credentials["user_id"], &credentials["device_id"])
            );
        }
        first.post("/api/auth/logout", json!({})).await.expect(200);
        assert_eq!(work(app).await, [REVOKED]);
        first.get("/api/auth/teams").await.expect(401);
        assert_eq!(whoami(app, &one["access_token"]).await.0, 401);
        second.get("/api/auth/teams").await.expect(200);
        assert_eq!(whoami(app, &two["access_token"]).await.0, 200);

        // Expiry of a session also deletes its device.
        app.clock.advance(time::Duration::days(31));
        assert_eq!(app.app.sessions.sweep().await.expect("swept"), 1);
        assert!(work(app).await.is_empty());
        assert_eq!(whoami(app, &two["access_token"]).await.0, 401);
    })
    .await;
}

#[tokio::test]
async fn login_succeeds_while_homeserver_is_down() {
    let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
    TestApp::run_with_chat(&away, async |app| {
        let (user, login) = app.log_in(&phone(2)).await;
        assert_eq!(login["matrix_credentials"], Value::Null);
        user.get("/api/auth/teams").await.expect(200);
        let refused = user.send(Method::POST, "/api/auth/matrix-credentials", None).await;
        assert_eq!(refused.header("retry-after"), Some("5"));
        assert_eq!(refused.expect(503)["code"], "chat_unavailable");
        let published = app.published().await;
        assert_eq!(
            (published.len(), published[0].0.as_str()),
            (1, DEVICE_ENDED),
            "cleans up the device that was never created"
        );
        assert!(matches!(
            perform(&app.app.chat_work, &published[0].0, &published[0].1).await,
            Err(Failure::Retry { .. })
        ));

        // Same account, after the homeserver has recovered.
        let config = crate::testing::test_config(&[]);
        let homeserver = super::service::homeserver(&config.matrix, app.web.clone()).expect("a homeserver");
        let (sessions, accounts) = (app.app.sessions.clone(), app.app.accounts.clone());
        let (redis, random) = (app.app.redis.clone(), app.app.core.random.clone());
        let budget = Budget::new(redis, &app.app.config.redis.prefix, "homeserver", random, super::service::BUDGET);
        let back = Chat::new(&app.app.core, &config.matrix, homeserver.as_ref(), sessions, accounts, budget);
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let session = app.app.sessions.check(&user.token).await.expect("checked").expect("a session").id;
        let credentials = back.renew(&account, session).await.expect("credentials");
        let whoami = app
            .web
            .get(config.matrix.homeserver_url.expect("a URL").join("_matrix/client/v3/account/whoami").expect("a URL"));
        let response = whoami.bearer_auth(credentials.access_token.expose_secret()).send().await.expect("a response");
        assert_eq!(response.status(), 200);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn login_skips_chat_while_homeserver_is_overloaded() {
    // No call is as fast as this.
    let share = Share::new("test", 100, Duration::ZERO);
    TestApp::run_with_chat(&[], async |app| {
        let (redis, random) = (app.app.redis.clone(), app.app.core.random.clone());
        let budget = Budget::new(redis, &app.app.config.redis.prefix, "homeserver", random, super::service::BUDGET);
        let take = async || budget.take(&share, Duration::ZERO, Duration::ZERO).await;
        take().await.expect("a call").finish(true).await;
        let mut calls = Vec::new();
        while let Some(call) = take().await {
            calls.push(call);
        }
        let (user, login) = app.log_in(&phone(29)).await;
        assert_eq!(login["matrix_credentials"], Value::Null);
        for call in calls {
            call.finish(true).await;
        }
        let renewed = user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(200);
        assert_eq!(whoami(app, &renewed["data"]["matrix_credentials"]["access_token"]).await.0, 200);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn new_credentials_revoke_previous_ones() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(3)).await;
        let old = login["matrix_credentials"].clone();
        let response = user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(200);
        let new = &response["data"]["matrix_credentials"];
        assert_eq!(new["user_id"], old["user_id"]);
        assert_ne!(new["device_id"], old["device_id"]);
        work(app).await;
        assert_eq!(whoami(app, &old["access_token"]).await.0, 401);
        assert_eq!(whoami(app, &new["access_token"]).await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn new_username_replaces_chat_account() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(4)).await;
        mark_username_generated(app, user.id).await;
        let wanted = unique("ada");
        let body = json!({"username": wanted, "name": "Ada Obi"});
        let saved = user.post("/api/auth/update-user-info", body).await.expect(200);
        let new = &saved["data"]["matrix_credentials"];
        assert!(new["user_id"].as_str().is_some_and(|id| id.starts_with(&format!("@{wanted}:"))), "{new}");
        work(app).await;
        assert_eq!(whoami(app, &new["access_token"]).await.0, 200, "the follow-up work keeps the new token valid");
        assert_eq!(whoami(app, &login["matrix_credentials"]["access_token"]).await.0, 401);
        let base = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
        let profile = base
            .join(&format!("_matrix/client/v3/profile/{}", new["user_id"].as_str().expect("an id")))
            .expect("a URL");
        let profile: Value = app.web.get(profile).send().await.expect("a response").json().await.expect("JSON");
        assert_eq!(profile["displayname"], "Ada Obi");
        // A later login uses the new account.
        let (_, again) = app.log_in(&phone(4)).await;
        assert_eq!(again["matrix_credentials"]["user_id"], new["user_id"]);
    })
    .await;
}

#[tokio::test]
async fn session_ended_during_login_leaves_no_device() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(5)).await;
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let session = app.app.sessions.check(&user.token).await.expect("checked").expect("a session").id;
        // Simulates a slow homeserver: the device is created after the session ended.
        let issued = app.app.sessions.issue(user.id, "late").await.expect("a session");
        app.app.sessions.end(user.id, issued.id).await.expect("ended");
        work(app).await;
        assert!(app.app.chat.admit(&account, &issued, "late").await.is_none());
        let devices = devices(app, &login["matrix_credentials"]["access_token"]).await;
        assert_eq!(devices, [login["matrix_credentials"]["device_id"].as_str().expect("an id")]);
        let state = app.app.sessions.device_state(user.id, session, &devices[0]).await.expect("asked");
        assert_eq!(state, DeviceState::Current);
    })
    .await;
}

async fn devices(app: &TestApp, token: &Value) -> Vec<String> {
    let base = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
    let url = base.join("_matrix/client/v3/devices").expect("a URL");
    let response = app.web.get(url).bearer_auth(token.as_str().expect("a token")).send().await.expect("a response");
    let body: Value = response.json().await.expect("JSON");
    let list = body["devices"].as_array().expect("a list").iter();
    list.map(|device| device["device_id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn retries_while_chat_is_down_write_nothing() {
    let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
    TestApp::run_with_chat(&away, async |app| {
        let (user, _) = app.log_in(&phone(7)).await;
        for _ in 0..2 {
            user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(503);
        }
        // Three failures have opened the circuit breaker.
        app.published().await;
        for _ in 0..5 {
            user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(503);
        }
        assert!(app.published().await.is_empty());
        // Failed requests do not count towards the rate limit.
        for _ in 0..20 {
            user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(503);
        }
    })
    .await;
}

#[tokio::test]
async fn credential_renewal_is_rate_limited() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, _) = app.log_in(&phone(9)).await;
        let renew = async || user.send(Method::POST, "/api/auth/matrix-credentials", None).await.status.as_u16();
        for _ in 0..10 {
            assert_eq!(renew().await, 200);
        }
        assert_eq!(renew().await, 429);
        app.clock.advance(time::Duration::seconds(30));
        assert_eq!([renew().await, renew().await], [200, 429]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn concurrent_renewals_leave_one_device() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, _) = app.log_in(&phone(8)).await;
        let renew = || user.send(Method::POST, "/api/auth/matrix-credentials", None);
        let (one, two) = tokio::join!(renew(), renew());
        let statuses = [one.status.as_u16(), two.status.as_u16()];
        assert!(statuses.contains(&200) && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
        work(app).await;
        user.get("/api/auth/teams").await.expect(200);
        let response = user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(200);
        work(app).await;
        let current = &response["data"]["matrix_credentials"];
        assert_eq!(devices(app, &current["access_token"]).await, [current["device_id"].as_str().expect("an id")]);
    })
    .await;
}

/// Covers users who were on the homeserver before this service.
#[tokio::test]
async fn foreign_chat_account_is_never_taken_over() {
    TestApp::run_with_chat(&[], async |app| {
        let matrix = &app.app.config.matrix;
        let settings = matrix_appservice::Settings::new(
            matrix.homeserver_url.clone().expect("a homeserver"),
            matrix.server_name.clone().expect("a name").try_into().expect("a server name"),
            matrix.as_token.as_ref().expect("a token").inner().clone(),
        );
        let homeserver = matrix_appservice::Homeserver::new(settings, app.web.clone());
        let (theirs, forgotten, lost, later) = (unique("jane"), unique("gone"), unique("lost"), unique("later"));
        for name in [&theirs, &forgotten, &lost, &later] {
            homeserver.register(name).await.expect("made");
        }
        for name in [&theirs, &later] {
            homeserver.log_in(name, "PHONEOFJANE", "Jane's phone").await.expect("in");
        }
        // A user of this service that the database has lost.
        homeserver.log_in(&forgotten, "MD0123456789A", "an app").await.expect("in");
        let attempt = async |number: u32, username: &str| {
            let phone = phone(number);
            let code = app.code(&phone).await;
            let body = json!({"phone": phone, "code": code, "username": username});
            app.post("/api/code/verify", &body).await
        };
        for name in [&theirs, &forgotten] {
            let asked = app.post("/api/auth/username/check", &json!({"username": name})).await.expect(200);
            assert_eq!(asked["available"], false, "{name}");
            let taken = attempt(10, name).await;
            assert_eq!(taken.invalid_fields(), ["username"], "the conflict is reported at login");
        }
        // An account without devices was created by a call that lost its response.
        assert!(attempt(11, &lost).await.expect(200)["data"]["matrix_credentials"]["access_token"].is_string());

        let (user, _) = app.log_in(&phone(12)).await;
        mark_username_generated(app, user.id).await;
        let taken = user.post("/api/auth/update-user-info", json!({"username": later})).await;
        assert_eq!(taken.invalid_fields(), ["username"], "the conflict is reported on rename");

        // Simulates a homeserver that was unavailable when the name was chosen. The user can choose another name.
        sqlx::query("update users set username = $2, has_chat_account = false, username_is_generated = false where user_id = $1")
            .bind(user.id)
            .bind(&later)
            .execute(&app.app.core.db)
            .await
            .expect("renamed");
        let refused = user.post("/api/auth/matrix-credentials", json!({})).await;
        assert_eq!(refused.expect(409)["code"], "chat_name_taken");
        let saved = user.post("/api/auth/update-user-info", json!({"username": unique("fresh")})).await.expect(200);
        assert!(saved["data"]["matrix_credentials"]["access_token"].is_string());
        assert_eq!(homeserver.devices(&later).await.expect("a list"), ["PHONEOFJANE"], "her device is kept");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn concurrently_created_chat_account_is_accepted() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, _) = app.log_in(&phone(1)).await;
        // Account as a worker read it before the login created the chat account and a device.
        let mut account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        account.has_chat_account = false;
        let server = app.app.chat.server().expect("a homeserver");
        app.app.chat.make_account(server, &account).await.expect("ours");
    })
    .await;
}

#[tokio::test]
async fn client_discovery_returns_homeserver() {
    let changes = [
        ("MATCHDAY_MATRIX__PUBLIC_URL", "https://chat.example.org/"),
        ("MATCHDAY_HTTP__CORS_ORIGINS", "https://app.example.org"),
    ];
    TestApp::run_with_chat(&changes, async |app| {
        let request = http::Request::get("/.well-known/matrix/client").header("origin", "https://element.example");
        let response = app.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        let origins: Vec<_> = response.headers.get_all("access-control-allow-origin").iter().collect();
        assert_eq!(origins, ["*"], "any web client may read it");
        let request = http::Request::get("/.well-known/matrix/client").header("origin", "https://app.example.org");
        let own = app.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        assert_eq!(own.headers.get_all("access-control-allow-origin").iter().count(), 1, "browsers refuse two");
        assert_eq!(response.expect(200), json!({"m.homeserver": {"base_url": "https://chat.example.org"}}));
    })
    .await;
    TestApp::run(async |app| {
        app.anonymous(Method::GET, "/.well-known/matrix/client").await.expect(404);
        let (user, _) = app.log_in(&phone(6)).await;
        let response = user.send(Method::POST, "/api/auth/matrix-credentials", None).await;
        assert_eq!(response.expect(503)["code"], "chat_unavailable");
    })
    .await;
}

#[tokio::test]
async fn unknown_work_fails_and_unknown_user_is_skipped() {
    TestApp::run(async |app| {
        let nothing = json!({"user_id": 1, "device_id": "MDx"});
        perform(&app.app.chat_work, DEVICE_ENDED, &nothing).await.expect("no work if chat is disabled");
    })
    .await;
    TestApp::run_with_chat(&[], async |app| {
        let chat = &app.app.chat_work;
        assert!(matches!(perform(chat, "work.chat.unknown", &json!({})).await, Err(Failure::GiveUp(_))));
        assert!(matches!(perform(chat, DEVICE_ENDED, &json!({"user_id": "x"})).await, Err(Failure::GiveUp(_))));
        let gone = json!({"user_id": UserId(999_999), "device_id": "MDx"});
        perform(chat, DEVICE_ENDED, &gone).await.expect("no work for an unknown user");
    })
    .await;
}

/// Profile of a user according to the homeserver.
async fn chat_profile(app: &TestApp, user_id: &Value) -> Value {
    let base = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
    let path = format!("_matrix/client/v3/profile/{}", user_id.as_str().expect("an id"));
    let response = app.web.get(base.join(&path).expect("a URL")).send().await.expect("a response");
    response.json().await.expect("JSON")
}

async fn chat_avatar(app: &TestApp, user_id: &Value) -> Option<String> {
    chat_profile(app, user_id).await["avatar_url"].as_str().map(str::to_owned)
}

#[tokio::test]
async fn chat_shows_the_avatar() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(61)).await;
        let id = &login["matrix_credentials"]["user_id"];
        assert_eq!(chat_avatar(app, id).await, None);
        app.app.avatars.save(user.id, crate::testing::TINY_PNG.into()).await.expect("saved");
        assert!(work(app).await.is_empty());
        let first = chat_avatar(app, id).await.expect("an avatar");
        assert!(first.starts_with("mxc://"), "{first}");
        app.app.avatars.save(user.id, crate::testing::TINY_PNG.into()).await.expect("saved");
        assert!(work(app).await.is_empty());
        let second = chat_avatar(app, id).await.expect("an avatar");
        assert_ne!(first, second);
        app.app.avatars.remove(user.id).await.expect("removed");
        assert!(work(app).await.is_empty());
        assert_eq!(chat_avatar(app, id).await, None);
    })
    .await;
}

#[tokio::test]
async fn renamed_user_leaves_no_name_or_avatar_behind() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(63)).await;
        let old = &login["matrix_credentials"]["user_id"];
        app.app.avatars.save(user.id, crate::testing::TINY_PNG.into()).await.expect("saved");
        user.post("/api/auth/update-user-info", json!({"name": "Ada Obi"})).await.expect(200);
        assert!(work(app).await.is_empty());
        let shown = chat_profile(app, old).await;
        assert!(shown["displayname"] == "Ada Obi" && shown["avatar_url"].is_string(), "{shown}");

        mark_username_generated(app, user.id).await;
        let saved = user.post("/api/auth/update-user-info", json!({"username": unique("ada")})).await.expect(200);
        assert!(work(app).await.is_empty());
        let new = chat_profile(app, &saved["data"]["matrix_credentials"]["user_id"]).await;
        assert!(new["displayname"] == "Ada Obi" && new["avatar_url"].is_string(), "{new}");
        let left = chat_profile(app, old).await;
        let username = old.as_str().and_then(|id| id.trim_start_matches('@').split(':').next()).expect("a name");
        assert!(left["displayname"] == username && left["avatar_url"].is_null(), "{left}");
    })
    .await;
}

/// The homeserver refuses changes to profiles of suspended accounts.
#[tokio::test]
async fn muted_user_who_is_renamed_leaves_no_name_or_avatar_behind() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(64)).await;
        let old = &login["matrix_credentials"]["user_id"];
        app.app.avatars.save(user.id, crate::testing::TINY_PNG.into()).await.expect("saved");
        user.post("/api/auth/update-user-info", json!({"name": "Ada Obi"})).await.expect(200);
        assert!(work(app).await.is_empty());
        app.app.moderation.restrict(user.id, Restriction::Mute, &Operator::new("ola", "spam")).await.expect("muted");
        work(app).await;
        assert_eq!(chat_profile(app, old).await["displayname"], "Ada Obi");

        mark_username_generated(app, user.id).await;
        user.post("/api/auth/update-user-info", json!({"username": unique("ada")})).await.expect(200);
        assert!(work(app).await.is_empty());
        let left = chat_profile(app, old).await;
        let username = old.as_str().and_then(|id| id.trim_start_matches('@').split(':').next()).expect("a name");
        assert!(left["displayname"] == username && left["avatar_url"].is_null(), "{left}");
    })
    .await;
}

#[tokio::test]
async fn unavailable_homeserver_only_delays_the_avatar_in_chat() {
    let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
    TestApp::run_with_chat(&away, async |app| {
        let (user, _) = app.log_in(&phone(62)).await;
        app.app.avatars.save(user.id, crate::testing::TINY_PNG.into()).await.expect("saved");
        let message = app.published().await.remove(0);
        let outcome = perform(&app.app.chat_work, &message.0, &message.1).await;
        assert!(matches!(outcome, Err(Failure::Retry { .. })), "{outcome:?}");
    })
    .await;
}
