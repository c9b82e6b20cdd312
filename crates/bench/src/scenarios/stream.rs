//! Time from writing a goal until a thousand listeners have received it, and from the goal's message in NATS until
//! thousands of listeners have, both compared with a message of the same size through NATS alone; and the memory of idle
//! listeners.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
use serde_json::json;
use tokio::{
    io::{AsyncReadExt as _, AsyncWriteExt as _},
    net::TcpStream,
    sync::mpsc,
};

use super::{Match, OPEN, document, idle::memory, prepare, quantiles};
use crate::{
    environment::{Stage, people, service::Setting},
    load::Latency,
    outcome::Outcome,
    wire::write_http,
};

const LISTENERS: u64 = 1_000;
const CROWD: u64 = 10_000;
const IDLE: u64 = 5_000;
const GOALS: u8 = 10;
/// Time limit until all listeners have received a goal.
const PATIENCE: Duration = Duration::from_secs(20);
/// Target for the latency of a goal, in milliseconds.
const SOON: f64 = 1_000.0;

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_stream", Setting::on("bench_stream"));
    prepare(stage, &setting, name, &[OPEN]).await?;
    stage.say(format!("inserting {CROWD} users"));
    people::make(&stage.postgres.pool(name).await?, CROWD, CROWD).await?;
    let goals = goals(stage, &setting).await?;
    let facts_of_some = facts(stage, &setting, name, LISTENERS, 50.0).await?;
    let facts_of_crowd = facts(stage, &setting, name, CROWD, 150.0).await?;
    let idle = idle(stage, &setting).await?;
    stage.postgres.forget(name).await?;
    Ok(vec![goals, facts_of_some, facts_of_crowd, idle])
}

/// From the start of the command that writes a goal.
async fn goals(stage: &Stage, setting: &Setting) -> anyhow::Result<Outcome> {
    let service = stage.serve(setting, &[]).await?;
    let mut listeners = Arrivals::of_service(stage, service.public, LISTENERS).await?;
    let mut nats = Bare::connect(stage, LISTENERS).await?;
    let (mut of_ours, mut of_bare) = (Latency::default(), Latency::default());
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |round| {
                let mut latency = Latency::default();
                for score in scores(round) {
                    let live = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((score, 0)) };
                    let began = Instant::now();
                    stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], &document(&[live]))?;
                    listeners.wait_for_all(score, began, &mut latency).await?;
                }
                of_ours.add(&latency);
                Ok(latency.quantile(0.99))
            },
            async |round| nats.round(round, &mut of_bare).await,
        )
        .await?;
    let ([p50, _, p999], [bare_p50, _, bare_p999]) = (quantiles(&of_ours), quantiles(&of_bare));
    let worst = rounds.iter().map(|round| round[0]).fold(0.0, f64::max);
    Ok(Outcome {
        what: format!(
            "From the start of the command that writes a goal until each of {LISTENERS} listeners has received it, p99"
        ),
        beside: "message of the same size through NATS alone, to as many listeners".to_owned(),
        unit: "ms".to_owned(),
        size: Some(LISTENERS),
        limit: format!(
            "the slowest round's p99 is {worst:.0} ms, {} the target of {SOON:.0} ms; over all rounds p50 is {p50:.0} ms and p99.9 \
             {p999:.0} ms, compared with {bare_p50:.0} and {bare_p999:.0} ms; this includes the start of the \
             command; {cores}",
            if worst <= SOON { "within" } else { "over" }
        ),
        ..Outcome::of("stream", rounds)
    })
}

