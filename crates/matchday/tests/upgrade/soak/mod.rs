//! Mixed traffic for a long time, with real dependencies: no request fails unexpectedly, no write is lost, and only
//! tables with user data or history grow.

mod samples;
mod traffic;

use std::{
    collections::BTreeMap,
    io::Write as _,
    path::Path,
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use matchday::testing::with_database;
use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgConnectOptions};
use tokio::task::JoinSet;

use self::{
    samples::{Sample, Sampler, median},
    traffic::{FANS, Fan, Traffic, rate},
};
use crate::{
    connection::{Call, Connection},
    stage::{
        client::{Homeserver, within},
        process::{Process, Setting},
        proof::held,
        synapse::{Synapse, with_synapse},
    },
};

const MATCHES: usize = 40;

/// Tables that grow with use, because they keep user data or history.
const KEPT: [&str; 17] = [
    "users",                // one account per phone
    "phone_claims",         // owner of each phone
    "username_claims",      // one username per account
    "wallets",              // one wallet per account
    "user_scores",          // one score per account and leaderboard
    "predictions",          // one per account and match
    "prediction_revisions", // earlier revisions
    "coin_transactions",    // ledger
    "coin_entries",         // ledger
    "coin_payouts",         // ledger
    "daily_claims",         // ledger
    "event_results",        // every revision of a result
    "score_lanes",          // one per match with a result, more with more users
    "coin_rates",           // one per match that was paid
    "rooms",                // rooms that fans open
    "room_activity",        // one per room
    "room_members",         // one per account and room it ever joined
];

/// Tables from which rows older than this are deleted once an hour. They grow during a soak. At its end the test makes
/// their rows look old and expects them to be deleted.
const SWEPT: [(&str, &str); 5] = [
    ("codes", "a day"),
    ("code_failures", "a month"),
    ("sms_log", "sms.log_for"),
    ("chat_inbox", "an hour for messages, a week for the rest"),
    ("idempotency_keys", "a day"),
];

/// A user has at most ten sessions, so the number of users bounds these tables.
const BOUNDED_BY_USERS: [&str; 1] = ["sessions"];

/// Allowed growth of all other tables. Their size follows from the catalogue, or is zero once all work is done; only a
/// few rows are temporary.
const TRANSIENT_ROWS: u64 = 200;

/// Allowed memory growth between the second and the last third of the soak, besides the size of the caches.
const GROWTH_IN_PERCENT: u64 = 10;
const GROWTH_IN_KIB: u64 = 8 * 1_024;

/// Allowed share of 503 responses to requests that need the homeserver. The homeserver is a single process and shares
/// the machine with everything else, so its timeouts are not a fault of the service.
const CHATS_REFUSED_IN_PERCENT: u64 = 1;

#[tokio::test]
#[ignore = "runs for a configured time: `just soak`"]
async fn long_mixed_traffic_causes_no_growth() {
    let minutes = std::env::var("MATCHDAY_SOAK_MINUTES").map_or(20, |minutes| minutes.parse().expect("a number"));
    with_database(async |options| {
        with_synapse(&options, async |synapse| soak(&options, synapse, minutes).await).await;
    })
    .await;
}

fn say(text: &str) {
    let _ = writeln!(std::io::stderr(), "soak: {text}");
}

