//! Tests of moderation, most of them against a real homeserver.

use Restriction::{Ban, Mute, Unban, Unmute};
use axum::body::Body;
use http::{Method, Request};
use platform::{
    clock::Clock as _,
    stream::{Delivery, Failure},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use time::Duration;
use web::{ids::UserId, server::Answers as _};

use super::service::ModerationError;
use crate::{
    chat::messages::{IGNORED, UNWANTED},
    identity::{
        accounts::{
            restrictions::{CHANGED, RESTRICTED, Restriction},
            service::{NAME_CHANGED, RENAMED},
        },
        operators::Operator,
    },
    testing::{Answer, TestApp, TestUser},
};

/// A user with the app and a chat client.
struct Fan<'a> {
    app: &'a TestApp,
    user: TestUser<'a>,
    /// Chat credentials from the login.
    chat: Value,
}

impl<'a> Fan<'a> {
    /// Each number is a different user.
    async fn new(app: &'a TestApp, number: u32) -> Self {
        let (user, login) = app.log_in(&phone(number)).await;
        Self { app, user, chat: login["matrix_credentials"].clone() }
    }

    fn matrix_id(&self) -> &str {
        self.chat["user_id"].as_str().expect("an id")
    }

    /// Calls the homeserver directly, like a chat client, and returns status and body.
    async fn call(&self, method: Method, path: &str, body: Value) -> (u16, Value) {
        let base = self.app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
        let url = base.join(&format!("_matrix/client/v3/{path}")).expect("a URL");
        let token = self.chat["access_token"].as_str().expect("a token");
        let request = self.app.web.request(method.clone(), url).bearer_auth(token);
        let request = if method == Method::GET { request } else { request.json(&body) };
        let response = request.send().await.expect("a response");
        (response.status().as_u16(), response.json().await.expect("JSON"))
    }

    /// Sends a message to a room. Returns the status, and the message id or the error code.
    async fn say(&self, room: &str, text: &str) -> (u16, String) {
        let path = format!("rooms/{room}/send/m.room.message/{}", crate::testing::unique("txn"));
        let (status, body) = self.call(Method::PUT, &path, json!({"msgtype": "m.text", "body": text})).await;
        let result = if status == 200 { &body["event_id"] } else { &body["errcode"] };
        (status, result.as_str().expect("a text").to_owned())
    }

    /// Member event of another user in a room that this user is in.
    async fn member_event(&self, room: &str, other: &Fan<'_>) -> Value {
        let path = format!("rooms/{room}/state/m.room.member/{}?format=event", other.matrix_id());
        let (status, body) = self.call(Method::GET, &path, Value::Null).await;
        assert_eq!(status, 200, "{body}");
        body
    }

    /// Membership of another user in a room that this user is in.
    async fn sees(&self, room: &str, other: &Fan<'_>) -> String {
        self.member_event(room, other).await["content"]["membership"].as_str().expect("a membership").to_owned()
    }

    /// Users on this user's ignore list on the homeserver.
    async fn ignored(&self) -> Vec<String> {
        let path = format!("user/{}/account_data/m.ignored_user_list", self.matrix_id());
        match self.call(Method::GET, &path, Value::Null).await {
            (404, _) => Vec::new(),
            (_, list) => list["ignored_users"].as_object().expect("users").keys().cloned().collect(),
        }
    }

    async fn open_room(&self, wish: Value) -> String {
        let opened = self.user.post("/api/auth/chat-room", wish).await.expect(201);
        opened["data"]["room_id"].as_str().expect("an id").to_owned()
    }

    /// Performs an action on a room through the service.
    async fn post(&self, room: &str, action: &str, body: Value) -> Answer {
        self.user.post(&format!("/api/auth/chat-rooms/{room}/{action}"), body).await
    }

    /// Names of the rooms that the service lists, and the total.
    async fn lists(&self) -> (Vec<String>, i64) {
        let list = self.user.get("/api/auth/chat-rooms").await.expect(200);
        let names = list["data"].as_array().expect("a list").iter();
        let names = names.map(|room| room["name"].as_str().expect("a name").to_owned()).collect();
        (names, list["meta"]["total"].as_i64().expect("a number"))
    }
}

fn phone(number: u32) -> String {
    format!("+1415556{number:04}")
}

/// Response of the homeserver to a suspended user.
fn suspended() -> (u16, String) {
    (403, "M_USER_SUSPENDED".to_owned())
}

