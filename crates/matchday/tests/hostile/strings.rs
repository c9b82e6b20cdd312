//! Hostile strings in every input of every operation: strings that break careless SQL, logs, formats, paths, templates
//! and text handling.
//!
//! The inputs are read from the OpenAPI description, so that no endpoint can be forgotten. No string may make the
//! service fail, return an undocumented response, lose a table, or forge a log line.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt::Write as _,
    time::Duration,
};

use matchday::testing::{unique, with_database};
use serde_json::{Value, json};
use sqlx::PgPool;

use crate::{
    client::Client,
    process::{Process, Setting},
    proof::held,
};

/// Each string with its JSON form, because some strings can only be written with JSON escapes.
fn hostile_strings() -> Vec<(String, String)> {
    let plain = [
        "'; drop table users; --",
        "' or '1'='1",
        "1; select pg_sleep(20)",
        "\\'; truncate events cascade; --",
        "$$; drop schema public cascade; $$",
        "1 union select token from sessions",
        "%' and 1=1 --",
        "line\n{\"level\":\"INFO\",\"message\":\"forged\"}",
        "line\r\nSet-Cookie: forged=1",
        "\u{1b}[31mred\u{1b}[0m\u{1b}]0;title\u{7}",
        "\",\"level\":\"FATAL\",\"x\":\"",
        "}{\"a\":",
        "\u{0}",
        "before\u{0}after",
        "%s%s%s%n%x",
        "{} {0} {:?} {{}}",
        "../../../../etc/passwd",
        "..\\..\\windows\\win.ini",
        "/etc/passwd\u{0}.json",
        "file:///etc/passwd",
        "http://169.254.169.254/latest/meta-data",
        "{{7*7}}${7*7}<%= 7*7 %>#{7*7}",
        "${jndi:ldap://x/a}",
        "<script>alert(1)</script>",
        "$(reboot)`reboot`|reboot;reboot",
        "\u{202e}txt.exe\u{202d}",
        "\u{200b}\u{200c}\u{200d}\u{feff}",
        "e\u{301}\u{301}\u{301}",
        "\u{1f468}\u{200d}\u{1f469}\u{200d}\u{1f467}\u{1f3ff}",
        "\u{10ffff}\u{fffe}\u{ffff}",
        "\u{130}\u{131}\u{212a}\u{17f}\u{df}",
        "\u{ff11}\u{ff12}\u{661}\u{662}",
        "!*:x",
        "0",
        "-1",
        "9223372036854775808",
        "1e309",
        "NaN",
        "0x10",
        "null",
        "true",
        "[]",
        " ",
        "",
    ];
    let mut all: Vec<(String, String)> =
        plain.iter().map(|text| ((*text).to_owned(), Value::from(*text).to_string())).collect();
    all.push(("a".repeat(5_000), Value::from("a".repeat(40_000)).to_string()));
    all.push(("\u{1f4a5}".repeat(1_000), Value::from("\u{1f4a5}".repeat(10_000)).to_string()));
    all.push(("%00%0a%0d".to_owned(), Value::from("x".repeat(70_000)).to_string()));
    // Lone surrogates, which JSON can express and UTF-8 cannot, and bytes that are not valid UTF-8.
    for (wild, escaped) in [("%ED%A0%80", "\"\\ud800\""), ("%ff%fe", "\"a\\udfffb\""), ("%C0%AF", "\"\\ud800\\ud800\"")]
    {
        all.push((wild.to_owned(), escaped.to_owned()));
    }
    all
}

/// Whether every input gets all strings, as in the nightly run.
fn sends_all_strings() -> bool {
    std::env::var_os("HOSTILE_STRINGS").is_some()
}

/// Percent-encodes every byte of a text, including unreserved characters.
fn encoded(text: &str) -> String {
    // Keep text that is already percent-encoded.
    if text.starts_with('%') && text.len() < 12 && text.len().is_multiple_of(3) {
        return text.to_owned();
    }
    text.bytes().fold(String::new(), |mut url, byte| {
        let _ = write!(url, "%{byte:02X}");
        url
    })
}

