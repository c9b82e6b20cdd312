//! Secrets never reach the database or the log.

use std::{
    path::Path,
    process::Command,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use axum::{Json, Router, body::Bytes, extract::State, routing::post};
use http::{HeaderMap, Method, StatusCode, header};
use matchday::testing::with_database;
use platform::stream::Stream;
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, Connection as _, PgConnection, postgres::PgConnectOptions};
use tokio::net::TcpListener;

use crate::{
    client::{Client, Person, person},
    process::{Process, Setting},
    relay::streams,
    synapse::with_synapse,
};

/// Secrets and phone numbers of a run.
#[derive(Default)]
struct Secrets {
    codes: Vec<String>,
    /// Wrong codes. A user may type a code of another service, so these are secret too.
    guesses: Vec<String>,
    /// Tokens and keys, long enough not to occur by chance.
    texts: Vec<String>,
    phones: Vec<String>,
}

impl Secrets {
    /// Secrets from the settings.
    fn of(setting: &Setting) -> Self {
        let keys = ["MATRIX__AS_TOKEN", "CODES__KEYS", "SMS__TWILIO_AUTH_TOKEN"];
        let values = keys.iter().filter_map(|key| setting.variables().get(&format!("MATCHDAY_{key}")));
        // Keys of codes are prefixed with their version.
        let texts = values.map(|value| value.rsplit(':').next().unwrap_or(value).to_owned()).collect();
        Self { texts, ..Self::default() }
    }

    fn chat(&mut self, credentials: &Value) {
        self.texts.push(credentials["access_token"].as_str().expect("chat credentials").to_owned());
    }

    fn logged_in(&mut self, phone: &str, answer: &Value) -> Person {
        let one = person(phone, answer);
        self.texts.push(one.token.clone());
        self.chat(&one.chat);
        one
    }

    /// Occurrences of codes and tokens in a text.
    fn found_in(&self, text: &str) -> Vec<String> {
        // The letter of an escape sequence such as `\n` must not count as a letter next to a code.
        let text = text.replace("\\n", "  ").replace("\\r", "  ").replace("\\t", "  ");
        let typed = || self.codes.iter().chain(&self.guesses);
        let codes = typed().filter_map(|code| {
            let at =
                text.match_indices(code).map(|(at, _)| at).find(|&at| is_separate_number(&text, at, code.len()))?;
            Some(around(&text, at))
        });
        // Also in hexadecimal, as PostgreSQL prints bytes.
        let hidden = typed().chain(&self.texts).map(hex::encode);
        let texts = self.texts.iter().cloned().chain(hidden).chain(["syt_".to_owned()]);
        let texts = texts.filter_map(|secret| text.find(&secret).map(|at| around(&text, at)));
        codes.chain(texts).collect()
    }

    /// Occurrences of phone numbers in a text, with or without their calling code.
    fn phones_in(&self, text: &str) -> Vec<String> {
        let national = self.phones.iter().map(|phone| &phone[phone.len() - 10..]);
        national.filter_map(|digits| text.find(digits).map(|at| around(text, at))).collect()
    }
}

/// Whether digits form a separate number. The six digits of a code also occur by chance in a fraction of a second or in
/// a hash: such a place has a digit or a decimal point next to it, or is part of a long run of letters and digits. The
/// remaining risk is that another number of exactly six digits equals a code: one in a million for each pair, and there
/// are hardly any such numbers.
fn is_separate_number(text: &str, at: usize, length: usize) -> bool {
    let (before, after) = (&text[..at], &text[at + length..]);
    let (mut left, mut right) = (before.chars().rev(), after.chars());
    let (near_left, near_right) = (left.next().unwrap_or(' '), right.next().unwrap_or(' '));
    let is_digit = |letter: Option<char>| letter.is_some_and(|letter| letter.is_ascii_digit());
    if is_digit(Some(near_left)) || is_digit(Some(near_right)) {
        return false;
    }
    if (near_left == '.' && is_digit(left.next())) || (near_right == '.' && is_digit(right.next())) {
        return false;
    }
    let is_of_run = |letter: &char| letter.is_ascii_alphanumeric() || *letter == '_';
    let run = before.chars().rev().take_while(is_of_run).count() + after.chars().take_while(is_of_run).count();
    run + length < 16
}

