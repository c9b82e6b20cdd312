//! Tests of sending messages, against a real homeserver.

use http::Method;
use matrix_appservice::RoomId as MatrixRoomId;
use serde_json::{Value, json};

use web::fields::FromJson as _;

use super::rules::{MessageBody, RoomAddress};
use crate::{
    chat::membership_sync::Membership,
    identity::idempotency::RequestKey,
    testing::{Answer, TestApp, TestUser, unique},
};

/// Creates a match and its room; returns the room's id on the homeserver.
async fn match_room(app: &TestApp) -> String {
    let fixtures = app.fixtures();
    fixtures.write(&[fixtures.a_match("m").json()]).await;
    work(app).await;
    app.published().await;
    sqlx::query_scalar("select matrix_id from rooms where opened_at is not null")
        .fetch_one(&app.app.core.db)
        .await
        .expect("a room")
}

async fn work(app: &TestApp) {
    for (subject, payload) in app.published().await {
        if subject.starts_with("work.room.") {
            let payload = payload.to_string().into_bytes().into();
            let delivery = platform::stream::Delivery { subject, id: None, payload, attempt: 1 };
            app.app.rooms.perform(delivery).await.expect("done");
        }
    }
}

async fn fan(app: &TestApp, number: u32) -> TestUser<'_> {
    app.log_in(&format!("+1415557{number:04}")).await.0
}

fn path(room: &str) -> String {
    format!("/api/auth/chat-rooms/{}/messages", room.replace('!', "%21").replace(':', "%3A"))
}

async fn send(user: &TestUser<'_>, room: &str, body: impl Into<Value>) -> Answer {
    user.post(&path(room), json!({"body": body.into()})).await
}

/// Texts of a room on the homeserver, oldest first.
async fn texts(app: &TestApp, room: &str) -> Vec<String> {
    let homeserver = app.app.chat.homeserver().expect("a homeserver");
    let page = homeserver.message_page(&MatrixRoomId::parse(room).expect("an id"), None, 100).await.expect("messages");
    let bodies = page.events.iter().rev().filter_map(|event| event.content["body"].as_str());
    bodies.map(str::to_owned).collect()
}

#[tokio::test]
async fn first_message_joins_and_repeated_one_is_sent_once() {
    TestApp::run_with_chat(&[], async |app| {
        let (room, user) = (match_room(app).await, fan(app, 1).await);
        let first = send(&user, &room, "  Hello ").await.expect(201)["data"].clone();
        assert_eq!((&first["room_id"], &first["joined"]), (&json!(room), &json!(true)));
        assert!(first["event_id"].as_str().is_some_and(|id| id.starts_with('$')), "{first}");
        assert_eq!(first["sent_at"], "2026-11-20T15:00:00.000Z");
        let join = format!("/api/auth/chat-rooms/{room}/join");
        assert_eq!(user.post(&join, json!({})).await.expect(409)["code"], "already_a_member");
        let key = unique("key");
        let again = async || {
            let body = json!({"body": "Once"}).to_string();
            let sent = user.send_with(Method::POST, &path(&room), &[("idempotency-key", &key)], Some(body)).await;
            sent.expect(201)["data"].clone()
        };
        let second = again().await;
        assert_eq!(second["joined"], false);
        assert_eq!(again().await, second);
        assert_eq!(texts(app, &room).await, ["Hello", "Once"]);
    })
    .await;
}

#[tokio::test]
async fn key_identifies_one_message_of_one_user() {
    TestApp::run_with_chat(&[], async |app| {
        let (room, one, two) = (match_room(app).await, fan(app, 6).await, fan(app, 7).await);
        for (user, text) in [(&one, "From one"), (&two, "From two")] {
            let body = json!({"body": text}).to_string();
            user.send_with(Method::POST, &path(&room), &[("idempotency-key", "1")], Some(body)).await.expect(201);
        }
        // The same request again, as after the end of a process that had not stored its response.
        let address: RoomAddress = room.parse().expect("an address");
        let body = MessageBody::from_json(&json!("Once")).expect("a text");
        let again = async || {
            app.app.rooms.send(one.id, &address, &body, Some(RequestKey([7; 32]))).await.expect("sent").event_id
        };
        assert_eq!(again().await, again().await);
        assert_eq!(texts(app, &room).await, ["From one", "From two", "Once"]);
    })
    .await;
}

#[tokio::test]
async fn refused_messages_do_not_join() {
    TestApp::run_with_chat(&[], async |app| {
        let (room, user, owner) = (match_room(app).await, fan(app, 2).await, fan(app, 3).await);
        for wrong in [json!(""), json!("  "), json!("x".repeat(2_001)), json!("bell\u{7}"), json!(null), json!(5)] {
            assert_eq!(send(&user, &room, wrong.clone()).await.invalid_fields(), ["body"], "{wrong}");
        }
        send(&user, "!nowhere:example.org", "Hello").await.expect(404);
        let private =
            owner.post("/api/auth/chat-room", json!({"name": "Secret", "is_private": true})).await.expect(201);
        let private = private["data"]["room_id"].as_str().expect("an id").to_owned();
        assert_eq!(send(&owner, &private, "Hello").await.expect(400)["code"], "room_encrypted");
        assert_eq!(send(&user, &private, "Hello").await.expect(403)["code"], "not_allowed");
        let invite = format!("/api/auth/chat-rooms/{private}/invite");
        owner.post(&invite, json!({"user_id": user.id})).await.expect(200);
        assert_eq!(send(&user, &private, "Hello").await.expect(403)["code"], "not_allowed");
        sqlx::query("update users set muted_at = now() where user_id = $1")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("muted");
        assert_eq!(send(&user, &room, "Hello").await.expect(403)["code"], "muted");
        let joined = app.app.rooms.of_user(user.id).await.expect("read");
        assert!(joined.iter().all(|(_, membership)| *membership != Membership::Join), "{joined:?}");
        assert!(texts(app, &room).await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn message_to_full_room_goes_to_own_stand() {
    TestApp::run_with_chat(&[("MATCHDAY_ROOMS__MATCH_CAPACITY", "1")], async |app| {
        let (room, one, two) = (match_room(app).await, fan(app, 4).await, fan(app, 5).await);
        send(&one, &room, "First").await.expect(201);
        let other = send(&two, &room, "Second").await.expect(201)["data"].clone();
        let stand = other["room_id"].as_str().expect("an id").to_owned();
        assert_ne!(stand, room);
        assert_eq!(other["joined"], true);
        // The app may still send to the room that it showed.
        let third = send(&two, &room, "Third").await.expect(201)["data"].clone();
        assert_eq!((&third["room_id"], &third["joined"]), (&json!(stand), &json!(false)));
        assert_eq!(
            (texts(app, &room).await, texts(app, &stand).await),
            (vec!["First".to_owned()], vec!["Second".to_owned(), "Third".to_owned()],)
        );
        app.published().await;
    })
    .await;
}
