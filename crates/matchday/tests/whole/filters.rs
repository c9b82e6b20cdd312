//! Filters: the service removes bad messages of Matrix clients soon, although a worker is killed, and keeps no text.

use std::{
    collections::HashMap,
    process::Command,
    sync::{Arc, Mutex},
    time::{Duration, Instant},
};

use axum::{
    Json, Router,
    extract::{Path, State},
    routing,
};
use bytes::Bytes;
use futures_util::future::join_all;
use matchday::testing::{unique, with_database};
use serde_json::{Value, json};
use sqlx::{ConnectOptions as _, PgPool, postgres::PgConnectOptions};
use tokio::net::TcpListener;

use crate::{
    client::{Client, Homeserver, Person},
    process::{Process, Setting},
    report,
    synapse::with_synapse,
};

/// Time until a bad message must be gone.
const REMOVED_WITHIN: Duration = Duration::from_secs(5);
/// Longest wait for the removals after the last message, also with a killed worker.
const PATIENCE: Duration = Duration::from_mins(1);
/// One of this many messages is bad.
const BAD_EVERY: usize = 20;

/// A size of the test, which can be larger in manual runs.
fn size(variable: &str, default: usize) -> usize {
    std::env::var(variable).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

/// Waits until the homeserver shows a message without its text. Returns when that was.
async fn gone(chat: &Homeserver, room: &str, who: &Person, event: &str) -> Option<Instant> {
    let path = format!("/_matrix/client/v3/rooms/{room}/event/{event}");
    let began = Instant::now();
    while began.elapsed() < PATIENCE {
        let (status, body) = chat.get(&path, who.chat_token()).await;
        if status == 200 && body["content"].get("body").is_none() {
            return Some(Instant::now());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    None
}

fn dump(options: &PgConnectOptions) -> String {
    let mut url = options.to_url_lossy();
    // Parameters of our driver are unknown to the tool.
    url.set_query(None);
    // Not every version of the tool is in the path.
    let tools = ["pg_dump".to_owned()]
        .into_iter()
        .chain((14..=18).rev().map(|version| format!("/usr/lib/postgresql/{version}/bin/pg_dump")));
    let outputs = tools.filter_map(|tool| Command::new(tool).arg(url.as_str()).output().ok());
    let dumped = outputs.into_iter().find(|output| output.status.success()).expect("pg_dump");
    String::from_utf8_lossy(&dumped.stdout).into_owned()
}

/// A message that was sent.
struct Sent {
    room: usize,
    event: String,
    /// Time until its text was gone, for a bad one.
    removed_after: Option<Duration>,
}

/// Sends a message, one in twenty of which is bad, and waits for the removal of a bad one.
async fn send(chat: &Homeserver, rooms: &[(String, Person)], number: usize, secret: &str) -> Sent {
    let is_bad = number % BAD_EVERY == BAD_EVERY / 2;
    let text = match (is_bad, number / BAD_EVERY % 2) {
        (true, 0) => format!("message {number}, f4gg0t {secret}"),
        (true, _) => format!("message {number}, a SP\u{200b}OILER {secret}"),
        (false, _) => format!("message {number}, what a goal {secret}"),
    };
    let room = number % rooms.len();
    let (id, person) = &rooms[room];
    let (status, said) = chat.say(id, person.chat_token(), &text).await;
    assert_eq!(status, 200, "{said}");
    let (event, at) = (said["event_id"].as_str().expect("an id").to_owned(), Instant::now());
    let mut removed_after = None;
    if is_bad {
        let removed_at = gone(chat, id, person, &event).await;
        removed_after = Some(removed_at.unwrap_or_else(|| panic!("{event} was not removed")) - at);
    }
    Sent { room, event, removed_after }
}

async fn open_rooms(client: &Client, number: usize) -> Vec<(String, Person)> {
    let mut rooms = Vec::with_capacity(number);
    for at in 0..number {
        let person = client.log_in(&format!("+1415556{at:04}"), None).await;
        rooms.push((client.open_room(&person, &format!("Room {at}"), false).await, person));
    }
    rooms
}

/// Sends messages at a steady rate, and kills a worker in the middle.
async fn send_all(chat: &Homeserver, rooms: &[(String, Person)], secret: &str, mut kill: impl FnMut()) -> Vec<Sent> {
    let (messages, rate) = (size("FILTER_TEST_MESSAGES", 200), size("FILTER_TEST_RATE", 50));
    let pause = Duration::from_secs(1) / u32::try_from(rate).expect("a small rate");
    let (began, mut sending) = (tokio::time::Instant::now(), Vec::with_capacity(messages));
    for number in 0..messages {
        tokio::time::sleep_until(began + pause * u32::try_from(number).expect("few messages")).await;
        if number == messages / 2 {
            kill();
        }
        let (chat, rooms, secret) = (chat.clone(), rooms.to_vec(), secret.to_owned());
        sending.push(tokio::spawn(async move { send(&chat, &rooms, number, &secret).await }));
    }
    join_all(sending).await.into_iter().map(|sent| sent.expect("sent")).collect()
}

/// Median, 99th percentile and longest of these times.
fn spread(mut times: Vec<Duration>) -> [Duration; 3] {
    times.sort();
    [times.len() / 2, (times.len() * 99).div_ceil(100) - 1, times.len() - 1].map(|at| times[at])
}

/// Accepts traces as a collector does, and keeps their bytes.
async fn collector() -> (String, Arc<Mutex<Vec<u8>>>) {
    let traces = Arc::new(Mutex::new(Vec::new()));
    let keep = async |State(traces): State<Arc<Mutex<Vec<u8>>>>, body: Bytes| {
        traces.lock().expect("traces").extend_from_slice(&body);
    };
    let router = Router::new().route("/v1/traces", routing::post(keep)).with_state(Arc::clone(&traces));
    (listen(router).await, traces)
}

/// Serves a router on loopback until the test ends. Returns its URL.
async fn listen(router: Router) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    tokio::spawn(async move { axum::serve(listener, router).await });
    url
}

fn contains(bytes: &[u8], text: &str) -> bool {
    bytes.windows(text.len()).any(|window| window == text.as_bytes())
}

fn assert_no_text(secret: &str, options: &PgConnectOptions, processes: &[&Process]) {
    let dump = dump(options);
    assert!(dump.contains("removals"), "the dump is complete");
    for form in [secret.to_owned(), hex::encode(secret)] {
        assert!(!dump.contains(&form), "the database contains a text");
    }
    let logs: Vec<String> = processes.iter().flat_map(|process| process.log()).collect();
    assert!(!logs.is_empty() && logs.iter().all(|line| !line.contains(secret)), "a log contains a text");
}

#[tokio::test]
async fn bad_messages_are_removed_although_worker_is_killed() {
    with_database(async |options| {
        with_synapse(&options, async |synapse| {
            let (collector, traces) = collector().await;
            let pushed = synapse
                .setting(&options)
                .with("MATCHDAY_TRACES__ENDPOINT", &collector)
                .with("MATCHDAY_TRACES__SAMPLE", "1");
            let setting = pushed.clone().with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0");
            let mut receiver = pushed.start(&["serve", "--no-workers"]);
            let mut first = setting.start(&["worker"]);
            let mut second = setting.start(&["worker"]);
            let (client, chat) = (Client::new(&receiver), Homeserver::at(&synapse.url));
            let rooms = open_rooms(&client, size("FILTER_TEST_ROOMS", 4)).await;
            let added: Value = serde_json::from_str(&setting.expect(&["filters", "add", "spoiler", "--json"], "")).expect("JSON");
            assert_eq!(added["pattern"], "spoiler");
            // All processes apply a change within five seconds.
            tokio::time::sleep(Duration::from_secs(5)).await;

            let secret = unique("secret").replace('_', "");
            let sent = send_all(&chat, &rooms, &secret, || first.kill()).await;
            let (before, after) = sent.split_at(sent.len() / 2);
            let times = |sent: &[Sent]| spread(sent.iter().filter_map(|sent| sent.removed_after).collect());
            let [[median, p99, longest], [_, _, after_kill]] = [times(before), times(after)];
            report(&format!(
                "filters: {} messages in {} rooms, one in {BAD_EVERY} bad; removed within {median:?} (median), {p99:?} (99 %), \
                 {longest:?} (all); within {after_kill:?} after a worker was killed",
                sent.len(),
                rooms.len(),
            ));
            assert!(median < REMOVED_WITHIN, "{median:?}");
            for good in sent.iter().filter(|sent| sent.removed_after.is_none()).step_by(10) {
                let (room, person) = &rooms[good.room];
                let path = format!("/_matrix/client/v3/rooms/{room}/event/{}", good.event);
                let (_, event) = chat.get(&path, person.chat_token()).await;
                assert!(event["content"]["body"].is_string(), "{event}");
            }
            assert_no_text(&secret, &options, &[&receiver, &first, &second]);
            // A process exports its last traces when it stops.
            for process in [&mut receiver, &mut second] {
                process.signal("TERM");
                assert!(process.ended().await.success());
            }
            let traces = traces.lock().expect("traces");
            assert!(contains(&traces, "/_matrix/app/v1/transactions"), "the traces include the pushes");
            assert!(!contains(&traces, &secret), "a trace contains a text");
        })
        .await;
    })
    .await;
}

/// Stands in for a homeserver that accepts more messages than Synapse does on the machines that run the tests: it
/// accepts every request, and notes when a message is redacted.
async fn fast_homeserver() -> (String, Redacted) {
    let redacted = Redacted::default();
    let redact = async |State(redacted): State<Redacted>, Path((_, event, _)): Path<(String, String, String)>| {
        redacted.lock().expect("redactions").entry(event).or_insert_with(Instant::now);
        Json(json!({"event_id": format!("${}", unique("redaction"))}))
    };
    let router = Router::new()
        .route("/_matrix/client/v3/rooms/{room}/redact/{event}/{transaction}", routing::put(redact))
        .fallback(async || Json(json!({})))
        .with_state(Arc::clone(&redacted));
    (listen(router).await, redacted)
}

/// Times at which messages were redacted, by event.
type Redacted = Arc<Mutex<HashMap<String, Instant>>>;

/// Inserts rooms that the homeserver has created. Returns their Matrix ids.
async fn insert_rooms(db: &PgPool, server: &str, number: usize) -> Vec<String> {
    let mut rooms = Vec::with_capacity(number);
    for _ in 0..number {
        let matrix_id = format!("!{}:{server}", unique("filters").replace('_', ""));
        let inserted = sqlx::query(
            "with owner as (insert into users (created_at, username) values (now(), $2) returning user_id),
             room as (
                 insert into rooms (matrix_id, alias, name, creator_id, created_at, made_until, opened_at, is_private)
                 select $1, $2, 'Fast', user_id, now(), now(), now(), false from owner returning id)
             insert into room_activity (room_id, last_activity, compared_at) select id, now(), now() from room",
        );
        inserted.bind(&matrix_id).bind(unique("room")).execute(db).await.expect("a room");
        rooms.push(matrix_id);
    }
    rooms
}

/// Pushes messages as a homeserver does: at most a hundred in a transaction, and one transaction at a time. Messages
/// are sent at a steady rate. Returns when each bad one was sent.
async fn push_all(
    process: &Process,
    token: &str,
    rooms: &[String],
    (messages, rate): (usize, usize),
    mut kill: impl FnMut(),
) -> HashMap<String, Instant> {
    let (web, began) = (reqwest::Client::new(), Instant::now());
    let pause = Duration::from_secs(1) / u32::try_from(rate).expect("a small rate");
    let (mut bad, mut pushed) = (HashMap::new(), 0);
    while pushed < messages {
        let due = began.elapsed().as_nanos() / pause.as_nanos() + 1;
        let until = usize::try_from(due).expect("few messages").min(messages).min(pushed + 100);
        if until == pushed {
            tokio::time::sleep(pause).await;
            continue;
        }
        let event = |number: usize| {
            let (id, is_bad) = (format!("$e{number}"), number % BAD_EVERY == BAD_EVERY / 2);
            let word = if is_bad { "f4gg0t" } else { "goal" };
            let body = format!("message {number}, what a {word}");
            json!({"event_id": id, "room_id": rooms[number % rooms.len()], "type": "m.room.message",
                   "sender": format!("@fan{}:elsewhere.example", number % 500), "origin_server_ts": 1_790_000_000_000_i64,
                   "content": {"msgtype": "m.text", "body": body}})
        };
        for number in (pushed..until).filter(|number| number % BAD_EVERY == BAD_EVERY / 2) {
            let sent_at = began + pause * u32::try_from(number).expect("few messages");
            bad.insert(format!("$e{number}"), sent_at);
        }
        if (pushed..until).contains(&(messages / 2)) {
            kill();
        }
        let events: Vec<Value> = (pushed..until).map(event).collect();
        let path = format!("{}/_matrix/app/v1/transactions/{}", process.private, unique("push"));
        let request = web.put(path).bearer_auth(token).json(&json!({"events": events}));
        assert_eq!(request.send().await.expect("a response").status().as_u16(), 200);
        pushed = until;
    }
    bad
}

/// Synapse accepts fewer messages a second than this on a small machine, so the homeserver is a simple one here.
#[tokio::test]
async fn removals_keep_up_with_fast_homeserver() {
    with_database(async |options| {
        let (homeserver, redacted) = fast_homeserver().await;
        let setting = Setting::new(&options)
            .with("MATCHDAY_MATRIX__HOMESERVER_URL", &homeserver)
            .with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0");
        let receiver = setting.start(&["serve", "--no-workers"]);
        let mut first = setting.start(&["worker"]);
        let _second = setting.start(&["worker"]);
        let variables = setting.variables();
        let db = PgPool::connect_with(options.clone()).await.expect("connected");
        let server = &variables["MATCHDAY_MATRIX__SERVER_NAME"];
        let rooms = insert_rooms(&db, server, size("FILTER_TEST_ROOMS", 20)).await;
        let sizes = (size("FILTER_TEST_MESSAGES", 1_000), size("FILTER_TEST_RATE", 200));
        let token = &variables["MATCHDAY_MATRIX__HS_TOKEN"];
        let bad = push_all(&receiver, token, &rooms, sizes, || first.kill()).await;
        let began = Instant::now();
        while redacted.lock().expect("redactions").len() < bad.len() {
            assert!(began.elapsed() < PATIENCE, "{} of {} removed", redacted.lock().expect("redactions").len(), bad.len());
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let redacted = redacted.lock().expect("redactions").clone();
        let times: Vec<Duration> = bad.iter().map(|(event, &sent_at)| redacted[event] - sent_at).collect();
        let [median, p99, longest] = spread(times);
        report(&format!(
            "filters: {} messages in {} rooms, {} a second, one in {BAD_EVERY} bad, beside a simple homeserver; removed \
             within {median:?} (median), {p99:?} (99 %), {longest:?} (all)",
            sizes.0,
            rooms.len(),
            sizes.1,
        ));
        assert_eq!(redacted.len(), bad.len(), "only bad messages are removed");
        assert!(median < REMOVED_WITHIN, "{median:?}");
        db.close().await;
    })
    .await;
}

#[tokio::test]
async fn filters_are_managed_on_command_line() {
    with_database(async |options| {
        let setting = Setting::new(&options);
        let json =
            |arguments: &[&str]| -> Value { serde_json::from_str(&setting.expect(arguments, "")).expect("JSON") };
        let added = json(&["filters", "add", r"\bspoilers?\b", "--reason", "spoilers", "--json"]);
        assert_eq!(added["pattern"], r"\bspoilers?\b");
        assert!(added["id"].is_i64() && added["created_at"].is_string(), "{added}");
        let muting = json(&["filters", "add", "x{3}", "--action", "mute", "--for", "1h", "--json"]);
        assert_eq!(muting["mute_seconds"], 3_600);
        let listed = json(&["filters", "list", "--json"]);
        assert_eq!(listed, serde_json::json!([added, muting]));
        for invalid in ["(", "a{2,1}", &"x".repeat(501), ""] {
            let output = setting.run(&["filters", "add", invalid], "");
            assert_eq!((output.status.code(), output.stdout.len()), (Some(2), 0), "{invalid}");
        }
        let id = added["id"].to_string();
        assert_eq!(setting.expect(&["filters", "remove", &id], ""), format!("filter {id} removed"));
        assert_eq!(setting.run(&["filters", "remove", &id], "").status.code(), Some(1));
        assert_eq!(json(&["filters", "list", "--json"]).as_array().map(Vec::len), Some(1));
        assert_eq!(setting.run(&["filters", "add", "x", "--room", "!no:example.org"], "").status.code(), Some(1));
        assert_eq!(json(&["messages", "held", "--json"]), serde_json::json!([]));
        assert_eq!(setting.run(&["messages", "release", "1"], "").status.code(), Some(1));
        assert_eq!(setting.run(&["messages", "reject", "1"], "").status.code(), Some(1));
    })
    .await;
}
