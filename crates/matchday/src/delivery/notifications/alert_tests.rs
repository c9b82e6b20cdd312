//! Notifications to devices, with local servers that behave like FCM and APNs.

use std::sync::{Arc, Mutex};

use http::Method;
use phone_push::stand_in::{ApnsStandIn, Counts, FcmStandIn, Reaction, Received};
use platform::{
    clock::Clock as _,
    stream::{Delivery, Stream},
};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339, macros::datetime};
use tokio_util::sync::CancellationToken;
use web::ids::UserId;

use super::{
    alerts::{BATCH, Mention},
    kinds::{About, Alert, Kind},
    work,
};
use crate::{
    catalogue::matches::service::CHANGED,
    chat::messages::{INVITED, Invited},
    game::scores::service::UPDATED,
    testing::{Receiver, Reply, TestApp, TestFixtures, TestUser, unique},
};

const SETTINGS: &str = "/api/auth/me/notifications";
/// The database clock decides whether a match is open, and these tests do not move it.
const FAR: Duration = Duration::days(365 * 75);
const START: OffsetDateTime = datetime!(2026-11-20 15:00 UTC);

/// Stand-ins of both providers, with their clock.
struct Providers {
    fcm: FcmStandIn,
    apns: ApnsStandIn,
    now: Arc<Mutex<OffsetDateTime>>,
}

impl Providers {
    fn advance(&self, app: &TestApp, time: Duration) {
        app.clock.advance(time);
        *self.now.lock().expect("not poisoned") = app.clock.now();
    }

    fn fcm(&self, token: &str) -> Counts {
        self.fcm.record().counts(token)
    }

    fn accepted(&self, token: &str) -> u32 {
        self.fcm(token).accepted
    }

    /// Bodies that FCM accepted for a token.
    fn bodies(&self, token: &str) -> Vec<Value> {
        let received = self.fcm.record().received();
        received.into_iter().filter(|one| one.token == token).map(|one| one.body["message"].clone()).collect()
    }

    fn apns_received(&self, token: &str) -> Vec<Received> {
        self.apns.record().received().into_iter().filter(|one| one.token == token).collect()
    }
}

async fn with_providers(changes: &[(&str, &str)], test: impl AsyncFnOnce(&TestApp, &Providers)) {
    let now = Arc::new(Mutex::new(START));
    let clock: phone_push::Now = {
        let now = Arc::clone(&now);
        Arc::new(move || *now.lock().expect("not poisoned"))
    };
    let fcm = FcmStandIn::start(clock.clone()).await.expect("started");
    let apns = ApnsStandIn::start(clock).await.expect("started");
    let folder = std::env::temp_dir().join(unique("providers"));
    std::fs::create_dir_all(&folder).expect("created");
    let (account, key) = (folder.join("account.json"), folder.join("key.p8"));
    std::fs::write(&account, fcm.account()).expect("written");
    std::fs::write(&key, apns.key()).expect("written");
    let (fcm_url, apns_url) = (fcm.url(), apns.url());
    let own = [
        ("MATCHDAY_FCM__URL", fcm_url.as_str()),
        ("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", account.to_str().expect("a path")),
        ("MATCHDAY_APNS__URL", apns_url.as_str()),
        ("MATCHDAY_APNS__KEY_FILE", key.to_str().expect("a path")),
        ("MATCHDAY_APNS__KEY_ID", apns.key_id()),
        ("MATCHDAY_APNS__TEAM_ID", apns.team_id()),
        ("MATCHDAY_APNS__TOPIC", apns.topic()),
        ("MATCHDAY_NOTIFICATIONS__TIMEOUT", "2s"),
    ];
    let providers = Providers { fcm, apns, now };
    TestApp::run_with(&[&own[..], changes].concat(), async |app| {
        app.app.streams.ensure().await.expect("streams");
        test(app, &providers).await;
        app.app.streams.remove().await;
    })
    .await;
    std::fs::remove_dir_all(folder).expect("removed");
}

async fn register(user: &TestUser<'_>, device: &str, body: Value) {
    let path = format!("/api/auth/devices/{device}");
    let saved = user.send(Method::PUT, &path, Some(body.to_string())).await.expect(200);
    assert_eq!(saved["data"]["deliverable"], true);
}

/// A user with an FCM device.
async fn phone<'a>(app: &'a TestApp, token: &str) -> TestUser<'a> {
    let user = app.user().await;
    register(&user, "device-1", json!({"platform": "fcm", "token": token})).await;
    user
}

async fn set(user: &TestUser<'_>, body: Value) {
    user.send(Method::PUT, SETTINGS, Some(body.to_string())).await.expect(200);
}

async fn predict(user: &TestUser<'_>, event: i64, pick: &str) {
    user.post("/api/auth/predictions", json!({"event_id": event, "prediction": pick})).await.expect(201);
}

/// Plans the notifications of a fact, and performs all jobs.
async fn fact(app: &TestApp, subject: &str, id: &str, payload: &Value) {
    let payload = serde_json::to_vec(payload).expect("JSON").into();
    let delivery = Delivery { subject: subject.to_owned(), id: Some(id.to_owned()), payload, attempt: 1 };
    app.app.alerts.plan(delivery).await.expect("planned");
    work_off(app).await;
}

/// Performs all jobs without removing them, as if each was delivered again.
async fn work_off(app: &TestApp) {
    for (subject, payload) in app.app.streams.replay(Stream::Work).await.expect("read") {
        let delivery = Delivery { subject, id: None, payload, attempt: 1 };
        if delivery.subject == work::BATCH {
            let _ = app.app.notifications.perform(delivery).await;
        } else if delivery.subject.starts_with("work.notify.") {
            app.app.alerts.perform(delivery).await.expect("performed");
        }
    }
}

