use std::{
    collections::BTreeMap,
    sync::{
        Arc,
        atomic::{AtomicU16, Ordering},
    },
};

use aws_lc_rs::agreement::{ECDH_P256, PrivateKey};
use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use http::Method;
use platform::{
    clock::Clock as _,
    standard_webhooks::SigningSecret,
    stream::{Delivery, Failure, Stream},
};
use serde_json::{Value, json};
use time::Duration;
use web::ids::UserId;

use super::{places_lost::PAGE, push, work::BATCH};
use crate::{
    identity::{accounts::restrictions::Restriction, operators::Operator},
    testing::{Receiver, Reply, SeededRandom, TestApp, TestFixtures, TestUser},
};

const SETTINGS: &str = "/api/auth/me/notifications";
const PUSH: &str = "/api/auth/me/notifications/push";
const SECRET: &str = "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw";

const VAPID: [(&str, &str); 3] = [
    ("MATCHDAY_NOTIFICATIONS__VAPID_PRIVATE_KEY", "q1dXpw3UpT5VOmu_cf_v6ih07Aems3njxI-JWgLcM94"),
    ("MATCHDAY_NOTIFICATIONS__VAPID_SUBJECT", "mailto:ops@example.org"),
    ("MATCHDAY_NOTIFICATIONS__TIMEOUT", "1s"),
];
/// Public key of the private key above.
const PUBLIC: &str = "BCVxsr7N_eNgVRqvHtD0zTZsEc6-VV-JvLexhqUzORcxaOzi6-AYWXvTBHm4bjyPjs7Vd8pZGH6SRpkNtoIAiw4";

/// A user's browser with its keys.
pub(super) struct Browser {
    private: PrivateKey,
    public: String,
    auth: [u8; 16],
}

impl Browser {
    pub(super) fn new(seed: u64) -> Self {
        let (private, public) = push::make_key(&SeededRandom::new(seed)).expect("a key");
        let private = URL_SAFE_NO_PAD.decode(private).expect("base64");
        let private = PrivateKey::from_private_key(&ECDH_P256, &private).expect("a key");
        Self { private, public, auth: [u8::try_from(seed % 256).expect("a byte"); 16] }
    }

    /// Returns the subscription that the browser passes to the page.
    pub(super) fn subscription(&self, endpoint: &str) -> Value {
        json!({"endpoint": endpoint, "expirationTime": null,
               "keys": {"p256dh": self.public, "auth": URL_SAFE_NO_PAD.encode(self.auth)}})
    }

    pub(super) fn read(&self, body: &[u8]) -> Value {
        serde_json::from_slice(&push::decrypt(&self.private, &self.auth, body)).expect("JSON")
    }
}

/// Runs a test with separate streams.
async fn with_streams(changes: &[(&str, &str)], test: impl AsyncFnOnce(&TestApp)) {
    TestApp::run_with(changes, async |app| {
        app.app.streams.ensure().await.expect("streams");
        test(app).await;
        app.app.streams.remove().await;
    })
    .await;
}

/// Runs a test with separate streams and a push hook.
async fn with_hook(hook: &Receiver, test: impl AsyncFnOnce(&TestApp)) {
    let changes = [
        ("MATCHDAY_NOTIFICATIONS__HOOK_URL", hook.url.as_str()),
        ("MATCHDAY_NOTIFICATIONS__HOOK_SECRET", SECRET),
        ("MATCHDAY_NOTIFICATIONS__TIMEOUT", "1s"),
    ];
    with_streams(&changes, test).await;
}

/// Plans until all fans are queued. Returns the number of batches.
async fn plan(app: &TestApp) -> usize {
    let mut planned = 0;
    loop {
        match app.app.notifications.plan().await.expect("planned") {
            0 => return planned,
            batches => planned += batches,
        }
    }
}

async fn batches(app: &TestApp) -> Vec<Delivery> {
    let work = app.app.streams.replay(Stream::Work).await.expect("read");
    let delivery = |(subject, payload)| Delivery { subject, id: None, payload, attempt: 1 };
    work.into_iter().filter(|(subject, _)| subject == BATCH).map(delivery).collect()
}

/// Performs all queued batches without removing them. Returns whether any must be retried.
async fn work(app: &TestApp) -> bool {
    let mut again = false;
    for batch in batches(app).await {
        match app.app.notifications.perform(batch).await {
            Ok(()) => {}
            Err(Failure::Retry { .. }) => again = true,
            Err(Failure::GiveUp(error)) => panic!("{error:#}"),
        }
    }
    again
}

