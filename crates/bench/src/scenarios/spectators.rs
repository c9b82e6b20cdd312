//! The homeserver's processor time while fans write and thousands of spectators read, compared with few spectators; and the
//! time until a message, or its removal, has reached all of them.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use futures_util::future;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::{io::AsyncReadExt as _, net::TcpStream, sync::mpsc, task::JoinSet};

use super::{OPEN, join_storm::Bare, prepare, quantiles, stream};
use crate::{
    environment::{
        Stage,
        cores::{Cores, Group},
        free_port, people,
        service::{Service, Setting},
        synapse::Synapse,
        until,
    },
    load::Latency,
    outcome::{Goal, Outcome},
};

/// Text with which every message starts.
const TEXT: &str = "measuredtext";
const WRITERS: u64 = 50;
const MANY: u64 = 5_000;
const FEW: u64 = 50;
/// Messages of a round, all writers together. The view shows five a second.
const MESSAGES: u64 = 50;
const PAUSE: Duration = Duration::from_millis(200);
/// Number of attempts to send a message.
const TRIES: usize = 20;
/// Target for the latency of a message, in milliseconds.
const SOON: f64 = 300.0;
/// Limit for the removal of a message from all views, in milliseconds.
const REMOVED_WITHIN: f64 = 1_000.0;

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, port, many) = ("bench_spectators", free_port()?, stage.sized(MANY));
    stage.say("starting a homeserver");
    let synapse = Synapse::start_pushing_to(stage, Some(port)).await?;
    let setting = Setting::on(name)
        .with("MATCHDAY_MATRIX__HOMESERVER_URL", &synapse.url)
        .with("MATCHDAY_HTTP__PRIVATE_LISTEN", &format!("127.0.0.1:{port}"));
    prepare(stage, &setting, name, &[OPEN]).await?;
    let db = stage.postgres.pool(name).await?;
    people::make(&db, MANY + WRITERS, MANY + WRITERS).await?;
    let service = stage.serve(&setting, &[]).await?;
    let opened = "select matrix_id from rooms where opened_at is not null";
    until("the room is open", Duration::from_mins(1), async || {
        sqlx::query_scalar::<_, String>(opened).fetch_optional(&db).await.is_ok_and(|room| room.is_some())
    })
    .await?;
    let room: String = sqlx::query_scalar(opened).fetch_one(&db).await?;
    let chat = Bare::on(stage, &synapse)?;
    let scene = Scene { stage, chat, service: &service, room, homeserver: synapse.group() };
    // The first message of each writer joins, which is not measured.
    for writer in 1..=WRITERS {
        scene.write(MANY + writer, "Hello").await?;
    }
    let (mut of_many, mut of_few) = (Times::default(), Times::default());
    let mut groups = stage.groups(&service);
    groups.push(scene.homeserver);
    let (rounds, cores) = stage
        .alternate(
            &groups,
            async |_| scene.measure(many, &mut of_many).await,
            async |_| scene.measure(FEW, &mut of_few).await,
        )
        .await?;
    ensure_no_text(stage, &db, &service).await?;
    db.close().await;
    drop((service, synapse));
    stage.postgres.forget("bench_synapse").await?;
    stage.postgres.forget(name).await?;
    let ([p50, p99, _], [few_p50, few_p99, _]) = (quantiles(&of_many.messages), quantiles(&of_few.messages));
    let [slowest, slowest_of_few] = [&of_many, &of_few].map(|times| times.removals.quantile(1.0));
    Ok(vec![
        Outcome {
            what: format!("Homeserver's processor time for {MESSAGES} messages, with {many} spectators"),
            beside: format!("same messages with {FEW} spectators"),
            unit: "s".to_owned(),
            size: Some(many),
            goal: Some(Goal::AtMost(1.2)),
            limit: cores,
            ..Outcome::of("spectators", rounds)
        },
        Outcome {
            what: format!("From sending a message until each of {many} spectators has received it, p99"),
            beside: format!("same with {FEW} spectators"),
            unit: "ms".to_owned(),
            size: Some(many),
            limit: format!(
                "{} the target of {SOON:.0} ms; p50 is {p50:.0} ms, compared with {few_p50:.0} ms",
                if p99 <= SOON { "within" } else { "over" }
            ),
            ..Outcome::of("spectators-latency", vec![[p99, few_p99]])
        },
        Outcome {
            what: format!("From the removal of a message until the last of {many} spectators knows it"),
            beside: format!("same with {FEW} spectators"),
            unit: "ms".to_owned(),
            size: Some(many),
            limit: format!(
                "{} the limit of {REMOVED_WITHIN:.0} ms",
                if slowest <= REMOVED_WITHIN { "within" } else { "over" }
            ),
            ..Outcome::of("spectators-removal", vec![[slowest, slowest_of_few]])
        },
    ])
}

/// Checks that neither the database nor the log of the service has the text of a message.
async fn ensure_no_text(stage: &Stage, db: &PgPool, service: &Service) -> anyhow::Result<()> {
    let tables: Vec<String> = sqlx::query_scalar(
        "select table_name::text from information_schema.tables where table_schema = 'public' and table_type = 'BASE TABLE'",
    )
    .fetch_all(db)
    .await?;
    for table in tables {
        let found: i64 = sqlx::query_scalar(AssertSqlSafe(format!(
            "select count(*) from \"{table}\" t where t::text like '%{TEXT}%'"
        )))
        .fetch_one(db)
        .await?;
        ensure!(found == 0, "{table} contains a message");
    }
    let log = std::fs::read_to_string(stage.directory.join("service.log"))?;
    ensure!(!log.contains(TEXT), "the log of process {} contains a message", service.id());
    Ok(())
}