fn around(text: &str, at: usize) -> String {
    let start = text[..at].char_indices().rev().nth(60).map_or(0, |(start, _)| start);
    text[start..].chars().take(140).collect()
}

#[test]
fn code_matching_ignores_coincidental_digits() {
    let secrets = Secrets { codes: vec!["271828".to_owned()], ..Secrets::default() };
    for leak in [
        "271828",
        "the code is 271828.",
        "\"code\":\"271828\"",
        "code%3D271828&x",
        "{\"text\":\"Matchday\\n271828 is your code\"}",
        "+14155550100\t271828\tsent",
        "\\x323731383238",
    ] {
        assert_eq!(secrets.found_in(leak).len(), 1, "{leak}");
    }
    for chance in [
        "2026-11-20T15:00:00.271828Z",
        "2026-11-20 15:00:00.271828+00",
        "12.271828",
        "271828.5",
        "1271828",
        "9f271828ab271828cd00",
        "whole_1763182916_271828_0",
    ] {
        assert!(secrets.found_in(chance).is_empty(), "{chance}");
    }
}

/// Source of the messages that users receive.
enum Inbox<'a> {
    Log(&'a Client),
    Twilio(&'a Twilio),
}

impl Inbox<'_> {
    /// Newest code sent to a phone, which is recorded as a secret.
    async fn code(&self, phone: &str, secrets: &mut Secrets) -> String {
        let code = match self {
            Self::Log(client) => client.codes(phone).await.remove(0),
            Self::Twilio(twilio) => twilio.code(phone),
        };
        secrets.codes.push(code.clone());
        code
    }
}

/// Uses codes and tokens in every valid and invalid way.
async fn use_codes_and_tokens(
    client: &Client,
    inbox: &Inbox<'_>,
    phones: &[String; 4],
    database: &PgConnectOptions,
    secrets: &mut Secrets,
) {
    secrets.phones.extend_from_slice(phones);
    let [ada, moved, busy, unlucky] = phones.each_ref().map(String::as_str);
    let verify = "/api/code/verify";
    let request = async |phone: &str| client.post("/api/code/request", "", json!({"phone": phone})).await;

    // A login with every possible typing error, and a second code.
    request(ada).await.expect(200);
    let first = inbox.code(ada, secrets).await;
    let wrong = wrong_guess(&first, secrets);
    client.post(verify, "", json!({"phone": ada, "code": wrong})).await.expect(401);
    let cut_off = format!("{{\"phone\": \"{ada}\", \"code\": \"{first}\"");
    client.send(Method::POST, verify, "", cut_off).await.expect(400);
    client.post(verify, "", json!({"phone": ada, "code": [first]})).await.expect(422);
    client.post(verify, "", json!({"phone": format!("{ada}x"), "code": format!("{first} ")})).await.expect(422);
    let encoded = ada.replace('+', "%2B");
    client.get(&format!("/api/nowhere/{encoded}/{first}?phone={encoded}&code={first}"), "").await.expect(404);
    client.get(&format!("{verify}?phone={encoded}&code={first}"), "").await.expect(405);
    client.post("/api/auth/resend-code", "", json!({"phone": ada})).await.expect(200);
    let second = inbox.code(ada, secrets).await;
    client.post(verify, "", json!({"phone": ada, "code": first})).await.expect(401);
    let answer = client.post(verify, "", json!({"phone": ada, "code": second})).await.expect(200);
    let here = secrets.logged_in(ada, &answer);

    request(ada).await.expect(200);
    let third = inbox.code(ada, secrets).await;
    let answer = client.post("/api/auth/login", "", json!({"phone": ada, "code": third})).await.expect(200);
    let elsewhere = secrets.logged_in(ada, &answer);
    client.get("/api/auth/me", &format!("{}0", here.token)).await.expect(401);
    client.get(&format!("/api/auth/me?access_token={}", here.token), "").await.expect(401);

    // A new phone, a new username, and new credentials.
    let initiate = "/api/auth/verify-phone/initiate";
    client.post(initiate, &here.token, json!({"phone": moved})).await.expect(200);
    let code = inbox.code(moved, secrets).await;
    let wrong = wrong_guess(&code, secrets);
    client.post("/api/auth/verify-phone", &here.token, json!({"phone": moved, "code": wrong})).await.expect(401);
    client.post("/api/auth/verify-phone", &here.token, json!({"phone": ada, "code": code})).await.expect(422);
    client.post("/api/auth/resend-code", &here.token, json!({"phone": moved})).await.expect(200);
    let code = inbox.code(moved, secrets).await;
    client.post("/api/auth/verify-phone", &here.token, json!({"phone": moved, "code": code})).await.expect(200);
    let change = json!({"username": "ada.of.the.cup", "name": "Ada Obi"});
    let saved = client.post("/api/auth/update-user-info", &here.token, change).await.expect(200);
    secrets.chat(&saved["data"]["matrix_credentials"]);
    let renewed = client.renew_chat(&here.token).await.expect(200);
    secrets.chat(&renewed["data"]["matrix_credentials"]);
    // The phone move has ended the other session.
    client.post("/api/auth/logout", &elsewhere.token, json!({})).await.expect(401);
    request(moved).await.expect(200);
    let code = inbox.code(moved, secrets).await;
    let answer = client.post(verify, "", json!({"phone": moved, "code": code})).await.expect(200);
    assert_eq!(secrets.logged_in(moved, &answer).username, "ada.of.the.cup");

    // More codes than a phone may get, and more guesses than a code allows.
    for _ in 0..5 {
        request(busy).await.expect(200);
        inbox.code(busy, secrets).await;
    }
    request(busy).await.expect(429);
    let right = secrets.codes.last().expect("a code").clone();
    for _ in 0..5 {
        let wrong = wrong_guess(&right, secrets);
        client.post(verify, "", json!({"phone": busy, "code": wrong})).await.expect(401);
    }
    client.post(verify, "", json!({"phone": busy, "code": right})).await.expect(401);

    // An internal error, whose cause is logged.
    request(unlucky).await.expect(200);
    let code = inbox.code(unlucky, secrets).await;
    let body = json!({"phone": unlucky, "code": code});
    let mut database = PgConnection::connect_with(database).await.expect("connected");
    sqlx::query("alter table phone_claims rename to gone").execute(&mut database).await.expect("renamed");
    client.post(verify, "", body.clone()).await.expect(500);
    sqlx::query("alter table gone rename to phone_claims").execute(&mut database).await.expect("renamed");
    database.close().await.expect("closed");
    let answer = client.post(verify, "", body).await.expect(200);
    secrets.logged_in(unlucky, &answer);
}

