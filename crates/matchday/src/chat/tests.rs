//! With the real homeserver.

use http::Method;
use platform::stream::{Delivery, Failure};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use web::ids::UserId;

use super::{service::Chat, work::ChatWork};
use crate::{
    sessions::service::{DEVICE_ENDED, DeviceState, REVOKED},
    testing::{TestApp, unique},
};

/// A phone that no other test logs in with. The homeserver does not know it, but names are made from it here.
fn phone(n: u32) -> String {
    format!("+1415555{n:04}")
}

/// Who the homeserver says a chat token belongs to, as (status, body).
async fn whoami(app: &TestApp, token: &Value) -> (u16, Value) {
    let base = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
    let url = base.join("_matrix/client/v3/account/whoami").expect("a URL");
    let answer = app.web.get(url).bearer_auth(token.as_str().expect("a token")).send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

/// Names that are made up may be taken on a homeserver that many tests share, so tests choose theirs.
async fn as_if_made_up(app: &TestApp, user: UserId) {
    sqlx::query("update users set username_is_generated = true where user_id = $1")
        .bind(user)
        .execute(&app.app.core.db)
        .await
        .expect("written");
}

/// Does the chat work that was told, as a worker would; returns the other messages.
async fn work(app: &TestApp) -> Vec<String> {
    let mut others = Vec::new();
    for (subject, payload) in app.told().await {
        if subject.starts_with("work.chat.") {
            perform(&app.app.chat_work, &subject, &payload).await.expect("done");
            // Work may come twice.
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
async fn a_login_brings_a_device_of_its_own_that_ends_with_the_session() {
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

        // Expired sessions take their devices along too.
        app.clock.advance(time::Duration::days(31));
        assert_eq!(app.app.sessions.sweep().await.expect("swept"), 1);
        assert!(work(app).await.is_empty());
        assert_eq!(whoami(app, &two["access_token"]).await.0, 401);
    })
    .await;
}

#[tokio::test]
async fn without_the_homeserver_a_login_succeeds_and_credentials_come_later() {
    let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
    TestApp::run_with_chat(&away, async |app| {
        let (user, login) = app.log_in(&phone(2)).await;
        assert_eq!(login["matrix_credentials"], Value::Null);
        user.get("/api/auth/teams").await.expect(200);
        let refused = user.send(Method::POST, "/api/auth/matrix-credentials", None).await;
        assert_eq!(refused.header("retry-after"), Some("5"));
        assert_eq!(refused.expect(503)["code"], "chat_unavailable");
        let told = app.told().await;
        assert_eq!((told.len(), told[0].0.as_str()), (1, DEVICE_ENDED), "the device that never was is cleaned up too");
        assert!(matches!(perform(&app.app.chat_work, &told[0].0, &told[0].1).await, Err(Failure::Retry { .. })));

        // The same account, once the homeserver is there.
        let config = crate::testing::test_config(&[]);
        let homeserver = super::service::homeserver(&config.matrix, app.web.clone()).expect("a homeserver");
        let (sessions, accounts) = (app.app.sessions.clone(), app.app.accounts.clone());
        let back = Chat::new(&app.app.core, &config.matrix, homeserver, sessions, accounts);
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let session = app.app.sessions.check(&user.token).await.expect("checked").expect("a session").id;
        let credentials = back.renew(&account, session).await.expect("credentials");
        let whoami = app
            .web
            .get(config.matrix.homeserver_url.expect("a URL").join("_matrix/client/v3/account/whoami").expect("a URL"));
        let answer = whoami.bearer_auth(credentials.access_token.expose_secret()).send().await.expect("an answer");
        assert_eq!(answer.status(), 200);
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn new_credentials_end_the_ones_before() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(3)).await;
        let old = login["matrix_credentials"].clone();
        let answer = user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(200);
        let new = &answer["data"]["matrix_credentials"];
        assert_eq!(new["user_id"], old["user_id"]);
        assert_ne!(new["device_id"], old["device_id"]);
        work(app).await;
        assert_eq!(whoami(app, &old["access_token"]).await.0, 401);
        assert_eq!(whoami(app, &new["access_token"]).await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn another_username_is_another_chat_account_and_the_old_one_is_gone() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(4)).await;
        as_if_made_up(app, user.id).await;
        let wanted = unique("ada");
        let body = json!({"username": wanted, "name": "Ada Obi"});
        let saved = user.post("/api/auth/update-user-info", body).await.expect(200);
        let new = &saved["data"]["matrix_credentials"];
        assert!(new["user_id"].as_str().is_some_and(|id| id.starts_with(&format!("@{wanted}:"))), "{new}");
        work(app).await;
        assert_eq!(whoami(app, &new["access_token"]).await.0, 200, "the work that followed did not harm the new one");
        assert_eq!(whoami(app, &login["matrix_credentials"]["access_token"]).await.0, 401);
        let base = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
        let profile = base
            .join(&format!("_matrix/client/v3/profile/{}", new["user_id"].as_str().expect("an id")))
            .expect("a URL");
        let profile: Value = app.web.get(profile).send().await.expect("an answer").json().await.expect("JSON");
        assert_eq!(profile["displayname"], "Ada Obi");
        // A later login is the new account.
        let (_, again) = app.log_in(&phone(4)).await;
        assert_eq!(again["matrix_credentials"]["user_id"], new["user_id"]);
    })
    .await;
}

#[tokio::test]
async fn a_session_that_ends_while_its_device_is_made_leaves_none_behind() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(&phone(5)).await;
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        let session = app.app.sessions.check(&user.token).await.expect("checked").expect("a session").id;
        // As if the answer of the homeserver had taken until after the end: the device is made, the session is not there.
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
    let answer = app.web.get(url).bearer_auth(token.as_str().expect("a token")).send().await.expect("an answer");
    let body: Value = answer.json().await.expect("JSON");
    let list = body["devices"].as_array().expect("a list").iter();
    list.map(|device| device["device_id"].as_str().expect("an id").to_owned()).collect()
}

