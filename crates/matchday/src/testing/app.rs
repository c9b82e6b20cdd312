//! The application under test, without a network.

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
use time::{OffsetDateTime, format_description::well_known::Rfc3339, macros::datetime};
use web::{
    Edge, PEER,
    ids::{MatchId, QuestionId, UserId},
    server::Answers as _,
};

use super::{MockClock, SeededRandom, TestFixtures, test_config, unique};
use crate::{
    app::App,
    config::Config,
    game::scores::{self, rules::Source},
    identity::accounts,
    router::{Public, console, private, public},
};

/// An application on a fresh database. Requests go directly to its router.
pub struct TestApp {
    pub app: App,
    /// Clock of the application; starts at 15:00 UTC on 20 November 2026.
    pub clock: Arc<MockClock>,
    public: Public,
    private: Edge,
    console: Option<Edge>,
    /// Client for requests to the homeserver.
    pub web: reqwest::Client,
    owner: PgPool,
}

/// A database clock that starts a day before the test's clock, whatever the date is, and runs. A match that starts soon by
/// the test's clock is open for predictions, which the database decides.
const RUNNING_CLOCK: &str = "create schema clock;
    do $$
    declare
        ahead interval := '2026-11-19 15:00:00+00' - clock_timestamp();
        name text;
    begin
        foreach name in array array['now', 'clock_timestamp', 'statement_timestamp'] loop
            execute format('create function clock.%1$I() returns timestamptz language sql as
                $f$select pg_catalog.%1$I() + interval %2$L$f$', name, ahead);
        end loop;
    end $$;
    grant usage on schema clock to matchday_app";

/// A database clock that only [`TestApp::advance_database`] moves.
const STANDING_CLOCK: &str = "create schema clock;
    create table clock.shows (moment timestamptz not null);
    insert into clock.shows values ('2026-11-20 15:00:00+00');
    create function clock.now() returns timestamptz language sql as 'select moment from clock.shows';
    create function clock.clock_timestamp() returns timestamptz language sql as 'select moment from clock.shows';
    create function clock.statement_timestamp() returns timestamptz language sql as 'select moment from clock.shows';
    grant usage on schema clock to matchday_app;
    grant select on clock.shows to matchday_app";

impl TestApp {
    /// Runs a test. It fails if the test leaves messages in the outbox that it did not take, because published messages
    /// are part of the behaviour under test. Registration messages are exempt: many tests register users only as a
    /// precondition.
    pub async fn run(test: impl AsyncFnOnce(&Self)) {
        Self::run_with(&[], test).await;
    }

    /// Like [`Self::run`], with changed settings. Chat is off, because its accounts would outlive the test's database.
    pub async fn run_with(changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        let changes: Vec<_> =
            [("MATCHDAY_MATRIX__HOMESERVER_URL", "")].into_iter().chain(changes.iter().copied()).collect();
        Self::run_seeded(1, &changes, test).await;
    }

    /// Like [`Self::run_with`], with chat on the real homeserver. The random seed differs in each run, because
    /// usernames on the homeserver outlive the test.
    pub async fn run_with_chat(changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        let digest = Sha256::digest(unique("seed"));
        let seed = u64::from_be_bytes(digest[..8].try_into().expect("eight bytes"));
        Self::run_seeded(seed, changes, test).await;
    }

    /// Like [`Self::run_with`], with a database clock that only [`Self::advance_database`] moves. It starts at the same
    /// time as the test's clock.
    pub async fn run_with_database_clock(changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        let changes: Vec<_> =
            [("MATCHDAY_MATRIX__HOMESERVER_URL", "")].into_iter().chain(changes.iter().copied()).collect();
        Self::run_on(STANDING_CLOCK, 1, &changes, test).await;
    }

    /// Advances the database's clock but not the process's, because the two may run on different machines.
    pub async fn advance_database(&self, by: time::Duration) {
        sqlx::query("update clock.shows set moment = moment + $1")
            .bind(by)
            .execute(self.owner())
            .await
            .expect("a database with its own clock");
    }

    async fn run_seeded(seed: u64, changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        Self::run_on(RUNNING_CLOCK, seed, changes, test).await;
    }

    async fn run_on(database_clock: &'static str, seed: u64, changes: &[(&str, &str)], test: impl AsyncFnOnce(&Self)) {
        // Boxed because test futures are large and every wrapper would otherwise contain them inline.
        with_database(async |owner| {
            let mut connection = PgConnection::connect_with(&owner).await.expect("connected");
            connection.execute(database_clock).await.expect("a clock");
            connection.close().await.expect("closed");
            // The schema `clock` shadows the built-in functions, because `pg_catalog` comes last in the search path.
            let [service, owner] =
                [as_service(&owner), owner].map(|who| who.options([("search_path", "clock,public,pg_catalog")]));
            Box::pin(Self::run_with_roles(service, owner, seed, changes, test)).await;
        })
        .await;
    }

    async fn run_with_roles(
        service: PgConnectOptions,
        owner: PgConnectOptions,
        seed: u64,
        changes: &[(&str, &str)],
        test: impl AsyncFnOnce(&Self),
    ) {
        let prefix = unique("test");
        let mut changes = changes.to_vec();
        // Keys of avatars repeat, because the random source of tests does.
        let images = std::env::temp_dir().join("matchday-test-avatars").join(&prefix);
        let store = format!("file://{}", images.display());
        changes.splice(0..0, [("MATCHDAY_AVATARS__STORE", store.as_str())]);
        changes.extend([("MATCHDAY_REDIS__PREFIX", prefix.as_str()), ("MATCHDAY_NATS__PREFIX", &prefix)]);
        let config = test_config(&changes);
        let clock = Arc::new(MockClock::at(datetime!(2026-11-20 15:00 UTC)));
        let random = Arc::new(SeededRandom::new(seed));
        let pool = |most, options| PgPoolOptions::new().max_connections(most).connect_lazy_with(options);
        let (db, owner) = (pool(64, service), pool(2, owner));
        let app = App::assemble(config, db, clock.clone(), random).await.expect("available dependencies");
        let test_app = Self::reaching(app, clock, owner);
        test(&test_app).await;
        let mut left = test_app.published().await;
        left.retain(|(subject, _)| subject != accounts::service::REGISTERED);
        assert!(left.is_empty(), "the test left messages in the outbox: {left:?}");
        test_app.app.core.db.close().await;
        test_app.owner.close().await;
        // Most tests store no image.
        let _ = std::fs::remove_dir_all(images);
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

    /// Starts a second process on the same database, with this configuration.
    pub async fn second(&self, config: Config) -> Self {
        let (db, random) = (self.app.core.db.clone(), self.app.core.random.clone());
        let app = App::assemble(config, db, self.clock.clone(), random).await.expect("a second process");
        Self::reaching(app, self.clock.clone(), self.owner.clone())
    }

    /// Like [`Self::second`], with one connection for requests, so the server's statistics of that connection count what
    /// requests read.
    pub async fn with_one_connection(&self) -> Self {
        let db =
            PgPoolOptions::new().max_connections(1).connect_lazy_with((*self.app.core.db.connect_options()).clone());
        let (config, random) = (self.app.config.clone(), self.app.core.random.clone());
        let app = App::assemble(config, db, self.clock.clone(), random).await.expect("a second process");
        Self::reaching(app, self.clock.clone(), self.owner.clone())
    }

    /// Pool of the role that owns the tables, for statements that the service is not allowed to run.
    pub fn owner(&self) -> &PgPool {
        &self.owner
    }

    /// Locks the `teams` table, so requests for teams hang until the connection is closed.
    pub async fn hold_teams(&self) -> PgConnection {
        let mut holder = PgConnection::connect_with(&self.app.core.db.connect_options()).await.expect("a connection");
        holder.execute("begin; lock table teams in access exclusive mode").await.expect("held");
        holder
    }

    /// Returns the number of rows that statements read of the tables and partitions whose names match a pattern.
    pub async fn rows_read(&self, tables: &str, run: impl AsyncFnOnce(&mut PgConnection)) -> i64 {
        let mut tx = platform::database::begin(&self.app.core.db).await.expect("begun");
        // The statistics of a transaction do not include those of its workers.
        tx.execute("set local max_parallel_workers_per_gather = 0").await.expect("set");
        run(&mut tx).await;
        sqlx::query_scalar(
            "select coalesce(sum(coalesce(seq_tup_read, 0) + coalesce(idx_tup_fetch, 0)), 0)::bigint
             from pg_stat_xact_user_tables where relname ~ $1",
        )
        .bind(tables)
        .fetch_one(&mut *tx)
        .await
        .expect("counted")
    }

    /// Creates a user without a phone, and logs in.
    pub async fn user(&self) -> TestUser<'_> {
        let id = self.app.accounts.make_without_phone().await.expect("a user");
        self.login(id).await
    }

    /// Issues another session for a user.
    pub async fn login(&self, id: UserId) -> TestUser<'_> {
        let issued = self.app.sessions.issue(id, "test").await.expect("a session");
        TestUser { id, token: issued.token.expose_secret().to_owned(), app: self }
    }

    /// Builds a tournament with four teams and no matches.
    pub fn fixtures(&self) -> TestFixtures<'_> {
        TestFixtures::new(self)
    }

    /// Takes all messages from the outbox, as (subject, payload).
    pub async fn published(&self) -> Vec<(String, Value)> {
        outbox::take_all(&self.app.core.db).await.expect("the outbox")
    }

    /// Applies all results to the scores, as workers do.
    pub async fn settle(&self) {
        for progress in self.app.scores.in_progress().await.expect("read") {
            match progress.source {
                Source::Match(event) => self.settle_match(event.0).await,
                Source::Question(question) => self.settle_question(question.0).await,
            }
        }
    }

    /// Applies the result of a match to the scores, and checks that this is published once.
    pub async fn settle_match(&self, event: i64) {
        let scores = &self.app.scores;
        for chunk in scores.plan(MatchId(event)).await.expect("planned") {
            scores.apply(MatchId(event), chunk.number).await.expect("applied");
        }
        let published: Vec<i64> =
            sqlx::query_scalar("delete from outbox where subject = $1 returning (payload->>'event_id')::bigint")
                .bind(scores::service::UPDATED)
                .fetch_all(&self.app.core.db)
                .await
                .expect("the outbox");
        assert_eq!(published, [event], "updated scores are published once");
    }

    /// Applies the result of a question to the scores.
    pub async fn settle_question(&self, question: i64) {
        let scores = &self.app.scores;
        for chunk in scores.plan(QuestionId(question)).await.expect("planned") {
            scores.apply(QuestionId(question), chunk.number).await.expect("applied");
        }
    }

    /// Publishes the outbox to NATS, as the relay does; returns the subjects.
    pub async fn relay(&self) -> Vec<String> {
        self.app.streams.ensure().await.expect("streams");
        let mut subjects = Vec::new();
        for (subject, payload) in self.published().await {
            let message = PublishMessage::build().message_id(unique("relayed")).payload(payload.to_string().into());
            let stored = self.app.streams.send(&subject, message).await.expect("sent");
            stored.await.expect("stored");
            subjects.push(subject);
        }
        subjects
    }

    /// Sends a request without reading the response body.
    pub async fn open(&self, request: Request<Body>) -> Response<Body> {
        PEER.scope(IpAddr::V4(Ipv4Addr::LOCALHOST), self.public.answer(request)).await
    }

    /// Sends a request unchanged, from the loopback address. `X-Forwarded-For` is trusted.
    pub async fn send(&self, request: Request<Body>) -> Answer {
        let peer = IpAddr::V4(Ipv4Addr::LOCALHOST);
        let (parts, body) = PEER.scope(peer, self.public.answer(request)).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes: bytes.to_vec() }
    }

    pub fn has_console(&self) -> bool {
        self.console.is_some()
    }

    pub async fn send_to_console(&self, request: Request<Body>) -> Answer {
        let console = self.console.as_ref().expect("the console is enabled");
        let (parts, body) = console.answer(request).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes: bytes.to_vec() }
    }

    /// Sends a request to the private listener (Prometheus and the homeserver).
    pub async fn send_privately(&self, request: Request<Body>) -> Answer {
        let (parts, body) = self.private.answer(request).await.into_parts();
        let bytes = body.collect().await.expect("a body").to_bytes();
        Answer { status: parts.status, headers: parts.headers, bytes: bytes.to_vec() }
    }

    /// Pushes Matrix events as the homeserver does, and applies them.
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

    /// Codes sent to a phone, newest first, read from the SMS log endpoint.
    pub async fn codes(&self, phone: &str) -> Vec<String> {
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = self.anonymous(Method::GET, &path).await.expect(200);
        let entries = log["data"].as_array().expect("a list").iter();
        entries.map(|entry| entry["code"].as_str().expect("a code").to_owned()).collect()
    }

    /// Requests a login code and returns it.
    pub async fn code(&self, phone: &str) -> String {
        self.post("/api/code/request", &json!({"phone": phone})).await.expect(200);
        self.codes(phone).await.remove(0)
    }

    /// Logs in with a phone as an app does; returns the user and the response data. Takes the registration message from
    /// the outbox, if there is one.
    pub async fn log_in(&self, phone: &str) -> (TestUser<'_>, Value) {
        let code = self.code(phone).await;
        // Tests share the homeserver, where a generated username could already be taken.
        let username = self.app.config.matrix.homeserver_url.is_some().then(|| unique("fan"));
        let body = json!({"phone": phone, "code": code, "username": username});
        let mut response = self.post("/api/code/verify", &body).await.expect(200);
        let data = response["data"].take();
        let id = UserId(data["user"]["id"].as_i64().expect("an id"));
        sqlx::query("delete from outbox where subject = $1 and payload -> 'user_id' = to_jsonb($2::bigint)")
            .bind(accounts::service::REGISTERED)
            .bind(id)
            .execute(&self.app.core.db)
            .await
            .expect("deleted");
        (TestUser { id, token: data["token"].as_str().expect("a token").to_owned(), app: self }, data)
    }
}