/// Uses a server key in every valid and invalid way.
async fn use_server_keys(setting: &Setting, client: &Client, secrets: &mut Secrets) {
    let issued = |arguments: &[&str]| -> (i64, String) {
        let key: Value = serde_json::from_str(&setting.expect(arguments, "")).expect("a document");
        (key["id"].as_i64().expect("an id"), key["key"].as_str().expect("a key").to_owned())
    };
    let (id, key) = issued(&["keys", "create", "shop", "--scope", "users:read", "--json"]);
    let get = async |path: &str, key: &str| client.get(&format!("/api/server/v1{path}"), key).await;
    get("/key", &key).await.expect(200);
    get("/users/1099511627776", &key).await.expect(404);
    get("/rooms", &key).await.expect(403);
    get("/key", &format!("{key}0")).await.expect(401);
    get(&format!("/key?access_token={key}"), "").await.expect(401);
    client.get("/api/auth/me", &key).await.expect(401);
    let (_, rotated) = issued(&["keys", "rotate", &id.to_string(), "--grace", "1h", "--json"]);
    get("/key", &rotated).await.expect(200);
    get("/key", &key).await.expect(200);
    // The prefix of a key is not secret. Its random part is.
    let secret = |key: &str| key.split('_').nth(3).expect("a random part").to_owned();
    secrets.texts.extend([secret(&key), secret(&rotated)]);
}

/// A wrong guess, different each time, which must not be logged either.
fn wrong_guess(code: &str, secrets: &mut Secrets) -> String {
    static GUESSES: AtomicUsize = AtomicUsize::new(1);
    let number: usize = code.parse().expect("digits");
    let guess = format!("{:06}", (number + GUESSES.fetch_add(1, Ordering::Relaxed)) % 1_000_000);
    secrets.guesses.push(guess.clone());
    guess
}

async fn metrics_of(process: &Process) -> String {
    let answer = reqwest::get(format!("{}/metrics", process.private)).await.expect("a response");
    answer.text().await.expect("text")
}

