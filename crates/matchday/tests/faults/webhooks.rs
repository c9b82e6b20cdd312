//! What waits for an endpoint is with NATS; it must outlive its server.

use std::time::{Duration, Instant};

use matchday::testing::{Received, Receiver, Reply, with_database};
use serde_json::json;

use crate::{
    dependencies::nats::Nats,
    stage::{client::within, process::Setting, proof::held},
};

/// The pause after a first failure, during which the server is killed.
const PAUSE: Duration = Duration::from_secs(8);

/// One match with this result.
fn import(setting: &Setting, home: i32) {
    let document = json!({
        "sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup", "logo": null},
        "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
        "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2026-01-10T15:00:00Z",
                     "venue": "Park", "status": "finished", "home_score": home, "away_score": 0}]});
    setting.expect(&["fixtures", "import", "-", "--no-wait"], &document.to_string());
}

/// What was told of the result with so many goals.
fn of(receiver: &Receiver, home: i32) -> Vec<Received> {
    let told = |received: &Received| {
        let body = received.json();
        body["type"] == "event.result" && body["data"]["home_score"] == home
    };
    receiver.seen().into_iter().filter(told).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_that_wait_for_another_try_outlive_the_server() {
    with_database(async |owner| {
        let mut nats = Nats::alone().await;
        let setting = Setting::new(&owner)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_NATS__URL", &nats.url())
            .with("MATCHDAY_WEBHOOKS__KEYS", &format!("1:{}", "ab".repeat(32)))
            .with("MATCHDAY_WEBHOOKS__PAUSES", "8s,1s,1s");
        let receiver = Receiver::start(|before, _| Reply::status(if before == 0 { 500 } else { 200 })).await;
        setting.expect(&["webhooks", "add", receiver.url.as_str(), "--type", "event.result"], "");
        let worker = setting.start(&["worker"]);
        import(&setting, 1);
        within(Duration::from_secs(20), "it is tried", async || of(&receiver, 1).len() == 1).await;
        nats.kill_all();
        let killed = Instant::now();
        import(&setting, 2);
        nats.start_again().await;
        let away = killed.elapsed();
        within(Duration::from_mins(1), "both are taken", async || {
            of(&receiver, 1).len() == 2 && !of(&receiver, 2).is_empty()
        })
        .await;
        let (waited, late) = (of(&receiver, 1), of(&receiver, 2));
        assert_eq!(waited[0].header("webhook-id"), waited[1].header("webhook-id"));
        let pause = waited[1].at - waited[0].at;
        assert!(pause >= PAUSE, "the pause is kept: {pause:?}");
        assert!(late.iter().all(|received| received.header("webhook-id") == late[0].header("webhook-id")));
        drop(worker);
        held(
            "faults",
            "NATS killed (-9) while a webhook waits for another try, with a result imported meanwhile",
            &format!(
                "away for {away:.1?}; the webhook was sent again {pause:.1?} after its first try (8 s were due), under the same \
                 id; the result that came meanwhile was told"
            ),
        );
    })
    .await;
}