#[tokio::test]
async fn while_chat_is_away_asking_again_writes_nothing() {
    let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
    TestApp::run_with_chat(&away, async |app| {
        let (user, _) = app.log_in(&phone(7)).await;
        for _ in 0..2 {
            user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(503);
        }
        // By now the homeserver was missed three times and is left alone.
        app.told().await;
        for _ in 0..5 {
            user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(503);
        }
        assert!(app.told().await.is_empty());
        // Nor does asking cost anything, however often.
        for _ in 0..20 {
            user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(503);
        }
    })
    .await;
}

#[tokio::test]
async fn credentials_are_given_ten_times_at_once_and_then_twice_a_minute() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, _) = app.log_in(&phone(9)).await;
        let ask = async || user.send(Method::POST, "/api/auth/matrix-credentials", None).await.status.as_u16();
        for _ in 0..10 {
            assert_eq!(ask().await, 200);
        }
        assert_eq!(ask().await, 429);
        app.clock.advance(time::Duration::seconds(30));
        assert_eq!([ask().await, ask().await], [200, 429]);
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn of_two_who_ask_at_once_nobody_is_logged_out_and_one_device_is_left() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, _) = app.log_in(&phone(8)).await;
        let ask = || user.send(Method::POST, "/api/auth/matrix-credentials", None);
        let (one, two) = tokio::join!(ask(), ask());
        let statuses = [one.status.as_u16(), two.status.as_u16()];
        assert!(statuses.contains(&200) && statuses.iter().all(|status| [200, 503].contains(status)), "{statuses:?}");
        work(app).await;
        user.get("/api/auth/teams").await.expect(200);
        let answer = user.send(Method::POST, "/api/auth/matrix-credentials", None).await.expect(200);
        work(app).await;
        let current = &answer["data"]["matrix_credentials"];
        assert_eq!(devices(app, &current["access_token"]).await, [current["device_id"].as_str().expect("an id")]);
    })
    .await;
}

