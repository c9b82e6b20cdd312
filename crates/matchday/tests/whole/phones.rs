//! Push notifications from a result to the devices, sent by two processes of the real binary.

use std::sync::Arc;

use http::Method;
use matchday::testing::{unique, with_database};
use phone_push::stand_in::{FcmStandIn, Reaction};
use platform::{
    clock::{Clock as _, SystemClock},
    stream::Stream,
};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::{
    client::{Client, PATIENCE, within},
    process::Setting,
    relay::streams,
};

const FANS: usize = 12;

fn document(score: Option<(i32, i32)>) -> String {
    json!({"sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2090-01-10T15:00:00Z",
                        "venue": "Park", "status": if score.is_some() { "finished" } else { "scheduled" },
                        "home_score": score.map(|score| score.0), "away_score": score.map(|score| score.1)}]})
    .to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn result_notifies_each_device_exactly_once() {
    with_database(async |options| {
        let fcm = FcmStandIn::start(Arc::new(|| SystemClock.now())).await.expect("started");
        let account = std::env::temp_dir().join(format!("{}.json", unique("account")));
        std::fs::write(&account, fcm.account()).expect("written");
        let setting = Setting::new(&options)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_FCM__URL", &fcm.url())
            .with("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", account.to_str().expect("a path"));
        let streams = streams(&setting).await;
        let db = PgPool::connect_with(options).await.expect("connected");
        setting.expect(&["fixtures", "import", "-", "--no-wait"], &document(None));
        let processes = [setting.start(&["serve"]), setting.start(&["serve"])];
        let client = Client::new(&processes[0]);
        let event: i64 = sqlx::query_scalar("select id from events").fetch_one(&db).await.expect("a match");
        let token = |fan: usize| format!("fan-{fan}");
        for fan in 0..FANS {
            let person = client.log_in(&format!("+141555503{fan:02}"), None).await;
            let device = json!({"platform": "fcm", "token": token(fan)}).to_string();
            let saved = client.send(Method::PUT, "/api/auth/devices/device-1", &person.token, device).await.expect(200);
            assert_eq!(saved["data"]["deliverable"], true);
            let prediction = json!({"event_id": event, "prediction": "home"});
            client.post("/api/auth/predictions", &person.token, prediction).await.expect(201);
        }
        // One device gets it later, on the second attempt.
        let later = Reaction::error(503, "UNAVAILABLE").retry_after("1".to_owned());
        fcm.record().react_for(&token(0), [later]);
        let kinds = |fan: usize| -> Vec<Value> {
            let received = fcm.record().received();
            let own = received.into_iter().filter(|received| received.token == token(fan));
            own.map(|received| received.body["message"]["data"]["kind"].clone()).collect()
        };
        let all_have = |number: usize| (0..FANS).all(|fan| kinds(fan).len() == number);
        setting.expect(&["fixtures", "import", "-", "--no-wait"], &document(Some((1, 0))));
        within(PATIENCE, "all devices are notified of the result", async || all_have(1)).await;
        setting.expect(&["fixtures", "import", "-", "--no-wait"], &document(Some((0, 1))));
        within(PATIENCE, "all devices are notified of the correction", async || all_have(2)).await;
        let idle = async || streams.waiting(Stream::Work, "work.notify.>").await.expect("read").is_empty();
        within(PATIENCE, "no work is left", idle).await;
        for fan in 0..FANS {
            assert_eq!(kinds(fan), ["result", "correction"], "{fan}");
            assert_eq!(fcm.record().counts(&token(fan)).attempts, if fan == 0 { 3 } else { 2 });
        }
        assert!(fcm.record().refused().is_empty(), "{:?}", fcm.record().refused());
        drop(processes);
        std::fs::remove_file(account).expect("removed");
        streams.remove().await;
        db.close().await;
    })
    .await;
}

#[tokio::test]
async fn faulty_push_settings_stop_the_start_in_one_line() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_MATRIX__HOMESERVER_URL", "");
        let folder = std::env::temp_dir().join(unique("faulty"));
        std::fs::create_dir_all(folder.join("de")).expect("created");
        std::fs::write(folder.join("de/messages.ftl"), "push-goal-title = Tor").expect("written");
        std::fs::write(folder.join("key.json"), "{}").expect("written");
        let fcm = FcmStandIn::start(Arc::new(|| SystemClock.now())).await.expect("started");
        std::fs::write(folder.join("plain.json"), fcm.account()).expect("written");
        let path = |name: &str| folder.join(name).to_str().expect("a path").to_owned();
        for (changes, expected) in [
            (
                vec![("MATCHDAY_APNS__KEY_ID", "ABC".to_owned())],
                "apns.key_file, apns.key_id, apns.team_id and apns.topic must be set together",
            ),
            (vec![("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", path("missing.json"))], "fcm.service_account_file"),
            (vec![("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", path("key.json"))], "the service account file must be JSON"),
            (
                vec![
                    ("MATCHDAY_ENV", "staging".to_owned()),
                    ("MATCHDAY_SMS__COUNTRIES", "US".to_owned()),
                    ("MATCHDAY_FCM__SERVICE_ACCOUNT_FILE", path("plain.json")),
                ],
                "plain.json: token_uri must be an https URL",
            ),
            (vec![("MATCHDAY_NOTIFICATIONS__LOCALES_DIR", path(""))], "the message `push-goal-title` is unknown"),
            (vec![("MATCHDAY_NOTIFICATIONS__DEFAULT_LOCALE", "German".to_owned())], "notifications.default_locale"),
        ] {
            let faulty = changes.iter().fold(setting.clone(), |setting, (name, value)| setting.with(name, value));
            let output = faulty.run(&["serve"], "");
            let shown = String::from_utf8_lossy(&output.stderr).into_owned() + &String::from_utf8_lossy(&output.stdout);
            assert!(!output.status.success(), "{shown}");
            assert!(shown.lines().any(|line| line.contains(expected)), "{expected}: {shown}");
        }
        std::fs::remove_dir_all(folder).expect("removed");
    })
    .await;
}
