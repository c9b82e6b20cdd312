//! Tests against a real homeserver.

use std::{
    sync::atomic::{AtomicBool, Ordering},
    time::{Duration, Instant},
};

use platform::stream::{Delivery, Failure, Stream};
use serde_json::{Value, json};

use super::service::Announcements;
use crate::{
    catalogue::matches::service::CHANGED,
    chat::rooms::RoomAddress,
    game::scores::service::UPDATED,
    testing::{Receiver, Reply, TestApp, unique},
};

fn delivery(subject: &str, id: &str, payload: &Value) -> Delivery {
    Delivery {
        subject: subject.to_owned(),
        id: Some(id.to_owned()),
        payload: payload.to_string().into_bytes().into(),
        attempt: 1,
    }
}

/// Processes all published facts twice, as redelivery may, and announces them.
async fn work(app: &TestApp, announcements: &Announcements) {
    for (subject, payload) in app.published().await {
        let id = unique("fact");
        for _ in 0..2 {
            let delivery = delivery(&subject, &id, &payload);
            match subject.as_str() {
                CHANGED | UPDATED => announcements.announce(&delivery).await.expect("announced"),
                room if room.starts_with("work.room.") => app.app.rooms.perform(delivery).await.expect("made"),
                _ => {}
            }
        }
    }
}

/// Returns the bot's messages in a room, oldest first, as a member reads them.
async fn notices(app: &TestApp, token: &str, room: &str) -> Vec<Value> {
    let base = app.app.config.matrix.homeserver_url.clone().expect("a homeserver");
    let url = base.join(&format!("_matrix/client/v3/rooms/{room}/messages?dir=b&limit=100")).expect("a URL");
    let page: Value = app.web.get(url).bearer_auth(token).send().await.expect("a response").json().await.expect("JSON");
    let events = page["chunk"].as_array().unwrap_or_else(|| panic!("{page}")).iter().rev();
    events.filter(|event| event["content"]["msgtype"] == "m.notice").map(|event| event["content"].clone()).collect()
}

fn bodies(notices: &[Value]) -> Vec<&str> {
    notices.iter().map(|notice| notice["body"].as_str().expect("a body")).collect()
}

#[tokio::test]
async fn match_room_gets_each_announcement_once() {
    TestApp::run_with_chat(&[], async |app| {
        let (fixtures, announcements) = (app.fixtures(), &app.app.announcements);
        fixtures.write(&[fixtures.a_match("m").json()]).await;
        work(app, announcements).await;
        let (fan, login) = app.log_in("+14155559901").await;
        let token = login["matrix_credentials"]["access_token"].as_str().expect("a token").to_owned();
        let event = fan.get("/api/auth/events?per_page=1").await.expect(200)["data"][0].clone();
        let room = event["chat_room_id"].as_str().expect("a room").to_owned();
        fan.post(&format!("/api/auth/chat-rooms/{room}/join"), json!({})).await.expect(200);
        let prediction =
            json!({"event_id": event["id"], "prediction": "home", "score_prediction": {"home": 2, "away": 1}});
        fan.post("/api/auth/predictions", prediction).await.expect(201);

        let home = event["home_team"]["name"].as_str().expect("a name");
        let away = event["away_team"]["name"].as_str().expect("a name");
        for (status, scores) in [("live", (0, 0)), ("live", (1, 0)), ("live", (1, 1)), ("finished", (2, 1))] {
            fixtures.write(&[fixtures.a_match("m").at(status, scores.0, scores.1).json()]).await;
            work(app, announcements).await;
        }
        let posted = notices(app, &token, &room).await;
        assert_eq!(
            bodies(&posted),
            [
                format!("Kick-off: {home} – {away}"),
                format!("Goal for {home}! {home} 1 – 0 {away}"),
                format!("Goal for {away}! {home} 1 – 1 {away}"),
                format!("Goal for {home}! {home} 2 – 1 {away}"),
                format!("Full time: {home} 2 – 1 {away}"),
            ]
        );
        assert_eq!(
            posted[3]["app.matchday.announcement"],
            json!({"kind": "goal", "event_id": event["id"], "home_score": 2, "away_score": 1})
        );

        // The best predictors are announced once the scores are applied.
        let apply_scores = async || {
            for progress in app.app.scores.in_progress().await.expect("read") {
                for chunk in app.app.scores.plan(progress.source).await.expect("planned") {
                    app.app.scores.apply(progress.source, chunk.number).await.expect("applied");
                }
            }
        };
        apply_scores().await;
        work(app, announcements).await;
        let posted = notices(app, &token, &room).await;
        let username = login["user"]["username"].as_str().expect("a name");
        let best = format!("Best predictors of {home} – {away} in this room: {username} (40)");
        assert_eq!(bodies(&posted)[5..], [best]);

        // A room with announcements disabled gets none. After enabling, it gets the next correction.
        let address: RoomAddress = room.parse().expect("an address");
        assert!(announcements.switch(&address, false).await.expect("switched"));
        fixtures.write(&[fixtures.a_match("m").at("finished", 2, 2).json()]).await;
        work(app, announcements).await;
        assert_eq!(notices(app, &token, &room).await.len(), 6);
        assert!(announcements.switch(&address, true).await.expect("switched"));
        fixtures.write(&[fixtures.a_match("m").at("finished", 3, 2).json()]).await;
        work(app, announcements).await;
        let corrected = format!("Corrected result: {home} 3 – 2 {away} (previously {home} 2 – 2 {away})");
        assert_eq!(bodies(&notices(app, &token, &room).await)[6..], [corrected]);
        apply_scores().await;
        work(app, announcements).await;
        let posted = notices(app, &token, &room).await;
        let again = format!("Best predictors of {home} – {away} in this room after the correction: {username} (");
        // Once, although two results were corrected: the scores are announced when they include the latest one.
        assert!(posted.len() == 8 && bodies(&posted)[7].starts_with(&again), "{posted:?}");

        // With announcements disabled in the settings, there are none.
        let silent = Announcements { are_enabled: false, ..announcements.clone() };
        fixtures.write(&[fixtures.a_match("m").at("finished", 3, 3).json()]).await;
        work(app, &silent).await;
        assert_eq!(notices(app, &token, &room).await.len(), posted.len());
        assert!(!announcements.switch(&"!nowhere:example.org".parse().expect("an address"), true).await.expect("read"));
    })
    .await;
}

