//! Pushers on the real homeserver, and its reports.

use std::sync::Arc;

use axum::body::Body;
use http::{Method, Request};
use phone_push::stand_in::FcmStandIn;
use platform::{
    clock::Clock as _,
    stream::{Delivery, Failure, Stream},
};
use serde_json::{Value, json};

use super::{NOTIFY, rules::PushKey};
use crate::{
    chat::messages::REACH_CHANGED,
    identity::accounts::service::RENAMED,
    testing::{TestApp, TestUser, unique},
};

const TEXT: &str = "the secret plan";

async fn with_gateway(test: impl AsyncFnOnce(&TestApp, &FcmStandIn)) {
    // Some minutes after the start of the tests' clock, which they move. FCM refuses tokens from the future.
    let now: phone_push::Now = Arc::new(|| time::macros::datetime!(2026-11-20 15:20 UTC));
    let fcm = FcmStandIn::start(now).await.expect("started");
    let account = std::env::temp_dir().join(unique("account"));
    std::fs::write(&account, fcm.account()).expect("written");
    let url = fcm.url();
    let changes = [
        ("MATCHDAY_MATRIX__GATEWAY_URL", "http://127.0.0.1:9"),
        ("MATCHDAY_FCM__URL", &*url),
        ("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", account.to_str().expect("a path")),
    ];
    TestApp::run_with_chat(&changes, async |app| {
        app.app.streams.ensure().await.expect("streams");
        test(app, &fcm).await;
        app.app.streams.remove().await;
    })
    .await;
    std::fs::remove_file(account).expect("removed");
}

fn phone(number: u32) -> String {
    format!("+1415555{number:04}")
}

/// A user with a chat account, and the token of its chat client.
async fn log_in(app: &TestApp, number: u32) -> (TestUser<'_>, String) {
    let (user, login) = app.log_in(&phone(number)).await;
    let token = login["matrix_credentials"]["access_token"].as_str().expect("a token").to_owned();
    (user, token)
}

async fn register(app: &TestApp, user: &TestUser<'_>) {
    let body = json!({"platform": "fcm", "token": format!("phone-of-{}", user.id)});
    user.send(Method::PUT, "/api/auth/devices/device-1", Some(body.to_string())).await.expect(200);
    assert_eq!(adjust(app).await, 1);
}

async fn set_mention(user: &TestUser<'_>, is_on: bool) {
    let body = json!({"kinds": {"mention": is_on}}).to_string();
    user.send(Method::PUT, "/api/auth/me/notifications", Some(body)).await.expect(200);
}

/// Performs the messages about changed reach. Returns their number.
async fn adjust(app: &TestApp) -> usize {
    let changes = published(app, REACH_CHANGED).await;
    for change in &changes {
        // A repeated message changes nothing.
        for attempt in 1..=2 {
            app.app.mentions.perform(Delivery { attempt, ..change.clone() }).await.expect("performed");
        }
    }
    changes.len()
}

/// Takes all messages from the outbox, and returns those with this subject.
async fn published(app: &TestApp, wanted: &str) -> Vec<Delivery> {
    let delivery = |(subject, payload): (String, Value)| {
        let payload = serde_json::to_vec(&payload).expect("JSON").into();
        Delivery { subject, id: None, payload, attempt: 1 }
    };
    app.published().await.into_iter().filter(|(subject, _)| subject == wanted).map(delivery).collect()
}

/// Keys of the pushers that the homeserver has for a user.
async fn pushers(app: &TestApp, token: &str) -> Vec<String> {
    let homeserver = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
    let url = homeserver.join("/_matrix/client/v3/pushers").expect("a URL");
    let body: Value = app.web.get(url).bearer_auth(token).send().await.expect("a response").json().await.expect("JSON");
    let pushers = body["pushers"].as_array().expect("a list");
    for pusher in pushers {
        let gateway = app.app.config.matrix.gateway_url.as_ref().expect("a gateway").join(NOTIFY).expect("a URL");
        assert_eq!(pusher["data"], json!({"url": gateway}));
        assert_eq!((&pusher["kind"], &pusher["app_id"]), (&json!("http"), &json!("matchday")));
    }
    pushers.iter().map(|pusher| pusher["pushkey"].as_str().expect("a key").to_owned()).collect()
}