/// The OpenAPI description; `follow` resolves its references.
struct Description(Value);

impl Description {
    fn follow<'a>(&'a self, mut value: &'a Value) -> &'a Value {
        while let Some(reference) = value["$ref"].as_str() {
            value = self.0.pointer(reference.trim_start_matches('#')).expect("a resolvable reference");
        }
        value
    }

    /// A value that matches the schema: its example, or a minimal value.
    fn valid(&self, schema: &Value) -> Value {
        let schema = self.follow(schema);
        if let Some(example) = schema.get("example") {
            return example.clone();
        }
        if let Some(first) = schema["oneOf"].get(0).or_else(|| schema["enum"].get(0)) {
            return if schema["enum"].is_array() { first.clone() } else { self.valid(first) };
        }
        match schema["type"].as_str().or_else(|| schema["type"][0].as_str()) {
            Some("object") => {
                let properties = schema["properties"].as_object().into_iter().flatten();
                Value::Object(properties.map(|(name, inner)| (name.clone(), self.valid(inner))).collect())
            }
            Some("array") => json!([self.valid(&schema["items"])]),
            Some("integer" | "number") => json!(1),
            Some("boolean") => json!(false),
            _ => json!("text"),
        }
    }

    /// Collects JSON pointers to all scalars and arrays in a valid body.
    fn places(value: &Value, at: &str, found: &mut Vec<String>) {
        match value {
            Value::Object(fields) => {
                fields.iter().for_each(|(name, inner)| Self::places(inner, &format!("{at}/{name}"), found));
            }
            Value::Array(items) => {
                found.push(at.to_owned());
                items
                    .iter()
                    .enumerate()
                    .for_each(|(place, inner)| Self::places(inner, &format!("{at}/{place}"), found));
            }
            _ => found.push(at.to_owned()),
        }
    }
}

/// A request with one hostile string.
struct Attempt {
    path: String,
    headers: Vec<(String, Vec<u8>)>,
    body: Option<String>,
    place: String,
}

/// Placeholder in a body for the JSON form of the hostile string.
const MARK: &str = "\u{1}here\u{1}";

fn attempts(api: &Description, path: &str, operation: &Value) -> Vec<Attempt> {
    let parameters: Vec<&Value> =
        operation["parameters"].as_array().into_iter().flatten().map(|parameter| api.follow(parameter)).collect();
    let text = |value: Value| value.as_str().map_or_else(|| value.to_string(), str::to_owned);
    let path_with = |hostile: Option<(&str, &str)>| {
        parameters.iter().filter(|parameter| parameter["in"] == "path").fold(path.to_owned(), |path, parameter| {
            let name = parameter["name"].as_str().expect("a name");
            let filled = match hostile {
                Some((place, value)) if place == name => encoded(value),
                _ => encoded(&text(api.valid(&parameter["schema"]))),
            };
            path.replace(&format!("{{{name}}}"), &filled)
        })
    };
    let content =
        api.follow(&operation["requestBody"])["content"].as_object().and_then(|content| content.iter().next());
    let valid = content.map(|(kind, inner)| (kind.clone(), api.valid(&inner["schema"])));
    let plain_body = valid.as_ref().map(|(_, body)| body.to_string());
    let kind = valid.as_ref().map(|(kind, _)| ("content-type".to_owned(), kind.clone().into_bytes()));
    let mut all = Vec::new();
    let mut add = |place: String, path: String, headers: Vec<(String, Vec<u8>)>, body: Option<String>| {
        all.push(Attempt { path, headers: kind.clone().into_iter().chain(headers).collect(), body, place });
    };
    // All strings together take minutes, so regular runs send a quarter of them, a different quarter per operation.
    let turn = path.len();
    let chosen = hostile_strings().into_iter().enumerate();
    for (url, escaped) in
        chosen.filter(|(number, _)| sends_all_strings() || (number + turn).is_multiple_of(4)).map(|(_, text)| text)
    {
        for parameter in &parameters {
            let name = parameter["name"].as_str().expect("a name");
            match parameter["in"].as_str() {
                // An empty path segment makes a different path.
                Some("path") if !url.is_empty() => {
                    add(name.to_owned(), path_with(Some((name, &url))), vec![], plain_body.clone());
                }
                Some("query") => {
                    add(
                        name.to_owned(),
                        format!("{}?{name}={}", path_with(None), encoded(&url)),
                        vec![],
                        plain_body.clone(),
                    );
                }
                Some("header") => {
                    add(
                        name.to_owned(),
                        path_with(None),
                        vec![(name.to_owned(), url.clone().into_bytes())],
                        plain_body.clone(),
                    );
                }
                _ => {}
            }
        }
        // Headers that every operation reads and none documents, all in one request.
        let read_by_all =
            ["accept-language", "x-forwarded-for", "x-request-id", "user-agent", "if-none-match", "traceparent"];
        let headers = read_by_all.map(|name| (name.to_owned(), url.clone().into_bytes()));
        add("headers".to_owned(), path_with(None), headers.to_vec(), plain_body.clone());
        if let Some((kind, body)) = &valid {
            if kind != "application/json" {
                add("the whole body".to_owned(), path_with(None), vec![], Some(url.clone()));
                continue;
            }
            let mut places = vec![];
            Description::places(body, "", &mut places);
            for place in places {
                let mut changed = body.clone();
                if let Some(there) = changed.pointer_mut(&place) {
                    *there = json!(MARK);
                }
                let changed = changed.to_string().replace(&json!(MARK).to_string(), &escaped);
                add(place, path_with(None), vec![], Some(changed));
            }
        }
    }
    all
}

