use http::Method;
use platform::clock::Clock as _;
use serde_json::{Value, json};
use time::Duration;

use super::rules::hashes_of_hour;
use crate::{
    identity::{accounts::restrictions::Restriction, operators::Operator},
    testing::{TestApp, TestUser},
};

const DEVICES: &str = "/api/auth/devices";
const PUSH: &str = "/api/auth/me/notifications/push";
const VAPID: [(&str, &str); 2] = [
    ("MATCHDAY_NOTIFICATIONS__VAPID_PRIVATE_KEY", "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"),
    ("MATCHDAY_NOTIFICATIONS__VAPID_SUBJECT", "mailto:ops@example.org"),
];

fn browser(endpoint: &str) -> Value {
    json!({"endpoint": endpoint, "keys": {
        "p256dh": "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4",
        "auth": "BTBZMqHH6r4Tts7J_aSIgg"}})
}

async fn put(user: &TestUser<'_>, id: &str, body: Value) -> crate::testing::Answer {
    user.send(Method::PUT, &format!("{DEVICES}/{id}"), Some(body.to_string())).await
}

async fn fcm(user: &TestUser<'_>, id: &str, token: &str) -> Value {
    put(user, id, json!({"platform": "fcm", "token": token})).await.expect(200)["data"].clone()
}

async fn ids(user: &TestUser<'_>) -> Vec<String> {
    let list = user.get(DEVICES).await.expect(200)["data"].clone();
    list.as_array().expect("a list").iter().map(|one| one["id"].as_str().expect("an id").to_owned()).collect()
}

async fn count(app: &TestApp, table: &str) -> i64 {
    let query = match table {
        "devices" => "select count(*) from devices",
        _ => "select count(*) from device_tokens",
    };
    sqlx::query_scalar(query).fetch_one(&app.app.core.db).await.expect("read")
}

/// Sweeps in each hour of the day. Claims are too recent in the first one.
async fn sweep_for_a_day(app: &TestApp) {
    for _ in 0..=24 {
        app.clock.advance(Duration::hours(1));
        app.app.notifications.sweep().await.expect("swept");
    }
}

#[tokio::test]
async fn device_is_registered_replaced_and_removed() {
    TestApp::run(async |app| {
        let (user, other) = (app.user().await, app.user().await);
        let body =
            json!({"platform": "fcm", "token": "fcm:secret", "locale": "pt-BR", "time_zone": "america/sao_paulo"});
        let made = put(&user, "Phone-1.a_b", body).await.expect(200);
        assert_eq!(
            made,
            json!({"message": "Device registered.", "data": {
                "id": "Phone-1.a_b", "platform": "fcm", "locale": "pt-BR", "time_zone": "America/Sao_Paulo",
                "deliverable": false, "created_at": "2026-11-20T15:00:00.000Z", "updated_at": "2026-11-20T15:00:00.000Z"}})
        );
        let path = format!("{DEVICES}/Phone-1.a_b");
        assert_eq!(user.get(&path).await.expect(200)["data"], made["data"]);
        other.get(&path).await.expect(404);
        other.delete(&path).await.expect(404);
        app.clock.advance(Duration::minutes(1));
        let token = "AB".repeat(32);
        let changed = put(&user, "Phone-1.a_b", json!({"platform": "apns", "token": token})).await.expect(200);
        assert_eq!(
            changed["data"],
            json!({"id": "Phone-1.a_b", "platform": "apns", "locale": "en", "time_zone": null, "deliverable": false,
                   "created_at": "2026-11-20T15:00:00.000Z", "updated_at": "2026-11-20T15:01:00.000Z"}),
            "the whole registration is replaced"
        );
        let stored: Vec<u8> =
            sqlx::query_scalar("select ciphertext from devices").fetch_one(&app.app.core.db).await.expect("one");
        assert!(!stored.windows(8).any(|part| part.eq_ignore_ascii_case(b"ABABABAB")), "the token is encrypted");
        user.delete(&path).await.expect(200);
        user.delete(&path).await.expect(404);
        user.get(&path).await.expect(404);
        for bad in ["short", &"x".repeat(65), "with%20space"] {
            put(&user, bad, json!({"platform": "fcm", "token": "t"})).await.expect(404);
        }
    })
    .await;
}

