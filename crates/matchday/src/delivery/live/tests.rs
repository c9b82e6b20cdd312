use std::time::Duration;

use async_nats::jetstream::message::PublishMessage;
use axum::body::{Body, BodyDataStream};
use futures_util::StreamExt as _;
use http::{Request, StatusCode, header};
use platform::stream::{Delivery, Stream};
use serde_json::{Value, json};
use tokio_util::sync::{CancellationToken, DropGuard};
use web::ids::MatchId;

use super::{
    service::{Filter, Live},
    tallies::{TALLY, TallyPublisher},
};
use crate::{
    game::{predictions::changes::Changes, scores::service::UPDATED},
    testing::{TestApp, TestUser, eventually},
};

/// Upper bound for everything that must arrive.
const PATIENCE: Duration = Duration::from_secs(10);

/// Follows the facts like a serving process, until dropped.
async fn follow(app: &TestApp) -> DropGuard {
    app.app.streams.ensure().await.expect("streams");
    let (live, closing) = (app.app.live.clone(), CancellationToken::new());
    let guard = closing.clone().drop_guard();
    tokio::spawn(async move { live.run(closing).await });
    guard
}

/// A client of the live stream.
struct Client {
    words: BodyDataStream,
    heard: String,
    last_id: Option<String>,
}

#[derive(Debug)]
struct Event {
    id: Option<String>,
    name: String,
    data: Value,
}

fn request(user: &TestUser<'_>, query: &str, after: Option<&str>) -> Request<Body> {
    let mut request = Request::get(format!("/api/auth/stream{query}"))
        .header(header::AUTHORIZATION, format!("Bearer {}", user.token));
    if let Some(after) = after {
        request = request.header("last-event-id", after);
    }
    request.body(Body::empty()).expect("a request")
}

impl Client {
    /// Opens the stream and waits for the first heartbeat. Later facts are not missed.
    async fn open(app: &TestApp, user: &TestUser<'_>, query: &str, after: Option<&str>) -> Self {
        let response = app.open(request(user, query, after)).await;
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()[header::CONTENT_TYPE], "text/event-stream");
        let words = response.into_body().into_data_stream();
        let mut client = Self { words, heard: String::new(), last_id: after.map(str::to_owned) };
        if after.is_none() {
            assert!(client.block().await.expect("a heartbeat").starts_with("id: "));
        }
        client
    }

    /// Returns the next block of lines; `None` at the end.
    async fn block(&mut self) -> Option<String> {
        loop {
            if let Some(end) = self.heard.find("\n\n") {
                let block: String = self.heard.drain(..end + 2).collect();
                if let Some(id) = block.lines().find_map(|line| line.strip_prefix("id: ")) {
                    self.last_id = Some(id.to_owned());
                }
                return Some(block);
            }
            let words = tokio::time::timeout(PATIENCE, self.words.next()).await.expect("data in time")?;
            self.heard.push_str(std::str::from_utf8(&words.expect("data")).expect("UTF-8"));
        }
    }

    /// Returns the next event and skips heartbeats; `None` at the end.
    async fn event(&mut self) -> Option<Event> {
        loop {
            let block = self.block().await?;
            let field = |name: &str| block.lines().find_map(|line| line.strip_prefix(name)).map(str::to_owned);
            if let Some(data) = field("data: ") {
                return Some(Event {
                    id: field("id: "),
                    name: field("event: ").expect("a name"),
                    data: serde_json::from_str(&data).expect("JSON"),
                });
            }
        }
    }

    async fn next(&mut self) -> Event {
        self.event().await.expect("another event")
    }
}

async fn predict(user: &TestUser<'_>, event: i64) {
    let body = json!({"event_id": event, "prediction": "home", "score_prediction": {"home": 1, "away": 0}});
    user.post("/api/auth/predictions", body).await.expect(201);
}