async fn soak(options: &PgConnectOptions, synapse: &Synapse, minutes: u64) {
    let mut setting =
        synapse.setting(options).with("MATCHDAY_COINS__WELCOME", "1000000").with("MATCHDAY_COINS__PER_POINT", "1");
    let binary = std::env::var_os("MATCHDAY_BIN");
    if let Some(binary) = &binary {
        setting = setting.with_binary(Path::new(binary));
    }
    let db = PgPool::connect_with(options.clone()).await.expect("connected");
    let mut process = setting.start(&["serve"]);
    import(&setting, &[]).await;
    let rooms = rooms(&db).await;
    let lasts = Duration::from_mins(minutes);
    let probe = Sampler::new(&setting, &db).await;

    let ready = Traffic::new(lasts, Homeserver::at(&synapse.url), rooms.clone());
    let mut fans = Vec::new();
    for number in 0..FANS {
        fans.push(Fan::new(&ready, &process.public, number).await);
    }
    // The soak starts when all fans are logged in.
    let traffic = Traffic::new(lasts, Homeserver::at(&synapse.url), rooms);
    say(&format!("{FANS} apps, {} actions a second, for {minutes} minutes", rate()));
    let mut tasks = JoinSet::new();
    for fan in fans {
        tasks.spawn(fan.with(&traffic).run());
    }
    tasks.spawn(results(setting.clone(), Arc::clone(&traffic)));
    tasks.spawn(expired_codes(process.public.clone(), db.clone(), Arc::clone(&traffic)));
    let samples = watch(&probe, &process, &traffic).await;
    while let Some(task) = tasks.join_next().await {
        task.expect("no panic");
    }

    let mut faults = Vec::new();
    let settled = settle(&probe, &process).await;
    faults.extend(settled.err());
    for (command, expected) in [
        (["coins", "audit"].as_slice(), "every wallet matches its history"),
        (&["scores", "rebuild", "--dry-run"], "every score matches predictions, answers and results"),
        (&["scores", "status"], "every result is in all scores"),
    ] {
        let output = setting.run(command, "");
        let printed = String::from_utf8_lossy(&output.stdout).trim().to_owned();
        if !output.status.success() || !printed.ends_with(expected) {
            faults.push(format!("{command:?}: {printed} {}", String::from_utf8_lossy(&output.stderr)));
        }
    }
    let swept = sweep(&setting, &db).await;
    faults.extend(swept.err());
    faults.extend(find_faults(&samples, &traffic, &process));
    process.signal("TERM");
    assert!(process.ended().await.success());
    db.close().await;
    print_figures(&samples, &traffic, &process);
    assert!(faults.is_empty(), "{} faults:\n{}", faults.len(), faults.join("\n"));
    let what = format!(
        "Mixed traffic for {minutes} minutes, {} actions a second, all dependencies real, {}",
        rate(),
        if binary.is_some() { "release build" } else { "debug build" }
    );
    held(&what, &summary(&samples, &traffic));
}

/// Imports all matches with these results, by match.
async fn import(setting: &Setting, results: &[(i64, i64)]) {
    let matches: Vec<Value> = (0..MATCHES)
        .map(|number| {
            let result = results.get(number);
            json!({"key": format!("m{number}"), "home": "rovers", "away": "city", "start_time": "2090-05-01T15:00:00Z",
                   "venue": "Park", "status": if result.is_some() { "finished" } else { "scheduled" },
                   "home_score": result.map(|(home, _)| home), "away_score": result.map(|(_, away)| away)})
        })
        .collect();
    let document = json!({"sport": {"slug": "football", "name": "Football"},
        "tournament": {"slug": "cup", "name": "Cup", "logo": null},
        "teams": [{"slug": "rovers", "name": "Rovers"}, {"slug": "city", "name": "City"}], "matches": matches})
    .to_string();
    let setting = setting.clone();
    tokio::task::spawn_blocking(move || setting.expect(&["fixtures", "import", "-", "--no-wait"], &document))
        .await
        .expect("imported");
}

/// Waits until all matches have rooms; returns their ids.
async fn rooms(db: &PgPool) -> Vec<String> {
    let open = "select matrix_id from rooms where opened_at is not null and stand is not null";
    within(Duration::from_mins(3), "the matches have rooms", async || {
        sqlx::query(open).fetch_all(db).await.expect("read").len() == MATCHES
    })
    .await;
    sqlx::query_scalar(open).fetch_all(db).await.expect("read")
}

