//! Removal of messages, against a real homeserver.

use http::Method;
use matrix_appservice::{EventId as MatrixEventId, RoomId as MatrixRoomId};
use platform::clock::{Clock as _, SystemClock};
use serde_json::{Value, json};
use web::ids::UserId;

use super::service::{MessageRange, RemovalError};
use crate::{
    chat::planned_removals::{self, Removal, SERVICE, Source},
    identity::operators::Operator,
    testing::{Answer, TestApp, TestUser},
};

async fn fan(app: &TestApp, number: u32) -> TestUser<'_> {
    app.log_in(&format!("+1415559{number:04}")).await.0
}

async fn room_of(owner: &TestUser<'_>, is_private: bool) -> String {
    let wish = json!({"name": "Derby talk", "is_private": is_private});
    let created = owner.post("/api/auth/chat-room", wish).await.expect(201);
    created["data"]["room_id"].as_str().expect("an id").to_owned()
}

fn path(room: &str, what: &str) -> String {
    format!("/api/auth/chat-rooms/{}/{what}", room.replace('!', "%21").replace(':', "%3A"))
}

async fn say(user: &TestUser<'_>, room: &str, text: &str) -> String {
    let sent = user.post(&path(room, "messages"), json!({"body": text})).await.expect(201);
    sent["data"]["event_id"].as_str().expect("an id").to_owned()
}

async fn remove(user: &TestUser<'_>, room: &str, event: &str, reason: Option<&str>) -> Answer {
    let body = reason.map(|reason| json!({"reason": reason}).to_string());
    user.send(Method::DELETE, &path(room, &format!("messages/{}", event.replace('$', "%24"))), body).await
}

async fn is_redacted(app: &TestApp, room: &str, event: &str) -> bool {
    let (room, event) = (MatrixRoomId::parse(room).expect("an id"), MatrixEventId::parse(event).expect("an id"));
    let homeserver = app.app.chat.homeserver().expect("a homeserver");
    homeserver.event(&room, &event).await.expect("read").expect("an event").is_redacted()
}

async fn work(app: &TestApp) {
    for (subject, payload) in app.published().await {
        if subject.starts_with("work.removal.") {
            let payload = payload.to_string().into_bytes().into();
            let delivery = platform::stream::Delivery { subject, id: None, payload, attempt: 1 };
            app.app.removals.perform(delivery).await.expect("done");
        }
    }
}

async fn matrix_id(app: &TestApp, user: UserId) -> String {
    let account = app.app.accounts.find(user).await.expect("read").expect("an account");
    app.app.chat.homeserver().expect("a homeserver").user_id(account.username.as_str()).expect("valid").to_string()
}

#[tokio::test]
async fn senders_and_moderators_remove_messages() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, speaker, other) = (fan(app, 1).await, fan(app, 2).await, fan(app, 3).await);
        let room = room_of(&owner, false).await;
        let own = say(&speaker, &room, "One").await;
        let moderated = say(&speaker, &room, "Two").await;
        assert_eq!(remove(&other, &room, &own, None).await.expect(403)["code"], "not_a_moderator");
        assert!(!is_redacted(app, &room, &own).await);
        for (user, event) in [(&speaker, &own), (&owner, &moderated), (&owner, &moderated)] {
            let removed = remove(user, &room, event, Some("Off topic")).await.expect(200);
            assert_eq!(removed["data"], json!({"room_id": room, "event_id": event, "removed": true}));
            assert!(is_redacted(app, &room, event).await);
        }
        let actions: Vec<(String, String, String)> =
            sqlx::query_as("select operator, target, reason from operator_actions where action = 'message.remove'")
                .fetch_all(&app.app.core.db)
                .await
                .expect("read");
        assert_eq!(actions, [(format!("user:{}", owner.id), format!("message:{moderated}"), "Off topic".to_owned())]);
        // The sender learns of the removal by the moderator.
        let listed = speaker.get("/api/auth/removed-messages").await.expect(200);
        assert_eq!(listed["meta"]["total"], 1);
        let notice = &listed["data"][0];
        assert_eq!(
            (&notice["event_id"], &notice["source"], &notice["reason"]),
            (&json!(moderated), &json!("moderator"), &json!("Off topic"))
        );
        assert_eq!(owner.get("/api/auth/removed-messages").await.expect(200)["data"], json!([]));
        work(app).await;
    })
    .await;
}