/// A user with a favourite team and a browser.
async fn fan<'a>(app: &'a TestApp, fixtures: &TestFixtures<'_>, team: &str, endpoint: &str) -> (TestUser<'a>, Browser) {
    let user = app.user().await;
    let team = fixtures.team_id(team).await;
    user.post("/api/auth/teams/primary", json!({"team_id": team})).await.expect(200);
    let browser = Browser::new(user.id.0.unsigned_abs());
    user.post(PUSH, browser.subscription(endpoint)).await.expect(200);
    (user, browser)
}

/// Inserts users without a browser who are fans of a team.
async fn crowd(app: &TestApp, team: i64, fans: i64) -> Vec<i64> {
    let users: Vec<i64> = sqlx::query_scalar(
        "insert into users (created_at, username) select now(), 'crowd' || n from generate_series(1, $1) n returning user_id",
    )
    .bind(fans)
    .fetch_all(&app.app.core.db)
    .await
    .expect("users");
    sqlx::query("insert into user_teams (user_id, rank, team_id) select unnest($1::bigint[]), 0, $2")
        .bind(&users)
        .bind(team)
        .execute(&app.app.core.db)
        .await
        .expect("fans");
    users
}

/// Returns how often the hook received each user.
fn received_users(hook: &Receiver) -> BTreeMap<i64, usize> {
    let mut counts = BTreeMap::new();
    for received in hook.seen() {
        for user in received.json()["data"]["user_ids"].as_array().expect("users") {
            *counts.entry(user.as_i64().expect("an id")).or_default() += 1;
        }
    }
    counts
}

async fn claims(app: &TestApp) -> i64 {
    sqlx::query_scalar("select count(*) from reminders").fetch_one(&app.app.core.db).await.expect("read")
}

#[tokio::test]
async fn settings_change_only_named_fields() {
    TestApp::run_with(&VAPID, async |app| {
        let user = app.user().await;
        let get = async || user.get(SETTINGS).await.expect(200)["data"].clone();
        assert_eq!(
            get().await,
            json!({"reminders": true, "league_ranks": true, "quiet_hours": null, "push": [], "vapid_public_key": PUBLIC,
                   "kinds": {"reminder": true, "moved": true, "result": true, "correction": true, "passed": false,
                             "invitation": true, "mention": true, "streak": false}}),
            "the defaults"
        );
        let put = async |body: Value| user.send(Method::PUT, SETTINGS, Some(body.to_string())).await;
        let night = json!({"from": "22:00", "until": "08:00", "time_zone": "Europe/Berlin"});
        let saved =
            put(json!({"quiet_hours": {"from": "22:00", "until": "08:00", "time_zone": "europe/berlin"}})).await;
        assert_eq!(saved.expect(200)["data"]["quiet_hours"], night, "with the canonical zone name");
        assert_eq!(put(json!({"reminders": false})).await.expect(200)["data"]["quiet_hours"], night);
        assert_eq!((get().await["reminders"].clone(), get().await["quiet_hours"].clone()), (json!(false), night));
        put(json!({"reminders": null, "colour": "blue"})).await.expect(200);
        assert_eq!(get().await["reminders"], false);
        put(json!({"league_ranks": false})).await.expect(200);
        assert_eq!(
            (get().await["league_ranks"].clone(), get().await["reminders"].clone()),
            (json!(false), json!(false))
        );
        put(json!({"quiet_hours": null})).await.expect(200);
        assert_eq!((get().await["reminders"].clone(), get().await["quiet_hours"].clone()), (json!(false), Value::Null));
        for quiet in [
            json!("night"),
            json!({}),
            json!({"from": "22:00", "until": "08:00"}),
            json!({"from": "22:00", "until": "22:00", "time_zone": "UTC"}),
            json!({"from": "24:00", "until": "08:00", "time_zone": "UTC"}),
            json!({"from": "22:00", "until": "08:00", "time_zone": "Moon/Tranquility"}),
            json!({"from": 22, "until": 8, "time_zone": "UTC"}),
        ] {
            let answer = put(json!({"quiet_hours": quiet, "reminders": true})).await;
            assert_eq!(answer.invalid_fields(), ["quiet_hours"], "{quiet}");
        }
        let both = put(json!({"quiet_hours": 5, "reminders": "yes"})).await;
        assert_eq!(both.invalid_fields(), ["quiet_hours", "reminders"]);
        assert_eq!(get().await["reminders"], false, "a refused request changes nothing");
        let other = app.user().await;
        assert_eq!(other.get(SETTINGS).await.expect(200)["data"]["reminders"], true, "preferences are per user");
    })
    .await;
}

