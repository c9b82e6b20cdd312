use std::collections::{BTreeMap, BTreeSet};

use http::Method;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use time::Duration;

use super::{
    rules::{OTHERS, TABLES},
    service::DELETED,
};
use crate::{
    sessions::service::REVOKED,
    testing::{TestApp, TestUser, eventually, unique},
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
        let there = tables(&app.app.db).await;
        assert_eq!(named.len(), named.iter().collect::<BTreeSet<_>>().len(), "one is named twice");
        assert_eq!(
            named.into_iter().collect::<BTreeSet<_>>(),
            there.iter().map(String::as_str).collect(),
            "say in leaving/rules.rs what becomes of a person's rows in each table"
        );
        let columns: Vec<(String, String)> =
            sqlx::query_as("select table_name::text, column_name::text from information_schema.columns")
                .fetch_all(&app.app.db)
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
    .execute(&app.app.db)
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
            assert!(!search(&app.app.db, text).await.is_empty(), "the search does not even find the {what}");
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
            .execute(&app.app.db)
            .await
            .expect("written late");
        assert_eq!(app.app.leaving.finish_due().await.expect("looked"), 0, "not before all of that has ended");
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.leaving.finish_due().await.expect("looked"), 1);
        assert_eq!(app.app.leaving.finish_due().await.expect("looked"), 0, "once");
        for (what, text) in &looked_for {
            let expected: &[&str] = if *what == "username" { &["username_claims"] } else { &[] };
            assert_eq!(search(&app.app.db, text).await, expected, "{what}");
        }
        let left: i64 = sqlx::query_scalar("select count(*) from user_teams where user_id = $1")
            .bind(user.id)
            .fetch_one(&app.app.db)
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
        .fetch_one(&app.app.db)
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
        assert_eq!(app.app.leaving.finish_due().await.expect("looked"), 1);
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
    let mut request = app.app.web.request(method, url).bearer_auth(token.as_str().expect("a token"));
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
        assert_eq!(app.app.leaving.finish_due().await.expect("looked"), 1);
        let waiting: i64 =
            sqlx::query_scalar("select count(*) from departures").fetch_one(&app.app.db).await.expect("read");
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
        assert_eq!(search(&app.app.db, &name).await, ["username_claims"]);
        eventually("the room has one member", async || {
            let members: i64 = sqlx::query_scalar(
                "select member_count from room_activity a join rooms r on r.id = a.room_id where r.matrix_id = $1",
            )
            .bind(&room)
            .fetch_one(&app.app.db)
            .await
            .expect("counted");
            members == 1
        })
        .await;
        app.told().await;
    })
    .await;
}
