//! Moderators, slow mode and mutes of rooms, against a real homeserver.

use http::Method;
use matrix_appservice::RoomId as MatrixRoomId;
use serde_json::{Value, json};

use crate::{
    chat::{membership_sync::Membership, rooms::RoomAddress},
    testing::{Answer, TestApp, TestUser},
};

async fn fan(app: &TestApp, number: u32) -> TestUser<'_> {
    app.log_in(&format!("+1415558{number:04}")).await.0
}

/// Creates a public room; returns its id on the homeserver.
async fn room_of(owner: &TestUser<'_>) -> String {
    let created = owner.post("/api/auth/chat-room", json!({"name": "Derby talk"})).await.expect(201);
    created["data"]["room_id"].as_str().expect("an id").to_owned()
}

fn path(room: &str, what: &str) -> String {
    format!("/api/auth/chat-rooms/{}/{what}", room.replace('!', "%21").replace(':', "%3A"))
}

async fn put(user: &TestUser<'_>, room: &str, what: &str, body: Option<Value>) -> Answer {
    user.send(Method::PUT, &path(room, what), body.map(|body| body.to_string())).await
}

async fn say(user: &TestUser<'_>, room: &str, text: &str) -> Answer {
    user.post(&path(room, "messages"), json!({"body": text})).await
}

/// Does the work that is in the outbox.
async fn work(app: &TestApp) {
    for (subject, payload) in app.published().await {
        let payload = payload.to_string().into_bytes().into();
        let delivery = platform::stream::Delivery { subject, id: None, payload, attempt: 1 };
        if delivery.subject.starts_with("work.room.") {
            app.app.rooms.perform(delivery).await.expect("done");
        } else if delivery.subject.starts_with("work.removal.") {
            app.app.removals.perform(delivery).await.expect("done");
        }
    }
}

/// Power levels of users on the homeserver.
async fn levels(app: &TestApp, room: &str) -> Value {
    let homeserver = app.app.chat.homeserver().expect("a homeserver");
    let room = MatrixRoomId::parse(room).expect("an id");
    homeserver.power_levels(&room).await.expect("read").expect("levels")["users"].clone()
}

async fn matrix_id(app: &TestApp, user: &TestUser<'_>) -> String {
    let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
    app.app.chat.homeserver().expect("a homeserver").user_id(account.username.as_str()).expect("valid").to_string()
}

async fn actions(app: &TestApp) -> Vec<(String, String)> {
    sqlx::query_as("select action, operator from operator_actions order by id")
        .fetch_all(&app.app.core.db)
        .await
        .expect("read")
}

#[tokio::test]
async fn creator_appoints_and_dismisses_moderators() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, helper, other) = (fan(app, 1).await, fan(app, 2).await, fan(app, 3).await);
        let room = room_of(&owner).await;
        let moderator = format!("moderators/{}", helper.id);
        put(&owner, &room, &moderator, None).await.expect(404);
        for user in [&helper, &other] {
            say(user, &room, "Hello").await.expect(201);
        }
        assert_eq!(put(&helper, &room, &moderator, None).await.expect(403)["code"], "not_the_creator");
        for _ in 0..2 {
            put(&owner, &room, &moderator, None).await.expect(200);
        }
        work(app).await;
        let listed = other.get(&path(&room, "moderators")).await.expect(200);
        let ids: Vec<&Value> = listed["data"].as_array().expect("a list").iter().map(|one| &one["id"]).collect();
        assert_eq!(ids, [&json!(owner.id), &json!(helper.id)]);
        let (owner_id, helper_id) = (matrix_id(app, &owner).await, matrix_id(app, &helper).await);
        let users = levels(app, &room).await;
        assert_eq!((&users[&owner_id], &users[&helper_id]), (&json!(50), &json!(50)));
        // The creator cannot be dismissed, and moderators dismiss only themselves.
        let creator = path(&room, &format!("moderators/{}", owner.id));
        assert_eq!(owner.delete(&creator).await.invalid_fields(), ["user"]);
        assert_eq!(helper.delete(&creator).await.expect(403)["code"], "not_the_creator");
        helper.delete(&path(&room, &moderator)).await.expect(200);
        work(app).await;
        assert_eq!(levels(app, &room).await.get(&helper_id), None);
        owner.delete(&path(&room, &moderator)).await.expect(200);
        let by = |user: &TestUser<'_>| format!("user:{}", user.id);
        assert_eq!(
            actions(app).await,
            [("room.moderator.add".to_owned(), by(&owner)), ("room.moderator.remove".to_owned(), by(&helper))]
        );
    })
    .await;
}

