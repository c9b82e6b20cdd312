//! Tests of reports and their queue. Those with messages run against a real homeserver.

use http::Method;
use platform::clock::Clock as _;
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use web::ids::UserId;

use super::{
    rules::{Figures, ReporterAnswer, Resolution},
    service::{Ending, OthersClaim, ReportError, Scope},
};
use crate::{
    admin::console::service::{ReportFilter, ReportRow, ReportState},
    identity::operators::{
        Operator,
        service::{ActionFilter, Recorded},
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
        let (user, login) = app.log_in(&format!("+1415556{number:04}")).await;
        Self { app, user, chat: login["matrix_credentials"].clone() }
    }

    async fn open_room(&self, wish: Value) -> String {
        let opened = self.user.post("/api/auth/chat-room", wish).await.expect(201);
        opened["data"]["room_id"].as_str().expect("an id").to_owned()
    }

    /// Calls the homeserver directly, like a chat client, and returns the body of a successful response.
    async fn put(&self, path: &str, body: Value) -> Value {
        let base = self.app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
        let url = base.join(&format!("_matrix/client/v3/{path}")).expect("a URL");
        let token = self.chat["access_token"].as_str().expect("a token");
        let response = self.app.web.request(Method::PUT, url).bearer_auth(token).json(&body).send().await;
        let response = response.expect("a response");
        assert_eq!(response.status(), 200, "{path}");
        response.json().await.expect("JSON")
    }

    /// Sends a message to a room. Returns its id.
    async fn say(&self, room: &str, text: &str) -> String {
        let path = format!("rooms/{room}/send/m.room.message/{}", crate::testing::unique("txn"));
        let sent = self.put(&path, json!({"msgtype": "m.text", "body": text})).await;
        sent["event_id"].as_str().expect("an id").to_owned()
    }

    async fn report(&self, room: &str, message: &str) -> Answer {
        report(&self.user, room, message).await
    }
}

async fn report(user: &TestUser<'_>, room: &str, message: &str) -> Answer {
    let path = format!("/api/auth/chat-rooms/{room}/reports");
    user.post(&path, json!({"event_id": message, "reason": " insults "})).await
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

/// Reports messages with these ids as new users. Returns the reporters and the ids of the reports.
async fn put_reports<'a>(app: &'a TestApp, messages: &[&str]) -> (Vec<TestUser<'a>>, Vec<i64>) {
    let creator = app.user().await;
    let room = put_room(app, creator.id, "derby").await;
    let (mut users, mut ids) = (Vec::new(), Vec::new());
    for message in messages {
        let user = app.user().await;
        report(&user, &room, message).await.expect(201);
        let own = user.get("/api/auth/reports").await.expect(200);
        ids.push(own["data"][0]["id"].as_i64().expect("an id"));
        users.push(user);
    }
    (users, ids)
}

async fn listed(app: &TestApp, state: ReportState) -> Vec<ReportRow> {
    let filter = ReportFilter { state, ..ReportFilter::default() };
    app.app.console.reports("matchday.localhost", &filter).await.expect("read").listed.rows
}

async fn open_ids(app: &TestApp) -> Vec<i64> {
    listed(app, ReportState::Open).await.iter().map(|report| report.id).collect()
}

fn ola() -> Operator {
    Operator::new("ola", "warned the sender")
}

fn ida() -> Operator {
    Operator::new("ida", "no rule broken")
}

fn ending(scope: Scope) -> Ending {
    Ending { resolution: Resolution::NoViolation, answer: None, scope, others_claim: OthersClaim::Respect }
}

/// Recorded actions, oldest first.
async fn recorded(app: &TestApp) -> Vec<Recorded> {
    let mut rows = app.app.operators.recorded(&ActionFilter::default(), 100).await.expect("read");
    rows.reverse();
    rows
}