/// Imports thirty results one by one over the whole time, and corrects every third.
async fn results(setting: Setting, traffic: Arc<Traffic>) {
    const RESULTS: usize = 30;
    let pause = (traffic.until - traffic.began) / u32::try_from(RESULTS + 1).expect("few");
    let mut results: Vec<(i64, i64)> = Vec::new();
    for number in 0..RESULTS {
        let due = traffic.began + pause * u32::try_from(number + 1).expect("few");
        tokio::time::sleep_until(due.into()).await;
        // Fans stop predicting the match before its result is imported.
        traffic.open_from.store(number + 2, Relaxed);
        let goals = i64::try_from(number).expect("few");
        if number % 3 == 2 {
            results[number - 1] = (goals % 4, goals % 3 + 1);
        }
        results.push((goals % 3, goals % 2));
        import(&setting, &results).await;
    }
}

/// Tries an expired code every ten seconds.
async fn expired_codes(address: String, db: PgPool, traffic: Arc<Traffic>) {
    let mut connection = Connection::to(&address);
    for number in 0.. {
        // A separate number block for each code: the service limits a block from which no code is ever entered.
        let phone = format!("+1417{}0100", 200 + number % 700);
        let request = json!({"phone": phone});
        let requested = connection.send(Call::post("/api/code/request", "", &request)).await;
        let path = format!("/api/logs/sms?phone={}&status=sent", phone.replace('+', "%2B"));
        let log = connection.send(Call::get(&path, "")).await.map(|answer| answer.expect(200));
        let aged = sqlx::query("update codes set expires_at = now() - interval '1 second' where subject = $1")
            .bind(format!("login:{phone}"))
            .execute(&db)
            .await
            .expect("aged");
        let code = log.map(|log| log["data"][0]["code"].clone()).unwrap_or_default();
        let body = json!({"phone": phone, "code": code});
        let answer = connection.send(Call::post("/api/code/verify", "", &body)).await;
        let statuses = (requested.map(|answer| answer.status.as_u16()), answer.map(|answer| answer.status.as_u16()));
        if statuses != (Ok(200), Ok(401)) || aged.rows_affected() != 1 {
            traffic.wrong(&format!("an expired code: {statuses:?}, {} codes expired", aged.rows_affected()));
        }
        if traffic.until < Instant::now() + Duration::from_secs(10) {
            return;
        }
        tokio::time::sleep(Duration::from_secs(10)).await;
    }
}

/// Takes a sample every ten seconds, and prints a status line every thirty.
async fn watch(probe: &Sampler, process: &Process, traffic: &Traffic) -> Vec<Sample> {
    let mut samples = Vec::new();
    let mut due = traffic.began;
    while due < traffic.until {
        tokio::time::sleep_until(due.into()).await;
        let sample = probe.sample(process).await;
        if samples.len() % 3 == 0 {
            let (requests, wrong) = traffic.record(|record| {
                (record.statuses.values().sum::<u64>(), record.wrong.last().cloned().unwrap_or_default())
            });
            say(&format!(
                "{:>4.0?} of {:.0?}: {requests} requests, {} MiB, {} descriptors, {} connections, outbox {:.1} s, work {}, \
                 Redis {} keys {wrong}",
                traffic.began.elapsed(),
                traffic.until - traffic.began,
                sample.memory / 1_024,
                sample.descriptors,
                sample.connections,
                sample.outbox_lag,
                sample.work,
                sample.redis_keys,
            ));
        }
        samples.push(sample);
        due += Duration::from_secs(10);
    }
    samples
}

