//! Tests of rooms against a real homeserver. Its pushes do not reach these tests: they see only changes that the
//! service made itself or found in a membership comparison.

use std::{
    sync::Mutex,
    time::{Duration, Instant},
};

use http::Method;
use matrix_appservice::{IncompleteRoom, NewRoom, RoomId as MatrixRoomId};
use platform::{
    clock::Clock as _,
    stream::{Delivery, Failure},
};
use reqwest::Client;
use serde_json::{Value, json};
use web::ids::UserId;

use super::making::{MOVED, OPENED, PLANNED};
use crate::{
    catalogue::matches::service::CREATED,
    testing::{Answer, Receiver, Reply, TestApp, TestUser, test_config, unique},
};

/// A user with the app and a chat client.
struct Fan<'a> {
    user: TestUser<'a>,
    matrix_id: String,
    token: String,
    base: url::Url,
    web: Client,
}

impl<'a> Fan<'a> {
    async fn new(app: &'a TestApp, number: u32) -> Self {
        let (user, login) = app.log_in(&format!("+1415556{number:04}")).await;
        let credentials = &login["matrix_credentials"];
        let text = |field: &str| credentials[field].as_str().expect("credentials").to_owned();
        let base = app.app.config.matrix.homeserver_url.clone().expect("a homeserver");
        Self { user, matrix_id: text("user_id"), token: text("access_token"), base, web: app.web.clone() }
    }

    fn id(&self) -> UserId {
        self.user.id
    }

    /// Calls the homeserver like a chat client and returns status and body.
    async fn chat(&self, method: Method, path: &str, body: &Value) -> (u16, Value) {
        let url = self.base.join(&format!("_matrix/client/v3/{path}")).expect("a URL");
        let mut request = self.web.request(method.clone(), url).bearer_auth(&self.token);
        if method != Method::GET {
            request = request.json(body);
        }
        let response = request.send().await.expect("a response");
        (response.status().as_u16(), response.json().await.unwrap_or_default())
    }

    async fn state(&self, room: &str, kind: &str, key: &str) -> Value {
        let (status, content) = self.chat(Method::GET, &format!("rooms/{room}/state/{kind}/{key}"), &json!({})).await;
        assert_eq!(status, 200, "{kind}: {content}");
        content
    }

    async fn create(&self, wish: Value) -> Answer {
        self.user.post("/api/auth/chat-room", wish).await
    }

    async fn opens(&self, wish: Value) -> String {
        self.create(wish).await.expect(201)["data"]["room_id"].as_str().expect("an id").to_owned()
    }

    async fn at(&self, room: &str, what: &str) -> Answer {
        let path = format!("/api/auth/chat-rooms/{}/{what}", room.replace('!', "%21").replace(':', "%3A"));
        match what {
            "member-stats" | "predictions" => self.user.get(&path).await,
            _ => self.user.post(&path, json!({})).await,
        }
    }

    async fn invites(&self, room: &str, whom: Value) -> Answer {
        self.user.post(&format!("/api/auth/chat-rooms/{room}/invite"), whom).await
    }

    async fn list(&self, query: &str) -> Vec<Value> {
        let list = self.user.get(&format!("/api/auth/chat-rooms{query}")).await.expect(200);
        list["data"].as_array().expect("a list").clone()
    }

    async fn sees(&self, room: &str) -> Option<Value> {
        self.list("?per_page=100").await.into_iter().find(|item| item["room_id"] == room)
    }
}

async fn perform(app: &TestApp, subject: &str, payload: &Value) -> Result<(), Failure> {
    let delivery = Delivery {
        subject: subject.to_owned(),
        id: None,
        payload: payload.to_string().into_bytes().into(),
        attempt: 1,
    };
    match subject.split('.').nth(1) {
        Some("room") => app.app.rooms.perform(delivery).await,
        _ => app.app.chat_work.perform(delivery).await,
    }
}

/// Handles the published work twice, because messages may be redelivered. Returns the subjects of the other messages.
async fn work(app: &TestApp) -> Vec<String> {
    let mut others = Vec::new();
    for (subject, payload) in app.published().await {
        if subject.starts_with("work.") {
            perform(app, &subject, &payload).await.expect("done");
            perform(app, &subject, &payload).await.expect("done again");
        } else {
            others.push(subject);
        }
    }
    others
}

/// Members of a room on the homeserver, without the bot.
async fn members(app: &TestApp, room: &str) -> Vec<(String, String)> {
    let homeserver = app.app.chat.homeserver().expect("a homeserver");
    let bot = homeserver.bot().expect("a bot");
    let members = homeserver.members(&MatrixRoomId::parse(room).expect("a room")).await.expect("members");
    let mut members: Vec<_> = members
        .into_iter()
        .filter(|member| member.user_id != bot)
        .map(|member| (member.user_id.to_string(), format!("{:?}", member.membership).to_lowercase()))
        .collect();
    members.sort();
    members
}

async fn match_with_a_room(app: &TestApp) -> i64 {
    let fixtures = app.fixtures();
    fixtures.write(&[fixtures.a_match("m").json()]).await;
    work(app).await;
    app.published().await;
    sqlx::query_scalar("select event_id from rooms where opened_at is not null")
        .fetch_one(&app.app.core.db)
        .await
        .expect("a match with a room")
}

async fn rooms_in_database(app: &TestApp) -> Vec<(Option<String>, bool)> {
    sqlx::query_as("select matrix_id, opened_at is not null from rooms order by id")
        .fetch_all(&app.app.core.db)
        .await
        .expect("the rooms")
}

#[tokio::test]
async fn bot_owns_public_room_and_creator_moderates() {
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 1).await;
        let event = match_with_a_room(app).await;
        let response = fan.create(json!({"name": " Derby talk ", "topic": "t", "event_id": event})).await.expect(201);
        let room = response["data"]["room_id"].as_str().expect("an id").to_owned();
        assert!(room.starts_with('!') && room.contains(':'), "{room}");
        assert_eq!(
            response["data"],
            json!({"room_id": room, "name": "Derby talk", "topic": "t", "event_id": event, "creator_id": fan.id(),
                   "is_encrypted": false, "join_rule": "public"})
        );
        let bot = app.app.chat.homeserver().expect("a homeserver").bot().expect("a bot");
        let create = fan.chat(Method::GET, &format!("rooms/{room}/state"), &json!({})).await.1;
        let find = |kind: &str| {
            let state = create.as_array().expect("a list").iter().find(|event| event["type"] == kind);
            state.unwrap_or_else(|| panic!("no {kind}")).clone()
        };
        assert_eq!(find("m.room.create")["sender"], bot.as_str());
        assert_eq!(find("m.room.create")["content"]["room_version"], "11");
        let power = find("m.room.power_levels")["content"].clone();
        assert_eq!((&power["users"][bot.as_str()], &power["users"][&fan.matrix_id]), (&json!(100), &json!(50)));
        assert_eq!(find("m.room.join_rules")["content"]["join_rule"], "public");
        assert!(!create.as_array().expect("a list").iter().any(|event| event["type"] == "m.room.encryption"));
        assert_eq!(members(app, &room).await, [(fan.matrix_id.clone(), "join".to_owned())]);

        let seen = fan.sees(&room).await.expect("listed");
        assert_eq!(
            (&seen["member_count"], &seen["is_joined"], &seen["stand"]),
            (&json!(1), &json!(true), &Value::Null)
        );
        assert_eq!((&seen["event_id"], &seen["event"]["id"]), (&json!(event), &json!(event)));
        assert!(seen["event"]["home_team"].as_str().is_some_and(|name| name.starts_with("Rovers")));
        assert!(app.published().await.is_empty());
    })
    .await;
}