/// From the publication of a goal's message, which the service receives from NATS.
async fn facts(stage: &Stage, setting: &Setting, prefix: &str, listeners: u64, target: f64) -> anyhow::Result<Outcome> {
    let service = stage.serve(setting, &["--no-workers"]).await?;
    let mut arrivals = Arrivals::of_service(stage, service.public, listeners).await?;
    let mut nats = Bare::connect(stage, listeners).await?;
    let mut publisher = stage.connect_to_nats().await?;
    let subject = format!("{prefix}.fact.event.changed");
    let (mut of_ours, mut of_bare) = (Latency::default(), Latency::default());
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |round| {
                let mut latency = Latency::default();
                for score in scores(round) {
                    let message = publish(&subject, &fact(score));
                    let began = Instant::now();
                    publisher.write_all(&message).await?;
                    arrivals.wait_for_all(score, began, &mut latency).await?;
                }
                of_ours.add(&latency);
                Ok(latency.quantile(0.99))
            },
            async |round| nats.round(round, &mut of_bare).await,
        )
        .await?;
    let ([p50, _, p999], [bare_p50, _, bare_p999]) = (quantiles(&of_ours), quantiles(&of_bare));
    let worst = rounds.iter().map(|round| round[0]).fold(0.0, f64::max);
    Ok(Outcome {
        what: format!(
            "From the publication of a goal on NATS until each of {listeners} listeners has received it, p99"
        ),
        beside: format!(
            "message of the same size through NATS alone, to as many subscriptions on {} connections",
            connections_for(listeners)
        ),
        unit: "ms".to_owned(),
        size: Some(listeners),
        limit: format!(
            "the slowest round's p99 is {worst:.0} ms, {} the target of {target:.0} ms; over all rounds p50 is {p50:.0} ms and \
             p99.9 {p999:.0} ms, compared with {bare_p50:.0} and {bare_p999:.0} ms; {cores}",
            if worst <= target { "within" } else { "over" }
        ),
        ..Outcome::of(if listeners == CROWD { "stream-facts-10000" } else { "stream-facts" }, rounds)
    })
}

/// Scores of the goals of a round; no two goals have the same.
fn scores(round: usize) -> impl Iterator<Item = u8> {
    let before = u8::try_from(round).unwrap_or_default().saturating_mul(GOALS);
    (1..=GOALS).map(move |goal| before.saturating_add(goal))
}

/// The message that a goal causes.
fn fact(score: u8) -> String {
    let state = |score: u8| json!({"status": "live", "start_time": "2026-05-01T15:00:00Z", "home_score": score, "away_score": 0});
    let mut fact = json!({
        "event_id": 1, "tournament_id": 1, "result_revision": 0, "before": state(score - 1),
        "home_team": {"id": 1, "name": "Rovers"}, "away_team": {"id": 2, "name": "City"},
    });
    if let (Some(fact), Some(state)) = (fact.as_object_mut(), state(score).as_object_mut()) {
        fact.append(state);
    }
    fact.to_string()
}

fn publish(subject: &str, message: &str) -> Vec<u8> {
    format!("PUB {subject} {}\r\n{message}\r\n", message.len()).into_bytes()
}

/// Connections to NATS alone: at most 5,000, because a process has a limited number of files. Each has enough
/// subscriptions for all listeners.
const fn connections_for(listeners: u64) -> u64 {
    if listeners > 5_000 { 5_000 } else { listeners }
}

/// NATS alone, with as many subscriptions as the service has listeners.
struct Bare {
    publisher: TcpStream,
    arrivals: Arrivals,
}

impl Bare {
    async fn connect(stage: &Stage, listeners: u64) -> anyhow::Result<Self> {
        let (report, arrivals) = mpsc::unbounded_channel();
        let connections = connections_for(listeners);
        for _ in 0..connections {
            let mut stream = stage.connect_to_nats().await?;
            for number in 1..=listeners / connections {
                stream.write_all(format!("SUB bench.goals {number}\r\n").as_bytes()).await?;
            }
            stream.write_all(b"PING\r\n").await?;
            let mut received = Vec::new();
            while !received.windows(4).any(|four| four == b"PONG") {
                ensure!(stream.read_buf(&mut received).await? > 0, "NATS closed the connection");
            }
            tokio::spawn(receive(stream, report.clone()));
        }
        Ok(Self { publisher: stage.connect_to_nats().await?, arrivals: Arrivals { listeners, arrivals } })
    }

    async fn round(&mut self, round: usize, all: &mut Latency) -> anyhow::Result<f64> {
        // Pads the message to the size of a stream event for a goal.
        let filler = "x".repeat(280);
        let mut latency = Latency::default();
        for score in scores(round) {
            let message = publish("bench.goals", &format!("{{\"home_score\":{score},\"filler\":\"{filler}\"}}"));
            let began = Instant::now();
            self.publisher.write_all(&message).await?;
            self.arrivals.wait_for_all(score, began, &mut latency).await?;
        }
        all.add(&latency);
        Ok(latency.quantile(0.99))
    }
}

