//! Points are computed when a list is read: a page with points, compared with the same page of a match without a
//! result.

use std::sync::Arc;

use anyhow::ensure;

use super::{Match, Side, easy_rate, http, latencies, prepare, send};
use crate::{
    environment::{Stage, people, service::Setting},
    load::{self, Load},
    outcome::{Goal, Outcome},
    wire::write_http,
};

const CONNECTIONS: usize = 16;
const PREDICTIONS: u64 = 100_000;
const LIVE: Match = Match { status: "live", start: "2026-05-01T15:00:00Z", score: Some((2, 1)) };
const FINISHED: Match = Match { status: "finished", ..LIVE };

const PREDICT: &str = "
insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at)
  select user_id, id, pick_of(home, away), home::smallint, away::smallint, (user_id * 7 % 101)::smallint, 1,
         start_time - interval '1 day', start_time - interval '1 day'
  from users cross join events
  cross join lateral (select ((user_id * 31) % 4)::integer as home, ((user_id * 13) % 3)::integer as away) s;
";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_points", Setting::on("bench_points"));
    prepare(stage, &setting, name, &[FINISHED, LIVE]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {PREDICTIONS} predictions of each match"));
    people::make(&pool, PREDICTIONS, 1).await?;
    sqlx::raw_sql(PREDICT).execute(&pool).await?;
    sqlx::raw_sql("vacuum analyze").execute(&pool).await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let token = people::token(1);
    let path = |event: u32| format!("/api/auth/events/{event}/predictions?per_page=100");
    for (event, has_points) in [(1, true), (2, false)] {
        let (status, page) = send(service.public, "GET", &path(event), &token, "").await?;
        ensure!(status == 200 && page.contains("\"points_earned\":null") != has_points, "{status}: {page:.300}");
    }
    let page = |event: u32| {
        let (path, token) = (path(event), token.clone());
        http(service.public, move |_, into| write_http(into, "GET", &path, &token, ""))
    };
    let (ours, bare, numbers) = (page(1), page(2), Arc::default());
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |_| Ok(load::run(&ours, load, &numbers).await?.rate),
            async |_| Ok(load::run(&bare, load, &numbers).await?.rate),
        )
        .await?;
    let mut outcome = Outcome::of("points", rounds);
    let sides = ((Side::Requests(&ours, &numbers), CONNECTIONS), (Side::Requests(&bare, &numbers), CONNECTIONS));
    outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("Page of 100 predictions out of {PREDICTIONS}, points computed, {CONNECTIONS} connections"),
        beside: "same page of a match without a result".to_owned(),
        goal: Some(Goal::AtLeast(0.8)),
        size: Some(PREDICTIONS),
        limit: cores,
        ..outcome
    }])
}
