mod access;
mod tokens;

use std::collections::HashMap;

use axum::body::Body;
use http::{Method, Request, StatusCode, header};
use platform::{
    clock::{Clock as _, SystemClock},
    stream::Stream,
};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config as ProptestConfig, TestCaseError, TestRunner},
};
use scoring::{Confidence, Forecast, Pick, Score as Goals, Side};
use serde_json::json;
use time::Duration;
use tokio::{runtime::Handle, task::block_in_place};
use url::form_urlencoded;
use web::ids::{MatchId, UserId};

use super::service::{Effect, Moved, Preview};
use crate::{
    catalogue::{
        fixtures::service::{CorrectError, Correction, Seen},
        matches::rules::Status,
    },
    chat::{
        filters::{rules::Action as FilterAction, service::NewFilter},
        reports::{
            rules::Resolution,
            service::{Ending, OthersClaim, Scope},
        },
    },
    identity::operators::{
        Operator,
        service::{ActionFilter, Recorded},
    },
    testing::{Answer, MatchBuilder, TestApp, TestFixtures},
};

/// Start time of matches that must be open. The database clock decides that, and these tests cannot move it.
const FAR: Duration = Duration::days(365 * 75);

/// Settings outside development, where the console is off by default.
const STAGING: [(&str, &str); 2] = [("MATCHDAY_ENV", "staging"), ("MATCHDAY_SMS__COUNTRIES", "US")];

/// Secret of the proxy in these tests.
const SECRET: &str = "5f2c1d0e9b8a7f6e5d4c3b2a19080706";

/// Settings of a console behind a proxy with a shared secret.
const BEHIND_PROXY: [(&str, &str); 7] = [
    STAGING[0],
    STAGING[1],
    ("MATCHDAY_CONSOLE__ENABLED", "true"),
    ("MATCHDAY_CONSOLE__PROXY_SECRETS", SECRET),
    ("MATCHDAY_CONSOLE__VIEWERS", "staff"),
    ("MATCHDAY_CONSOLE__MODERATORS", "moderators"),
    ("MATCHDAY_CONSOLE__OPERATORS", "operators,user:root@example.org"),
];

const PAGES: [&str; 13] = [
    "/console",
    "/console/matches",
    "/console/questions",
    "/console/rule-sets",
    "/console/users",
    "/console/reports",
    "/console/held",
    "/console/sms",
    "/console/queues",
    "/console/feeds",
    "/console/keys",
    "/console/audit",
    "/console/roles",
];

/// Text that breaks pages that do not escape it.
const HOSTILE: &str = "<script>alert(1)</script>\"'><img src=x onerror=alert(2)>&amp;";

/// Headers of a proxy that verified an operator with these groups.
fn proxied<'a>(operator: &'a str, groups: &'a str) -> [(&'static str, &'a str); 3] {
    [("x-console-secret", SECRET), ("x-forwarded-user", operator), ("x-forwarded-groups", groups)]
}

async fn get_with(app: &TestApp, path: &str, headers: &[(&str, &str)]) -> Answer {
    let request = headers.iter().fold(Request::get(path), |request, (name, value)| request.header(*name, *value));
    app.send_to_console(request.body(Body::empty()).expect("a request")).await
}

async fn get(app: &TestApp, path: &str) -> Answer {
    get_with(app, path, &[]).await
}

fn text(answer: &Answer) -> String {
    String::from_utf8(answer.bytes.clone()).expect("text")
}

/// Returns a page as the developer sees it.
async fn page(app: &TestApp, path: &str) -> String {
    let answer = get(app, path).await;
    let html = text(&answer);
    assert_eq!(answer.status, StatusCode::OK, "{path}: {html}");
    html
}

/// Returns the CSRF token on a page.
fn mark_on(html: &str) -> String {
    let (_, rest) = html.split_once("name=\"mark\" value=\"").expect("a form");
    rest.split_once('"').expect("a value").0.to_owned()
}

async fn post(app: &TestApp, path: &str, fields: &[(&str, &str)], headers: &[(&str, &str)]) -> Answer {
    let body = form_urlencoded::Serializer::new(String::new()).extend_pairs(fields).finish();
    let mut request = Request::post(path).header(header::CONTENT_TYPE, "application/x-www-form-urlencoded");
    for (name, value) in headers {
        request = request.header(*name, *value);
    }
    app.send_to_console(request.body(Body::from(body)).expect("a request")).await
}

/// Sends the form of a page as the developer. Returns the address to which the response redirects.
async fn send(app: &TestApp, on: &str, to: &str, fields: &[(&str, &str)]) -> String {
    let mark = mark_on(&page(app, on).await);
    let fields: Vec<(&str, &str)> = fields.iter().copied().chain([("mark", mark.as_str())]).collect();
    let answer = post(app, to, &fields, &[("sec-fetch-site", "same-origin"), ("x-request-id", "req-7")]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", text(&answer));
    let location = answer.header("location").expect("a location").to_owned();
    page(app, &location).await;
    location
}

async fn recorded(app: &TestApp) -> Vec<Recorded> {
    app.app.operators.recorded(&ActionFilter::default(), 100).await.expect("read")
}

async fn rename(app: &TestApp, user: UserId, name: &str) {
    sqlx::query("update users set name = $2 where user_id = $1")
        .bind(user)
        .bind(name)
        .execute(&app.app.core.db)
        .await
        .expect("renamed");
}

/// Creates a room and a report about a message of the sender in it.
async fn report(app: &TestApp, reporter: UserId, sender: &str, message: &str, reason: &str) -> i64 {
    let room: i64 = sqlx::query_scalar(
        "insert into rooms (alias, name, creator_id, created_at, made_until, opened_at)
         values (md5(random()::text), $1, $2, now(), now(), now()) returning id",
    )
    .bind(format!("Room {HOSTILE}"))
    .bind(reporter)
    .fetch_one(&app.app.core.db)
    .await
    .expect("a room");
    sqlx::query_scalar(
        "insert into reports (user_id, room_id, event_id, reason, sender, sent_at, content, created_at)
         values ($1, $2, '$said', $3, $4, $6, $5, $6) returning id",
    )
    .bind(reporter)
    .bind(room)
    .bind(reason)
    .bind(sender)
    .bind(json!({"msgtype": "m.text", "body": message}).to_string())
    .bind(app.clock.now())
    .fetch_one(&app.app.core.db)
    .await
    .expect("a report")
}

async fn username(app: &TestApp, user: UserId) -> String {
    app.app.accounts.find(user).await.expect("read").expect("a user").username.to_string()
}

fn far<'f, 'a>(fixtures: &'f TestFixtures<'a>) -> MatchBuilder<'f, 'a> {
    fixtures.a_match("m").starting_in(FAR)
}

fn forecast(goals: (i64, i64), with_score: bool, confidence: i64) -> Forecast {
    let score = Goals::new(goals.0, goals.1).expect("a score");
    let pick = match goals.0.cmp(&goals.1) {
        std::cmp::Ordering::Greater => Pick::Home,
        std::cmp::Ordering::Equal => Pick::Draw,
        std::cmp::Ordering::Less => Pick::Away,
    };
    let confidence = Confidence::new(confidence).expect("a confidence");
    Forecast::new(pick, with_score.then_some(score), confidence).expect("no contradiction")
}

#[tokio::test]
async fn every_page_renders_with_safe_headers() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::ZERO).at("finished", 2, 1).put().await;
        let user = app.user().await;
        for path in PAGES.into_iter().map(str::to_owned).chain([
            format!("/console/matches/{event}"),
            format!("/console/matches/{event}/correction?status=finished&home=1&away=1"),
            format!("/console/users/{}", user.id),
            format!("/console/matches?day=2026-11-20&tournament={event}&page=3"),
            "/console?live=1".to_owned(),
            "/console/rule-sets/1?tournament=1".to_owned(),
        ]) {
            let answer = get(app, &path).await;
            let html = text(&answer);
            assert_eq!(answer.status, StatusCode::OK, "{path}: {html}");
            assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"));
            assert_eq!(answer.header("cache-control"), Some("no-store"));
            let policy = answer.header("content-security-policy").expect("a policy");
            assert!(policy.contains("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
            assert!(html.contains("developer"), "{path} shows the operator");
            for never in ["<script", " style=\"", "http://", "https://", " onclick"] {
                assert!(!html.contains(never), "{path} has {never}");
            }
            // Every visible field has a label.
            for field in html.split("<input ").skip(1).filter(|field| !field.starts_with("type=\"hidden\"")) {
                let id = field.split_once("id=\"").and_then(|(_, rest)| rest.split_once('"')).expect("an id").0;
                assert!(html.contains(&format!("<label for=\"{id}\">")), "{path}: {id}");
            }
        }
        let style = get(app, "/console/style.css").await;
        assert_eq!((style.status, style.header("content-type")), (StatusCode::OK, Some("text/css; charset=utf-8")));
        assert!(page(app, "/console/matches").await.contains("2:1"), "today's matches");
        assert!(!page(app, "/console/matches?day=2026-11-19").await.contains("2:1"));
        for nothing in [
            "/console/matches/999999",
            "/console/users/999999",
            "/console/matches/x",
            "/console/rule-sets/999999",
            "/console/nowhere",
        ] {
            assert_eq!(get(app, nothing).await.status, StatusCode::NOT_FOUND, "{nothing}");
        }
    })
    .await;
}