async fn finish(app: &TestApp, fixtures: &TestFixtures<'_>, event: i64, score: (i32, i32), revision: i64) {
    let result = end_match(app, fixtures, event, score, revision).await;
    app.app.alerts.plan(result).await.expect("planned");
    work_off(app).await;
}

/// Ends a match and applies its result. Returns the fact that the scores have it.
async fn end_match(
    app: &TestApp,
    fixtures: &TestFixtures<'_>,
    event: i64,
    score: (i32, i32),
    revision: i64,
) -> Delivery {
    fixtures.a_match("m").starting_in(FAR).at("finished", score.0, score.1).put().await;
    app.settle_match(event).await;
    app.published().await;
    scores_fact(event, revision)
}

async fn result(app: &TestApp, event: i64, revision: i64) {
    app.app.alerts.plan(scores_fact(event, revision)).await.expect("planned");
    work_off(app).await;
}

fn scores_fact(event: i64, revision: i64) -> Delivery {
    let payload = serde_json::to_vec(&json!({"event_id": event, "result_revision": revision})).expect("JSON").into();
    Delivery { subject: UPDATED.to_owned(), id: Some(format!("r{revision}")), payload, attempt: 1 }
}

async fn retry_due(app: &TestApp) -> usize {
    app.app.notifications.retry_due(&CancellationToken::new()).await.expect("retried")
}

async fn count(app: &TestApp, query: &'static str) -> i64 {
    sqlx::query_scalar(query).fetch_one(&app.app.core.db).await.expect("read")
}

async fn username(app: &TestApp, user: UserId) -> String {
    app.app.accounts.find(user).await.expect("read").expect("an account").username.as_str().to_owned()
}

const CLAIMS: &str = "select count(*) from notification_claims";
const RETRIES: &str = "select count(*) from notification_retries";
const DEVICES: &str = "select count(*) from devices";

#[tokio::test]
async fn result_reaches_all_devices_of_predictors_once() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let user = phone(app, "ada-fcm").await;
        let token = "ab".repeat(32);
        register(&user, "device-2", json!({"platform": "apns", "token": token, "locale": "de-AT"})).await;
        predict(&user, event, "home").await;
        let bystander = phone(app, "bystander").await;
        let unwilling = phone(app, "unwilling").await;
        set(&unwilling, json!({"kinds": {"result": false}})).await;
        let asleep = phone(app, "asleep").await;
        set(&asleep, json!({"quiet_hours": {"from": "14:00", "until": "16:00", "time_zone": "UTC"}})).await;
        let without = app.user().await;
        for user in [&unwilling, &asleep, &without] {
            predict(user, event, "home").await;
        }
        finish(app, &fixtures, event, (1, 0), 1).await;

        let tag = &fixtures.tag;
        let bodies = providers.bodies("ada-fcm");
        assert_eq!(bodies.len(), 1);
        let title = format!("Rovers {tag} – City {tag}");
        let body = bodies[0]["notification"]["body"].as_str().expect("a text");
        assert!(body.starts_with("Your prediction scored ") && body.ends_with(" points."), "{body}");
        assert_eq!(
            bodies[0],
            json!({"token": "ada-fcm", "notification": {"title": title, "body": body},
                   "data": {"kind": "result", "event_id": event.to_string(), "link": format!("/events/{event}")},
                   "android": {"collapse_key": format!("result-{event}"), "priority": "NORMAL", "ttl": "43200s",
                               "notification": {"tag": format!("result-{event}")}}})
        );
        let received = providers.apns_received(&token);
        assert_eq!(received.len(), 1);
        let header = |name: &str| received[0].headers[name].to_str().expect("text").to_owned();
        assert_eq!((header("apns-priority"), header("apns-collapse-id")), ("5".to_owned(), format!("result-{event}")));
        let expires = (START + Duration::hours(12)).unix_timestamp().to_string();
        assert_eq!((header("apns-expiration"), header("apns-push-type")), (expires, "alert".to_owned()));
        let alert = &received[0].body;
        assert_eq!((&alert["kind"], &alert["event_id"]), (&json!("result"), &json!(event)));
        assert!(alert["aps"]["alert"]["body"].as_str().expect("a text").starts_with("Dein Tipp bringt "), "{alert}");

        for other in ["bystander", "unwilling", "asleep"] {
            assert_eq!(providers.fcm(other).attempts, 0, "{other}");
        }
        let claimed = "select count(*) from notification_batches where claimed_until = until_user";
        assert_eq!((count(app, claimed).await, count(app, CLAIMS).await), (1, 0));
        set(&asleep, json!({"quiet_hours": null})).await;
        result(app, event, 1).await;
        assert_eq!(providers.accepted("ada-fcm"), 1, "a repeated fact sends nothing");
        assert_eq!(providers.fcm("asleep").attempts, 0, "quiet hours drop the notification");
        assert!(providers.fcm.record().refused().is_empty() && providers.apns.record().refused().is_empty());
        drop(bystander);
    })
    .await;
}

#[tokio::test]
async fn correction_reaches_users_whose_points_changed() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let (home, away, draw) = (phone(app, "home").await, phone(app, "away").await, phone(app, "draw").await);
        predict(&home, event, "home").await;
        predict(&away, event, "away").await;
        predict(&draw, event, "draw").await;
        finish(app, &fixtures, event, (1, 0), 1).await;
        finish(app, &fixtures, event, (0, 1), 2).await;
        let kinds = |token: &str| -> Vec<String> {
            let kind = |body: &Value| body["data"]["kind"].as_str().expect("a kind").to_owned();
            providers.bodies(token).iter().map(kind).collect()
        };
        assert_eq!(kinds("home"), ["result", "correction"]);
        assert_eq!(kinds("away"), ["result", "correction"]);
        assert_eq!(kinds("draw"), ["result"], "the points stay the same");
        let body = &providers.bodies("away")[1];
        assert_eq!(body["android"]["collapse_key"], format!("result-{event}"), "it replaces the result");
        result(app, event, 1).await;
        assert_eq!(kinds("home").len(), 2, "an older result is not announced again");
        // The result is annulled: points are lost.
        fixtures.a_match("m").starting_in(FAR).being("abandoned").put().await;
        app.settle_match(event).await;
        app.published().await;
        result(app, event, 3).await;
        assert_eq!((kinds("away").len(), kinds("home").len()), (3, 2));
        assert!(
            providers.bodies("away")[2]["notification"]["body"].as_str().expect("a text").contains(" 0 points"),
            "no points are left"
        );
    })
    .await;
}

