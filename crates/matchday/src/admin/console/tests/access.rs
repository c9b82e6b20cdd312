//! Tests of every route for every role, and with every kind of invalid proof.

use web::ids::UserId;

use super::{BEHIND_PROXY, SECRET, get_with, mark_on, post, proxied, recorded, report, text, username};
use crate::{
    admin::console::{ROUTES, Role},
    testing::{Answer, TestApp},
};

/// Inserts a question in the tournament of a match, if there is none, and returns its id.
async fn question_of(app: &TestApp, event: i64) -> i64 {
    sqlx::query_scalar(
        "insert into questions (tournament_id, key, text, kind, scoring, points, locks_at, is_void, created_at)
         select tournament_id, 'q', 'How many?', 'number', 'exact', 10, now(), false, now() from events where id = $1
         on conflict (tournament_id, key) do update set text = excluded.text returning id",
    )
    .bind(event)
    .fetch_one(app.owner())
    .await
    .expect("a question")
}

/// Sends a request to each route that needs a role and returns the responses. The forms are incomplete, so they change
/// nothing.
pub(super) async fn every_route(
    app: &TestApp,
    headers: &[(&str, &str)],
    mark: &str,
    ids: (i64, UserId, i64),
) -> Vec<(&'static str, &'static str, Role, Answer)> {
    let question = question_of(app, ids.0).await;
    let mut answers = Vec::new();
    for &(method, route, role) in ROUTES {
        let Some(role) = role else { continue };
        let id = match route {
            route if route.starts_with("/console/matches") => ids.0.to_string(),
            route if route.starts_with("/console/questions") => question.to_string(),
            route if route.starts_with("/console/reports") => ids.2.to_string(),
            _ => ids.1.to_string(),
        };
        let mut path = route.replace("{id}", &id);
        let answer = if method == "get" {
            if route.ends_with("/correction") {
                path.push_str("?status=finished&home=1&away=1");
            }
            get_with(app, &path, headers).await
        } else {
            post(app, &path, &[("mark", mark), ("reason", "a test")], headers).await
        };
        answers.push((method, route, role, answer));
    }
    assert_eq!(answers.len(), ROUTES.len() - 2, "all routes except the style sheet and the redirect");
    answers
}

/// Asserts that these headers give access to no route, and that the pages show no data of the service.
pub(super) async fn expect_closed(
    app: &TestApp,
    what: &str,
    headers: &[(&str, &str)],
    mark: &str,
    ids: (i64, UserId, i64),
) {
    let before = recorded(app).await.len();
    for (method, route, _, answer) in every_route(app, headers, mark, ids).await {
        assert_eq!(answer.status.as_u16(), 403, "{what}: {method} {route}: {}", text(&answer));
        let html = text(&answer);
        assert!(!html.contains("<form") && !html.contains("<table"), "{what}: {method} {route}: {html}");
    }
    assert_eq!(recorded(app).await.len(), before, "{what}");
}

/// Asserts that a role gives access to exactly the routes that the table lists.
pub(super) async fn expect_role(app: &TestApp, has: Role, headers: &[(&str, &str)], ids: (i64, UserId, i64)) {
    let mark = mark_on(&text(&get_with(app, "/console/users", headers).await));
    for (method, route, least, answer) in every_route(app, headers, &mark, ids).await {
        let status = answer.status.as_u16();
        if has < least {
            assert_eq!(status, 403, "{has:?}: {method} {route}");
            assert!(text(&answer).contains("This requires the role"), "{has:?}: {method} {route}");
        } else if method == "get" {
            // The user has no avatar.
            let expected = if route.ends_with("/avatar") { 404 } else { 200 };
            assert_eq!(status, expected, "{has:?}: {method} {route}: {}", text(&answer));
        } else {
            // The role is accepted, but the form is incomplete, or the homeserver lacks the room.
            assert!([303, 404, 409, 422].contains(&status), "{has:?}: {method} {route}: {status} {}", text(&answer));
        }
    }
}

/// Creates a match with a result, a user, and a report by the user.
pub(super) async fn things(app: &TestApp) -> (i64, UserId, i64) {
    let event = app.fixtures().a_match("m").starting_in(time::Duration::ZERO).at("finished", 2, 1).put().await;
    let user = app.user().await.id;
    (event, user, report(app, user, "@rude:elsewhere.example", "a message", "rude").await)
}

