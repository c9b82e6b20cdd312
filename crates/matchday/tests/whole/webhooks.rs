//! Webhooks sent by the real binary: commands for operators, and a worker that is killed during a delivery.

use matchday::testing::{Received, Receiver, Reply, eventually, with_database};
use platform::stream::Stream;
use serde_json::json;
use sqlx::postgres::PgConnectOptions;

use crate::{process::Setting, relay::streams};

fn setting(options: &PgConnectOptions) -> Setting {
    Setting::new(options)
        .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
        .with("MATCHDAY_WEBHOOKS__KEYS", &format!("1:{}", "ab".repeat(32)))
}

/// One match with this result.
fn document(home: i32) -> String {
    json!({"sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup", "logo": null},
           "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
           "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2026-01-10T15:00:00Z",
                        "venue": "Park", "status": "finished", "home_score": home, "away_score": 0}]})
    .to_string()
}

fn import(setting: &Setting, home: i32) {
    setting.expect(&["fixtures", "import", "-", "--no-wait"], &document(home));
}

fn results(receiver: &Receiver) -> Vec<Received> {
    receiver.seen().into_iter().filter(|received| received.json()["type"] == "event.result").collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn operator_adds_tests_and_replays_webhook_endpoint() {
    with_database(async |options| {
        let setting = setting(&options).with("MATCHDAY_WEBHOOKS__PAUSES", "20ms");
        let streams = streams(&setting).await;
        assert_eq!(setting.expect(&["webhooks", "list"], ""), "no endpoints");
        let receiver = Receiver::start(|_, received| match received.json()["data"]["home_score"].as_i64() {
            Some(1) => Reply::status(500),
            _ => Reply::status(200).saying("thank\u{1b}[2J you"),
        })
        .await;
        let added = setting.expect(&["webhooks", "add", receiver.url.as_str(), "--type", "event.result"], "");
        let (printed, secret) = added.split_once('\n').expect("two lines");
        assert_eq!(printed, "endpoint 1 receives event.result; store its secret now, it is not shown again:");
        assert!(secret.starts_with("whsec_"), "{secret}");
        let listed = setting.expect(&["webhooks", "list"], "");
        assert!(listed.starts_with(&format!("1 {} since 2", receiver.url)), "{listed}");
        assert!(listed.ends_with(": event.result") && !listed.contains(&secret[6..]), "{listed}");
        let tried = setting.expect(&["webhooks", "test", "1"], "");
        assert!(tried.starts_with("endpoint 1: 200 OK \"thank [2J you\", after "), "{tried}");
        for (arguments, message) in [
            (vec!["webhooks", "test", "2"], "endpoint 2 does not exist: `matchday webhooks list` lists all"),
            (vec!["webhooks", "remove", "2"], "endpoint 2 does not exist: `matchday webhooks list` lists all"),
            (
                vec!["webhooks", "replay", "7"],
                "webhook dead letter 7 does not exist: `matchday webhooks dead` lists all",
            ),
        ] {
            let output = setting.run(&arguments, "");
            assert_eq!(String::from_utf8_lossy(&output.stderr).trim(), format!("matchday: {message}"));
        }
        for wrong in
            [vec!["webhooks", "replay"], vec!["webhooks", "replay", "--all", "7"], vec!["webhooks", "add", "x"]]
        {
            assert_eq!(setting.run(&wrong, "").status.code(), Some(2), "{wrong:?}");
        }

        assert_eq!(setting.expect(&["webhooks", "dead"], ""), "no dead letters");
        let worker = setting.start(&["worker"]);
        import(&setting, 1);
        eventually("the delivery is a dead letter", async || {
            !streams.dead("work.webhook.deliver.1").await.expect("read").is_empty()
        })
        .await;
        let dead = setting.expect(&["webhooks", "dead", "--endpoint", "1"], "");
        let id = results(&receiver)[0].header("webhook-id").to_owned();
        assert!(
            dead.starts_with("1 ")
                && dead.ends_with(&format!(" ago, endpoint 1, event.result {id}: responded with 500")),
            "{dead}"
        );
        assert_eq!(setting.expect(&["webhooks", "replay", "1"], ""), "1 message queued again");
        eventually("the delivery is a dead letter again", async || {
            results(&receiver).len() == 4 && !streams.dead("work.webhook.deliver.1").await.expect("read").is_empty()
        })
        .await;
        assert!(results(&receiver).iter().all(|received| received.header("webhook-id") == id));
        let counted = worker.counted("matchday_webhooks_total").await;
        assert!((counted - 4.0).abs() < 0.5, "every attempt is counted: {counted}");
        assert!(worker.log().iter().all(|line| !line.contains(&secret[6..])), "secrets stay out of the log");

        assert_eq!(setting.expect(&["webhooks", "remove", "1"], ""), "endpoint 1 removed");
        assert_eq!(setting.expect(&["webhooks", "replay", "--all"], ""), "0 messages queued again");
        streams.remove().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn delivery_killed_before_ack_is_resent_with_same_id() {
    with_database(async |options| {
        let setting = setting(&options);
        let streams = streams(&setting).await;
        // The endpoint accepts the first delivery, but its response never arrives.
        let receiver = Receiver::start(|before, _| if before == 0 { Reply::never() } else { Reply::status(200) }).await;
        setting.expect(&["webhooks", "add", receiver.url.as_str()], "");
        let mut worker = setting.start(&["worker"]);
        import(&setting, 1);
        eventually("the delivery is sent", async || receiver.seen().len() == 1).await;
        worker.kill();
        let next = setting.start(&["worker"]);
        eventually("the delivery is sent again", async || receiver.seen().len() >= 2).await;
        eventually("the delivery is acknowledged", async || {
            streams.waiting(Stream::Work, "work.webhook.deliver.*").await.expect("read").is_empty()
        })
        .await;
        let seen = receiver.seen();
        assert_eq!(seen.len(), 2);
        assert_eq!(seen[0].header("webhook-id"), seen[1].header("webhook-id"));
        assert_eq!(seen[0].body, seen[1].body);
        drop(next);
        streams.remove().await;
    })
    .await;
}