#[tokio::test]
async fn moved_match_is_announced_to_predictors() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let user = app.user().await;
        let device = json!({"platform": "fcm", "token": "berlin", "locale": "de", "time_zone": "Europe/Berlin"});
        register(&user, "device-1", device).await;
        predict(&user, event, "home").await;
        let other = phone(app, "utc").await;
        predict(&other, event, "home").await;
        let standing = |status: &str, start: &str| json!({"status": status, "start_time": start, "home_score": null, "away_score": null});
        let change = |before: Value, now: Value| {
            let mut fact = now;
            fact["before"] = before;
            for (name, value) in [
                ("event_id", json!(event)),
                ("tournament_id", json!(1)),
                ("result_revision", json!(0)),
                ("home_team", json!({"id": 1, "name": "Rovers"})),
                ("away_team", json!({"id": 2, "name": "City"})),
            ] {
                fact[name] = value;
            }
            fact
        };
        let (early, late) = ("2026-12-01T15:00:00Z", "2026-12-01T18:30:00Z");
        let fact = async |id: &str, change: &Value| {
            set_match(app, event, &change["status"], &change["start_time"]).await;
            fact(app, CHANGED, id, change).await;
        };
        let moved = change(standing("scheduled", early), standing("scheduled", late));
        fact("1", &moved).await;
        fact("1", &moved).await;
        let slightly = change(standing("scheduled", late), standing("scheduled", "2026-12-01T18:44:00Z"));
        fact("2", &slightly).await;
        assert_eq!((providers.accepted("berlin"), providers.accepted("utc")), (1, 1));
        let texts = |token: &str, at: usize| providers.bodies(token)[at]["notification"]["body"].clone();
        assert_eq!(texts("berlin", 0), "Neuer Anstoß: Di., 1. Dez., 19:30 Uhr.");
        assert_eq!(texts("utc", 0), "New kick-off: Tue 1 Dec, 18:30 UTC.");
        let android = providers.bodies("utc")[0]["android"].clone();
        assert_eq!((&android["priority"], &android["ttl"]), (&json!("HIGH"), &json!("86400s")));
        fact("3", &change(standing("scheduled", late), standing("scheduled", early))).await;
        fact("4", &moved).await;
        assert_eq!(providers.accepted("utc"), 3, "the same move is another one later");
        fact("5", &change(standing("scheduled", late), standing("postponed", late))).await;
        fact("6", &change(standing("postponed", late), standing("cancelled", late))).await;
        assert_eq!(texts("utc", 3), "The match was postponed.");
        assert_eq!(texts("utc", 4), "The match was cancelled.");
    })
    .await;
}

/// Changes a match as an import does, but without a fact.
async fn set_match(app: &TestApp, event: i64, status: &Value, start: &Value) {
    sqlx::query("update events set status = $2, start_time = $3 where id = $1")
        .bind(event)
        .bind(status.as_str().expect("a status"))
        .bind(OffsetDateTime::parse(start.as_str().expect("a time"), &Rfc3339).expect("a time"))
        .execute(app.owner())
        .await
        .expect("changed");
}

#[tokio::test]
async fn postponed_notification_is_updated_before_retry() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let (event, begun) = (fixtures.a_match("m").starting_in(FAR).put().await, fixtures.a_match("n").starting_in(FAR).put().await);
        let user = phone(app, "phone").await;
        predict(&user, event, "home").await;
        predict(&user, begun, "home").await;
        let later = |seconds: u64| Reaction::error(503, "UNAVAILABLE").retry_after(seconds.to_string());
        let texts = || -> Vec<Value> {
            providers.bodies("phone").iter().map(|body| body["notification"]["body"].clone()).collect()
        };
        let retry = async || {
            providers.advance(app, Duration::seconds(60));
            retry_due(app).await;
        };
        let moved = |event: i64, start: &str| json!({
            "event_id": event, "tournament_id": 1, "result_revision": 0,
            "home_team": {"id": 1, "name": "Rovers"}, "away_team": {"id": 2, "name": "City"},
            "status": "scheduled", "start_time": start, "home_score": null, "away_score": null,
            "before": {"status": "scheduled", "start_time": "2026-12-01T15:00:00Z", "home_score": null, "away_score": null},
        });
        let (first, second) = ("2026-12-01T18:30:00Z", "2026-12-01T20:00:00Z");
        for one in [event, begun] {
            set_match(app, one, &json!("scheduled"), &json!(first)).await;
            providers.fcm.record().react_for("phone", [later(60)]);
            fact(app, CHANGED, &format!("{one}-1"), &moved(one, first)).await;
        }
        // The first match moves again, and the other one begins.
        set_match(app, event, &json!("scheduled"), &json!(second)).await;
        set_match(app, begun, &json!("live"), &json!(first)).await;
        retry().await;
        assert_eq!(texts(), ["New kick-off: Tue 1 Dec, 20:00 UTC."]);

        providers.fcm.record().react_for("phone", [later(60), later(60)]);
        finish(app, &fixtures, event, (1, 0), 1).await;
        let points = texts();
        assert_eq!(points.len(), 1, "the result waits");
        finish(app, &fixtures, event, (0, 1), 2).await;
        retry().await;
        let said = texts();
        assert_eq!(said.len(), 3, "result and correction: {said:?}");
        assert!(said[1..].iter().all(|text| text.as_str().is_some_and(|text| text.contains(" 0 points"))), "{said:?}");
    })
    .await;
}

