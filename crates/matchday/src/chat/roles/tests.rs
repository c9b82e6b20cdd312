//! Turns in slow mode, on a real database.

use std::time::Duration;

use time::OffsetDateTime;
use web::ids::{RoomId, UserId};

use super::{Turn, confirm_turn, return_turn, take_pushed_turn, take_turn};
use crate::testing::TestApp;

const PERIOD: Duration = Duration::from_secs(30);

/// Creates a room; returns its id.
async fn a_room(app: &TestApp) -> RoomId {
    let insert = "insert into rooms (alias, name, creator_id, created_at, made_until)
                  values ('room_x', 'Derby talk', 1, now(), now()) returning id";
    RoomId(sqlx::query_scalar(insert).fetch_one(&app.app.core.db).await.expect("a room"))
}

#[tokio::test]
async fn request_takes_turn_once_per_period() {
    TestApp::run(async |app| {
        let (room, user, now) = (a_room(app).await, UserId(7), app.app.core.clock.now());
        let mut connection = app.app.core.db.acquire().await.expect("a connection");
        let mut take = async |key: &[u8], after: i64| {
            let now = now + time::Duration::seconds(after);
            take_turn(&mut connection, room, user, PERIOD, key, now).await.expect("taken")
        };
        assert_eq!(take(b"one", 0).await, Turn::Taken);
        assert_eq!(take(b"one", 5).await, Turn::Taken, "a repeated request keeps its turn");
        assert_eq!(take(b"two", 10).await, Turn::Wait(Duration::from_secs(20)));
        assert_eq!(take(b"two", 30).await, Turn::Taken, "measured from the first attempt");
    })
    .await;
}

#[tokio::test]
async fn pushed_message_belongs_to_its_request() {
    TestApp::run(async |app| {
        let (room, user, now) = (a_room(app).await, UserId(7), app.app.core.clock.now());
        let db = &app.app.core.db;
        let mut connection = db.acquire().await.expect("a connection");
        let mut pushed = async |event: &str, sent_at: OffsetDateTime| {
            take_pushed_turn(&mut connection, room, user, PERIOD, event, sent_at).await.expect("taken")
        };
        let take = async |key: &[u8]| {
            let mut connection = db.acquire().await.expect("a connection");
            take_turn(&mut connection, room, user, PERIOD, key, now).await.expect("taken")
        };
        assert_eq!(take(b"one").await, Turn::Taken);
        assert!(pushed("$one", now).await, "the push may arrive before the response");
        confirm_turn(db, room, user, b"one", "$one").await.expect("confirmed");
        assert!(pushed("$one", now).await, "a push may be repeated");
        assert!(!pushed("$two", now + time::Duration::seconds(20)).await, "a chat client wrote too soon");
        assert_eq!(take(b"one").await, Turn::Taken, "the request may be repeated after the push");
        assert!(pushed("$two", now + time::Duration::seconds(30)).await);
        assert!(matches!(take(b"three").await, Turn::Wait(_)), "messages of chat clients count for requests");
    })
    .await;
}

#[tokio::test]
async fn failed_request_returns_its_turn() {
    TestApp::run(async |app| {
        let (room, user, now) = (a_room(app).await, UserId(7), app.app.core.clock.now());
        let db = &app.app.core.db;
        let take = async |key: &[u8]| {
            let mut connection = db.acquire().await.expect("a connection");
            take_turn(&mut connection, room, user, PERIOD, key, now).await.expect("taken")
        };
        assert_eq!(take(b"one").await, Turn::Taken);
        return_turn(db, room, user, b"other").await.expect("returned");
        assert!(matches!(take(b"two").await, Turn::Wait(_)), "only the request returns its turn");
        return_turn(db, room, user, b"one").await.expect("returned");
        assert_eq!(take(b"two").await, Turn::Taken);
        confirm_turn(db, room, user, b"two", "$two").await.expect("confirmed");
        return_turn(db, room, user, b"two").await.expect("returned");
        assert!(matches!(take(b"three").await, Turn::Wait(_)), "a sent message keeps its turn");
    })
    .await;
}
