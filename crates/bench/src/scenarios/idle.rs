//! Memory of idle connections, compared with nginx.

use std::{fs, net::SocketAddr, time::Duration};

use anyhow::{Context as _, ensure};

use super::{OPEN, prepare};
use crate::{
    environment::{Stage, nginx::Nginx, people, service::Setting},
    outcome::Outcome,
    wire::{Connection, Protocol, write_http},
};

const CONNECTIONS: u32 = 10_000;
/// Longer than the time after which either side treats a connection as idle.
const SETTLE: Duration = Duration::from_secs(2);

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_idle", Setting::on("bench_idle"));
    prepare(stage, &setting, name, &[OPEN; 20]).await?;
    people::make(&stage.postgres.pool(name).await?, 1, 1).await?;
    let token = people::token(1);
    let (mut ours_request, mut bare_request) = (Vec::new(), Vec::new());
    write_http(&mut ours_request, "GET", "/api/auth/events?per_page=20", &token, "");
    write_http(&mut bare_request, "GET", "/page", "", "");
    let mut largest: f64 = 0.0;
    let (rounds, _) = stage
        .alternate(
            &[],
            async |_| {
                // A new process for each round: memory that the allocator retains would hide how much the next
                // round.
                let service = stage.serve(&setting, &["--no-workers"]).await?;
                let (grown, whole) = memory_of_waiting(service.public, &ours_request, &[service.id()]).await?;
                largest = largest.max(whole);
                Ok(grown)
            },
            async |_| {
                let nginx = Nginx::start(&stage.directory, &[b'x'; 4_000]).await?;
                let processes = with_children(nginx.group().leader)?;
                Ok(memory_of_waiting(nginx.address, &bare_request, &processes).await?.0)
            },
        )
        .await?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("Memory per idle connection, {CONNECTIONS} connections after one response each"),
        beside: "nginx".to_owned(),
        unit: "KB per connection".to_owned(),
        size: Some(u64::from(CONNECTIONS)),
        limit: format!("the goal is at most 12 KB; the whole process uses {largest:.0} MB"),
        ..Outcome::of("idle", rounds)
    }])
}

/// Opens the connections, sends one request on each, and leaves them open. Returns the memory per connection in
/// kilobytes, and the total memory of the processes in megabytes.
pub(super) async fn memory_of_waiting(
    address: SocketAddr,
    request: &[u8],
    processes: &[u32],
) -> anyhow::Result<(f64, f64)> {
    let mut connection = Connection::open(address).await?;
    for _ in 0..1_000 {
        ensure!(connection.exchange(Protocol::Http, request).await? == 200, "a response");
    }
    let before = memory(processes)?;
    let mut open = Vec::new();
    for _ in 0..CONNECTIONS {
        let mut connection = Connection::open(address).await.context("10,000 connections need `ulimit -n 20000`")?;
        ensure!(connection.exchange(Protocol::Http, request).await? == 200, "a response on each connection");
        open.push(connection);
    }
    // The last connections become idle too.
    tokio::time::sleep(SETTLE).await;
    let after = memory(processes)?;
    // All connections must still work.
    for connection in &mut open {
        ensure!(connection.exchange(Protocol::Http, request).await? == 200, "a second response on each connection");
    }
    Ok(((after - before) / f64::from(CONNECTIONS), after / 1024.0))
}

/// Proportional set size (PSS) of the processes, in kilobytes.
pub(crate) fn memory(processes: &[u32]) -> anyhow::Result<f64> {
    let mut sum = 0.0;
    for process in processes {
        let text = fs::read_to_string(format!("/proc/{process}/smaps_rollup"))?;
        let line = text.lines().find_map(|line| line.strip_prefix("Pss:")).context("Pss")?;
        sum += line.split_whitespace().next().context("a number")?.parse::<f64>()?;
    }
    Ok(sum)
}

fn with_children(leader: u32) -> anyhow::Result<Vec<u32>> {
    let children = fs::read_to_string(format!("/proc/{leader}/task/{leader}/children"))?;
    let children = children.split_whitespace().filter_map(|child| child.parse().ok());
    Ok([leader].into_iter().chain(children).collect())
}
