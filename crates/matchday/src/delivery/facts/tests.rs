use std::{collections::BTreeMap, sync::Arc, time::Duration};

use axum::{Router, body::Body, extract::State, routing};
use futures_util::future::join_all;
use http::{Method, Request};
use http_body_util::BodyExt as _;
use platform::{
    database,
    outbox::{self, Message},
};
use serde_json::{Value, json};
use sqlx::PgPool;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt as _;
use web::Query;

use super::{
    handlers::{self, FactParameters},
    rules::{After, Position},
    service::{Facts, KEPT, Page},
};
use crate::{
    identity::account_deletion::service::DELETED,
    testing::{Answer, TestApp},
};

fn items(page: &Page) -> Vec<Value> {
    serde_json::from_str(&format!("[{}]", page.items)).expect("JSON")
}

/// Reads the log from its beginning, in pages of this size.
async fn read_all(facts: &Facts, per_page: i64) -> Vec<Value> {
    let (mut read, mut after) = (Vec::new(), None);
    loop {
        let page = facts.page(after, per_page).await.expect("a page");
        read.extend(items(&page));
        after = Some(After::Position(page.next_after));
        if !page.more {
            return read;
        }
    }
}

async fn get(app: &TestApp, query: &str) -> Answer {
    let read = async |State(facts): State<Facts>, Query(parameters): Query<FactParameters>| {
        handlers::read_page(&facts, parameters).await
    };
    let router = Router::new().route("/facts", routing::get(read)).with_state(app.app.facts.clone());
    let request = Request::get(format!("/facts{query}")).body(Body::empty()).expect("a request");
    let (parts, body) = router.oneshot(request).await.expect("a response").into_parts();
    let bytes = body.collect().await.expect("a body").to_bytes();
    Answer { status: parts.status, headers: parts.headers, bytes: bytes.to_vec() }
}

/// Writes a fact about the deletion of a made-up user, and waits before the commit.
async fn write(db: &PgPool, user: i64, wait: Duration, commits: bool) {
    let mut tx = database::begin(db).await.expect("begun");
    let message = Message::new(DELETED, format!("user:{user}"), &json!({"user_id": user})).expect("JSON").logged();
    outbox::enqueue(&mut tx, &[message]).await.expect("written");
    tokio::time::sleep(wait).await;
    if commits {
        tx.commit().await.expect("committed");
    } else {
        tx.rollback().await.expect("rolled back");
    }
}

const WRITERS: i64 = 8;
const FACTS_EACH: i64 = 40;

/// Writes facts numbered by writer. Every tenth transaction is rolled back, and some take much longer than others, so ids
/// become visible in another order than they were given out.
async fn write_many(db: &PgPool, writer: i64) {
    for number in 0..FACTS_EACH {
        let wait = Duration::from_millis((writer * 31 + number * 17).unsigned_abs() % 29);
        if number % 10 == 9 {
            write(db, 1_000_000, wait, false).await;
        }
        write(db, writer * 1_000 + number, wait, true).await;
    }
}

/// Gives positions until the end of the test, and is interrupted in the middle of it again and again.
async fn record_with_interruptions(facts: Facts, pause: Duration, ending: CancellationToken) {
    // Longer each time, so that some turns end also on a busy machine.
    let mut lengths = (1..=50).cycle();
    while !ending.is_cancelled() {
        let pause = pause * lengths.next().unwrap_or(1);
        let recording = async {
            loop {
                facts.record_new().await.expect("recorded");
                tokio::task::yield_now().await;
            }
        };
        let _ = tokio::time::timeout(pause, recording).await;
    }
}