#[tokio::test]
async fn report_keeps_content_of_redacted_message() {
    TestApp::run_with_chat(&[], async |app| {
        let (ada, ben, cleo) = (Fan::new(app, 90).await, Fan::new(app, 91).await, Fan::new(app, 92).await);
        let room = ada.open_room(json!({"name": "Public"})).await;
        let other = ada.open_room(json!({"name": "Other"})).await;
        let private = ada.open_room(json!({"name": "Private", "is_private": true})).await;
        ben.user.post(&format!("/api/auth/chat-rooms/{room}/join"), json!({})).await.expect(200);
        let message = ben.say(&room, "a bad\u{0} word").await;
        let thanks = json!({"message": "Thank you. A moderator will review the message."});
        assert_eq!(cleo.report(&room, &message).await.expect(201), thanks, "not a member, but the room is public");
        assert_eq!(cleo.report(&room, &message).await.expect(200), thanks);
        ben.put(&format!("rooms/{room}/redact/{message}/1"), json!({})).await;
        assert_eq!(cleo.report(&room, &message).await.expect(200), thanks);
        assert_eq!(ada.report(&room, &message).await.status, 201, "each user can report once");
        let reports = listed(app, ReportState::Open).await;
        assert_eq!(reports.len(), 2);
        let first = &reports[0];
        let cleo_is_called = cleo.user.get("/api/auth/me").await.expect(200)["data"]["username"].clone();
        assert_eq!(json!(first.reporter), cleo_is_called);
        assert_eq!((first.room.as_str(), &first.event_id, first.reason.as_str()), ("Public", &message, "insults"));
        assert_eq!(json!(first.sender), ben.chat["user_id"]);
        let content: Value = serde_json::from_str(first.content.as_deref().expect("kept")).expect("JSON");
        assert_eq!(content["body"], "a bad\u{0} word");
        assert_eq!(reports[1].content.as_deref(), Some("{}"), "a report after the redaction has no content");

        // A message of another room.
        let elsewhere = ada.say(&other, "hello").await;
        let secret = ada.say(&private, "hello").await;
        for (room, message) in [(&room, elsewhere.as_str()), (&room, &secret), (&room, "$none"), (&room, "$a/b")] {
            assert_eq!(cleo.report(room, message).await.invalid_fields(), ["event_id"], "{message}");
        }
        assert_eq!(cleo.report(&private, &secret).await.expect(403)["code"], "not_allowed");
        let invite = json!({"user_id": cleo.user.id});
        ada.user.post(&format!("/api/auth/chat-rooms/{private}/invite"), invite).await.expect(200);
        assert_eq!(cleo.report(&private, &secret).await.status, 403, "an invited user cannot read the room yet");
        cleo.report("!none:matchday.localhost", &message).await.expect(404);
        let path = format!("/api/auth/chat-rooms/{room}/reports");
        for body in [json!({"event_id": message}), json!({"event_id": message, "reason": "x".repeat(501)})] {
            assert_eq!(cleo.user.post(&path, body).await.invalid_fields(), ["reason"]);
        }
        assert_eq!(open_ids(app).await.len(), 2);
    })
    .await;
}

#[tokio::test]
async fn context_has_five_messages_on_each_side() {
    TestApp::run_with_chat(&[], async |app| {
        let (ada, ben) = (Fan::new(app, 93).await, Fan::new(app, 94).await);
        let room = ada.open_room(json!({"name": "Public"})).await;
        ben.user.post(&format!("/api/auth/chat-rooms/{room}/join"), json!({})).await.expect(200);
        let mut sent = Vec::new();
        for number in 0..13 {
            sent.push(if number % 2 == 0 { &ada } else { &ben }.say(&room, &format!("message {number}")).await);
        }
        ben.put(&format!("rooms/{room}/redact/{}/1", sent[5]), json!({})).await;
        let context = app.app.reports.context(&room, &sent[6]).await.expect("loaded");
        let ids: Vec<&str> = context.iter().map(|message| message.event_id.as_str()).collect();
        assert_eq!(ids, sent[1..12]);
        assert_eq!(
            (&context[5].content["body"], json!(context[5].sender)),
            (&json!("message 6"), ada.chat["user_id"].clone())
        );
        assert_eq!(context[4].content["body"], Value::Null, "a redacted message has no text");
        assert!(app.app.reports.context(&room, "$none").await.expect("loaded").is_empty());
        let stored: i64 =
            sqlx::query_scalar("select count(*) from reports").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(stored, 0, "loading stores nothing");
    })
    .await;
}

