use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use platform::clock::Clock as _;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use time::Duration;

use super::{
    rules::{OTHERS, TABLES},
    service::DELETED,
};
use crate::{
    identity::{accounts::restrictions::Restriction, operators::Operator, sessions::service::REVOKED},
    testing::{Receiver, Reply, TestApp, TestUser, eventually, test_config, unique},
};

const PHONE: &str = "+14155550142";

async fn tables(db: &PgPool) -> Vec<String> {
    sqlx::query_scalar(
        "select relname::text from pg_class where relnamespace = 'public'::regnamespace and relkind in ('r', 'p')
           and not relispartition and relname <> '_sqlx_migrations' order by relname",
    )
    .fetch_all(db)
    .await
    .expect("the tables")
}

/// Which tables have a text somewhere, in any column.
async fn search(db: &PgPool, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for table in tables(db).await {
        // What is stored in bytes shows in hexadecimal, so both are looked for.
        let statement = format!(
            "select exists (select from {table} t where position(lower($1) in lower(t::text)) > 0
                              or position(encode(convert_to($1, 'utf8'), 'hex') in t::text) > 0)"
        );
        if sqlx::query_scalar(AssertSqlSafe(statement)).bind(text).fetch_one(db).await.expect("searched") {
            found.push(table);
        }
    }
    found
}

async fn ask_for_code(user: &TestUser<'_>, app: &TestApp) -> String {
    let answer = user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
    assert_eq!((&answer["data"]["phone"], &answer["data"]["expires_in"]), (&json!(PHONE), &json!(300)));
    app.codes(PHONE).await.remove(0)
}

async fn delete(user: &TestUser<'_>, code: &str) -> crate::testing::Answer {
    user.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await
}

#[tokio::test]
async fn every_table_was_thought_of() {
    TestApp::run(async |app| {
        let named: Vec<&str> =
            TABLES.iter().map(|table| table.name).chain(OTHERS.iter().map(|&(name, _)| name)).collect();
        let there = tables(&app.app.core.db).await;
        assert_eq!(named.len(), named.iter().collect::<BTreeSet<_>>().len(), "one is named twice");
        assert_eq!(
            named.into_iter().collect::<BTreeSet<_>>(),
            there.iter().map(String::as_str).collect(),
            "say in leaving/rules.rs what becomes of a person's rows in each table"
        );
        let columns: Vec<(String, String)> =
            sqlx::query_as("select table_name::text, column_name::text from information_schema.columns")
                .fetch_all(&app.app.core.db)
                .await
                .expect("the columns");
        for table in TABLES {
            for &hidden in table.hidden.iter().filter(|&&hidden| hidden != "user_id") {
                let column = (table.name.to_owned(), hidden.to_owned());
                assert!(columns.contains(&column), "{column:?} is hidden, but not there");
            }
        }
    })
    .await;
}

/// Somebody who has left a trace wherever one can be left; returns what to look for.
async fn somebody(app: &TestApp) -> (TestUser<'_>, Value, Vec<(&'static str, String)>) {
    let fixtures = app.fixtures();
    let event = fixtures.a_match("m").starting_in(Duration::HOUR).put().await;
    let (user, login) = app.log_in(PHONE).await;
    let profile = json!({"name": "Zenobia Quist", "email": "zq@example.org", "date_of_birth": "1971-03-09"});
    user.post("/api/auth/update-user-info", profile).await.expect(200);
    user.post("/api/auth/teams/primary", json!({"team_id": fixtures.team_id("rovers").await})).await.expect(200);
    let forecast = json!({"event_id": event, "prediction": "home", "confidence": 70});
    user.send_with(
        Method::POST,
        "/api/auth/predictions",
        &[("idempotency-key", "trace-of-a-request")],
        Some(forecast.to_string()),
    )
    .await
    .expect(201);
    user.post("/api/auth/daily-coins", json!({})).await.expect(200);
    let quiet = json!({"quiet_hours": {"from": "22:00", "until": "07:00", "time_zone": "Atlantic/Faroe"}});
    user.send(Method::PUT, "/api/auth/me/notifications", Some(quiet.to_string())).await.expect(200);
    sqlx::query(
        "insert into push_subscriptions (user_id, endpoint, p256dh, auth, created_at)
         values ($1, 'https://push.example.org/zenobia-browser', $2, $3, now())",
    )
    .bind(user.id)
    .bind([4_u8; 65])
    .bind([5_u8; 16])
    .execute(&app.app.core.db)
    .await
    .expect("a browser");
    // A phone that is being moved to leaves codes too, and a wrong one failures.
    user.post("/api/auth/verify-phone/initiate", json!({"phone": "+14155550143"})).await.expect(200);
    let wrong = json!({"phone": "+14155550143", "code": "000000"});
    user.post("/api/auth/verify-phone", wrong).await.expect(401);
    let looked_for = vec![
        ("phone", PHONE.trim_start_matches('+').to_owned()),
        ("the other phone's code", "verify:".to_owned() + &user.id.to_string()),
        ("name", "Zenobia".to_owned()),
        ("address", "zq@example.org".to_owned()),
        ("birthday", "1971-03-09".to_owned()),
        ("browser", "zenobia-browser".to_owned()),
        ("time zone", "Atlantic/Faroe".to_owned()),
        ("username", login["user"]["username"].as_str().expect("a name").to_owned()),
    ];
    (user, login, looked_for)
}