#[tokio::test]
async fn kinds_change_by_name() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let put = async |body: Value| user.send(Method::PUT, SETTINGS, Some(body.to_string())).await;
        let kinds = async || user.get(SETTINGS).await.expect(200)["data"]["kinds"].clone();
        let defaults = kinds().await;
        let saved = put(json!({"kinds": {"passed": true, "result": false}})).await.expect(200)["data"].clone();
        let mut expected = defaults.clone();
        (expected["passed"], expected["result"]) = (json!(true), json!(false));
        assert_eq!((&saved["kinds"], &saved["reminders"]), (&expected, &json!(true)));
        put(json!({"kinds": {}})).await.expect(200);
        put(json!({"league_ranks": false})).await.expect(200);
        assert_eq!(kinds().await, expected, "other changes keep the kinds");
        let saved = put(json!({"reminders": false})).await.expect(200)["data"].clone();
        assert_eq!(saved["kinds"]["reminder"], false, "one setting");
        let saved = put(json!({"kinds": {"reminder": true}})).await.expect(200)["data"].clone();
        assert_eq!((&saved["reminders"], &saved["kinds"]["reminder"]), (&json!(true), &json!(true)));
        put(json!({"reminders": true, "kinds": {"reminder": true, "streak": true}})).await.expect(200);
        expected["streak"] = json!(true);
        for bad in [
            json!({"goal": true}),
            json!({"result": "yes"}),
            json!({"result": null}),
            json!({"result": 1}),
            json!([]),
            json!("result"),
            json!({"result": true, "goal": true}),
            json!({"reminder": false}),
        ] {
            let refused = put(json!({"kinds": bad, "reminders": true})).await;
            assert_eq!(refused.invalid_fields(), ["kinds"], "{bad}");
        }
        let refused = put(json!({"kinds": {"result": true}, "quiet_hours": {"from": "22:00"}})).await;
        assert_eq!(refused.invalid_fields(), ["quiet_hours"]);
        assert_eq!(kinds().await, expected, "a refused request changes nothing");
    })
    .await;
}

#[tokio::test]
async fn push_subscriptions_are_added_replaced_and_removed() {
    TestApp::run_with(&VAPID, async |app| {
        let (user, other) = (app.user().await, app.user().await);
        let list = async |who: &TestUser<'_>| who.get(SETTINGS).await.expect(200)["data"]["push"].clone();
        let hosts = async || {
            let hosts = list(&user).await;
            hosts.as_array().expect("a list").iter().map(|one| one["host"].to_string()).collect::<Vec<_>>()
        };
        let added =
            user.post(PUSH, Browser::new(1).subscription("https://push.example.org/send/secret")).await.expect(200);
        assert_eq!(
            added["data"],
            json!({"id": added["data"]["id"], "host": "push.example.org", "created_at": "2026-11-20T15:00:00.000Z"})
        );
        assert_eq!(list(&user).await, json!([added["data"]]));
        let keys = async || -> Vec<u8> {
            sqlx::query_scalar("select auth from push_subscriptions").fetch_one(&app.app.core.db).await.expect("one")
        };
        assert_eq!(keys().await, [1; 16]);
        let again =
            user.post(PUSH, Browser::new(2).subscription("https://push.example.org/send/secret")).await.expect(200);
        assert_eq!((&again["data"]["id"], keys().await), (&added["data"]["id"], vec![2; 16]), "replaced");
        // Another user subscribes with the same browser.
        other.post(PUSH, Browser::new(2).subscription("https://push.example.org/send/secret")).await.expect(200);
        for number in 0..10 {
            app.clock.advance(Duration::seconds(1));
            let endpoint = format!("https://push{number}.example.org/");
            user.post(PUSH, Browser::new(3).subscription(&endpoint)).await.expect(200);
        }
        let expected: Vec<String> = (0..10).map(|number| format!("\"push{number}.example.org\"")).collect();
        assert_eq!(hosts().await, expected, "ten at most; the oldest is removed");
        let first = list(&user).await[0]["id"].clone();
        other.delete(&format!("{PUSH}/{first}")).await.expect(404);
        user.delete(&format!("{PUSH}/{first}")).await.expect(200);
        user.delete(&format!("{PUSH}/{first}")).await.expect(404);
        user.delete(&format!("{PUSH}/x")).await.expect(404);
        assert_eq!(hosts().await.len(), 9);
        let good = Browser::new(9).subscription("https://push.example.org/");
        for (field, value) in [
            ("endpoint", json!("push.example.org")),
            ("endpoint", json!("mailto:ada@example.org")),
            ("endpoint", json!("ftp://push.example.org/")),
            ("endpoint", json!("https://ada:secret@push.example.org/")),
            ("endpoint", json!(format!("https://push.example.org/{}", "x".repeat(1_000)))),
            ("endpoint", Value::Null),
            ("keys", json!({})),
            ("keys", json!({"p256dh": good["keys"]["p256dh"], "auth": "AAAA"})),
            ("keys", json!({"p256dh": good["keys"]["auth"], "auth": good["keys"]["auth"]})),
            ("keys", Value::Null),
        ] {
            let mut body = good.clone();
            body[field] = value.clone();
            assert_eq!(user.post(PUSH, body).await.invalid_fields(), [field], "{value}");
        }
        assert_eq!(user.post(PUSH, json!({})).await.invalid_fields(), ["endpoint", "keys"]);
    })
    .await;
}