#[tokio::test]
async fn moderator_who_leaves_is_dismissed() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, helper) = (fan(app, 4).await, fan(app, 5).await);
        let room = room_of(&owner).await;
        say(&helper, &room, "Hello").await.expect(201);
        put(&owner, &room, &format!("moderators/{}", helper.id), None).await.expect(200);
        work(app).await;
        helper.post(&path(&room, "leave"), json!({})).await.expect(200);
        work(app).await;
        let listed = owner.get(&path(&room, "moderators")).await.expect(200);
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1));
        assert_eq!(levels(app, &room).await.get(matrix_id(app, &helper).await), None);
    })
    .await;
}

#[tokio::test]
async fn number_of_moderators_is_limited() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, helper) = (fan(app, 6).await, fan(app, 7).await);
        let room = room_of(&owner).await;
        say(&helper, &room, "Hello").await.expect(201);
        sqlx::query(
            "insert into room_moderators (room_id, user_id, appointed_at)
             select r.id, 1000000 + n, now() from rooms r, generate_series(1, 20) n where r.matrix_id = $1",
        )
        .bind(&room)
        .execute(&app.app.core.db)
        .await
        .expect("inserted");
        let refused = put(&owner, &room, &format!("moderators/{}", helper.id), None).await.expect(409);
        assert_eq!(refused["code"], "too_many_moderators");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn slow_mode_limits_members_but_not_moderators() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, speaker) = (fan(app, 8).await, fan(app, 9).await);
        let room = room_of(&owner).await;
        let slow = |seconds: i64| Some(json!({"seconds": seconds}));
        assert_eq!(put(&speaker, &room, "slow-mode", slow(30)).await.expect(403)["code"], "not_a_moderator");
        assert_eq!(put(&owner, &room, "slow-mode", slow(3_601)).await.invalid_fields(), ["seconds"]);
        assert_eq!(put(&owner, &room, "slow-mode", slow(30)).await.expect(200)["data"]["seconds"], 30);
        say(&speaker, &room, "First").await.expect(201);
        let refused = say(&speaker, &room, "Second").await;
        assert_eq!(refused.header("retry-after"), Some("30"));
        assert_eq!(refused.expect(429)["code"], "slow_mode");
        for text in ["One", "Two"] {
            say(&owner, &room, text).await.expect(201);
        }
        let listed = speaker.get("/api/auth/chat-rooms?joined=true").await.expect(200);
        assert_eq!(listed["data"][0]["slow_mode"], 30);
        app.clock.advance(time::Duration::seconds(30));
        say(&speaker, &room, "Second").await.expect(201);
        put(&owner, &room, "slow-mode", slow(0)).await.expect(200);
        say(&speaker, &room, "Third").await.expect(201);
        assert_eq!(actions(app).await.len(), 2);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn message_of_chat_client_in_slow_mode_is_removed() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, speaker) = (fan(app, 10).await, fan(app, 11).await);
        let room = room_of(&owner).await;
        say(&speaker, &room, "First").await.expect(201);
        put(&owner, &room, "slow-mode", Some(json!({"seconds": 600}))).await.expect(200);
        let (homeserver, id) = (app.app.chat.homeserver().expect("a homeserver"), matrix_id(app, &speaker).await);
        let matrix_room = MatrixRoomId::parse(&room).expect("an id");
        let name = id.trim_start_matches('@').split(':').next().expect("a name").to_owned();
        let mut events = Vec::new();
        for text in ["Second", "Third"] {
            let content = json!({"msgtype": "m.text", "body": text});
            let event = homeserver.send_message_as(&name, &matrix_room, text, &content).await.expect("sent");
            let at = time::OffsetDateTime::UNIX_EPOCH + time::Duration::hours(1);
            let at = (app.app.core.clock.now() - at).whole_milliseconds() + 3_600_000;
            let at = u64::try_from(at).expect("a time");
            let pushed = json!({"event_id": event, "room_id": room, "type": "m.room.message", "sender": id,
                                "origin_server_ts": at, "content": content});
            app.push(std::slice::from_ref(&pushed)).await;
            app.push(&[pushed]).await;
            events.push(event);
        }
        work(app).await;
        let redacted =
            async |event| homeserver.event(&matrix_room, event).await.expect("read").expect("an event").is_redacted();
        assert!(!redacted(&events[0]).await, "the first message in slow mode is allowed");
        assert!(redacted(&events[1]).await);
        assert_eq!(say(&speaker, &room, "Fourth").await.expect(429)["code"], "slow_mode");
    })
    .await;
}