#[tokio::test]
async fn faulty_registrations_are_refused() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let good = json!({"platform": "fcm", "token": "t"});
        for (field, value) in [
            ("platform", json!("gcm")),
            ("platform", Value::Null),
            ("token", json!("a b")),
            ("token", json!("")),
            ("token", json!({})),
            ("token", Value::Null),
            ("locale", json!("en_US")),
            ("locale", json!(5)),
            ("time_zone", json!("Mars/Base")),
            ("time_zone", json!("")),
        ] {
            let mut body = good.clone();
            body[field] = value.clone();
            assert_eq!(put(&user, "device-1", body).await.invalid_fields(), [field], "{value}");
        }
        let both = put(&user, "device-1", json!({"locale": "x", "time_zone": 1})).await;
        assert_eq!(both.invalid_fields(), ["locale", "platform", "time_zone", "token"]);
        assert_eq!(ids(&user).await, Vec::<String>::new());
    })
    .await;
}

#[tokio::test]
async fn token_belongs_to_one_device() {
    TestApp::run(async |app| {
        let (one, other) = (app.user().await, app.user().await);
        fcm(&one, "old-device", "moving").await;
        fcm(&one, "new-device", "moving").await;
        assert_eq!(ids(&one).await, ["new-device"]);
        fcm(&other, "new-device", "moving").await;
        assert_eq!((ids(&one).await.len(), ids(&other).await), (0, vec!["new-device".to_owned()]));
        // A device that has changed its token does not lose its registration when the old token moves on.
        fcm(&other, "new-device", "renewed").await;
        fcm(&one, "old-device", "moving").await;
        assert_eq!(
            (ids(&one).await, ids(&other).await),
            (vec!["old-device".to_owned()], vec!["new-device".to_owned()])
        );
        // The same text is another token on another platform.
        let apns = "ab".repeat(32);
        fcm(&one, "device-fcm", &apns).await;
        put(&other, "device-apns", json!({"platform": "apns", "token": apns})).await.expect(200);
        assert_eq!((ids(&one).await.len(), ids(&other).await.len()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn racing_registrations_leave_one_device() {
    TestApp::run(async |app| {
        let mut users = Vec::new();
        for _ in 0..8 {
            users.push(app.user().await);
        }
        for round in 0..5 {
            let token = format!("raced-{round}");
            futures_util::future::join_all(users.iter().map(|user| fcm(user, "device-1", &token))).await;
            assert_eq!(count(app, "devices").await, 1, "round {round}");
        }
    })
    .await;
}

#[tokio::test]
async fn eleventh_device_replaces_oldest_registration() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for number in 0..10 {
            app.clock.advance(Duration::seconds(1));
            fcm(&user, &format!("device-{number:02}"), &format!("token-{number}")).await;
        }
        app.clock.advance(Duration::seconds(1));
        fcm(&user, "device-00", "token-0").await;
        app.clock.advance(Duration::seconds(1));
        fcm(&user, "device-10", "token-10").await;
        let expected: Vec<String> = (0..11).filter(|n| *n != 1).map(|n| format!("device-{n:02}")).collect();
        assert_eq!(ids(&user).await, expected);
    })
    .await;
}

#[tokio::test]
async fn device_ends_with_its_session() {
    TestApp::run(async |app| {
        let first = app.user().await;
        let second = app.login(first.id).await;
        fcm(&first, "of-first", "a").await;
        fcm(&second, "of-second", "b").await;
        fcm(&first, "taken-over", "c").await;
        fcm(&second, "taken-over", "c").await;
        first.post("/api/auth/logout", json!({})).await.expect(200);
        assert_eq!(ids(&second).await, ["of-second", "taken-over"]);
        // An expired session that is not swept yet.
        let third = app.login(second.id).await;
        sqlx::query("update sessions set expires_at = $1 where user_id = $2 and id <> (select max(id) from sessions)")
            .bind(app.clock.now())
            .bind(second.id.0)
            .execute(&app.app.core.db)
            .await
            .expect("expired");
        assert_eq!(ids(&third).await, Vec::<String>::new());
        fcm(&third, "of-third", "d").await;
        app.app.moderation.restrict(third.id, Restriction::Ban, &Operator::new("ola", "spam")).await.expect("banned");
        assert_eq!(count(app, "devices").await, 0, "a suspension removes all devices");
        app.published().await;
        assert_eq!(count(app, "device_tokens").await, 4);
        sweep_for_a_day(app).await;
        assert_eq!(count(app, "device_tokens").await, 0, "claims without a device are swept");
    })
    .await;
}

#[tokio::test]
async fn sweep_keeps_claims_of_devices() {
    TestApp::run(async |app| {
        let user = app.user().await;
        fcm(&user, "device-1", "kept").await;
        fcm(&user, "device-2", "old").await;
        fcm(&user, "device-2", "new").await;
        sweep_for_a_day(app).await;
        assert_eq!((count(app, "device_tokens").await, ids(&user).await.len()), (2, 2));
    })
    .await;
}

#[tokio::test]
async fn recent_claim_is_not_swept() {
    TestApp::run(async |app| {
        let user = app.user().await;
        fcm(&user, "device-1", "a").await;
        let hash: Vec<u8> =
            sqlx::query_scalar("select token_hash from device_tokens").fetch_one(&app.app.core.db).await.expect("read");
        let is_due = || {
            let (after, until) = hashes_of_hour(app.clock.now().hour());
            after < hash && hash < until
        };
        while !is_due() {
            app.clock.advance(Duration::hours(1));
        }
        fcm(&user, "device-1", "a").await;
        user.delete("/api/auth/devices/device-1").await.expect(200);
        app.app.notifications.sweep().await.expect("swept");
        assert_eq!(count(app, "device_tokens").await, 1);
        app.clock.advance(Duration::days(1));
        app.app.notifications.sweep().await.expect("swept");
        assert_eq!(count(app, "device_tokens").await, 0);
    })
    .await;
}

#[tokio::test]
async fn browser_is_device_or_subscription() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let refused =
            put(&user, "browser-1", json!({"platform": "web", "token": browser("https://push.example.org/x")}));
        assert_eq!(refused.await.expect(409)["code"], "push_unavailable");
    })
    .await;
    TestApp::run_with(&VAPID, async |app| {
        let (user, other) = (app.user().await, app.user().await);
        let endpoint = "https://push.example.org/send/1";
        let subscriptions = async |user: &TestUser<'_>| {
            let found = user.get("/api/auth/me/notifications").await.expect(200);
            found["data"]["push"].as_array().expect("a list").len()
        };
        let web = json!({"platform": "web", "token": browser(endpoint)});
        user.post(PUSH, browser(endpoint)).await.expect(200);
        assert_eq!(put(&user, "browser-1", web.clone()).await.expect(200)["data"]["deliverable"], true);
        assert_eq!(
            (subscriptions(&user).await, ids(&user).await.len()),
            (0, 1),
            "the device replaces the subscription"
        );
        user.post(PUSH, browser(endpoint)).await.expect(200);
        assert_eq!((subscriptions(&user).await, ids(&user).await.len()), (1, 0), "and the other way round");
        put(&other, "browser-1", web).await.expect(200);
        assert_eq!((subscriptions(&user).await, ids(&other).await.len()), (0, 1), "of any user");
        user.post(PUSH, browser(endpoint)).await.expect(200);
        assert_eq!((subscriptions(&user).await, ids(&other).await.len()), (1, 0));
        for bad in ["mailto:ada@example.org", "ftp://push.example.org/"] {
            let refused = put(&user, "browser-2", json!({"platform": "web", "token": browser(bad)})).await;
            assert_eq!(refused.invalid_fields(), ["token"], "{bad}");
        }
    })
    .await;
    let staging = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "DE")];
    TestApp::run_with(&[VAPID.as_slice(), &staging].concat(), async |app| {
        let user = app.user().await;
        for bad in ["http://push.example.org/", "https://127.0.0.1/", "https://push.example.org/"] {
            let refused = put(&user, "browser-2", json!({"platform": "web", "token": browser(bad)})).await;
            assert_eq!(refused.invalid_fields(), ["token"], "{bad}");
        }
        let good = browser("https://fcm.googleapis.com/fcm/send/abc");
        put(&user, "browser-2", json!({"platform": "web", "token": good})).await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn export_has_devices_without_tokens() {
    TestApp::run(async |app| {
        let user = app.user().await;
        fcm(&user, "device-1", "fcm-secret-token").await;
        let export = user.get("/api/auth/me/export").await.expect(200);
        let text = export.to_string();
        assert!(text.contains("device-1") && !text.contains("fcm-secret-token"), "{text}");
        assert!(!text.contains("token_hash") && !text.contains("ciphertext"), "{text}");
    })
    .await;
}