#[tokio::test]
async fn reminder_reaches_devices_in_their_quiet_zone() {
    let web = [
        ("MATCHDAY_NOTIFICATIONS__VAPID_PRIVATE_KEY", "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"),
        ("MATCHDAY_NOTIFICATIONS__VAPID_SUBJECT", "mailto:ops@example.org"),
    ];
    with_providers(&web, async |app, providers| {
        let service = Receiver::start(|_, _| Reply::status(201)).await;
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::minutes(50)).put().await;
        let user = phone(app, "fan").await;
        user.post("/api/auth/teams/primary", json!({"team_id": fixtures.team_id("rovers").await})).await.expect(200);
        // Times are shown in the zone of the quiet hours, because the device has none.
        set(&user, json!({"quiet_hours": {"from": "22:00", "until": "06:00", "time_zone": "Asia/Kolkata"}})).await;
        let browser = super::tests::Browser::new(5);
        let endpoint = service.url.join("browser").expect("a URL").to_string();
        register(&user, "browser-1", json!({"platform": "web", "token": browser.subscription(&endpoint)})).await;
        let unwilling = phone(app, "unwilling").await;
        unwilling.post("/api/auth/teams/primary", json!({"team_id": fixtures.team_id("city").await})).await.expect(200);
        set(&unwilling, json!({"kinds": {"reminder": false}})).await;
        while app.app.notifications.plan().await.expect("planned") > 0 {}
        work_off(app).await;
        work_off(app).await;
        let bodies = providers.bodies("fan");
        assert_eq!(bodies.len(), 1);
        assert_eq!(
            bodies[0]["notification"]["body"],
            "Kick-off: Fri 20 Nov, 21:20. Some of your predictions are missing."
        );
        assert_eq!(bodies[0]["android"]["ttl"], "3000s", "until kick-off");
        assert_eq!(providers.fcm("unwilling").attempts, 0);
        let seen = service.seen();
        assert_eq!(seen.len(), 1);
        assert_eq!((seen[0].header("urgency"), seen[0].header("ttl")), ("high", "3000"));
        assert_eq!(seen[0].header("topic"), format!("reminder-{event}"));
        let payload = browser.read(&seen[0].body);
        assert_eq!((&payload["type"], &payload["data"]["event_id"]), (&json!("reminder.due"), &json!(event)));
        assert!(payload["title"].as_str().is_some_and(|title| title.starts_with("Rovers")), "{payload}");
    })
    .await;
}

#[tokio::test]
async fn provider_that_asks_for_later_gets_it_later() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let tokens = ["limited", "patient", "failing", "refused", "hanging"];
        for token in tokens {
            predict(&phone(app, token).await, event, "home").await;
        }
        let record = providers.fcm.record();
        record.react_for("limited", [Reaction::error(429, "QUOTA_EXCEEDED")]);
        record.react_for("patient", [Reaction::error(503, "UNAVAILABLE").retry_after("120".to_owned())]);
        record.react_for("failing", [Reaction::error(500, "INTERNAL"), Reaction::error(500, "INTERNAL")]);
        record.react_for("refused", [Reaction::error(400, "INVALID_ARGUMENT").bad_field()]);
        record.react_for("hanging", [Reaction::Hang]);
        finish(app, &fixtures, event, (1, 0), 1).await;
        let retry = async || retry_due(app).await;
        let attempts = || tokens.map(|token| providers.fcm(token).attempts);
        assert_eq!((attempts(), count(app, RETRIES).await), ([1; 5], 3), "only the first three are tried again");
        assert_eq!(retry().await, 0, "not yet");
        providers.advance(app, Duration::seconds(10));
        assert_eq!((retry().await, attempts()), (1, [1, 1, 2, 1, 1]));
        providers.advance(app, Duration::seconds(20));
        assert_eq!((retry().await, attempts()), (1, [1, 1, 3, 1, 1]), "the pause has doubled");
        providers.advance(app, Duration::seconds(30));
        assert_eq!((retry().await, attempts()), (1, [2, 1, 3, 1, 1]), "a limit has a longer pause");
        // Another process continues after a restart.
        providers.advance(app, Duration::seconds(60));
        let second = app.second(app.app.config.clone()).await;
        assert_eq!(retry_due(&second).await, 1, "after Retry-After");
        assert_eq!((attempts(), count(app, RETRIES).await), ([2, 2, 3, 1, 1], 0));
        assert_eq!(tokens.map(|token| providers.accepted(token)), [1, 1, 1, 0, 0]);
        assert_eq!(count(app, DEVICES).await, 5, "no device is removed");
        result(app, event, 1).await;
        assert_eq!(attempts(), [2, 2, 3, 1, 1]);
    })
    .await;
}

#[tokio::test]
async fn retries_end_with_expiry_device_and_quiet_hours() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let users = [phone(app, "removed").await, phone(app, "asleep").await, phone(app, "late").await];
        for user in &users {
            predict(user, event, "home").await;
        }
        let later = |seconds: u64| Reaction::error(503, "UNAVAILABLE").retry_after(seconds.to_string());
        for token in ["removed", "asleep"] {
            providers.fcm.record().react_for(token, [later(5)]);
        }
        providers.fcm.record().react_for("late", [later(12 * 3_600)]);
        finish(app, &fixtures, event, (1, 0), 1).await;
        assert_eq!(count(app, RETRIES).await, 2, "after the expiry, a retry is of no use");
        users[0].delete("/api/auth/devices/device-1").await.expect(200);
        set(&users[1], json!({"quiet_hours": {"from": "14:00", "until": "16:00", "time_zone": "UTC"}})).await;
        providers.advance(app, Duration::seconds(6));
        assert_eq!(retry_due(app).await, 2);
        assert_eq!((providers.fcm("removed").attempts, providers.fcm("asleep").attempts), (1, 1), "dropped");
        assert_eq!(count(app, RETRIES).await, 0);
    })
    .await;
}