#[tokio::test]
async fn private_room_requires_invitation() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, stranger) = (Fan::new(app, 2).await, Fan::new(app, 3).await);
        let response = owner.create(json!({"name": "Secret", "is_private": true})).await.expect(201);
        assert_eq!(
            (&response["data"]["join_rule"], &response["data"]["is_encrypted"]),
            (&json!("invite"), &json!(true))
        );
        assert_eq!((&response["data"]["event_id"], &response["data"]["topic"]), (&Value::Null, &json!("")));
        let room = response["data"]["room_id"].as_str().expect("an id").to_owned();
        assert_eq!(owner.state(&room, "m.room.join_rules", "").await["join_rule"], "invite");
        assert_eq!(owner.state(&room, "m.room.encryption", "").await["algorithm"], "m.megolm.v1.aes-sha2");

        assert!(stranger.sees(&room).await.is_none());
        for what in ["join", "leave", "member-stats", "predictions"] {
            stranger.at(&room, what).await.expect(403);
        }
        stranger.invites(&room, json!({"user_id": stranger.id()})).await.expect(403);
        let report = json!({"event_id": "$x", "reason": "spam"});
        stranger.user.post(&format!("/api/auth/chat-rooms/{room}/reports"), report).await.expect(403);
        let (status, _) = stranger.chat(Method::POST, &format!("rooms/{room}/join"), &json!({})).await;
        assert_eq!(status, 403, "refused for a chat client too");
        assert_eq!(members(app, &room).await, [(owner.matrix_id.clone(), "join".to_owned())], "the room is unchanged");

        owner.invites(&room, json!({"user_id": stranger.id()})).await.expect(200);
        let seen = stranger.sees(&room).await.expect("listed");
        assert_eq!((&seen["is_joined"], &seen["member_count"]), (&json!(false), &json!(1)));
        stranger.at(&room, "member-stats").await.expect(403);
        owner.invites(&room, json!({"user_id": stranger.id()})).await.expect(200);
        let joined = stranger.at(&room, "join").await.expect(200);
        assert_eq!(joined["data"], json!({"room_id": room, "membership": "join"}));
        stranger.at(&room, "join").await.expect(409);
        stranger.at(&room, "member-stats").await.expect(200);
        // Only the creator can invite.
        let third = Fan::new(app, 4).await;
        assert_eq!(stranger.invites(&room, json!({"user_id": third.id()})).await.expect(403)["code"], "not_allowed");

        stranger.at(&room, "leave").await.expect(200);
        assert!(stranger.sees(&room).await.is_none());
        stranger.at(&room, "join").await.expect(403);
        stranger.at(&room, "leave").await.expect(403);
        assert_eq!(owner.sees(&room).await.expect("listed")["member_count"], 1);
        // An invitation can be declined.
        owner.invites(&room, json!({"user_id": third.id()})).await.expect(200);
        third.at(&room, "leave").await.expect(200);
        third.at(&room, "join").await.expect(403);
        assert_eq!(members(app, &room).await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn invitation_accepts_user_id_or_username() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, guest) = (Fan::new(app, 5).await, Fan::new(app, 6).await);
        let room = owner.opens(json!({"name": "Open"})).await;
        let name = guest.matrix_id.trim_start_matches('@').split(':').next().expect("a name").to_owned();
        for (body, field) in [
            (json!({}), "user_id"),
            (json!({"user_id": guest.id(), "username": name}), "user_id"),
            (json!({"user_id": 999_999}), "user_id"),
            (json!({"user_id": 0}), "user_id"),
            (json!({"username": "nobody_of_that_name"}), "username"),
            (json!({"username": "!"}), "username"),
        ] {
            assert_eq!(owner.invites(&room, body.clone()).await.invalid_fields(), [field], "{body}");
        }
        assert_eq!(guest.invites(&room, json!({"user_id": owner.id()})).await.expect(403)["code"], "not_a_member");
        owner.invites(&room, json!({"username": name.to_uppercase()})).await.expect(200);
        assert!(members(app, &room).await.contains(&(guest.matrix_id.clone(), "invite".to_owned())));
        guest.at(&room, "join").await.expect(200);
        owner.invites(&room, json!({"username": name})).await.expect(409);
        // In a public room, every member may invite.
        let third = Fan::new(app, 7).await;
        guest.invites(&room, json!({"user_id": third.id()})).await.expect(200);

        guest.user.post(&format!("/api/auth/blocks/{}", owner.id()), json!({})).await.expect(200);
        let other = owner.opens(json!({"name": "Another"})).await;
        assert_eq!(
            owner.invites(&other, json!({"user_id": guest.id()})).await.expect(403)["code"],
            "invitation_refused"
        );
        assert_eq!(members(app, &other).await.len(), 1);
        work(app).await;
    })
    .await;
}

