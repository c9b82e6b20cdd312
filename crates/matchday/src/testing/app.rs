//! The application under test.

use std::{
    net::{IpAddr, Ipv4Addr},
    sync::Arc,
};

use async_nats::jetstream::message::PublishMessage;
use axum::body::Body;
use http::{HeaderMap, Method, Request, Response, StatusCode, header};
use http_body_util::BodyExt as _;
use platform::{
    outbox,
    testing::{as_service, with_database},
};
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};
use sqlx::{
    Connection as _, Executor as _, PgConnection, PgPool,
    postgres::{PgConnectOptions, PgPoolOptions},
};
use time::macros::datetime;
use web::{
    Edge, PEER,
    ids::{MatchId, UserId},
    server::Answers as _,
};

use super::{MockClock, SeededRandom, TestFixtures, test_config, unique};
use crate::{
    app::App,
    config::Config,
    game::scores,
    identity::accounts,
    router::{Public, console, private, public},
};

/// An application on a fresh database, reached through its router without a network.
pub struct TestApp {
    /// The application.
    pub app: App,
    /// Its clock, at 15:00 UTC on 20 November 2026 to begin with.
    pub clock: Arc<MockClock>,
    public: Public,
    private: Edge,
    console: Option<Edge>,
    /// For requests to the homeserver.
    pub web: reqwest::Client,
    owner: PgPool,
}

impl TestApp {
    /// Runs a test. Afterwards no message may be left in the outbox that the test did not look at: whatever a change
    /// tells others is part of what the change does. Only that somebody registered, or that scores have a result, may be
    /// left: many tests do that on their way.
    pub async fn run(test: impl AsyncFnOnce(&Self)) {
        Self::run_with(&[], test).await;
    }

    /// The same with some settings changed. There is no chat: its accounts would outlive the test's database.
    pub async fn run_with(changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        let changes: Vec<_> =
            [("MATCHDAY_MATRIX__HOMESERVER_URL", "")].into_iter().chain(changes.iter().copied()).collect();
        Self::run_seeded(1, &changes, test).await;
    }

    /// The same with chat on the real homeserver. Names are other ones in each run, because there they stay.
    pub async fn run_with_chat(changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        let digest = Sha256::digest(unique("seed"));
        let seed = u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"));
        Self::run_seeded(seed, changes, test).await;
    }

    /// The same with a database whose clock stands still too, until [`Self::advance_database`] moves it. It begins where
    /// the test's clock does.
    pub async fn run_with_database_clock(changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        // Names that no schema is given for are looked for in the path, and in `pg_catalog` only when its turn comes.
        const CLOCK: &str = "create schema clock;
            create table clock.shows (moment timestamptz not null);
            insert into clock.shows values ('2026-11-20 15:00:00+00');
            create function clock.now() returns timestamptz language sql as 'select moment from clock.shows';
            create function clock.clock_timestamp() returns timestamptz language sql as 'select moment from clock.shows';
            create function clock.statement_timestamp() returns timestamptz language sql as 'select moment from clock.shows';
            grant usage on schema clock to matchday_app;
            grant select on clock.shows to matchday_app";
        let changes: Vec<_> =
            [("MATCHDAY_MATRIX__HOMESERVER_URL", "")].into_iter().chain(changes.iter().copied()).collect();
        with_database(async |owner| {
            let mut connection = PgConnection::connect_with(&owner).await.expect("connected");
            connection.execute(CLOCK).await.expect("a clock");
            let [service, owner] =
                [as_service(&owner), owner].map(|who| who.options([("search_path", "clock,public,pg_catalog")]));
            Box::pin(Self::run_on(service, owner, 1, &changes, test)).await;
        })
        .await;
    }

    /// Lets time pass for the database, and not for the process: they are two machines.
    pub async fn advance_database(&self, by: time::Duration) {
        sqlx::query("update clock.shows set moment = moment + $1")
            .bind(by)
            .execute(self.owner())
            .await
            .expect("a database with a clock of its own");
    }

    async fn run_seeded(seed: u64, changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        // Boxed: tests are large, and each layer around them would carry them along.
        with_database(async |owner| Box::pin(Self::run_on(as_service(&owner), owner, seed, changes, test)).await).await;
    }

