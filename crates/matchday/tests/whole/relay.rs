//! Relays that are killed at the worst moment.

use std::{sync::Arc, time::Duration};

use matchday::{
    config::Config,
    testing::{eventually, with_database},
};
use platform::{
    outbox::{self, Message},
    stream::{Stream, Streams},
};
use serde_json::{Value, json};
use sqlx::{Connection as _, PgConnection, PgPool};

use crate::process::Setting;

const SUBJECT: &str = "fact.test.killed";

/// Streams of the test's processes.
pub(crate) async fn streams(setting: &Setting) -> Streams {
    let config = Config::parse(setting.variables().clone(), None).expect("valid").config;
    let streams = Streams::connect(&config.nats).await.expect("NATS");
    streams.ensure().await.expect("streams");
    streams
}

async fn write(db: &PgPool, key: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let message = Message::new(SUBJECT, key, &json!({"key": key, "number": number})).expect("JSON");
        let mut connection = db.acquire().await.expect("a connection");
        outbox::enqueue(&mut connection, &[message]).await.expect("written");
    }
}

async fn published(streams: &Streams) -> Vec<(String, u64)> {
    let read = streams.replay(Stream::Facts).await.expect("read");
    let body = |payload: &[u8]| serde_json::from_slice::<Value>(payload).expect("JSON");
    read.iter()
        .filter(|(subject, _)| subject == SUBJECT)
        .map(|(_, payload)| body(payload))
        .map(|body| (body["key"].as_str().expect("a key").to_owned(), body["number"].as_u64().expect("a number")))
        .collect()
}

fn numbers(published: &[(String, u64)], key: &str) -> Vec<u64> {
    published.iter().filter(|(of, _)| of == key).map(|(_, number)| *number).collect()
}

/// The relay publishes, is blocked in its delete by a lock on the rows, and is killed there. The next relay publishes
/// again, and consumers see every message once and in order.
#[tokio::test]
async fn relay_killed_before_delete_loses_and_repeats_nothing() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_OUTBOX__LEASE", "1s");
        let streams = streams(&setting).await;
        let db = PgPool::connect_with(options.clone()).await.expect("connected");
        for round in 0..5 {
            let range = round * 20..(round + 1) * 20;
            write(&db, "a", range.clone()).await;
            write(&db, "b", range.clone()).await;
            let mut holder = PgConnection::connect_with(&options).await.expect("connected");
            sqlx::query("begin").execute(&mut holder).await.expect("started");
            sqlx::query("select id from outbox for update").fetch_all(&mut holder).await.expect("locked");

            let mut relay = setting.start(&["worker"]);
            let expected = usize::try_from(range.end * 2).expect("fits");
            eventually("everything is published", async || published(&streams).await.len() >= expected).await;
            let deletes = "from pg_stat_activity where datname = current_database() and wait_event_type = 'Lock' and query like 'delete from outbox%'";
            eventually("the delete waits for the lock", async || {
                let count = sqlx::AssertSqlSafe(format!("select count(*) {deletes}"));
                sqlx::query_scalar::<_, i64>(count).fetch_one(&db).await.expect("read") == 1
            })
            .await;
            relay.kill();
            // PostgreSQL would still execute the statement of a disconnected client. Terminating the session simulates
            // a cut network.
            let end = sqlx::AssertSqlSafe(format!("select pg_terminate_backend(pid, 5000) {deletes}"));
            sqlx::query(end).execute(&db).await.expect("ended");
            holder.close().await.expect("released");
            let left: i64 = sqlx::query_scalar("select count(*) from outbox").fetch_one(&db).await.expect("read");
            assert_eq!(left, 40, "killed before the delete");

            let next = setting.start(&["worker"]);
            eventually("the outbox is empty", async || {
                sqlx::query_scalar::<_, i64>("select count(*) from outbox").fetch_one(&db).await.expect("read") == 0
            })
            .await;
            drop(next);
            let seen = published(&streams).await;
            for key in ["a", "b"] {
                assert_eq!(numbers(&seen, key), (0..range.end).collect::<Vec<_>>(), "round {round}, key {key}");
            }
        }
        streams.remove().await;
        db.close().await;
    })
    .await;
}

/// Three relays with continuous messages; one relay after another is killed at a random moment and replaced.
#[tokio::test]
async fn relays_killed_at_random_publish_in_order_exactly_once() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_OUTBOX__LEASE", "1s").with("MATCHDAY_OUTBOX__POLL", "20ms");
        let streams = streams(&setting).await;
        let db = Arc::new(PgPool::connect_with(options).await.expect("connected"));
        let mut relays = vec![setting.start(&["worker"]), setting.start(&["worker"])];
        let writing: Vec<_> = ["a", "b", "c"]
            .map(|key| {
                let db = Arc::clone(&db);
                tokio::spawn(async move {
                    for number in 0..300 {
                        write(&db, key, number..number + 1).await;
                        tokio::time::sleep(Duration::from_millis(10)).await;
                    }
                })
            })
            .into();
        for pause in [130, 410, 70, 290, 530] {
            tokio::time::sleep(Duration::from_millis(pause)).await;
            relays.remove(0).kill();
            relays.push(setting.start(&["worker"]));
        }
        for writer in writing {
            writer.await.expect("written");
        }
        eventually("the outbox is empty", async || {
            sqlx::query_scalar::<_, i64>("select count(*) from outbox").fetch_one(&*db).await.expect("read") == 0
        })
        .await;
        let seen = published(&streams).await;
        for key in ["a", "b", "c"] {
            assert_eq!(numbers(&seen, key), (0..300).collect::<Vec<_>>(), "key {key}");
        }
        streams.remove().await;
        db.close().await;
    })
    .await;
}
