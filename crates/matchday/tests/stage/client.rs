//! What an app does with a process, and a chat client with the homeserver.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Debug,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, StatusCode, header};
use matchday::testing::{Answer, unique};
use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::process::Process;

/// How long the homeserver's part may take. What could not be done is tried again after growing pauses, so after the
/// homeserver was away it takes a while.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// An app without a token.
pub(crate) struct Client {
    base: String,
    http: reqwest::Client,
}

/// Somebody who logged in.
#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) phone: String,
    pub(crate) username: String,
    pub(crate) token: String,
    /// What the login said of chat: the credentials, or null.
    pub(crate) chat: Value,
}

/// A room as a list shows it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) members: i64,
    pub(crate) is_joined: bool,
}

impl Person {
    /// What the homeserver calls them.
    pub(crate) fn user_id(&self) -> String {
        user_id(&self.username)
    }

    /// The token of the chat client.
    pub(crate) fn chat_token(&self) -> &str {
        self.chat["access_token"].as_str().expect("chat credentials")
    }
}

impl Client {
    pub(crate) fn new(process: &Process) -> Self {
        Self { base: process.public.clone(), http: reqwest::Client::new() }
    }

    /// Sends a request, with a token unless it is empty.
    pub(crate) async fn send(&self, method: Method, path: &str, token: &str, body: String) -> Answer {
        self.send_from("", method, path, token, body).await
    }

    /// The same through a proxy that was called from this address.
    pub(crate) async fn send_from(
        &self,
        address: &str,
        method: Method,
        path: &str,
        token: &str,
        body: String,
    ) -> Answer {
        let mut request = self.http.request(method, format!("{}{path}", self.base)).body(body);
        request = request.header(header::CONTENT_TYPE, "application/json");
        if !address.is_empty() {
            request = request.header("x-forwarded-for", address);
        }
        if !token.is_empty() {
            request = request.bearer_auth(token);
        }
        read(request).await
    }

    pub(crate) async fn get(&self, path: &str, token: &str) -> Answer {
        self.send(Method::GET, path, token, String::new()).await
    }

    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> Answer {
        self.send(Method::POST, path, token, body.to_string()).await
    }

    pub(crate) async fn delete(&self, path: &str, token: &str) -> Answer {
        self.send(Method::DELETE, path, token, String::new()).await
    }

    /// The codes sent to a phone, newest first, as the log for developers shows them.
    pub(crate) async fn codes(&self, phone: &str) -> Vec<String> {
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.get(&path, "").await.expect(200);
        let entries = log["data"].as_array().expect("a list").iter();
        entries.map(|entry| entry["code"].as_str().expect("a code").to_owned()).collect()
    }

    /// Asks for a login code and reads it.
    pub(crate) async fn code(&self, phone: &str) -> String {
        self.post("/api/code/request", "", json!({"phone": phone})).await.expect(200);
        self.codes(phone).await.remove(0)
    }

    /// Logs in. Without a username, one is made up.
    pub(crate) async fn log_in(&self, phone: &str, username: Option<&str>) -> Person {
        let code = self.code(phone).await;
        let body = json!({"phone": phone, "code": code, "username": username});
        person(phone, &self.post("/api/code/verify", "", body).await.expect(200))
    }

    /// Opens a room as apps do: a homeserver that was slow is asked again when the response says so, and the service goes on
    /// where it was. Returns the homeserver's id of the room.
    pub(crate) async fn open_room(&self, who: &Person, name: &str, is_private: bool) -> String {
        let wish = json!({"name": name, "is_private": is_private});
        let mut answer = self.post("/api/auth/chat-room", &who.token, wish.clone()).await;
        for _ in 0..2 {
            let Some(pause) = answer.header("retry-after").filter(|_| answer.status == 503) else { break };
            tokio::time::sleep(Duration::from_secs(pause.parse().expect("seconds"))).await;
            answer = self.post("/api/auth/chat-room", &who.token, wish.clone()).await;
        }
        answer.expect(201)["data"]["room_id"].as_str().expect("an id").to_owned()
    }