#[tokio::test]
async fn an_export_has_everything_of_the_caller_and_nothing_of_others() {
    TestApp::run(async |app| {
        let (user, login, _) = somebody(app).await;
        let (other, _) = app.log_in("+14155550177").await;
        other.post("/api/auth/update-user-info", json!({"name": "Somebody Else"})).await.expect(200);
        let answer = user.get("/api/auth/me/export").await;
        assert_eq!(answer.header("cache-control"), Some("no-store"));
        assert!(answer.header("content-disposition").is_some_and(|value| value.starts_with("attachment")));
        let text = answer.expect(200);
        let data: BTreeMap<String, Vec<Value>> = serde_json::from_value(text["data"].clone()).expect("tables");
        assert_eq!(data.keys().count(), TABLES.len());
        let count = |table: &str| data[table].len();
        let account = &data["users"][0];
        assert_eq!(
            (&account["phone"], &account["name"], &account["email"], &account["date_of_birth"]),
            (&json!(PHONE), &json!("Zenobia Quist"), &json!("zq@example.org"), &json!("1971-03-09"))
        );
        assert_eq!(account["username"], login["user"]["username"]);
        assert_eq!(
            (count("sessions"), count("predictions"), count("user_teams"), count("push_subscriptions")),
            (1, 1, 1, 1)
        );
        assert_eq!(data["predictions"][0]["confidence"], json!(70));
        assert!(count("coin_transactions") >= 1 && count("sms_log") >= 1 && count("codes") >= 2);
        assert_eq!(data["notification_settings"][0]["time_zone"], json!("Atlantic/Faroe"));
        let text = text.to_string();
        assert!(!text.contains("Somebody Else") && !text.contains("token_hash") && !text.contains("p256dh"), "{text}");
        for code in app.codes(PHONE).await {
            assert!(!text.contains(&format!("\"{code}\"")), "no code of a login");
        }
        // It is dear, so not without end.
        user.get("/api/auth/me/export").await.expect(200);
        user.get("/api/auth/me/export").await.expect(200);
        assert_eq!(user.get("/api/auth/me/export").await.expect(429)["code"], "rate_limited");
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn whoever_deletes_their_account_is_nowhere_to_be_found() {
    TestApp::run(async |app| {
        let (user, _, looked_for) = somebody(app).await;
        for (what, text) in &looked_for {
            assert!(!search(&app.app.core.db, text).await.is_empty(), "the search does not even find the {what}");
        }
        let code = ask_for_code(&user, app).await;
        app.told().await;
        delete(&user, &code).await.expect(200);
        let told: Vec<(String, Value)> = app.told().await;
        assert_eq!(told.last(), Some(&(DELETED.to_owned(), json!({"user_id": user.id}))));
        assert!(told[..told.len() - 1].iter().all(|(subject, _)| subject == REVOKED));
        user.get("/api/auth/me").await.expect(401);

        // Somebody was still at it.
        sqlx::query("insert into user_teams (user_id, rank, team_id) select $1, 1, id from teams limit 1")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("written late");
        assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), 0, "not before all of that has ended");
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), 1);
        assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), 0, "once");
        for (what, text) in &looked_for {
            let expected: &[&str] = if *what == "username" { &["username_claims"] } else { &[] };
            assert_eq!(search(&app.app.core.db, text).await, expected, "{what}");
        }
        let left: i64 = sqlx::query_scalar("select count(*) from user_teams where user_id = $1")
            .bind(user.id)
            .fetch_one(&app.app.core.db)
            .await
            .expect("counted");
        assert_eq!(left, 0, "what came late is gone too");

        // What others' tables were made with stays, as nobody's; and the coins still add up.
        let stays: (i64, i64, String) = sqlx::query_as(
            "select (select count(*) from predictions where user_id = $1),
                    (select count(*) from coin_transactions where user_id = $1),
                    (select username from users where user_id = $1)",
        )
        .bind(user.id)
        .fetch_one(&app.app.core.db)
        .await
        .expect("read");
        assert!(stays.0 == 1 && stays.1 >= 1 && stays.2 == format!("deleted-{}", user.id), "{stays:?}");
        let mut faults = 0;
        app.app.coins.audit(|_, _| {}, |_| faults += 1).await.expect("audited");
        assert_eq!(faults, 0);
    })
    .await;
}