#[tokio::test]
async fn push_subscription_requires_key_and_allowed_push_service() {
    TestApp::run(async |app| {
        let user = app.user().await;
        assert_eq!(user.get(SETTINGS).await.expect(200)["data"]["vapid_public_key"], Value::Null);
        let refused = user.post(PUSH, Browser::new(1).subscription("https://push.example.org/")).await;
        assert_eq!(refused.expect(409)["code"], "push_unavailable");
    })
    .await;
    let staging = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "DE")];
    TestApp::run_with(&[VAPID.as_slice(), &staging].concat(), async |app| {
        let user = app.user().await;
        for endpoint in ["http://push.example.org/", "https://127.0.0.1/", "https://localhost/", "https://[fd00::1]/"] {
            let refused = user.post(PUSH, Browser::new(1).subscription(endpoint)).await;
            assert_eq!(refused.invalid_fields(), ["endpoint"], "{endpoint}");
        }
        for service in [
            "https://fcm.googleapis.com/fcm/send/abc",
            "https://updates.push.services.mozilla.com/wpush/v2/abc",
            "https://web.push.apple.com/abc",
            "https://wns2-par02p.notify.windows.com/w/?token=abc",
        ] {
            user.post(PUSH, Browser::new(1).subscription(service)).await.expect(200);
        }
        for other in [
            "https://push.example.org/",
            "https://fcm.googleapis.com:8443/",
            "https://fcm.googleapis.com.example.org/",
            "https://evilpush.apple.com/",
        ] {
            let refused = user.post(PUSH, Browser::new(1).subscription(other)).await.expect(422);
            let message = "The endpoint must be an address of a push service that this server supports.";
            assert_eq!(refused["errors"]["endpoint"], json!([message]), "{other}");
        }
    })
    .await;
    let own = [("MATCHDAY_NOTIFICATIONS__PUSH_SERVICES", "*.example.org")];
    TestApp::run_with(&[VAPID.as_slice(), &staging, &own].concat(), async |app| {
        let user = app.user().await;
        user.post(PUSH, Browser::new(1).subscription("https://push.example.org/")).await.expect(200);
        let refused = user.post(PUSH, Browser::new(1).subscription("https://web.push.apple.com/abc")).await;
        assert_eq!(refused.invalid_fields(), ["endpoint"]);
    })
    .await;
}

