//! Output of the commands for operators.

use matchday::testing::with_database;
use serde_json::{Value, json};

use crate::process::Setting;

#[tokio::test]
async fn invalid_settings_are_listed() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .with("MATCHDAY_HTTP__LISTEN", "8080")
            .with("MATCHDAY_REDIS__TIMEOUT", "2")
            .with("MATCHDAY_SESSIONS__IDEL", "1d")
            .without("MATCHDAY_NATS__URL");
        let output = setting.run(&["serve"], "");
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "matchday: the settings have 4 faults:
  http.listen (from MATCHDAY_HTTP__LISTEN): `8080` is not an address with a port, like 127.0.0.1:8080
  redis.timeout (from MATCHDAY_REDIS__TIMEOUT): `2` is not a duration with a unit, like 500ms, 10s, 5m, 12h or 30d
  nats.url is not set: add it to the file or set MATCHDAY_NATS__URL; it must be a URL with a host, like scheme://user:password@host:1234
  MATCHDAY_SESSIONS__IDEL is not a known variable: did you mean MATCHDAY_SESSIONS__IDLE?
"
        );
    })
    .await;
}

#[tokio::test]
async fn outdated_database_error_names_the_fix() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        assert_eq!(setting.expect(&["migrate", "status"], ""), "the database is up to date");
        assert_eq!(setting.expect(&["migrate", "down", "--all"], ""), "the database is at migration 0");
        let output = setting.run(&["serve"], "");
        assert_eq!(output.status.code(), Some(1));
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(printed.contains("run `matchday migrate`"), "{printed}");
        assert!(setting.expect(&["migrate"], "").starts_with("applied "));
        assert_eq!(setting.expect(&["migrate"], ""), "applied 0 migrations");
        setting.expect(&["migrate", "down"], "");
        assert_eq!(setting.expect(&["migrate"], ""), "applied 1 migration");
    })
    .await;
}

#[tokio::test]
async fn prints_settings_and_openapi() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_DATABASE__URL", "postgres://md:hunter2@db.example.org/md");
        let settings = setting.expect(&["config"], "");
        assert!(settings.starts_with("# MATCHDAY_ENV is testing"), "{settings}");
        assert!(
            settings.contains("(MATCHDAY_DATABASE__URL)\nurl = \"postgres://md:hidden@db.example.org/md\""),
            "{settings}"
        );
        assert!(!settings.contains("hunter2"));
        let api: Value = serde_json::from_str(&setting.expect(&["openapi"], "")).expect("JSON");
        assert_eq!(api["openapi"], "3.1.0");
    })
    .await;
}

#[tokio::test]
async fn tokens_are_issued_in_development_only() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        assert!(setting.expect(&["sessions", "issue"], "").starts_with("md_1_"));
        assert!(setting.expect(&["sessions", "issue", "--user", "1"], "").starts_with("md_1_"));
        for env in ["staging", "production", "Local"] {
            let output = setting.clone().with("MATCHDAY_ENV", env).run(&["sessions", "issue"], "");
            assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{env}");
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_document_is_refused_with_every_fault() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        let output = setting.run(
            &["fixtures", "import", "-"],
            "{\"sport\": {\"slug\": \"football\", \"name\": \"\"}, \"teams\": [], \"matches\": [3]}",
        );
        assert_eq!(output.status.code(), Some(1));
        assert_eq!(
            String::from_utf8_lossy(&output.stderr),
            "matchday: nothing was imported: the document has 3 faults:
  sport.name: must be a string of 1 to 100 characters, not \"\"
  tournament: is missing
  matches[0]: must be an object
"
        );
        let missing = setting.run(&["fixtures", "import", "/nowhere.json"], "");
        assert!(String::from_utf8_lossy(&missing.stderr).starts_with("matchday: /nowhere.json: "));
    })
    .await;
}

#[tokio::test]
async fn operator_lists_and_lifts_sms_limits() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        assert_eq!(setting.expect(&["sms", "closed"], ""), "no network, block or country is limited");
        let db = sqlx::PgPool::connect_with(options.clone()).await.expect("connected");
        sqlx::query("insert into sms_closures values ('GB', now(), '2999-01-01T00:00:00Z', 40, 3, 1, 5)")
            .execute(&db)
            .await
            .expect("closed");
        assert_eq!(
            setting.expect(&["sms", "closed"], ""),
            "GB: 3 of 40 phones verified; new phones get 5 codes an hour until 2999-01-01T00:00:00Z"
        );
        let open = ["sms", "open", "GB", "--by", "ola", "--reason", "a slow carrier"];
        assert_eq!(setting.expect(&open, ""), "limit of GB lifted");
        let recorded: Vec<(String, String, String, String, Option<String>)> =
            sqlx::query_as("select operator, action, target, reason, request_id from operator_actions")
                .fetch_all(&db)
                .await
                .expect("the record");
        let [operator, action, target, reason] = ["ola", "sms.open", "sms:GB", "a slow carrier"].map(str::to_owned);
        assert_eq!(recorded, [(operator, action, target, reason, None)]);
        let again = setting.run(&["sms", "open", "GB"], "");
        assert!(!again.status.success());
        assert_eq!(
            String::from_utf8_lossy(&again.stderr).trim(),
            "matchday: GB is not limited: `matchday sms closed` lists the limited prefixes"
        );
        db.close().await;
    })
    .await;
}