async fn counts(database: &PgPool) -> BTreeMap<String, i64> {
    let tables: Vec<String> = sqlx::query_scalar("select tablename::text from pg_tables where schemaname = 'public'")
        .fetch_all(database)
        .await
        .expect("read");
    let mut counts = BTreeMap::new();
    for table in tables {
        let count = sqlx::query_scalar(sqlx::AssertSqlSafe(format!("select count(*) from \"{table}\"")));
        counts.insert(table, count.fetch_one(database).await.expect("counted"));
    }
    counts
}

/// Sends the request; returns the status, or `None` if HTTP does not allow the value of a header.
async fn send(web: &reqwest::Client, process: &Process, method: &str, token: &str, attempt: &Attempt) -> Option<u16> {
    let method = method.to_uppercase().parse().expect("a method");
    let mut request = web.request(method, format!("{}{}", process.public, attempt.path)).bearer_auth(token);
    for (name, value) in &attempt.headers {
        request = request.header(name, http::HeaderValue::from_bytes(value).ok()?);
    }
    if let Some(body) = &attempt.body {
        request = request.body(body.clone());
    }
    let shown = || format!("{} with a hostile {}", attempt.path.chars().take(200).collect::<String>(), attempt.place);
    let answer = request.send().await.unwrap_or_else(|error| panic!("{}: {error:?}", shown()));
    let status = answer.status().as_u16();
    let kind = answer.headers().get("content-type").and_then(|kind| kind.to_str().ok()).unwrap_or_default().to_owned();
    assert!(answer.headers().get("set-cookie").is_none(), "{}: a header was forged", shown());
    let body = answer.bytes().await.expect("a complete response");
    if status == 304 {
        return Some(status);
    }
    if kind == "text/event-stream" {
        let words = std::str::from_utf8(&body).unwrap_or_else(|error| panic!("{}: {error}", shown()));
        assert!(status == 200 && words.starts_with("id: "), "{}: {status} {words}", shown());
        return Some(status);
    }
    assert_eq!(kind, "application/json", "{}: {status}", shown());
    let body: Value = serde_json::from_slice(&body).unwrap_or_else(|error| panic!("{}: {error}", shown()));
    assert!(status < 500, "{}: {status} {body}", shown());
    if status >= 400 {
        assert!(body["message"].is_string() && body["code"].is_string(), "{}: {status} {body}", shown());
    }
    Some(status)
}