#[tokio::test]
async fn a_phone_is_free_afterwards_and_a_name_is_not() {
    TestApp::run(async |app| {
        let (user, login, _) = somebody(app).await;
        let code = ask_for_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        app.told().await;
        app.clock.advance(Duration::minutes(10));
        let name = login["user"]["username"].as_str().expect("a name");
        let body = json!({"phone": PHONE, "code": app.code(PHONE).await, "username": name});
        assert_eq!(app.post("/api/code/verify", &body).await.invalid_fields(), ["username"]);
        app.clock.advance(Duration::minutes(10));
        let (again, _) = app.log_in(PHONE).await;
        assert_ne!(again.id, user.id, "a new account");
        assert_eq!(again.get("/api/auth/me").await.expect(200)["data"]["name"], Value::Null);
        assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), 1);
        again.get("/api/auth/me").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn only_the_code_that_was_sent_for_it_deletes_an_account_and_only_once() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let login = app.code(PHONE).await;
        assert_eq!(delete(&user, &login).await.expect(401)["code"], "invalid_code", "one for logging in is no good");
        app.clock.advance(Duration::minutes(10));
        let code = ask_for_code(&user, app).await;
        let wrong = if code == "123456" { "654321" } else { "123456" };
        assert_eq!(delete(&user, wrong).await.expect(401)["code"], "invalid_code");
        assert_eq!(user.send(Method::DELETE, "/api/auth/me", Some("{}".to_owned())).await.invalid_fields(), ["code"]);
        let login = json!({"phone": PHONE, "code": code});
        app.post("/api/code/verify", &login).await.expect(401);
        let (one, two) = tokio::join!(delete(&user, &code), delete(&user, &code));
        let mut statuses = [one.status.as_u16(), two.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401], "one of two that race");
        let told = app.told().await;
        assert_eq!(told.iter().filter(|(subject, _)| subject == DELETED).count(), 1);
        let made = app.user().await;
        assert_eq!(made.send(Method::POST, "/api/auth/me/deletion", None).await.expect(409)["code"], "no_phone");
    })
    .await;
}

/// Asks the homeserver, as whoever has this chat token.
async fn matrix(
    app: &TestApp,
    method: reqwest::Method,
    path: &str,
    token: &Value,
    body: Option<Value>,
) -> (u16, Value) {
    let base = app.app.config.matrix.homeserver_url.as_ref().expect("a homeserver");
    let url = base.join(&format!("_matrix/client/v3/{path}")).expect("a URL");
    let mut request = app.web.request(method, url).bearer_auth(token.as_str().expect("a token"));
    if let Some(body) = body {
        request = request.header("content-type", "application/json").body(body.to_string());
    }
    let answer = request.send().await.expect("an answer");
    (answer.status().as_u16(), answer.json().await.expect("JSON"))
}