/// Deletes a pusher with a chat client.
async fn delete_pusher(app: &TestApp, token: &str, key: &str) {
    let homeserver = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
    let url = homeserver.join("/_matrix/client/v3/pushers/set").expect("a URL");
    let body = json!({"kind": null, "app_id": "matchday", "pushkey": key});
    let response = app.web.post(url).bearer_auth(token).json(&body).send().await.expect("a response");
    assert_eq!(response.status().as_u16(), 200);
}

async fn matrix_id(app: &TestApp, user: &TestUser<'_>) -> String {
    let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
    format!("@{}:{}", account.username.as_str(), app.app.config.matrix.server_name.as_deref().expect("a name"))
}

/// Reports an event of the room `!room:example.org` as Synapse does.
async fn report(app: &TestApp, event: &str, sender: &str, devices: &[(&str, Value)]) -> Value {
    report_of("!room:example.org", json!({"msgtype": "m.text", "body": TEXT}), app, event, sender, devices).await
}

async fn report_of(
    room: &str,
    content: Value,
    app: &TestApp,
    event: &str,
    sender: &str,
    devices: &[(&str, Value)],
) -> Value {
    let devices: Vec<Value> = devices
        .iter()
        .map(|(key, tweaks)| json!({"app_id": "matchday", "pushkey": key, "pushkey_ts": 1, "data": {}, "tweaks": tweaks}))
        .collect();
    let body = json!({"notification": {
        "id": event, "event_id": event, "room_id": room, "type": "m.room.message", "prio": "high",
        "sender": sender, "sender_display_name": "Grace", "room_name": "North stand", "user_is_target": false,
        "content": content, "counts": {"unread": 1}, "devices": devices,
    }});
    send(app, body.to_string()).await.1
}

async fn send(app: &TestApp, body: String) -> (u16, Value) {
    let request = Request::post(NOTIFY).body(Body::from(body)).expect("a request");
    let answer = app.send_privately(request).await;
    (answer.status.as_u16(), serde_json::from_slice(&answer.bytes).expect("JSON"))
}

/// Performs queued notifications, without removing them.
async fn work_off(app: &TestApp) {
    for (subject, payload) in app.app.streams.replay(Stream::Work).await.expect("read") {
        if subject.starts_with("work.notify.") {
            app.app.alerts.perform(Delivery { subject, id: None, payload, attempt: 1 }).await.expect("performed");
        }
    }
}

