//! What an app does with a process, and a chat client with the homeserver.

use std::{
    collections::BTreeSet,
    time::{Duration, Instant},
};

use http::{HeaderMap, Method, StatusCode, header};
use matchday::testing::Answer;
use serde_json::{Value, json};

use crate::process::Process;

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

impl Person {
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

    async fn get(&self, path: &str, token: &str) -> (u16, Value) {
        self.ask(self.http.get(format!("{}{path}", self.url)).bearer_auth(token)).await
    }

    /// Status and body.
    pub(crate) async fn post(&self, path: &str, token: &str, body: Value) -> (u16, Value) {
        self.ask(self.http.post(format!("{}{path}", self.url)).bearer_auth(token).json(&body)).await
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
        let id = format!("@{username}:{}", server_name());
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

/// Waits until something holds, for as long as it may take.
pub(crate) async fn within(most: Duration, what: &str, holds: impl AsyncFn() -> bool) {
    let began = Instant::now();
    while !holds().await {
        assert!(began.elapsed() < most, "not within {most:?}: {what}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}