async fn restrict(app: &TestApp, user: UserId, restriction: Restriction) {
    app.app.moderation.restrict(user, restriction, &Operator::new("ola", "spam")).await.expect("done");
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

async fn perform(app: &TestApp, subject: &str, payload: &Value) -> Result<(), Failure> {
    let delivery = Delivery {
        subject: subject.to_owned(),
        id: None,
        payload: payload.to_string().into_bytes().into(),
        attempt: 1,
    };
    if subject.starts_with("work.room.") {
        app.app.rooms.perform(delivery).await
    } else {
        app.app.chat_work.perform(delivery).await
    }
}

/// Pushes a Matrix event like the homeserver, and applies it.
async fn push(app: &TestApp, event: &Value) {
    // By then, the pushes of the service's own changes are no longer expected.
    app.clock.advance(Duration::minutes(2));
    let token = app.app.config.matrix.hs_token.as_ref().expect("a token").inner().expose_secret();
    let request = Request::put("/_matrix/app/v1/transactions/1").header("authorization", format!("Bearer {token}"));
    let body = Body::from(json!({"events": [event]}).to_string());
    let response = crate::router::private(&app.app).answer(request.body(body).expect("a request")).await;
    assert_eq!(response.status(), 200);
    assert_eq!(app.app.membership_sync.apply_waiting().await.expect("applied"), 1);
}

/// Inserts a room that does not exist on the homeserver.
async fn put_room(app: &TestApp, creator: UserId, name: &str) -> String {
    let matrix_id = format!("!{name}:matchday.localhost");
    sqlx::query(
        "with made as (
           insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at)
           values ($1, $2, $2, $3, now(), now(), now()) returning id)
         insert into room_activity (room_id, last_activity, compared_at) select id, now(), now() from made",
    )
    .bind(&matrix_id)
    .bind(name)
    .bind(creator)
    .execute(&app.app.core.db)
    .await
    .expect("written");
    matrix_id
}

/// Asserts the response that a banned user gets.
#[track_caller]
fn expect_banned(response: Answer) {
    assert_eq!(response.expect(403)["code"], "account_suspended");
}

/// Every operation that accepts a token, including those with an optional one. Path parameters name existing objects.
fn secured(room: &str, user: UserId, event: i64, session: i64) -> Vec<(Method, String)> {
    let api = serde_json::to_value(crate::router::description()).expect("JSON");
    let mut found = Vec::new();
    for (path, item) in api["paths"].as_object().expect("paths") {
        for (method, operation) in item.as_object().expect("methods") {
            if operation["security"] != json!([]) {
                let part = |part: &str| match part {
                    "{room}" => room.to_owned(),
                    "{user}" => user.to_string(),
                    "{event}" => event.to_string(),
                    "{event_id}" => "$nothing".to_owned(),
                    "{device}" => "device-1".to_owned(),
                    "{id}" | "{league}" | "{question}" => session.to_string(),
                    part => part.to_owned(),
                };
                let filled = path.split('/').map(part).collect::<Vec<_>>().join("/");
                assert!(!filled.contains('{'), "add the parameters of {path} to the list above");
                found.push((Method::from_bytes(method.to_uppercase().as_bytes()).expect("a method"), filled));
            }
        }
    }
    assert!(found.len() >= 25, "{found:?}");
    found
}

#[tokio::test]
async fn ban_refuses_every_request_until_lifted() {
    // A long cache time, so that no session is read again because of its age.
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h")], async |app| {
        let event = app.fixtures().a_match("m").put().await;
        let (other, banned) = (app.user().await, app.user().await);
        let room = put_room(app, other.id, "derby").await;
        let fresh = app.login(banned.id).await;
        let sessions = banned.get("/api/auth/sessions").await.expect(200);
        let session = sessions["data"][0]["id"].as_i64().expect("an id");
        restrict(app, banned.id, Ban).await;
        let published = app.published().await;
        assert_eq!(published[0], (CHANGED.to_owned(), json!({"user_id": banned.id, "action": "ban"})));
        assert_eq!(published[1], (RESTRICTED.to_owned(), json!({"user_id": banned.id})));
        perform(app, &published[1].0, &published[1].1).await.expect("no work if chat is disabled");
        for (method, path) in secured(&room, other.id, event, session) {
            for user in [&banned, &fresh] {
                expect_banned(user.send(method.clone(), &path, Some("{}".to_owned())).await);
                expect_banned(user.send(method.clone(), &format!("{path}?page=x"), None).await);
            }
        }
        expect_banned(banned.get("/api/auth/nowhere").await);
        other.get("/api/auth/me").await.expect(200);
        restrict(app, banned.id, Unban).await;
        for user in [&banned, &fresh] {
            user.get("/api/auth/me").await.expect(200);
        }
        assert_eq!(work(app).await, [CHANGED], "refused requests publish nothing");
    })
    .await;
}

#[tokio::test]
async fn other_processes_learn_of_ban_and_unban() {
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h")], async |app| {
        let user = app.user().await;
        let elsewhere = app.second(app.app.config.clone()).await.app;
        let public = crate::router::public(&elsewhere);
        let status_of_me = async || {
            let request = Request::get("/api/auth/me").header("authorization", format!("Bearer {}", user.token));
            public.answer(request.body(Body::empty()).expect("a request")).await.status().as_u16()
        };
        assert_eq!(status_of_me().await, 200);
        for (restriction, status) in [(Ban, 403), (Unban, 200)] {
            restrict(app, user.id, restriction).await;
            assert_ne!(status_of_me().await, status, "the cache still has the old state");
            let published = app.published().await;
            assert_eq!(published[0].0, CHANGED);
            elsewhere.moderation.heard(published[0].1.to_string().as_bytes());
            assert_eq!(status_of_me().await, status);
        }
    })
    .await;
}