#[tokio::test]
async fn dead_tokens_are_removed_on_the_providers_word() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let apns = |digit: &str| digit.repeat(64);
        let reactions = [
            ("a", Reaction::error(410, "Unregistered").since(START - Duration::hours(1)), true),
            ("b", Reaction::error(410, "ExpiredToken").since(START + Duration::minutes(1)), false),
            ("c", Reaction::error(400, "BadDeviceToken"), false),
            ("d", Reaction::error(400, "DeviceTokenNotForTopic"), false),
            ("e", Reaction::error(413, "PayloadTooLarge"), true),
        ];
        for (digit, reaction, _) in &reactions {
            let user = app.user().await;
            register(&user, &format!("apns-dev-{digit}"), json!({"platform": "apns", "token": apns(digit)})).await;
            predict(&user, event, "home").await;
            providers.apns.record().react_for(&apns(digit), [reaction.clone()]);
        }
        let fcm = [
            ("unregistered", Reaction::error(404, "UNREGISTERED"), false),
            ("mismatch", Reaction::error(403, "SENDER_ID_MISMATCH"), false),
            ("invalid", Reaction::error(400, "INVALID_ARGUMENT"), false),
            ("bad_field", Reaction::error(400, "INVALID_ARGUMENT").bad_field(), true),
        ];
        for (token, reaction, _) in &fcm {
            let user = app.user().await;
            register(&user, &format!("fcm-{token}"), json!({"platform": "fcm", "token": token})).await;
            predict(&user, event, "home").await;
            providers.fcm.record().react_for(token, [reaction.clone()]);
        }
        finish(app, &fixtures, event, (1, 0), 1).await;
        let left: Vec<String> =
            sqlx::query_scalar("select id from devices order by id").fetch_all(&app.app.core.db).await.expect("read");
        let of_apns = reactions.iter().filter(|(.., stays)| *stays).map(|(digit, ..)| format!("apns-dev-{digit}"));
        let of_fcm = fcm.iter().filter(|(.., stays)| *stays).map(|(token, ..)| format!("fcm-{token}"));
        assert_eq!(left, of_apns.chain(of_fcm).collect::<Vec<_>>(), "a registration after the timestamp stays");
        assert_eq!(count(app, RETRIES).await, 0);
    })
    .await;
}

#[tokio::test]
async fn claimed_notification_is_not_sent_after_a_crash() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let (claimed, other) = (phone(app, "claimed").await, phone(app, "other").await);
        predict(&claimed, event, "home").await;
        predict(&other, event, "home").await;
        let result = end_match(app, &fixtures, event, (1, 0), 1).await;
        app.app.alerts.plan(result).await.expect("planned");
        // A worker claimed the first user and was killed before it sent anything.
        let killed = sqlx::query("update notification_batches set claimed_until = $1").bind(claimed.id.0);
        assert_eq!(killed.execute(&app.app.core.db).await.expect("claimed").rows_affected(), 1);
        work_off(app).await;
        assert_eq!((providers.fcm("claimed").attempts, providers.accepted("other")), (0, 1));
    })
    .await;
}

#[tokio::test]
async fn correction_replaces_result_whose_plan_was_cut_off() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        predict(&phone(app, "phone").await, event, "home").await;
        let first = end_match(app, &fixtures, event, (1, 0), 1).await;
        // The planner of the first result was killed before it added a batch.
        sqlx::query(
            "insert into result_notices (event_id, revision, previous_revision, planned_revision, follows_cut_off, begun_at)
             values ($1, 1, 0, 0, false, $2)",
        )
        .bind(event)
        .bind(app.clock.now())
        .execute(&app.app.core.db)
        .await
        .expect("begun");
        let second = end_match(app, &fixtures, event, (3, 0), 2).await;
        app.app.alerts.plan(second).await.expect("planned");
        app.app.alerts.plan(first).await.expect("planned");
        work_off(app).await;
        let bodies = providers.bodies("phone");
        let kinds: Vec<&Value> = bodies.iter().map(|body| &body["data"]["kind"]).collect();
        assert_eq!(kinds, ["result"], "the points are the same after both results, and the user did not know them");
        // The plan of the second result was complete: a third one is a correction.
        finish(app, &fixtures, event, (0, 1), 3).await;
        assert_eq!(providers.bodies("phone")[1]["data"]["kind"], "correction");
        // The plan of a fourth one is cut off, perhaps after it had notified this user.
        sqlx::query("update result_notices set revision = 4, previous_revision = 3 where event_id = $1")
            .bind(event)
            .execute(&app.app.core.db)
            .await
            .expect("begun");
        end_match(app, &fixtures, event, (1, 0), 4).await;
        finish(app, &fixtures, event, (0, 1), 5).await;
        let bodies = providers.bodies("phone");
        assert_eq!((bodies.len(), &bodies[2]["data"]["kind"]), (3, &json!("correction")), "the same points as after the third");
    })
    .await;
}