#[tokio::test]
async fn rule_set_is_tried_on_a_tournament() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let rules = json!({"rule_sets": [{"slug": "bold", "name": "Bold", "outcome": 100, "difference": 100, "exact": 100, "stake": 0}]});
        let event = fixtures.import_with(rules, &[fixtures.a_match("m").json()]).await[0];
        let user = app.user().await;
        let body = json!({"event_id": event, "prediction": "home", "confidence": 100});
        user.post("/api/auth/predictions", body).await.expect(201);
        fixtures.a_match("m").at("finished", 2, 1).put().await;
        let (id, tournament): (i64, i64) = sqlx::query_as(
            "select (select id from rule_sets where slug = 'bold'), tournament_id from events where id = $1",
        )
        .bind(event)
        .fetch_one(&app.app.core.db)
        .await
        .expect("ids");
        let list = page(app, "/console/rule-sets").await;
        assert!(list.contains("bold") && list.contains("default"), "{list}");
        let html = page(app, &format!("/console/rule-sets/{id}?tournament={tournament}")).await;
        let username = app.app.accounts.find(user.id).await.expect("read").expect("one").username;
        assert!(html.contains(username.as_str()) && html.contains(">100<") && html.contains("40 (rank 1)"), "{html}");
        assert!(html.contains("+60"), "{html}");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn team_that_advanced_is_corrected() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let knockout = json!({"knockout": true, "advanced": "home"});
        let event = fixtures.a_match("m").at("finished", 1, 1).with(knockout).put().await;
        let html = page(app, &format!("/console/matches/{event}")).await;
        assert!(html.contains("Team that advanced"), "{html}");
        let same = format!("/console/matches/{event}/correction?status=finished&home=1&away=1&advanced=home");
        assert_eq!(get(app, &same).await.status, StatusCode::CONFLICT);
        let preview = page(app, &same.replace("advanced=home", "advanced=away")).await;
        assert!(
            preview.contains("advanced: City") && preview.contains("name=\"advanced\" value=\"away\""),
            "{preview}"
        );
        let operator = Operator::new("ola", "test");
        let seen = |revision| Seen::of(revision, Status::Finished, Some((1, 1)), app.clock.now() + Duration::hours(2));
        let wanted = Correction::new(Status::Finished, Some((1, 1)), Some(Side::Away)).expect("possible");
        let report = app.app.fixtures.correct(&operator, MatchId(event), &seen(1), wanted).await.expect("corrected");
        assert_eq!(report.results, 1, "a new revision of the result");
        let plain = fixtures.a_match("n").at("finished", 1, 1).put().await;
        let refused = app.app.fixtures.correct(&operator, MatchId(plain), &seen(1), wanted).await;
        assert!(matches!(refused, Err(CorrectError::NotKnockout)), "{refused:?}");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn correction_against_rules_of_sport_is_explained() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let sport = json!({"sport": {"slug": "hoops", "name": "Hoops", "draws_allowed": false}});
        let entry = fixtures.a_match("m").starting_in(Duration::ZERO).at("finished", 81, 80).json();
        let event = fixtures.import_with(sport, &[entry]).await[0];
        let on = format!("/console/matches/{event}/correction?status=finished&home=80&away=80");
        let html = page(app, &on).await;
        let hidden = |name: &str| {
            let (_, rest) = html.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
            rest.split_once('"').expect("a value").0.to_owned()
        };
        let (seen, mark) = (hidden("seen"), hidden("mark"));
        let fields = [
            ("status", "finished"),
            ("home", "80"),
            ("away", "80"),
            ("seen", seen.as_str()),
            ("mark", &mark),
            ("reason", "test"),
        ];
        let answer = post(app, &format!("/console/matches/{event}/correction"), &fields, &[]).await;
        assert!(text(&answer).contains("a match of this sport cannot end in a draw"), "{}", text(&answer));
        assert!(answer.status.is_client_error(), "{}", answer.status);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn question_is_added_and_decided() {
    TestApp::run(async |app| {
        let event = app.fixtures().a_match("m").put().await;
        let tournament: i64 = sqlx::query_scalar("select tournament_id from events where id = $1")
            .bind(event)
            .fetch_one(&app.app.core.db)
            .await
            .expect("a tournament");
        let tournament = tournament.to_string();
        let mark = mark_on(&page(app, "/console/questions/new").await);
        let mut fields = vec![
            ("mark", mark.as_str()),
            ("tournament", tournament.as_str()),
            ("key", "top"),
            ("text", "Who scores most?"),
            ("kind", "choice"),
            ("options", "ada Ada Obi\r\nbea Bea"),
            ("points", "25"),
            ("locks_at", "2099-01-01T12:00"),
            ("reason", "asked for"),
        ];
        let added = post(app, "/console/questions", &fields, &[]).await;
        assert_eq!(added.status, 303, "{}", text(&added));
        let place = added.header("location").expect("a page").split('?').next().expect("a path").to_owned();
        let html = page(app, &place).await;
        assert!(html.contains("Ada Obi") && html.contains("No answers yet."), "{html}");
        let decide = async |fields: &[(&str, &str)]| {
            let fields = [&[("mark", mark.as_str())], fields].concat();
            post(app, &format!("{place}/decision"), &fields, &[]).await
        };
        let nothing = decide(&[("action", "resolve"), ("seen", "0"), ("reason", "r")]).await;
        assert!(text(&nothing).contains("Choose at least one right answer"), "{}", text(&nothing));
        let right = [("action", "resolve"), ("right_ada", "yes"), ("seen", "0"), ("reason", "r")];
        assert_eq!(decide(&right).await.status, 303);
        assert_eq!(decide(&right).await.status, 409, "the operator saw an older state");
        let html = page(app, &place).await;
        assert!(html.contains("Correct the resolution") && html.contains("question.resolve"), "{html}");
        assert_eq!(decide(&[("action", "void"), ("seen", "1"), ("reason", "r")]).await.status, 303);
        fields[4].1 = "essay";
        let refused = post(app, "/console/questions", &fields, &[]).await;
        assert!(refused.status == 422 && text(&refused).contains("kind: must be one of"), "{}", text(&refused));
        app.settle().await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn public_listener_has_no_console() {
    TestApp::run(async |app| {
        for path in PAGES.into_iter().chain(["/console/style.css"]) {
            assert_eq!(app.anonymous(Method::GET, path).await.expect(404)["code"], "unknown_route", "{path}");
        }
        assert_eq!(app.anonymous(Method::POST, "/console/sms/open").await.expect(404)["code"], "unknown_route");
    })
    .await;
}

#[tokio::test]
async fn private_listener_has_no_console() {
    TestApp::run(async |app| {
        for path in PAGES.into_iter().chain(["/console/style.css"]) {
            let request = Request::get(path).header("x-forwarded-user", "ola").body(Body::empty()).expect("a request");
            assert_eq!(app.send_privately(request).await.expect(404)["code"], "unknown_route", "{path}");
        }
    })
    .await;
}

#[tokio::test]
async fn console_is_off_outside_development_unless_enabled() {
    TestApp::run_with(&STAGING, async |app| assert!(!app.has_console())).await;
    TestApp::run_with(&[("MATCHDAY_CONSOLE__ENABLED", "false")], async |app| assert!(!app.has_console())).await;
    TestApp::run_with(&BEHIND_PROXY, async |app| assert!(app.has_console())).await;
}

#[tokio::test]
async fn unknown_paths_and_methods_get_pages() {
    TestApp::run(async |app| {
        for (path, status) in [
            ("/console/nowhere", 404),
            ("/console/users/1/nothing", 404),
            ("/console/reports/1/claim", 405),
            ("/console/sms/open", 405),
            ("/elsewhere", 404),
            ("/metrics", 404),
            ("/api/auth/events", 404),
        ] {
            let answer = get(app, path).await;
            assert_eq!(answer.status.as_u16(), status, "{path}");
            assert_eq!(answer.header("content-type"), Some("text/html; charset=utf-8"), "{path}");
            assert!(text(&answer).contains("Matchday console"), "{path}");
        }
        let start = get(app, "/").await;
        assert_eq!((start.status.as_u16(), start.header("location")), (303, Some("/console")));
    })
    .await;
}

#[tokio::test]
async fn forged_and_expired_forms_are_refused() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let (on, to) = (format!("/console/users/{}", user.id), format!("/console/users/{}/restriction", user.id));
        let mark = mark_on(&page(app, &on).await);
        let with = |mark: &'static str| [("reason", "spam"), ("action", "ban"), ("mark", mark)];
        for fields in [&with("")[..], &with("00"), &with("zz")[..2]] {
            assert_eq!(post(app, &to, fields, &[]).await.status, StatusCode::FORBIDDEN);
        }
        let good = [("reason", "spam"), ("action", "ban"), ("mark", mark.as_str())];
        // Another site made the browser send the form.
        for site in ["cross-site", "same-site", "none"] {
            let answer = post(app, &to, &good, &[("sec-fetch-site", site)]).await;
            assert_eq!(answer.status, StatusCode::FORBIDDEN, "{site}");
        }
        // The reason or a valid action is missing.
        for fields in [[("reason", "  "), good[1], good[2]], [good[0], ("action", "praise"), good[2]]] {
            assert_eq!(post(app, &to, &fields, &[]).await.status, StatusCode::UNPROCESSABLE_ENTITY);
        }
        // A GET request changes nothing.
        assert_eq!(get(app, &format!("{to}?action=ban&reason=x&mark={mark}")).await.status, 405);
        assert_eq!(recorded(app).await.len(), 0);
        app.clock.advance(Duration::days(2));
        assert_eq!(post(app, &to, &good, &[]).await.status, StatusCode::FORBIDDEN, "an expired form");
        assert!(app.app.accounts.find(user.id).await.expect("read").expect("a user").banned_at.is_none());
    })
    .await;
}