#[tokio::test]
async fn banned_user_cannot_log_in_and_code_stays_valid() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(&phone(1)).await;
        restrict(app, user.id, Ban).await;
        let code = app.code(&phone(1)).await;
        let body = json!({"phone": phone(1), "code": code});
        // More attempts than are allowed with a wrong code.
        for path in ["/api/code/verify", "/api/auth/login"].repeat(4) {
            expect_banned(app.post(path, &body).await);
        }
        assert_eq!(user.get("/api/auth/me").await.status, 403);
        let sessions = "select count(*) from sessions where user_id = $1";
        let sessions: i64 =
            sqlx::query_scalar(sessions).bind(user.id).fetch_one(&app.app.core.db).await.expect("counted");
        assert_eq!(sessions, 1, "no session was created");
        restrict(app, user.id, Unban).await;
        app.clock.advance(Duration::minutes(4));
        let again = app.post("/api/code/verify", &body).await.expect(200);
        assert_eq!(again["data"]["user"]["id"], json!(user.id));
        app.post("/api/code/verify", &body).await.expect(401);
        assert_eq!(work(app).await, [CHANGED, CHANGED]);
    })
    .await;
}

async fn restrict_for(app: &TestApp, user: UserId, restriction: Restriction, minutes: u64) {
    let (length, operator) = (std::time::Duration::from_mins(minutes), Operator::new("ola", "spam"));
    app.app.moderation.restrict_for(user, restriction, Some(length), &operator).await.expect("done");
}