#[tokio::test]
async fn client_changes_appear_after_comparison() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, guest) = (Fan::new(app, 8).await, Fan::new(app, 9).await);
        let room = owner.opens(json!({"name": "Open"})).await;
        guest.at("!none:nowhere.test", "join").await.expect(404);
        guest.at("garbage", "join").await.expect(404);
        assert_eq!(guest.at(&room, "leave").await.expect(403)["code"], "not_a_member");
        guest.at(&room, "join").await.expect(200);
        let seen = guest.sees(&room).await.expect("listed");
        assert_eq!((&seen["is_joined"], &seen["member_count"]), (&json!(true), &json!(2)));
        assert_eq!(guest.at(&room, "join").await.expect(409)["code"], "already_a_member");
        let left = guest.at(&room, "leave").await.expect(200);
        assert_eq!(left["data"]["membership"], "leave");
        let seen = guest.sees(&room).await.expect("listed");
        assert_eq!((&seen["is_joined"], &seen["member_count"]), (&json!(false), &json!(1)));

        // Changes by chat clients, whose pushes are not delivered.
        let third = Fan::new(app, 10).await;
        assert_eq!(guest.chat(Method::POST, &format!("rooms/{room}/join"), &json!({})).await.0, 200);
        assert_eq!(owner.chat(Method::POST, &format!("rooms/{room}/leave"), &json!({})).await.0, 200);
        let invitation = json!({"user_id": third.matrix_id});
        assert_eq!(guest.chat(Method::POST, &format!("rooms/{room}/invite"), &invitation).await.0, 200);
        assert_eq!(guest.sees(&room).await.expect("listed")["is_joined"], false);
        app.clock.advance(time::Duration::minutes(1));
        app.app.membership_sync.request_comparison().await.expect("asked");
        app.clock.advance(time::Duration::seconds(1));
        assert_eq!(app.app.membership_sync.compare_some().await.expect("compared"), 1);
        assert_eq!(app.app.membership_sync.compare_some().await.expect("nothing is due"), 0);
        let seen = guest.sees(&room).await.expect("listed");
        assert_eq!((&seen["is_joined"], &seen["member_count"]), (&json!(true), &json!(1)));
        assert_eq!(owner.sees(&room).await.expect("listed")["is_joined"], false);
        third.at(&room, "join").await.expect(200);
        assert_eq!(third.sees(&room).await.expect("listed")["member_count"], 2);
        // A comparison does not undo changes made here after its request, and corrects a wrong member count.
        app.clock.advance(time::Duration::seconds(1));
        sqlx::query("update room_activity set member_count = 40").execute(&app.app.core.db).await.expect("astray");
        app.app.membership_sync.request_comparison().await.expect("asked");
        app.clock.advance(time::Duration::seconds(1));
        assert_eq!(app.app.membership_sync.compare_some().await.expect("compared"), 1);
        assert_eq!(third.sees(&room).await.expect("listed")["member_count"], 2);
        // Comparisons are also due daily. A room that the homeserver does not have does not delay the others.
        app.clock.advance(time::Duration::days(1));
        sqlx::raw_sql(
            "insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at)
               values ('!gone:nowhere.test', 'gone', 'Gone', 1, now(), now(), now());
             insert into room_activity (room_id, last_activity, compared_at) select max(id), '2027-01-01', '2020-01-01' from rooms",
        )
        .execute(&app.app.core.db)
        .await
        .expect("a room");
        assert_eq!(app.app.membership_sync.compare_some().await.expect("compared"), 2);
        assert_eq!(app.app.membership_sync.compare_some().await.expect("compared"), 0);
        let status = app.app.membership_sync.status().await.expect("a status");
        assert!(status.compared_since.is_some_and(|since| since >= app.clock.now() - time::Duration::days(1)));
    })
    .await;
}

#[tokio::test]
async fn failed_creation_resumes_on_retry() {
    let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 11).await;
        // The same service while the homeserver is unavailable.
        let lost = app.second(test_config(&away)).await.app;
        let wish = super::service::RoomRequest {
            name: web::fields::FromJson::from_json(&json!("Derby")).expect("a name"),
            topic: super::rules::Topic::default(),
            event_id: None,
            is_private: true,
        };
        lost.rooms.create(fan.id(), &wish).await.expect_err("the homeserver is unavailable");
        assert_eq!(rooms_in_database(app).await, [(None, false)]);
        assert!(fan.list("").await.is_empty(), "the room is not visible");
        // Simulates a crash after the homeserver created the room.
        let alias: String =
            sqlx::query_scalar("select alias from rooms").fetch_one(&app.app.core.db).await.expect("read");
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        homeserver.ensure_bot().await.expect("a bot");
        let begun =
            NewRoom { alias: &alias, name: "Derby", topic: "", private: true, bot_invites: false, moderator: None };
        let begun = homeserver.ensure_room(&begun, IncompleteRoom::Wait).await.expect("made");

        let wishes = json!({"name": "Derby", "is_private": true});
        let room = fan.opens(wishes.clone()).await;
        assert_eq!(room, begun.as_str(), "the interrupted creation is resumed");
        assert_eq!(members(app, &room).await, [(fan.matrix_id.clone(), "join".to_owned())]);
        let power = fan.state(&room, "m.room.power_levels", "").await;
        assert_eq!(power["users"][&fan.matrix_id], 50, "completed");
        app.clock.advance(time::Duration::minutes(2));
        assert_ne!(fan.opens(wishes).await, room, "a room that opened earlier is not returned again");
        assert_eq!(rooms_in_database(app).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn abandoned_creation_is_removed() {
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 12).await;
        let room = fan.opens(json!({"name": "Derby"})).await;
        // Simulates a crash before the room was opened.
        app.clock.advance(time::Duration::seconds(31));
        sqlx::query("update rooms set opened_at = null").execute(&app.app.core.db).await.expect("written");
        let alias: String =
            sqlx::query_scalar("select alias from rooms").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(app.app.rooms.remove_abandoned().await.expect("tidied"), 0, "a retry is still possible");
        app.clock.advance(time::Duration::minutes(11));
        // Simulates a crash during the removal: a new request gets a new room.
        sqlx::query("update rooms set discarded_at = now()").execute(&app.app.core.db).await.expect("decided");
        assert_ne!(fan.opens(json!({"name": "Derby"})).await, room);
        assert_eq!(app.app.rooms.remove_abandoned().await.expect("tidied"), 1);
        assert_eq!(rooms_in_database(app).await.len(), 1);
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        assert_eq!(homeserver.find_room(&alias).await.expect("asked"), None);
        let (_, joined) = fan.chat(Method::GET, "joined_rooms", &json!({})).await;
        let left = joined["joined_rooms"].as_array().expect("a list");
        assert!(left.len() == 1 && left[0] != room.as_str(), "{left:?}");
    })
    .await;
}

#[tokio::test]
async fn repeated_creation_returns_the_same_room() {
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 13).await;
        let wish = || fan.create(json!({"name": "Twice"}));
        let (one, two) = tokio::join!(wish(), wish());
        let (one, two) = (one.expect(201), two.expect(201));
        assert_eq!(one["data"], two["data"], "double tap");
        assert_eq!(wish().await.expect(201)["data"], one["data"], "lost response");
        assert_eq!(rooms_in_database(app).await.len(), 1);
        assert_eq!(members(app, one["data"]["room_id"].as_str().expect("an id")).await.len(), 1);
        // The client disconnects before the homeserver has created the room.
        let hung_up =
            tokio::time::timeout(std::time::Duration::from_millis(30), fan.create(json!({"name": "Third"}))).await;
        assert!(hung_up.is_err(), "creation takes longer than that");
        let third = fan.opens(json!({"name": "Third"})).await;
        assert_eq!(rooms_in_database(app).await.len(), 2);
        assert_eq!(fan.list("").await.len(), 2);
        let (_, joined) = fan.chat(Method::GET, "joined_rooms", &json!({})).await;
        assert_eq!(joined["joined_rooms"].as_array().map(Vec::len), Some(2), "{third}");
        // Two minutes later, the same request creates another room.
        app.clock.advance(time::Duration::minutes(2));
        assert_ne!(wish().await.expect(201)["data"]["room_id"], one["data"]["room_id"]);
    })
    .await;
}