#[tokio::test]
async fn pages_escape_user_input() {
    TestApp::run(async |app| {
        let (user, other) = (app.user().await, app.user().await);
        rename(app, user.id, HOSTILE).await;
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::ZERO).at("finished", 2, 1).put().await;
        for statement in ["update teams set name = $1 || id", "update tournaments set name = $1", "update events set venue = $1, key = $1"] {
            sqlx::query(statement).bind(HOSTILE).execute(&app.app.core.db).await.expect("renamed");
        }
        sqlx::query("insert into feeds (name, tournament_id, polled_at, next_poll_at, failed_at, error, failures) select $1, id, now(), now(), now(), $1, 3 from tournaments")
            .bind(HOSTILE).execute(&app.app.core.db).await.expect("a feed");
        // Usernames cannot contain these characters, but pages must not depend on that.
        sqlx::query("with u as (select user_id from users where user_id = $1) update users set username = $2 where user_id in (select user_id from u)")
            .bind(other.id).bind(HOSTILE).execute(&app.app.core.db).await.expect("renamed");
        report(app, other.id, &format!("@{HOSTILE}:matchday.localhost"), HOSTILE, HOSTILE).await;
        let hostile = Operator::new(HOSTILE, HOSTILE);
        app.app.moderation.restrict(user.id, crate::identity::accounts::restrictions::Restriction::Mute, &hostile).await.expect("muted");
        sqlx::query("insert into sms_closures values ($1, now(), '2999-01-01T00:00:00Z', 40, 3, 1, 5)").bind(HOSTILE).execute(&app.app.core.db).await.expect("closed");
        sqlx::query("insert into outbox (key, subject, payload) values ('x', $1, '{}')").bind(HOSTILE).execute(&app.app.core.db).await.expect("waits");
        let mut seen = 0;
        for path in PAGES.into_iter().map(str::to_owned).chain([
            format!("/console/matches/{event}"),
            format!("/console/matches/{event}/correction?status=finished&home=1&away=1"),
            format!("/console/users/{}", user.id),
            format!("/console/users/{}", other.id),
            format!("/console/users?q={}", form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect::<String>()),
            format!("/console/audit?operator={}", form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect::<String>()),
        ]) {
            let html = page(app, &path).await;
            for never in ["<script", "<img", "onerror=alert(2)>\"", "\"'>"] {
                assert!(!html.contains(never), "{path} has {never}: {html}");
            }
            seen += usize::from(html.contains("&lt;script&gt;alert(1)&lt;/script&gt;"));
        }
        assert!(seen >= 11, "the text was on {seen} pages");
        // The key of the notice in the URL is not shown either.
        assert!(!page(app, "/console?notice=%3Cb%3E").await.contains("<b>"));
        app.published().await;
    })
    .await;
    TestApp::run_with(&BEHIND_PROXY, async |app| {
        for groups in ["staff", "strangers"] {
            let html = text(&get_with(app, "/console", &proxied("<b>ola</b>", groups)).await);
            assert!(html.contains("&lt;b&gt;ola&lt;/b&gt;") && !html.contains("<b>"), "{html}");
        }
    })
    .await;
}

#[tokio::test]
async fn users_are_found_by_name_id_or_full_phone() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in("+491701234589").await;
        let name = username(app, user.id).await;
        let link = format!("href=\"/console/users/{}\"", user.id);
        for (text, is_found) in [
            (name.clone(), true),
            (name[..3].to_owned(), true),
            (name.to_uppercase(), true),
            (user.id.to_string(), true),
            ("1234589".to_owned(), false),
            ("unknown name".to_owned(), false),
        ] {
            let location = send(app, "/console/users", "/console/users", &[("q", &text)]).await;
            assert_eq!(page(app, &location).await.contains(&link), is_found, "{text}");
        }
        // A phone number never appears in a URL, because browsers and proxies store URLs.
        let location = send(app, "/console/users", "/console/users", &[("q", "+49 170 1234589")]).await;
        assert_eq!(location, format!("/console/users/{}", user.id));
        let mark = mark_on(&page(app, "/console/users").await);
        for (part, status) in [("+4917012345", 404), ("+49", 422)] {
            let answer = post(app, "/console/users", &[("q", part), ("mark", &mark)], &[]).await;
            assert_eq!(answer.status.as_u16(), status, "{part}");
        }
        for path in ["/console/users".to_owned(), format!("/console/users/{}", user.id)] {
            let html = page(app, &path).await;
            assert!(html.contains("+49…89") && !html.contains("1701234589"), "{path}");
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn avatar_is_shown_and_removed() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let (on, to) = (format!("/console/users/{}", user.id), format!("/console/users/{}/avatar", user.id));
        assert!(!page(app, &on).await.contains("Remove avatar"));
        assert_eq!(get(app, &to).await.status, StatusCode::NOT_FOUND);
        let url = app.app.avatars.save(user.id, crate::testing::TINY_PNG.into()).await.expect("saved");
        assert!(page(app, &on).await.contains(&format!("src=\"{to}\"")));
        let shown = get(app, &to).await;
        assert_eq!((shown.status, shown.header("content-type")), (StatusCode::OK, Some("image/jpeg")));
        assert_eq!(app.published().await.len(), 1);

        let mark = mark_on(&page(app, &on).await);
        let without_reason = post(app, &to, &[("mark", &mark)], &[]).await;
        assert_eq!(without_reason.status, StatusCode::UNPROCESSABLE_ENTITY);
        let location = send(app, &on, &to, &[("reason", "not a person")]).await;
        assert_eq!(location, format!("{on}?notice=avatar_removed"));
        let html = page(app, &location).await;
        assert!(html.contains("user.avatar.remove") && html.contains("not a person"), "{html}");
        assert!(!html.contains("Remove avatar"));
        app.anonymous(Method::GET, &url).await.expect(404);
        let actions: Vec<_> = recorded(app).await.into_iter().map(|row| (row.action, row.operator)).collect();
        assert_eq!(actions, [("user.avatar.remove".to_owned(), "developer".to_owned())]);
        assert_eq!(app.published().await.len(), 1, "chat removes it too");
        let mark = mark_on(&page(app, &on).await);
        let again = post(app, &to, &[("reason", "x"), ("mark", &mark)], &[]).await;
        assert_eq!(again.status, StatusCode::CONFLICT);
        assert_eq!(recorded(app).await.len(), 1, "a refused action is not recorded");
    })
    .await;
}

