//! The list of matches, beside nginx with the same bytes.

use std::sync::Arc;

use anyhow::ensure;

use super::{OPEN, Side, ask, easy_rate, http, latencies, prepare};
use crate::{
    load::{self, Load},
    outcome::{Goal, Outcome},
    parts::{Stage, nginx::Nginx, people, service::Setting},
    wire::write_http,
};

const CONNECTIONS: usize = 64;
const PATH: &str = "/api/auth/events?per_page=20";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_events", Setting::on("bench_events"));
    prepare(stage, &setting, name, &[OPEN; 40]).await?;
    people::make(&stage.postgres.pool(name).await?, 1, 1).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let token = people::token(1);
    let (status, page) = ask(service.public, "GET", PATH, &token, "").await?;
    ensure!(status == 200 && page.contains("Rovers"), "{status}: {page:.300}");
    let nginx = Nginx::start(&stage.directory, page.as_bytes()).await?;

    let ours = http(service.public, move |_, into| write_http(into, "GET", PATH, &token, ""));
    let bare = http(nginx.address, |_, into| write_http(into, "GET", "/page", "", ""));
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let numbers = Arc::default();
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |_| Ok(load::run(&ours, load, &numbers).await?.rate),
            async |_| Ok(load::run(&bare, load, &numbers).await?.rate),
        )
        .await?;
    let mut outcome = Outcome::of("events-list", rounds);
    let sides = ((Side::Requests(&ours, &numbers), CONNECTIONS), (Side::Requests(&bare, &numbers), CONNECTIONS));
    outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("Page of 20 matches ({} bytes), token checked, {CONNECTIONS} connections", page.len()),
        beside: "nginx, the same bytes from a file".to_owned(),
        goal: Some(Goal::AtLeast(0.9)),
        limit: cores,
        ..outcome
    }])
}