#[tokio::test]
async fn pusher_follows_devices_and_preference() {
    with_gateway(async |app, _| {
        let (user, token) = log_in(app, 1).await;
        assert!(pushers(app, &token).await.is_empty());
        register(app, &user).await;
        let keys = pushers(app, &token).await;
        assert_eq!(keys.len(), 1);
        assert_eq!(PushKey::parse(&keys[0]).map(|key| key.user), Some(user.id));

        set_mention(&user, false).await;
        assert_eq!(adjust(app).await, 1);
        assert!(pushers(app, &token).await.is_empty());
        user.send(Method::PUT, "/api/auth/me/notifications", Some(json!({"kinds": {"moved": false}}).to_string()))
            .await
            .expect(200);
        assert_eq!(adjust(app).await, 0, "other kinds change nothing");
        set_mention(&user, true).await;
        assert_eq!(adjust(app).await, 1);
        let again = pushers(app, &token).await;
        assert!(again.len() == 1 && again != keys, "a new pusher has a new key");

        user.delete("/api/auth/devices/device-1").await.expect(200);
        assert_eq!(adjust(app).await, 1);
        assert!(pushers(app, &token).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn repeated_registration_sets_the_pusher_once_a_day() {
    with_gateway(async |app, _| {
        let (user, token) = log_in(app, 1).await;
        register(app, &user).await;
        let keys = pushers(app, &token).await;
        delete_pusher(app, &token, &keys[0]).await;
        register(app, &user).await;
        assert!(pushers(app, &token).await.is_empty(), "the homeserver was not called");
        app.clock.advance(time::Duration::days(1));
        register(app, &user).await;
        assert_eq!(pushers(app, &token).await, keys, "a lost pusher returns");
    })
    .await;
}

#[tokio::test]
async fn renamed_user_gets_a_pusher_at_once() {
    with_gateway(async |app, _| {
        let (user, token) = log_in(app, 1).await;
        register(app, &user).await;
        let keys = pushers(app, &token).await;
        let generated = "update users set username_is_generated = true where user_id = $1";
        sqlx::query(generated).bind(user.id).execute(&app.app.core.db).await.expect("written");
        let name = json!({"username": unique("ada")});
        let saved = user.post("/api/auth/update-user-info", name).await.expect(200);
        let token = saved["data"]["matrix_credentials"]["access_token"].as_str().expect("a token");
        for renamed in published(app, RENAMED).await {
            app.app.chat_work.perform(renamed).await.expect("performed");
        }
        assert!(pushers(app, token).await.is_empty(), "the pusher ended with the old account");
        assert_eq!(adjust(app).await, 1);
        assert_eq!(pushers(app, token).await, keys);
    })
    .await;
}

#[tokio::test]
async fn changed_gateway_is_set_with_the_next_registration() {
    with_gateway(async |app, _| {
        let (user, token) = log_in(app, 1).await;
        register(app, &user).await;
        let keys = pushers(app, &token).await;
        let mut config = app.app.config.clone();
        config.matrix.gateway_url = Some("http://127.0.0.1:10".parse().expect("a URL"));
        register(&app.second(config.clone()).await, &user).await;
        assert_eq!(pushers(&app.second(config).await, &token).await, keys);
    })
    .await;
}

#[tokio::test]
async fn pusher_returns_after_its_removal_was_interrupted() {
    with_gateway(async |app, _| {
        let (user, token) = log_in(app, 1).await;
        register(app, &user).await;
        let keys = pushers(app, &token).await;
        set_mention(&user, false).await;
        // The homeserver removes the pusher, but its response does not arrive.
        let mut config = app.app.config.clone();
        config.matrix.homeserver_url = Some("http://127.0.0.1:9".parse().expect("a URL"));
        let without_response = app.second(config).await;
        for change in published(app, REACH_CHANGED).await {
            let performed = without_response.app.mentions.perform(change).await;
            assert!(matches!(performed, Err(Failure::Retry { .. })), "{performed:?}");
        }
        delete_pusher(app, &token, &keys[0]).await;
        set_mention(&user, true).await;
        assert_eq!(adjust(app).await, 1);
        assert_eq!(pushers(app, &token).await, keys);
    })
    .await;
}

#[tokio::test]
async fn highlight_notifies_device_once_without_text() {
    with_gateway(async |app, fcm| {
        let ((ada, token), (grace, _)) = (log_in(app, 1).await, log_in(app, 2).await);
        register(app, &ada).await;
        let (sender, key) = (matrix_id(app, &grace).await, pushers(app, &token).await.remove(0));
        let highlight = json!({"highlight": true, "sound": "default"});

        let unknown = PushKey { user: ada.id, secret: [7; 16] }.to_text();
        let rejected =
            report(app, "$1", &sender, &[(&unknown, highlight.clone()), ("nonsense", highlight.clone())]).await;
        assert_eq!(rejected, json!({"rejected": [unknown, "nonsense"]}));
        let none = json!({"rejected": []});
        for tweaks in [json!({}), json!({"sound": "default"}), json!({"highlight": false})] {
            assert_eq!(report(app, "$2", &sender, &[(&key, tweaks)]).await, none);
        }
        let counts =
            json!({"notification": {"counts": {"unread": 2}, "devices": [{"app_id": "matchday", "pushkey": key}]}});
        assert_eq!(send(app, counts.to_string()).await, (200, none.clone()));
        work_off(app).await;
        assert_eq!(fcm.record().total().attempts, 0);

        for _ in 0..2 {
            assert_eq!(report(app, "$4", &sender, &[(&key, highlight.clone())]).await, none);
            work_off(app).await;
        }
        let received = fcm.record().received();
        assert_eq!(received.len(), 1, "{received:?}");
        let message = &received[0].body["message"];
        assert_eq!(message["token"], format!("phone-of-{}", ada.id));
        assert_eq!(message["notification"]["title"], "North stand");
        assert_eq!(
            message["data"],
            json!({"kind": "mention", "room_id": "!room:example.org", "link": "/rooms/!room:example.org"})
        );
        assert_eq!(message["android"]["priority"], "HIGH");
        assert!(!message.to_string().contains(TEXT), "{message}");
    })
    .await;
}

#[tokio::test]
async fn mention_names_sender_as_others_see_them() {
    with_gateway(async |app, fcm| {
        let ((ada, token), (grace, _)) = (log_in(app, 1).await, log_in(app, 2).await);
        register(app, &ada).await;
        let (sender, key) = (matrix_id(app, &grace).await, pushers(app, &token).await.remove(0));
        grace.post("/api/auth/update-user-info", json!({"name": "Grace Hopper"})).await.expect(200);
        let mention = async |event: &str, sender: &str| {
            app.clock.advance(time::Duration::minutes(5));
            report(app, event, sender, &[(&key, json!({"highlight": true}))]).await;
            work_off(app).await;
            let received = fcm.record().received();
            received.last().expect("a notification").body["message"]["notification"]["body"].clone()
        };
        assert_eq!(mention("$1", &sender).await, "Grace Hopper mentioned you.");
        let hidden = json!({"name": "nobody"}).to_string();
        grace.send(Method::PUT, "/api/auth/me/privacy", Some(hidden)).await.expect(200);
        let username = sender.trim_start_matches('@').split(':').next().expect("a name");
        assert_eq!(mention("$2", &sender).await, format!("{username} mentioned you."));
        assert_eq!(mention("$3", "@someone:elsewhere.example").await, "someone mentioned you.", "no account here");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn block_after_the_report_prevents_the_notification() {
    with_gateway(async |app, fcm| {
        let ((ada, token), (grace, _)) = (log_in(app, 1).await, log_in(app, 2).await);
        register(app, &ada).await;
        let (sender, key) = (matrix_id(app, &grace).await, pushers(app, &token).await.remove(0));
        report(app, "$1", &sender, &[(&key, json!({"highlight": true}))]).await;
        ada.send(Method::POST, &format!("/api/auth/blocks/{}", grace.id), None).await.expect(200);
        app.published().await;
        work_off(app).await;
        assert_eq!(fcm.record().total().attempts, 0);
    })
    .await;
}

#[tokio::test]
async fn blocked_sender_notifies_nobody() {
    with_gateway(async |app, fcm| {
        let ((ada, token), (grace, _)) = (log_in(app, 1).await, log_in(app, 2).await);
        register(app, &ada).await;
        let (sender, key) = (matrix_id(app, &grace).await, pushers(app, &token).await.remove(0));
        ada.send(Method::POST, &format!("/api/auth/blocks/{}", grace.id), None).await.expect(200);
        app.published().await;
        assert_eq!(report(app, "$1", &sender, &[(&key, json!({"highlight": true}))]).await, json!({"rejected": []}));
        work_off(app).await;
        assert_eq!(fcm.record().total().attempts, 0);
    })
    .await;
}

#[tokio::test]
async fn mentions_are_limited_per_message_user_and_sender() {
    with_gateway(async |app, fcm| {
        let ((ada, token), (grace, _)) = (log_in(app, 1).await, log_in(app, 2).await);
        register(app, &ada).await;
        let (sender, key) = (matrix_id(app, &grace).await, pushers(app, &token).await.remove(0));
        let say = async |room: &str, event: &str, mentioned: usize| {
            let users: Vec<String> = (0..mentioned).map(|user| format!("@fan{user}:example.org")).collect();
            let content = json!({"msgtype": "m.text", "body": TEXT, "m.mentions": {"user_ids": users}});
            report_of(room, content, app, event, &sender, &[(&key, json!({"highlight": true}))]).await;
        };
        let mention = async |room: &str, event: &str, mentioned: usize| {
            say(room, event, mentioned).await;
            work_off(app).await;
            fcm.record().received().len()
        };
        assert_eq!(mention("!a:s", "$1", 11).await, 0, "more than ten users");
        assert_eq!(mention("!a:s", "$2", 10).await, 1);
        assert_eq!(mention("!a:s", "$3", 1).await, 1, "the same user in the same room");
        assert_eq!(mention("!b:s", "$4", 1).await, 2, "another room");
        app.clock.advance(time::Duration::minutes(5));
        assert_eq!(mention("!a:s", "$5", 1).await, 3, "five minutes later");
        for room in 0..60 {
            say(&format!("!{room}:s"), &format!("$room{room}"), 1).await;
        }
        // Two were available again after five minutes.
        assert_eq!(mention("!c:s", "$6", 1).await, 32);
    })
    .await;
}

#[tokio::test]
async fn removed_message_and_muted_sender_notify_nobody() {
    with_gateway(async |app, fcm| {
        let ((ada, token), (grace, _)) = (log_in(app, 1).await, log_in(app, 2).await);
        register(app, &ada).await;
        let (sender, key) = (matrix_id(app, &grace).await, pushers(app, &token).await.remove(0));
        let (db, now) = (&app.app.core.db, app.clock.now());
        let room: i64 = sqlx::query_scalar(
            "insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at, is_private)
             values ('!room:example.org', $1, 'North stand', $2, $3, $3, $3, false) returning id",
        )
        .bind(unique("room"))
        .bind(grace.id)
        .bind(now)
        .fetch_one(db)
        .await
        .expect("a room");
        let highlight = || [(key.as_str(), json!({"highlight": true}))];
        // A filter matches the message after it was reported, and before the notification is sent.
        report(app, "$1", &sender, &highlight()).await;
        sqlx::query(
            "insert into removals (room_id, event_id, sender, source, removed_by, reason, planned_at)
             values ($1, '$1', $2, 'filter', 'matchday', 'words', $3)",
        )
        .bind(room)
        .bind(&sender)
        .bind(now)
        .execute(db)
        .await
        .expect("planned");
        work_off(app).await;
        assert_eq!(fcm.record().total().attempts, 0, "a removed message");
        app.clock.advance(time::Duration::minutes(5));
        sqlx::query("update users set muted_at = $2 where user_id = $1")
            .bind(grace.id)
            .bind(now)
            .execute(db)
            .await
            .expect("muted");
        report(app, "$2", &sender, &highlight()).await;
        work_off(app).await;
        assert_eq!(fcm.record().total().attempts, 0, "a muted sender");
        sqlx::query("update users set muted_at = null where user_id = $1")
            .bind(grace.id)
            .execute(db)
            .await
            .expect("lifted");
        report(app, "$3", &sender, &highlight()).await;
        work_off(app).await;
        assert_eq!(fcm.record().total().attempts, 1);
    })
    .await;
}

#[tokio::test]
async fn deleted_sender_notifies_nobody() {
    with_gateway(async |app, fcm| {
        let ((ada, token), (grace, _)) = (log_in(app, 1).await, log_in(app, 2).await);
        register(app, &ada).await;
        let (sender, key) = (matrix_id(app, &grace).await, pushers(app, &token).await.remove(0));
        let report = async |event: &str| report(app, event, &sender, &[(&key, json!({"highlight": true}))]).await;
        // The homeserver reports one message before the deletion, and one after it.
        report("$1").await;
        let db = &app.app.core.db;
        let query = "update users set deleted_at = $2 where user_id = $1";
        sqlx::query(query).bind(grace.id).bind(app.clock.now()).execute(db).await.expect("deleted");
        report("$2").await;
        work_off(app).await;
        assert_eq!(fcm.record().total().attempts, 0);
    })
    .await;
}

#[tokio::test]
async fn deeply_nested_content_is_accepted() {
    TestApp::run(async |app| {
        for depth in [125, 10_000] {
            let content = format!("{}1{}", r#"{"a":"#.repeat(depth), "}".repeat(depth));
            let body = format!(
                r#"{{"notification": {{"event_id": "$1", "room_id": "!r:s", "sender": "@a:s", "content": {content},
                    "devices": [{{"app_id": "matchday", "pushkey": "AAAA", "tweaks": {{"highlight": true}}}}]}}}}"#
            );
            assert_eq!(send(app, body).await, (200, json!({"rejected": ["AAAA"]})), "{depth}");
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_report_is_refused() {
    TestApp::run(async |app| {
        for body in ["", "{}", r#"{"notification": {}}"#, r#"{"notification": {"devices": [{"pushkey": 1}]}}"#] {
            let (status, answer) = send(app, body.to_owned()).await;
            assert_eq!((status, &answer["errcode"]), (400, &json!("M_BAD_JSON")), "{body}");
        }
        let known = json!({"notification": {"devices": [{"app_id": "matchday", "pushkey": "AAAA"}]}});
        assert_eq!(send(app, known.to_string()).await, (200, json!({"rejected": ["AAAA"]})));
    })
    .await;
}