#[tokio::test]
async fn report_is_stored_while_homeserver_is_down() {
    let away = [("MATCHDAY_MATRIX__HOMESERVER_URL", "http://127.0.0.1:1")];
    TestApp::run_with_chat(&away, async |app| {
        let user = app.user().await;
        let room = put_room(app, user.id, "derby").await;
        report(&user, &room, "$some_message").await.expect(201);
        report(&user, &room, "$some_message").await.expect(200);
        let reports = listed(app, ReportState::Open).await;
        assert_eq!((reports.len(), &reports[0].sender, &reports[0].content), (1, &None, &None));
        let context = app.app.reports.context(&room, "$some_message").await;
        assert!(matches!(context, Err(ReportError::ChatUnavailable)), "{context:?}");
    })
    .await;
}

#[tokio::test]
async fn reports_are_rate_limited() {
    TestApp::run_with(&[("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "US")], async |app| {
        let (ada, ben) = (app.user().await, app.user().await);
        let room = put_room(app, ada.id, "derby").await;
        let send = async |user: &TestUser<'_>, number: u32| report(user, &room, &format!("${number}")).await;
        for number in 0..20 {
            let response = send(&ada, number).await;
            assert_eq!(response.header("x-ratelimit-remaining"), Some((19 - number).to_string().as_str()));
            response.expect(201);
        }
        let refused = send(&ada, 20).await;
        assert_eq!(refused.header("retry-after"), Some("60"));
        assert_eq!(refused.expect(429)["code"], "rate_limited");
        send(&ben, 20).await.expect(201);
        app.clock.advance(Duration::minutes(1));
        assert_eq!([send(&ada, 20).await.status.as_u16(), send(&ada, 21).await.status.as_u16()], [201, 429]);
        assert_eq!(app.app.reports.figures().await.expect("read").open, 22);
    })
    .await;
}

#[tokio::test]
async fn claim_excludes_other_operators_until_it_expires() {
    TestApp::run(async |app| {
        let (_, ids) = put_reports(app, &["$a"]).await;
        let (reports, id) = (&app.app.reports, ids[0]);
        let until = reports.claim(id, &ola(), OthersClaim::Respect).await.expect("claimed");
        assert_eq!(until, app.clock.now() + Duration::minutes(30));
        app.clock.advance(Duration::minutes(29));
        let is_olas = |error: &ReportError| matches!(error, ReportError::Claimed(claim) if claim.by == "ola");
        assert!(reports.claim(id, &ida(), OthersClaim::Respect).await.is_err_and(|error| is_olas(&error)));
        assert!(reports.release(id, &ida()).await.is_err_and(|error| is_olas(&error)));
        assert!(reports.close(id, &ida(), &ending(Scope::One)).await.is_err_and(|error| is_olas(&error)));
        assert_eq!(listed(app, ReportState::ClaimedBy("ola".to_owned())).await.len(), 1);
        assert!(listed(app, ReportState::ClaimedBy("ida".to_owned())).await.is_empty());
        // A repeated claim extends the period.
        reports.claim(id, &ola(), OthersClaim::Respect).await.expect("extended");
        app.clock.advance(Duration::minutes(29));
        assert!(reports.claim(id, &ida(), OthersClaim::Respect).await.is_err());
        app.clock.advance(Duration::minutes(1));
        assert!(matches!(reports.release(id, &ola()).await, Err(ReportError::NotClaimed)), "the claim has expired");
        reports.claim(id, &ida(), OthersClaim::Respect).await.expect("claimed");
        reports.claim(id, &ola(), OthersClaim::TakeOver).await.expect("taken over");
        reports.release(id, &ola()).await.expect("released");
        assert!(matches!(reports.release(id, &ola()).await, Err(ReportError::NotClaimed)));
        reports.close(id, &ida(), &ending(Scope::One)).await.expect("closed");
        for (outcome, name) in [
            (reports.claim(id, &ola(), OthersClaim::TakeOver).await.err(), "claim"),
            (reports.release(id, &ola()).await.err(), "release"),
            (reports.close(id, &ola(), &ending(Scope::SameMessage)).await.err(), "close"),
        ] {
            assert!(matches!(outcome, Some(ReportError::Closed)), "{name}: {outcome:?}");
        }
        let missing = reports.claim(id + 1, &ola(), OthersClaim::Respect).await;
        assert!(matches!(missing, Err(ReportError::NoSuchReport)), "{missing:?}");

        let rows = recorded(app).await;
        let actions: Vec<(&str, &str)> = rows.iter().map(|row| (row.action.as_str(), row.operator.as_str())).collect();
        let (claim, release, close) = ("report.claim", "report.release", "report.close");
        assert_eq!(
            actions,
            [(claim, "ola"), (claim, "ola"), (claim, "ida"), (claim, "ola"), (release, "ola"), (close, "ida")]
        );
        assert!(rows.iter().all(|row| row.target == format!("report:{id}")));
        assert_eq!(rows[3].details["taken_from"], "ida");
        assert_eq!(rows[5].details, json!({"resolution": "no_violation", "answered": false, "also_closed": []}));
        assert_eq!(rows[5].reason, "no rule broken");
    })
    .await;
}

#[tokio::test]
async fn one_act_closes_all_reports_of_message() {
    TestApp::run(async |app| {
        let (_, ids) = put_reports(app, &["$a", "$a", "$b", "$a", "$a"]).await;
        let reports = &app.app.reports;
        reports.claim(ids[3], &ida(), OthersClaim::Respect).await.expect("claimed");
        let closed = reports.close(ids[1], &ola(), &ending(Scope::SameMessage)).await.expect("closed");
        assert_eq!(closed.len(), 3);
        assert_eq!(open_ids(app).await, [ids[2], ids[3]], "another message, and another operator's report");
        let mut also = closed;
        also.retain(|id| *id != ids[1]);
        assert_eq!(recorded(app).await[1].details["also_closed"], json!(also));
        let taking_over = Ending { others_claim: OthersClaim::TakeOver, ..ending(Scope::SameMessage) };
        assert_eq!(reports.close(ids[3], &ola(), &taking_over).await.expect("closed"), [ids[3]]);
        for row in listed(app, ReportState::Closed).await {
            assert_eq!(row.closed_by.as_deref(), Some("ola"));
            assert_eq!((row.note.as_deref(), row.claimed_by), (Some("warned the sender"), None));
        }
    })
    .await;
}

#[tokio::test]
async fn one_of_two_concurrent_claims_succeeds() {
    TestApp::run(async |app| {
        let (_, ids) = put_reports(app, &["$a"; 8]).await;
        for id in ids {
            let (ola, ida) = (ola(), ida());
            let outcomes = tokio::join!(
                app.app.reports.claim(id, &ola, OthersClaim::Respect),
                app.app.reports.claim(id, &ida, OthersClaim::Respect),
            );
            let (winner, loser) = match outcomes {
                (Ok(_), Err(error)) => ("ola", error),
                (Err(error), Ok(_)) => ("ida", error),
                other => panic!("{other:?}"),
            };
            assert!(matches!(loser, ReportError::Claimed(claim) if claim.by == winner));
        }
    })
    .await;
}

#[tokio::test]
async fn concurrent_claim_and_closures_exclude_each_other() {
    TestApp::run(async |app| {
        for round in 0..8 {
            let message = format!("$m{round}");
            let creator = app.user().await;
            let room = put_room(app, creator.id, &format!("room{round}")).await;
            let users = [app.user().await, app.user().await];
            for user in &users {
                report(user, &room, &message).await.expect(201);
            }
            let ids = open_ids(app).await;
            let (ola, ida, all) = (ola(), ida(), ending(Scope::SameMessage));
            let reports = &app.app.reports;
            // Both closures cover both reports, from different ends.
            let (claimed, first, second) = tokio::join!(
                reports.claim(ids[0], &ida, OthersClaim::Respect),
                reports.close(ids[0], &ola, &all),
                reports.close(ids[1], &ola, &all),
            );
            let database = |error: &ReportError| matches!(error, ReportError::Database(_));
            assert!(
                !first.as_ref().is_err_and(database) && !second.as_ref().is_err_and(database),
                "{first:?} {second:?}"
            );
            let mut closed: Vec<i64> = first.into_iter().chain(second).flatten().collect();
            closed.sort_unstable();
            if claimed.is_ok() {
                assert_eq!(closed, [ids[1]], "the claimed report stays open");
                assert_eq!(open_ids(app).await, [ids[0]]);
                reports.close(ids[0], &ida, &all).await.expect("closed");
            } else {
                assert_eq!(closed, ids, "each report is closed once");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn reporters_see_own_reports_and_answers() {
    TestApp::run(async |app| {
        let (users, ids) = put_reports(app, &["$a", "$b"]).await;
        let room = "!derby:matchday.localhost";
        app.clock.advance(Duration::minutes(5));
        report(&users[0], room, "$c").await.expect(201);
        let answer: ReporterAnswer = "Thank you.\nWe removed the message.".parse().expect("valid");
        let removed = Ending { resolution: Resolution::MessageRemoved, answer: Some(answer), ..ending(Scope::One) };
        app.clock.advance(Duration::minutes(5));
        app.app.reports.close(ids[0], &ola(), &removed).await.expect("closed");
        app.app.reports.close(ids[1], &ola(), &ending(Scope::One)).await.expect("closed");

        let page = users[0].get("/api/auth/reports").await.expect(200);
        assert_eq!(page["meta"]["total"], 2);
        assert_eq!(
            page["data"],
            json!([
                {"id": page["data"][0]["id"], "room_id": room, "event_id": "$c", "reason": "insults",
                 "created_at": "2026-11-20T15:05:00.000Z", "status": "open", "closed_at": null, "answer": null},
                {"id": ids[0], "room_id": room, "event_id": "$a", "reason": "insults",
                 "created_at": "2026-11-20T15:00:00.000Z", "status": "closed", "closed_at": "2026-11-20T15:10:00.000Z",
                 "answer": "Thank you.\nWe removed the message."},
            ])
        );
        let second = users[0].get("/api/auth/reports?page=2&per_page=1").await.expect(200);
        assert_eq!((second["data"].as_array().map(Vec::len), &second["data"][0]["id"]), (Some(1), &json!(ids[0])));
        let other = users[1].get("/api/auth/reports").await.expect(200);
        assert_eq!((&other["meta"]["total"], &other["data"][0]["answer"]), (&json!(1), &Value::Null));
        assert!(!other.to_string().contains("warned"), "notes are for operators");
        app.anonymous(Method::GET, "/api/auth/reports").await.expect(401);
    })
    .await;
}

#[tokio::test]
async fn figures_cover_open_and_recently_closed_reports() {
    TestApp::run(async |app| {
        let reports = &app.app.reports;
        let nothing = Figures { open: 0, oldest: None, closed: 0, median: None, p95: None, in_time: None };
        assert_eq!(reports.figures().await.expect("read"), nothing);
        let (_, ids) = put_reports(app, &["$a", "$b", "$c", "$d"]).await;
        let start: OffsetDateTime = app.clock.now();
        // They are closed one, two and thirty hours after they were reported.
        for (id, hours) in ids.iter().zip([1, 1, 28]) {
            app.clock.advance(Duration::hours(hours));
            reports.close(*id, &ola(), &ending(Scope::One)).await.expect("closed");
        }
        let expected = Figures {
            open: 1,
            oldest: Some(start),
            closed: 3,
            median: Some(Duration::hours(2)),
            p95: Some(Duration::hours(30)),
            // One was closed late, and one is open and overdue.
            in_time: Some(0.5),
        };
        assert_eq!(reports.figures().await.expect("read"), expected);
        app.clock.advance(Duration::days(8));
        reports.close(ids[3], &ola(), &ending(Scope::One)).await.expect("closed");
        let later = reports.figures().await.expect("read");
        assert_eq!((later.open, later.closed, later.in_time), (0, 1, Some(0.0)), "older closures no longer count");
    })
    .await;
}

#[tokio::test]
async fn closed_reports_are_deleted_after_their_retention() {
    TestApp::run_with(&[("MATCHDAY_REPORTS__KEPT_FOR", "30d")], async |app| {
        let (_, ids) = put_reports(app, &["$a", "$b"]).await;
        let reports = &app.app.reports;
        reports.close(ids[0], &ola(), &ending(Scope::One)).await.expect("closed");
        app.clock.advance(Duration::days(30));
        assert_eq!(reports.sweep().await.expect("swept"), 0);
        app.clock.advance(Duration::SECOND);
        assert_eq!(reports.sweep().await.expect("swept"), 1);
        assert!(listed(app, ReportState::Closed).await.is_empty());
        assert_eq!(open_ids(app).await, [ids[1]], "open reports stay");
    })
    .await;
}