#[tokio::test]
async fn chat_forgets_what_they_said_and_who_they_were() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(PHONE).await;
        let (other, others) = app.log_in("+14155550178").await;
        let (token, others) =
            (&login["matrix_credentials"]["access_token"], &others["matrix_credentials"]["access_token"]);
        let name = login["user"]["username"].as_str().expect("a name").to_owned();
        let wish = json!({"name": unique("Room"), "is_private": false});
        let opened = other.post("/api/auth/chat-room", wish).await.expect(201)["data"].clone();
        let room = opened["room_id"].as_str().expect("a room").to_owned();
        user.post(&format!("/api/auth/chat-rooms/{room}/join"), json!({})).await.expect(200);
        let said = json!({"msgtype": "m.text", "body": "this was me"});
        let path = format!("rooms/{room}/send/m.room.message/1");
        let (status, said) = matrix(app, reqwest::Method::PUT, &path, token, Some(said)).await;
        assert_eq!(status, 200, "{said}");
        let message = format!("rooms/{room}/event/{}", said["event_id"].as_str().expect("an id"));
        let seen = matrix(app, reqwest::Method::GET, &message, others, None).await.1;
        assert_eq!(seen["content"]["body"], "this was me");

        let code = ask_for_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), 1);
        let waiting: i64 =
            sqlx::query_scalar("select count(*) from departures").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(waiting, 0);
        let seen = matrix(app, reqwest::Method::GET, &message, others, None).await.1;
        assert_eq!(seen["content"], json!({}), "taken back: {seen}");
        assert_eq!(matrix(app, reqwest::Method::GET, "account/whoami", token, None).await.0, 401);
        // How they leave is pushed like everything else, under a name that is nobody's.
        let id = login["matrix_credentials"]["user_id"].as_str().expect("an id");
        let leaves = json!({
            "event_id": format!("${}", unique("leave")), "room_id": room, "type": "m.room.member", "sender": id,
            "state_key": id, "origin_server_ts": 1_763_000_000_000_i64, "content": {"membership": "leave"},
        });
        app.push(&[leaves]).await;
        assert_eq!(search(&app.app.core.db, &name).await, ["username_claims"]);
        eventually("the room has one member", async || {
            let members: i64 = sqlx::query_scalar(
                "select member_count from room_activity a join rooms r on r.id = a.room_id where r.matrix_id = $1",
            )
            .bind(&room)
            .fetch_one(&app.app.core.db)
            .await
            .expect("counted");
            members == 1
        })
        .await;
        app.told().await;
    })
    .await;
}

/// Two users in a room, one of whom said something.
struct Said<'a> {
    user: TestUser<'a>,
    token: Value,
    others_token: Value,
    matrix_id: String,
    room: String,
    /// The message, as a path on the homeserver.
    message: String,
}

async fn said(app: &TestApp) -> Said<'_> {
    let (user, login) = app.log_in(PHONE).await;
    let (other, others) = app.log_in("+14155550178").await;
    let opened = other.post("/api/auth/chat-room", json!({"name": unique("Room"), "is_private": false})).await;
    let room = opened.expect(201)["data"]["room_id"].as_str().expect("a room").to_owned();
    user.post(&format!("/api/auth/chat-rooms/{room}/join"), json!({})).await.expect(200);
    let credentials = &login["matrix_credentials"];
    let (path, words) =
        (format!("rooms/{room}/send/m.room.message/1"), json!({"msgtype": "m.text", "body": "zwieback"}));
    let (status, sent) = matrix(app, reqwest::Method::PUT, &path, &credentials["access_token"], Some(words)).await;
    assert_eq!(status, 200, "{sent}");
    Said {
        user,
        token: credentials["access_token"].clone(),
        others_token: others["matrix_credentials"]["access_token"].clone(),
        matrix_id: credentials["user_id"].as_str().expect("an id").to_owned(),
        message: format!("rooms/{room}/event/{}", sent["event_id"].as_str().expect("an id")),
        room,
    }
}

/// Deletes the account, and expects that the homeserver refuses the chat token within two seconds. No worker runs.
async fn delete_and_expect_refusal(app: &TestApp, user: &TestUser<'_>, token: &Value) {
    assert_eq!(matrix(app, reqwest::Method::GET, "account/whoami", token, None).await.0, 200);
    let code = ask_for_code(user, app).await;
    delete(user, &code).await.expect(200);
    let deleted = std::time::Instant::now();
    while matrix(app, reqwest::Method::GET, "account/whoami", token, None).await.0 != 401 {
        assert!(deleted.elapsed() < std::time::Duration::from_secs(2), "the chat token is still good");
        tokio::time::sleep(std::time::Duration::from_millis(20)).await;
    }
}