#[tokio::test]
async fn unknown_messages_are_not_found() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, speaker) = (fan(app, 4).await, fan(app, 5).await);
        let (room, elsewhere) = (room_of(&owner, false).await, room_of(&speaker, false).await);
        let message = say(&speaker, &elsewhere, "Hello").await;
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        let matrix_room = MatrixRoomId::parse(&room).expect("an id");
        let joined = homeserver.members(&matrix_room).await.expect("read").remove(0).event_id;
        for event in ["$nothing", "nothing", message.as_str(), joined.as_str()] {
            remove(&owner, &room, event, None).await.expect(404);
        }
        remove(&owner, "!nowhere:example.org", &message, None).await.expect(404);
        let invalid = remove(&speaker, &elsewhere, &message, Some(&"x".repeat(501))).await;
        assert_eq!(invalid.invalid_fields(), ["reason"]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn encrypted_message_is_removed() {
    TestApp::run_with_chat(&[], async |app| {
        let owner = fan(app, 6).await;
        let room = room_of(&owner, true).await;
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        let id = matrix_id(app, owner.id).await;
        let name = id.trim_start_matches('@').split(':').next().expect("a name");
        // The homeserver accepts any content.
        let content = json!({"msgtype": "m.text", "body": "not encrypted after all"});
        let matrix_room = MatrixRoomId::parse(&room).expect("an id");
        let event = homeserver.send_message_as(name, &matrix_room, "t", &content).await.expect("sent");
        remove(&owner, &room, event.as_str(), None).await.expect(200);
        assert!(is_redacted(app, &room, event.as_str()).await);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn operator_removes_messages_of_one_sender() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, spammer, other) = (fan(app, 7).await, fan(app, 8).await, fan(app, 9).await);
        let room = room_of(&owner, false).await;
        let mut spam = Vec::new();
        for number in 0..3 {
            spam.push(say(&spammer, &room, &format!("Spam {number}")).await);
        }
        let kept = say(&other, &room, "Hello").await;
        let (operator, address) = (Operator::new("kim", "Spam"), room.parse().expect("an address"));
        let removals = &app.app.removals;
        removals.remove_by_operator(&address, &spam[0], &operator).await.expect("removed");
        assert!(is_redacted(app, &room, &spam[0]).await);
        let future = SystemClock.now() + time::Duration::hours(1);
        let mut range = MessageRange { sender: spammer.id, since: Some(future), until: None };
        assert_eq!(removals.remove_all(&address, range, &operator).await.expect("none"), 0);
        range.since = Some(future - time::Duration::hours(2));
        assert_eq!(removals.remove_all(&address, range, &operator).await.expect("removed"), 2);
        work(app).await;
        for event in &spam {
            assert!(is_redacted(app, &room, event).await);
        }
        assert!(!is_redacted(app, &room, &kept).await);
        let missing = removals.remove_by_operator(&address, "$nothing", &operator).await;
        assert!(matches!(missing, Err(RemovalError::NoSuchMessage)));
        let actions: Vec<String> =
            sqlx::query_scalar("select action from operator_actions where operator = 'kim' order by id")
                .fetch_all(&app.app.core.db)
                .await
                .expect("read");
        assert_eq!(actions, ["message.remove", "message.remove_all"]);
    })
    .await;
}

/// Plans removals of messages that do not exist, as filters do.
async fn plan(app: &TestApp, room: &str, sender: &str, events: &[&str], mute_seconds: Option<i32>) -> usize {
    let removals: Vec<Removal> = events
        .iter()
        .map(|event| Removal {
            matrix_room: room.to_owned(),
            event_id: (*event).to_owned(),
            sender: sender.to_owned(),
            source: Source::Filter,
            removed_by: SERVICE.to_owned(),
            reason: "Filter 1".to_owned(),
            mute_seconds,
        })
        .collect();
    let mut connection = app.app.core.db.acquire().await.expect("a connection");
    planned_removals::plan_in(&mut connection, &removals, app.app.core.clock.now()).await.expect("planned").len()
}

async fn restrictions(app: &TestApp, user: UserId) -> (Option<i64>, Option<i64>) {
    let account = app.app.accounts.find(user).await.expect("read").expect("an account");
    let now = app.app.core.clock.now();
    let left = |until: Option<time::OffsetDateTime>| until.map(|until| (until - now).whole_minutes());
    (left(account.muted_until), left(account.banned_until))
}

#[tokio::test]
async fn repeated_offences_escalate() {
    let changes = [("MATCHDAY_REMOVALS__ESCALATION", "warn,mute:1h,ban:24h")];
    TestApp::run_with_chat(&changes, async |app| {
        let (owner, speaker) = (fan(app, 10).await, fan(app, 11).await);
        let room = room_of(&owner, false).await;
        let sender = matrix_id(app, speaker.id).await;
        let offend = async |event: &str| {
            plan(app, &room, &sender, &[event], None).await;
            work(app).await;
            restrictions(app, speaker.id).await
        };
        let first = say(&speaker, &room, "One").await;
        assert_eq!(offend(&first).await, (None, None), "a warning");
        let second = say(&speaker, &room, "Two").await;
        assert_eq!(offend(&second).await, (None, None), "the same offence");
        app.clock.advance(time::Duration::minutes(10));
        let third = say(&speaker, &room, "Three").await;
        assert_eq!(offend(&third).await, (Some(60), None));
        assert_eq!(offend(&third).await, (Some(60), None), "once for each message");
        app.clock.advance(time::Duration::minutes(90));
        app.app.moderation.lift_ended().await.expect("lifted");
        app.published().await;
        assert_eq!(offend("$a-later-message").await, (None, Some(1_440)));
        app.published().await;
    })
    .await;
}