/// Somebody who was on the homeserver before this service came.
#[tokio::test]
async fn an_account_that_we_did_not_make_is_given_to_nobody() {
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
        // One of this service, whom its database lost.
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
            assert_eq!(taken.invalid_fields(), ["username"], "and it is said at once");
        }
        // One without devices was made by a call whose answer was lost.
        assert!(attempt(11, &lost).await.expect(200)["data"]["matrix_credentials"]["access_token"].is_string());

        let (user, _) = app.log_in(&phone(12)).await;
        as_if_made_up(app, user.id).await;
        let taken = user.post("/api/auth/update-user-info", json!({"username": later})).await;
        assert_eq!(taken.invalid_fields(), ["username"], "nor by taking the name later");

        // As if the homeserver had been unavailable when the name was chosen: it can be replaced.
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
        assert_eq!(homeserver.devices(&later).await.expect("a list"), ["PHONEOFJANE"], "and she is left alone");
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn an_account_that_somebody_else_here_made_meanwhile_is_ours() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, _) = app.log_in(&phone(1)).await;
        // As a worker read it before the login made the chat account and a device.
        let mut account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        account.has_chat_account = false;
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        app.app.chat.make_account(homeserver, &account).await.expect("ours");
    })
    .await;
}

#[tokio::test]
async fn clients_find_the_homeserver() {
    let changes = [
        ("MATCHDAY_MATRIX__PUBLIC_URL", "https://chat.example.org/"),
        ("MATCHDAY_HTTP__CORS_ORIGINS", "https://app.example.org"),
    ];
    TestApp::run_with_chat(&changes, async |app| {
        let request = http::Request::get("/.well-known/matrix/client").header("origin", "https://element.example");
        let answer = app.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        let origins: Vec<_> = answer.headers.get_all("access-control-allow-origin").iter().collect();
        assert_eq!(origins, ["*"], "any web client may ask");
        let request = http::Request::get("/.well-known/matrix/client").header("origin", "https://app.example.org");
        let own = app.send(request.body(axum::body::Body::empty()).expect("a request")).await;
        assert_eq!(own.headers.get_all("access-control-allow-origin").iter().count(), 1, "browsers refuse two");
        assert_eq!(answer.expect(200), json!({"m.homeserver": {"base_url": "https://chat.example.org"}}));
    })
    .await;
    TestApp::run(async |app| {
        app.anonymous(Method::GET, "/.well-known/matrix/client").await.expect(404);
        let (user, _) = app.log_in(&phone(6)).await;
        let answer = user.send(Method::POST, "/api/auth/matrix-credentials", None).await;
        assert_eq!(answer.expect(503)["code"], "chat_unavailable");
    })
    .await;
}

#[tokio::test]
async fn work_that_nobody_understands_is_set_aside_and_work_for_nobody_is_done() {
    TestApp::run(async |app| {
        let nothing = json!({"user_id": 1, "device_id": "MDx"});
        perform(&app.app.chat_work, DEVICE_ENDED, &nothing).await.expect("without chat there is nothing to do");
    })
    .await;
    TestApp::run_with_chat(&[], async |app| {
        let chat = &app.app.chat_work;
        assert!(matches!(perform(chat, "work.chat.unheard_of", &json!({})).await, Err(Failure::GiveUp(_))));
        assert!(matches!(perform(chat, DEVICE_ENDED, &json!({"user_id": "x"})).await, Err(Failure::GiveUp(_))));
        let gone = json!({"user_id": UserId(999_999), "device_id": "MDx"});
        perform(chat, DEVICE_ENDED, &gone).await.expect("there is nothing to do");
    })
    .await;
}
