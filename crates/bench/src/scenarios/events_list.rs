//! The list of matches, compared with nginx serving the same bytes.

use std::sync::Arc;

use anyhow::ensure;

use super::{OPEN, Side, easy_rate, http, latencies, prepare, send};
use crate::{
    environment::{Stage, nginx::Nginx, people, service::Setting},
    load::{self, Load},
    outcome::{Goal, Outcome},
    wire::write_http,
};

const CONNECTIONS: usize = 64;
/// Number of users who read the list: enough that none of them reaches the rate limit per user.
const USERS: u64 = 64;
const PATH: &str = "/api/auth/events?per_page=20";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_events", Setting::on("bench_events"));
    prepare(stage, &setting, name, &[OPEN; 40]).await?;
    people::make(&stage.postgres.pool(name).await?, USERS, USERS).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let tokens: Vec<_> = (1..=USERS).map(people::token).collect();
    let (status, page) = send(service.public, "GET", PATH, &tokens[0], "").await?;
    ensure!(status == 200 && page.contains("Rovers"), "{status}: {page:.300}");
    let nginx = Nginx::start(&stage.directory, page.as_bytes()).await?;

    let ours = http(service.public, move |number, into| {
        let token = &tokens[usize::try_from(number % USERS).unwrap_or_default()];
        write_http(into, "GET", PATH, token, "");
    });
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
        beside: "nginx, same bytes from a file".to_owned(),
        goal: Some(Goal::AtLeast(0.9)),
        limit: cores,
        ..outcome
    }])
}