/// Any user can create a room, so its moderators must not be able to mute users elsewhere.
#[tokio::test]
async fn offences_in_fan_room_count_there_only() {
    let changes = [("MATCHDAY_REMOVALS__ESCALATION", "warn,mute:1h")];
    TestApp::run_with_chat(&changes, async |app| {
        let (owner, speaker) = (fan(app, 16).await, fan(app, 17).await);
        let (room, elsewhere) = (room_of(&owner, false).await, room_of(&speaker, false).await);
        for text in ["One", "Two"] {
            let message = say(&speaker, &room, text).await;
            remove(&owner, &room, &message, Some("Off topic")).await.expect(200);
            app.clock.advance(time::Duration::minutes(10));
        }
        assert_eq!(restrictions(app, speaker.id).await, (None, None));
        let refused = speaker.post(&path(&room, "messages"), json!({"body": "Three"})).await.expect(403);
        assert_eq!(refused["code"], "muted");
        let message = say(&speaker, &elsewhere, "Here").await;
        // Removals by operators count for the service, and those by moderators do not add to them.
        let (operator, address) = (Operator::new("kim", "Spam"), elsewhere.parse().expect("an address"));
        app.app.removals.remove_by_operator(&address, &message, &operator).await.expect("removed");
        assert_eq!(restrictions(app, speaker.id).await, (None, None), "a warning");
        app.clock.advance(time::Duration::minutes(10));
        let message = say(&speaker, &elsewhere, "Again").await;
        app.app.removals.remove_by_operator(&address, &message, &operator).await.expect("removed");
        assert_eq!(restrictions(app, speaker.id).await, (Some(60), None));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn mute_of_filter_does_not_shorten_longer_one() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, speaker) = (fan(app, 12).await, fan(app, 13).await);
        let room = room_of(&owner, false).await;
        let (sender, message) = (matrix_id(app, speaker.id).await, say(&speaker, &room, "One").await);
        assert_eq!(plan(app, &room, &sender, &[&message, &message], Some(600)).await, 1);
        assert_eq!(plan(app, &room, &sender, &[&message], Some(600)).await, 0, "planned once");
        assert_eq!(plan(app, "!elsewhere:s", &sender, &[&message], Some(600)).await, 0, "another room");
        work(app).await;
        assert_eq!(restrictions(app, speaker.id).await, (Some(10), None));
        let operator = Operator::new("kim", "Insults");
        let mute = crate::identity::accounts::restrictions::Restriction::Mute;
        app.app.moderation.restrict(speaker.id, mute, &operator).await.expect("muted");
        plan(app, &room, &sender, &["$another"], Some(600)).await;
        work(app).await;
        let account = app.app.accounts.find(speaker.id).await.expect("read").expect("an account");
        assert_eq!((account.muted_at.is_some(), account.muted_until), (true, None), "muted without an end");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn unavailable_homeserver_delays_removal() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, speaker) = (fan(app, 14).await, fan(app, 15).await);
        let room = room_of(&owner, false).await;
        let (sender, message) = (matrix_id(app, speaker.id).await, say(&speaker, &room, "One").await);
        plan(app, &room, &sender, &[&message], None).await;
        let mut config = app.app.config.clone();
        config.matrix.homeserver_url = Some("http://127.0.0.1:9/".parse().expect("a URL"));
        let cut_off = app.second(config).await;
        let planned = app.published().await;
        let (subject, payload) =
            planned.iter().find(|(subject, _)| subject == planned_removals::PLANNED).expect("work");
        let delivery = || platform::stream::Delivery {
            subject: subject.clone(),
            id: None,
            payload: payload.to_string().into_bytes().into(),
            attempt: 1,
        };
        assert!(cut_off.app.removals.perform(delivery()).await.is_err());
        assert!(!is_redacted(app, &room, &message).await);
        app.app.removals.perform(delivery()).await.expect("done");
        assert!(is_redacted(app, &room, &message).await);
        let rows: Vec<Value> =
            sqlx::query_scalar("select to_jsonb(r) from removals r").fetch_all(&app.app.core.db).await.expect("read");
        assert!(rows.iter().all(|row| !row.to_string().contains("One")), "no text is stored: {rows:?}");
    })
    .await;
}
