use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use http::Method;
use platform::clock::Clock as _;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool};
use time::Duration;

use super::{
    rules::{OTHERS, TABLES},
    service::DELETED,
};
use crate::{
    admin::console::service::ReportFilter,
    chat::reports::{
        rules::Resolution,
        service::{Ending, OthersClaim, Scope},
    },
    identity::{accounts::restrictions::Restriction, operators::Operator, sessions::service::REVOKED},
    testing::{Received, Receiver, Reply, TestApp, TestUser, eventually, test_config, unique, with_plain_database},
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

/// Returns the tables that contain a text in any column.
async fn search(db: &PgPool, text: &str) -> Vec<String> {
    let mut found = Vec::new();
    for table in tables(db).await {
        // PostgreSQL prints `bytea` in hexadecimal, so search for both forms.
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

async fn request_code(user: &TestUser<'_>, app: &TestApp) -> String {
    let response = user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
    assert_eq!((&response["data"]["phone"], &response["data"]["expires_in"]), (&json!(PHONE), &json!(300)));
    app.codes(PHONE).await.remove(0)
}

async fn delete(user: &TestUser<'_>, code: &str) -> crate::testing::Answer {
    user.send(Method::DELETE, "/api/auth/me", Some(json!({"code": code}).to_string())).await
}

#[tokio::test]
async fn every_table_is_listed() {
    TestApp::run(async |app| {
        let named: Vec<&str> =
            TABLES.iter().map(|table| table.name).chain(OTHERS.iter().map(|&(name, _)| name)).collect();
        let there = tables(&app.app.core.db).await;
        assert_eq!(named.len(), named.iter().collect::<BTreeSet<_>>().len(), "a table is listed twice");
        assert_eq!(
            named.into_iter().collect::<BTreeSet<_>>(),
            there.iter().map(String::as_str).collect(),
            "list every table in account_deletion/rules.rs with the effect of a deletion on its rows"
        );
        let columns: Vec<(String, String)> =
            sqlx::query_as("select table_name::text, column_name::text from information_schema.columns")
                .fetch_all(&app.app.core.db)
                .await
                .expect("the columns");
        for table in TABLES {
            for &hidden in table.hidden.iter().filter(|&&hidden| hidden != "user_id") {
                let column = (table.name.to_owned(), hidden.to_owned());
                assert!(columns.contains(&column), "{column:?} is hidden but does not exist");
            }
        }
    })
    .await;
}

/// Gives every table some thousand rows of different users, and the planner its statistics. Constraints are dropped,
/// because values are made from the row's number.
const FILL: &str = "\
set statement_timeout = 0;
do $$
declare
    it record;
    columns text;
    made text;
begin
    -- Constraints of partitions can be dropped after those of their parents.
    for pass in 1..2 loop
        for it in select conrelid::regclass as of_table, conname from pg_constraint
                  where connamespace = 'public'::regnamespace and contype in ('c', 'f') and coninhcount = 0 loop
            execute format('alter table %s drop constraint %I', it.of_table, it.conname);
        end loop;
    end loop;
    -- Partitioned tables have more rows, so that each partition has enough.
    for it in select oid::regclass as of_table, case relkind when 'p' then 24000 else 3000 end as number from pg_class
              where relnamespace = 'public'::regnamespace and relkind in ('r', 'p') and not relispartition
                and relname <> '_sqlx_migrations' loop
        select string_agg(format('%I', attname), ', '),
               string_agg(case
                   when attname = 'event_id' and atttypid = 'bigint'::regtype then 'n % 2000'
                   when atttypid = 'smallint'::regtype then 'n % 30000'
                   when atttypid in ('integer'::regtype, 'bigint'::regtype) then 'n'
                   when atttypid = 'boolean'::regtype then 'n % 2 = 0'
                   when atttypid = 'text'::regtype then '''x'' || n'
                   when atttypid = 'bytea'::regtype then 'decode(md5(n::text), ''hex'')'
                   when atttypid = 'uuid'::regtype then 'md5(n::text)::uuid'
                   when atttypid = 'timestamptz'::regtype then 'now() - n * interval ''1 second'''
                   when atttypid = 'date'::regtype then 'current_date - n'
                   when atttypid = 'bigint[]'::regtype then 'array[n]'
                   when atttypid = 'text[]'::regtype then 'array[''x'' || n]'
                   else format('jsonb_build_object(''user_id'', n)::%s', format_type(atttypid, null)) end, ', ')
        into columns, made
        from pg_attribute
        where attrelid = it.of_table and attnum > 0 and not attisdropped and attidentity = '' and attgenerated = '';
        execute format('insert into %s (%s) select %s from generate_series(1, %s) n on conflict do nothing',
                       it.of_table, columns, made, it.number);
    end loop;
end
$$;
analyze";

#[tokio::test]
async fn statements_of_one_account_read_no_whole_table() {
    /// Queues: their rows are deleted within seconds, or when a deletion is finished.
    const QUEUES: [&str; 2] = ["new_facts", "departures"];
    with_plain_database(async |options| {
        let mut connection = PgConnection::connect_with(&options).await.expect("connected");
        sqlx::raw_sql(FILL).execute(&mut connection).await.expect("filled");
        let mut scans = BTreeSet::new();
        for mode in ["force_custom_plan", "force_generic_plan"] {
            let choose = format!("set plan_cache_mode = {mode}");
            sqlx::raw_sql(AssertSqlSafe(choose)).execute(&mut connection).await.expect("chosen");
            for table in TABLES.iter().filter(|table| !QUEUES.contains(&table.name)) {
                for statement in [table.export(), table.forget()].into_iter().flatten() {
                    let prepare = format!("prepare it (bigint, text, text[], text[], text[]) as {statement}");
                    sqlx::raw_sql(AssertSqlSafe(prepare)).execute(&mut connection).await.expect("prepared");
                    let explain = "explain (costs off) execute it (77, 'x77', '{x77}', '{x77}', '{}')";
                    let plan: Vec<String> =
                        sqlx::query_scalar(explain).fetch_all(&mut connection).await.expect("a plan");
                    assert!(!plan.is_empty(), "{statement}");
                    scans.extend(
                        plan.into_iter().filter(|line| line.contains("Seq Scan")).map(|line| (table.name, line)),
                    );
                    sqlx::raw_sql("deallocate it").execute(&mut connection).await.expect("removed");
                }
            }
        }
        assert_eq!(scans, BTreeSet::new(), "tables with rows of all users are read completely");
        connection.close().await.expect("closed");
    })
    .await;
}

/// A suspension removes the devices of a user with a statement of one parameter, a deletion with one of four.
#[tokio::test]
async fn deletions_and_suspensions_share_a_connection() {
    TestApp::run(async |app| {
        let process = app.with_one_connection().await;
        let ban = async |user: &TestUser<'_>| {
            let operator = Operator::new("ola", "spam");
            process.app.moderation.restrict(user.id, Restriction::Ban, &operator).await.expect("suspended");
        };
        let (first, second) = (process.user().await, process.user().await);
        ban(&first).await;
        let (user, _) = process.log_in(PHONE).await;
        let code = request_code(&user, &process).await;
        delete(&user, &code).await.expect(200);
        ban(&second).await;
        process.published().await;
    })
    .await;
}

#[test]
fn deletion_shares_no_statement_with_another_feature() {
    let directory = concat!(env!("CARGO_MANIFEST_DIR"), "/../../.sqlx");
    let checked: BTreeSet<String> = std::fs::read_dir(directory)
        .expect("checked queries")
        .map(|entry| {
            let text = std::fs::read_to_string(entry.expect("an entry").path()).expect("read");
            let query: Value = serde_json::from_str(&text).expect("JSON");
            query["query"].as_str().expect("a query").to_owned()
        })
        .collect();
    assert!(checked.contains("delete from devices where user_id = $1"), "the texts are read");
    for table in TABLES {
        for statement in [table.export(), table.forget()].into_iter().flatten() {
            assert!(!checked.contains(&statement), "prepared with other parameters: {statement}");
        }
    }
}

/// Creates a user with rows in as many tables as possible. Returns texts that identify these rows.
async fn user_with_data(app: &TestApp) -> (TestUser<'_>, Value, Vec<(&'static str, String)>) {
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
    // A pending move to another phone also leaves a code, and a wrong code leaves a failure.
    user.post("/api/auth/verify-phone/initiate", json!({"phone": "+14155550143"})).await.expect(200);
    let wrong = json!({"phone": "+14155550143", "code": "000000"});
    user.post("/api/auth/verify-phone", wrong).await.expect(401);
    let traces = vec![
        ("phone", PHONE.trim_start_matches('+').to_owned()),
        ("the other phone's code", "verify:".to_owned() + &user.id.to_string()),
        ("name", "Zenobia".to_owned()),
        ("address", "zq@example.org".to_owned()),
        ("birthday", "1971-03-09".to_owned()),
        ("browser", "zenobia-browser".to_owned()),
        ("time zone", "Atlantic/Faroe".to_owned()),
        ("username", login["user"]["username"].as_str().expect("a name").to_owned()),
    ];
    (user, login, traces)
}

#[tokio::test]
async fn export_contains_exactly_the_callers_data() {
    TestApp::run(async |app| {
        let (user, login, _) = user_with_data(app).await;
        let (other, _) = app.log_in("+14155550177").await;
        other.post("/api/auth/update-user-info", json!({"name": "Another Person"})).await.expect(200);
        let response = user.get("/api/auth/me/export").await;
        assert_eq!(response.header("cache-control"), Some("no-store"));
        assert!(response.header("content-disposition").is_some_and(|value| value.starts_with("attachment")));
        let text = response.expect(200);
        let data: BTreeMap<String, Vec<Value>> = serde_json::from_value(text["data"].clone()).expect("tables");
        assert_eq!(data.keys().count(), TABLES.len() + 1, "and receipts");
        assert_eq!((data["receipts"].len(), data["pseudonyms"].len()), (1, 1));
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
        assert!(!text.contains("Another Person") && !text.contains("token_hash") && !text.contains("p256dh"), "{text}");
        for code in app.codes(PHONE).await {
            assert!(!text.contains(&format!("\"{code}\"")), "exports contain no codes");
        }
        // Exports are expensive and therefore limited.
        user.get("/api/auth/me/export").await.expect(200);
        user.get("/api/auth/me/export").await.expect(200);
        assert_eq!(user.get("/api/auth/me/export").await.expect(429)["code"], "rate_limited");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn deletion_removes_all_personal_data() {
    TestApp::run(async |app| {
        let (user, _, traces) = user_with_data(app).await;
        for (what, text) in &traces {
            assert!(
                !search(&app.app.core.db, text).await.is_empty(),
                "the search does not find the {what} before the deletion"
            );
        }
        let code = request_code(&user, app).await;
        app.published().await;
        delete(&user, &code).await.expect(200);
        let messages: Vec<(String, Value)> = app.published().await;
        assert_eq!(messages.last(), Some(&(DELETED.to_owned(), json!({"user_id": user.id}))));
        assert!(messages[..messages.len() - 1].iter().all(|(subject, _)| subject == REVOKED));
        user.get("/api/auth/me").await.expect(401);

        // Simulate a request that was still running.
        sqlx::query("insert into user_teams (user_id, rank, team_id) select $1, 1, id from teams limit 1")
            .bind(user.id)
            .execute(&app.app.core.db)
            .await
            .expect("written late");
        assert_eq!(
            app.app.account_deletion.finish_due().await.expect("finished"),
            0,
            "running requests may still write"
        );
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), 1);
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), 0, "once");
        for (what, text) in &traces {
            let expected: &[&str] = if *what == "username" { &["username_claims"] } else { &[] };
            assert_eq!(search(&app.app.core.db, text).await, expected, "{what}");
        }
        let left: i64 = sqlx::query_scalar("select count(*) from user_teams where user_id = $1")
            .bind(user.id)
            .fetch_one(&app.app.core.db)
            .await
            .expect("counted");
        assert_eq!(left, 0, "rows written late are deleted too");

        // Rows behind other users' leaderboards stay anonymously, and the ledger still balances.
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
async fn deletion_frees_the_phone_but_not_the_username() {
    TestApp::run(async |app| {
        let (user, login, _) = user_with_data(app).await;
        let code = request_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        app.published().await;
        app.clock.advance(Duration::minutes(10));
        let name = login["user"]["username"].as_str().expect("a name");
        let body = json!({"phone": PHONE, "code": app.code(PHONE).await, "username": name});
        assert_eq!(app.post("/api/code/verify", &body).await.invalid_fields(), ["username"]);
        app.clock.advance(Duration::minutes(10));
        let (again, _) = app.log_in(PHONE).await;
        assert_ne!(again.id, user.id, "a new account");
        assert_eq!(again.get("/api/auth/me").await.expect(200)["data"]["name"], Value::Null);
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), 1);
        again.get("/api/auth/me").await.expect(200);
    })
    .await;
}

#[tokio::test]
async fn account_deletion_requires_unused_deletion_code() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let login = app.code(PHONE).await;
        assert_eq!(
            delete(&user, &login).await.expect(401)["code"],
            "invalid_code",
            "a login code does not confirm a deletion"
        );
        app.clock.advance(Duration::minutes(10));
        let code = request_code(&user, app).await;
        let wrong = if code == "123456" { "654321" } else { "123456" };
        assert_eq!(delete(&user, wrong).await.expect(401)["code"], "invalid_code");
        assert_eq!(user.send(Method::DELETE, "/api/auth/me", Some("{}".to_owned())).await.invalid_fields(), ["code"]);
        let login = json!({"phone": PHONE, "code": code});
        app.post("/api/code/verify", &login).await.expect(401);
        let (one, two) = tokio::join!(delete(&user, &code), delete(&user, &code));
        let mut statuses = [one.status.as_u16(), two.status.as_u16()];
        statuses.sort_unstable();
        assert_eq!(statuses, [200, 401], "only one of two concurrent requests succeeds");
        let messages = app.published().await;
        assert_eq!(messages.iter().filter(|(subject, _)| subject == DELETED).count(), 1);
        let made = app.user().await;
        assert_eq!(made.send(Method::POST, "/api/auth/me/deletion", None).await.expect(409)["code"], "no_phone");
    })
    .await;
}

