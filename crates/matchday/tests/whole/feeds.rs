//! Feeds: commands for operators, and several workers of which only one polls.

use std::{
    io::{Read as _, Write as _},
    net::TcpListener,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use matchday::testing::{eventually, unique, with_database};
use serde_json::{Value, json};

use crate::process::{Process, Setting};

/// A feed server that always returns the same document and counts requests. It runs in its own thread, because the test
/// blocks while commands run.
fn provider() -> (String, Arc<AtomicUsize>, Arc<Mutex<String>>) {
    let listener = TcpListener::bind("127.0.0.1:0").expect("a port");
    let url = format!("http://{}", listener.local_addr().expect("an address"));
    let (polls, answer) = (Arc::new(AtomicUsize::new(0)), Arc::new(Mutex::new(String::new())));
    let (counted, given) = (Arc::clone(&polls), Arc::clone(&answer));
    std::thread::spawn(move || {
        for mut stream in listener.incoming().map_while(Result::ok) {
            let mut request = [0; 4096];
            let length = stream.read(&mut request).unwrap_or_default();
            let request = String::from_utf8_lossy(&request[..length]).to_lowercase();
            counted.fetch_add(1, Ordering::Relaxed);
            let body = given.lock().expect("not poisoned").clone();
            let (status, body) = if request.contains("x-auth-token: the-right-token") {
                ("200 OK", body)
            } else {
                ("400 Bad Request", "{\"message\": \"Your API token is invalid.\", \"errorCode\": 400}".to_owned())
            };
            let length = body.len();
            let _ = write!(stream, "HTTP/1.1 {status}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}");
        }
    });
    (url, polls, answer)
}

fn document(goals: Option<(i64, i64)>) -> String {
    let team = |id: i64, name: &str| json!({"id": id, "name": name, "crest": null});
    json!({
        "competition": {"name": "Harbour League", "code": "HL", "emblem": null},
        "matches": [{
            "id": 540_001, "utcDate": "2026-11-20T15:00:00Z", "status": if goals.is_some() { "FINISHED" } else { "TIMED" },
            "season": {"startDate": "2026-08-15", "endDate": "2027-05-23"},
            "homeTeam": team(57, "Harbour Rovers FC"), "awayTeam": team(61, "Harbour City FC"),
            "score": {"duration": "REGULAR", "fullTime": {"home": goals.map(|(home, _)| home), "away": goals.map(|(_, away)| away)}},
        }],
    })
    .to_string()
}

fn followed(setting: Setting, url: &str) -> Setting {
    setting
        .without("MATCHDAY_MATRIX__HOMESERVER_URL")
        .with("MATCHDAY_FEEDS__FOOTBALL_DATA_URL", url)
        .with("MATCHDAY_FEEDS__FOOTBALL_DATA_TOKEN", "the-right-token")
        .with("MATCHDAY_FEEDS__FOOTBALL_DATA_COMPETITIONS", "HL")
}

/// Replaces timestamps in the output of a command.
fn without_times(text: &str) -> String {
    let is_moment = |word: &str| word.len() >= 20 && word.starts_with("20") && word.contains('T');
    let words =
        |line: &str| line.split(' ').map(|word| if is_moment(word) { "…" } else { word }).collect::<Vec<_>>().join(" ");
    text.lines().map(words).collect::<Vec<_>>().join("\n")
}

#[tokio::test]
async fn operator_polls_feeds_once_and_sees_results() {
    with_database(async |options| {
        let plain = Setting::new(&options);
        let none = "no feeds configured: feeds.openfootball and feeds.football_data_competitions are empty";
        assert_eq!(plain.expect(&["feeds", "status"], ""), none);
        let refused = plain.run(&["feeds", "run", "--once"], "");
        assert_eq!(refused.status.code(), Some(1));
        assert_eq!(String::from_utf8_lossy(&refused.stderr).trim(), format!("matchday: {none}"));

        let (url, _, answer) = provider();
        *answer.lock().expect("not poisoned") = document(None);
        let file = std::env::temp_dir().join(format!("{}.json", unique("openfootball")));
        let cup = json!({"name": "Harbour Cup 2026", "matches": [
            {"round": "Final", "date": "2026-11-21", "time": "15:00", "team1": "Harbour Rovers", "team2": "Albion"},
            {"round": "Final", "date": "2026-11-22", "team1": "W1", "team2": "Albion"},
        ]});
        std::fs::write(&file, cup.to_string()).expect("written");
        let setting = followed(plain, &url).with("MATCHDAY_FEEDS__OPENFOOTBALL", &file.display().to_string());
        let stem = file.file_stem().and_then(|stem| stem.to_str()).expect("a name");
        let folder = std::env::temp_dir().file_name().and_then(|name| name.to_str()).expect("a name").to_owned();
        let cup = format!("openfootball:{folder}/{stem}");
        assert_eq!(
            without_times(&setting.expect(&["feeds", "run", "--once"], "")),
            format!(
                "football_data:HL: Harbour League 2026/27: teams 2 new, 0 changed; matches 1 new, 0 changed, 0 unchanged; 0 results; next poll …
{cup}: Harbour Cup 2026: teams 1 new, 0 changed; matches 1 new, 0 changed, 0 unchanged; 0 results; next poll …
    note: matches left out until their teams or days are known: 1"
            )
        );
        *answer.lock().expect("not poisoned") = document(Some((2, 1)));
        assert_eq!(
            without_times(&setting.expect(&["feeds", "run", "--once"], "")),
            format!(
                "football_data:HL: Harbour League 2026/27: teams 0 new, 0 changed; matches 0 new, 1 changed, 0 unchanged; 1 result; next poll …
    540001: status scheduled → finished, score none → 2:1
{cup}: unchanged; next poll …"
            )
        );
        let wrong = setting.clone().with("MATCHDAY_FEEDS__FOOTBALL_DATA_TOKEN", "hunter2");
        let failed = wrong.run(&["feeds", "run", "--once"], "");
        assert_eq!(failed.status.code(), Some(1));
        assert!(String::from_utf8_lossy(&failed.stderr).ends_with("matchday: 1 of 2 feeds failed\n"));
        assert_eq!(
            without_times(&setting.expect(&["feeds", "status"], "")),
            format!(
                "football_data:HL: last success … last change … last error … (refused (400): Your API token is invalid.), next poll …
{cup}: last success … last change … last error none, next poll …"
            )
        );
        for output in [&failed.stdout, &failed.stderr] {
            assert!(!String::from_utf8_lossy(output).contains("hunter2"));
        }
        std::fs::remove_file(&file).expect("removed");
    })
    .await;
}

/// Whether this process has polled the feed.
async fn has_polled(process: &Process) -> bool {
    process.counted("matchday_feed_last_success_timestamp_seconds").await > 0.0
}

#[tokio::test]
async fn one_worker_polls_and_another_takes_over() {
    with_database(async |options| {
        let (url, polls, answer) = provider();
        *answer.lock().expect("not poisoned") = document(None);
        let setting = followed(Setting::new(&options), &url)
            .with("MATCHDAY_FEEDS__IDLE", "200ms")
            .with("MATCHDAY_FEEDS__LIVE", "200ms")
            .with("MATCHDAY_FEEDS__FOOTBALL_DATA_PER_MINUTE", "10000")
            .with("MATCHDAY_FEEDS__TIMEOUT", "500ms")
            .with("MATCHDAY_FEEDS__LEASE", "1s");
        let mut workers = vec![setting.start(&["worker"]), setting.start(&["worker"])];
        let ten_more = async |polls: &AtomicUsize| {
            let before = polls.load(Ordering::Relaxed);
            eventually("ten more requests", async || polls.load(Ordering::Relaxed) >= before + 10).await;
        };
        ten_more(&polls).await;
        let first = has_polled(&workers[0]).await;
        assert_ne!(first, has_polled(&workers[1]).await, "exactly one worker polls");
        let mut dying = workers.remove(usize::from(!first));
        dying.kill();
        eventually("the other worker polls", async || has_polled(&workers[0]).await).await;
        *answer.lock().expect("not poisoned") = document(Some((1, 0)));
        eventually("the change is imported", async || workers[0].counted("matchday_feed_changes_total").await > 0.0)
            .await;
        assert!(workers[0].counted("matchday_feed_failures_total").await < 0.5);
        let lines: Vec<Value> = workers[0].log().iter().filter_map(|line| serde_json::from_str(line).ok()).collect();
        let change = "540001: status scheduled → finished, score none → 1:0";
        assert!(lines.iter().any(|line| line["change"] == change && line["feed"] == "football_data:HL"), "{lines:#?}");
        // A terminated worker releases its lease immediately.
        workers[0].signal("TERM");
        assert!(workers[0].ended().await.success());
        let db = sqlx::PgPool::connect_with(options).await.expect("connected");
        let held: i64 =
            sqlx::query_scalar("select count(*) from leases where name = 'feeds'").fetch_one(&db).await.expect("read");
        assert_eq!(held, 0);
        db.close().await;
    })
    .await;
}