    /// Does something to a room through the service: join, leave, invite.
    pub(crate) async fn act(&self, verb: &str, room: &str, who: &Person, body: Value) -> Answer {
        self.post(&format!("/api/auth/chat-rooms/{room}/{verb}"), &who.token, body).await
    }

    /// The rooms in somebody's list, by the homeserver's ids.
    pub(crate) async fn rooms(&self, who: &Person) -> BTreeMap<String, Listed> {
        let list = self.get("/api/auth/chat-rooms?per_page=100", &who.token).await.expect(200);
        let rooms = list["data"].as_array().expect("a list").iter().map(|room| {
            let listed = Listed {
                name: room["name"].as_str().expect("a name").to_owned(),
                members: room["member_count"].as_i64().expect("a number"),
                is_joined: room["is_joined"].as_bool().expect("yes or no"),
            };
            (room["room_id"].as_str().expect("an id").to_owned(), listed)
        });
        rooms.collect()
    }

    /// How many members a room has in somebody's list, and whether they are one. None if it is not there.
    pub(crate) async fn room(&self, who: &Person, room: &str) -> Option<(i64, bool)> {
        self.rooms(who).await.get(room).map(|listed| (listed.members, listed.is_joined))
    }

    /// When somebody last spoke in a room, by somebody's list.
    pub(crate) async fn last_activity(&self, who: &Person, room: &str) -> OffsetDateTime {
        let list = self.get("/api/auth/chat-rooms?per_page=100", &who.token).await.expect(200);
        let listed = list["data"].as_array().expect("a list").iter().find(|listed| listed["room_id"] == room);
        let time = listed.expect("it is listed")["last_activity"].as_str().expect("a time");
        OffsetDateTime::parse(time, &Rfc3339).expect("a time")
    }

    /// Asks for new chat credentials.
    pub(crate) async fn renew_chat(&self, token: &str) -> Answer {
        self.post("/api/auth/matrix-credentials", token, json!({})).await
    }
}

/// Reads the answer to a login.
pub(crate) fn person(phone: &str, answer: &Value) -> Person {
    let data = &answer["data"];
    let text = |value: &Value| value.as_str().expect("a text").to_owned();
    Person {
        phone: phone.to_owned(),
        username: text(&data["user"]["username"]),
        token: text(&data["token"]),
        chat: data["matrix_credentials"].clone(),
    }
}

async fn read(request: reqwest::RequestBuilder) -> Answer {
    let answer = request.send().await.expect("an answer");
    let (status, headers): (StatusCode, HeaderMap) = (answer.status(), answer.headers().clone());
    Answer { status, headers, bytes: answer.bytes().await.expect("a whole answer").to_vec() }
}

/// A homeserver, as chat clients and application services see it.
#[derive(Clone)]
pub(crate) struct Homeserver {
    url: String,
    http: reqwest::Client,
}