/// A registration locks the claim of a token, and then the device of its previous owner. A deletion in the other order could
/// deadlock with it.
#[tokio::test]
async fn account_deletion_locks_token_claims_before_devices() {
    TestApp::run(async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let body = json!({"platform": "fcm", "token": unique("token")}).to_string();
        user.send(Method::PUT, "/api/auth/devices/device-1", Some(body)).await.expect(200);
        let code = request_code(&user, app).await;
        let mut registering = platform::database::begin(app.owner()).await.expect("a transaction");
        let claim = "select token_hash from device_tokens where user_id = $1 for update";
        sqlx::query(claim).bind(user.id).fetch_one(&mut *registering).await.expect("locked");
        let registration = async {
            eventually("the deletion waits for the claim", async || {
                let waiting = "select exists (select from pg_stat_activity where datname = current_database()
                                                and wait_event_type = 'Lock' and query like '%device_tokens%')";
                sqlx::query_scalar::<_, bool>(waiting).fetch_one(&app.app.core.db).await.expect("read")
            })
            .await;
            let device = "select id from devices where user_id = $1 for update nowait";
            let locked = sqlx::query(device).bind(user.id).fetch_one(&mut *registering).await;
            registering.commit().await.expect("committed");
            locked.expect("the device is not locked");
        };
        let (deleted, ()) = tokio::join!(delete(&user, &code), registration);
        deleted.expect(200);
        app.published().await;
    })
    .await;
}