#[tokio::test]
async fn room_mute_ends_and_can_be_lifted() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, speaker) = (fan(app, 12).await, fan(app, 13).await);
        let room = room_of(&owner).await;
        say(&speaker, &room, "Hello").await.expect(201);
        let mute = format!("mutes/{}", speaker.id);
        let wish = |seconds: i64| Some(json!({"seconds": seconds, "reason": "Spam"}));
        assert_eq!(put(&owner, &room, &mute, wish(59)).await.invalid_fields(), ["seconds"]);
        assert_eq!(put(&speaker, &room, &mute, wish(60)).await.expect(403)["code"], "not_a_moderator");
        let own = format!("mutes/{}", owner.id);
        assert_eq!(put(&owner, &room, &own, wish(60)).await.invalid_fields(), ["user"]);
        let muted = put(&owner, &room, &mute, wish(60)).await.expect(200);
        assert_eq!(muted["data"], json!({"user_id": speaker.id, "until": "2026-11-20T15:01:00.000Z"}));
        work(app).await;
        let id = matrix_id(app, &speaker).await;
        assert_eq!(levels(app, &room).await[&id], -1);
        assert_eq!(say(&speaker, &room, "Still here").await.expect(403)["code"], "muted");
        for _ in 0..2 {
            owner.delete(&path(&room, &mute)).await.expect(200);
        }
        work(app).await;
        say(&speaker, &room, "Back").await.expect(201);
        put(&owner, &room, &mute, wish(60)).await.expect(200);
        work(app).await;
        app.clock.advance(time::Duration::seconds(61));
        assert_eq!(app.app.room_moderation.lift_ended().await.expect("lifted"), 1);
        work(app).await;
        assert_eq!(levels(app, &room).await.get(&id), None);
        say(&speaker, &room, "Back again").await.expect(201);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn concurrent_changes_reach_the_homeserver() {
    TestApp::run_with_chat(&[], async |app| {
        let owner = fan(app, 14).await;
        let room = room_of(&owner).await;
        let mut speakers = Vec::new();
        for number in 15..19 {
            let speaker = fan(app, number).await;
            say(&speaker, &room, "Hello").await.expect(201);
            speakers.push(speaker);
        }
        let changes = speakers.iter().enumerate().map(async |(number, speaker)| {
            if number % 2 == 0 {
                put(&owner, &room, &format!("moderators/{}", speaker.id), None).await.expect(200);
            } else {
                let body = json!({"seconds": 600});
                put(&owner, &room, &format!("mutes/{}", speaker.id), Some(body)).await.expect(200);
            }
        });
        futures_util::future::join_all(changes).await;
        let deliveries = app.published().await.into_iter().map(async |(subject, payload)| {
            let payload = payload.to_string().into_bytes().into();
            let delivery = platform::stream::Delivery { subject, id: None, payload, attempt: 1 };
            app.app.rooms.perform(delivery).await.expect("done");
        });
        futures_util::future::join_all(deliveries).await;
        let users = levels(app, &room).await;
        for (number, speaker) in speakers.iter().enumerate() {
            let level = if number % 2 == 0 { 50 } else { -1 };
            assert_eq!(users[matrix_id(app, speaker).await], level, "{users}");
        }
    })
    .await;
}

#[tokio::test]
async fn operators_moderate_rooms_of_matches() {
    TestApp::run_with_chat(&[], async |app| {
        let fixtures = app.fixtures();
        fixtures.write(&[fixtures.a_match("m").json()]).await;
        work(app).await;
        let room: String = sqlx::query_scalar("select matrix_id from rooms where opened_at is not null")
            .fetch_one(&app.app.core.db)
            .await
            .expect("a room");
        let user = fan(app, 20).await;
        say(&user, &room, "Hello").await.expect(201);
        let moderator = format!("moderators/{}", user.id);
        assert_eq!(put(&user, &room, &moderator, None).await.expect(403)["code"], "not_the_creator");
        let moderation = &app.app.room_moderation;
        let address: RoomAddress = room.parse().expect("an address");
        let found = moderation.room(&address).await.expect("a room");
        let operator = crate::identity::operators::Operator::new("kim", "Evening shift");
        let named = user.id.to_string().parse().expect("a user");
        moderation.appoint_by(&operator, &found, &named).await.expect("appointed");
        work(app).await;
        put(&user, &room, "slow-mode", Some(json!({"seconds": 5}))).await.expect(200);
        assert_eq!(app.app.rooms.membership(user.id, found.id).await.expect("read"), Some(Membership::Join));
        moderation.dismiss_by(&operator, &found, &named).await.expect("dismissed");
        assert_eq!(
            put(&user, &room, "slow-mode", Some(json!({"seconds": 0}))).await.expect(403)["code"],
            "not_a_moderator"
        );
        app.published().await;
    })
    .await;
}