/// Stops a process after it has finished its work; returns its whole log.
async fn whole_log(mut process: Process) -> String {
    process.signal("TERM");
    assert!(process.ended().await.success());
    process.log().join("\n")
}

/// Dump of the database as text, with these options of `pg_dump`.
fn dump(database: &PgConnectOptions, options: &[&str]) -> String {
    let directory = std::env::var("MATCHDAY_DEV_PG_BIN").unwrap_or_else(|_| "/usr/lib/postgresql/15/bin".to_owned());
    let installed = Path::new(&directory).join("pg_dump");
    let program = if installed.exists() { installed } else { "pg_dump".into() };
    // The query contains driver settings that PostgreSQL's tools do not support.
    let mut url = database.to_url_lossy();
    url.set_query(None);
    let dumped = Command::new(program).args(options).args(["--dbname", url.as_str()]).output().expect("pg_dump runs");
    assert!(dumped.status.success(), "{}", String::from_utf8_lossy(&dumped.stderr));
    String::from_utf8(dumped.stdout).expect("text")
}

/// Checks that every kind of request is logged, without any secret or phone number.
fn check_log(log: &str, secrets: &Secrets) {
    let answered = |status: u16| {
        let status = format!("\"status\":{status}");
        log.lines().any(|line| line.contains("\"message\":\"request finished\"") && line.contains(&status))
    };
    for status in [200, 400, 401, 404, 405, 422, 429, 500] {
        assert!(answered(status), "not every request is logged: none with {status}");
    }
    assert!(log.contains("\"level\":\"TRACE\"") && log.contains("\"message\":\"request failed\""));
    assert_eq!(secrets.found_in(log), Vec::<String>::new(), "secrets in the log");
    assert_eq!(secrets.phones_in(log), Vec::<String>::new(), "phone numbers in the log");
}

/// Enables the most verbose logging.
fn verbose(setting: Setting) -> Setting {
    setting.with("MATCHDAY_LOG__REQUESTS", "all").with("MATCHDAY_LOG__FILTER", "trace")
}

fn numbers(block: &str) -> [String; 4] {
    ["0141", "0142", "0143", "0144"].map(|last| format!("{block}{last}"))
}

#[tokio::test]
async fn log_and_database_hold_no_code_or_token() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let setting = verbose(Setting::new(&options)).with("MATCHDAY_MATRIX__HOMESERVER_URL", &synapse.url);
            let process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let mut secrets = Secrets::of(&setting);
            use_codes_and_tokens(&client, &Inbox::Log(&client), &numbers("+1415555"), &options, &mut secrets).await;
            use_server_keys(&setting, &client, &mut secrets).await;
            let metrics = metrics_of(&process).await;
            assert_eq!(secrets.found_in(&metrics), Vec::<String>::new(), "secrets in the metrics");

            check_log(&whole_log(process).await, &secrets);
            let dumped = dump(&options, &["--exclude-table-data=sms_log"]);
            assert!(dumped.contains(&secrets.phones[1]), "the dump contains data");
            assert_eq!(secrets.found_in(&dumped), Vec::<String>::new(), "secrets in the database");
            // The developers' SMS log is the only table with codes. Finding them there proves that the search works.
            let found = secrets.found_in(&dump(&options, &["--table=sms_log"]));
            assert_eq!(found.len(), secrets.codes.len(), "{found:?}");

            let streams = streams(&setting).await;
            let published = streams.replay(Stream::Facts).await.expect("read");
            assert!(!published.is_empty());
            let published: String =
                published.iter().map(|(_, payload)| String::from_utf8_lossy(payload) + "\n").collect();
            assert_eq!(
                (secrets.found_in(&published), secrets.phones_in(&published)),
                (Vec::new(), Vec::new()),
                "in messages"
            );
            streams.remove().await;
        })
        .await;
    })
    .await;
}