/// Finishes a deletion. Several attempts are necessary if the homeserver is slow.
async fn finish(app: &TestApp) {
    for _ in 0..12 {
        app.clock.advance(Duration::hours(1));
        if app.app.account_deletion.finish_due().await.expect("finished") == 1 {
            return;
        }
    }
    panic!("the homeserver does not redact the messages");
}

/// Sends a request to the homeserver with a chat token.
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
    let response = request.send().await.expect("a response");
    (response.status().as_u16(), response.json().await.expect("JSON"))
}

#[tokio::test]
async fn deletion_redacts_messages_and_deactivates_chat_account() {
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
        let content = json!({"msgtype": "m.text", "body": "this was me"});
        let path = format!("rooms/{room}/send/m.room.message/1");
        let (status, sent) = matrix(app, reqwest::Method::PUT, &path, token, Some(content)).await;
        assert_eq!(status, 200, "{sent}");
        let message = format!("rooms/{room}/event/{}", sent["event_id"].as_str().expect("an id"));
        let seen = matrix(app, reqwest::Method::GET, &message, others, None).await.1;
        assert_eq!(seen["content"]["body"], "this was me");

        let code = request_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        finish(app).await;
        let waiting: i64 =
            sqlx::query_scalar("select count(*) from departures").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!(waiting, 0);
        let seen = matrix(app, reqwest::Method::GET, &message, others, None).await.1;
        assert_eq!(seen["content"], json!({}), "redacted: {seen}");
        assert_eq!(matrix(app, reqwest::Method::GET, "account/whoami", token, None).await.0, 401);
        // The homeserver also pushes the leave event of the deactivated account.
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
        app.published().await;
    })
    .await;
}

