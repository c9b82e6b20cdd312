use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::StreamExt as _;
use serde_json::json;
use sqlx::PgPool;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::{
    clock::SystemClock,
    lease::Leases,
    stream::{Stream, Streams},
    testing::{as_service, eventually, streams_for_tests, with_database},
};

/// Longer than any test.
const LONG: Duration = Duration::from_hours(1);

async fn write(db: &PgPool, key: &str, number: usize) {
    let mut tx = crate::database::begin(db).await.expect("begun");
    let message = Message::new("fact.test", key, &json!({"key": key, "number": number})).expect("JSON");
    enqueue(&mut tx, &[message]).await.expect("written");
    tx.commit().await.expect("committed");
}

fn relay(db: &PgPool, streams: &Streams, lease: &'static str) -> Relay {
    let lease = Leases::new(db.clone(), Uuid::from_u128(1), None).lease(lease, Duration::from_secs(10));
    let (poll, wake) = (Duration::from_millis(20), Arc::new(Notify::new()));
    Relay::new(db.clone(), streams.clone(), lease, poll, wake, Arc::new(SystemClock))
}

async fn is_empty(db: &PgPool) -> bool {
    let left: i64 = sqlx::query_scalar("select count(*) from outbox").fetch_one(db).await.expect("read");
    left == 0
}

/// Published numbers of each key, in order.
async fn published(streams: &Streams) -> HashMap<String, Vec<usize>> {
    let mut by_key: HashMap<String, Vec<usize>> = HashMap::new();
    for (_, payload) in streams.replay(Stream::Facts).await.expect("read") {
        let body: serde_json::Value = serde_json::from_slice(&payload).expect("JSON");
        let number = body["number"].as_u64().and_then(|n| usize::try_from(n).ok()).expect("a number");
        by_key.entry(body["key"].as_str().expect("a key").to_owned()).or_default().push(number);
    }
    by_key
}

#[tokio::test]
async fn message_is_published_only_after_commit() {
    with_database(async |options| {
        let (db, streams) =
            (PgPool::connect_with(as_service(&options)).await.expect("connected"), streams_for_tests().await);
        let mut tx = crate::database::begin(&db).await.expect("begun");
        enqueue(&mut tx, &[Message::new("fact.test", "k", &json!({"key": "k", "number": 0})).expect("JSON")])
            .await
            .expect("written");
        tx.rollback().await.expect("rolled back");
        write(&db, "k", 1).await;
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(relay(&db, &streams, "test relay").run(shutdown.clone()));
        eventually("the outbox is empty", async || is_empty(&db).await).await;
        shutdown.cancel();
        running.await.expect("ended");
        assert_eq!(published(&streams).await, HashMap::from([("k".to_owned(), vec![1])]));
        let leases: i64 = sqlx::query_scalar("select count(*) from leases").fetch_one(&db).await.expect("read");
        assert_eq!(leases, 0, "a stopped relay releases its lease");
        streams.remove().await;
        db.close().await;
    })
    .await;
}

/// Each relay has a separate lease, so all of them publish all the time. Order and completeness must not depend on
/// the lease.
#[tokio::test]
async fn overlapping_relays_publish_in_order_and_once() {
    with_database(async |options| {
        let (db, streams) =
            (PgPool::connect_with(as_service(&options)).await.expect("connected"), streams_for_tests().await);
        let shutdown = CancellationToken::new();
        let relays =
            ["one", "two", "three"].map(|lease| tokio::spawn(relay(&db, &streams, lease).run(shutdown.clone())));
        let writers = (0..4).map(|key| {
            let db = db.clone();
            async move {
                for number in 0..60 {
                    write(&db, &format!("k{key}"), number).await;
                }
            }
        });
        futures_util::future::join_all(writers).await;
        eventually("the outbox is empty", async || is_empty(&db).await).await;
        shutdown.cancel();
        for relay in relays {
            relay.await.expect("ended");
        }
        let published = published(&streams).await;
        for key in 0..4 {
            assert_eq!(published[&format!("k{key}")], (0..60).collect::<Vec<_>>());
        }
        streams.remove().await;
        db.close().await;
    })
    .await;
}

/// Processes trust cached tokens because of this: after a pulse, no earlier message is missing.
#[tokio::test]
async fn pulse_follows_every_message_written_before_it() {
    with_database(async |options| {
        let (db, streams) =
            (PgPool::connect_with(as_service(&options)).await.expect("connected"), streams_for_tests().await);
        let mut heard = streams.hear(">").await.expect("subscribed");
        streams.settled().await;
        // More than one batch.
        for number in 0..600 {
            write(&db, &format!("k{}", number % 7), number).await;
        }
        let shutdown = CancellationToken::new();
        let running = tokio::spawn(relay(&db, &streams, "test relay").run(shutdown.clone()));
        let mut messages = 0;
        loop {
            let message = tokio::time::timeout(Duration::from_secs(20), heard.next()).await.expect("in time");
            let subject = message.expect("a message").subject;
            match subject.as_str() {
                subject if subject.ends_with(PULSE) => break,
                subject if subject.ends_with("fact.test") => messages += 1,
                _ => {}
            }
        }
        assert_eq!(messages, 600);
        shutdown.cancel();
        running.await.expect("ended");
        streams.remove().await;
        db.close().await;
    })
    .await;
}

/// The relay's poll is longer than the test, so only a wake-up can make it publish.
#[tokio::test]
async fn relay_is_woken_by_its_own_and_other_processes() {
    with_database(async |options| {
        let (db, streams) =
            (PgPool::connect_with(as_service(&options)).await.expect("connected"), streams_for_tests().await);
        let (here, there, shutdown) = (Arc::new(Notify::new()), Arc::new(Notify::new()), CancellationToken::new());
        let lease = |holder| Leases::new(db.clone(), Uuid::from_u128(holder), None).lease("relay", LONG);
        let relay = |holder, written: &Arc<Notify>| {
            let (db, streams, clock) = (db.clone(), streams.clone(), Arc::new(SystemClock));
            Relay::new(db, streams, lease(holder), LONG, Arc::clone(written), clock)
        };
        write(&db, "k", 0).await;
        let mut relays = vec![tokio::spawn(relay(1, &here).run(shutdown.clone()))];
        eventually("the first relay publishes", async || is_empty(&db).await).await;
        relays.push(tokio::spawn(relay(2, &there).run(shutdown.clone())));
        // The relay of the same process, the relay of another process, and a command.
        write(&db, "k", 1).await;
        here.notify_one();
        eventually("woken directly", async || is_empty(&db).await).await;
        write(&db, "k", 2).await;
        there.notify_one();
        eventually("woken by a process that stands by", async || is_empty(&db).await).await;
        write(&db, "k", 3).await;
        let command = Notify::new();
        command.notify_one();
        forward_before_exit(&command, &streams).await;
        eventually("woken by a command", async || is_empty(&db).await).await;
        shutdown.cancel();
        for relay in relays {
            relay.await.expect("ended");
        }
        assert_eq!(published(&streams).await["k"], [0, 1, 2, 3]);
        streams.remove().await;
        db.close().await;
    })
    .await;
}