#[tokio::test]
async fn timed_ban_ends_on_time_in_every_cache() {
    // A long cache time, so that no session is read again because of its age.
    TestApp::run_with(&[("MATCHDAY_SESSIONS__CACHE_UNHEARD", "1h")], async |app| {
        let (user, _) = app.log_in(&phone(1)).await;
        user.get("/api/auth/events").await.expect(200);
        restrict_for(app, user.id, Ban, 60).await;
        let refused = user.get("/api/auth/me").await.expect(403);
        // The session is cached again, with the ban, and so is the page.
        expect_banned(user.get("/api/auth/events").await);
        let expected = json!({
            "message": "This account is suspended until 2026-11-20T16:00:00.000Z.", "code": "account_suspended",
            "suspended_until": "2026-11-20T16:00:00.000Z",
        });
        assert_eq!(refused, expected);
        let body = json!({"phone": phone(1), "code": app.code(&phone(1)).await});
        assert_eq!(app.post("/api/code/verify", &body).await.expect(403), expected);
        // A second ban replaces the end of the first one.
        restrict_for(app, user.id, Ban, 4).await;
        assert_eq!(user.get("/api/auth/me").await.expect(403)["suspended_until"], "2026-11-20T15:04:00.000Z");
        assert_eq!(work(app).await, [CHANGED, CHANGED]);

        app.clock.advance(Duration::minutes(4) - Duration::SECOND);
        expect_banned(user.get("/api/auth/me").await);
        assert_eq!(app.app.moderation.lift_ended().await.expect("looked"), 0);
        app.clock.advance(Duration::SECOND);
        user.get("/api/auth/me").await.expect(200);
        app.post("/api/code/verify", &body).await.expect(200);
        assert!(app.published().await.is_empty());
        // A worker publishes the end, once.
        assert_eq!(app.app.moderation.lift_ended().await.expect("looked"), 1);
        assert_eq!(app.app.moderation.lift_ended().await.expect("looked"), 0);
        let published = app.published().await;
        assert_eq!(published[0], (CHANGED.to_owned(), json!({"user_id": user.id, "action": "unban"})));
        assert_eq!(published[1], (RESTRICTED.to_owned(), json!({"user_id": user.id})));
        assert_eq!(published.len(), 2);
        let kept: Vec<(String, String)> =
            sqlx::query_as("select action, operator from restrictions where user_id = $1 order by id")
                .bind(user.id)
                .fetch_all(&app.app.core.db)
                .await
                .expect("read");
        let expected = [("ban", "ola"), ("ban", "ola"), ("unban", "matchday")];
        assert_eq!(kept, expected.map(|(action, operator)| (action.to_owned(), operator.to_owned())));
        // The user can be banned again.
        restrict_for(app, user.id, Ban, 10).await;
        expect_banned(user.get("/api/auth/me").await);
        restrict(app, user.id, Unban).await;
        user.get("/api/auth/me").await.expect(200);
        for minutes in [0, 60 * 24 * 3_651] {
            let (length, operator) = (std::time::Duration::from_mins(minutes), Operator::new("ola", "spam"));
            let refused = app.app.moderation.restrict_for(user.id, Ban, Some(length), &operator).await;
            assert!(matches!(refused, Err(ModerationError::InvalidLength)), "{refused:?}");
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn new_ban_replaces_expired_ban_not_lifted_yet() {
    TestApp::run(async |app| {
        let user = app.user().await;
        restrict_for(app, user.id, Ban, 10).await;
        app.clock.advance(Duration::minutes(20));
        user.get("/api/auth/me").await.expect(200);
        restrict(app, user.id, Ban).await;
        assert_eq!(user.get("/api/auth/me").await.expect(403).get("suspended_until"), None);
        assert_eq!(app.app.moderation.lift_ended().await.expect("looked"), 0);
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        assert_eq!(account.banned_at, Some(app.clock.now()));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn timed_mute_ends_on_homeserver_too() {
    TestApp::run_with_chat(&[], async |app| {
        let fan = Fan::new(app, 60).await;
        let room = fan.open_room(json!({"name": "Public"})).await;
        restrict_for(app, fan.user.id, Mute, 10).await;
        work(app).await;
        assert_eq!(fan.say(&room, "one").await, suspended());
        app.clock.advance(Duration::minutes(10));
        assert_eq!(app.app.moderation.lift_ended().await.expect("looked"), 1);
        assert_eq!(work(app).await, [CHANGED]);
        assert_eq!(fan.say(&room, "two").await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn operator_restrictions_apply_once_and_are_recorded() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let moderation = &app.app.moderation;
        let me = user.get("/api/auth/me").await.expect(200);
        let username = me["data"]["username"].as_str().expect("a name").to_owned();
        assert_eq!(moderation.user(&user.id.to_string()).await.expect("found"), user.id);
        assert_eq!(moderation.user(&username.to_uppercase()).await.expect("found"), user.id);
        for unknown in ["999999999", "nobody_at_all", "", "' or true --"] {
            assert!(matches!(moderation.user(unknown).await, Err(ModerationError::NoSuchUser)), "{unknown}");
        }
        for (restriction, reason) in [(Ban, "insults"), (Mute, "spam"), (Unban, "a mistake"), (Unmute, "enough")] {
            moderation.restrict(user.id, restriction, &Operator::new("ola", reason)).await.expect("done");
            let again = moderation.restrict(user.id, restriction, &Operator::new("ida", "again")).await;
            assert!(matches!(again, Err(ModerationError::Unchanged)), "{restriction:?}: {again:?}");
            app.clock.advance(Duration::hours(1));
        }
        for restriction in [Unban, Unmute] {
            let nothing = moderation.restrict(user.id, restriction, &Operator::new("ida", "again")).await;
            assert!(matches!(nothing, Err(ModerationError::Unchanged)), "{restriction:?}: {nothing:?}");
        }
        let unknown = moderation.restrict(UserId(999_999_999), Ban, &Operator::new("ola", "insults")).await;
        assert!(matches!(unknown, Err(ModerationError::NoSuchUser)), "{unknown:?}");
        let rows: Vec<(String, String, String)> =
            sqlx::query_as("select action, reason, operator from restrictions where user_id = $1 order by created_at")
                .bind(user.id)
                .fetch_all(&app.app.core.db)
                .await
                .expect("read");
        let kept = [("ban", "insults"), ("mute", "spam"), ("unban", "a mistake"), ("unmute", "enough")];
        assert_eq!(rows, kept.map(|(action, reason)| (action.to_owned(), reason.to_owned(), "ola".to_owned())));
        assert_eq!(work(app).await, [CHANGED; 4], "unchanged state publishes nothing");
    })
    .await;
}

#[tokio::test]
async fn ban_removes_user_from_all_rooms() {
    TestApp::run_with_chat(&[], async |app| {
        let (ada, ben) = (Fan::new(app, 10).await, Fan::new(app, 11).await);
        let public = ada.open_room(json!({"name": "Public"})).await;
        let private = ada.open_room(json!({"name": "Private", "is_private": true})).await;
        let asked = ada.open_room(json!({"name": "Asked", "is_private": true})).await;
        let unseen = ada.open_room(json!({"name": "Unseen"})).await;
        ben.post(&public, "join", json!({})).await.expect(200);
        for room in [&private, &asked] {
            ada.post(room, "invite", json!({"user_id": ben.user.id})).await.expect(200);
        }
        ben.post(&private, "join", json!({})).await.expect(200);
        // Joined with a chat client, and not recorded by the service yet.
        assert_eq!(ben.call(Method::POST, &format!("join/{unseen}"), json!({})).await.0, 200);
        assert_eq!(ben.say(&public, "hello").await.0, 200);
        let own = ben.call(Method::POST, "createRoom", json!({"preset": "private_chat"})).await.1;
        let own = own["room_id"].as_str().expect("a room").to_owned();

        restrict(app, ben.user.id, Ban).await;
        assert_eq!(work(app).await, [CHANGED]);
        for room in [&public, &private, &asked, &unseen] {
            assert_eq!(ada.sees(room, &ben).await, "leave", "{room}");
        }
        let list = ada.user.get("/api/auth/chat-rooms").await.expect(200);
        for room in list["data"].as_array().expect("a list") {
            assert_eq!(room["member_count"], 1, "{room}");
        }
        assert!(app.app.rooms.of_user(ben.user.id).await.expect("read").is_empty());
        // In rooms from which the bot cannot remove the user, the suspension prevents messages.
        assert_eq!(ben.say(&own, "hello").await, suspended());
        let (status, refused) = ben.call(Method::POST, &format!("join/{public}"), json!({})).await;
        assert_eq!((status, refused["errcode"].as_str()), (403, Some("M_USER_SUSPENDED")));
        expect_banned(ben.post(&public, "join", json!({})).await);
        // During the ban, lifting another restriction does not allow messages.
        restrict(app, ben.user.id, Mute).await;
        restrict(app, ben.user.id, Unmute).await;
        work(app).await;
        assert_eq!(ben.say(&own, "hello").await, suspended());

        restrict(app, ben.user.id, Unban).await;
        assert_eq!(work(app).await, [CHANGED]);
        assert_eq!(ben.say(&own, "hello").await.0, 200);
        ben.post(&public, "join", json!({})).await.expect(200);
        assert_eq!(ben.say(&public, "hello again").await.0, 200);
        ben.post(&private, "join", json!({})).await.expect(403);
    })
    .await;
}

/// Status of the homeserver's `whoami` for this user's token.
async fn whoami(fan: &Fan<'_>) -> u16 {
    fan.call(Method::GET, "account/whoami", Value::Null).await.0
}

#[tokio::test]
async fn devices_are_deleted_if_users_cannot_be_suspended() {
    TestApp::run_with_chat(&[("MATCHDAY_MATRIX__ADMIN_TOKEN", "")], async |app| {
        let (ada, ben) = (Fan::new(app, 20).await, Fan::new(app, 21).await);
        let ben_elsewhere = Fan::new(app, 21).await;
        let room = ada.open_room(json!({"name": "Public"})).await;
        ben.post(&room, "join", json!({})).await.expect(200);
        restrict(app, ben.user.id, Ban).await;
        assert_eq!(work(app).await, [CHANGED]);
        assert_eq!((whoami(&ben).await, whoami(&ben_elsewhere).await, whoami(&ada).await), (401, 401, 200));
        assert_eq!(ada.sees(&room, &ben).await, "leave");
        restrict(app, ben.user.id, Unban).await;
        assert_eq!(work(app).await, [CHANGED]);
        let renew = async |fan: &Fan<'_>| fan.user.post("/api/auth/matrix-credentials", json!({})).await;
        renew(&ben).await.expect(200);
        work(app).await;

        // A muted user gets no new devices either, because they could write with them.
        restrict(app, ada.user.id, Mute).await;
        assert_eq!(work(app).await, [CHANGED]);
        assert_eq!(whoami(&ada).await, 401);
        assert_eq!(renew(&ada).await.expect(403)["code"], "muted");
        let (again, login) = app.log_in(&phone(20)).await;
        assert_eq!(login["matrix_credentials"], Value::Null);
        again.get("/api/auth/me").await.expect(200);
        restrict(app, ada.user.id, Unmute).await;
        work(app).await;
        let response = renew(&ada).await.expect(200);
        let ada = Fan { chat: response["data"]["matrix_credentials"].clone(), ..ada };
        work(app).await;
        assert_eq!(ada.say(&room, "hello").await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn muted_user_can_do_everything_but_chat() {
    TestApp::run_with_chat(&[], async |app| {
        let (ada, ben) = (Fan::new(app, 30).await, Fan::new(app, 31).await);
        let room = ada.open_room(json!({"name": "Public"})).await;
        let other = ada.open_room(json!({"name": "Other"})).await;
        ben.post(&room, "join", json!({})).await.expect(200);
        restrict(app, ben.user.id, Mute).await;
        let refused = async || {
            for response in [
                ben.user.post("/api/auth/chat-room", json!({"name": "Mine"})).await,
                ben.post(&other, "join", json!({})).await,
                ben.post(&room, "invite", json!({"user_id": ada.user.id})).await,
            ] {
                assert_eq!(response.expect(403)["code"], "muted");
            }
        };
        // The service refuses immediately; the homeserver refuses after the work is done.
        refused().await;
        assert_eq!(work(app).await, [CHANGED]);
        refused().await;
        assert_eq!(ben.say(&room, "hello").await, suspended());
        assert_eq!(ada.sees(&room, &ben).await, "join", "a muted user stays in the room");
        ben.user.get("/api/auth/me").await.expect(200);
        ben.user.get("/api/auth/chat-rooms?joined=true").await.expect(200);
        ben.user.post(&format!("/api/auth/blocks/{}", ada.user.id), json!({})).await.expect(200);
        ben.user.delete(&format!("/api/auth/blocks/{}", ada.user.id)).await.expect(200);
        let (again, login) = app.log_in(&phone(31)).await;
        assert!(login["matrix_credentials"]["access_token"].is_string(), "a muted user may read");
        again.get("/api/auth/me").await.expect(200);
        work(app).await;
        ben.post(&room, "leave", json!({})).await.expect(200);
        assert_eq!(ada.sees(&room, &ben).await, "leave");

        restrict(app, ben.user.id, Unmute).await;
        assert_eq!(work(app).await, [CHANGED]);
        ben.post(&room, "join", json!({})).await.expect(200);
        assert_eq!(ben.say(&room, "hello").await.0, 200);
    })
    .await;
}

#[tokio::test]
async fn combined_restrictions_apply_in_any_order() {
    TestApp::run_with_chat(&[], async |app| {
        let ben = Fan::new(app, 40).await;
        let room = ben.open_room(json!({"name": "His own"})).await;
        let acts = async |acts: &[Restriction]| {
            for act in acts {
                restrict(app, ben.user.id, *act).await;
            }
            let published = app.published().await.into_iter();
            published.filter(|(subject, _)| subject == RESTRICTED).collect::<Vec<_>>()
        };
        let early = acts(&[Mute, Ban, Unban]).await;
        assert_eq!(early.len(), 3);
        for (subject, payload) in early.iter().rev() {
            perform(app, subject, payload).await.expect("done");
            assert_eq!(ben.say(&room, "hello").await, suspended(), "still muted, and still in the room");
        }
        let late = acts(&[Unmute]).await;
        for (subject, payload) in late.iter().chain(&early) {
            perform(app, subject, payload).await.expect("done");
            assert_eq!(ben.say(&room, "hello").await.0, 200);
        }
        acts(&[Ban, Mute]).await;
        // Both messages were published, and only one is handled.
        perform(app, RESTRICTED, &json!({"user_id": ben.user.id})).await.expect("done");
        assert_eq!(ben.say(&room, "hello").await.0, 403);
        acts(&[Unban]).await;
        perform(app, RESTRICTED, &json!({"user_id": ben.user.id})).await.expect("done");
        let (_, refused) = ben.call(Method::POST, &format!("join/{room}"), json!({})).await;
        assert_eq!(refused["errcode"], "M_USER_SUSPENDED", "removed, and still muted");
    })
    .await;
}

/// Neither a new username nor a chat account that is created later evades the mute.
#[tokio::test]
async fn mute_applies_to_every_chat_account_of_user() {
    TestApp::run_with_chat(&[], async |app| {
        let ben = Fan::new(app, 50).await;
        let room = ben.open_room(json!({"name": "His own"})).await;
        restrict(app, ben.user.id, Mute).await;
        work(app).await;
        // The new display name appears after the mute ends.
        ben.user.post("/api/auth/update-user-info", json!({"name": "Ben"})).await.expect(200);
        assert_eq!(app.published().await.into_iter().map(|(subject, _)| subject).collect::<Vec<_>>(), [NAME_CHANGED]);
        perform(app, NAME_CHANGED, &json!({"user_id": ben.user.id})).await.expect("the name is set later");

        let generated = "update users set username_is_generated = true where user_id = $1";
        sqlx::query(generated).bind(ben.user.id).execute(&app.app.core.db).await.expect("written");
        let wanted = json!({"username": crate::testing::unique("ben")});
        let saved = ben.user.post("/api/auth/update-user-info", wanted).await.expect(200);
        let renamed = Fan { chat: saved["data"]["matrix_credentials"].clone(), ..ben };
        assert!(work(app).await.is_empty());
        assert_eq!(renamed.say(&room, "hello").await, suspended(), "the renamed user is a member and still muted");
        // Repeated by a worker that handles the message late.
        let name: String = sqlx::query_scalar("select username from users where user_id = $1")
            .bind(renamed.user.id)
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        let published = json!({"user_id": renamed.user.id, "from": crate::testing::unique("gone"), "to": name});
        perform(app, RENAMED, &published).await.expect("done");
        assert_eq!(renamed.say(&room, "hello").await, suspended());
        restrict(app, renamed.user.id, Unmute).await;
        work(app).await;
        assert_eq!(renamed.say(&room, "hello").await.0, 200);
        let (_, profile) = renamed.call(Method::GET, &format!("profile/{}", renamed.matrix_id()), Value::Null).await;
        assert_eq!(profile["displayname"], "Ben");

        // A user who was muted before they had a chat account.
        let late = app.user().await;
        sqlx::query("update users set username = $2 where user_id = $1")
            .bind(late.id)
            .bind(crate::testing::unique("late"))
            .execute(&app.app.core.db)
            .await
            .expect("written");
        restrict(app, late.id, Mute).await;
        work(app).await;
        let response = late.post("/api/auth/matrix-credentials", json!({})).await.expect(200);
        let late = Fan { app, user: late, chat: response["data"]["matrix_credentials"].clone() };
        let (_, refused) = late.call(Method::POST, &format!("join/{room}"), json!({})).await;
        assert_eq!(refused["errcode"], "M_USER_SUSPENDED");
        work(app).await;
    })
    .await;
}

async fn block(user: &TestUser<'_>, other: UserId) -> Answer {
    user.post(&format!("/api/auth/blocks/{other}"), json!({})).await
}

async fn unblock(user: &TestUser<'_>, other: UserId) -> Answer {
    user.delete(&format!("/api/auth/blocks/{other}")).await
}

#[tokio::test]
async fn blocks_are_created_once_listed_and_lifted() {
    TestApp::run(async |app| {
        let (ada, ben, cleo) = (app.user().await, app.user().await, app.user().await);
        assert_eq!(block(&ada, ada.id).await.invalid_fields(), ["user"]);
        block(&ada, UserId(999_999_999)).await.expect(404);
        block(&ada, UserId(-1)).await.expect(404);
        ada.post("/api/auth/blocks/ben", json!({})).await.expect(404);
        unblock(&ada, ben.id).await.expect(200);
        assert!(app.published().await.is_empty());
        block(&ada, ben.id).await.expect(200);
        app.clock.advance(Duration::minutes(1));
        block(&ada, cleo.id).await.expect(200);
        app.clock.advance(Duration::minutes(1));
        assert_eq!(block(&ada, ben.id).await.expect(200), json!({"message": "This user is blocked."}));
        let published: Vec<_> = app.published().await.into_iter().map(|(subject, _)| subject).collect();
        assert_eq!(published, [IGNORED, IGNORED], "unchanged state publishes nothing");
        let ben_is_called = ben.get("/api/auth/me").await.expect(200)["data"]["username"].clone();
        let list = ada.get("/api/auth/blocks?per_page=1&page=2").await.expect(200);
        assert_eq!(
            list,
            json!({
                "data": [{"id": ben.id, "username": ben_is_called, "blocked_at": "2026-11-20T15:00:00.000Z"}],
                "meta": {"current_page": 2, "last_page": 2, "per_page": 1, "total": 2},
            }),
            "newest first"
        );
        assert_eq!(ada.get("/api/auth/blocks").await.expect(200)["data"][0]["id"], json!(cleo.id));
        assert_eq!(ben.get("/api/auth/blocks").await.expect(200)["meta"]["total"], 0, "blocks are private");
        for _ in 0..2 {
            unblock(&ada, ben.id).await.expect(200);
        }
        assert_eq!(ada.get("/api/auth/blocks").await.expect(200)["meta"]["total"], 1);
        assert_eq!(app.published().await.len(), 1);
    })
    .await;
}

#[tokio::test]
async fn user_can_block_at_most_thousand_users() {
    TestApp::run(async |app| {
        let (ada, ben, cleo) = (app.user().await, app.user().await, app.user().await);
        sqlx::query("insert into blocks select $1, n, now() from generate_series(1000001, 1000999) n")
            .bind(ada.id)
            .execute(&app.app.core.db)
            .await
            .expect("written");
        block(&ada, ben.id).await.expect(200);
        assert_eq!(block(&ada, cleo.id).await.expect(409)["code"], "too_many_blocks");
        block(&ada, ben.id).await.expect(200);
        unblock(&ada, ben.id).await.expect(200);
        block(&ada, cleo.id).await.expect(200);
        assert_eq!(app.published().await.len(), 3);
    })
    .await;
}

#[tokio::test]
async fn block_hides_rooms_and_predictions_but_not_totals() {
    TestApp::run_with_chat(&[], async |app| {
        // The database's clock decides whether a match is open, and tests cannot move that clock.
        let event = app.fixtures().a_match("m").starting_in(Duration::days(365 * 75)).put().await;
        let (ada, ben, cleo) = (Fan::new(app, 60).await, Fan::new(app, 61).await, Fan::new(app, 62).await);
        let room = ada.open_room(json!({"name": "Ada's", "event_id": event})).await;
        let bens = ben.open_room(json!({"name": "Ben's"})).await;
        ben.post(&room, "join", json!({})).await.expect(200);
        ada.post(&bens, "join", json!({})).await.expect(200);
        for (fan, pick) in [(&ada, "home"), (&ben, "away")] {
            let body = json!({"event_id": event, "prediction": pick, "confidence": 50});
            fan.user.post("/api/auth/predictions", body).await.expect(201);
        }
        let predictions = async |viewer: &Fan<'_>| {
            let mut seen = Vec::new();
            for path in [format!("events/{event}"), format!("chat-rooms/{room}")] {
                let list = viewer.user.get(&format!("/api/auth/{path}/predictions")).await.expect(200);
                let meta = &list["meta"];
                assert_eq!(meta["total_predictions"], 2, "{path}");
                let away = [&meta["prediction_distribution"]["away"], &meta["away_predictions"]];
                assert!(away.contains(&&json!(1)), "{path}: {meta}");
                let users = list["data"].as_array().expect("a list").iter().map(|item| item["user"]["id"].clone());
                seen.push(users.collect::<Vec<_>>());
            }
            assert_eq!(seen[0], seen[1], "match and room show the same predictions");
            seen.swap_remove(0)
        };
        let (both, hers) = (vec![json!(ada.user.id), json!(ben.user.id)], vec![json!(ada.user.id)]);
        assert_eq!((ada.lists().await.1, predictions(&ada).await), (2, both.clone()));
        block(&ada.user, ben.user.id).await.expect(200);
        assert_eq!(ada.lists().await, (vec!["Ada's".to_owned()], 1));
        assert_eq!(ada.user.get("/api/auth/chat-rooms?joined=true").await.expect(200)["meta"]["total"], 1);
        assert_eq!(predictions(&ada).await, hers);
        // The block affects only the user who created it.
        for fan in [&ben, &cleo] {
            assert_eq!((fan.lists().await.1, predictions(fan).await), (2, both.clone()));
        }
        unblock(&ada.user, ben.user.id).await.expect(200);
        assert_eq!((ada.lists().await.1, predictions(&ada).await), (2, both));
        work(app).await;
    })
    .await;
}

#[tokio::test]
async fn invitations_from_blocked_users_are_declined() {
    TestApp::run_with_chat(&[], async |app| {
        let (ada, ben) = (Fan::new(app, 70).await, Fan::new(app, 71).await);
        let room = ben.open_room(json!({"name": "Ben's", "is_private": true})).await;
        let invite = async || ben.post(&room, "invite", json!({"user_id": ada.user.id})).await;
        let by_chat = async || {
            let path = format!("rooms/{room}/invite");
            ben.call(Method::POST, &path, json!({"user_id": ada.matrix_id()})).await.0
        };
        block(&ada.user, ben.user.id).await.expect(200);
        assert_eq!(invite().await.expect(403)["code"], "invitation_refused");
        work(app).await;
        assert_eq!(ada.ignored().await, [ben.matrix_id()]);
        assert_eq!(by_chat().await, 200);
        push(app, &ben.member_event(&room, &ada).await).await;
        let published = app.published().await;
        assert_eq!(published.iter().map(|(subject, _)| subject.as_str()).collect::<Vec<_>>(), [UNWANTED]);
        for _ in 0..2 {
            perform(app, &published[0].0, &published[0].1).await.expect("done");
        }
        assert_eq!(ben.sees(&room, &ada).await, "leave");
        assert!(app.app.rooms.of_user(ada.user.id).await.expect("read").is_empty());
        // After the block is lifted, invitations work again.
        unblock(&ada.user, ben.user.id).await.expect(200);
        work(app).await;
        assert!(ada.ignored().await.is_empty());
        assert_eq!(by_chat().await, 200);
        push(app, &ben.member_event(&room, &ada).await).await;
        assert!(app.published().await.is_empty());
        assert_eq!(ada.lists().await, (vec!["Ben's".to_owned()], 1));
        ada.post(&room, "leave", json!({})).await.expect(200);
        invite().await.expect(200);
        assert_eq!(ben.sees(&room, &ada).await, "invite");
        // The worker ignores an invitation that was accepted in the meantime.
        ada.post(&room, "join", json!({})).await.expect(200);
        perform(app, &published[0].0, &published[0].1).await.expect("done");
        assert_eq!(ben.sees(&room, &ada).await, "join");
    })
    .await;
}

#[tokio::test]
async fn ignore_list_follows_blocks_in_any_order() {
    TestApp::run_with_chat(&[], async |app| {
        let (ada, ben, cleo) = (Fan::new(app, 80).await, Fan::new(app, 81).await, Fan::new(app, 82).await);
        // A list that the user's chat client wrote.
        let path = format!("user/{}/account_data/m.ignored_user_list", ada.matrix_id());
        let list = json!({"ignored_users": {"@troll:elsewhere.example": {}}, "note": "mine"});
        assert_eq!(ada.call(Method::PUT, &path, list).await.0, 200);
        for fan in [&ben, &cleo] {
            block(&ada.user, fan.user.id).await.expect(200);
        }
        let published = app.published().await;
        assert_eq!(published.len(), 2);
        // Several workers update the list at the same time.
        let (one, two) = tokio::join!(
            perform(app, &published[0].0, &published[0].1),
            perform(app, &published[1].0, &published[1].1)
        );
        one.and(two).expect("done");
        assert_eq!(ada.ignored().await, [ben.matrix_id(), cleo.matrix_id(), "@troll:elsewhere.example"]);
        unblock(&ada.user, ben.user.id).await.expect(200);
        let lifted = app.published().await;
        for (subject, payload) in [&lifted[0], &published[0]] {
            perform(app, subject, payload).await.expect("done");
            assert_eq!(ada.ignored().await, [cleo.matrix_id(), "@troll:elsewhere.example"], "the current blocks count");
        }
        let (_, list) = ada.call(Method::GET, &path, Value::Null).await;
        assert_eq!(list["note"], "mine");
    })
    .await;
}

#[tokio::test]
async fn contact_is_public_if_configured() {
    TestApp::run(async |app| {
        app.anonymous(Method::GET, "/api/contact").await.expect(404);
    })
    .await;
    TestApp::run_with(&[("MATCHDAY_MODERATION__CONTACT", "safety@example.org")], async |app| {
        assert_eq!(
            app.anonymous(Method::GET, "/api/contact").await.expect(200),
            json!({"data": {"moderation": "safety@example.org"}})
        );
    })
    .await;
}