/// Two users in a room, one of whom sent a message.
struct Conversation<'a> {
    user: TestUser<'a>,
    token: Value,
    others_token: Value,
    matrix_id: String,
    room: String,
    /// Path of the message on the homeserver.
    message: String,
}

async fn conversation(app: &TestApp) -> Conversation<'_> {
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
    Conversation {
        user,
        token: credentials["access_token"].clone(),
        others_token: others["matrix_credentials"]["access_token"].clone(),
        matrix_id: credentials["user_id"].as_str().expect("an id").to_owned(),
        message: format!("rooms/{room}/event/{}", sent["event_id"].as_str().expect("an id")),
        room,
    }
}

/// Deletes the account and expects the homeserver to refuse the chat token soon. No worker runs, so the request has ended the
/// devices.
async fn delete_and_expect_refusal(app: &TestApp, user: &TestUser<'_>, token: &Value) {
    let status = async || matrix(app, reqwest::Method::GET, "account/whoami", token, None).await.0;
    assert_eq!(status().await, 200);
    let code = request_code(user, app).await;
    delete(user, &code).await.expect(200);
    eventually("the token is refused", async || status().await == 401).await;
}

#[tokio::test]
async fn deletion_invalidates_chat_token_immediately() {
    TestApp::run_with_chat(&[], async |app| {
        let chat = conversation(app).await;
        delete_and_expect_refusal(app, &chat.user, &chat.token).await;
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), 0, "the rest is not due yet");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn worker_removes_chat_devices_of_deleted_accounts() {
    TestApp::run_with_chat(&[], async |app| {
        let (user, login) = app.log_in(PHONE).await;
        let token = &login["matrix_credentials"]["access_token"];
        let code = request_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        eventually("the token is refused", async || {
            matrix(app, reqwest::Method::GET, "account/whoami", token, None).await.0 == 401
        })
        .await;
        // A concurrent login created this device, and its process was killed before its second check of the session.
        let name = login["user"]["username"].as_str().expect("a name");
        let homeserver = app.app.chat.homeserver().expect("a homeserver");
        let late = homeserver.log_in(name, "LATE", "late").await.expect("a device").access_token;
        let late = json!(secrecy::ExposeSecret::expose_secret(&late));
        assert_eq!(matrix(app, reqwest::Method::GET, "account/whoami", &late, None).await.0, 200);
        app.app.account_deletion.end_due_devices().await.expect("finished");
        assert_eq!(matrix(app, reqwest::Method::GET, "account/whoami", &late, None).await.0, 401);
        let due: Option<time::OffsetDateTime> = sqlx::query_scalar("select devices_due_at from departures")
            .fetch_one(&app.app.core.db)
            .await
            .expect("read");
        assert_eq!(due, None, "not due again");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn refused_admin_token_delays_only_redaction() {
    TestApp::run_with_chat(&[("MATCHDAY_MATRIX__ADMIN_TOKEN", "not-an-admin")], async |app| {
        let chat = conversation(app).await;
        delete_and_expect_refusal(app, &chat.user, &chat.token).await;
        sqlx::query("insert into code_failures (subject, own, failures, last_failed_at) values ($1, true, 1, now())")
            .bind(format!("verify:{}", chat.user.id))
            .execute(&app.app.core.db)
            .await
            .expect("written late");
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), 0, "not redacted, so not finished");
        let fault: String =
            sqlx::query_scalar("select fault from departures").fetch_one(&app.app.core.db).await.expect("still there");
        assert!(fault.contains("admin token"), "{fault}");
        let see = async |path: &str| matrix(app, reqwest::Method::GET, path, &chat.others_token, None).await.1;
        assert_eq!(see(&chat.message).await["content"]["body"], "zwieback");
        let member = format!("rooms/{}/state/m.room.member/{}", chat.room, chat.matrix_id);
        eventually("the account is deactivated and has left the room", async || {
            see(&member).await["membership"] == "leave"
        })
        .await;
        let late: i64 = sqlx::query_scalar("select count(*) from code_failures")
            .fetch_one(&app.app.core.db)
            .await
            .expect("counted");
        assert_eq!(late, 0, "rows written late are deleted despite the failure");

        // The operator configures a valid admin token.
        let fixed = app.second(test_config(&[])).await;
        finish(&fixed).await;
        let seen = see(&chat.message).await;
        assert_eq!(seen["content"], json!({}), "redacted although the account is deactivated: {seen}");
        app.published().await;
    })
    .await;
}

/// A homeserver with a room that every user is in. Each poll of a redaction returns the state for the number of redactions
/// that were started.
async fn redacting_homeserver(state: impl Fn(usize) -> Value + Send + Sync + 'static) -> Receiver {
    let started = AtomicUsize::new(0);
    Receiver::start(move |_, received| {
        let body = match received.path.split('?').next().unwrap_or_default() {
            path if path.ends_with("/devices") => json!({"devices": []}),
            path if path.ends_with("/joined_rooms") => json!({"joined_rooms": ["!room:matchday.localhost"]}),
            path if path.ends_with("/redact") => {
                started.fetch_add(1, Relaxed);
                json!({"redact_id": "r"})
            }
            path if path.contains("/redact_status/") => state(started.load(Relaxed)),
            path if path.ends_with("/media") => json!({"deleted_media": [], "total": 0}),
            path if path.ends_with("/deactivate") => json!({"id_server_unbind_result": "success"}),
            _ => json!({}),
        };
        Reply::status(200).with("content-type", "application/json").saying(&body.to_string())
    })
    .await
}

fn redaction_is_over(is_over: bool) -> Value {
    json!({"status": if is_over { "complete" } else { "active" }, "failed_redactions": {}})
}

#[tokio::test]
async fn later_attempt_waits_for_the_same_redaction() {
    let polls = AtomicUsize::new(0);
    // One attempt polls less often.
    let homeserver = redacting_homeserver(move |_| redaction_is_over(polls.fetch_add(1, Relaxed) >= 25)).await;
    let url = homeserver.url.to_string();
    let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_MATRIX__ADMIN_TOKEN", "admin")];
    TestApp::run_with(&changes, async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let code = request_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), 0, "it is still running");
        let deactivated = |one: &Received| one.path.contains("/account/deactivate");
        assert!(homeserver.seen().iter().any(deactivated), "deactivated while the redaction is running");
        let attempts: i32 = sqlx::query_scalar("select attempts from departures")
            .fetch_one(&app.app.core.db)
            .await
            .expect("still there");
        assert_eq!(attempts, 0, "waiting is no failure");
        app.clock.advance(Duration::seconds(10));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), 1);
        let started = homeserver.seen().iter().filter(|one| one.path.ends_with("/redact")).count();
        assert_eq!(started, 1, "the redaction continued");
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn several_deletions_are_finished_at_the_same_time() {
    const PHONES: [&str; 3] = [PHONE, "+14155550143", "+14155550144"];
    // No redaction ends before all of them have started.
    let homeserver = redacting_homeserver(|started| redaction_is_over(started >= PHONES.len())).await;
    let url = homeserver.url.to_string();
    let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_MATRIX__ADMIN_TOKEN", "admin")];
    TestApp::run_with(&changes, async |app| {
        for phone in PHONES {
            let (user, _) = app.log_in(phone).await;
            user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
            let code = app.codes(phone).await.remove(0);
            delete(&user, &code).await.expect(200);
        }
        app.clock.advance(Duration::minutes(2));
        assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), PHONES.len());
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn failed_redaction_is_retried_until_it_succeeds() {
    // Outcome of each attempt, in order.
    let ends = [
        json!({"status": "failed", "error": "the database is full"}),
        json!({"status": "complete", "failed_redactions": {"$event": "forbidden"}}),
        json!({"status": "complete", "failed_redactions": {}}),
    ];
    let attempt = AtomicUsize::new(0);
    let homeserver = redacting_homeserver(move |_| ends[attempt.fetch_add(1, Relaxed)].clone()).await;
    let url = homeserver.url.to_string();
    let changes = [("MATCHDAY_MATRIX__HOMESERVER_URL", url.as_str()), ("MATCHDAY_MATRIX__ADMIN_TOKEN", "admin")];
    TestApp::run_with(&changes, async |app| {
        let (user, _) = app.log_in(PHONE).await;
        let code = request_code(&user, app).await;
        delete(&user, &code).await.expect(200);
        app.clock.advance(Duration::minutes(2));
        for (finished, fault) in [(0, "the database is full"), (0, "1 messages were not redacted"), (1, "")] {
            let before = homeserver.seen().len();
            assert_eq!(app.app.account_deletion.finish_due().await.expect("finished"), finished, "{fault}");
            let seen = homeserver.seen();
            let position = |end: &str| seen[before..].iter().position(|one| one.path.split('?').next() == Some(end));
            assert!(
                position("/_matrix/client/v3/account/deactivate").is_some(),
                "deactivated despite a failed redaction"
            );
            let faults: Vec<Option<String>> =
                sqlx::query_scalar("select fault from departures").fetch_all(&app.app.core.db).await.expect("read");
            assert_eq!(faults.len(), 1 - finished);
            assert!(faults.iter().flatten().all(|text| text.contains(fault)), "{faults:?}");
            app.clock.advance(Duration::hours(1));
        }
        app.published().await;
    })
    .await;
}

async fn restrict_for(app: &TestApp, user: &TestUser<'_>, restriction: Restriction, days: Option<u64>) {
    let length = days.map(|days| std::time::Duration::from_hours(24 * days));
    let operator = Operator::new("ola", "spam");
    app.app.moderation.restrict_for(user.id, restriction, length, &operator).await.expect("done");
}

/// Returns whether the account is banned and whether it is muted.
async fn restrictions(app: &TestApp, user: &TestUser<'_>) -> (bool, bool) {
    let account = app.app.accounts.find(user.id).await.expect("read").expect("an account");
    (account.banned_at.is_some(), account.muted_at.is_some())
}

async fn delete_account(app: &TestApp, user: &TestUser<'_>, phone: &str) {
    user.send(Method::POST, "/api/auth/me/deletion", None).await.expect(200);
    let code = app.codes(phone).await.remove(0);
    delete(user, &code).await.expect(200);
    app.clock.advance(Duration::minutes(10));
    app.app.account_deletion.finish_due().await.expect("finished");
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
        assert_eq!(kept, [None], "the hash has no link to an account");
        app.published().await;

        let (again, _) = app.log_in(PHONE).await;
        assert_ne!(again.id, user.id);
        let account = app.app.accounts.find(again.id).await.expect("read").expect("an account");
        assert_eq!((account.banned_at, account.muted_until), (None, Some(until)));
        let subjects: Vec<String> = app.published().await.into_iter().map(|(subject, _)| subject).collect();
        assert_eq!(
            subjects,
            ["fact.user.restricted", "work.chat_security.restricted"],
            "the restriction is also published for chat"
        );
        let export = again.get("/api/auth/me/export").await.expect(200);
        assert_eq!(export["data"]["restrictions"][0]["action"], "mute");
        assert!(!export.to_string().contains("\"mac\""), "{export}");

        // The mute survives further deletions until it expires.
        delete_account(app, &again, PHONE).await;
        let (third, _) = app.log_in(PHONE).await;
        assert_eq!(restrictions(app, &third).await, (false, true));
        delete_account(app, &third, PHONE).await;
        app.clock.advance(Duration::days(7));
        let (free, _) = app.log_in(PHONE).await;
        assert_eq!(restrictions(app, &free).await, (false, false));
        assert_eq!(app.app.moderation.sweep().await.expect("swept"), 1);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn lifted_mute_does_not_return_with_phone() {
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
        app.published().await;
    })
    .await;
}

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
        assert_eq!(restrictions(app, &with_old).await, (false, true), "the phone before the move");
        delete_account(app, &with_old, old).await;
        // An account that moves to a muted phone is muted too.
        let (other, _) = app.log_in(third).await;
        assert_eq!(restrictions(app, &other).await, (false, false));
        move_to(app, &other, old).await;
        assert_eq!(restrictions(app, &other).await, (false, true));
        let (fresh, _) = app.log_in(third).await;
        assert_eq!(restrictions(app, &fresh).await, (false, false), "the account left this phone before the mute");
        // The account cannot be deleted while the move can be undone.
        app.clock.advance(Duration::hours(72));
        delete_account(app, &user, new).await;
        let (with_new, _) = app.log_in(new).await;
        assert_eq!(restrictions(app, &with_new).await, (false, true), "the phone at deletion");
        app.published().await;
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
        app.published().await;
        let body = json!({"phone": PHONE, "code": app.code(PHONE).await});
        let refused = app.post("/api/code/verify", &body).await.expect(403);
        assert_eq!(
            (&refused["code"], &refused["suspended_until"]),
            (&json!("account_suspended"), &json!("2026-11-22T15:10:00.000Z"))
        );
        assert!(app.published().await.is_empty(), "no account was created");
        restrict_for(app, &user, Restriction::Unban, None).await;
        app.post("/api/code/verify", &body).await.expect(200);
        app.published().await;
    })
    .await;
}