#[tokio::test(flavor = "multi_thread")]
async fn hostile_strings_break_no_operation() {
    with_database(async |options| {
        let setting = Setting::new(&options)
            .with("MATCHDAY_LOG__REQUESTS", "all")
            // Live streams do not end otherwise.
            .with("MATCHDAY_STREAM__LIFETIME", "20ms")
            .with("MATCHDAY_LOG__FILTER", "info,matchday=debug,sqlx=warn")
            // This test does not measure latency.
            .with("MATCHDAY_HTTP__DEADLINE", "60s")
            .with("MATCHDAY_MATRIX__TIMEOUT", "20s");
        let process = setting.start(&["serve"]);
        let fixtures = include_str!("../../../../docs/example-fixtures.json");
        setting.expect(&["fixtures", "import", "-"], fixtures);
        // A new connection for each request: the service closes a connection whose request it refused before the body
        // arrived.
        let web = reqwest::Client::builder().redirect(reqwest::redirect::Policy::none()).pool_max_idle_per_host(0);
        let web = web.timeout(Duration::from_mins(1));
        let web = web.build().expect("a client");
        let api = web.get(format!("{}/api/openapi.json", process.public)).send().await.expect("a response");
        let api = Description(api.json().await.expect("a description"));
        let database = PgPool::connect_with(options.clone()).await.expect("connected");
        let before = counts(&database).await;

        let (client, mut users) = (Client::new(&process), 0);
        let (mut sent, mut places, mut statuses) = (0, BTreeSet::new(), BTreeMap::<u16, u32>::new());
        for (path, item) in api.0["paths"].as_object().expect("paths") {
            for (method, operation) in item.as_object().expect("operations") {
                // A separate user for each operation, because one of them ends the session and others empty the wallet.
                // The username is unique, because other tests use the same homeserver.
                users += 1;
                let phone = format!("+1201555{users:04}");
                let token = client.log_in(&phone, Some(&unique("fan"))).await.token;
                // Concurrent requests for credentials replace each other, and all but one are refused.
                let at_once = if path.ends_with("/matrix-credentials") { 1 } else { 8 };
                let documented = operation["responses"].as_object().expect("responses");
                let attempts = attempts(&api, path, operation);
                for some in attempts.chunks(at_once) {
                    let answered =
                        futures_util::future::join_all(some.iter().map(|one| send(&web, &process, method, &token, one)));
                    for (attempt, status) in some.iter().zip(answered.await) {
                        let Some(status) = status else { continue };
                        sent += 1;
                        places.insert(format!("{method} {path} {}", attempt.place));
                        *statuses.entry(status).or_default() += 1;
                        let shown = attempt.body.as_deref().unwrap_or_default().chars().take(200).collect::<String>();
                        assert!(
                            documented.contains_key(&status.to_string()),
                            "{method} {path}: {status} is not documented; hostile {}: {} {shown}",
                            attempt.place,
                            attempt.path.chars().take(200).collect::<String>(),
                        );
                    }
                }
            }
        }

        let after = counts(&database).await;
        assert!(before.keys().eq(after.keys()), "tables were created or dropped");
        for table in ["sports", "tournaments", "teams", "events"] {
            assert_eq!(before[table], after[table], "rows of {table}");
        }
        assert!(before["users"] <= after["users"] && before["sessions"] <= after["sessions"]);
        let log = process.log();
        for line in &log {
            let read: Result<Value, _> = serde_json::from_str(line);
            assert!(read.is_ok_and(|line| line["message"].is_string() && line["level"] != "FATAL"), "not a regular log line: {line}");
            assert!(!line.contains(char::is_control), "contains a control character: {line:?}");
        }
        assert!(log.len() > sent, "every request has a log line");
        database.close().await;
        let statuses: Vec<String> = statuses.iter().map(|(status, count)| format!("{count} × {status}")).collect();
        held("Hostile strings (SQL, logs, formats, paths, templates, odd text) in every parameter, header and field of every operation",
            &format!(
                "{sent} requests with {} strings{} in {} places; responses: {}; each as documented, none 5xx; no table or catalogue row lost; {} log lines, each one line of JSON",
                hostile_strings().len(),
                if sends_all_strings() { "" } else { " (a quarter of them per operation)" },
                places.len(),
                statuses.join(", "),
                log.len()
            ),
        );
    })
    .await;
}