async fn idle(stage: &Stage, setting: &Setting) -> anyhow::Result<Outcome> {
    let mut largest: f64 = 0.0;
    let (rounds, _) = stage
        .alternate(
            &[],
            async |_| {
                let service = stage.serve(setting, &["--no-workers"]).await?;
                let first = listen(service.public, 1).await?;
                let before = memory(&[service.id()])?;
                let mut open = vec![first];
                for user in 2..=IDLE {
                    open.push(listen(service.public, user).await.context("5,000 listeners need `ulimit -n 20000`")?);
                }
                let after = memory(&[service.id()])?;
                largest = largest.max(after / 1024.0);
                drop(open);
                #[expect(clippy::cast_precision_loss, reason = "some thousands")]
                Ok((after - before) / (IDLE - 1) as f64)
            },
            async |_| {
                // The same service with idle connections: the difference is the memory of listening.
                let service = stage.serve(setting, &["--no-workers"]).await?;
                let mut request = Vec::new();
                write_http(&mut request, "GET", "/api/auth/events?per_page=20", &people::token(1), "");
                let (grown, _) = super::idle::memory_of_waiting(service.public, &request, &[service.id()]).await?;
                Ok(grown)
            },
        )
        .await?;
    Ok(Outcome {
        what: format!("Memory per idle listener, {IDLE} listeners"),
        beside: "idle connection to the same service after one response".to_owned(),
        unit: "KB per listener".to_owned(),
        size: Some(IDLE),
        limit: format!("the goal is at most 16 KB; the whole process uses {largest:.0} MB"),
        ..Outcome::of("stream-idle", rounds)
    })
}

/// Opens a live stream; returns once its position has arrived.
async fn listen(address: SocketAddr, user: u64) -> anyhow::Result<TcpStream> {
    open(address, user, "", "id: ").await
}

/// Opens a live stream with these parameters; returns once this text has arrived.
pub(super) async fn open(address: SocketAddr, user: u64, query: &str, first: &str) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    write_http(&mut request, "GET", &format!("/api/auth/stream{query}"), &people::token(user), "");
    stream.write_all(&request).await?;
    let mut received = Vec::new();
    loop {
        ensure!(stream.read_buf(&mut received).await? > 0, "the stream ended");
        let text = String::from_utf8_lossy(&received);
        ensure!(!text.contains("\r\n\r\n") || text.starts_with("HTTP/1.1 200"), "{text}");
        if text.contains(first) {
            return Ok(stream);
        }
    }
}

/// Reports the arrival time of each score.
async fn receive(mut stream: TcpStream, report: mpsc::UnboundedSender<(u8, Instant)>) {
    const MARKER: &[u8] = b"\"home_score\":";
    let mut received: Vec<u8> = Vec::with_capacity(2_048);
    while stream.read_buf(&mut received).await.is_ok_and(|read| read > 0) {
        let now = Instant::now();
        while let Some(at) = received.windows(MARKER.len()).position(|some| some == MARKER) {
            let digits = &received[at + MARKER.len()..];
            // The number may not have arrived completely.
            let Some(end) = digits.iter().position(|byte| !byte.is_ascii_digit()) else { break };
            let score = std::str::from_utf8(&digits[..end]).ok().and_then(|digits| digits.parse().ok());
            received.drain(..at + MARKER.len() + end);
            if score.is_some_and(|score| report.send((score, now)).is_err()) {
                return;
            }
        }
    }
}

/// Arrivals of goals at a number of listeners.
struct Arrivals {
    listeners: u64,
    arrivals: mpsc::UnboundedReceiver<(u8, Instant)>,
}

impl Arrivals {
    async fn of_service(stage: &Stage, address: SocketAddr, listeners: u64) -> anyhow::Result<Self> {
        stage.say(format!("connecting {listeners} listeners"));
        let (report, arrivals) = mpsc::unbounded_channel();
        for user in 1..=listeners {
            let stream = listen(address, user).await.context("10,000 listeners need `ulimit -n 20000`")?;
            tokio::spawn(receive(stream, report.clone()));
        }
        Ok(Self { listeners, arrivals })
    }

    /// Waits until all listeners have received a score, and records the latency of each.
    async fn wait_for_all(&mut self, score: u8, began: Instant, latency: &mut Latency) -> anyhow::Result<()> {
        let mut missing = self.listeners;
        while missing > 0 {
            let next = tokio::time::timeout(PATIENCE, self.arrivals.recv()).await;
            let (of, at) = next
                .with_context(|| format!("{missing} listeners did not receive the goal"))?
                .context("all listeners disconnected")?;
            if of == score {
                latency.record(at.saturating_duration_since(began));
                missing -= 1;
            }
        }
        Ok(())
    }
}
