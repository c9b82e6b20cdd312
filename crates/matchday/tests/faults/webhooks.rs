//! Webhook deliveries that wait for a retry are stored in NATS, and must survive a restart of the server.

use std::time::{Duration, Instant};

use matchday::testing::{Received, Receiver, Reply, with_database};
use serde_json::json;

use crate::{
    dependencies::nats::Nats,
    stage::{client::within, process::Setting, proof::held},
};

/// Retry delay after the first failure, during which the server is killed.
const PAUSE: Duration = Duration::from_secs(8);

/// Imports one match with this result.
fn import(setting: &Setting, home: i32) {
    let document = json!({
        "sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup", "logo": null},
        "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
        "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2026-01-10T15:00:00Z",
                     "venue": "Park", "status": "finished", "home_score": home, "away_score": 0}]});
    setting.expect(&["fixtures", "import", "-", "--no-wait"], &document.to_string());
}

/// Deliveries of the result with this many home goals.
fn deliveries(receiver: &Receiver, home: i32) -> Vec<Received> {
    let is_result = |received: &Received| {
        let body = received.json();
        body["type"] == "event.result" && body["data"]["home_score"] == home
    };
    receiver.seen().into_iter().filter(is_result).collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn pending_retries_survive_nats_restart() {
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
        within(Duration::from_secs(20), "the first attempt is made", async || deliveries(&receiver, 1).len() == 1)
            .await;
        nats.kill_all();
        let killed = Instant::now();
        import(&setting, 2);
        nats.restart().await;
        let downtime = killed.elapsed();
        within(Duration::from_mins(1), "both results are delivered", async || {
            deliveries(&receiver, 1).len() == 2 && !deliveries(&receiver, 2).is_empty()
        })
        .await;
        let (waited, late) = (deliveries(&receiver, 1), deliveries(&receiver, 2));
        assert_eq!(waited[0].header("webhook-id"), waited[1].header("webhook-id"));
        let pause = waited[1].at - waited[0].at;
        assert!(pause >= PAUSE, "the retry delay is kept: {pause:?}");
        assert!(late.iter().all(|received| received.header("webhook-id") == late[0].header("webhook-id")));
        drop(worker);
        held(
            "NATS killed (-9) while a webhook delivery waits for its retry, with a result imported during the outage",
            &format!(
                "NATS was down for {downtime:.1?}; the delivery was retried {pause:.1?} after its first attempt (8 s \
                 configured), under the same id; the result imported during the outage was delivered"
            ),
        );
    })
    .await;
}