#[tokio::test]
async fn number_of_rooms_of_a_fan_is_limited() {
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 61).await;
        sqlx::query(
            "insert into rooms (creator_id, matrix_id, alias, name, created_at, made_until, opened_at)
             select $1, '!full' || n, 'full' || n, 'Full', now(), now(), now() from generate_series(1, 99) n",
        )
        .bind(fan.id().0)
        .execute(&app.app.core.db)
        .await
        .expect("inserted");
        fan.opens(json!({"name": "Last"})).await;
        assert_eq!(fan.create(json!({"name": "Further"})).await.expect(409)["code"], "too_many_rooms");
        // A retry of the last request still finds its room.
        fan.opens(json!({"name": "Last"})).await;
    })
    .await;
}

#[tokio::test]
async fn room_creation_validates_its_fields() {
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 14).await;
        for (body, field) in [
            (json!({}), "name"),
            (json!({"name": ""}), "name"),
            (json!({"name": 5}), "name"),
            (json!({"name": "x".repeat(101)}), "name"),
            (json!({"name": "n", "topic": "x".repeat(501)}), "topic"),
            (json!({"name": "n", "event_id": "x"}), "event_id"),
            (json!({"name": "n", "event_id": 2_147_483_647}), "event_id"),
            (json!({"name": "n", "is_private": "maybe"}), "is_private"),
        ] {
            assert_eq!(fan.create(body.clone()).await.invalid_fields(), [field], "{body}");
        }
        for query in ["joined=perhaps", "event_id=x", "per_page=0", "page=0"] {
            fan.user.get(&format!("/api/auth/chat-rooms?{query}")).await.expect(422);
        }
        assert!(rooms_in_database(app).await.is_empty());
        let longest = json!({"name": "⚽".repeat(100), "topic": "⚽".repeat(500)});
        let room = fan.opens(longest.clone()).await;
        assert_eq!(fan.state(&room, "m.room.name", "").await["name"], longest["name"]);
    })
    .await;
}

#[tokio::test]
async fn room_list_is_filtered_searched_and_paged() {
    TestApp::run_with_chat(&[], async |app| {
        let (fan, other) = (Fan::new(app, 15).await, Fan::new(app, 16).await);
        let event = app.fixtures().a_match("m").put().await;
        app.published().await;
        let mut rooms = Vec::new();
        for (who, name, event) in [(&fan, "First 100%", Some(event)), (&fan, "Second", None), (&other, "Third_", None)]
        {
            app.clock.advance(time::Duration::minutes(1));
            rooms.push(who.opens(json!({"name": name, "event_id": event})).await);
        }
        let ids = async |query: &str| -> Vec<String> {
            let list = fan.list(query).await;
            list.iter().map(|room| room["room_id"].as_str().expect("an id").to_owned()).collect()
        };
        let [first, second, third] = &rooms[..] else { panic!("three rooms") };
        assert_eq!(ids("").await, [third, second, first].map(String::as_str));
        assert_eq!(ids("?joined=true").await, [second, first].map(String::as_str));
        assert_eq!(ids("?joined=false").await.len(), 3, "`false` does not filter");
        assert_eq!(ids(&format!("?event_id={event}")).await, [first.as_str()]);
        assert_eq!(ids("?event_id=999999").await.len(), 0);
        assert_eq!(ids("?search=SECO").await, [second.as_str()]);
        assert_eq!(ids("?search=%25").await, [first.as_str()], "wildcards are matched literally");
        assert_eq!(ids("?search=_").await, [third.as_str()]);
        assert_eq!(ids("?per_page=2").await, [third, second].map(String::as_str));
        let beyond = fan.user.get("/api/auth/chat-rooms?per_page=2&page=9").await.expect(200);
        assert_eq!(beyond, json!({"data": [], "meta": {"current_page": 9, "last_page": 2, "per_page": 2, "total": 3}}));
        assert_eq!(fan.user.get("/api/auth/chat-rooms").await.expect(200)["meta"]["per_page"], 50);
        // A message is sent in the oldest room.
        app.clock.advance(time::Duration::minutes(1));
        let now = i64::try_from(app.clock.now().unix_timestamp_nanos() / 1_000_000).expect("now");
        app.push(&[json!({"event_id": format!("${}", unique("e")), "room_id": first, "type": "m.room.message",
            "sender": fan.matrix_id, "origin_server_ts": now, "content": {"body": "hello"}})])
            .await;
        assert_eq!(ids("").await, [first, third, second].map(String::as_str));
    })
    .await;
}

#[tokio::test]
async fn every_match_has_room_named_after_it() {
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 17).await;
        let fixtures = app.fixtures();
        let report = fixtures.write(&[fixtures.a_match("m").json()]).await;
        assert_eq!(report.rooms, 1);
        let published = app.published().await;
        let subjects: Vec<&str> = published.iter().map(|(subject, _)| subject.as_str()).collect();
        assert_eq!(subjects, [CREATED, PLANNED]);
        let listed = async || fan.user.get("/api/auth/events").await.expect(200)["data"][0].clone();
        assert_eq!(listed().await["chat_room_id"], Value::Null, "the room is only planned");
        assert!(fan.list("").await.is_empty());
        // Two workers handle it at the same time.
        let (one, two) = tokio::join!(
            perform(app, &published[1].0, &published[1].1),
            perform(app, &published[1].0, &published[1].1)
        );
        one.and(two).expect("made");
        let opened = app.published().await;
        assert_eq!(opened.len(), 1);
        assert_eq!(opened[0].0, OPENED);
        let room = listed().await["chat_room_id"].as_str().expect("a room").to_owned();
        let rooms = fan.list("").await;
        assert_eq!((rooms.len(), &rooms[0]["room_id"], &rooms[0]["stand"]), (1, &json!(room), &json!(1)));
        assert_eq!(rooms[0]["name"], format!("Rovers {0} – City {0}", fixtures.tag));
        assert_eq!(rooms[0]["topic"], format!("Cup {} · 20 November 2026, 17:00 UTC · Test Park", fixtures.tag));
        assert_eq!((&rooms[0]["member_count"], &rooms[0]["is_encrypted"]), (&json!(0), &json!(false)));
        assert_eq!(fixtures.write(&[fixtures.a_match("m").json()]).await.rooms, 0, "the match has a room");
        assert!(app.published().await.is_empty());

        // The match is rescheduled.
        let moved = fixtures.a_match("m").starting_in(time::Duration::hours(26)).json();
        fixtures.write(&[moved]).await;
        assert!(app.app.rooms.plan_missing().await.expect("looked") == 0);
        let published = app.published().await;
        assert!(published.iter().any(|(subject, _)| subject == MOVED), "{published:?}");
        for (subject, payload) in published.iter().filter(|(subject, _)| subject == MOVED) {
            perform(app, subject, payload).await.expect("done");
        }
        assert!(fan.list("").await[0]["topic"].as_str().expect("a topic").contains("21 November 2026, 17:00 UTC"));
        fan.at(&room, "join").await.expect(200);
        let topic = fan.state(&room, "m.room.topic", "").await;
        assert!(topic["topic"].as_str().expect("a topic").contains("21 November 2026, 17:00 UTC"), "{topic}");
        // Users cannot rename it.
        let renamed = json!({"name": "Mine"});
        assert_eq!(fan.chat(Method::PUT, &format!("rooms/{room}/state/m.room.name/"), &renamed).await.0, 403);
    })
    .await;
}