#[tokio::test]
async fn repeated_plan_keeps_its_batches_although_users_leave() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let mut users = Vec::new();
        for number in 0..4 {
            let user = phone(app, &format!("phone-{number}")).await;
            predict(&user, event, "home").await;
            users.push(user.id);
        }
        let result = end_match(app, &fixtures, event, (1, 0), 1).await;
        // The planner added a batch of two users, and was killed before it queued it.
        sqlx::query(
            "insert into notification_batches (event_id, topic, after_user, until_user, claimed_until, created_at)
             values ($1, 'result-1', 0, $2, 0, $3)",
        )
        .bind(event)
        .bind(users[1].0)
        .bind(app.clock.now())
        .execute(&app.app.core.db)
        .await
        .expect("added");
        sqlx::query("delete from predictions where user_id = $1")
            .bind(users[0].0)
            .execute(app.owner())
            .await
            .expect("deleted");
        app.app.alerts.plan(result).await.expect("planned");
        let batches: Vec<(i64, i64)> =
            sqlx::query_as("select after_user, until_user from notification_batches order by after_user")
                .fetch_all(&app.app.core.db)
                .await
                .expect("batches");
        assert_eq!(batches, [(0, users[1].0), (users[1].0, users[3].0)]);
        work_off(app).await;
        work_off(app).await;
        let accepted = [0, 1, 2, 3].map(|number| providers.accepted(&format!("phone-{number}")));
        assert_eq!(accepted, [0, 1, 1, 1]);
        let left = async || count(app, "select count(*) from notification_batches").await;
        providers.advance(app, Duration::days(29));
        app.app.notifications.sweep().await.expect("swept");
        assert_eq!(left().await, 2);
        providers.advance(app, Duration::days(2));
        app.app.notifications.sweep().await.expect("swept");
        assert_eq!(left().await, 0);
    })
    .await;
}

#[tokio::test]
async fn two_processes_notify_each_user_once() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let users: Vec<i64> = sqlx::query_scalar(
            "insert into users (created_at, username) select now(), 'crowd' || n from generate_series(1, 250) n
             returning user_id",
        )
        .fetch_all(&app.app.core.db)
        .await
        .expect("users");
        for user in &users {
            let user = app.login(UserId(*user)).await;
            register(&user, "device-1", json!({"platform": "fcm", "token": format!("crowd-{}", user.id)})).await;
            predict(&user, event, "home").await;
        }
        fixtures.a_match("m").starting_in(FAR).at("finished", 1, 0).put().await;
        app.settle_match(event).await;
        app.published().await;
        let second = app.second(app.app.config.clone()).await;
        let payload = serde_json::to_vec(&json!({"event_id": event, "result_revision": 1})).expect("JSON");
        let delivery = |subject: &str, payload: Vec<u8>| Delivery {
            subject: subject.to_owned(),
            id: Some("x".to_owned()),
            payload: payload.into(),
            attempt: 1,
        };
        for alerts in [&app.app.alerts, &second.app.alerts] {
            alerts.plan(delivery(UPDATED, payload.clone())).await.expect("planned");
        }
        let jobs = app.app.streams.replay(Stream::Work).await.expect("read");
        let jobs: Vec<_> = jobs.into_iter().filter(|(subject, _)| subject == BATCH).collect();
        assert_eq!(jobs.len(), 1, "both plans have the same message ids");
        let perform = async |alerts: &super::alerts::Alerts| {
            alerts.perform(delivery(BATCH, jobs[0].1.to_vec())).await.expect("performed");
        };
        tokio::join!(perform(&app.app.alerts), perform(&second.app.alerts), perform(&app.app.alerts));
        let counts = providers.fcm.record().all_counts();
        assert_eq!(counts.len(), users.len());
        assert!(counts.iter().all(|(_, counts)| counts.attempts == 1 && counts.accepted == 1), "{counts:?}");
    })
    .await;
}

#[tokio::test]
async fn member_is_told_once_a_day_of_a_lost_rank() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let events = [
            fixtures.a_match("m").starting_in(FAR).put().await,
            fixtures.a_match("n").starting_in(FAR).put().await,
            fixtures.a_match("o").starting_in(FAR).put().await,
        ];
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(events[0])
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        let (owner, member, silent) =
            (phone(app, "owner").await, phone(app, "member").await, phone(app, "silent").await);
        for user in [&owner, &member] {
            set(user, json!({"kinds": {"passed": true}})).await;
        }
        let body = json!({"name": "Friends", "tournament_ids": [tournament]});
        let league = owner.post("/api/auth/leagues", body).await.expect(201)["data"].clone();
        for user in [&member, &silent] {
            user.post("/api/auth/leagues/join", json!({"code": league["code"]})).await.expect(200);
        }
        // The first match puts the member and the silent one ahead of the owner; the others put the owner ahead.
        for (event, of_owner, of_others) in
            [(events[0], "away", "home"), (events[1], "home", "away"), (events[2], "home", "away")]
        {
            predict(&owner, event, of_owner).await;
            predict(&member, event, of_others).await;
            predict(&silent, event, of_others).await;
        }
        app.published().await;
        let passed = |token: &str| {
            let bodies = providers.bodies(token);
            bodies.into_iter().filter(|body| body["data"]["kind"] == "passed").collect::<Vec<_>>()
        };
        let play = async |key: &str, event: i64| {
            fixtures.a_match(key).starting_in(FAR).at("finished", 1, 0).put().await;
            app.settle_match(event).await;
            app.published().await;
            result(app, event, 1).await;
        };
        play("m", events[0]).await;
        assert_eq!((passed("owner").len(), passed("member").len()), (1, 0), "all were first before");
        let body = &passed("owner")[0];
        assert_eq!(body["notification"], json!({"title": "Friends", "body": "You dropped to rank 3."}));
        let id = league["id"].to_string();
        assert_eq!(body["data"], json!({"kind": "passed", "league_id": id, "link": format!("/leagues/{id}")}));
        assert_eq!(body["android"]["collapse_key"], format!("passed-{id}"));
        play("n", events[1]).await;
        let after_second = passed("member").len();
        play("o", events[2]).await;
        assert_eq!((after_second, passed("member").len()), (0, 1), "equal after the second, behind after the third");
        assert_eq!(passed("silent").len(), 0, "this kind is off by default");
        assert_eq!(passed("owner").len(), 1);
        result(app, events[2], 1).await;
        assert_eq!(passed("member").len(), 1, "once a day");
        // Plan and jobs are repeated after midnight.
        providers.advance(app, Duration::hours(10));
        work_off(app).await;
        assert_eq!(passed("member").len(), 1, "repeated jobs have the day of their plan");
        // The broker would otherwise ignore the same jobs.
        app.app.streams.remove().await;
        app.app.streams.ensure().await.expect("streams");
        result(app, events[2], 1).await;
        assert_eq!(passed("member").len(), 1, "a repeated plan has the day of the first one");
    })
    .await;
}

