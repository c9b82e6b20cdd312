//! Clients for tests: an app that uses the service, and a chat client that uses the homeserver.

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

/// Time limit for effects on the homeserver. The service retries with growing pauses, so effects are delayed after the
/// homeserver was down.
pub(crate) const PATIENCE: Duration = Duration::from_secs(40);

/// An app that has not logged in.
pub(crate) struct Client {
    base: String,
    http: reqwest::Client,
}

#[derive(Clone)]
pub(crate) struct Person {
    pub(crate) phone: String,
    pub(crate) username: String,
    pub(crate) token: String,
    /// Chat credentials from the login response, or null.
    pub(crate) chat: Value,
}

/// A room in a room list.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Listed {
    pub(crate) name: String,
    pub(crate) members: i64,
    pub(crate) is_joined: bool,
}

impl Person {
    /// Matrix id of the user.
    pub(crate) fn user_id(&self) -> String {
        user_id(&self.username)
    }

    /// Access token of the chat client.
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

    /// Like `send`, through a proxy that reports this client address.
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

    /// Codes sent to a phone, newest first, from the developers' SMS log.
    pub(crate) async fn codes(&self, phone: &str) -> Vec<String> {
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.get(&path, "").await.expect(200);
        let entries = log["data"].as_array().expect("a list").iter();
        entries.map(|entry| entry["code"].as_str().expect("a code").to_owned()).collect()
    }

    /// Requests a login code and reads it from the SMS log.
    pub(crate) async fn code(&self, phone: &str) -> String {
        self.post("/api/code/request", "", json!({"phone": phone})).await.expect(200);
        self.codes(phone).await.remove(0)
    }

    /// Logs in. Without a username, the service generates one.
    pub(crate) async fn log_in(&self, phone: &str, username: Option<&str>) -> Person {
        let code = self.code(phone).await;
        let body = json!({"phone": phone, "code": code, "username": username});
        person(phone, &self.post("/api/code/verify", "", body).await.expect(200))
    }

    /// Opens a room as apps do: if the homeserver is slow, repeats the request after `Retry-After`, and the service
    /// resumes the creation. Returns the Matrix id of the room.
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

    /// Performs a room action through the service: join, leave, invite.
    pub(crate) async fn act(&self, verb: &str, room: &str, who: &Person, body: Value) -> Answer {
        self.post(&format!("/api/auth/chat-rooms/{room}/{verb}"), &who.token, body).await
    }

    /// Rooms in a user's list, by Matrix id.
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

    /// Member count of a room in a user's list, and whether the user has joined it. `None` if it is not listed.
    pub(crate) async fn room(&self, who: &Person, room: &str) -> Option<(i64, bool)> {
        self.rooms(who).await.get(room).map(|listed| (listed.members, listed.is_joined))
    }

    /// Time of the last message in a room, from a user's list.
    pub(crate) async fn last_activity(&self, who: &Person, room: &str) -> OffsetDateTime {
        let list = self.get("/api/auth/chat-rooms?per_page=100", &who.token).await.expect(200);
        let listed = list["data"].as_array().expect("a list").iter().find(|listed| listed["room_id"] == room);
        let time = listed.expect("a listed room")["last_activity"].as_str().expect("a time");
        OffsetDateTime::parse(time, &Rfc3339).expect("a time")
    }

    /// Requests new chat credentials.
    pub(crate) async fn renew_chat(&self, token: &str) -> Answer {
        self.post("/api/auth/matrix-credentials", token, json!({})).await
    }
}

/// Parses a login response.
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
    let answer = request.send().await.expect("a response");
    let (status, headers): (StatusCode, HeaderMap) = (answer.status(), answer.headers().clone());
    Answer { status, headers, bytes: answer.bytes().await.expect("a complete response").to_vec() }
}

/// A homeserver from the perspective of chat clients and application services.
#[derive(Clone)]
pub(crate) struct Homeserver {
    url: String,
    http: reqwest::Client,
}

impl Homeserver {
    pub(crate) fn at(url: &str) -> Self {
        Self { url: url.to_owned(), http: reqwest::Client::new() }
    }

    /// The homeserver of `dev/up`. Accounts outlive the test there, so each test must use unique names.
    pub(crate) fn of_development() -> Self {
        Self::at(&std::env::var("MATCHDAY_MATRIX__HOMESERVER_URL").expect("run dev/up and source .dev/env first"))
    }