    async fn run_on(
        service: PgConnectOptions,
        owner: PgConnectOptions,
        seed: u64,
        changes: &[(&str, &str)],
        test: impl AsyncFnOnce(&Self),
    ) {
        let prefix = unique("test");
        let mut changes = changes.to_vec();
        changes.extend([("MATCHDAY_REDIS__PREFIX", prefix.as_str()), ("MATCHDAY_NATS__PREFIX", &prefix)]);
        let config = test_config(&changes);
        let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:00 UTC)));
        let random = Arc::new(SeededRandom::new(seed));
        let pool = |most, options| PgPoolOptions::new().max_connections(most).connect_lazy_with(options);
        let (db, owner) = (pool(64, service), pool(2, owner));
        let app = App::assemble(config, db, clock.clone(), random).await.expect("the parts are there");
        let test_app = Self::reaching(app, clock, owner);
        test(&test_app).await;
        let mut left = test_app.told().await;
        // Where somebody registered, that is what the test is about, or it is by the way.
        left.retain(|(subject, _)| subject != accounts::service::REGISTERED);
        assert!(left.is_empty(), "the test left messages that it did not look at: {left:?}");
        test_app.app.core.db.close().await;
        test_app.owner.close().await;
    }

    fn reaching(app: App, clock: Arc<MockClock>, owner: PgPool) -> Self {
        Self {
            public: public(&app),
            private: private(&app),
            console: console(&app),
            web: reqwest::Client::new(),
            app,
            clock,
            owner,
        }
    }

    /// Another process on the same database, with this configuration.
    pub async fn second(&self, config: Config) -> Self {
        let (db, random) = (self.app.core.db.clone(), self.app.core.random.clone());
        let app = App::assemble(config, db, self.clock.clone(), random).await.expect("a second process");
        Self::reaching(app, self.clock.clone(), self.owner.clone())
    }

    /// The same database as the role that owns the tables, for what the service itself must not be able to do.
    pub fn owner(&self) -> &PgPool {
        &self.owner
    }

    /// Holds the teams so that requests for them hang until the connection is closed.
    pub async fn hold_teams(&self) -> PgConnection {
        let mut holder = PgConnection::connect_with(&self.app.core.db.connect_options()).await.expect("a connection");
        holder.execute("begin; lock table teams in access exclusive mode").await.expect("held");
        holder
    }

    /// A new user with a token.
    pub async fn user(&self) -> TestUser<'_> {
        let id = self.app.accounts.make_without_phone().await.expect("a user");
        self.login(id).await
    }

    /// Another session of a user.
    pub async fn login(&self, id: UserId) -> TestUser<'_> {
        let issued = self.app.sessions.issue(id, "test").await.expect("a session");
        TestUser { id, token: issued.token.expose_secret().to_owned(), app: self }
    }

    /// A tournament with four teams, ready for matches.
    pub fn fixtures(&self) -> TestFixtures<'_> {
        TestFixtures::new(self)
    }

    /// What was told to others since the last look, as (subject, payload).
    pub async fn told(&self) -> Vec<(String, Value)> {
        outbox::take_all(&self.app.core.db).await.expect("the outbox")
    }

    /// Brings all scores in step with the results, as workers do.
    pub async fn settle(&self) {
        for progress in self.app.scores.in_progress().await.expect("read") {
            self.settle_match(progress.event.0).await;
        }
    }

    /// Brings the scores in step with a match's result, and sees that this is told once.
    pub async fn settle_match(&self, event: i64) {
        let scores = &self.app.scores;
        for chunk in scores.plan(MatchId(event)).await.expect("planned") {
            scores.apply(MatchId(event), chunk.number).await.expect("applied");
        }
        let told: Vec<i64> =
            sqlx::query_scalar("delete from outbox where subject = $1 returning (payload->>'event_id')::bigint")
                .bind(scores::service::UPDATED)
                .fetch_all(&self.app.core.db)
                .await
                .expect("the outbox");
        assert_eq!(told, [event], "that scores are in step is told once");
    }

    /// Carries what was told to NATS, as the relay does; returns the subjects.
    pub async fn relay(&self) -> Vec<String> {
        self.app.streams.ensure().await.expect("streams");
        let mut subjects = Vec::new();
        for (subject, payload) in self.told().await {
            let message = PublishMessage::build().message_id(unique("told")).payload(payload.to_string().into());
            let stored = self.app.streams.send(&subject, message).await.expect("sent");
            stored.await.expect("stored");
            subjects.push(subject);
        }
        subjects
    }

    /// Sends a request and leaves the body of the answer unread.
    pub async fn open(&self, request: Request<Body>) -> Response<Body> {
        PEER.scope(IpAddr::V4(Ipv4Addr::LOCALHOST), self.public.answer(request)).await
    }

    /// Sends a request as it is, from this machine. `X-Forwarded-For` is believed.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (parts, body) = PEER.scope(peer, self.public.answer(request)).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes: bytes.to_vec() }
    }

    /// Whether the console is enabled.
    pub fn has_console(&self) -> bool {
        self.console.is_some()
    }

    /// Sends a request to the console.
    pub async fn send_to_console(&self, request: Request<Body>) -> Answer {
        let console = self.console.as_ref().expect("the console is enabled");
        let (parts, body) = console.answer(request).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes: bytes.to_vec() }
    }

    /// Sends a request to the listener for Prometheus and the homeserver.
    pub async fn send_privately(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.private.answer(request).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes: bytes.to_vec() }
    }

    /// Pushes events as the homeserver does, and applies them.
    pub async fn push(&self, events: &[Value]) {
        let token = self.app.config.matrix.hs_token.as_ref().expect("a token").inner().expose_secret().to_owned();
        let request = Request::put("/_matrix/app/v1/transactions/1")
            .header(header::AUTHORIZATION, format!("Bearer {token}"))
            .body(Body::from(json!({"events": events}).to_string()))
            .expect("a request");
        assert_eq!(self.send_privately(request).await.expect(200), json!({}));
        self.app.membership_sync.apply_waiting().await.expect("applied");
    }

    /// Sends a request without a token.
    pub async fn anonymous(&self, method: Method, path: &str) -> Answer {
        let request = Request::builder().method(method).uri(path).body(Body::empty()).expect("a request");
        self.send(request).await
    }

    /// Posts JSON without a token.
    pub async fn post(&self, path: &str, body: &Value) -> Answer {
        self.post_from("192.0.2.1", path, body).await
    }

    /// Posts JSON without a token, from this address.
    pub async fn post_from(&self, address: &str, path: &str, body: &Value) -> Answer {
        let request = Request::post(path)
            .header("x-forwarded-for", address)
            .header(header::CONTENT_TYPE, "application/json")
            .body(Body::from(body.to_string()))
            .expect("a request");
        self.send(request).await
    }

    /// The codes sent to a phone, newest first, as the log shows them.
    pub async fn codes(&self, phone: &str) -> Vec<String> {
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.anonymous(Method::GET, &path).await.expect(200);
        let entries = log["data"].as_array().expect("a list").iter();
        entries.map(|entry| entry["code"].as_str().expect("a code").to_owned()).collect()
    }

    /// Asks for a login code and reads it.
    pub async fn code(&self, phone: &str) -> String {
        self.post("/api/code/request", &json!({"phone": phone})).await.expect(200);
        self.codes(phone).await.remove(0)
    }

    /// Logs in with a phone as an app does; returns the user and what the answer said. That they registered, if this was
    /// the first time, is taken note of.
    pub async fn log_in(&self, phone: &str) -> (TestUser<'_>, Value) {
        let code = self.code(phone).await;
        // On a homeserver that tests share, names that are made up would be taken now and then.
        let username = self.app.config.matrix.homeserver_url.is_some().then(|| unique("fan"));
        let body = json!({"phone": phone, "code": code, "username": username});
        let mut answer = self.post("/api/code/verify", &body).await.expect(200);
        let data = answer["data"].take();
        let id = UserId(data["user"]["id"].as_i64().expect("an id"));
        sqlx::query("delete from outbox where subject = $1 and payload -> 'user_id' = to_jsonb($2::bigint)")
            .bind(accounts::service::REGISTERED)
            .bind(id)
            .execute(&self.app.core.db)
            .await
            .expect("taken note of");
        (TestUser { id, token: data["token"].as_str().expect("a token").to_owned(), app: self }, data)
    }
}