#[tokio::test]
async fn streak_is_remembered_in_the_evening() {
    with_providers(&[], async |app, providers| {
        let (today, yesterday) = (START.date(), START.date().previous_day().expect("a day"));
        let days = [("streak", 3, false), ("short", 1, false), ("claimed", 4, true), ("off", 5, false)];
        for (token, length, claimed) in days {
            let user = phone(app, token).await;
            if token != "off" {
                set(&user, json!({"kinds": {"streak": true}})).await;
            }
            let claims = [Some((yesterday, length)), claimed.then_some((today, length + 1))];
            for (day, length) in claims.into_iter().flatten() {
                sqlx::query(
                    "insert into daily_claims (user_id, day, streak_days, bonus, number) values ($1, $2, $3, 0, 1)",
                )
                .bind(user.id.0)
                .bind(day)
                .bind(length)
                .execute(app.owner())
                .await
                .expect("written");
            }
        }
        let plan = async || app.app.notifications.plan_streaks().await.expect("planned");
        providers.advance(app, Duration::hours(5));
        assert_eq!(plan().await, 0, "20:00");
        providers.advance(app, Duration::hours(1));
        assert_eq!((plan().await, plan().await), (1, 0), "21:00, once");
        work_off(app).await;
        work_off(app).await;
        assert_eq!(["streak", "short", "claimed", "off"].map(|token| providers.accepted(token)), [1, 0, 0, 0]);
        let body = &providers.bodies("streak")[0];
        assert_eq!(body["notification"]["body"], "3 days in a row. Claim today's coins before midnight UTC.");
        assert_eq!(body["data"], json!({"kind": "streak", "link": "/coins"}));
        assert_eq!((&body["android"]["collapse_key"], &body["android"]["ttl"]), (&json!("streak"), &json!("10800s")));
    })
    .await;
}

#[tokio::test]
async fn invitation_and_mention_name_room_and_user() {
    with_providers(&[], async |app, providers| {
        let (user, sender) = (phone(app, "invited").await, app.user().await);
        let room: i64 = sqlx::query_scalar(
            "insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at)
             values ('!abc:example.org', 'fans', 'North stand', $1, $2, $2, $2) returning id",
        )
        .bind(sender.id.0)
        .bind(app.clock.now())
        .fetch_one(&app.app.core.db)
        .await
        .expect("a room");
        let invite = async |event: &str| {
            let invited = Invited {
                room_id: web::ids::RoomId(room),
                user_id: user.id,
                sender_id: Some(sender.id),
                sender: "@x:example.org".to_owned(),
                event_id: event.to_owned(),
                sent_at: app.clock.now(),
            };
            let payload = serde_json::to_vec(&invited).expect("JSON").into();
            let delivery = Delivery { subject: INVITED.to_owned(), id: None, payload, attempt: 1 };
            app.app.alerts.perform(delivery).await.expect("performed");
        };
        invite("$1").await;
        invite("$1").await;
        let name = username(app, sender.id).await;
        let bodies = providers.bodies("invited");
        assert_eq!(bodies.len(), 1);
        assert_eq!(bodies[0]["notification"], json!({"title": "North stand", "body": format!("{name} invited you.")}));
        let data = json!({"kind": "invitation", "room_id": "!abc:example.org", "link": "/rooms/!abc:example.org"});
        assert_eq!((&bodies[0]["data"], &bodies[0]["android"]["priority"]), (&data, &json!("HIGH")));
        let mention = Mention {
            user_id: user.id,
            room_id: "!abc:example.org".to_owned(),
            revision: "$2".to_owned(),
            room: None,
            sender_id: None,
            sender: "@ben:example.org".to_owned(),
            sent_at: app.clock.now(),
        };
        for _ in 0..2 {
            app.app.notifications.notify(&mention).await.expect("queued");
        }
        work_off(app).await;
        work_off(app).await;
        let bodies = providers.bodies("invited");
        assert_eq!(bodies.len(), 2);
        assert_eq!(bodies[1]["notification"], json!({"title": "ben", "body": "ben mentioned you."}));
        user.post(&format!("/api/auth/blocks/{}", sender.id), json!({})).await.expect(200);
        app.published().await;
        invite("$3").await;
        assert_eq!(providers.accepted("invited"), 2, "blocked users cause no invitation");
    })
    .await;
}