#[tokio::test]
async fn unreadable_fact_or_fact_without_id_is_given_up() {
    TestApp::run_with_chat(&[], async |app| {
        let announcements = &app.app.announcements;
        let nameless = || Delivery { id: None, ..delivery(CHANGED, "1", &json!({})) };
        for unreadable in [delivery(CHANGED, "1", &json!({"event_id": "x"})), delivery("fact.other", "1", &json!({}))] {
            assert!(announcements.announce(&unreadable).await.is_err());
            assert!(announcements.pass_on(unreadable).await.is_err());
        }
        assert!(announcements.announce(&nameless()).await.is_err());
        assert!(announcements.pass_on(nameless()).await.is_err());
        assert!(announcements.perform(delivery("work.announcement.1", "1", &json!({}))).await.is_err());
    })
    .await;
}

/// A homeserver that takes a while for each message, and fails for the first message to a room. It always refuses
/// messages to another room.
async fn homeserver_with_failing_room(failing: &'static str, refusing: &'static str) -> Receiver {
    let refused = AtomicBool::new(false);
    Receiver::start(move |number, received| {
        if received.path.contains(refusing) {
            let reply = Reply::status(400).with("content-type", "application/json");
            return reply.saying(&json!({"errcode": "M_UNKNOWN", "error": "no"}).to_string());
        }
        if received.path.contains(failing) && !refused.swap(true, Ordering::Relaxed) {
            return Reply::status(502);
        }
        let reply = Reply::status(200).with("content-type", "application/json");
        reply.saying(&json!({"event_id": format!("$said{number}")}).to_string()).after(Duration::from_millis(500))
    })
    .await
}

#[tokio::test]
async fn stands_are_announced_in_parallel_and_only_failed_ones_again() {
    const STANDS: usize = 16;
    let homeserver = homeserver_with_failing_room("derby7x", "derby3x").await;
    let url = homeserver.url.to_string();
    TestApp::run_with(&[("MATCHDAY_MATRIX__HOMESERVER_URL", &url)], async |app| {
        let (fixtures, announcements) = (app.fixtures(), &app.app.announcements);
        let event = fixtures.a_match("m").put().await;
        app.published().await;
        sqlx::query(
            "insert into rooms (matrix_id, alias, name, event_id, stand, created_at, made_until, opened_at)
             select '!derby' || n || 'x:matchday.localhost', 'derby' || n, 'Stand', $1, n + 100, now(), now(), now()
             from generate_series(1, $2::integer) as n",
        )
        .bind(event)
        .bind(i32::try_from(STANDS).expect("few"))
        .execute(&app.app.core.db)
        .await
        .expect("stands");
        fixtures.write(&[fixtures.a_match("m").at("live", 0, 0).json()]).await;
        let facts = app.published().await;
        let (subject, payload) = facts.iter().find(|(subject, _)| subject == CHANGED).expect("a kick-off");
        let fact = delivery(subject, "kick-off", payload);
        let began = Instant::now();
        assert!(matches!(announcements.announce(&fact).await, Err(Failure::Retry { .. })));
        // One after the other, they would take 7 seconds or more.
        assert!(began.elapsed() < Duration::from_secs(6), "{:?}", began.elapsed());
        let asked = homeserver.seen().len();
        assert!(asked >= STANDS, "a failure does not stop the other rooms: {asked}");
        let outcome = announcements.announce(&fact).await;
        assert!(matches!(outcome, Err(Failure::GiveUp(_))), "the room that refused is reported: {outcome:?}");
        let again: Vec<String> = homeserver.seen()[asked..].iter().map(|request| request.path.clone()).collect();
        assert!(!again.is_empty() && again.iter().all(|path| path.contains("derby7x")), "no other room: {again:?}");
    })
    .await;
}

#[tokio::test]
async fn lane_of_the_match_receives_the_fact_once() {
    TestApp::run_with_chat(&[], async |app| {
        let (fixtures, announcements) = (app.fixtures(), &app.app.announcements);
        let event = fixtures.a_match("m").put().await;
        fixtures.write(&[fixtures.a_match("m").at("live", 0, 0).json()]).await;
        app.app.streams.ensure().await.expect("streams");
        for (subject, payload) in app.published().await {
            if subject == CHANGED {
                for _ in 0..2 {
                    announcements.pass_on(delivery(&subject, "kick-off", &payload)).await.expect("passed on");
                }
            }
        }
        let passed = app.app.streams.replay(Stream::Work).await.expect("read");
        let subjects: Vec<&str> = passed.iter().map(|(subject, _)| subject.as_str()).collect();
        assert_eq!(subjects, [format!("work.announcement.{}", event % 4)]);
        app.app.streams.remove().await;
    })
    .await;
}