#[tokio::test]
async fn deletion_ends_chat_token_at_once() {
    TestApp::run_with_chat(&[], async |app| {
        let said = said(app).await;
        delete_and_expect_refusal(app, &said.user, &said.token).await;
        assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), 0, "the rest is not due yet");
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn worker_ends_chat_devices_of_deleted_accounts() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(PHONE).await;
        let token = &login["matrix_credentials"]["access_token"];
        let code = ask_for_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        eventually("the token is refused", async || {
            matrix(app, reqwest::Method::GET, "account/whoami", token, None).await.0 == 401
        })
        .await;
        // A device that was made by a login under way, in a process that was killed before it looked again.
        let name = login["user"]["username"].as_str().expect("a name");
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        let late = homeserver.log_in(name, "LATE", "late").await.expect("a device").access_token;
        let late = json!(secrecy::ExposeSecret::expose_secret(&late));
        assert_eq!(matrix(app, reqwest::Method::GET, "account/whoami", &late, None).await.0, 200);
        app.app.account_deletion.end_due_devices().await.expect("looked");
        assert_eq!(matrix(app, reqwest::Method::GET, "account/whoami", &late, None).await.0, 401);
        let due: Option<time::OffsetDateTime> = sqlx::query_scalar("select devices_due_at from departures")
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(due, None, "once is enough");
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn refused_admin_token_delays_redaction_only() {
    TestApp::run_with_chat(&[("MATCHDAY_MATRIX__ADMIN_TOKEN", "not-an-admin")], async |app| {
        let said = said(app).await;
        delete_and_expect_refusal(app, &said.user, &said.token).await;
        sqlx::query("insert into code_failures (subject, own, failures, last_failed_at) values ($1, true, 1, now())")
            .bind(format!("verify:{}", said.user.id))
            .execute(&app.app.core.db)
            .await
            .expect("written late");
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), 0, "not redacted, so not finished");
        let fault: String =
            sqlx::query_scalar("select fault from departures").fetch_one(&app.app.core.db).await.expect("still there");
        assert!(fault.contains("admin token"), "{fault}");
        let see = async |path: &str| matrix(app, reqwest::Method::GET, path, &said.others_token, None).await.1;
        assert_eq!(see(&said.message).await["content"]["body"], "zwieback");
        let member = format!("rooms/{}/state/m.room.member/{}", said.room, said.matrix_id);
        eventually("deactivated all the same, which leaves the room", async || {
            see(&member).await["membership"] == "leave"
        })
        .await;
        let late: i64 = sqlx::query_scalar("select count(*) from code_failures")
            .fetch_one(&app.app.core.db)
            .await
            .expect("counted");
        assert_eq!(late, 0, "rows that were written late are deleted all the same");

        // The operator sets a token that is good.
        let mended = app.second(test_config(&[])).await.app;
        app.clock.advance(Duration::hours(1));
        assert_eq!(mended.account_deletion.finish_due().await.expect("looked"), 1);
        let seen = see(&said.message).await;
        assert_eq!(seen["content"], json!({}), "redacted although the account is deactivated: {seen}");
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn failed_redaction_is_retried_until_it_succeeds() {
    // How each attempt ends, in turn.
    let ends = [
        json!({"status": "failed", "error": "the database is full"}),
        json!({"status": "complete", "failed_redactions": {"$event": "forbidden"}}),
        json!({"status": "complete", "failed_redactions": {}}),
    ];
    let attempt = std::sync::atomic::AtomicUsize::new(0);
    let is_registered = std::sync::atomic::AtomicBool::new(false);
    let homeserver = Receiver::start(move |_, received| {
        let body = match received.path.split('?').next().unwrap_or_default() {
            // Devices before the registration would make the name somebody else's.
            path if path.ends_with("/register") => {
                is_registered.store(true, std::sync::atomic::Ordering::Relaxed);
                json!({})
            }
            path if path.ends_with("/devices") && is_registered.load(std::sync::atomic::Ordering::Relaxed) => {
                json!({"devices": [{"device_id": "PHONE"}]})
            }
            path if path.ends_with("/devices") => json!({"devices": []}),
            path if path.ends_with("/joined_rooms") => json!({"joined_rooms": ["!room:matchday.localhost"]}),
            path if path.ends_with("/redact") => json!({"redact_id": "r"}),
            path if path.contains("/redact_status/") => {
                ends[attempt.fetch_add(1, std::sync::atomic::Ordering::Relaxed)].clone()
            }
            path if path.ends_with("/media") => json!({"deleted_media": [], "total": 0}),
            path if path.ends_with("/deactivate") => json!({"id_server_unbind_result": "success"}),
            _ => json!({}),
        };
        Reply::status(200).with("content-type", "application/json").saying(&body.to_string())
    })
    .await;
    let url = homeserver.url.to_string();
    let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_MATRIX__ADMIN_TOKEN", "admin")];
    TestApp::run_with(&changes, async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let code = ask_for_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        app.clock.advance(Duration::minutes(2));
        for (finished, fault) in [(0, "the database is full"), (0, "1 messages were not redacted"), (1, "")] {
            let before = homeserver.seen().len();
            assert_eq!(app.app.account_deletion.finish_due().await.expect("looked"), finished, "{fault}");
            let seen = homeserver.seen();
            let asked = |end: &str| seen[before..].iter().position(|one| one.path.split('?').next() == Some(end));
            assert!(asked("/_matrix/client/v3/account/deactivate").is_some(), "deactivated whatever became of that");
            let faults: Vec<Option<String>> =
                sqlx::query_scalar("select fault from departures").fetch_all(&app.app.core.db).await.expect("read");
            assert_eq!(faults.len(), 1 - finished);
            assert!(faults.iter().flatten().all(|said| said.contains(fault)), "{faults:?}");
            app.clock.advance(Duration::hours(1));
        }
        app.told().await;
    })
    .await;
}

async fn restrict_for(app: &TestApp, user: &TestUser<'_>, restriction: Restriction, days: Option<u64>) {
    let length = days.map(|days| std::time::Duration::from_hours(24 * days));
    let operator = Operator::new("ola", "spam");
    app.app.moderation.restrict_for(user.id, restriction, length, &operator).await.expect("done");
}

/// The restrictions of an account now.
async fn restrictions(app: &TestApp, user: &TestUser<'_>) -> (bool, bool) {
    let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
    (account.banned_at.is_some(), account.muted_at.is_some())
}

async fn delete_account(app: &TestApp, user: &TestUser<'_>, phone: &str) {
    user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
    let code = app.codes(phone).await.remove(0);
    delete(user, &code).await.expect(200);
    app.clock.advance(Duration::minutes(10));
    app.app.account_deletion.finish_due().await.expect("looked");
}

#[tokio::test]
async fn mute_survives_deletion_and_new_registration() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        restrict_for(app, &user, Restriction::Mute, Some(7)).await;
        let until = app.clock.now() + Duration::days(7);
        delete_account(app, &user, PHONE).await;
        assert!(search(&app.app.core.db, PHONE.trim_start_matches('+')).await.is_empty(), "only a hash is kept");
        let kept: Vec<Option<i64>> = sqlx::query_scalar("select user_id from restricted_phones")
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(kept, [None], "which links to no account");
        app.told().await;

        let (again, _) = app.log_in(PHONE).await;
        assert_ne!(again.id, user.id);
        let account = app.app.accounts.find(again.id).await.expect("read").expect("an account");
        assert_eq!((account.banned_at, account.muted_until), (None, Some(until)));
        let told: Vec<String> = app.told().await.into_iter().map(|(subject, _)| subject).collect();
        assert_eq!(told, ["fact.user.restricted", "work.chat.restricted"], "chat learns of it");
        let export = again.get("/api/auth/me/export").await.expect(200);
        assert_eq!(export["data"]["restrictions"][0]["action"], "mute");
        assert!(!export.to_string().contains("\"mac\""), "{export}");

        // And once more, until the time is over.
        delete_account(app, &again, PHONE).await;
        let (third, _) = app.log_in(PHONE).await;
        assert_eq!(restrictions(app, &third).await, (false, true));
        delete_account(app, &third, PHONE).await;
        app.clock.advance(Duration::days(7));
        let (free, _) = app.log_in(PHONE).await;
        assert_eq!(restrictions(app, &free).await, (false, false));
        assert_eq!(app.app.moderation.sweep().await.expect("swept"), 1);
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn lifted_mute_does_not_come_back_with_phone() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        restrict_for(app, &user, Restriction::Mute, None).await;
        delete_account(app, &user, PHONE).await;
        let (again, _) = app.log_in(PHONE).await;
        assert_eq!(restrictions(app, &again).await, (false, true));
        restrict_for(app, &again, Restriction::Unmute, None).await;
        delete_account(app, &again, PHONE).await;
        let (free, _) = app.log_in(PHONE).await;
        assert_eq!(restrictions(app, &free).await, (false, false));
        app.told().await;
    })
    .await;
}