/// A user with a session.
pub struct TestUser<'a> {
    pub id: UserId,
    pub token: String,
    app: &'a TestApp,
}

impl TestUser<'_> {
    pub async fn get(&self, path: &str) -> Answer {
        self.send(Method::GET, path, None).await
    }

    pub async fn post(&self, path: &str, body: Value) -> Answer {
        self.send(Method::POST, path, Some(body.to_string())).await
    }

    pub async fn delete(&self, path: &str) -> Answer {
        self.send(Method::DELETE, path, None).await
    }

    pub async fn send(&self, method: Method, path: &str, body: Option<String>) -> Answer {
        self.send_with(method, path, &[], body).await
    }

    /// Sends a request with additional headers.
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

/// A response whose body was read completely.
pub struct Answer {
    pub status: StatusCode,
    pub headers: HeaderMap,
    pub bytes: Vec<u8>,
}

impl Answer {
    /// Returns the body after checking the status. An error must have the standard error format, and every timestamp the
    /// standard form.
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
        let faults = timestamps_in_another_form(&body);
        assert!(faults.is_empty(), "{faults:?} in {body}");
        body
    }

    /// Names of the fields that a 422 rejects.
    #[track_caller]
    pub fn invalid_fields(self) -> Vec<String> {
        let body = self.expect(422);
        body["errors"].as_object().expect("errors by field").keys().cloned().collect()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name).and_then(|value| value.to_str().ok())
    }
}