/// Error output of a command that must fail.
fn refused(setting: &Setting, arguments: &[&str]) -> String {
    let output = setting.run(arguments, "");
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{arguments:?}");
    String::from_utf8_lossy(&output.stderr).trim().to_owned()
}

#[tokio::test]
async fn operator_bans_and_mutes_by_id_or_name() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        setting.expect(&["sessions", "issue"], "");
        let db = sqlx::PgPool::connect_with(options.clone()).await.expect("connected");
        let name: String = sqlx::query_scalar("select username from users").fetch_one(&db).await.expect("read");
        for (command, user, done, already) in [
            ("ban", "1", "banned", "already banned"),
            ("mute", name.as_str(), "muted", "already muted"),
            ("unban", &name.to_uppercase(), "no longer banned", "not banned"),
            ("unmute", "1", "no longer muted", "not muted"),
        ] {
            let arguments = ["users", command, user, "--reason", "spam", "--by", "ola"];
            assert_eq!(
                setting.expect(&arguments, ""),
                format!("{user} (user 1) is {done}; workers apply it on the homeserver")
            );
            assert_eq!(refused(&setting, &arguments), format!("matchday: {user} (user 1) is {already}"));
        }
        for unknown in ["2", "nobody_here"] {
            let printed = refused(&setting, &["users", "ban", unknown, "--reason", "spam"]);
            assert_eq!(printed, format!("matchday: {unknown}: the user does not exist"));
        }
        let without_reason = setting.run(&["users", "ban", "1"], "");
        assert_eq!(without_reason.status.code(), Some(2));
        let kept: Vec<(String, String, String)> =
            sqlx::query_as("select action, reason, operator from restrictions order by id")
                .fetch_all(&db)
                .await
                .expect("read");
        let one = |action: &str| (action.to_owned(), "spam".to_owned(), "ola".to_owned());
        assert_eq!(kept, ["ban", "mute", "unban", "unmute"].map(one));
        db.close().await;
    })
    .await;
}

#[tokio::test]
async fn users_show_prints_an_account() {
    with_database(async |options| {
        let setting = Setting::new(&options).with("MATCHDAY_MATRIX__HOMESERVER_URL", "");
        setting.expect(&["sessions", "issue"], "");
        let db = sqlx::PgPool::connect_with(options.clone()).await.expect("connected");
        let name: String =
            sqlx::query_scalar("update users set name = E'Ada\\x1b[2J', phone = '+491701234589' returning username")
                .fetch_one(&db)
                .await
                .expect("changed");
        for command in ["ban", "unban", "mute"] {
            setting.expect(&["users", command, "1", "--reason", "insults", "--by", "ola"], "");
        }
        let printed = setting.expect(&["users", "show", &name.to_uppercase()], "");
        assert_eq!(printed, setting.expect(&["users", "show", "1"], ""));
        for line in [
            format!("{name} (user 1)"),
            "  username  generated by the service".to_owned(),
            "  name      Ada [2J".to_owned(),
            "  phone     +49…89".to_owned(),
            "  chat      no account".to_owned(),
            "  coins     100".to_owned(),
            "  reports about the user, latest first:".to_owned(),
        ] {
            assert!(printed.lines().any(|found| found == line), "{line} is not in\n{printed}");
        }
        let has = |start: &str, end: &str| printed.lines().any(|line| line.starts_with(start) && line.ends_with(end));
        assert!(has("  state     muted since ", " UTC until lifted (insults)"), "{printed}");
        assert!(has("  sessions  1, last used ", " UTC"), "{printed}");
        assert!(has("    20", " UTC ban by ola: insults") && has("    20", " UTC mute by ola: insults"), "{printed}");
        assert!(!printed.contains("1701234589") && !printed.contains('\u{1b}'), "{printed}");
        // The full phone number requires a reason, which is recorded.
        assert_eq!(setting.run(&["users", "show", "1", "--phone"], "").status.code(), Some(2));
        let printed = setting.expect(&["users", "show", "1", "--phone", "--reason", "court order", "--by", "ola"], "");
        assert!(printed.contains("\n  phone     +491701234589\n"), "{printed}");
        let recorded: Vec<(String, String, String, String)> =
            sqlx::query_as("select action, target, operator, reason from operator_actions where action = 'user.phone'")
                .fetch_all(&db)
                .await
                .expect("read");
        assert_eq!(
            recorded,
            [("user.phone", "user:1", "ola", "court order")]
                .map(|(a, b, c, d)| { (a.to_owned(), b.to_owned(), c.to_owned(), d.to_owned()) })
        );
        assert_eq!(refused(&setting, &["users", "show", "2"]), "matchday: 2: the user does not exist");
        db.close().await;
    })
    .await;
}