/// Someone who is logged in.
pub struct TestUser<'a> {
    /// Who.
    pub id: UserId,
    /// Their token.
    pub token: String,
    app: &'a TestApp,
}

impl TestUser<'_> {
    /// Gets a path.
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    /// Posts JSON.
    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, Some(body.to_string())).await
    }

    /// Deletes a path.
    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    /// Sends anything.
    pub async fn send(&self, method: Method, path: &str, body: Option<String>) -> Answer {
        self.send_with(method, path, &[], body).await
    }

    /// Sends anything, with further headers.
    pub async fn send_with(
        &self,
        method: Method,
        path: &str,
        headers: &[(&str, &str)],
        body: Option<String>,
    ) -> Answer {
        let mut request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::AUTHORIZATION, format!("Bearer {}", self.token))
            .header(header::CONTENT_TYPE, "application/json");
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        self.app.send(request.body(Body::from(body.unwrap_or_default())).expect("a request")).await
    }
}

/// What came back.
pub struct Answer {
    /// The status.
    pub status: StatusCode,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub bytes: Vec<u8>,
}

impl Answer {
    /// The body, if the status is as expected. An error must also speak as every error does.
    #[track_caller]
    pub fn expect(self, status: u16) -> Value {
        let text = String::from_utf8_lossy(&self.bytes);
        assert_eq!(self.status.as_u16(), status, "{text}");
        let body: Value = serde_json::from_slice(&self.bytes).unwrap_or_else(|_| panic!("not JSON: {text}"));
        if status >= 400 {
            assert!(body["message"].as_str().is_some_and(|message| !message.is_empty()), "{body}");
            assert!(
                body["code"].as_str().is_some_and(|code| code.bytes().all(|b| b.is_ascii_lowercase() || b == b'_')),
                "{body}"
            );
            assert_eq!(body.get("errors").is_some(), status == 422, "{body}");
        }
        body
    }

    /// The fields that a 422 complains of.
    #[track_caller]
    pub fn invalid_fields(self) -> Vec<String> {
        let body = self.expect(422);
        body["errors"].as_object().expect("errors by field").keys().cloned().collect()
    }

    /// A header as text.
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    #[should_panic(expected = "the test left messages that it did not look at")]
    async fn a_test_that_leaves_messages_fails() {
        TestApp::run(async |app| {
            let user = app.user().await;
            user.post("/api/auth/logout", serde_json::json!({})).await.expect(200);
        })
        .await;
    }
}
