//! Reads from a streaming replica that is paused, stopped and killed: callers see their own writes in every process, lists
//! are not older than the setting says, and no request fails.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use serde_json::{Value, json};
use sqlx::{Connection as _, Executor as _, PgConnection};
use tokio::task::JoinHandle;

use crate::{
    dependencies::postgres::Postgres,
    load::{Crowd, Fan},
    stage::{
        client::within,
        process::{Process, get},
        proof::held,
    },
};

/// The least setting.
const MAX_LAG: Duration = Duration::from_secs(2);

/// The writer's pauses before the next write: reads without a break, and past the time for which a write is noted. Together
/// they are so long that the prediction does not reach the maximum number of revisions.
const PAUSES: [Duration; 4] =
    [Duration::ZERO, Duration::from_millis(700), Duration::from_millis(2_300), Duration::from_secs(9)];

#[tokio::test(flavor = "multi_thread")]
async fn failing_replica_hides_no_own_write() {
    fail_replica(Duration::from_secs(4)).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes two minutes"]
async fn replica_out_for_half_a_minute_hides_no_own_write() {
    fail_replica(Duration::from_secs(30)).await;
}

async fn fail_replica(outage: Duration) {
    let primary = Postgres::start().await;
    let mut replica = primary.replica().await;
    let setting = primary
        .setting()
        .without("MATCHDAY_MATRIX__HOMESERVER_URL")
        .with("MATCHDAY_DATABASE__READ_URL", &format!("postgres://matchday_app@127.0.0.1:{}/matchday", replica.port))
        .with("MATCHDAY_DATABASE__READ_MAX_LAG", &format!("{}s", MAX_LAG.as_secs()));
    let crowd = Crowd::create(&setting, &primary.owner(), 4).await;
    let services = [setting.start(&["serve"]), setting.start(&["serve", "--no-workers"])];
    for service in &services {
        is_used(service, true).await;
    }
    let watch = Watch::start(&crowd, &services);
    let normal = replica_reads_during(&services, Duration::from_secs(4)).await;
    assert!(normal > 50, "the replica serves reads: {normal}");

    let mut inside = PgConnection::connect_with(&replica.owner()).await.expect("connected");
    inside.execute("select pg_wal_replay_pause()").await.expect("paused");
    out_of_use(&services, outage).await;
    inside.execute("select pg_wal_replay_resume()").await.expect("resumed");
    inside.close().await.expect("closed");
    back_in_use(&services).await;

    replica.process().signal("STOP");
    out_of_use(&services, outage).await;
    replica.process().signal("CONT");
    back_in_use(&services).await;

    replica.process().kill();
    out_of_use(&services, outage).await;
    replica.restart().await;
    back_in_use(&services).await;

    let seen = watch.finish().await;
    let seconds = outage.as_secs();
    held(
        "Streaming replica's replay paused, its processes stopped, then killed (-9) and restarted, under reads and writes",
        &format!(
            "each time for {seconds} s, read_max_lag {} s: {} writes at one process, {} lists read by their writers at another, none \
             without the latest write; {} lists of other callers, none without a write that was acknowledged {} s before; no \
             request failed, the slowest read took {:.1?}; /readyz named the replica and stayed 200; the replica \
             served reads again after each fault",
            MAX_LAG.as_secs(),
            seen.writes,
            seen.own_reads,
            seen.other_reads,
            MAX_LAG.as_secs(),
            seen.slowest,
        ),
    );
}

/// Waits until a process reports whether it uses its replica.
async fn is_used(service: &Process, used: bool) {
    let expected = json!(if used { "up" } else { "down" });
    within(Duration::from_secs(20), "the use of the replica changes", async || {
        let (status, body) = get(&service.public, "/readyz", "").await;
        assert_eq!(status, 200, "the replica does not decide about readiness: {body}");
        body["parts"]["replica"] == expected
    })
    .await;
}

/// Waits until no process uses the replica, and then until the outage has lasted long enough.
async fn out_of_use(services: &[Process], outage: Duration) {
    let began = Instant::now();
    for service in services {
        is_used(service, false).await;
    }
    let idle = replica_reads_during(services, outage.saturating_sub(began.elapsed())).await;
    assert_eq!(idle, 0, "a replica that is out serves no reads");
}

async fn back_in_use(services: &[Process]) {
    for service in services {
        is_used(service, true).await;
    }
    let reads = replica_reads_during(services, Duration::from_secs(2)).await;
    assert!(reads > 0, "the replica serves reads again");
}

async fn replica_reads_during(services: &[Process], time: Duration) -> u64 {
    let before = replica_reads(services).await;
    tokio::time::sleep(time).await;
    replica_reads(services).await - before
}

/// Number of reads that the replica has served.
async fn replica_reads(services: &[Process]) -> u64 {
    let mut sum = 0;
    for service in services {
        let metrics = reqwest::get(format!("{}/metrics", service.private)).await.expect("a response");
        let metrics = metrics.text().await.expect("text");
        let of_replica = |line: &&str| line.starts_with("matchday_reads_total{") && line.contains("\"replica\"");
        let number = |line: &str| line.rsplit(' ').next().and_then(|number| number.parse::<u64>().ok());
        sum += metrics.lines().filter(of_replica).map(|line| number(line).expect("a number")).sum::<u64>();
    }
    sum
}

/// What the callers saw.
#[derive(Default)]
struct Seen {
    writes: usize,
    own_reads: usize,
    other_reads: usize,
    slowest: Duration,
}

/// Callers who write and read until the test ends.
struct Watch {
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    tasks: Vec<JoinHandle<()>>,
}

/// Times at which the writes of one caller were acknowledged. The number of a write is its confidence.
type Acknowledged = Arc<Mutex<Vec<Instant>>>;

#[derive(Clone)]
struct Caller {
    web: reqwest::Client,
    stop: Arc<AtomicBool>,
    seen: Arc<Mutex<Seen>>,
    /// Base URLs of the two processes.
    processes: [String; 2],
    event: i64,
}

impl Watch {
    /// Two fans write and read their own predictions; two others read the predictions of these.
    fn start(crowd: &Crowd, services: &[Process; 2]) -> Self {
        let (stop, seen) = (Arc::<AtomicBool>::default(), Arc::<Mutex<Seen>>::default());
        let web = reqwest::Client::builder().timeout(Duration::from_secs(15)).build().expect("a client");
        let mut tasks = Vec::new();
        for (number, (writer, other)) in crowd.fans[..2].iter().zip(&crowd.fans[2..]).enumerate() {
            let mut processes = services.each_ref().map(|service| service.public.clone());
            processes.rotate_left(number);
            let caller = Caller {
                web: web.clone(),
                stop: Arc::clone(&stop),
                seen: Arc::clone(&seen),
                processes,
                event: crowd.first_event(),
            };
            let acknowledged = Acknowledged::default();
            let (writing, reading) = (caller.clone(), caller);
            tasks.push(tokio::spawn(writing.write(writer.clone(), Arc::clone(&acknowledged))));
            tasks.push(tokio::spawn(reading.read_of_other(other.clone(), writer.id, acknowledged)));
        }
        Self { stop, seen, tasks }
    }

    async fn finish(self) -> Seen {
        self.stop.store(true, Ordering::Release);
        for task in self.tasks {
            task.await.expect("no failed or stale read");
        }
        std::mem::take(&mut *self.seen.lock().expect("not poisoned"))
    }
}

impl Caller {
    fn is_over(&self) -> bool {
        self.stop.load(Ordering::Acquire)
    }

    /// Writes at one process, and reads at the other, at once and until the next write.
    async fn write(self, fan: Fan, acknowledged: Acknowledged) {
        for (number, pause) in PAUSES.iter().cycle().enumerate().map(|(number, pause)| (number % 100, pause)) {
            let prediction = json!({"event_id": self.event, "prediction": "home", "confidence": number});
            let url = format!("{}/api/auth/predictions", self.processes[0]);
            let answer = self.web.post(url).bearer_auth(&fan.token).json(&prediction).send().await.expect("a response");
            assert!(answer.status().is_success(), "{}", answer.status());
            acknowledged.lock().expect("not poisoned").push(Instant::now());
            self.seen.lock().expect("not poisoned").writes += 1;
            let written = Instant::now();
            loop {
                let body = self.get("/api/auth/predictions", &fan.token).await;
                let shown = &body["data"][0]["confidence"];
                assert_eq!(*shown, json!(number), "{:?} after the write", written.elapsed());
                self.seen.lock().expect("not poisoned").own_reads += 1;
                if self.is_over() {
                    return;
                }
                if written.elapsed() >= *pause {
                    break;
                }
                tokio::time::sleep(Duration::from_millis(40)).await;
            }
        }
    }

    /// Reads the predictions of another caller, at both processes in turn.
    async fn read_of_other(mut self, fan: Fan, writer: i64, acknowledged: Acknowledged) {
        let path = format!("/api/auth/events/{}/predictions?user_id={writer}", self.event);
        while !self.is_over() {
            self.processes.rotate_left(1);
            let asked = Instant::now();
            let due = {
                let acknowledged = acknowledged.lock().expect("not poisoned");
                acknowledged.iter().filter(|at| asked.duration_since(**at) > MAX_LAG).count()
            };
            let body = self.get(&path, &fan.token).await;
            if due > 0 {
                let shown = body["data"][0]["confidence"].as_u64().expect("a prediction");
                // Confidences repeat after a hundred writes, which is longer ago than any allowed age.
                let newer = (0..50).map(|more| (due as u64 - 1 + more) % 100);
                assert!(newer.into_iter().any(|number| number == shown), "{shown} is shown, {due} writes are due");
            }
            self.seen.lock().expect("not poisoned").other_reads += 1;
            tokio::time::sleep(Duration::from_millis(25)).await;
        }
    }

    async fn get(&self, path: &str, token: &str) -> Value {
        let began = Instant::now();
        let answer = self.web.get(format!("{}{path}", self.processes[1])).bearer_auth(token).send().await;
        let answer = answer.expect("a response");
        let status = answer.status();
        let body: Value = answer.json().await.unwrap_or_default();
        assert_eq!(status, 200, "{path}: {body}");
        let mut seen = self.seen.lock().expect("not poisoned");
        seen.slowest = seen.slowest.max(began.elapsed());
        assert!(seen.slowest < Duration::from_secs(4), "{path} took {:?}", began.elapsed());
        body
    }
}