/// Returns the timestamps in a JSON document that do not have the form of `platform::timestamp`. Receipts and seals have six
/// fraction digits.
fn timestamps_in_another_form(document: &Value) -> Vec<String> {
    let mut faults = Vec::new();
    match document {
        Value::Array(items) => items.iter().for_each(|item| faults.extend(timestamps_in_another_form(item))),
        Value::Object(fields) => {
            let is_sealed = fields.contains_key("accepted_at") || fields.contains_key("sealed_at");
            for (name, value) in fields {
                let Some(at) = value.as_str().filter(|text| OffsetDateTime::parse(text, &Rfc3339).is_ok()) else {
                    faults.extend(timestamps_in_another_form(value));
                    continue;
                };
                if !at.ends_with('Z') || at.len() != "2026-11-20T15:00:00.000Z".len() + if is_sealed { 3 } else { 0 } {
                    faults.push(format!("{name}: {at}"));
                }
            }
        }
        _ => {}
    }
    faults
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_timestamps_in_the_standard_form_are_accepted() {
        let document = |at: &str| serde_json::json!({"data": [{"created_at": at}], "note": "2026"});
        assert!(timestamps_in_another_form(&document("2026-11-20T15:00:00.000Z")).is_empty());
        for at in ["2026-11-20T15:00:00Z", "2026-11-20T15:00:00.123456Z", "2026-11-20T15:00:00.123+00:00"] {
            assert_eq!(timestamps_in_another_form(&document(at)), [format!("created_at: {at}")]);
        }
    }

    #[tokio::test]
    #[should_panic(expected = "the test left messages in the outbox")]
    async fn test_with_unread_messages_fails() {
        TestApp::run(async |app| {
            let user = app.user().await;
            user.post("/api/auth/logout", serde_json::json!({})).await.expect(200);
        })
        .await;
    }
}