#[tokio::test]
async fn operator_lists_and_closes_reports() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        assert_eq!(setting.expect(&["reports", "list"], ""), "no open reports");
        setting.expect(&["sessions", "issue"], "");
        let db = sqlx::PgPool::connect_with(options.clone()).await.expect("connected");
        // Reports may contain control sequences for the operator's terminal.
        for statement in [
            "insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at)
             values ('!derby:example.org', 'room_derby', E'Derby\x1b[2J', 1, now(), now(), now())",
            "insert into reports (user_id, room_id, event_id, reason, sender, content, created_at)
             values (1, 1, '$one', E'insults\n9 closed', '@ben:example.org', '{\"body\":\"a bad word\"}', '2026-11-20T15:00:00.5Z'),
                    (1, 1, '$two', 'spam', null, null, '2026-11-20T15:01:00Z')",
        ] {
            sqlx::query(statement).execute(&db).await.expect("written");
        }
        let name: String = sqlx::query_scalar("select username from users").fetch_one(&db).await.expect("read");
        let second = format!(
            "2 2026-11-20T15:01:00Z by {name} in \"Derby [2J\": spam\n    $two (sender unknown) (content unknown: the homeserver was unavailable)"
        );
        assert_eq!(
            setting.expect(&["reports", "list"], ""),
            format!(
                "1 2026-11-20T15:00:00Z by {name} in \"Derby [2J\": insults 9 closed\n    $one @ben:example.org {{\"body\":\"a bad word\"}}\n{second}"
            )
        );
        let claim = ["reports", "claim", "1", "--by", "ola"];
        let claimed = setting.expect(&claim, "");
        assert!(claimed.starts_with("report 1 is claimed until "), "{claimed}");
        let close = ["reports", "close", "1", "--resolution", "sender_banned", "--reason", "ben\x1b insulted"];
        let of_ola = refused(&setting, &close);
        assert!(of_ola.starts_with("matchday: report 1 is claimed by ola until "), "{of_ola}");
        assert_eq!(refused(&setting, &["reports", "release", "1"]), of_ola);
        assert_eq!(setting.expect(&["reports", "release", "1", "--by", "ola"], ""), "report 1 is released");
        let unknown = setting.run(&["reports", "close", "1", "--resolution", "banned", "--reason", "x"], "");
        assert_eq!(unknown.status.code(), Some(2));
        assert!(String::from_utf8_lossy(&unknown.stderr).contains("sender_banned"), "the resolutions are listed");
        let answered = [&close[..], &["--answer", "Thank you.", "--all"]].concat();
        assert_eq!(setting.expect(&answered, ""), "report 1 is closed");
        let refusal = "matchday: report 1 is not open: `matchday reports list` lists the open ones";
        assert_eq!(refused(&setting, &close), refusal);
        assert_eq!(setting.expect(&["reports", "list"], ""), second);
        assert_eq!(setting.expect(&["reports", "list", "--search", "insults"], ""), "no open reports match");
        let closed = setting.expect(&["reports", "list", "--closed", "--search", "bad word", "--json"], "");
        let closed: Value = serde_json::from_str(&closed).expect("JSON");
        assert_eq!(
            (&closed[0]["id"], &closed[0]["resolution"], &closed[0]["answer"], &closed[0]["closed_by"]),
            (&json!(1), &json!("sender_banned"), &json!("Thank you."), &json!("the command line"))
        );
        let shown = setting.expect(&["reports", "show", "1"], "");
        assert!(shown.contains("sender_banned, ben  insulted") && shown.contains("answer: Thank you."), "{shown}");
        assert_eq!(refused(&setting, &["reports", "show", "7"]), "matchday: report 7 does not exist");
        db.close().await;
    })
    .await;
}