    /// Returns status and body.
    pub(crate) async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        self.send(self.http.get(format!("{}{path}", self.url)).bearer_auth(token)).await
    }

    /// Returns status and body.
    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        self.send(self.http.post(format!("{}{path}", self.url)).bearer_auth(token).json(&body)).await
    }

    /// Like `post`, but `None` if the homeserver does not respond.
    pub(crate) async fn try_post(&self, path: &str, token: &str, body: Value) -> Option<u16> {
        let request = self.http.post(format!("{}{path}", self.url)).bearer_auth(token).json(&body);
        Some(request.send().await.ok()?.status().as_u16())
    }

    /// Returns status and body.
    pub(crate) async fn put(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        self.send(self.http.put(format!("{}{path}", self.url)).bearer_auth(token).json(&body)).await
    }

    /// Joins a room with a chat client.
    pub(crate) async fn join(&self, room: &str, token: &str) -> (u16, Value) {
        self.post(&format!("/_matrix/client/v3/join/{room}"), token, json!({})).await
    }

    /// Performs a room action with a chat client: leave, invite, kick, ban.
    pub(crate) async fn act(&self, verb: &str, room: &str, token: &str, body: Value) -> (u16, Value) {
        self.post(&format!("/_matrix/client/v3/rooms/{room}/{verb}"), token, body).await
    }

    /// Sends a message to a room; the response has the event id.
    pub(crate) async fn say(&self, room: &str, token: &str, text: &str) -> (u16, Value) {
        let path = format!("/_matrix/client/v3/rooms/{room}/send/m.room.message/{}", unique("said"));
        self.put(&path, token, json!({"msgtype": "m.text", "body": text})).await
    }

    /// Membership of every user who ever had one in the room, except the service's bot.
    pub(crate) async fn members(&self, room: &str, token: &str) -> BTreeMap<String, String> {
        let (status, reply) = self.get(&format!("/_matrix/client/v3/rooms/{room}/members"), token).await;
        assert_eq!(status, 200, "{reply}");
        let text = |value: &Value| value.as_str().expect("a text").to_owned();
        let members = reply["chunk"].as_array().expect("a list").iter();
        let members = members.map(|event| (text(&event["state_key"]), text(&event["content"]["membership"])));
        members.filter(|(who, _)| *who != user_id("matchday")).collect()
    }

    async fn send(&self, request: reqwest::RequestBuilder) -> (u16, Value) {
        let answer = read(request).await;
        (answer.status.as_u16(), serde_json::from_slice(&answer.bytes).unwrap_or_default())
    }

    /// Owner and device of a token.
    pub(crate) async fn whoami(&self, token: &str) -> (u16, Value) {
        self.get("/_matrix/client/v3/account/whoami", token).await
    }

    /// Devices of the token's owner.
    pub(crate) async fn devices(&self, token: &str) -> BTreeSet<String> {
        let (status, reply) = self.get("/_matrix/client/v3/devices", token).await;
        assert_eq!(status, 200, "{reply}");
        let devices = reply["devices"].as_array().expect("a list").iter();
        devices.map(|device| device["device_id"].as_str().expect("an id").to_owned()).collect()
    }

    /// Checks credentials against the homeserver.
    pub(crate) async fn confirm(&self, username: &str, credentials: &Value) {
        let id = user_id(username);
        assert_eq!(credentials["user_id"], json!(id), "credentials of another user");
        let (status, reply) = self.whoami(credentials["access_token"].as_str().expect("a token")).await;
        assert_eq!((status, &reply["user_id"], &reply["device_id"]), (200, &json!(id), &credentials["device_id"]));
    }

    /// Waits until the homeserver refuses a token.
    pub(crate) async fn refuses(&self, token: &str) {
        within(PATIENCE, "the chat token is refused", async || {
            let (status, reply) = self.whoami(token).await;
            // While Synapse deletes a token, one lookup may still find it and another may not: it returns 404 once, and
            // 401 afterwards.
            let known = [(200, Value::Null), (401, json!("M_UNKNOWN_TOKEN")), (404, json!("M_UNKNOWN"))];
            assert!(known.contains(&(status, reply["errcode"].clone())), "{status} {reply}");
            status == 401
        })
        .await;
    }
}

/// Server name in Matrix user ids, after the colon.
pub(crate) fn server_name() -> String {
    std::env::var("MATCHDAY_MATRIX__SERVER_NAME").expect("run dev/up and source .dev/env first")
}

/// Matrix id of a username.
pub(crate) fn user_id(username: &str) -> String {
    format!("@{username}:{}", server_name())
}

/// Polls until `look` returns the expected value, within a time limit; returns how long it took.
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

/// Polls until a condition holds, within a time limit.
pub(crate) async fn within(most: Duration, what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < most, "not within {most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
