//! Time from writing a goal until a thousand listeners have received it, compared with a message of the same size
//! through NATS alone; and the memory of idle listeners.

use std::{
    net::SocketAddr,
    time::{Duration, Instant},
};

use anyhow::{Context as _, ensure};
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
const IDLE: u64 = 5_000;
const GOALS: u8 = 10;
/// Time limit until all listeners have received a goal.
const PATIENCE: Duration = Duration::from_secs(20);
/// Target for the latency of a goal, in milliseconds.
const SOON: f64 = 1_000.0;

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_stream", Setting::on("bench_stream"));
    prepare(stage, &setting, name, &[OPEN]).await?;
    stage.say(format!("inserting {IDLE} users"));
    people::make(&stage.postgres.pool(name).await?, IDLE, IDLE).await?;
    let goals = goals(stage, &setting).await?;
    let idle = idle(stage, &setting).await?;
    stage.postgres.forget(name).await?;
    Ok(vec![goals, idle])
}

async fn goals(stage: &Stage, setting: &Setting) -> anyhow::Result<Outcome> {
    let service = stage.serve(setting, &[]).await?;
    stage.say(format!("connecting {LISTENERS} listeners"));
    let (report, mut arrivals) = mpsc::unbounded_channel();
    for user in 1..=LISTENERS {
        let stream = listen(service.public, user).await?;
        tokio::spawn(receive(stream, b"\"home_score\":".to_vec(), report.clone()));
    }
    let nats = stage.variables.get("MATCHDAY_NATS__URL").context("MATCHDAY_NATS__URL")?;
    let nats: SocketAddr = nats.rsplit(['@', '/']).next().unwrap_or_default().parse().context("the address of NATS")?;
    let (report, mut arrivals_bare) = mpsc::unbounded_channel();
    for _ in 0..LISTENERS {
        let mut stream = TcpStream::connect(nats).await?;
        stream.write_all(b"CONNECT {\"verbose\":false}\r\nSUB bench.goals 1\r\nPING\r\n").await?;
        let mut received = Vec::new();
        while !received.windows(4).any(|four| four == b"PONG") {
            ensure!(stream.read_buf(&mut received).await? > 0, "NATS closed the connection");
        }
        tokio::spawn(receive(stream, b"\"home_score\":".to_vec(), report.clone()));
    }
    let mut publisher = TcpStream::connect(nats).await?;
    publisher.write_all(b"CONNECT {\"verbose\":false}\r\n").await?;
    // Pads the message to the size of a stream event for a goal.
    let filler = "x".repeat(280);

    let (mut of_ours, mut of_bare) = (Latency::default(), Latency::default());
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |round| {
                let mut latency = Latency::default();
                for goal in 1..=GOALS {
                    let score = u8::try_from(round).unwrap_or_default() * GOALS + goal;
                    let live = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((score, 0)) };
                    let began = Instant::now();
                    stage.matchday(setting, &["fixtures", "import", "--no-wait", "-"], &document(&[live]))?;
                    wait_for_all(&mut arrivals, score, began, &mut latency).await?;
                }
                of_ours.add(&latency);
                Ok(latency.quantile(0.99))
            },
            async |round| {
                let mut latency = Latency::default();
                for goal in 1..=GOALS {
                    let score = u8::try_from(round).unwrap_or_default() * GOALS + goal;
                    let message = format!("{{\"home_score\":{score},\"filler\":\"{filler}\"}}");
                    let began = Instant::now();
                    publisher
                        .write_all(format!("PUB bench.goals {}\r\n{message}\r\n", message.len()).as_bytes())
                        .await?;
                    wait_for_all(&mut arrivals_bare, score, began, &mut latency).await?;
                }
                of_bare.add(&latency);
                Ok(latency.quantile(0.99))
            },
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
        limit: format!("the whole process uses {largest:.0} MB"),
        ..Outcome::of("stream-idle", rounds)
    })
}

/// Opens a live stream; returns once its position has arrived.
async fn listen(address: SocketAddr, user: u64) -> anyhow::Result<TcpStream> {
    let mut stream = TcpStream::connect(address).await?;
    stream.set_nodelay(true)?;
    let mut request = Vec::new();
    write_http(&mut request, "GET", "/api/auth/stream", &people::token(user), "");
    stream.write_all(&request).await?;
    let mut received = Vec::new();
    loop {
        ensure!(stream.read_buf(&mut received).await? > 0, "the stream ended");
        let text = String::from_utf8_lossy(&received);
        ensure!(!text.contains("\r\n\r\n") || text.starts_with("HTTP/1.1 200"), "{text}");
        if text.contains("id: ") {
            return Ok(stream);
        }
    }
}

/// Reports the arrival time of each score.
async fn receive(mut stream: TcpStream, marker: Vec<u8>, report: mpsc::UnboundedSender<(u8, Instant)>) {
    let mut received: Vec<u8> = Vec::with_capacity(2_048);
    while stream.read_buf(&mut received).await.is_ok_and(|read| read > 0) {
        let now = Instant::now();
        while let Some(at) = received.windows(marker.len()).position(|some| some == marker) {
            let digits = &received[at + marker.len()..];
            // The number may not have arrived completely.
            let Some(end) = digits.iter().position(|byte| !byte.is_ascii_digit()) else { break };
            let score = std::str::from_utf8(&digits[..end]).ok().and_then(|digits| digits.parse().ok());
            received.drain(..at + marker.len() + end);
            if score.is_some_and(|score| report.send((score, now)).is_err()) {
                return;
            }
        }
    }
}

/// Waits until all listeners have received a score, and records the latency of each.
async fn wait_for_all(
    arrivals: &mut mpsc::UnboundedReceiver<(u8, Instant)>,
    score: u8,
    began: Instant,
    latency: &mut Latency,
) -> anyhow::Result<()> {
    let mut missing = LISTENERS;
    while missing > 0 {
        let next = tokio::time::timeout(PATIENCE, arrivals.recv()).await;
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