#[derive(Default)]
struct Times {
    messages: Latency,
    removals: Latency,
}

/// A room with a service and its homeserver.
struct Scene<'a> {
    stage: &'a Stage,
    chat: Bare,
    service: &'a Service,
    room: String,
    homeserver: Group,
}

impl Scene<'_> {
    /// Lets some spectators read while the writers write. Returns the homeserver's processor time.
    async fn measure(&self, spectators: u64, times: &mut Times) -> anyhow::Result<f64> {
        self.stage.say(format!("connecting {spectators} spectators"));
        let (report, mut arrivals) = mpsc::unbounded_channel();
        // The streams close when this ends.
        let mut readers = JoinSet::new();
        let began = Instant::now();
        let query = format!("?room_id={}&chat=true", self.room.replace('!', "%21").replace(':', "%3A"));
        for user in 1..=spectators {
            let opened = stream::open(self.service.public, user, &query, "\"type\":\"ready\"").await;
            readers.spawn(receive(opened.context("5,000 spectators need `ulimit -n 20000`")?, report.clone()));
        }
        self.stage.say(format!("{spectators} spectators connected in {:.1} s", began.elapsed().as_secs_f64()));
        let before = Cores::now(&[self.homeserver]);
        let mut last = String::new();
        for number in 0..MESSAGES {
            let text = format!("{TEXT}{}", now_of_machine().as_micros());
            let sent = Instant::now();
            let writing = self.write(MANY + 1 + number % WRITERS, &text);
            let reading = all_receive(&mut arrivals, spectators, &text, sent, &mut times.messages);
            (last, ()) = future::try_join(writing, reading).await?;
            tokio::time::sleep(PAUSE.saturating_sub(sent.elapsed())).await;
        }
        let spent = before.until(&Cores::now(&[self.homeserver])).spent_by(self.homeserver.name);
        let began = Instant::now();
        let url = self.chat.path(&format!("rooms/{}/redact/{last}/removal", self.room));
        let removing = self.chat.send(self.chat.web.put(url).json(&json!({})));
        let reading = all_receive(&mut arrivals, spectators, &last, began, &mut times.removals);
        future::try_join(removing, reading).await?;
        Ok(spent)
    }

    /// Sends a message as a user; returns its id. Retries after `Retry-After` while the room is busy.
    async fn write(&self, user: u64, text: &str) -> anyhow::Result<String> {
        let url = format!("http://{}/api/auth/chat-rooms/{}/messages", self.service.public, self.room);
        let key = format!("{user}-{}", now_of_machine().as_micros());
        for _ in 0..TRIES {
            let request = self.chat.web.post(&url).bearer_auth(people::token(user)).header("idempotency-key", &key);
            let answer = request.json(&json!({"body": text})).send().await?;
            let status = answer.status();
            let wait = answer.headers().get("retry-after").and_then(|wait| wait.to_str().ok()?.parse::<u64>().ok());
            let body: Value = answer.json().await?;
            if body["code"] == "room_busy" {
                tokio::time::sleep(Duration::from_secs(wait.context("no Retry-After")?)).await;
                continue;
            }
            ensure!(status == 201, "{status}: {body}");
            return Ok(body.pointer("/data/event_id").and_then(Value::as_str).context("no event id")?.to_owned());
        }
        anyhow::bail!("the room stayed busy for {TRIES} tries")
    }
}

/// Waits until all spectators have received a message or its removal.
async fn all_receive(
    arrivals: &mut mpsc::UnboundedReceiver<(String, Instant)>,
    spectators: u64,
    wanted: &str,
    sent: Instant,
    latency: &mut Latency,
) -> anyhow::Result<()> {
    for _ in 0..spectators {
        loop {
            let next = tokio::time::timeout(Duration::from_secs(20), arrivals.recv()).await;
            let (what, at) = next.context("a spectator lacks an item")?.context("a spectator was disconnected")?;
            if what == wanted {
                latency.record(at.saturating_duration_since(sent));
                break;
            }
        }
    }
    Ok(())
}

/// Time of this machine, which makes each message unique.
fn now_of_machine() -> Duration {
    std::time::UNIX_EPOCH.elapsed().unwrap_or_default()
}

/// Reports the arrival of each message by its text, and of each removal by the id of the message.
async fn receive(mut stream: TcpStream, report: mpsc::UnboundedSender<(String, Instant)>) {
    let mut received: Vec<u8> = Vec::with_capacity(2_048);
    while stream.read_buf(&mut received).await.is_ok_and(|read| read > 0) {
        let now = Instant::now();
        while let Some(end) = received.windows(2).position(|two| two == b"\n\n") {
            let event: Vec<u8> = received.drain(..end + 2).collect();
            let event = String::from_utf8_lossy(&event);
            let field = |name: &str| {
                let value = event.split_once(&format!("\"{name}\":\""))?.1;
                Some(value.split_once('"')?.0.to_owned())
            };
            let item = match field("type").as_deref() {
                Some("message") => field("body"),
                Some("removal") => field("event_id"),
                _ => None,
            };
            if let Some(item) = item
                && report.send((item, now)).is_err()
            {
                return;
            }
        }
    }
}