/// Moves an account to another phone.
async fn move_to(app: &TestApp, user: &TestUser<'_>, phone: &str) {
    user.post("/api/auth/verify-phone/initiate", json!({"phone": phone})).await.expect(200);
    let code = app.codes(phone).await.remove(0);
    user.post("/api/auth/verify-phone", json!({"phone": phone, "code": code})).await.expect(200);
    app.clock.advance(Duration::minutes(10));
}

#[tokio::test]
async fn mute_follows_every_phone_of_its_account() {
    TestApp::run(async |app| {
        let (old, new, third) = (PHONE, "+14155550143", "+14155550144");
        let (user, _) = app.log_in(old).await;
        restrict_for(app, &user, Restriction::Mute, None).await;
        move_to(app, &user, new).await;
        let (with_old, _) = app.log_in(old).await;
        assert_ne!(with_old.id, user.id);
        assert_eq!(restrictions(app, &with_old).await, (false, true), "the phone from before the move");
        delete_account(app, &with_old, old).await;
        // An account that moves to such a phone is muted as well.
        let (other, _) = app.log_in(third).await;
        assert_eq!(restrictions(app, &other).await, (false, false));
        move_to(app, &other, old).await;
        assert_eq!(restrictions(app, &other).await, (false, true));
        let (fresh, _) = app.log_in(third).await;
        assert_eq!(restrictions(app, &fresh).await, (false, false), "it was released before the mute");
        // Until then the move can be undone, and the account not be deleted.
        app.clock.advance(Duration::hours(72));
        delete_account(app, &user, new).await;
        let (with_new, _) = app.log_in(new).await;
        assert_eq!(restrictions(app, &with_new).await, (false, true), "the phone at deletion");
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn banned_phone_cannot_register_and_keeps_its_code() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        restrict_for(app, &user, Restriction::Mute, None).await;
        move_to(app, &user, "+14155550143").await;
        restrict_for(app, &user, Restriction::Ban, Some(2)).await;
        app.told().await;
        let body = json!({"phone": PHONE, "code": app.code(PHONE).await});
        let refused = app.post("/api/code/verify", &body).await.expect(403);
        assert_eq!(
            (&refused["code"], &refused["suspended_until"]),
            (&json!("account_suspended"), &json!("2026-11-22T15:10:00Z"))
        );
        assert!(app.told().await.is_empty(), "no account was made");
        restrict_for(app, &user, Restriction::Unban, None).await;
        app.post("/api/code/verify", &body).await.expect(200);
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn open_report_keeps_evidence_of_deleted_sender_until_closed() {
    TestApp::run_with_chat(&[], async |app| {
        let said = said(app).await;
        let (reporter, _) = app.log_in("+14155550179").await;
        let event = said.message.rsplit('/').next().expect("an id");
        let insult = json!({"event_id": event, "reason": "insults"});
        reporter.post(&format!("/api/auth/chat-rooms/{}/reports", said.room), insult.clone()).await.expect(201);
        let (second, _) = app.log_in("+14155550180").await;
        second.post(&format!("/api/auth/chat-rooms/{}/reports", said.room), insult).await.expect(201);
        delete_account(app, &said.user, PHONE).await;

        let open = app.app.moderation.open_reports(10).await.expect("read");
        assert_eq!(open.len(), 2);
        for report in &open {
            assert_eq!(report.sender.as_deref(), Some(said.matrix_id.as_str()));
            assert!(report.content.as_ref().is_some_and(|content| content.contains("zwieback")), "{report:?}");
        }
        assert!(app.app.moderation.close_report(open[0].id, &Operator::new("ola", "warned")).await.expect("closed"));
        let left = async || -> Vec<(Option<String>, Option<String>)> {
            let rows =
                sqlx::query_as("select sender, content from reports order by id").fetch_all(&app.app.core.db).await;
            rows.expect("read")
        };
        let rows = left().await;
        assert_eq!(rows[0], (None, None), "erased when it is closed");
        assert!(rows[1].0.is_some() && rows[1].1.is_some());
        // Nobody looks at the other one: at most thirty days.
        app.clock.advance(Duration::days(29));
        app.app.moderation.sweep().await.expect("swept");
        assert!(left().await[1].0.is_some());
        app.clock.advance(Duration::days(1));
        app.app.moderation.sweep().await.expect("swept");
        assert_eq!(left().await[1], (None, None));
        assert!(search(&app.app.core.db, "zwieback").await.is_empty());
        app.told().await;
    })
    .await;
}
