//! Tests against a real homeserver.

use platform::stream::Delivery;
use serde_json::{Value, json};

use super::service::Announcements;
use crate::{
    catalogue::matches::service::CHANGED,
    chat::rooms::RoomAddress,
    game::scores::service::UPDATED,
    testing::{TestApp, unique},
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
                CHANGED | UPDATED => announcements.perform(delivery).await.expect("announced"),
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
        for progress in app.app.scores.in_progress().await.expect("read") {
            for chunk in app.app.scores.plan(progress.event).await.expect("planned") {
                app.app.scores.apply(progress.event, chunk.number).await.expect("applied");
            }
        }
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

        // With announcements disabled in the settings, there are none.
        let silent = Announcements { are_enabled: false, ..announcements.clone() };
        fixtures.write(&[fixtures.a_match("m").at("finished", 3, 3).json()]).await;
        work(app, &silent).await;
        assert_eq!(notices(app, &token, &room).await.len(), 7);
        assert!(!announcements.switch(&"!nowhere:example.org".parse().expect("an address"), true).await.expect("read"));
    })
    .await;
}

#[tokio::test]
async fn unreadable_fact_or_fact_without_id_is_given_up() {
    TestApp::run_with_chat(&[], async |app| {
        let announcements = &app.app.announcements;
        assert!(announcements.perform(delivery(CHANGED, "1", &json!({"event_id": "x"}))).await.is_err());
        assert!(announcements.perform(delivery("fact.other", "1", &json!({}))).await.is_err());
        let nameless = Delivery { id: None, ..delivery(CHANGED, "1", &json!({})) };
        assert!(announcements.perform(nameless).await.is_err());
    })
    .await;
}
