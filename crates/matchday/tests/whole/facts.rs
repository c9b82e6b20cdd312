//! The log of facts while processes are killed and NATS loses its streams.

use std::time::{Duration, Instant};

use matchday::{
    app::App,
    config::Config,
    delivery::facts::{rules::After, service::Facts},
    identity::account_deletion::service::DELETED,
    testing::{Receiver, Reply, eventually, with_database},
};
use platform::outbox::{self, Message};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::{process::Setting, relay::streams};

async fn facts(setting: &Setting) -> Facts {
    let config = Config::parse(setting.variables().clone(), None).expect("valid").config;
    App::connect(config).await.expect("connected").facts.clone()
}

/// Writes facts of made-up users.
async fn write(db: &PgPool, key: i64, number: i64) {
    let user = json!({"user_id": key * 1_000 + number});
    let message = Message::new(DELETED, format!("user:{key}"), &user).expect("JSON").logged();
    let mut tx = platform::database::begin(db).await.expect("begun");
    outbox::enqueue(&mut tx, &[message]).await.expect("written");
    tokio::time::sleep(Duration::from_millis((key * 7 + number).unsigned_abs() % 13)).await;
    tx.commit().await.expect("committed");
}

/// Reads on from a position until this many facts are read.
async fn follow(facts: &Facts, mut after: Option<After>, number: usize) -> (Vec<Value>, Option<After>) {
    let mut read: Vec<Value> = Vec::new();
    while read.len() < number {
        let page = facts.page(after, 3).await.expect("a page");
        read.extend(serde_json::from_str::<Vec<Value>>(&format!("[{}]", page.items)).expect("JSON"));
        after = Some(After::Position(page.next_after));
        if !page.more {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    }
    (read, after)
}

#[tokio::test(flavor = "multi_thread")]
async fn facts_survive_killed_processes_and_wiped_nats() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_OUTBOX__LEASE", "1s")
            .with("MATCHDAY_OUTBOX__POLL", "20ms");
        let (streams, facts) = (streams(&setting).await, facts(&setting).await);
        let db = PgPool::connect_with(options).await.expect("connected");
        let mut workers = vec![setting.start(&["worker"]), setting.start(&["worker"])];
        let writers: Vec<_> = (1..=3)
            .map(|key| {
                let db = db.clone();
                tokio::spawn(async move {
                    for number in 0..150 {
                        write(&db, key, number).await;
                        tokio::time::sleep(Duration::from_millis(15)).await;
                    }
                })
            })
            .collect();
        let reader = tokio::spawn({
            let facts = facts.clone();
            async move { follow(&facts, None, 450).await }
        });
        for (round, pause) in [300, 700, 200, 900].into_iter().enumerate() {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            workers.remove(0).kill();
            if round == 1 {
                streams.remove().await;
            }
            workers.push(setting.start(&["worker"]));
        }
        for writer in writers {
            writer.await.expect("written");
        }
        let (read, after) =
            tokio::time::timeout(Duration::from_secs(30), reader).await.expect("in time").expect("read");
        for key in 1..=3 {
            let users = read.iter().map(|fact| fact["data"]["user_id"].as_i64().expect("a user"));
            let numbers: Vec<i64> = users.filter(|user| user / 1_000 == key).map(|user| user % 1_000).collect();
            assert_eq!(numbers, (0..150).collect::<Vec<_>>(), "key {key}");
        }
        assert_eq!(follow(&facts, None, 450).await.0, read, "the order stays");

        // The holder of the lease is one of the two, and is killed by the second round at the latest.
        let mut after = after;
        for number in 0..2 {
            workers.remove(0).kill();
            let written = Instant::now();
            write(&db, 4, number).await;
            after = follow(&facts, after, 1).await.1;
            assert!(written.elapsed() < Duration::from_secs(5), "visible after {:?}", written.elapsed());
            workers.push(setting.start(&["worker"]));
        }
        let end = facts.page(after, 10).await.expect("a page");
        assert!(end.items.is_empty(), "nothing was recorded twice: {end:?}");
        drop(workers);
        streams.remove().await;
        db.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fact_has_the_id_of_its_webhook() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", "")
            .with("MATCHDAY_WEBHOOKS__KEYS", &format!("1:{}", "ab".repeat(32)));
        let (streams, facts) = (streams(&setting).await, facts(&setting).await);
        let receiver = Receiver::start(|_, _| Reply::status(200)).await;
        setting.expect(&["webhooks", "add", receiver.url.as_str(), "--type", "event.result"], "");
        let worker = setting.start(&["worker"]);
        let document = json!({
            "sport": {"slug": "football", "name": "Football"}, "tournament": {"slug": "cup", "name": "Cup", "logo": null},
            "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}],
            "matches": [{"key": "m", "home": "rovers", "away": "city", "start_time": "2026-01-10T15:00:00Z", "venue": "Park",
                         "status": "finished", "home_score": 2, "away_score": 0}],
        });
        setting.expect(&["fixtures", "import", "-", "--no-wait"], &document.to_string());
        let (read, _) = follow(&facts, None, 2).await;
        assert_eq!((&read[0]["type"], &read[1]["type"]), (&json!("event.created"), &json!("event.result")));
        eventually("the webhook arrives", async || !receiver.seen().is_empty()).await;
        let message = receiver.seen().remove(0);
        assert_eq!(read[1]["id"], message.header("webhook-id"));
        let body = message.json();
        assert_eq!((&read[1]["timestamp"], &read[1]["data"]), (&body["timestamp"], &body["data"]));
        drop(worker);
        streams.remove().await;
    })
    .await;
}