#[tokio::test]
async fn wrong_secrets_and_forged_headers_are_refused() {
    TestApp::run_with(&BEHIND_PROXY, async |app| {
        let ids = things(app).await;
        let good = proxied("ola@example.org", "operators");
        let mark = mark_on(&text(&get_with(app, "/console/users", &good).await));
        let [secret, operator, groups] = good;
        let name = "x-console-secret";
        let longer = format!("{SECRET}0");
        let spaced = format!("{SECRET} {SECRET}");
        for (what, headers) in [
            ("no headers", vec![]),
            ("only a forged operator", vec![operator]),
            ("a forged operator with groups", vec![operator, groups]),
            ("an empty secret", vec![(name, ""), operator, groups]),
            ("a wrong secret", vec![(name, "5f2c1d0e9b8a7f6e5d4c3b2a19080707"), operator, groups]),
            ("a prefix of the secret", vec![(name, &SECRET[..31]), operator, groups]),
            ("more than the secret", vec![(name, &longer), operator, groups]),
            ("the secret in upper case", vec![(name, "5F2C1D0E9B8A7F6E5D4C3B2A19080706"), operator, groups]),
            ("two secrets in one header", vec![(name, &spaced), operator, groups]),
            ("the secret twice", vec![secret, secret, operator, groups]),
            ("the secret in another header", vec![("authorization", SECRET), operator, groups]),
            ("no operator", vec![secret, groups]),
            ("an empty operator", vec![secret, ("x-forwarded-user", " "), groups]),
            ("two operators", vec![secret, operator, ("x-forwarded-user", "ida@example.org"), groups]),
            ("groups twice", vec![secret, operator, groups, ("x-forwarded-groups", "staff")]),
            ("no groups", vec![secret, operator]),
            ("other groups", vec![secret, operator, ("x-forwarded-groups", "operators2, Operators ,sre")]),
            ("an operator with the name of a group", vec![secret, ("x-forwarded-user", "operators")]),
            (
                "a group with the name of an operator",
                vec![secret, operator, ("x-forwarded-groups", "user:root@example.org")],
            ),
        ] {
            expect_closed(app, what, &headers, &mark, ids).await;
        }
        assert!(app.app.accounts.find(ids.1).await.expect("read").expect("a user").banned_at.is_none());
    })
    .await;
}

#[tokio::test]
async fn each_role_can_use_only_its_routes() {
    TestApp::run_with(&BEHIND_PROXY, async |app| {
        let ids = things(app).await;
        for (role, operator, groups) in [
            (Role::Viewer, "vera@example.org", "staff"),
            (Role::Moderator, "mo@example.org", "other, moderators"),
            (Role::Operator, "ola@example.org", "staff,operators"),
            (Role::Operator, "root@example.org", ""),
        ] {
            expect_role(app, role, &proxied(operator, groups), ids).await;
        }
        // Claiming and releasing a report need no further field.
        let actions: Vec<String> = recorded(app).await.into_iter().map(|recorded| recorded.action).collect();
        assert!(actions.iter().all(|action| action == "report.claim" || action == "report.release"), "{actions:?}");
    })
    .await;
}

#[tokio::test]
async fn pages_show_only_forms_allowed_for_the_role() {
    let with_server = [&BEHIND_PROXY[..], &[("MATCHDAY_MATRIX__SERVER_NAME", "matchday.localhost")]].concat();
    TestApp::run_with(&with_server, async |app| {
        let (event, user, _) = things(app).await;
        let sender = format!("@{}:matchday.localhost", username(app, user).await);
        let id = report(app, user, &sender, "a message", "rude").await;
        sqlx::query("insert into sms_closures values ('GB', now(), '2999-01-01T00:00:00Z', 40, 3, 1, 5)")
            .execute(&app.app.core.db)
            .await
            .expect("closed");
        let forms = [
            (format!("/console/users/{user}"), format!("/console/users/{user}/restriction"), Role::Moderator),
            ("/console/reports".to_owned(), format!("/console/reports/{id}/claim"), Role::Moderator),
            (format!("/console/reports/{id}"), format!("/console/reports/{id}/close"), Role::Moderator),
            (format!("/console/reports/{id}"), format!("/console/users/{user}/restriction"), Role::Moderator),
            (format!("/console/matches/{event}"), format!("/console/matches/{event}/correction"), Role::Operator),
            ("/console/sms".to_owned(), "/console/sms/open".to_owned(), Role::Operator),
            ("/console/users".to_owned(), "/console/users".to_owned(), Role::Viewer),
        ];
        for (role, groups) in [(Role::Viewer, "staff"), (Role::Moderator, "moderators"), (Role::Operator, "operators")]
        {
            for (page, action, least) in &forms {
                let html = text(&get_with(app, page, &proxied("ola", groups)).await);
                let shows = html.contains(&format!("action=\"{action}\""));
                assert_eq!(shows, role >= *least, "{role:?} on {page}: {html}");
                assert!(html.contains(&format!("ola · {}", role.name())), "{page} shows name and role");
                let links_held = html.contains("href=\"/console/held\"");
                assert_eq!(links_held, role >= Role::Moderator, "{role:?} on {page}: link to held messages");
            }
        }
    })
    .await;
}