#[tokio::test]
async fn fans_without_prediction_are_reminded_in_browsers() {
    with_streams(&VAPID, async |app| {
        let service = Receiver::start(|_, _| Reply::status(201)).await;
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::minutes(50)).put().await;
        let endpoint = |name: &str| service.url.join(name).expect("an address").to_string();
        let (home, home_browser) = fan(app, &fixtures, "rovers", &endpoint("home")).await;
        // A fan of both teams as second choices, with two browsers.
        let (both, _) = fan(app, &fixtures, "wanderers", &endpoint("both")).await;
        let others = [fixtures.team_id("city").await, fixtures.team_id("rovers").await];
        both.post("/api/auth/teams/other", json!({"team_ids": others})).await.expect(200);
        both.post(PUSH, Browser::new(77).subscription(&endpoint("both-too"))).await.expect(200);
        let (predicted, _) = fan(app, &fixtures, "rovers", &endpoint("predicted")).await;
        predicted.post("/api/auth/predictions", json!({"event_id": event, "prediction": "home"})).await.expect(201);
        let (unwilling, _) = fan(app, &fixtures, "rovers", &endpoint("unwilling")).await;
        unwilling.send(Method::PUT, SETTINGS, Some(json!({"reminders": false}).to_string())).await.expect(200);
        let quiet = async |user: &TestUser<'_>, from: &str, until: &str, zone: &str| {
            let hours = json!({"quiet_hours": {"from": from, "until": until, "time_zone": zone}});
            user.send(Method::PUT, SETTINGS, Some(hours.to_string())).await.expect(200);
        };
        // It is 15:00 in London and 16:00 in Berlin.
        let (asleep, _) = fan(app, &fixtures, "city", &endpoint("asleep")).await;
        quiet(&asleep, "15:30", "16:30", "Europe/Berlin").await;
        let (awake, _) = fan(app, &fixtures, "city", &endpoint("awake")).await;
        quiet(&awake, "15:30", "16:30", "Europe/London").await;
        fan(app, &fixtures, "albion", &endpoint("elsewhere")).await;
        let (banned, _) = fan(app, &fixtures, "city", &endpoint("banned")).await;
        app.app.moderation.restrict(banned.id, Restriction::Ban, &Operator::new("ola", "spam")).await.expect("banned");
        app.published().await;
        let without = app.user().await;
        without.post("/api/auth/teams/primary", json!({"team_id": fixtures.team_id("city").await})).await.expect(200);

        assert_eq!(plan(app).await, 1);
        assert!(!work(app).await);
        let seen = service.seen();
        let mut paths: Vec<&str> = seen.iter().map(|received| received.path.as_str()).collect();
        paths.sort_unstable();
        assert_eq!(paths, ["/awake", "/both", "/both-too", "/home"]);
        let one = seen.iter().find(|received| received.path == "/home").expect("received");
        assert_eq!(
            home_browser.read(&one.body),
            json!({"type": "reminder.due", "data": {
                "event_id": event, "tournament_id": 1, "start_time": "2026-11-20T15:50:00.000Z",
                "home_team": {"id": fixtures.team_id("rovers").await, "name": format!("Rovers {}", fixtures.tag)},
                "away_team": {"id": fixtures.team_id("city").await, "name": format!("City {}", fixtures.tag)},
                "question_ids": []}})
        );
        assert_eq!((one.header("content-encoding"), one.header("ttl")), ("aes128gcm", "3000"));
        assert_eq!((one.header("topic"), one.header("urgency")), (format!("reminder-{event}").as_str(), "normal"));
        assert!(one.header("authorization").ends_with(&format!(", k={PUBLIC}")), "{}", one.header("authorization"));
        assert!(!one.body.windows(6).any(|part| part == b"Rovers"));
        assert_eq!(claims(app).await, 3, "only for notified fans");

        assert_eq!(plan(app).await, 0, "a match is planned once");
        assert!(!work(app).await);
        assert_eq!(service.seen().len(), 4, "a repeated batch sends nothing");
        let _ = home;
    })
    .await;
}