#[tokio::test]
async fn in_production_only_the_sms_holds_a_code() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let twilio = Twilio::start().await;
            let setting = verbose(Setting::new(&options))
                .with("MATCHDAY_ENV", "production")
                .with("MATCHDAY_MATRIX__PUBLIC_URL", "https://chat.example.org")
                .with("MATCHDAY_MATRIX__HOMESERVER_URL", &synapse.url)
                .with("MATCHDAY_SMS__PROVIDERS", "twilio")
                .with("MATCHDAY_SMS__TWILIO_ACCOUNT_SID", ACCOUNT)
                .with("MATCHDAY_SMS__TWILIO_AUTH_TOKEN", AUTH_TOKEN)
                .with("MATCHDAY_SMS__TWILIO_FROM", "+12024560199")
                .with("MATCHDAY_SMS__TWILIO_URL", &twilio.url)
                .with("MATCHDAY_SMS__COUNTRIES", "US");
            let process = setting.start(&["serve"]);
            let client = Client::new(&process);
            let mut secrets = Secrets::of(&setting);
            use_codes_and_tokens(&client, &Inbox::Twilio(&twilio), &numbers("+1202456"), &options, &mut secrets).await;

            let unknown = client.get("/api/logs/nothing", "").await;
            assert_eq!(unknown.status, 404);
            for path in ["/api/logs/sms", "/api/logs/sms?phone=%2B12024560141", "/api/logs/sms?page=nonsense"] {
                let hidden = client.get(path, "").await;
                assert!((hidden.status, &hidden.bytes) == (unknown.status, &unknown.bytes), "{path} responds normally");
            }
            let sent = twilio.messages().len();
            for (phone, why) in [("+11992345678", "no such area"), ("+4915112345678", "another country")] {
                secrets.phones.push(phone.to_owned());
                let refused = client.post("/api/code/request", "", json!({"phone": phone})).await;
                assert_eq!(refused.invalid_fields(), ["phone"], "{why}");
            }
            assert_eq!(twilio.messages().len(), sent, "nothing was sent to them");

            check_log(&whole_log(process).await, &secrets);
            let dumped = dump(&options, &[]);
            let logged: Vec<&str> = dumped.lines().filter(|line| line.contains("\ttwilio\tSM")).collect();
            assert_eq!(logged.len(), sent, "every message is in the SMS log");
            assert_eq!(secrets.found_in(&dumped), Vec::<String>::new(), "secrets in the database");
        })
        .await;
    })
    .await;
}

const ACCOUNT: &str = "AC00000000000000000000000000000001";
const AUTH_TOKEN: &str = "b7e1a2c3d4f5968778695a4b3c2d1e0f";

/// Recipient and text of each message.
type Messages = Arc<Mutex<Vec<(String, String)>>>;

/// A server that accepts messages like Twilio and stores them.
struct Twilio {
    url: String,
    received: Messages,
}

impl Twilio {
    async fn start() -> Self {
        let received = Messages::default();
        let take = async |State(received): State<Messages>, headers: HeaderMap, form: Bytes| {
            let authorised =
                reqwest::Client::new().get("http://localhost").basic_auth(ACCOUNT, Some(AUTH_TOKEN)).build();
            let authorised = authorised.expect("a request").headers()[header::AUTHORIZATION].clone();
            if headers.get(header::AUTHORIZATION) != Some(&authorised) {
                return (StatusCode::UNAUTHORIZED, Json(json!({"code": 20003, "status": 401})));
            }
            let field = |name: &str| {
                let mut fields = url::form_urlencoded::parse(&form);
                fields.find(|(key, _)| key == name).map(|(_, value)| value.into_owned()).expect("a field")
            };
            let mut received = received.lock().expect("not poisoned");
            received.push((field("To"), field("Body")));
            let sid = format!("SM{:032x}", received.len());
            (StatusCode::CREATED, Json(json!({"sid": sid, "status": "queued", "to": field("To"), "error_code": null})))
        };
        let path = format!("/2010-04-01/Accounts/{ACCOUNT}/Messages.json");
        let app = Router::new().route(&path, post(take)).with_state(Arc::clone(&received));
        let listener = TcpListener::bind("127.0.0.1:0").await.expect("bound");
        let url = format!("http://{}", listener.local_addr().expect("bound"));
        tokio::spawn(async move { axum::serve(listener, app).await });
        Self { url, received }
    }

    fn messages(&self) -> Vec<(String, String)> {
        self.received.lock().expect("not poisoned").clone()
    }

    /// Code in the newest message to a phone.
    fn code(&self, phone: &str) -> String {
        let messages = self.messages();
        let (_, text) = messages.iter().rev().find(|(to, _)| to == phone).expect("a message");
        let code: String = text.chars().skip_while(|c| !c.is_ascii_digit()).take_while(char::is_ascii_digit).collect();
        assert_eq!(code.len(), 6, "{text}");
        code
    }
}