#[tokio::test]
async fn role_in_header_leads_to_its_meaning() {
    TestApp::run_with(&BEHIND_PROXY, async |app| {
        for (role, groups) in [("viewer", "staff"), ("moderator", "moderators"), ("operator", "operators")] {
            let headers = proxied("ola", groups);
            let html = text(&get_with(app, "/console", &headers).await);
            assert!(html.contains(&format!("href=\"/console/roles\">ola · {role}")), "{html}");
            let html = text(&get_with(app, "/console/roles", &headers).await);
            assert!(html.contains(&format!("{role} (you)")) && html.matches("(you)").count() == 1, "{html}");
        }
    })
    .await;
}

#[tokio::test]
async fn actions_are_recorded_under_the_verified_name() {
    TestApp::run_with(&BEHIND_PROXY, async |app| {
        let user = app.user().await.id;
        let (page, to) = (format!("/console/users/{user}"), format!("/console/users/{user}/restriction"));
        let moderator = proxied("mo@example.org", "moderators");
        let mark = mark_on(&text(&get_with(app, &page, &moderator).await));
        let fields = [("reason", "insults"), ("action", "ban"), ("mark", mark.as_str())];
        // The moderator's form is refused from a viewer and from another moderator.
        for other in [proxied("mo@example.org", "staff"), proxied("ida@example.org", "moderators")] {
            assert_eq!(post(app, &to, &fields, &other).await.status, 403);
        }
        assert_eq!(recorded(app).await.len(), 0);
        let done = post(app, &to, &fields, &moderator).await;
        assert_eq!(done.status, 303, "{}", text(&done));
        let actions = recorded(app).await;
        assert_eq!(
            (actions.len(), actions[0].operator.as_str(), &*actions[0].action),
            (1, "mo@example.org", "user.ban")
        );
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn secrets_and_headers_can_be_replaced() {
    let other = "00112233445566778899aabbccddeeff";
    let both = format!("{other},{SECRET}");
    let mut settings = BEHIND_PROXY.to_vec();
    settings.extend([
        ("MATCHDAY_CONSOLE__PROXY_SECRETS", both.as_str()),
        ("MATCHDAY_CONSOLE__PROXY_SECRET_HEADER", "X-Proxy"),
        ("MATCHDAY_CONSOLE__OPERATOR_HEADER", "X-Auth-Request-Email"),
        ("MATCHDAY_CONSOLE__GROUPS_HEADER", "X-Auth-Request-Groups"),
    ]);
    TestApp::run_with(&settings, async |app| {
        for secret in [other, SECRET] {
            let headers =
                [("x-proxy", secret), ("x-auth-request-email", "ola@example.org"), ("x-auth-request-groups", "staff")];
            let answer = get_with(app, "/console", &headers).await;
            assert_eq!(answer.status, 200);
            assert!(text(&answer).contains("ola@example.org · viewer"));
        }
        assert_eq!(get_with(app, "/console", &proxied("ola@example.org", "staff")).await.status, 403);
    })
    .await;
}

#[tokio::test]
async fn development_needs_no_proof_on_localhost_only() {
    TestApp::run(async |app| {
        for (host, status) in [
            ("localhost:9092", 200),
            ("127.0.0.1:9092", 200),
            ("[::1]:9092", 200),
            ("console.localhost", 200),
            ("rebound.example.org", 403),
            ("rebound.example.org:9092", 403),
            ("192.168.1.7:9092", 403),
            ("localhost.example.org", 403),
        ] {
            assert_eq!(get_with(app, "/console/feeds", &[("host", host)]).await.status.as_u16(), status, "{host}");
        }
        // A name sent by a proxy or an attacker is ignored.
        let html = text(&get_with(app, "/console/feeds", &[("x-forwarded-user", "ola")]).await);
        assert!(html.contains("developer · operator") && !html.contains("ola"), "{html}");
    })
    .await;
    // If a secret is configured, development requires the proof too.
    let verified = [("MATCHDAY_CONSOLE__PROXY_SECRETS", SECRET), ("MATCHDAY_CONSOLE__OPERATORS", "operators")];
    TestApp::run_with(&verified, async |app| {
        assert_eq!(get_with(app, "/console", &[]).await.status, 403);
        assert_eq!(get_with(app, "/console", &proxied("ola", "operators")).await.status, 200);
    })
    .await;
}