#[tokio::test]
async fn unanswered_questions_are_reminded_of() {
    let hook = Receiver::start(|_, _| Reply::status(200)).await;
    with_hook(&hook, async |app| {
        let fixtures = app.fixtures();
        let entry = fixtures.a_match("m").starting_in(Duration::minutes(50)).json();
        let question = |key: &str, locks_at: Value| json!({"key": key, "text": "How many?", "kind": "number", "points": 5, "locks_at": locks_at});
        let mut of_match = question("match", Value::Null);
        of_match["match"] = entry["key"].clone();
        let questions = [of_match, question("with it", entry["start_time"].clone()), question("later", json!("2099-01-01T00:00:00Z"))];
        let event = fixtures.import_with(json!({"questions": questions}), &[entry]).await[0];
        let ids: Vec<i64> = sqlx::query_scalar("select id from questions where key <> 'later' order by id")
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        let fans = crowd(app, fixtures.team_id("city").await, 3).await;
        // The first fan lacks everything, the second one answer, the third nothing.
        for (user, answered) in [(fans[1], &ids[..1]), (fans[2], &ids[..])] {
            let user = app.login(UserId(user)).await;
            user.post("/api/auth/predictions", json!({"event_id": event, "prediction": "home"})).await.expect(201);
            for id in answered {
                let path = format!("/api/auth/questions/{id}/answer");
                user.send(Method::PUT, &path, Some(json!({"answer": 3}).to_string())).await.expect(201);
            }
        }
        assert_eq!(plan(app).await, 1);
        assert!(!work(app).await);
        assert_eq!(received_users(&hook), BTreeMap::from([(fans[0], 1), (fans[1], 1)]));
        assert_eq!(hook.seen()[0].json()["data"]["question_ids"], json!(ids));
        assert!(!work(app).await);
        assert_eq!(received_users(&hook).values().sum::<usize>(), 2, "each fan is reminded once");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn reminder_is_sent_only_in_the_hour_before_kick_off() {
    let hook = Receiver::start(|_, _| Reply::status(200)).await;
    with_hook(&hook, async |app| {
        let fixtures = app.fixtures();
        let at = |key: &str, minutes| fixtures.a_match(key).starting_in(Duration::minutes(minutes));
        let event = at("m", 61).put().await;
        let fan = crowd(app, fixtures.team_id("rovers").await, 1).await[0];
        assert_eq!(plan(app).await, 0, "too early");
        app.clock.advance(Duration::minutes(1));
        assert_eq!(plan(app).await, 1);
        // Postponed after planning. The start is relative to the current time, so the kick-off itself does not change.
        fixtures.import(&[at("m", 60).being("postponed").json()]).await;
        work(app).await;
        assert!(hook.seen().is_empty(), "postponed");
        // Rescheduled to a later time.
        fixtures.import(&[at("m", 180).json()]).await;
        assert_eq!(plan(app).await, 0);
        work(app).await;
        assert!(hook.seen().is_empty(), "a batch for another start is dropped");
        app.clock.advance(Duration::hours(2));
        assert_eq!(plan(app).await, 1);
        app.clock.advance(Duration::minutes(60));
        work(app).await;
        assert!(hook.seen().is_empty(), "the match has started");
        // Moved again: the fan is reminded now, and not again after the next move.
        fixtures.import(&[at("m", 30).json()]).await;
        assert_eq!(plan(app).await, 1);
        work(app).await;
        assert_eq!(received_users(&hook), BTreeMap::from([(fan, 1)]));
        fixtures.import(&[at("m", 50).json()]).await;
        assert_eq!(plan(app).await, 1);
        work(app).await;
        assert_eq!(received_users(&hook), BTreeMap::from([(fan, 1)]), "one reminder for each match");
        let received = &hook.seen()[0];
        let signature = SigningSecret::parse(SECRET).expect("a secret").sign(
            received.header("webhook-id"),
            app.clock.now(),
            &received.body,
        );
        assert_eq!(received.header("webhook-signature"), signature);
        let body = received.json();
        assert_eq!((&body["type"], &body["data"]["event_id"]), (&json!("reminder.due"), &json!(event)));
        assert_eq!(body["data"]["user_ids"], json!([fan]));
    })
    .await;
}

#[tokio::test]
async fn fan_who_predicts_after_planning_is_not_reminded() {
    let hook = Receiver::start(|_, _| Reply::status(200)).await;
    with_hook(&hook, async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::minutes(30)).put().await;
        let (quick, slow) = (app.user().await, app.user().await);
        for user in [&quick, &slow] {
            user.post("/api/auth/teams/primary", json!({"team_id": fixtures.team_id("city").await})).await.expect(200);
        }
        assert_eq!(plan(app).await, 1);
        quick.post("/api/auth/predictions", json!({"event_id": event, "prediction": "away"})).await.expect(201);
        work(app).await;
        assert_eq!(received_users(&hook), BTreeMap::from([(slow.id.0, 1)]));
    })
    .await;
}

#[tokio::test]
async fn gone_browser_is_removed_and_busy_one_is_retried() {
    with_streams(&VAPID, async |app| {
        let status = Arc::new(AtomicU16::new(503));
        let now = Arc::clone(&status);
        let service = Receiver::start(move |_, received| match received.path.as_str() {
            "/gone" => Reply::status(410),
            "/lost" => Reply::status(404),
            "/refused" => Reply::status(403),
            "/silent" => Reply::never(),
            _ => Reply::status(now.load(Ordering::SeqCst)),
        })
        .await;
        let fixtures = app.fixtures();
        fixtures.a_match("m").starting_in(Duration::minutes(30)).put().await;
        let endpoint = |name: &str| service.url.join(name).expect("an address").to_string();
        for name in ["gone", "lost", "refused", "silent", "busy"] {
            fan(app, &fixtures, "rovers", &endpoint(name)).await;
        }
        let count = |name: &str| service.seen().iter().filter(|received| received.path == name).count();
        assert_eq!(plan(app).await, 1);
        assert!(work(app).await, "one fan must be retried");
        let left: Vec<String> = sqlx::query_scalar("select endpoint from push_subscriptions order by id")
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(left, [endpoint("refused"), endpoint("silent"), endpoint("busy")]);
        assert_eq!(claims(app).await, 4, "only the claim of a fan who got nothing is released");
        assert!(work(app).await);
        status.store(201, Ordering::SeqCst);
        assert!(!work(app).await);
        assert!(!work(app).await);
        assert_eq!(count("/busy"), 3, "retried until accepted");
        assert_eq!(["/gone", "/lost", "/refused", "/silent"].map(count), [1; 4], "never twice");
        assert_eq!(claims(app).await, 5);
    })
    .await;
}

#[tokio::test]
async fn failed_hook_is_retried_with_same_users() {
    let answers = [500, 429, 200];
    let hook = Receiver::start(move |before, _| Reply::status(answers[before.min(2)])).await;
    with_hook(&hook, async |app| {
        let fixtures = app.fixtures();
        fixtures.a_match("m").starting_in(Duration::minutes(30)).put().await;
        let fans = crowd(app, fixtures.team_id("rovers").await, 3).await;
        assert_eq!(plan(app).await, 1);
        assert!(work(app).await && work(app).await && !work(app).await && !work(app).await);
        let received: Vec<Value> =
            hook.seen().iter().map(|received| received.json()["data"]["user_ids"].clone()).collect();
        assert_eq!(received, vec![json!(fans); 3]);
    })
    .await;
    // If delivery is uncertain, nothing is sent again.
    let silent = Receiver::start(|_, _| Reply::never()).await;
    with_hook(&silent, async |app| {
        let fixtures = app.fixtures();
        fixtures.a_match("m").starting_in(Duration::minutes(30)).put().await;
        crowd(app, fixtures.team_id("rovers").await, 3).await;
        assert_eq!(plan(app).await, 1);
        assert!(!work(app).await && !work(app).await);
        assert_eq!(silent.seen().len(), 1);
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn concurrent_planners_and_workers_remind_each_fan_once() {
    let hook = Receiver::start(|_, _| Reply::status(200)).await;
    with_hook(&hook, async |app| {
        let fixtures = app.fixtures();
        fixtures.a_match("m").starting_in(Duration::minutes(30)).put().await;
        fixtures.a_match("n").between("albion", "rovers").starting_in(Duration::minutes(40)).put().await;
        let rovers = crowd(app, fixtures.team_id("rovers").await, 2_600).await;
        // Every tenth user is a fan of both teams of the first match.
        sqlx::query("insert into user_teams (user_id, rank, team_id) select user_id, 1, $1 from user_teams where user_id % 10 = 0")
            .bind(fixtures.team_id("city").await)
            .execute(&app.app.core.db)
            .await
            .expect("fans");
        let (a, b, c) = tokio::join!(plan(app), plan(app), plan(app));
        assert!(a + b + c >= 12, "several planners may have queued the same batch: {a} {b} {c}");
        let batches = batches(app).await;
        let users = |batch: &Delivery| {
            let batch: Value = serde_json::from_slice(&batch.payload).expect("JSON");
            (batch["event_id"].as_i64(), batch["after"].as_i64().expect("a user"), batch["until"].as_i64().expect("a user"))
        };
        assert!(batches.iter().map(users).all(|(_, after, until)| until - after <= 500), "no batch is larger than 500");
        let planned: std::collections::BTreeSet<_> = batches.iter().map(users).collect();
        assert_eq!(planned.len(), batches.len(), "no batch is queued twice");
        let working = (0..4).flat_map(|_| batches.iter().cloned()).map(|batch| async {
            app.app.notifications.perform(batch).await.expect("done");
        });
        futures_util::future::join_all(working).await;
        let reminded = received_users(&hook);
        assert_eq!(reminded.len(), rovers.len());
        assert!(reminded.values().all(|times| *times == 2), "once for each match");
        assert!(hook.seen().iter().all(|one| one.json()["data"]["user_ids"].as_array().expect("users").len() <= 100));
        assert_eq!(claims(app).await, 5_200);

        app.clock.advance(Duration::days(29));
        assert_eq!(app.app.notifications.sweep().await.expect("swept"), 0);
        app.clock.advance(Duration::days(2));
        assert_eq!(app.app.notifications.sweep().await.expect("swept"), 5_200 + 2);
        assert_eq!(claims(app).await, 0);
    })
    .await;
}

#[tokio::test]
async fn nothing_is_planned_without_channels() {
    with_streams(&[], async |app| {
        let fixtures = app.fixtures();
        fixtures.a_match("m").starting_in(Duration::minutes(30)).put().await;
        crowd(app, fixtures.team_id("rovers").await, 3).await;
        assert_eq!(plan(app).await, 0);
        assert!(batches(app).await.is_empty());
        let unknown = UserId(99);
        assert!(app.app.notifications.settings(unknown).await.expect("read").reminders);
    })
    .await;
}

/// Performs the pages of a complete round. Returns whether any must be retried.
async fn complete_round(app: &TestApp, tournament: i64, round: i16) -> bool {
    let fact = json!({"event_id": 1, "tournament_id": tournament, "tournament": "Cup", "round": round, "winners": [],
                      "points": null});
    let (subject, payload) = ("fact.round.completed".to_owned(), fact.to_string().into());
    let leagues = &app.app.league_notifications;
    leagues.plan(Delivery { subject, id: Some("r".to_owned()), payload, attempt: 1 }).await.expect("planned");
    let work = app.app.streams.replay(Stream::Work).await.expect("read");
    let mut again = false;
    for (subject, payload) in work.into_iter().filter(|(subject, _)| subject == PAGE) {
        match leagues.perform(Delivery { subject, id: None, payload, attempt: 1 }).await {
            Ok(()) => {}
            Err(Failure::Retry { .. }) => again = true,
            Err(Failure::GiveUp(error)) => panic!("{error:#}"),
        }
    }
    again
}

#[tokio::test]
async fn member_who_lost_places_is_notified_once() {
    let status = Arc::new(AtomicU16::new(503));
    let now = Arc::clone(&status);
    let hook = Receiver::start(move |_, _| Reply::status(now.load(Ordering::SeqCst))).await;
    with_hook(&hook, async |app| {
        // These matches have not started by the clock of the database.
        let (fixtures, far) = (app.fixtures(), Duration::days(365 * 75));
        let entry = |key: &str, round: i16| fixtures.a_match(key).starting_in(far).with(json!({"round": round}));
        let events = [entry("m", 1).put().await, entry("n", 2).put().await];
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(events[0])
            .fetch_one(&app.app.core.db)
            .await
            .expect("a tournament");
        let mut users = Vec::new();
        // Two users lead after the first round, and are behind the others after the second.
        for scores in [&[(1, 0)][..], &[(1, 0)], &[(2, 1), (1, 0)], &[(3, 0), (1, 0)]] {
            let user = app.user().await;
            for (&event, (home, away)) in events.iter().zip(scores) {
                let body = json!({"event_id": event, "prediction": "home",
                                  "score_prediction": {"home": home, "away": away}});
                user.post("/api/auth/predictions", body).await.expect(201);
            }
            users.push(user);
        }
        let body = json!({"name": "Friends", "tournament_ids": [tournament]});
        let league = users[0].post("/api/auth/leagues", body).await.expect(201)["data"].take();
        for user in &users[1..] {
            user.post("/api/auth/leagues/join", json!({"code": league["code"]})).await.expect(200);
        }
        users[1].send(Method::PUT, SETTINGS, Some(json!({"league_ranks": false}).to_string())).await.expect(200);
        entry("m", 1).at("finished", 1, 0).put().await;
        app.settle().await;
        assert!(!complete_round(app, tournament, 1).await);
        assert!(hook.seen().is_empty(), "the first round shows no movement");
        entry("n", 2).at("finished", 1, 0).put().await;
        app.settle().await;
        assert!(complete_round(app, tournament, 2).await, "the hook is down");
        status.store(204, Ordering::SeqCst);
        for _ in 0..2 {
            assert!(!complete_round(app, tournament, 2).await);
        }
        let bodies: Vec<Value> =
            hook.seen().iter().map(|seen| serde_json::from_slice(&seen.body).expect("JSON")).collect();
        assert_eq!(bodies.len(), 2, "once in vain, and once: {bodies:?}");
        assert_eq!(bodies[1]["type"], "league.passed");
        assert_eq!(
            bodies[1]["data"],
            json!({"league_id": league["id"], "league": "Friends", "tournament_id": tournament, "round": 2,
                   "user_ids": [users[0].id],
                   "users": [{"user_id": users[0].id, "rank": 3, "previous_rank": 1, "points": 40}]})
        );
        app.published().await;
    })
    .await;
}