/// Waits until the outbox and the work queue are empty.
async fn settle(sampler: &Sampler, process: &Process) -> Result<(), String> {
    let began = Instant::now();
    loop {
        let sample = sampler.sample(process).await;
        let outbox = sample.tables["outbox"].0;
        if (outbox, sample.work, sample.dead) == (0, 0, 0) {
            return Ok(());
        }
        if began.elapsed() > Duration::from_mins(1) {
            return Err(format!(
                "a minute after the last request {outbox} messages are in the outbox, {} work items are left, {} are dead letters",
                sample.work, sample.dead
            ));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Makes the swept rows look old, and starts a worker, which sweeps immediately, because nobody holds the lease.
async fn sweep(setting: &Setting, db: &PgPool) -> Result<(), String> {
    for statement in [
        "update codes set created_at = created_at - interval '40 days', expires_at = expires_at - interval '40 days'",
        "update code_failures set last_failed_at = last_failed_at - interval '40 days'",
        "update sms_log set created_at = created_at - interval '40 days', expires_at = expires_at - interval '40 days'",
        "update chat_inbox set received_at = received_at - interval '40 days'",
        "update idempotency_keys set created_at = created_at - interval '40 days', claimed_until = claimed_until - interval '40 days'",
        "delete from leases where name = 'sweep'",
    ] {
        sqlx::query(statement).execute(db).await.map_err(|error| error.to_string())?;
    }
    let worker = setting.clone().with("MATCHDAY_HTTP__PRIVATE_LISTEN", "127.0.0.1:0").start(&["worker"]);
    let began = Instant::now();
    loop {
        let mut left = Vec::new();
        for (table, _) in SWEPT {
            let count = sqlx::AssertSqlSafe(format!("select count(*) from {table}"));
            let rows: i64 = sqlx::query_scalar(count).fetch_one(db).await.map_err(|error| error.to_string())?;
            // The homeserver still pushes new events.
            if rows > if table == "chat_inbox" { 50 } else { 0 } {
                left.push(format!("{rows} of {table}"));
            }
        }
        if left.is_empty() {
            drop(worker);
            return Ok(());
        }
        if began.elapsed() > Duration::from_mins(1) {
            return Err(format!("not swept: {}; {:?}", left.join(", "), worker.log()));
        }
        tokio::time::sleep(Duration::from_millis(200)).await;
    }
}

/// Lists all violated expectations.
fn find_faults(samples: &[Sample], traffic: &Traffic, process: &Process) -> Vec<String> {
    let mut faults = traffic.record(|record| {
        let mut faults: Vec<String> = record.wrong.iter().take(20).cloned().collect();
        let failed: u64 =
            record.statuses.iter().filter(|(status, _)| **status >= 500 || **status == 0).map(|(_, n)| n).sum();
        if failed > record.chats_refused {
            faults.push(format!("{} requests failed", failed - record.chats_refused));
        }
        if record.chats_refused > 2 + record.chats * CHATS_REFUSED_IN_PERCENT / 100 {
            faults.push(format!("{} of {} chat requests got 503", record.chats_refused, record.chats));
        }
        for kind in ["lists", "predictions", "deductions", "leaderboards", "logins", "joins", "leaves", "hostile"] {
            if record.latencies.get(kind).is_none_or(|times| times.len() < 5) {
                faults.push(format!("hardly any {kind}: not enough traffic"));
            }
        }
        faults
    });
    let third = samples.len() / 3;
    let (second, last) = (&samples[third..2 * third], &samples[2 * third..]);
    let (before, after) = (median(second, |sample| sample.memory), median(last, |sample| sample.memory));
    if after > before + before * GROWTH_IN_PERCENT / 100 + GROWTH_IN_KIB {
        faults.push(format!("memory grew from {before} to {after} KiB"));
    }
    let (before, after) = (median(second, |sample| sample.descriptors), median(last, |sample| sample.descriptors));
    if after > before + 10 {
        faults.push(format!("descriptors grew from {before} to {after}"));
    }
    let highest = |of: &dyn Fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or_default();
    // Connections of the pool, of each batch writer, and of the readiness check.
    if highest(&|sample| sample.connections) > 16 + 4 + 2 {
        faults.push(format!("{} connections to PostgreSQL", highest(&|sample| sample.connections)));
    }
    let lag = samples.iter().map(|sample| sample.outbox_lag).fold(0.0, f64::max);
    if lag > 30.0 {
        faults.push(format!("a message waited {lag:.0} s in the outbox"));
    }
    if highest(&|sample| sample.dead) > 0 {
        faults.push(format!("{} work items became dead letters", highest(&|sample| sample.dead)));
    }
    for table in samples[0].tables.keys() {
        let meant_to = KEPT.contains(&table.as_str()) || SWEPT.iter().any(|(swept, _)| swept == table);
        let rows = |sample: &Sample| sample.tables[table].0;
        let (before, after) = (median(second, rows), median(last, rows));
        let by_people = BOUNDED_BY_USERS.contains(&table.as_str()) && after <= FANS as u64 * 11;
        if !meant_to && !by_people && after > before + TRANSIENT_ROWS {
            faults.push(format!("{table} grew from {before} to {after} rows"));
        }
    }
    for line in process.log() {
        let parsed: Value = serde_json::from_str(&line).unwrap_or_default();
        if parsed["level"] == "ERROR" {
            faults.push(format!("in the log: {line}"));
        }
    }
    faults
}

/// Prints all figures, and sorts the latencies.
fn print_figures(samples: &[Sample], traffic: &Traffic, process: &Process) {
    let (first, end) = (&samples[0], &samples[samples.len() - 1]);
    traffic.record(|record| {
        for (kind, times) in &mut record.latencies {
            times.sort_unstable();
            let [half, most, all] = [50, 99, 100].map(|percent| times[(times.len() - 1) * percent / 100]);
            say(&format!("{kind}: {}, p50 {half:.1?}, p99 {most:.1?}, longest {all:.1?}", times.len()));
        }
        say(&format!("responses by status: {:?}", record.statuses));
    });
    for (table, (rows, bytes)) in &end.tables {
        let (before, _) = first.tables[table];
        if *rows != before {
            say(&format!("{table}: {before} rows at the start, {rows} at the end, {} KiB", bytes / 1_024));
        }
    }
    for (warning, times) in warnings(process) {
        say(&format!("warned {times} times: {warning}"));
    }
}

/// Warnings of the process with their causes, shortened, and how often each was logged.
fn warnings(process: &Process) -> BTreeMap<String, u64> {
    let mut warnings = BTreeMap::new();
    for line in process.log() {
        let line: Value = serde_json::from_str(&line).unwrap_or_default();
        if line["level"] == "WARN" {
            let why =
                ["reason", "error", "cause", "route"].map(|name| line[name].as_str().unwrap_or_default()).join(" ");
            let warning = format!("{} {why}", line["message"].as_str().unwrap_or_default());
            *warnings.entry(warning.chars().take(150).collect()).or_default() += 1;
        }
    }
    warnings
}

/// Key figures for the report. The latencies must be sorted.
fn summary(samples: &[Sample], traffic: &Traffic) -> String {
    let third = samples.len() / 3;
    let (second, last) = (&samples[third..2 * third], &samples[2 * third..]);
    let highest = |of: &dyn Fn(&Sample) -> u64| samples.iter().map(of).max().unwrap_or_default();
    let mebibytes = |part: &[Sample]| median(part, |sample| sample.memory) / 1_024;
    let end = &samples[samples.len() - 1];
    let (refused, chats) = traffic.record(|record| (record.chats_refused, record.chats));
    let (requests, times) = traffic.record(|record| {
        let described = record.latencies.iter().map(|(kind, times)| {
            let [half, most] = [50, 99].map(|percent| times[(times.len() - 1) * percent / 100]);
            format!("{kind} {half:.0?} and {most:.0?}")
        });
        (record.statuses.values().sum::<u64>(), described.collect::<Vec<_>>().join(", "))
    });
    format!(
        "{requests} requests, none failed, {refused} of {chats} that need the homeserver got 503; memory {} MiB in the \
         second third and {} MiB in the last; file descriptors {} and {}; at most {} connections to PostgreSQL; the oldest \
         message in the outbox waited {:.1} s; at most {} pending work items, no dead letters; Redis {} keys and {} KiB at \
         the end; only tables that keep user data or history and tables that are swept hourly grew, and old rows were \
         swept; the ledger and the scores add up; no error in the log; p50 and p99, measured from when requests were due: \
         {times}",
        mebibytes(second),
        mebibytes(last),
        median(second, |sample| sample.descriptors),
        median(last, |sample| sample.descriptors),
        highest(&|sample| sample.connections),
        samples.iter().map(|sample| sample.outbox_lag).fold(0.0, f64::max),
        highest(&|sample| sample.work),
        end.redis_keys,
        end.redis_bytes / 1_024,
    )
}