#[tokio::test]
async fn restrictions_are_applied_recorded_and_shown() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let (on, to) = (format!("/console/users/{}", user.id), format!("/console/users/{}/restriction", user.id));
        for (action, word) in [("mute", "muted"), ("ban", "banned"), ("unmute", "unmute"), ("unban", "unban")] {
            let location = send(app, &on, &to, &[("reason", "insults"), ("action", action)]).await;
            assert_eq!(location, format!("{on}?notice={action}"));
            let html = page(app, &location).await;
            assert!(html.contains(word) && html.contains("insults") && html.contains("req-7"), "{html}");
        }
        let actions: Vec<_> =
            recorded(app).await.into_iter().map(|row| (row.action, row.operator, row.request_id)).collect();
        let done = |action: &str| (action.to_owned(), "developer".to_owned(), Some("req-7".to_owned()));
        assert_eq!(actions, [done("user.unban"), done("user.unmute"), done("user.ban"), done("user.mute")]);
        // The table that the command line reads contains the same.
        let kept: Vec<(String, String)> = sqlx::query_as("select action, operator from restrictions order by id")
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(kept.first(), Some(&("mute".to_owned(), "developer".to_owned())));
        let mark = mark_on(&page(app, &on).await);
        let again = post(app, &to, &[("reason", "x"), ("action", "unban"), ("mark", &mark)], &[]).await;
        assert_eq!(again.status, StatusCode::CONFLICT);
        assert_eq!(recorded(app).await.len(), 4, "a refused action is not recorded");
        // The ban has a duration.
        let fields = [("reason", "insults"), ("action", "ban"), ("for", "7d")];
        let html = page(app, &send(app, &on, &to, &fields).await).await;
        assert!(html.contains("2026-11-27 15:00:00"), "{html}");
        let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
        assert_eq!(account.banned_until, Some(app.clock.now() + Duration::days(7)));
        let mark = mark_on(&page(app, &on).await);
        let fields = [("reason", "x"), ("action", "ban"), ("for", "soon"), ("mark", mark.as_str())];
        assert_eq!(post(app, &to, &fields, &[]).await.status, StatusCode::UNPROCESSABLE_ENTITY);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn reported_message_is_removed() {
    TestApp::run_with_chat(&[], async |app| {
        let (reporter, rude) = (app.log_in("+14155556101").await.0, app.log_in("+14155556102").await.0);
        let room = rude.post("/api/auth/chat-room", json!({"name": "Derby talk"})).await.expect(201);
        let room = room["data"]["room_id"].as_str().expect("an id").to_owned();
        let path = |what: &str| format!("/api/auth/chat-rooms/{room}/{what}");
        let mut sent = Vec::new();
        for text in ["One insult", "Another insult"] {
            let message = rude.post(&path("messages"), json!({"body": text})).await.expect(201);
            sent.push(message["data"]["event_id"].as_str().expect("an id").to_owned());
        }
        reporter.post(&path("reports"), json!({"event_id": sent[0], "reason": "Insults"})).await.expect(201);
        let id: i64 = sqlx::query_scalar("select id from reports").fetch_one(&app.app.core.db).await.expect("a report");
        let on = format!("/console/reports/{id}");
        let removed = send(app, &on, &format!("{on}/remove"), &[("reason", "Insults")]).await;
        assert_eq!(removed, format!("{on}?notice=removed"));
        assert!(page(app, &on).await.contains("value=\"message_removed\" selected"), "the likely resolution");
        let (homeserver, matrix_room) = (app.app.chat.homeserver().expect("a homeserver"), room.as_str());
        let is_redacted = async |event: &String| {
            let (room, event) = (matrix_room.try_into().expect("an id"), event.as_str().try_into().expect("an id"));
            homeserver.event(room, event).await.expect("read").expect("an event").is_redacted()
        };
        assert!(is_redacted(&sent[0]).await && !is_redacted(&sent[1]).await);
        // The clock of the test is not the homeserver's.
        app.clock.advance(SystemClock.now() - app.clock.now());
        let all = [("reason", "Insults"), ("all", "yes")];
        let removed = send(app, &on, &format!("{on}/remove"), &all).await;
        assert_eq!(removed, format!("{on}?notice=removed_all"));
        let planned: Vec<String> = sqlx::query_scalar("select event_id from removals where source = 'operator'")
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(planned.len(), 2);
        let actions: Vec<String> = recorded(app).await.into_iter().map(|recorded| recorded.action).collect();
        assert_eq!(actions, ["message.remove_all", "message.remove"]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn held_message_is_decided_on() {
    let keys = "1:00112233445566778899aabbccddeeff00112233445566778899aabbccddeeff";
    TestApp::run_with_chat(&[("MATCHDAY_WEBHOOKS__KEYS", keys)], async |app| {
        let user = app.log_in("+14155556103").await.0;
        let room = user.post("/api/auth/chat-room", json!({"name": "Derby talk"})).await.expect(201);
        let path = format!("/api/auth/chat-rooms/{}/messages", room["data"]["room_id"].as_str().expect("an id"));
        let filter = NewFilter {
            pattern: "spoiler".parse().expect("a pattern"),
            matrix_room: None,
            action: FilterAction::Hold,
            mute_for: None,
        };
        app.app.filters.add(&filter, &Operator::new("ola", "")).await.expect("added");
        for text in [format!("spoiler one {HOSTILE}"), "spoiler two".to_owned()] {
            user.post(&path, json!({"body": text})).await.expect(422);
        }
        let html = page(app, "/console/held").await;
        assert!(html.contains("spoiler one") && html.contains("spoiler two") && !html.contains(HOSTILE), "{html}");
        let held = app.app.filters.held(0, 10).await.expect("read");
        for (message, action, notice) in [(&held[0], "reject", "held_rejected"), (&held[1], "release", "held_released")]
        {
            let to = format!("/console/held/{}/{action}", message.id);
            assert_eq!(send(app, "/console/held", &to, &[]).await, format!("/console/held?notice={notice}"));
        }
        assert!(page(app, "/console/held").await.contains("No messages wait for a decision"));
        let actions: Vec<String> = recorded(app).await.into_iter().map(|recorded| recorded.action).take(2).collect();
        assert_eq!(actions, ["message.release", "message.reject"]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn report_is_claimed_handled_and_closed() {
    TestApp::run_with(&[("MATCHDAY_MATRIX__SERVER_NAME", "matchday.localhost")], async |app| {
        let (reporter, rude) = (app.user().await, app.user().await);
        let sender = format!("@{}:matchday.localhost", username(app, rude.id).await);
        let earlier = report(app, reporter.id, &sender, "you fool", "insults").await;
        let id = report(app, reporter.id, &sender, "you bigger fool", "insults again").await;
        let stranger = report(app, reporter.id, "@somebody:elsewhere.example", "spam", "spam").await;
        let html = page(app, "/console/reports").await;
        for shown in ["you fool", "insults again", &sender, "@somebody:elsewhere.example", "no local account"] {
            assert!(html.contains(shown), "{shown}");
        }
        assert!(html.contains("Open reports") && html.contains("Median time to resolution"), "{html}");
        let on = format!("/console/reports/{id}");
        let html = page(app, &on).await;
        for shown in
            ["you bigger fool", "Other reports about the sender", "you fool", "Restrict sender", "Claim</button>"]
        {
            assert!(html.contains(shown), "{shown}: {html}");
        }
        assert!(html.contains("the messages around the reported one cannot be shown"), "there is no homeserver");
        assert!(!page(app, &format!("/console/reports/{stranger}")).await.contains("Restrict sender"));

        assert_eq!(send(app, &on, &format!("{on}/claim"), &[]).await, format!("{on}?notice=claimed"));
        assert!(page(app, &on).await.contains("You handle this report until"));
        assert!(page(app, "/console/reports?state=mine").await.contains("you bigger fool"));
        let restrict = format!("/console/users/{}/restriction", rude.id);
        let report_field = id.to_string();
        let mute = [("reason", "warned before"), ("action", "mute"), ("for", "7d"), ("report", report_field.as_str())];
        assert_eq!(send(app, &on, &restrict, &mute).await, format!("{on}?notice=mute"));
        let html = page(app, &on).await;
        assert!(html.contains("<option value=\"sender_muted\" selected>"), "{html}");
        let close = [("reason", "warned before"), ("resolution", "sender_muted"), ("answer", "Thank you.\r\nBye.")];
        assert_eq!(send(app, &on, &format!("{on}/close"), &close).await, "/console/reports?notice=closed");
        let html = page(app, &on).await;
        for shown in ["Sender muted", "warned before", "Thank you.\nBye.", "report.close", "report.claim"] {
            assert!(html.contains(shown), "{shown}: {html}");
        }
        assert!(!html.contains("Close report</button>"), "a closed report has no actions");
        let about = page(app, &format!("/console/users/{}", rude.id)).await;
        assert!(about.contains("you bigger fool") && about.contains("warned before"));
        assert!(page(app, "/console/audit").await.contains(&format!("href=\"{on}\"")));

        let mark = mark_on(&page(app, "/console/reports").await);
        let path = format!("/console/reports/{earlier}/close");
        for (fields, status) in [
            (vec![("reason", "x")], StatusCode::UNPROCESSABLE_ENTITY),
            (vec![("reason", "x"), ("resolution", "banned")], StatusCode::UNPROCESSABLE_ENTITY),
            (vec![("resolution", "duplicate")], StatusCode::UNPROCESSABLE_ENTITY),
            (vec![("reason", "x"), ("resolution", "duplicate"), ("answer", "\u{7}")], StatusCode::UNPROCESSABLE_ENTITY),
        ] {
            let fields: Vec<_> = fields.into_iter().chain([("mark", mark.as_str())]).collect();
            assert_eq!(post(app, &path, &fields, &[]).await.status, status, "{fields:?}");
        }
        let again = post(app, &format!("{on}/claim"), &[("mark", mark.as_str())], &[]).await;
        assert_eq!(again.status, StatusCode::CONFLICT, "{}", text(&again));
        assert_eq!(get(app, "/console/reports/999999").await.status, StatusCode::NOT_FOUND);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn report_of_other_operator_must_be_taken_over() {
    TestApp::run_with(&BEHIND_PROXY, async |app| {
        let (first, second) = (app.user().await, app.user().await);
        let id = report(app, first.id, "@rude:elsewhere.example", "you fool", "insults").await;
        sqlx::query(
            "insert into reports (user_id, room_id, event_id, reason, created_at)
             select $2, room_id, event_id, 'rude', created_at from reports where id = $1",
        )
        .bind(id)
        .bind(second.id)
        .execute(&app.app.core.db)
        .await
        .expect("written");
        let on = format!("/console/reports/{id}");
        let (ola, ida) = (proxied("ola", "moderators"), proxied("ida", "moderators"));
        let act = async |by: &[(&str, &str)], action: &str, fields: &[(&str, &str)]| {
            let mark = mark_on(&text(&get_with(app, &on, by).await));
            let fields: Vec<_> = fields.iter().copied().chain([("mark", mark.as_str())]).collect();
            post(app, &format!("{on}/{action}"), &fields, by).await
        };
        let close = [("reason", "done"), ("resolution", "no_violation"), ("all", "yes")];
        assert_eq!(act(&ola, "claim", &[]).await.status, StatusCode::SEE_OTHER);
        let html = text(&get_with(app, &on, &ida).await);
        assert!(
            html.contains("<strong>ola</strong> handles this report until") && html.contains("Take over"),
            "{html}"
        );
        assert!(!html.contains("Close report</button>"), "{html}");
        for refused in [act(&ida, "claim", &[]), act(&ida, "release", &[])] {
            assert_eq!(refused.await.status, StatusCode::CONFLICT);
        }
        assert_eq!(act(&ida, "close", &close).await.status, StatusCode::CONFLICT);
        assert_eq!(act(&ida, "claim", &[("take_over", "yes")]).await.status, StatusCode::SEE_OTHER);
        let html = text(&get_with(app, &on, &ida).await);
        assert!(html.contains("Also close 1 other open report of this message"), "{html}");
        let viewer = text(&get_with(app, &on, &proxied("eve", "staff")).await);
        assert!(viewer.contains("Only moderators can read") && !viewer.contains("<button"), "{viewer}");
        let closed = act(&ida, "close", &close).await;
        assert_eq!(closed.header("location"), Some("/console/reports?notice=closed_all"));
        assert_eq!(app.app.reports.figures().await.expect("read").open, 0);
    })
    .await;
}

#[tokio::test]
async fn closed_reports_are_listed_and_found() {
    TestApp::run_with(&[("MATCHDAY_MATRIX__SERVER_NAME", "matchday.localhost")], async |app| {
        let (reporter, rude) = (app.user().await, app.user().await);
        let sender = format!("@{}:matchday.localhost", username(app, rude.id).await);
        let mut ids = Vec::new();
        for number in 0..30 {
            let id = report(app, reporter.id, &sender, &format!("Insult number {number}."), "rude").await;
            let ola = Operator::new("ola@example.org", format!("Warned, case {number}."));
            let ending = Ending {
                resolution: Resolution::NoViolation,
                answer: (number == 4).then(|| "We will watch.".parse().expect("an answer")),
                scope: Scope::One,
                others_claim: OthersClaim::Respect,
            };
            app.app.reports.close(id, &ola, &ending).await.expect("closed");
            app.clock.advance(Duration::MINUTE);
            ids.push(id);
        }
        let open = report(app, reporter.id, "@other:elsewhere.example", "Still \"open\".", "spam").await;
        let heading = |id: i64| format!("id=\"report-{id}\"");
        let shown = async |query: &str| {
            let html = page(app, &format!("/console/reports{query}")).await;
            let found: Vec<i64> =
                ids.iter().chain([&open]).copied().filter(|id| html.contains(&heading(*id))).collect();
            (html, found)
        };
        assert_eq!(shown("").await.1, [open], "open reports by default");
        let (html, first) = shown("?state=closed").await;
        assert_eq!(first, ids[5..], "last closed reports");
        assert!(html.find(&heading(ids[29])) < html.find(&heading(ids[28])), "last closed first");
        assert!(
            html.contains("Closed by <strong>ola@example.org</strong>") && html.contains("Warned, case 29."),
            "{html}"
        );
        assert!(!html.contains("<button type=\"submit\">Claim"), "a closed report cannot be claimed");
        assert!(html.contains("/console/reports?state=closed&amp;page=1\""), "{html}");
        assert_eq!(shown("?state=closed&page=1").await.1, ids[..5]);
        assert_eq!(shown("?state=closed&page=2").await.1, [0; 0]);
        let name = username(app, rude.id).await;
        for (query, expected) in [
            ("?state=closed&q=NUMBER+7.".to_owned(), vec![ids[7]]),
            ("?state=closed&q=case+12.".to_owned(), vec![ids[12]]),
            (format!("?state=closed&q=%23{}", ids[3]), vec![ids[3]]),
            ("?state=closed&q=will+watch".to_owned(), vec![ids[4]]),
            ("?state=closed&q=room+%3Cscript&page=1".to_owned(), ids[..5].to_vec()),
            ("?state=closed&from=2026-11-20&until=2026-11-20&page=1".to_owned(), ids[..5].to_vec()),
            ("?state=closed&from=2026-11-21".to_owned(), vec![]),
            ("?state=closed&until=2026-11-19".to_owned(), vec![]),
            ("?state=closed&q=msgtype".to_owned(), vec![]),
            ("?state=closed&q=%25".to_owned(), vec![]),
            (format!("?q=%23{open}"), vec![open]),
            ("?q=elsewhere.example".to_owned(), vec![open]),
            ("?q=number".to_owned(), vec![]),
            (format!("?state=closed&q={name}&page=1"), ids[..5].to_vec()),
            (format!("?q={}", username(app, reporter.id).await), vec![open]),
        ] {
            assert_eq!(shown(&query).await.1, expected, "{query}");
        }
        let (html, _) = shown(&format!("?state=closed&q={name}")).await;
        assert!(html.contains(&format!("state=closed&amp;page=1&amp;q={name}")), "the next page has the same filter");
    })
    .await;
}

#[tokio::test]
async fn reading_a_full_phone_number_is_recorded() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in("+491701234589").await;
        let ola = Operator::new("ola", "the carrier asks");
        let phone = app.app.console.reveal_phone(user.id, &ola).await.expect("read").expect("a phone");
        assert_eq!(phone.as_str(), "+491701234589");
        let last = recorded(app).await.remove(0);
        let expected = ("user.phone", format!("user:{}", user.id), "the carrier asks", "ola");
        assert_eq!((last.action.as_str(), last.target, last.reason.as_str(), last.operator.as_str()), expected);
        assert!(!last.details.to_string().contains("1701234589"));
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn sms_limits_are_shown_and_removed() {
    TestApp::run(async |app| {
        sqlx::query("insert into sms_closures values ('GB', now(), '2999-01-01T00:00:00Z', 40, 3, 1, 5)")
            .execute(&app.app.core.db)
            .await
            .expect("closed");
        app.log_in("+14155550100").await;
        let html = page(app, "/console/sms").await;
        assert!(
            html.contains("GB is limited") && html.contains("<th scope=\"row\">US") && html.contains("100%"),
            "{html}"
        );
        send(app, "/console/sms", "/console/sms/open", &[("reason", "a slow carrier"), ("prefix", "GB")]).await;
        assert!(app.app.codes.closures().await.expect("read").is_empty());
        let last = recorded(app).await.remove(0);
        assert_eq!(
            (last.action.as_str(), last.target.as_str(), last.reason.as_str()),
            ("sms.open", "sms:GB", "a slow carrier")
        );
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn server_keys_are_created_rotated_and_revoked() {
    TestApp::run(async |app| {
        let mark = mark_on(&page(app, "/console/keys").await);
        let form = async |to: &str, fields: &[(&str, &str)]| {
            let fields: Vec<_> = fields.iter().copied().chain([("mark", mark.as_str()), ("reason", "shop")]).collect();
            post(app, to, &fields, &[("sec-fetch-site", "same-origin")]).await
        };
        let shown = |answer: &Answer| {
            let html = text(answer);
            let (_, rest) = html.split_once(">mk_test_").expect("a key");
            format!("mk_test_{}", rest.split_once('<').expect("its end").0)
        };
        for faults in [
            vec![("name", "shop")],
            vec![("scope:coins:read", "yes")],
            vec![("name", "shop"), ("scope:coins:read", "yes"), ("allow", "everywhere")],
            vec![("name", "shop"), ("scope:coins:read", "yes"), ("expires_in", "soon")],
        ] {
            assert_eq!(form("/console/keys", &faults[..]).await.status.as_u16(), 422, "{faults:?}");
        }
        let wish =
            [("name", HOSTILE), ("scope:coins:read", "yes"), ("allow", "10.0.0.0/8, ::/0"), ("expires_in", "90d")];
        let created = form("/console/keys", &wish[..]).await;
        assert_eq!(created.header("cache-control"), Some("no-store"));
        let (first, key) = (shown(&created), app.app.server_keys.list().await.expect("listed").remove(0));
        assert_eq!((key.name.as_str(), key.networks.len(), key.scopes.len()), (HOSTILE, 2, 1));
        let second = shown(&form(&format!("/console/keys/{}/rotate", key.id), &[("grace", "1h")]).await);
        assert_ne!(first, second);
        let html = page(app, "/console/keys").await;
        assert!(html.contains(&key.prefix[..10]) && !html.contains(&first) && !html.contains(&second), "{html}");
        assert!(!html.contains(HOSTILE), "{html}");
        send(app, "/console/keys", &format!("/console/keys/{}/revoke", key.id), &[("reason", "leaked")]).await;
        assert!(app.app.server_keys.list().await.expect("listed")[0].revoked_at.is_some());
        let actions: Vec<String> = recorded(app).await.into_iter().map(|action| action.action).collect();
        assert_eq!(actions, ["key.revoke", "key.rotate", "key.create"]);
    })
    .await;
}

#[tokio::test]
async fn queues_page_shows_outbox_and_dead_letters() {
    TestApp::run(async |app| {
        app.app.streams.ensure().await.expect("streams");
        let letter = async_nats::jetstream::message::PublishMessage::build().payload("{}".into());
        app.app.streams.send("dead.work.score.lane", letter).await.expect("sent").await.expect("stored");
        sqlx::query("insert into outbox (key, subject, payload) values ('x', 'fact.event.changed', '{}')")
            .execute(&app.app.core.db)
            .await
            .expect("waits");
        let html = page(app, "/console/queues").await;
        assert!(html.contains("fact.event.changed") && html.contains("work.score.lane"), "{html}");
        assert!(!html.contains("/console/queues/replay"), "only webhook messages can be sent again");
        assert!(page(app, "/console").await.contains("1 dead letter<"));
        let mark = mark_on(&page(app, &format!("/console/users/{}", app.user().await.id)).await);
        let mine = post(app, "/console/queues/replay", &[("reason", "x"), ("letter", "1"), ("mark", &mark)], &[]).await;
        assert_eq!(mine.status, StatusCode::CONFLICT, "not a webhook message");
        assert_eq!(recorded(app).await[0].outcome, "failed");
        app.app.streams.remove().await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn dead_webhook_messages_are_sent_again() {
    TestApp::run(async |app| {
        app.app.streams.ensure().await.expect("streams");
        let endpoint: i64 = sqlx::query_scalar(
            "insert into webhook_endpoints (url, secret, key_version, created_at) values ('https://a.example/', 'x', 1, now()) returning id",
        )
        .fetch_one(&app.app.core.db)
        .await
        .expect("an endpoint");
        for _ in 0..3 {
            let letter = async_nats::jetstream::message::PublishMessage::build().payload("{}".into());
            let subject = format!("dead.work.webhook.deliver.{endpoint}");
            app.app.streams.send(&subject, letter).await.expect("sent").await.expect("stored");
        }
        let held = async || (app.app.streams.held(Stream::Work).await.expect("read"), app.app.streams.held(Stream::Dead).await.expect("read"));
        assert_eq!(held().await, (0, 3));
        let to = "/console/queues/replay";
        send(app, "/console/queues", to, &[("reason", "they are back"), ("letter", "1")]).await;
        assert_eq!(held().await, (1, 2));
        let all = endpoint.to_string();
        send(app, "/console/queues", to, &[("reason", "they are back"), ("endpoint", &all)]).await;
        assert_eq!(held().await, (3, 0));
        let actions: Vec<_> = recorded(app).await.into_iter().map(|row| (row.outcome, row.target, row.details)).collect();
        assert_eq!(
            actions,
            [
                ("done".to_owned(), format!("endpoint:{endpoint}"), json!({"replayed": 2})),
                ("done".to_owned(), "webhooks".to_owned(), json!({"letters": [1], "replayed": 1})),
            ]
        );
        app.app.streams.remove().await;
    })
    .await;
}

/// Points, exact scores, right outcomes of all time, and coins.
type Standing = (i32, i32, i32, i64);

async fn standing(app: &TestApp, users: &[UserId]) -> Vec<Standing> {
    let mut standing = Vec::new();
    for user in users {
        let row: Standing = sqlx::query_as(
            "select coalesce(s.points, 0), coalesce(s.exact, 0), coalesce(s.correct, 0), w.balance
             from wallets w left join user_scores s on s.user_id = w.user_id and s.scope = 'all' where w.user_id = $1",
        )
        .bind(user)
        .fetch_one(&app.app.core.db)
        .await
        .expect("a wallet");
        standing.push(row);
    }
    standing
}

/// Goals, whether the forecast includes them or only the outcome, the confidence, the team that advances, and the joker.
type Prediction = ((i64, i64), bool, i64, Option<Side>, bool);
/// Status and score of a match, and the team that advanced.
type Outcome = (Status, Option<(i32, i32)>, Option<Side>);

/// Moves the start of a match to two hours ago, and its predictions to three hours ago.
async fn begin(app: &TestApp, event: i64) {
    for statement in [
        "update predictions set created_at = now() - interval '3 hours', updated_at = now() - interval '3 hours' where event_id = $1",
        "update events set start_time = now() - interval '2 hours' where id = $1",
    ] {
        sqlx::query(statement).bind(event).execute(&app.app.core.db).await.expect("begun");
    }
}

/// Corrects a match like an operator: opens the preview and confirms it. Confirms twice, which must correct it once.
async fn correct(app: &TestApp, event: i64, (status, scores, advanced): Outcome) {
    let advanced = advanced.map(Side::name).unwrap_or_default();
    let (home, away) = scores.map(|(home, away)| (home.to_string(), away.to_string())).unwrap_or_default();
    let path = format!("/console/matches/{event}/correction");
    let html = page(app, &format!("{path}?status={status}&home={home}&away={away}&advanced={advanced}")).await;
    let hidden = |name: &str| {
        let (_, rest) = html.split_once(&format!("name=\"{name}\" value=\"")).expect("a field");
        rest.split_once('"').expect("a value").0.to_owned()
    };
    let (seen, mark) = (hidden("seen"), hidden("mark"));
    let correction = [("status", status.name()), ("home", &home), ("away", &away), ("advanced", advanced)];
    let fields: Vec<(&str, &str)> =
        correction.into_iter().chain([("seen", seen.as_str()), ("mark", &mark), ("reason", "a late goal")]).collect();
    let answer = post(app, &path, &fields, &[]).await;
    assert_eq!(answer.status, StatusCode::SEE_OTHER, "{}", text(&answer));
    let again = post(app, &path, &fields, &[]).await;
    assert_eq!(again.status, StatusCode::CONFLICT, "the second confirmation is refused");
    app.published().await;
    app.settle().await;
}

/// Compares the preview of a correction with its actual effect.
fn assert_preview(
    preview: &Preview,
    users: &[UserId],
    before: &[Standing],
    after: &[Standing],
) -> Result<(), TestCaseError> {
    let changes: Vec<i64> = before.iter().zip(after).map(|(before, after)| i64::from(after.0 - before.0)).collect();
    let wallets: Vec<i64> = before.iter().zip(after).map(|(before, after)| after.3 - before.3).collect();
    let of = |sign: i64| i64::try_from(changes.iter().filter(|change| change.signum() == sign).count()).unwrap();
    let sum = |read: fn(&Standing) -> i32| {
        i64::from(after.iter().map(read).sum::<i32>() - before.iter().map(read).sum::<i32>())
    };
    let Effect { gaining, losing, points, exact, correct, .. } = preview.effect;
    prop_assert_eq!((gaining, losing), (of(1), of(-1)));
    prop_assert_eq!(points.1 - points.0, changes.iter().sum::<i64>());
    prop_assert_eq!(exact.1 - exact.0, sum(|row| row.1));
    prop_assert_eq!(correct.1 - correct.0, sum(|row| row.2));
    let first = |moved: &[Moved]| moved.first().map(|moved| moved.after - moved.before);
    prop_assert_eq!(first(&preview.gainers), changes.iter().copied().max().filter(|&most| most > 0));
    prop_assert_eq!(first(&preview.losers), changes.iter().copied().min().filter(|&least| least < 0));
    for moved in preview.gainers.iter().chain(&preview.losers) {
        let at = users.iter().position(|&user| user == moved.user).expect("a user of this test");
        prop_assert_eq!(moved.after - moved.before, changes[at]);
    }
    let coins = preview.coins.as_ref().and_then(|coins| coins.exactly);
    let given: i64 = wallets.iter().filter(|&&change| change > 0).sum();
    let taken: i64 = -wallets.iter().filter(|&&change| change < 0).sum::<i64>();
    prop_assert_eq!(coins.map_or((0, 0), |coins| (coins.given, coins.taken)), (given, taken));
    Ok(())
}

#[tokio::test(flavor = "multi_thread")]
async fn preview_matches_effect_of_correction() {
    let settings =
        [("MATCHDAY_COINS__PER_POINT", "3"), ("MATCHDAY_SCORES__LANE_SIZE", "3"), ("MATCHDAY_COINS__WELCOME", "10")];
    TestApp::run_with(&settings, async |app| {
        let mut users = Vec::new();
        for _ in 0..7 {
            users.push(app.app.accounts.make_without_phone().await.expect("a user"));
        }
        // Small numbers of goals make some forecasts exact.
        let side = || prop::sample::select(&[None, Some(Side::Home), Some(Side::Away)][..]);
        let predictions =
            vec(((0..4_i64, 0..4_i64), any::<bool>(), 0..=100_i64, side(), any::<bool>()), users.len());
        let result = prop_oneof![
            6 => (Just(Status::Finished), (0..4_i32, 0..4_i32).prop_map(Some), side()),
            1 => (Just(Status::Abandoned), Just(None), Just(None)),
            1 => (Just(Status::Live), (0..2_i32, 0..2_i32).prop_map(Some), Just(None)),
        ];
        // A match usually has started when it has a result. Otherwise the result counts predictions until it is
        // recorded.
        let round = (predictions, vec(result, 2..5), any::<prop::sample::Index>(), any::<bool>());
        let mut runner =
            TestRunner::new(ProptestConfig { cases: 12, failure_persistence: None, ..ProptestConfig::default() });
        let corrected = std::cell::Cell::new(0);
        let one = async |predictions: Vec<Prediction>, results: Vec<Outcome>, spender: UserId, has_begun: bool| {
            let fixtures = app.fixtures();
            let rules = json!({"rule_sets": [{"slug": "mixed", "name": "Mixed", "margin": {"within": 1, "points": 24}, "joker": 100}]});
            let entry = far(&fixtures).with(json!({"knockout": true, "multiplier": 1.5, "rule_set": "mixed"})).json();
            let event = fixtures.import_with(rules, &[entry]).await[0];
            for (&user, &(goals, with_score, confidence, advances, joker)) in users.iter().zip(&predictions) {
                let forecast = forecast(goals, with_score, confidence).with_advances(advances).with_joker(joker);
                app.app.predictions.save(user, MatchId(event), forecast).await.expect("saved");
            }
            if has_begun {
                begin(app, event).await;
            }
            for (status, scores, advanced) in results {
                let wanted = Correction::new(status, scores, advanced).expect("possible");
                let preview = app.app.console.preview(MatchId(event), wanted).await.expect("read").expect("a match");
                let found = app.app.console.find_match(MatchId(event)).await.expect("read").expect("a match");
                if (found.row.status, found.row.scores(), found.row.advanced()) == (status, scores, advanced) {
                    continue;
                }
                corrected.set(corrected.get() + 1);
                let before = standing(app, &users).await;
                correct(app, event, (status, scores, advanced)).await;
                assert_preview(&preview, &users, &before, &standing(app, &users).await)?;
                // A user spends all coins, which then cannot be taken back.
                let balance = standing(app, &[spender]).await[0].3;
                if balance > 0 {
                    let body = json!({"amount": balance, "reason": "purchase"});
                    app.login(spender).await.post("/api/auth/coins/deduct", body).await.expect(200);
                }
            }
            Ok(())
        };
        let outcome = runner.run(&round, |(predictions, results, spender, has_begun)| {
            let spender = users[spender.index(users.len())];
            block_in_place(|| Handle::current().block_on(one(predictions, results, spender, has_begun)))
        });
        outcome.expect("previews match their corrections");
        assert!(corrected.get() > 10, "{} corrections were made", corrected.get());
        assert!(recorded(app).await.iter().all(|row| row.action == "event.correct"));
        app.published().await;
    })
    .await;
}

/// Points of users in the tournament of a match.
async fn tournament_points(app: &TestApp, event: i64) -> HashMap<UserId, i64> {
    let rows: Vec<(UserId, i64)> = sqlx::query_as(
        "select user_id, points::bigint from user_scores
         where scope = (select 'tournament:' || tournament_id from events where id = $1)",
    )
    .bind(event)
    .fetch_all(&app.app.core.db)
    .await
    .expect("scores");
    rows.into_iter().collect()
}

#[tokio::test]
async fn preview_shows_leaders_before_and_after_correction() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let events = [far(&fixtures).put().await, fixtures.a_match("n").starting_in(FAR).put().await];
        let forecasts =
            [((2, 1), true, 90), ((1, 1), true, 60), ((0, 3), true, 80), ((1, 0), false, 50), ((0, 1), false, 20)];
        for (place, (goals, with_score, confidence)) in forecasts.into_iter().enumerate() {
            let user = app.app.accounts.make_without_phone().await.expect("a user");
            // The last user predicts only the second match.
            for event in events.into_iter().skip(usize::from(place == 4)) {
                let forecast = forecast(goals, with_score, confidence);
                app.app.predictions.save(user, MatchId(event), forecast).await.expect("saved");
            }
        }
        for event in events {
            begin(app, event).await;
        }
        correct(app, events[1], (Status::Finished, Some((0, 1)), None)).await;
        let event = events[0];
        for scores in [Some((2, 1)), Some((1, 1)), Some((0, 3)), None] {
            let status = if scores.is_some() { Status::Finished } else { Status::Abandoned };
            let wanted = Correction::new(status, scores, None).expect("possible");
            let preview = app.app.console.preview(MatchId(event), wanted).await.expect("read").expect("a match");
            let leaders = preview.leaders.expect("in time");
            let before = tournament_points(app, event).await;
            correct(app, event, (status, scores, None)).await;
            let after = tournament_points(app, event).await;
            let rank = |all: &HashMap<UserId, i64>, user| {
                let points = all.get(&user).copied().unwrap_or_default();
                1 + i64::try_from(all.values().filter(|&&other| other > points).count()).expect("few")
            };
            for leader in &leaders {
                let of = |all: &HashMap<UserId, i64>| all.get(&leader.user).copied().unwrap_or_default();
                assert_eq!((leader.before, leader.after), (of(&before), of(&after)), "{scores:?}: {leaders:?}");
                assert_eq!(leader.rank_before, rank(&before, leader.user), "{scores:?}: {leaders:?}");
                assert_eq!(leader.rank_after, rank(&after, leader.user), "{scores:?}: {leaders:?}");
            }
            assert!(leaders.is_sorted_by_key(|leader| leader.rank_after), "{leaders:?}");
            let listed = |user: &UserId| leaders.iter().any(|leader| leader.user == *user);
            for &user in before.keys().chain(after.keys()) {
                assert!(listed(&user) || (rank(&before, user) > 3 && rank(&after, user) > 3), "{user}: {leaders:?}");
            }
        }
        let html = page(app, &format!("/console/matches/{event}/correction?status=finished&home=1&away=1")).await;
        assert!(html.contains("Leaders of the tournament") && html.contains("Place after"), "{html}");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn corrected_match_refreshes_until_scores_are_applied() {
    TestApp::run(async |app| {
        let event = app.fixtures().a_match("m").starting_in(Duration::ZERO).at("finished", 2, 1).put().await;
        app.published().await;
        app.settle().await;
        let path = format!("/console/matches/{event}");
        let on = format!("{path}/correction?status=finished&home=1&away=1");
        let html = page(app, &on).await;
        let (_, rest) = html.split_once("name=\"seen\" value=\"").expect("a fingerprint");
        let seen = rest.split_once('"').expect("a value").0.to_owned();
        let fields = [("status", "finished"), ("home", "1"), ("away", "1"), ("reason", "a late goal"), ("seen", &seen)];
        let location = send(app, &on, &format!("{path}/correction"), &fields).await;
        let refresh = "http-equiv=\"refresh\"";
        let html = page(app, &location).await;
        assert!(html.contains(refresh) && html.contains("in progress") && html.contains("Stop refreshing"), "{html}");
        let html = page(app, &path).await;
        assert!(!html.contains(refresh) && html.contains("in progress"), "without the notice: {html}");
        app.published().await;
        app.settle().await;
        let html = page(app, &location).await;
        assert!(!html.contains(refresh) && html.contains("Scores are up to date."), "{html}");
    })
    .await;
}

#[tokio::test]
async fn correction_has_same_effect_as_import() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::ZERO).at("finished", 2, 1).put().await;
        let on = format!("/console/matches/{event}/correction?status=finished&home=1&away=1");
        let html = page(app, &on).await;
        assert!(html.contains("Nothing has changed yet") && html.contains("becomes"), "{html}");
        assert_eq!(app.published().await.len(), 0, "a preview publishes nothing");
        let (_, rest) = html.split_once("name=\"seen\" value=\"").expect("a fingerprint");
        let seen = rest.split_once('"').expect("a value").0.to_owned();
        let fields = [("status", "finished"), ("home", "1"), ("away", "1"), ("reason", "a late goal"), ("seen", &seen)];
        send(app, &on, &format!("/console/matches/{event}/correction"), &fields).await;
        let by_console = app.published().await;
        // The same change by an import, from the same state.
        let other = app.fixtures();
        let again = other.a_match("m").starting_in(Duration::ZERO).at("finished", 2, 1).put().await;
        other.write(&[other.a_match("m").starting_in(Duration::ZERO).at("finished", 1, 1).json()]).await;
        let by_import = app.published().await;
        let subjects = |messages: &[(String, serde_json::Value)]| messages.iter().map(|(subject, _)| subject.clone()).collect::<Vec<_>>();
        assert_eq!(subjects(&by_console), subjects(&by_import));
        let state = async |event: i64| -> (String, Option<i32>, Option<i32>, i64, i64) {
            sqlx::query_as("select status, home_score, away_score, result_revision, (select count(*) from event_results r where r.event_id = e.id) from events e where id = $1")
                .bind(event).fetch_one(&app.app.core.db).await.expect("a match")
        };
        assert_eq!(state(event).await, state(again).await);
        let last = recorded(app).await.remove(0);
        assert_eq!((last.action.as_str(), last.target, last.reason.as_str()), ("event.correct", format!("event:{event}"), "a late goal"));
        assert!(last.details["changes"][0].as_str().is_some_and(|change| change.contains("score 2:1 → 1:1")), "{}", last.details);
        // A preview from before the last change cannot be confirmed.
        let mark = mark_on(&page(app, &on.replace("home=1", "home=7")).await);
        let late = [("status", "finished"), ("home", "5"), ("away", "1"), ("reason", "x"), ("seen", &*seen), ("mark", &mark)];
        let refused = post(app, &format!("/console/matches/{event}/correction"), &late, &[]).await;
        assert_eq!(refused.status, StatusCode::CONFLICT);
        // Invalid combinations of status and score are refused.
        for nonsense in ["status=finished", "status=scheduled&home=1&away=0", "status=finished&home=1", "status=won&home=1&away=1", "status=finished&home=-1&away=1", "status=finished&home=1000&away=1"] {
            let path = format!("/console/matches/{event}/correction?{nonsense}");
            assert_eq!(get(app, &path).await.status, StatusCode::UNPROCESSABLE_ENTITY, "{nonsense}");
        }
        assert_eq!(get(app, &format!("/console/matches/{event}/correction?status=finished&home=1&away=1")).await.status, 409);
    })
    .await;
}

#[tokio::test]
async fn concurrent_pages_are_limited() {
    TestApp::run(async |app| {
        let permits = app.app.console.permits.clone();
        let all = permits.acquire_many_owned(3).await.expect("permits");
        let refused = get(app, "/console/feeds").await;
        assert_eq!(refused.status, StatusCode::SERVICE_UNAVAILABLE);
        assert!(text(&refused).contains("Too many console pages"));
        drop(all);
        page(app, "/console/feeds").await;
        assert_eq!(app.app.console.permits.available_permits(), 3, "the permit is released");
    })
    .await;
}

#[tokio::test]
async fn queues_page_compares_rooms_with_homeserver() {
    TestApp::run_with_chat(&[], async |app| {
        assert!(page(app, "/console").await.contains("Chat events set aside"));
        let room = "!room:matchday.localhost";
        let nonsense = json!({
            "event_id": "$nonsense", "room_id": room, "type": "m.room.member", "sender": HOSTILE, "state_key": HOSTILE,
            "origin_server_ts": 1_763_000_000_000_i64, "content": {"membership": "dancing"},
        });
        sqlx::query("insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until) values ($1, 'a', 'A', 1, now(), now())")
            .bind(room)
            .execute(&app.app.core.db)
            .await
            .expect("a room");
        app.push(&[nonsense]).await;
        let queues = page(app, "/console/queues").await;
        assert!(queues.contains("$nonsense") && !queues.contains("<script"), "{queues}");
        let query = "select at from mirror_marks where name = 'compare'";
        let before: Option<time::OffsetDateTime> =
            sqlx::query_scalar(query).fetch_optional(&app.app.core.db).await.expect("read");
        assert_eq!(before, None);
        let to = "/console/queues/compare";
        send(app, "/console/queues", to, &[("reason", "the homeserver was restored")]).await;
        let after: Option<time::OffsetDateTime> =
            sqlx::query_scalar(query).fetch_optional(&app.app.core.db).await.expect("read");
        assert_eq!(after, Some(app.clock.now()));
        let actions: Vec<_> = recorded(app).await.into_iter().map(|row| (row.action, row.outcome)).collect();
        assert_eq!(actions, [("memberships.compare".to_owned(), "done".to_owned())]);
    })
    .await;
}