/// Two processes give positions, and both are interrupted all the time. A reader with small pages never misses a fact of
/// a slow transaction.
#[tokio::test]
async fn reader_sees_each_fact_once_in_one_order() {
    TestApp::run(async |app| {
        let (facts, db, ending) = (&app.app.facts, &app.app.core.db, CancellationToken::new());
        let recorders = [3, 7].map(|milliseconds| {
            let pause = Duration::from_millis(milliseconds);
            tokio::spawn(record_with_interruptions(facts.clone(), pause, ending.clone()))
        });
        let writing = async {
            join_all((0..WRITERS).map(|writer| write_many(db, writer))).await;
        };
        let reading = async {
            let (mut read, mut after) = (Vec::new(), None);
            while read.len() < usize::try_from(WRITERS * FACTS_EACH).expect("small") {
                let page = facts.page(after, 1 + i64::try_from(read.len() % 4).expect("small")).await.expect("a page");
                read.extend(items(&page));
                after = Some(After::Position(page.next_after));
                tokio::task::yield_now().await;
            }
            (read, after)
        };
        let both = async { tokio::join!(writing, reading) };
        let ((), (read, after)) = tokio::time::timeout(Duration::from_mins(1), both).await.expect("all facts are read");
        ending.cancel();
        for recorder in recorders {
            recorder.await.expect("ended");
        }

        let mut by_writer: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
        for fact in &read {
            let user = fact["data"]["user_id"].as_i64().expect("a user");
            by_writer.entry(user / 1_000).or_default().push(user % 1_000);
        }
        assert_eq!(by_writer, (0..WRITERS).map(|writer| (writer, (0..FACTS_EACH).collect())).collect());
        for per_page in [1, 7, 1_000] {
            assert_eq!(read_all(facts, per_page).await, read, "pages of {per_page}");
        }
        let end = facts.page(after, 10).await.expect("a page");
        assert!(end.items.is_empty() && !end.more, "nothing follows: {end:?}");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn slow_transaction_gets_a_later_position() {
    TestApp::run(async |app| {
        let (facts, db) = (&app.app.facts, &app.app.core.db);
        let mut slow = database::begin(db).await.expect("begun");
        let message = |user: i64| Message::new(DELETED, format!("user:{user}"), &json!({"user_id": user}));
        outbox::enqueue(&mut slow, &[message(1).expect("JSON").logged()]).await.expect("written");
        write(db, 2, Duration::ZERO, true).await;
        assert_eq!(facts.record_new().await.expect("recorded"), 1);
        let first = facts.page(None, 10).await.expect("a page");
        assert_eq!(items(&first)[0]["data"], json!({"user_id": 2}));
        slow.commit().await.expect("committed");
        facts.record_new().await.expect("recorded");
        let second = facts.page(Some(After::Position(first.next_after)), 10).await.expect("a page");
        assert_eq!(items(&second)[0]["data"], json!({"user_id": 1}));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn changes_of_the_service_become_facts() {
    TestApp::run(async |app| {
        let (facts, fixtures) = (&app.app.facts, app.fixtures());
        let event = fixtures.a_match("m").put().await;
        fixtures.a_match("m").starting_in(time::Duration::HOUR).put().await;
        fixtures.a_match("m").starting_in(time::Duration::HOUR).with(json!({"venue": "Elsewhere"})).put().await;
        fixtures.a_match("m").starting_in(time::Duration::HOUR).at("finished", 2, 1).put().await;
        app.settle_match(event).await;
        let (user, login) = app.log_in("+14155550142").await;
        user.post("/api/auth/logout", json!({})).await.expect(200);
        app.published().await;
        facts.record_new().await.expect("recorded");
        let read = read_all(facts, 100).await;
        let types: Vec<&str> = read.iter().map(|fact| fact["type"].as_str().expect("a type")).collect();
        assert_eq!(
            types,
            ["event.created", "event.changed", "event.changed", "event.result", "scores.updated", "user.registered"]
        );
        let result = &read[3]["data"];
        assert_eq!(
            (&result["event_id"], &result["home_score"], &result["away_score"], &result["result_revision"]),
            (&json!(event), &json!(2), &json!(1), &json!(1))
        );
        assert_eq!((&result["status"], &result["before"]["status"]), (&json!("finished"), &json!("scheduled")));
        assert_eq!(read[4]["data"], json!({"event_id": event, "result_revision": 1}));
        assert_eq!(read[5]["data"]["username"], login["user"]["username"]);
        assert!(!format!("{read:?}").contains("14155550142"), "no phone numbers");
    })
    .await;
}

#[tokio::test]
async fn deleted_accounts_lose_their_name_in_facts() {
    TestApp::run(async |app| {
        let facts = &app.app.facts;
        let (user, login) = app.log_in("+14155550142").await;
        let (other, _) = app.log_in("+14155550143").await;
        facts.record_new().await.expect("recorded");
        let name = login["user"]["username"].as_str().expect("a name");
        assert!(facts.page(None, 10).await.expect("a page").items.contains(name));
        user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
        let code = app.codes("+14155550142").await.remove(0);
        user.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await.expect(200);
        facts.record_new().await.expect("recorded");
        let read = read_all(facts, 100).await;
        let data: Vec<_> = read.iter().map(|fact| (&fact["type"], &fact["data"]["user_id"])).collect();
        assert_eq!(
            data,
            [
                (&json!("user.registered"), &json!(user.id)),
                (&json!("user.registered"), &json!(other.id)),
                (&json!("user.deleted"), &json!(user.id))
            ]
        );
        assert_eq!(read[0]["data"]["username"], format!("deleted-{}", user.id));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn positions_older_than_kept_facts_are_410() {
    TestApp::run(async |app| {
        let (facts, db) = (&app.app.facts, &app.app.core.db);
        let start = get(app, "?after=latest").await.expect(200);
        assert_eq!((&start["data"], &start["meta"]["more"]), (&json!([]), &json!(false)));
        let path = |body: &Value| format!("?after={}", body["meta"]["next_after"].as_str().expect("a position"));
        // More than a sweep deletes at once.
        for user in 0..2 {
            write(db, user, Duration::ZERO, true).await;
        }
        facts.record_new().await.expect("recorded");
        sqlx::query(
            "with l as (update fact_log set newest_position = newest_position + 2500 returning newest_position)
             insert into facts (position, recorded_at, item)
             select newest_position - 2500 + n, $1, json_build_object('id', n) from l, generate_series(1, 2500) n",
        )
        .bind(platform::clock::Clock::now(&*app.clock))
        .execute(db)
        .await
        .expect("inserted");
        let first = get(app, "?per_page=1").await.expect(200);
        let end = get(app, "?after=latest").await.expect(200);
        assert_eq!(first["meta"]["more"], json!(true));
        app.clock.advance(KEPT);
        assert_eq!(facts.sweep().await.expect("swept"), 0, "kept for exactly 30 days");
        app.clock.advance(time::Duration::SECOND);
        write(db, 7, Duration::ZERO, true).await;
        facts.record_new().await.expect("recorded");
        assert_eq!(facts.sweep().await.expect("swept"), 2_502);
        for old in [&start, &first] {
            assert_eq!(get(app, &path(old)).await.expect(410)["code"], "facts_expired");
        }
        for query in [path(&end), String::new()] {
            let page = get(app, &query).await.expect(200);
            assert_eq!(page["data"][0]["data"], json!({"user_id": 7}), "{query}");
            assert_eq!(get(app, &path(&page)).await.expect(200)["meta"], page["meta"], "the position stays");
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn bad_parameters_are_422() {
    TestApp::run(async |app| {
        for wrong in ["", "yesterday", "-1", "1%202", "0", &Position::after(1).to_string()] {
            assert_eq!(get(app, &format!("?after={wrong}")).await.invalid_fields(), ["after"], "{wrong}");
        }
        for wrong in ["", "0", "x", "-5", "1.5"] {
            assert_eq!(get(app, &format!("?per_page={wrong}")).await.invalid_fields(), ["per_page"], "{wrong}");
        }
        assert_eq!(get(app, "?after=x&per_page=x").await.invalid_fields(), ["after", "per_page"]);
        write_in_one_transaction(&app.app.core.db, 1_001).await;
        app.app.facts.record_new().await.expect("recorded");
        let count = async |query: &str| get(app, query).await.expect(200)["data"].as_array().map(Vec::len);
        assert_eq!(count("?per_page=100000").await, Some(1_000));
        assert_eq!(count("").await, Some(100));
        app.published().await;
    })
    .await;
}

async fn write_in_one_transaction(db: &PgPool, number: i64) {
    let messages: Vec<Message> = (1..=number)
        .map(|user| Message::new(DELETED, "user:1", &json!({"user_id": user})).expect("JSON").logged())
        .collect();
    let mut tx = database::begin(db).await.expect("begun");
    outbox::enqueue(&mut tx, &messages).await.expect("written");
    tx.commit().await.expect("committed");
}

#[tokio::test]
async fn unreadable_fact_does_not_stop_others() {
    TestApp::run(async |app| {
        let (facts, db) = (&app.app.facts, &app.app.core.db);
        let mut tx = database::begin(db).await.expect("begun");
        let message = Message::new(DELETED, "user:1", &json!("nonsense")).expect("JSON").logged();
        outbox::enqueue(&mut tx, &[message]).await.expect("written");
        tx.commit().await.expect("committed");
        write(db, 2, Duration::ZERO, true).await;
        assert_eq!(facts.record_new().await.expect("recorded"), 1);
        assert_eq!(read_all(&Arc::new(facts.clone()), 10).await.len(), 1);
        app.published().await;
    })
    .await;
}