#[tokio::test]
async fn room_with_lost_work_is_planned_again() {
    TestApp::run_with_chat(&[], async |app| {
        let fixtures = app.fixtures();
        fixtures.import(&[fixtures.a_match("m").json()]).await;
        app.published().await; // and never done
        let plan = async || app.app.rooms.plan_unmade().await.expect("planned");
        assert_eq!(plan().await, 0, "the work may still be queued");
        app.clock.advance(time::Duration::minutes(11));
        assert_eq!(plan().await, 1);
        let published = app.published().await;
        assert_eq!(published.iter().map(|(subject, _)| subject.as_str()).collect::<Vec<_>>(), [PLANNED]);
        perform(app, &published[0].0, &published[0].1).await.expect("made");
        assert_eq!(app.published().await[0].0, OPENED);
        assert_eq!(plan().await, 0, "the room is open");
    })
    .await;
}

#[tokio::test]
async fn matches_get_rooms_after_chat_is_enabled() {
    TestApp::run_with_chat(&[], async |app| {
        let fixtures = app.fixtures();
        fixtures.import(&[fixtures.a_match("m").json(), fixtures.a_match("n").json()]).await;
        sqlx::query("delete from rooms").execute(&app.app.core.db).await.expect("none");
        app.published().await;
        assert_eq!(app.app.rooms.plan_missing().await.expect("planned"), 2);
        assert_eq!(app.app.rooms.plan_missing().await.expect("planned"), 0);
        assert_eq!(app.published().await.len(), 2);
    })
    .await;
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        assert_eq!(fixtures.import(&[fixtures.a_match("m").json()]).await.rooms, 0, "no rooms if chat is disabled");
        app.published().await;
        let user = app.user().await;
        assert_eq!(user.get("/api/auth/chat-rooms").await.expect(200)["data"], json!([]));
        let refused = user.post("/api/auth/chat-room", json!({"name": "n"})).await;
        assert_eq!(refused.expect(503)["code"], "chat_unavailable");
    })
    .await;
}