impl Homeserver {
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), http: reqwest::Client::new() }
    }

    /// The one that `dev/up` started. Accounts outlive the test there, so names must be the test's own.
    pub(crate) fn of_development() -> Self {
        Self::at(&std::env::var("MATCHDAY_MATRIX__HOMESERVER_URL").expect("run dev/up and source .dev/env first"))
    }

    /// Status and body.
    pub(crate) async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        self.ask(self.http.get(format!("{}{path}", self.url)).bearer_auth(token)).await
    }

    /// Status and body.
    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        self.ask(self.http.post(format!("{}{path}", self.url)).bearer_auth(token).json(&body)).await
    }

    /// The same, while the homeserver may die.
    pub(crate) async fn try_post(&self, path: &str, token: &str, body: Value) -> Option<u16> {
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(token).json(&body);
        Some(request.send().await.ok()?.status().as_u16())
    }

    /// Status and body.
    pub(crate) async fn put(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        self.ask(self.http.put(format!("{}{path}", self.url)).bearer_auth(token).json(&body)).await
    }

    /// Enters a room with a chat client.
    pub(crate) async fn join(&self, room: &str, token: &str) -> (u16, Value) {
        self.post(&format!("/_matrix/client/v3/join/{room}"), token, json!({})).await
    }

    /// Does something to a room that it has a verb for: leave, invite, kick, ban.
    pub(crate) async fn act(&self, verb: &str, room: &str, token: &str, body: Value) -> (u16, Value) {
        self.post(&format!("/_matrix/client/v3/rooms/{room}/{verb}"), token, body).await
    }

    /// Says something in a room; the answer names the event.
    pub(crate) async fn say(&self, room: &str, token: &str, text: &str) -> (u16, Value) {
        let path = format!("/_matrix/client/v3/rooms/{room}/send/m.room.message/{}", unique("said"));
        self.put(&path, token, json!({"msgtype": "m.text", "body": text})).await
    }

    /// Everybody who ever had something to do with a room, except the service's bot, and what they are to it.
    pub(crate) async fn members(&self, room: &str, token: &str) -> BTreeMap<String, String> {
        let (status, told) = self.get(&format!("/_matrix/client/v3/rooms/{room}/members"), token).await;
        assert_eq!(status, 200, "{told}");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let members = told["chunk"].as_array().expect("a list").iter();
        let members = members.map(|event| (text(&event["state_key"]), text(&event["content"]["membership"])));
        members.filter(|(who, _)| *who != user_id("matchday")).collect()
    }

    async fn ask(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = read(request).await;
        (answer.status.as_u16(), serde_json::from_slice(&answer.bytes).unwrap_or_default())
    }

    /// Whose token this is, and of which device.
    pub(crate) async fn whoami(&self, token: &str) -> (u16, Value) {
        self.get("/_matrix/client/v3/account/whoami", token).await
    }

    /// The devices of whoever has this token.
    pub(crate) async fn devices(&self, token: &str) -> BTreeSet<String> {
        let (status, told) = self.get("/_matrix/client/v3/devices", token).await;
        assert_eq!(status, 200, "{told}");
        let devices = told["devices"].as_array().expect("a list").iter();
        devices.map(|device| device["device_id"].as_str().expect("an id").to_owned()).collect()
    }

    /// Holds the homeserver's word against credentials.
    pub(crate) async fn confirm(&self, username: &str, credentials: &Value) {
        let id = user_id(username);
        assert_eq!(credentials["user_id"], json!(id), "credentials of another user");
        let (status, told) = self.whoami(credentials["access_token"].as_str().expect("a token")).await;
        assert_eq!((status, &told["user_id"], &told["device_id"]), (200, &json!(id), &credentials["device_id"]));
    }

    /// Waits until a token is refused.
    pub(crate) async fn refuses(&self, token: &str) {
        within(PATIENCE, "the chat token is refused", async || {
            let (status, told) = self.whoami(token).await;
            // While it deletes a token, Synapse may find it in one place and no more in another: 404, and 401 from then on.
            let known = [(200, Value::Null), (401, json!("M_UNKNOWN_TOKEN")), (404, json!("M_UNKNOWN"))];
            assert!(known.contains(&(status, told["errcode"].clone())), "{status} {told}");
            status == 401
        })
        .await;
    }
}

/// What stands behind the colon of every chat user's id.
pub(crate) fn server_name() -> String {
    std::env::var("MATCHDAY_MATRIX__SERVER_NAME").expect("run dev/up and source .dev/env first")
}

/// What the homeserver calls a user.
pub(crate) fn user_id(username: &str) -> String {
    format!("@{username}:{}", server_name())
}

/// Waits until a look shows what it should, for as long as that may take; returns how long it took.
pub(crate) async fn shows<T: PartialEq + Debug>(
    most: Duration,
    what: &str,
    expected: &T,
    look: impl AsyncFn() -> T,
) -> Duration {
    let began = Instant::now();
    loop {
        let seen = look().await;
        let took = began.elapsed();
        if seen == *expected && took <= most {
            return took;
        }
        assert!(took < most, "not within {most:?}: {what}\n    seen: {seen:?}\nexpected: {expected:?}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
}

/// Waits until something holds, for as long as it may take.
pub(crate) async fn within(most: Duration, what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < most, "not within {most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