#[tokio::test]
async fn complete_round_reaches_listeners_with_its_winners() {
    TestApp::run(async |app| {
        let (fixtures, user, other) = (app.fixtures(), app.user().await, app.user().await);
        let first = || fixtures.a_match("m").with(json!({"round": 4}));
        let second = || fixtures.a_match("n").between("albion", "wanderers").with(json!({"round": 4}));
        let (event, last) = (first().put().await, second().put().await);
        predict(&user, event).await;
        predict(&other, last).await;
        let _following = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        let perform = async |event: i64| {
            let payload = json!({"event_id": event, "result_revision": 1}).to_string().into();
            let delivery = Delivery { subject: UPDATED.to_owned(), id: Some("1".to_owned()), payload, attempt: 1 };
            app.app.rounds.perform(delivery).await.expect("performed");
        };
        let board = async || {
            let tournament =
                user.get(&format!("/api/auth/events/{event}")).await.expect(200)["data"]["tournament_id"].clone();
            let path = format!("/api/auth/leaderboards?tournament_id={tournament}&round=4");
            user.get(&path).await.expect(200)["meta"].clone()
        };
        first().at("finished", 1, 0).put().await;
        app.settle().await;
        perform(event).await;
        assert_eq!((&board().await["round_complete"], &board().await["winners"]), (&json!(false), &json!([])));
        second().at("finished", 2, 0).put().await;
        assert_eq!(board().await["round_complete"], false, "the scores do not include the result yet");
        app.settle().await;
        perform(last).await;
        let completed = client.next().await;
        assert_eq!((completed.name.as_str(), &completed.data["round"]), ("round", &json!(4)));
        assert_eq!((&completed.data["winners"][0]["id"], &completed.data["points"]), (&json!(user.id), &json!(40)));
        assert_eq!(board().await["winners"], completed.data["winners"]);
        // A correction changes the winners.
        second().at("finished", 1, 0).put().await;
        app.settle().await;
        perform(last).await;
        let corrected = client.next().await.data["winners"].clone();
        let winners: Vec<&Value> = corrected.as_array().expect("a list").iter().map(|winner| &winner["id"]).collect();
        assert_eq!(winners, [&json!(user.id), &json!(other.id)]);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn goal_reaches_listeners_of_the_match() {
    TestApp::run(async |app| {
        let (fixtures, user, other) = (app.fixtures(), app.user().await, app.user().await);
        let event = fixtures.a_match("m").put().await;
        let elsewhere = fixtures.a_match("n").between("albion", "wanderers").put().await;
        let _following = follow(app).await;
        let mut all = Client::open(app, &user, "", None).await;
        let mut one = Client::open(app, &user, &format!("?event_id={event}"), None).await;
        let mut mine = Client::open(app, &other, "?mine=true", None).await;
        predict(&other, event).await;

        fixtures.write(&[fixtures.a_match("n").between("albion", "wanderers").at("live", 0, 0).json()]).await;
        fixtures.write(&[fixtures.a_match("m").at("live", 0, 0).json()]).await;
        fixtures.write(&[fixtures.a_match("m").at("live", 1, 0).json()]).await;
        app.relay().await;

        let first = all.next().await;
        assert_eq!((first.name.as_str(), &first.data["event_id"]), ("event", &json!(elsewhere)));
        for client in [&mut all, &mut one, &mut mine] {
            let kick_off = client.next().await;
            assert_eq!(kick_off.data["event_id"], event);
            assert_eq!(
                (&kick_off.data["status"], &kick_off.data["changed"]),
                (&json!("live"), &json!(["status", "score"]))
            );
            let goal = client.next().await;
            assert_eq!((&goal.data["home_score"], &goal.data["changed"]), (&json!(1), &json!(["score"])));
            assert!(goal.id.is_some());
        }
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn reconnecting_listener_resumes_without_gap_or_repeat() {
    TestApp::run(async |app| {
        let (fixtures, user) = (app.fixtures(), app.user().await);
        fixtures.a_match("m").put().await;
        let _following = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        let goal = async |home: i32| {
            fixtures.write(&[fixtures.a_match("m").at("live", home, 0).json()]).await;
            app.relay().await;
        };
        goal(0).await;
        goal(1).await;
        assert_eq!(client.next().await.data["home_score"], 0);
        let after = client.last_id.clone().expect("an id");
        drop(client);
        goal(2).await;
        goal(3).await;
        let mut client = Client::open(app, &user, "", Some(&after)).await;
        for expected in 1..=3 {
            assert_eq!(client.next().await.data["home_score"], expected);
        }
        goal(4).await;
        assert_eq!(client.next().await.data["home_score"], 4);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn older_facts_are_read_from_nats() {
    // On a busy machine, 2,500 messages at once take longer to store than one.
    TestApp::run_with(&[("MATCHDAY_NATS__TIMEOUT", "20s")], async |app| {
        let (fixtures, user) = (app.fixtures(), app.user().await);
        fixtures.a_match("m").put().await;
        let _following = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        fixtures.write(&[fixtures.a_match("m").at("live", 0, 0).json()]).await;
        app.relay().await;
        client.next().await;
        let after = client.last_id.clone().expect("an id");
        // More than a process buffers.
        let mut sent = Vec::new();
        for number in 0..2_500 {
            let tally = json!({"event_id": 1, "tournament_id": 1, "home": number, "draw": 0, "away": 0, "average_confidence": 0.0});
            let message = async_nats::jetstream::message::PublishMessage::build().payload(tally.to_string().into());
            sent.push(app.app.streams.send(TALLY, message).await.expect("sent"));
        }
        for stored in sent {
            stored.await.expect("stored");
        }
        // Wait until the buffer no longer has the first fact. From the buffer, only the latest tally would be sent.
        let sequence = |id: &str| id.split_once('-').and_then(|(_, sequence)| sequence.parse::<u64>().ok());
        let end = sequence(&after).expect("a sequence number") + 2_500;
        eventually("all facts are buffered", async || {
            let last = Client::open(app, &user, "", None).await;
            last.last_id.as_deref().and_then(sequence).is_some_and(|sequence| sequence >= end)
        })
        .await;
        let mut back = Client::open(app, &user, "", Some(&after)).await;
        for number in 0..2_500 {
            assert_eq!(back.next().await.data["prediction_distribution"]["home"], number);
        }
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn only_the_latest_missed_tally_of_a_match_is_sent() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let _following = follow(app).await;
        let mut watcher = Client::open(app, &user, "", None).await;
        let before = watcher.last_id.clone().expect("an id");
        for (event, home) in [(1, 10), (2, 50), (1, 20), (1, 30)] {
            let tally = json!({"event_id": event, "tournament_id": 1, "home": home, "draw": 0, "away": 0, "average_confidence": 0.0});
            let message = async_nats::jetstream::message::PublishMessage::build().payload(tally.to_string().into());
            app.app.streams.send(TALLY, message).await.expect("sent").await.expect("stored");
            assert_eq!(watcher.next().await.data["total_predictions"], home, "connected listeners receive all");
        }
        let mut back = Client::open(app, &user, "", Some(&before)).await;
        for home in [50, 30] {
            assert_eq!(back.next().await.data["total_predictions"], home);
        }
        assert_eq!(back.last_id, watcher.last_id);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn shutdown_disconnects_all_listeners() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let _following = follow(app).await;
        let mut clients = [Client::open(app, &user, "", None).await, Client::open(app, &user, "", None).await];
        app.app.shutdown.closing().cancel();
        for client in &mut clients {
            assert!(client.event().await.is_none());
        }
        assert_eq!(user.get("/api/auth/stream").await.expect(503)["code"], "stream_unavailable");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn invalid_position_causes_reset() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let _following = follow(app).await;
        let now = Client::open(app, &user, "", None).await.last_id.expect("an id");
        let (made, sequence) = now.split_once('-').expect("two numbers");
        let later: u64 = sequence.parse::<u64>().expect("a number") + 1;
        for gone in [format!("{made}-{later}"), format!("12-{sequence}")] {
            let mut client = Client::open(app, &user, "", Some(&gone)).await;
            let event = client.next().await;
            assert_eq!((event.name.as_str(), event.id.as_deref()), ("reset", Some(now.as_str())), "{gone}");
        }
        for nonsense in ["x", "1", "-", "1-2-3", "１-2"] {
            let response = app.open(request(&user, "", Some(nonsense))).await;
            assert_eq!(response.status(), StatusCode::UNPROCESSABLE_ENTITY, "{nonsense}");
        }
        assert_eq!(user.get("/api/auth/stream?mine=perhaps&event_id=x").await.invalid_fields(), ["event_id", "mine"]);
        assert_eq!(user.get("/api/auth/stream?last_event_id=x").await.invalid_fields(), ["last_event_id"]);
        user.get("/api/auth/stream?room_id=!nowhere:example.org").await.expect(404);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn result_sends_personal_points_then_rank() {
    TestApp::run_with_database_clock(&[], async |app| {
        let (fixtures, right, wrong, silent) = (app.fixtures(), app.user().await, app.user().await, app.user().await);
        let event = fixtures.a_match("m").put().await;
        predict(&right, event).await;
        let body = json!({"event_id": event, "prediction": "away"});
        wrong.post("/api/auth/predictions", body).await.expect(201);
        let _following = follow(app).await;
        let mut clients = Vec::new();
        for user in [&right, &wrong, &silent] {
            clients.push(Client::open(app, user, "", None).await);
        }
        let before = clients[0].last_id.clone().expect("an id");
        app.advance_database(time::Duration::hours(3)).await;
        fixtures.write(&[fixtures.a_match("m").at("finished", 1, 0).json()]).await;
        let published = app.published().await;
        for (subject, payload) in published {
            if subject.starts_with("fact.") {
                let message = PublishMessage::build().payload(payload.to_string().into());
                app.app.streams.send(&subject, message).await.expect("sent").await.expect("stored");
            }
        }
        for (client, points) in clients.iter_mut().zip([Some(40), Some(0), None]) {
            assert_eq!(client.next().await.name, "event");
            let result = client.next().await;
            assert_eq!((result.name.as_str(), &result.data["corrected"]), ("result", &json!(false)));
            if let Some(points) = points {
                // The first part has no id, so a listener disconnected in between receives both parts again.
                assert_eq!(result.id, None);
                let own = client.next().await;
                assert_eq!((own.name.as_str(), &own.data["points_earned"]), ("points", &json!(points)));
                assert!(own.id.is_some());
            }
        }
        for progress in app.app.scores.in_progress().await.expect("read") {
            for chunk in app.app.scores.plan(progress.source).await.expect("planned") {
                app.app.scores.apply(progress.source, chunk.number).await.expect("applied");
            }
        }
        assert_eq!(app.relay().await, ["fact.scores.updated"]);
        for (client, rank) in clients.iter_mut().zip([1, 2]) {
            let event = client.next().await;
            assert_eq!(
                (event.name.as_str(), &event.data["rank"], &event.data["of"]),
                ("rank", &json!(rank), &json!(2))
            );
        }
        // A listener who reconnects receives the same events.
        let mut back = Client::open(app, &wrong, "?mine=true", Some(&before)).await;
        let names: Vec<String> =
            [back.next().await, back.next().await, back.next().await].map(|event| event.name).into();
        assert_eq!(names, ["event", "result", "points"]);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn facts_continue_while_predictions_cannot_be_read() {
    TestApp::run_with_database_clock(&[], async |app| {
        let (fixtures, user) = (app.fixtures(), app.user().await);
        let event = fixtures.a_match("m").put().await;
        let other = fixtures.a_match("n").between("albion", "wanderers").put().await;
        predict(&user, event).await;
        let _following = follow(app).await;
        let mut all = Client::open(app, &user, "", None).await;
        let mut elsewhere = Client::open(app, &user, &format!("?event_id={other}"), None).await;
        app.advance_database(time::Duration::hours(3)).await;
        let position = all.last_id.clone();
        fixtures.write(&[fixtures.a_match("m").at("finished", 1, 0).json()]).await;
        fixtures.write(&[fixtures.a_match("n").between("albion", "wanderers").at("live", 1, 0).json()]).await;
        let forbid = "revoke select on predictions from matchday_app";
        sqlx::raw_sql(forbid).execute(app.owner()).await.expect("revoked");
        for (subject, payload) in app.published().await {
            if subject.starts_with("fact.event.") {
                let message = PublishMessage::build().payload(payload.to_string().into());
                app.app.streams.send(&subject, message).await.expect("sent").await.expect("stored");
            }
        }
        assert_eq!(elsewhere.next().await.data["home_score"], 1);
        // A listener who lacks points is disconnected, and receives them later.
        while all.block().await.is_some() {}
        let allow = "grant select on predictions to matchday_app";
        sqlx::raw_sql(allow).execute(app.owner()).await.expect("granted");
        let mut back = Client::open(app, &user, &format!("?event_id={event}"), position.as_deref()).await;
        while back.next().await.name != "points" {}
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn new_rank_in_league_is_sent_to_its_member() {
    let settings = [("MATCHDAY_LEAGUES__LARGE_FROM", "10"), ("MATCHDAY_LEAGUES__MAX_MEMBERS", "1000")];
    TestApp::run_with_database_clock(&settings, async |app| {
        let (fixtures, right, wrong, stranger) = (app.fixtures(), app.user().await, app.user().await, app.user().await);
        let first = || fixtures.a_match("m");
        let second = || fixtures.a_match("n").between("albion", "wanderers");
        let events = [first().put().await, second().put().await];
        for (user, scores) in [(&wrong, [(1, 0), (0, 1)]), (&right, [(2, 1), (1, 0)])] {
            for (event, (home, away)) in events.into_iter().zip(scores) {
                let pick = if home > away { "home" } else { "away" };
                let body =
                    json!({"event_id": event, "prediction": pick, "score_prediction": {"home": home, "away": away}});
                user.post("/api/auth/predictions", body).await.expect(201);
            }
        }
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(events[0])
            .fetch_one(&app.app.core.db)
            .await
            .expect("a tournament");
        let mut leagues = Vec::new();
        for most in [10, 1_000] {
            let body = json!({"name": "Friends", "tournament_ids": [tournament], "max_members": most});
            let league = right.post("/api/auth/leagues", body).await.expect(201)["data"].take();
            wrong.post("/api/auth/leagues/join", json!({"code": league["code"]})).await.expect(200);
            leagues.push(league["id"].as_i64().expect("an id"));
        }
        app.published().await;
        let _following = follow(app).await;
        // The first result puts `wrong` in front, before anyone listens.
        app.advance_database(time::Duration::hours(3)).await;
        first().at("finished", 1, 0).put().await;
        app.settle().await;
        let mut clients = Vec::new();
        for (user, query) in
            [(&right, ""), (&wrong, ""), (&stranger, ""), (&right, &*format!("?event_id={}", events[1]))]
        {
            clients.push(Client::open(app, user, query, None).await);
        }
        // The ranks before the result are known once the lookup after the connection has ended.
        tokio::time::sleep(Duration::from_secs(2)).await;
        second().at("finished", 1, 0).put().await;
        for progress in app.app.scores.in_progress().await.expect("read") {
            for chunk in app.app.scores.plan(progress.source).await.expect("planned") {
                app.app.scores.apply(progress.source, chunk.number).await.expect("applied");
            }
        }
        assert_eq!(app.relay().await, ["fact.scores.updated"]);
        for (client, rank, previous, points) in [(0, 1, 2, 70), (1, 2, 1, 40)] {
            let mut heard = Vec::new();
            while heard.len() < 2 {
                let event = clients[client].next().await;
                if event.name == "league.rank" {
                    assert!(event.id.is_some());
                    heard.push(event.data);
                }
            }
            heard.sort_by_key(|data| data["league_id"].as_i64());
            let expected =
                |league: &i64| json!({"league_id": league, "rank": rank, "previous_rank": previous, "points": points});
            assert_eq!(heard, leagues.iter().map(expected).collect::<Vec<_>>());
        }
        for client in &mut clients[2..] {
            let silent = tokio::time::timeout(Duration::from_secs(1), async {
                while client.next().await.name != "league.rank" {}
            });
            assert!(silent.await.is_err(), "a stranger and a listener to one match get no rank");
        }
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn slow_listener_is_disconnected_and_can_resume() {
    TestApp::run_with(&[("MATCHDAY_STREAM__BEHIND", "4")], async |app| {
        let (fixtures, user) = (app.fixtures(), app.user().await);
        fixtures.a_match("m").put().await;
        let _following = follow(app).await;
        let mut slow = Client::open(app, &user, "", None).await;
        for home in 0..20 {
            fixtures.write(&[fixtures.a_match("m").at("live", home, 0).json()]).await;
        }
        app.relay().await;
        // Other listeners keep up, so all facts have been sent.
        eventually("all facts are sent", async || {
            let mut quick = Client::open(app, &user, "", None).await;
            quick.last_id.take() != slow.last_id
        })
        .await;
        let mut heard = Vec::new();
        let score = |event: &Event| event.data["home_score"].as_i64().expect("a score");
        while let Some(event) = slow.event().await {
            heard.push(score(&event));
        }
        assert!(heard.len() < 20, "a slow listener is disconnected before the end");
        let after = slow.last_id.clone().expect("an id");
        let mut back = Client::open(app, &user, "", Some(&after)).await;
        while heard.len() < 20 {
            heard.push(score(&back.next().await));
        }
        assert_eq!(heard, (0..20).collect::<Vec<_>>());
        app.app.streams.remove().await;
    })
    .await;
}

/// Deletes a user's sessions without the messages that end streams.
async fn delete_sessions(app: &TestApp, user: &TestUser<'_>) {
    sqlx::query("delete from sessions where user_id = $1")
        .bind(user.id)
        .execute(&app.app.core.db)
        .await
        .expect("deleted");
}

/// The heartbeats are an hour apart, so only the revocation can end the stream.
#[tokio::test]
async fn ended_session_ends_its_stream() {
    TestApp::run_with(&[("MATCHDAY_STREAM__HEARTBEAT", "1h")], async |app| {
        let (user, other) = (app.user().await, app.user().await);
        let again = app.login(user.id).await;
        let _following = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        let mut client_again = Client::open(app, &again, "", None).await;
        let mut client_of_other = Client::open(app, &other, "", None).await;
        user.post("/api/auth/logout", json!({})).await.expect(200);
        while client.block().await.is_some() {}
        // The user's other stream checks its session and continues.
        assert!(client_again.block().await.expect("a heartbeat").starts_with("id: "));
        // The other session ends in another process.
        let elsewhere = app.second(app.app.config.clone()).await;
        let listed = again.get("/api/auth/sessions").await.expect(200);
        let session = web::ids::SessionId(listed["data"][0]["id"].as_i64().expect("an id"));
        app.published().await;
        assert!(elsewhere.app.sessions.end(user.id, session).await.expect("ended"));
        app.app.sessions.heard(app.published().await[0].1.to_string().as_bytes());
        while client_again.block().await.is_some() {}
        let quiet = tokio::time::timeout(Duration::from_millis(100), client_of_other.block()).await;
        assert!(quiet.is_err(), "the other user's stream is open and has nothing to send");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn ban_ends_streams_of_the_user() {
    TestApp::run_with(&[("MATCHDAY_STREAM__HEARTBEAT", "1h")], async |app| {
        let user = app.user().await;
        let _following = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        sqlx::query("update users set banned_at = now() where user_id = $1")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("banned");
        let fact = json!({"user_id": user.id, "action": "ban"});
        app.app.moderation.heard(fact.to_string().as_bytes());
        while client.block().await.is_some() {}
        app.app.streams.remove().await;
    })
    .await;
}

/// The session's row is gone, so a lookup would end the stream.
#[tokio::test]
async fn idle_stream_costs_no_lookups() {
    let changes = [
        ("MATCHDAY_STREAM__HEARTBEAT", "20ms"),
        ("MATCHDAY_SESSIONS__CACHE_FOR", "1ms"),
        ("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h"),
    ];
    TestApp::run_with(&changes, async |app| {
        let user = app.user().await;
        let _following = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        // The first heartbeat may look up the session, because a request is trusted for only a millisecond here.
        assert!(client.block().await.expect("a heartbeat").starts_with("id: "));
        delete_sessions(app, &user).await;
        for _ in 0..20 {
            assert!(client.block().await.expect("a heartbeat").starts_with("id: "));
        }
        app.app.sessions.forget_all();
        while client.block().await.is_some() {}
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn stream_checks_its_session_while_revocations_do_not_arrive() {
    let changes = [("MATCHDAY_STREAM__HEARTBEAT", "20ms"), ("MATCHDAY_SESSIONS__CACHE_UNHEARD", "100ms")];
    TestApp::run_with(&changes, async |app| {
        let user = app.user().await;
        let _following = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        delete_sessions(app, &user).await;
        let deleted = std::time::Instant::now();
        while client.block().await.is_some() {}
        assert!(deleted.elapsed() < Duration::from_secs(5), "{:?}", deleted.elapsed());
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn listeners_are_limited_in_total_and_per_user() {
    let changes = [("MATCHDAY_STREAM__MAX_LISTENERS", "3"), ("MATCHDAY_STREAM__MAX_PER_USER", "2")];
    TestApp::run_with(&changes, async |app| {
        let (user, other) = (app.user().await, app.user().await);
        let _following = follow(app).await;
        let first = Client::open(app, &user, "", None).await;
        let second = Client::open(app, &user, "", None).await;
        assert_eq!(user.get("/api/auth/stream").await.expect(429)["code"], "too_many_streams");
        let third = Client::open(app, &other, "", None).await;
        assert_eq!(other.get("/api/auth/stream").await.expect(503)["code"], "overloaded");
        drop((first, third));
        let _again = Client::open(app, &user, "", None).await;
        drop(second);
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn stream_is_unavailable_without_nats() {
    TestApp::run(async |app| {
        // No process follows the stream in this test.
        let user = app.user().await;
        assert_eq!(user.get("/api/auth/stream").await.expect(503)["code"], "stream_unavailable");
    })
    .await;
}

#[tokio::test]
async fn tallies_are_published_once_a_second_and_converge() {
    TestApp::run(async |app| {
        let (fixtures, users) = (app.fixtures(), [app.user().await, app.user().await]);
        let event = fixtures.a_match("m").put().await;
        app.app.streams.ensure().await.expect("streams");
        // Two publishers stand for two processes, each with its own writers and changes.
        let publisher = |changes| TallyPublisher {
            db: app.app.core.db.clone(),
            streams: app.app.streams.clone(),
            changes,
            live: app.app.live.clone(),
            clock: app.clock.clone(),
        };
        let (here, elsewhere) = (publisher(app.app.predictions.changes().clone()), publisher(Changes::default()));
        let tallies = async || {
            let facts = app.app.streams.replay(Stream::Facts).await.expect("read");
            let totals = facts.iter().filter(|(subject, _)| subject == TALLY).map(|(_, payload)| {
                let tally: Value = serde_json::from_slice(payload).expect("JSON");
                tally["home"].as_i64().expect("a number")
            });
            totals.collect::<Vec<_>>()
        };
        predict(&users[0], event).await;
        here.publish_every(1).await;
        predict(&users[1], event).await;
        here.changes.take();
        elsewhere.changes.note([MatchId(event)]);
        elsewhere.publish_every(1).await;
        assert_eq!(tallies().await, [1], "the second tally falls into the same second");
        app.clock.advance(time::Duration::SECOND);
        elsewhere.publish_every(1).await;
        here.publish_every(1).await;
        assert_eq!(tallies().await, [1, 2]);
        app.clock.advance(time::Duration::SECOND);
        elsewhere.publish_every(1).await;
        assert_eq!(tallies().await, [1, 2], "nothing changed");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn recreated_stream_disconnects_all_listeners() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let guard = follow(app).await;
        let mut client = Client::open(app, &user, "", None).await;
        let before = client.last_id.clone().expect("an id");
        drop(guard);
        app.app.streams.remove().await;
        let _following = follow(app).await;
        assert!(client.event().await.is_none());
        let mut back = Client::open(app, &user, "", Some(&before)).await;
        assert_eq!(back.next().await.name, "reset");
        app.app.streams.remove().await;
    })
    .await;
}

#[tokio::test]
async fn restarted_process_buffers_earlier_facts() {
    TestApp::run(async |app| {
        let (fixtures, user) = (app.fixtures(), app.user().await);
        fixtures.a_match("m").put().await;
        let guard = follow(app).await;
        let client = Client::open(app, &user, "", None).await;
        let before = client.last_id.clone().expect("an id").parse().expect("a position");
        drop((client, guard));
        fixtures.write(&[fixtures.a_match("m").at("live", 1, 0).json()]).await;
        app.relay().await;
        let parts = &app.app;
        let again = Live::new(
            parts.streams.clone(),
            parts.predictions.clone(),
            (parts.leaderboards.clone(), parts.leagues.clone()),
            parts.sessions.clone(),
            parts.chat_view.clone(),
            parts.core.random.clone(),
            &parts.config.stream,
        );
        let closing = CancellationToken::new();
        let _closed = closing.clone().drop_guard();
        let running = again.clone();
        let until = closing.clone();
        tokio::spawn(async move { running.run(until).await });
        let mut listener = again
            .listen(user.id, user.token.clone().into(), Filter::default(), Some(before), &closing)
            .await
            .expect("listening");
        let mut words = String::new();
        while !words.contains("\"home_score\":1") {
            let next = tokio::time::timeout(PATIENCE, listener.next()).await.expect("data in time").expect("data");
            words.push_str(std::str::from_utf8(&next).expect("UTF-8"));
        }
        app.app.streams.remove().await;
    })
    .await;
}