#[tokio::test]
async fn full_room_opens_another_stand() {
    // Clients that retry this often look like a rush, in which several stands fill at the same time.
    let changes = [("MATCHDAY_ROOMS__MATCH_CAPACITY", "2"), ("MATCHDAY_ROOMS__PARALLEL_STANDS", "1")];
    TestApp::run_with_chat(&changes, async |app| {
        let event = match_with_a_room(app).await;
        let mut fans = Vec::new();
        for number in 20..27 {
            fans.push(Fan::new(app, number).await);
        }
        let room = fans[0].list("").await[0]["room_id"].as_str().expect("a room").to_owned();
        // All users join at the same time, and one of them twice.
        let joins = fans.iter().chain([&fans[0]]).map(async |fan| {
            loop {
                let response = fan.at(&room, "join").await;
                // Retries like a client, but without waiting whole seconds.
                if !String::from_utf8_lossy(&response.bytes).contains("room_busy") {
                    return response;
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        let responses = futures_util::future::join_all(joins).await;
        let mut placed: Vec<(String, String)> = Vec::new();
        for response in responses {
            assert!([200, 409].contains(&response.status.as_u16()), "{:?}", String::from_utf8_lossy(&response.bytes));
            if response.status.as_u16() == 200 {
                let body = response.expect(200);
                let text = |value: &Value| value.as_str().expect("a text").to_owned();
                placed.push((text(&body["data"]["room_id"]), text(&body["message"])));
            }
        }
        assert!(placed.len() >= 7, "every user has a seat");
        for (at, message) in &placed {
            assert_eq!(*at != room, message.contains("full"), "{message}");
        }
        let stands = fans[0].list(&format!("?event_id={event}")).await;
        assert_eq!(stands.len(), 4);
        let mut numbers: Vec<(i64, i64)> = stands
            .iter()
            .map(|stand| (stand["stand"].as_i64().expect("one"), stand["member_count"].as_i64().expect("a count")))
            .collect();
        numbers.sort_unstable();
        assert_eq!(numbers, [(1, 2), (2, 2), (3, 2), (4, 1)]);
        let mut all_members = Vec::new();
        for stand in &stands {
            let members = members(app, stand["room_id"].as_str().expect("an id")).await;
            assert_eq!(stand["member_count"], members.len());
            all_members.extend(members.into_iter().map(|(who, _)| who));
        }
        all_members.sort();
        all_members.dedup();
        assert_eq!(all_members.len(), 7, "no user is in two stands");
        let second = stands.iter().find(|stand| stand["stand"] == 2).expect("one");
        assert!(second["name"].as_str().expect("a name").ends_with("· stand 2"));
        // A match shows its first room, regardless of the caller's stand.
        assert_eq!(fans[0].user.get("/api/auth/events").await.expect(200)["data"][0]["chat_room_id"], room.as_str());

        // A member of one stand is a member of the match and cannot join any other stand.
        for stand in &stands {
            fans[3].at(stand["room_id"].as_str().expect("an id"), "join").await.expect(409);
        }
        for stand in &stands {
            let stats = fans[3].at(stand["room_id"].as_str().expect("an id"), "member-stats").await.expect(200);
            assert_eq!(stats["data"]["total_members"], 7, "all stands are counted");
        }
        // A seat that becomes free is used before another stand opens.
        let first = stands.iter().find(|stand| stand["stand"] == 1).expect("one");
        let in_first = members(app, first["room_id"].as_str().expect("an id")).await[0].0.clone();
        let leaver = fans.iter().find(|fan| fan.matrix_id == in_first).expect("one of them");
        leaver.at(&room, "leave").await.expect(200);
        assert_eq!(leaver.at(&room, "join").await.expect(200)["data"]["room_id"], room.as_str());
        let (late, later) = (Fan::new(app, 27).await, Fan::new(app, 28).await);
        let fourth = stands.iter().find(|stand| stand["stand"] == 4).expect("one")["room_id"].clone();
        assert_eq!(late.at(&room, "join").await.expect(200)["data"]["room_id"], fourth);
        later.at(&room, "join").await.expect(200);
        assert_eq!(later.list(&format!("?event_id={event}")).await.len(), 5);
        work(app).await;
    })
    .await;
}

#[tokio::test]
async fn seat_is_reserved_for_limited_time() {
    TestApp::run_with_chat(&[("MATCHDAY_ROOMS__MATCH_CAPACITY", "1")], async |app| {
        let event = match_with_a_room(app).await;
        let (first, second, third) = (Fan::new(app, 30).await, Fan::new(app, 31).await, Fan::new(app, 32).await);
        let room = first.list("").await[0]["room_id"].as_str().expect("a room").to_owned();
        // Simulates a lost response of the homeserver.
        sqlx::query("insert into seats (user_id, event_id, room_id, expires_at) select $1, $2, id, $3 from rooms")
            .bind(first.id())
            .bind(event)
            .bind(app.clock.now() + time::Duration::minutes(1))
            .execute(&app.app.core.db)
            .await
            .expect("a seat");
        assert_ne!(second.at(&room, "join").await.expect(200)["data"]["room_id"], room.as_str());
        app.clock.advance(time::Duration::minutes(2));
        assert_eq!(third.at(&room, "join").await.expect(200)["data"]["room_id"], room.as_str());
        assert_ne!(first.at(&room, "join").await.expect(200)["data"]["room_id"], room.as_str());
        let seats: i64 =
            sqlx::query_scalar("select count(*) from seats").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(seats, 0, "the seat is released after the join");
        work(app).await;
    })
    .await;
}

#[tokio::test]
async fn lists_work_while_homeserver_is_down() {
    TestApp::run_with_chat(&[], async |app| {
        let (owner, guest) = (Fan::new(app, 33).await, Fan::new(app, 34).await);
        let room = owner.opens(json!({"name": "Open"})).await;
        let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
        let lost = crate::router::public(&app.second(test_config(&away)).await.app);
        let send = async |method: &str, path: &str, body: &str| {
            use web::server::Answers as _;
            let request = http::Request::builder()
                .method(method)
                .uri(path)
                .header("authorization", format!("Bearer {}", guest.user.token))
                .body(axum::body::Body::from(body.to_owned()))
                .expect("a request");
            let response = lost.answer(request).await;
            (response.status().as_u16(), response.headers().contains_key("retry-after"))
        };
        for path in ["/api/auth/chat-rooms", &format!("/api/auth/chat-rooms/{room}/member-stats")] {
            assert_eq!(send("GET", path, "").await, (200, false), "{path}");
        }
        for (path, body) in
            [("/api/auth/chat-room".to_owned(), r#"{"name": "n"}"#), (format!("/api/auth/chat-rooms/{room}/join"), "")]
        {
            assert_eq!(send("POST", &path, body).await, (503, true), "{path}");
        }
        assert_eq!(guest.sees(&room).await.expect("listed")["member_count"], 1);
        guest.at(&room, "join").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn renamed_user_keeps_rooms_and_power() {
    TestApp::run_with_chat(&[], async |app| {
        let (fan, other) = (Fan::new(app, 35).await, Fan::new(app, 36).await);
        let own = fan.opens(json!({"name": "Own", "is_private": true})).await;
        let theirs = other.opens(json!({"name": "Theirs"})).await;
        let asked = other.opens(json!({"name": "Asked", "is_private": true})).await;
        fan.at(&theirs, "join").await.expect(200);
        other.invites(&asked, json!({"user_id": fan.id()})).await.expect(200);
        let (pest, record_around) = (Fan::new(app, 37).await, Fan::new(app, 38).await);
        fan.user.post(&format!("/api/auth/blocks/{}", pest.id()), json!({})).await.expect(200);
        record_around.user.post(&format!("/api/auth/blocks/{}", fan.id()), json!({})).await.expect(200);
        sqlx::query("update users set username_is_generated = true where user_id = $1")
            .bind(fan.id())
            .execute(&app.app.core.db)
            .await
            .expect("written");
        let name = unique("ada");
        fan.user.post("/api/auth/update-user-info", json!({"username": name})).await.expect(200);
        work(app).await;
        let server = app.app.config.matrix.server_name.clone().expect("a name");
        let new = format!("@{name}:{server}");
        assert_eq!(members(app, &own).await, [(new.clone(), "join".to_owned())]);
        let mut expected = vec![(new.clone(), "join".to_owned()), (other.matrix_id.clone(), "join".to_owned())];
        expected.sort();
        assert_eq!(members(app, &theirs).await, expected);
        assert!(members(app, &asked).await.contains(&(new.clone(), "invite".to_owned())));
        let (again, login) = app.log_in("+14155560035").await;
        let moved = Fan {
            user: again,
            matrix_id: new.clone(),
            token: login["matrix_credentials"]["access_token"].as_str().expect("a token").to_owned(),
            base: fan.base.clone(),
            web: fan.web.clone(),
        };
        assert_eq!(moved.state(&own, "m.room.power_levels", "").await["users"][&new], 50);
        assert_eq!(moved.sees(&theirs).await.expect("listed")["member_count"], 2);
        assert_eq!(moved.sees(&own).await.expect("listed")["is_joined"], true);
        moved.at(&asked, "join").await.expect(200);
        for (whose, whom) in [(&moved, &pest.matrix_id), (&record_around, &new)] {
            let path = format!("user/{}/account_data/m.ignored_user_list", whose.matrix_id);
            let (_, list) = whose.chat(Method::GET, &path, &json!({})).await;
            assert!(list["ignored_users"].get(whom).is_some(), "{list}");
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn creating_and_joining_rooms_are_rate_limited() {
    let staging = [
        ("MATCHDAY_ENV", "staging"),
        ("MATCHDAY_SMS__COUNTRIES", "US"),
        ("MATCHDAY_MATRIX__PUBLIC_URL", "https://chat.example.org"),
        ("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1"),
    ];
    TestApp::run_with_chat(&staging, async |app| {
        let user = app.user().await;
        for _ in 0..12 {
            let refused = user.post("/api/auth/chat-room", json!({"name": "n"})).await;
            assert_eq!(refused.header("x-ratelimit-limit"), Some("10"));
            // Failed requests do not count towards the rate limit.
            refused.expect(503);
        }
        assert!(rooms_in_database(app).await.is_empty(), "failed requests leave no rooms");
        for _ in 0..10 {
            app.app.rooms.permit(super::service::Action::Create, user.id).await;
        }
        let refused = user.post("/api/auth/chat-room", json!({"name": "n"})).await;
        assert_eq!(refused.header("retry-after"), Some("60"));
        refused.expect(429);
        for _ in 0..60 {
            user.post("/api/auth/chat-rooms/!a:example.org/join", json!({})).await.expect(404);
        }
        user.post("/api/auth/chat-rooms/!a:example.org/leave", json!({})).await.expect(429);
    })
    .await;
}

/// A match's room with five members, of whom one has left, and a remote member. Counting them needs no homeserver.
async fn a_crowd<'a>(app: &'a TestApp, fixtures: &crate::testing::TestFixtures<'_>, event: i64) -> Vec<TestUser<'a>> {
    let now = app.clock.now();
    let old = now - time::Duration::days(8);
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "insert into rooms (matrix_id, alias, name, event_id, stand, created_at, made_until, opened_at)
           values ('!stats:example.org', 'stats', 'Stats', {event}, 1, '{now}', '{now}', '{now}');
         insert into room_activity (room_id, last_activity, compared_at) select id, '{now}', '{now}' from rooms;
         insert into remote_members select id, '@ada:elsewhere.example', 'join', '{now}' from rooms"
    )))
    .execute(&app.app.core.db)
    .await
    .expect("a room");
    let mut users = Vec::new();
    for (team, active, membership) in [
        (Some("rovers"), now, "join"),
        (Some("city"), old, "join"),
        (Some("albion"), old, "join"),
        (None, old, "join"),
        (Some("rovers"), now, "leave"),
    ] {
        let user = app.user().await;
        if let Some(team) = team {
            let id = fixtures.team_id(team).await;
            user.post("/api/auth/teams/primary", json!({"team_id": id})).await.expect(200);
        }
        sqlx::query(
            "insert into room_members (user_id, room_id, membership, active_at, changed_at) select $1, id, $2, $3, $3 from rooms",
        )
        .bind(user.id)
        .bind(membership)
        .bind(active)
        .execute(&app.app.core.db)
        .await
        .expect("a member");
        users.push(user);
    }
    users
}

#[tokio::test]
async fn member_stats_count_members_teams_and_predictions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let decade = time::Duration::days(3_650);
        let event = fixtures.a_match("m").starting_in(decade).put().await;
        let other = fixtures.a_match("n").between("albion", "wanderers").starting_in(decade).put().await;
        let users = a_crowd(app, &fixtures, event).await;
        let stats = async || {
            let response = users[0].get("/api/auth/chat-rooms/!stats:example.org/member-stats").await;
            response.expect(200)["data"].clone()
        };
        let distribution = json!({fixtures.slug("rovers"): 1, fixtures.slug("city"): 1, "neutral": 3});
        assert_eq!(
            stats().await,
            json!({"total_members": 5, "active_members": 2, "predictions_made": 0, "top_predictors": [],
                   "team_distribution": distribution})
        );
        let predict = async |at: usize, event: i64, pick: &str| {
            let body = json!({"event_id": event, "prediction": pick});
            users[at].post("/api/auth/predictions", body).await.expect(201);
        };
        for (at, pick) in [(0, "home"), (1, "away"), (4, "home")] {
            predict(at, event, pick).await;
        }
        for (at, pick) in [(0, "draw"), (1, "home"), (2, "home"), (4, "home")] {
            predict(at, other, pick).await;
        }
        // A prediction for the room's match makes a member active.
        let now_stats = stats().await;
        assert_eq!((&now_stats["predictions_made"], &now_stats["active_members"]), (&json!(2), &json!(3)));
        assert_eq!(now_stats["top_predictors"], json!([]), "no match is settled");
        let list = users[2].get("/api/auth/chat-rooms/!stats:example.org/predictions").await.expect(200);
        assert_eq!(list["data"].as_array().map(Vec::len), Some(2), "only members' predictions are listed");
        assert_eq!(
            list["meta"],
            json!({"total_predictions": 2, "home_predictions": 1, "draw_predictions": 0, "away_predictions": 1,
                   "next_cursor": null})
        );

        let results = [
            fixtures.a_match("m").starting_in(decade).at("finished", 2, 1).json(),
            fixtures.a_match("n").between("albion", "wanderers").starting_in(decade).at("finished", 1, 0).json(),
        ];
        fixtures.import(&results).await;
        app.settle().await;
        let top = stats().await["top_predictors"].clone();
        let name = async |at: usize| app.app.accounts.find(users[at].id).await.expect("read").expect("one").username;
        let line = async |at: usize, correct: i64, accuracy: f64| {
            json!({"user_id": users[at].id, "username": name(at).await.as_str(), "correct_predictions": correct,
                   "accuracy": accuracy})
        };
        // The third member has one correct prediction of one; the other two have one of two.
        assert_eq!(top, json!([line(2, 1, 1.0).await, line(0, 1, 0.5).await, line(1, 1, 0.5).await]));
        // Users whom the caller has blocked are counted but not named.
        users[0].post(&format!("/api/auth/blocks/{}", users[2].id), json!({})).await.expect(200);
        let without = stats().await;
        assert_eq!(without["top_predictors"], json!([line(0, 1, 0.5).await, line(1, 1, 0.5).await]));
        assert_eq!(without["total_members"], 5);
        users[0].delete(&format!("/api/auth/blocks/{}", users[2].id)).await.expect(200);
        app.published().await;
        // An awarded match does not count.
        let awarded = fixtures.a_match("m").starting_in(decade).at("awarded", 3, 0).json();
        fixtures.import(&[awarded, results[1].clone()]).await;
        app.settle().await;
        let top = stats().await["top_predictors"].clone();
        assert_eq!(top, json!([line(1, 1, 1.0).await, line(2, 1, 1.0).await, line(0, 0, 0.0).await]));

        // In a room without a match, each member's favourite team counts.
        sqlx::query("update rooms set event_id = null, stand = null, creator_id = 1")
            .execute(&app.app.core.db)
            .await
            .expect("no match");
        assert_eq!(
            stats().await["team_distribution"],
            json!({fixtures.slug("rovers"): 1, fixtures.slug("city"): 1, fixtures.slug("albion"): 1, "neutral": 2})
        );
        assert_eq!(stats().await["predictions_made"], 0);
        let list = users[2].get("/api/auth/chat-rooms/!stats:example.org/predictions").await.expect(200);
        assert_eq!((&list["data"], &list["meta"]["total_predictions"]), (&json!([]), &json!(0)));
    })
    .await;
}

/// A homeserver that adds one member at a time and takes this long for each.
async fn slow_homeserver(takes: Duration) -> Receiver {
    let free_at = Mutex::new(Instant::now());
    Receiver::start(move |number, received| {
        let reply = Reply::status(200).with("content-type", "application/json");
        let reply = reply.saying(&json!({"event_id": format!("$join{number}")}).to_string());
        if !received.path.contains("/state/m.room.member/") {
            return reply;
        }
        let (mut free_at, now) = (free_at.lock().expect("not poisoned"), Instant::now());
        *free_at = now.max(*free_at) + takes;
        reply.after(*free_at - now)
    })
    .await
}

#[tokio::test]
async fn crowd_is_refused_quickly_and_joins_on_retry() {
    const CROWD: usize = 150;
    let homeserver = slow_homeserver(Duration::from_millis(20)).await;
    let url = homeserver.url.to_string();
    let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_ROOMS__PARALLEL_STANDS", "1")];
    TestApp::run_with(&changes, async |app| {
        app.fixtures().a_match("m").put().await;
        app.published().await;
        sqlx::query("update rooms set matrix_id = '!derby:matchday.localhost', opened_at = now()")
            .execute(&app.app.core.db)
            .await
            .expect("a room");
        let mut users = Vec::new();
        for _ in 0..CROWD {
            users.push(app.user().await);
        }
        sqlx::query("update users set has_chat_account = true").execute(&app.app.core.db).await.expect("chat accounts");
        // Measures how long the same number of requests takes without a queue, under the current load of this machine.
        let path = |what: &str| format!("/api/auth/chat-rooms/!derby:matchday.localhost/{what}");
        let began = Instant::now();
        let refusals = users.iter().map(async |user| user.post(&path("leave"), json!({})).await.expect(403));
        futures_util::future::join_all(refusals).await;
        let overhead = began.elapsed();

        let (mut second, mut tries, mut longest) = (0, 0, Duration::ZERO);
        let mut coming: Vec<(u64, usize)> = (0..CROWD).map(|user| (0, user)).collect();
        while let Some(next) = coming.iter().map(|(at, _)| *at).min() {
            app.clock.advance(time::Duration::seconds(i64::try_from(next - second).expect("seconds")));
            second = next;
            let now: Vec<usize> = coming.extract_if(.., |(at, _)| *at == next).map(|(_, user)| user).collect();
            let joins = now.into_iter().map(async |user| {
                let began = Instant::now();
                let response = users[user].post(&path("join"), json!({})).await;
                (user, response, began.elapsed())
            });
            for (user, response, took) in futures_util::future::join_all(joins).await {
                tries += 1;
                if response.status.as_u16() == 200 {
                    continue;
                }
                longest = longest.max(took);
                let wait = response.header("retry-after").and_then(|wait| wait.parse::<u64>().ok());
                let refused = response.expect(503);
                assert_eq!(refused["code"], "room_busy");
                assert_eq!(refused["message"], "The chat room is busy. Try again in a few seconds.");
                let wait = wait.expect("seconds to wait");
                assert!((1..=76).contains(&wait), "{wait}");
                coming.push((second + wait, user));
            }
            assert!(second < 120 && tries < 10 * CROWD, "{} users have not joined yet", coming.len());
        }
        let members: i64 = sqlx::query_scalar("select member_count from room_activity")
            .fetch_one(&app.app.core.db)
            .await
            .expect("counted");
        assert_eq!(members, i64::try_from(CROWD).expect("a number"));
        assert!(tries > CROWD, "no join was refused");
        let bound = Duration::from_secs(1) + 2 * overhead;
        assert!(longest < bound, "a refusal took {longest:?}, with an overhead of {overhead:?}");
    })
    .await;
}

#[tokio::test]
async fn join_that_takes_too_long_is_refused_and_continues() {
    let homeserver = slow_homeserver(Duration::from_millis(1_500)).await;
    let url = homeserver.url.to_string();
    TestApp::run_with(&[("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str())], async |app| {
        app.fixtures().a_match("m").put().await;
        app.published().await;
        sqlx::query("update rooms set matrix_id = '!derby:matchday.localhost', opened_at = now()")
            .execute(&app.app.core.db)
            .await
            .expect("a room");
        let (user, other, alone) = (app.user().await, app.user().await, app.user().await);
        sqlx::query("update users set has_chat_account = true").execute(&app.app.core.db).await.expect("chat accounts");
        let join = "/api/auth/chat-rooms/!derby:matchday.localhost/join";
        // Without others in the queue, the caller waits.
        alone.post(join, json!({})).await.expect(200);
        let (refused, _) = tokio::join!(user.post(join, json!({})), other.post(join, json!({})));
        assert!(refused.header("retry-after").is_some());
        assert_eq!(refused.expect(503)["code"], "room_busy");
        // A balancer passes retries to other processes.
        let elsewhere = app.second(app.app.config.clone()).await;
        let again = elsewhere.login(user.id).await;
        assert_eq!(again.post(join, json!({})).await.expect(503)["code"], "room_busy");
        crate::testing::eventually("the retry succeeds", async || {
            again.post(join, json!({})).await.status.as_u16() == 200
        })
        .await;
        for user in [&user, &again] {
            assert_eq!(user.post(join, json!({})).await.expect(409)["code"], "already_a_member");
        }
        let joins = homeserver.seen().iter().filter(|seen| seen.path.contains("/state/m.room.member/")).count();
        assert_eq!(joins, 3, "the process that knows about the join leaves it to the other one");
    })
    .await;
}

/// Joins that are sent to a slow homeserver all at once would time out, open the circuit breaker and look like an outage.
#[tokio::test]
async fn slow_homeserver_is_reported_as_busy() {
    const CROWD: usize = 30;
    let homeserver = slow_homeserver(Duration::from_millis(150)).await;
    let url = homeserver.url.to_string();
    // All joins take 4.5 seconds, and a call times out after three.
    let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_ROOMS__PARALLEL_STANDS", "1")];
    TestApp::run_with(&changes, async |app| {
        app.fixtures().a_match("m").put().await;
        app.published().await;
        sqlx::query("update rooms set matrix_id = '!derby:matchday.localhost', opened_at = now()")
            .execute(&app.app.core.db)
            .await
            .expect("a room");
        let mut users = Vec::new();
        for _ in 0..CROWD {
            users.push(app.user().await);
        }
        sqlx::query("update users set has_chat_account = true").execute(&app.app.core.db).await.expect("chat accounts");
        let joins = users.iter().map(async |user| {
            // Retries early, and thus meets its own join that is still in progress.
            for _ in 0..100 {
                let response = user.post("/api/auth/chat-rooms/!derby:matchday.localhost/join", json!({})).await;
                if response.status.as_u16() == 200 {
                    return;
                }
                assert_eq!(response.expect(503)["code"], "room_busy");
                tokio::time::sleep(Duration::from_millis(200)).await;
            }
            panic!("user {} has not joined", user.id);
        });
        futures_util::future::join_all(joins).await;
        let joined = homeserver.seen().iter().filter(|seen| seen.path.contains("/state/m.room.member/")).count();
        assert_eq!(joined, CROWD, "no join is sent twice");
    })
    .await;
}

#[tokio::test]
async fn unavailable_homeserver_is_not_reported_as_busy() {
    let homeserver = Receiver::start(|_, _| Reply::status(502)).await;
    let url = homeserver.url.to_string();
    TestApp::run_with(&[("MATCHDAY_MATRIX__HOMESERVER_URL", &url)], async |app| {
        app.fixtures().a_match("m").put().await;
        app.published().await;
        sqlx::query("update rooms set matrix_id = '!derby:matchday.localhost', opened_at = now()")
            .execute(&app.app.core.db)
            .await
            .expect("a room");
        let user = app.user().await;
        sqlx::query("update users set has_chat_account = true")
            .execute(&app.app.core.db)
            .await
            .expect("a chat account");
        for _ in 0..5 {
            let refused = user.post("/api/auth/chat-rooms/!derby:matchday.localhost/join", json!({})).await;
            assert_eq!(refused.expect(503)["code"], "chat_unavailable");
        }
    })
    .await;
}