#[tokio::test]
async fn pointless_and_unwelcome_retries_are_dropped() {
    with_providers(&[], async |app, providers| {
        // Not 503: the circuit breaker would open.
        let later = || Reaction::error(429, "QUOTA_EXCEEDED").retry_after("60".to_owned());
        let tokens = ["moved", "remains", "blocker", "reader", "claimer", "forgetful", "orphan"];
        for token in tokens {
            providers.fcm.record().react_for(token, [later()]);
        }
        // Two matches start soon, and one of them is postponed.
        let fixtures = app.fixtures();
        let soon = Duration::minutes(50);
        let event = fixtures.a_match("m").starting_in(soon).put().await;
        fixtures.a_match("n").between("albion", "wanderers").starting_in(soon).put().await;
        for (token, team) in [("moved", "rovers"), ("remains", "albion")] {
            let user = phone(app, token).await;
            user.post("/api/auth/teams/primary", json!({"team_id": fixtures.team_id(team).await})).await.expect(200);
        }
        while app.app.notifications.plan().await.expect("planned") > 0 {}
        // One of two users blocks the sender of a message. The sender of a third one deletes the account.
        let (sender, leaving) = (app.user().await, app.user().await);
        sender.post("/api/auth/update-user-info", json!({"name": "Grace Hopper"})).await.expect(200);
        let (blocker, reader, orphan) =
            (phone(app, "blocker").await, phone(app, "reader").await, phone(app, "orphan").await);
        for (user, sender) in [(&blocker, &sender), (&reader, &sender), (&orphan, &leaving)] {
            let mention = Mention {
                user_id: user.id,
                room_id: "!abc:example.org".to_owned(),
                revision: "$1".to_owned(),
                room: None,
                sender_id: Some(sender.id),
                sender: "@x:example.org".to_owned(),
                sent_at: app.clock.now(),
            };
            app.app.notifications.notify(&mention).await.expect("queued");
        }
        // One of two users claims coins.
        let (claimer, forgetful) = (phone(app, "claimer").await, phone(app, "forgetful").await);
        for user in [&claimer, &forgetful] {
            set(user, json!({"kinds": {"streak": true}})).await;
            let alert = Alert::new(Kind::Streak, About::Coins, "2026-11-20", app.clock.now() + Duration::hours(3));
            app.app.notifications.alert(&[(user.id, &alert.number("days", 2))]).await.expect("sent");
        }
        work_off(app).await;
        assert_eq!((tokens.map(|token| providers.fcm(token).attempts), count(app, RETRIES).await), ([1; 7], 7));

        let start = (app.clock.now() + soon).format(&Rfc3339).expect("a time");
        set_match(app, event, &json!("postponed"), &json!(start)).await;
        blocker.post(&format!("/api/auth/blocks/{}", sender.id), json!({})).await.expect(200);
        claimer.post("/api/auth/daily-coins", json!({})).await.expect(200);
        let hidden = json!({"name": "nobody"}).to_string();
        sender.send(Method::PUT, "/api/auth/me/privacy", Some(hidden)).await.expect(200);
        let query = "update users set deleted_at = $2 where user_id = $1";
        sqlx::query(query).bind(leaving.id).bind(START).execute(&app.app.core.db).await.expect("deleted");
        app.published().await;
        providers.advance(app, Duration::seconds(60));
        assert_eq!(retry_due(app).await, 7);
        assert_eq!(tokens.map(|token| providers.accepted(token)), [0, 1, 0, 1, 0, 1, 0]);
        assert_eq!(count(app, RETRIES).await, 0);
        let name = username(app, sender.id).await;
        let notification = json!({"title": name, "body": format!("{name} mentioned you.")});
        assert_eq!(providers.bodies("reader")[0]["notification"], notification, "the sender hid the name meanwhile");
    })
    .await;
}

#[tokio::test]
async fn shutdown_leaves_retries_to_other_processes() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        predict(&phone(app, "waiting").await, event, "home").await;
        providers.fcm.record().react_for("waiting", [Reaction::error(503, "UNAVAILABLE")]);
        finish(app, &fixtures, event, (1, 0), 1).await;
        providers.advance(app, Duration::seconds(10));
        let closing = CancellationToken::new();
        closing.cancel();
        assert_eq!(app.app.notifications.retry_due(&closing).await.expect("no error"), 0);
        assert_eq!((count(app, RETRIES).await, providers.fcm("waiting").attempts), (1, 1));
        assert_eq!((retry_due(app).await, providers.accepted("waiting")), (1, 1));
    })
    .await;
}

#[tokio::test]
async fn correction_of_result_from_before_push_is_a_correction() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let first = end_match(app, &fixtures, event, (1, 0), 1).await;
        app.app.alerts.plan(first).await.expect("planned");
        let second = end_match(app, &fixtures, event, (2, 0), 2).await;
        app.app.alerts.plan(second).await.expect("planned");
        let notices: (i64, i64, i64) =
            sqlx::query_as("select revision, planned_revision, previous_revision from result_notices")
                .fetch_one(&app.app.core.db)
                .await
                .expect("a row");
        assert_eq!(notices, (2, 2, 1), "the next result follows the second one");
    })
    .await;
}

#[tokio::test]
async fn users_without_session_suspended_and_deleted_users_are_not_notified() {
    with_providers(&[], async |app, providers| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(FAR).put().await;
        let excluded = [
            ("expired", "update sessions set expires_at = $2 where user_id = $1"),
            ("banned", "update users set banned_at = $2 where user_id = $1"),
            ("deleted", "update users set deleted_at = $2 where user_id = $1"),
        ];
        let mut users = Vec::new();
        for (token, _) in &excluded {
            let user = phone(app, token).await;
            predict(&user, event, "home").await;
            users.push(user.id);
        }
        let active = phone(app, "active").await;
        predict(&active, event, "home").await;
        for (user, (_, query)) in users.iter().zip(excluded) {
            sqlx::query(query).bind(user.0).bind(START).execute(&app.app.core.db).await.expect("changed");
        }
        finish(app, &fixtures, event, (1, 0), 1).await;
        for (token, _) in excluded {
            assert_eq!(providers.fcm(token).attempts, 0, "{token}");
        }
        assert_eq!(providers.accepted("active"), 1);
    })
    .await;
}