fn ending(answer: Option<&str>) -> Ending {
    Ending {
        resolution: Resolution::SenderMuted,
        answer: answer.map(|answer| answer.parse().expect("an answer")),
        scope: Scope::One,
        others_claim: OthersClaim::Respect,
    }
}

#[tokio::test]
async fn answer_is_exported_and_deleted_with_reporter() {
    TestApp::run_with_chat(&[], async |app| {
        let chat = conversation(app).await;
        let (reporter, _) = app.log_in("+14155550179").await;
        let event = chat.message.rsplit('/').next().expect("an id");
        let path = format!("/api/auth/chat-rooms/{}/reports", chat.room);
        reporter.post(&path, json!({"event_id": event, "reason": "insults"})).await.expect(201);
        let open = app.app.console.reports("", &ReportFilter::default()).await.expect("read").listed.rows;
        let operator = Operator::new("ola", "second warning");
        let thanks = ending(Some("Thank you for the report."));
        app.app.reports.close(open[0].id, &operator, &thanks).await.expect("closed");

        let export = reporter.get("/api/auth/me/export").await.expect(200).to_string();
        assert!(export.contains("insults") && export.contains("Thank you for the report."), "{export}");
        for hidden in ["ola", "second warning", "sender_muted", "zwieback"] {
            assert!(!export.contains(hidden), "{hidden}: {export}");
        }
        let export = chat.user.get("/api/auth/me/export").await.expect(200).to_string();
        assert!(!export.contains("insults") && !export.contains("Thank you"), "a report about the user: {export}");
        delete_account(app, &reporter, "+14155550179").await;
        assert!(search(&app.app.core.db, "Thank you for the report").await.is_empty());
        delete_account(app, &chat.user, PHONE).await;
        assert!(search(&app.app.core.db, "zwieback").await.is_empty());
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn open_report_keeps_evidence_of_deleted_sender_until_closed() {
    TestApp::run_with_chat(&[], async |app| {
        let chat = conversation(app).await;
        let (reporter, _) = app.log_in("+14155550179").await;
        let event = chat.message.rsplit('/').next().expect("an id");
        let insult = json!({"event_id": event, "reason": "insults"});
        reporter.post(&format!("/api/auth/chat-rooms/{}/reports", chat.room), insult.clone()).await.expect(201);
        let (second, _) = app.log_in("+14155550180").await;
        second.post(&format!("/api/auth/chat-rooms/{}/reports", chat.room), insult).await.expect(201);
        delete_account(app, &chat.user, PHONE).await;

        let open = app.app.console.reports("", &ReportFilter::default()).await.expect("read").listed.rows;
        assert_eq!(open.len(), 2);
        for report in &open {
            assert_eq!(report.sender.as_deref(), Some(chat.matrix_id.as_str()));
            assert!(report.content.as_ref().is_some_and(|content| content.contains("zwieback")), "{report:?}");
        }
        app.app.reports.close(open[0].id, &Operator::new("ola", "warned"), &ending(None)).await.expect("closed");
        let left = async || -> Vec<(Option<String>, Option<String>)> {
            let rows =
                sqlx::query_as("select sender, content from reports order by id").fetch_all(&app.app.core.db).await;
            rows.expect("read")
        };
        let rows = left().await;
        assert_eq!(rows[0], (None, None), "erased when the report is closed");
        assert!(rows[1].0.is_some() && rows[1].1.is_some());
        // The other report stays open. Its evidence is erased after thirty days.
        app.clock.advance(Duration::days(29));
        app.app.reports.sweep().await.expect("swept");
        assert!(left().await[1].0.is_some());
        app.clock.advance(Duration::days(1));
        app.app.reports.sweep().await.expect("swept");
        assert_eq!(left().await[1], (None, None));
        assert!(search(&app.app.core.db, "zwieback").await.is_empty());
        app.published().await;
    })
    .await;
}
