//! Own rank and neighbours among a million players, compared with the two bare commands on the same Redis.

use std::{process::Command, sync::Arc, time::Duration};

use sqlx::{AssertSqlSafe, Executor as _};

use super::{OPEN, Side, easy_rate, http, latencies, prepare, send};
use crate::{
    environment::{Stage, output, people, service::Setting, until},
    load::{self, Load, Requests, Target},
    outcome::{Goal, Outcome},
    wire::{Protocol, write_http, write_redis},
};

const PLAYERS: u64 = 1_000_000;
/// Number of users who send requests.
const ASKING: u64 = 1_000;
const CONNECTIONS: usize = 16;
const PATH: &str = "/api/auth/leaderboards?per_page=10";

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let (name, setting) = ("bench_rank", Setting::on("bench_rank"));
    prepare(stage, &setting, name, &[OPEN]).await?;
    let pool = stage.postgres.pool(name).await?;
    stage.say(format!("inserting {PLAYERS} players with scores"));
    people::make(&pool, PLAYERS, ASKING).await?;
    let scores = "insert into user_scores (user_id, scope, points, exact, correct, settled)
                  select user_id, 'all', (user_id * 7919 % 5003)::integer, (user_id % 11)::integer, (user_id % 23)::integer, 30
                  from users";
    pool.execute(AssertSqlSafe(scores)).await?;
    pool.execute("vacuum analyze").await?;
    let service = stage.serve(&setting, &["--no-workers"]).await?;
    let tokens: Vec<String> = (1..=ASKING).map(people::token).collect();
    stage.say("filling the leaderboard");
    until("the leaderboard is available", Duration::from_mins(2), async || {
        send(service.public, "GET", PATH, &tokens[0], "").await.is_ok_and(|(status, _)| status == 200)
    })
    .await?;

    let ours = http(service.public, move |number, into| {
        write_http(into, "GET", PATH, &tokens[usize::try_from(number % ASKING).unwrap_or_default()], "");
    });
    let key = format!("{{{name}:board:all}}");
    let requests: Requests = Arc::new(move |number, into| {
        let user = number / 2 % ASKING + 1;
        if number % 2 == 0 {
            write_redis(into, &[b"ZRANK", key.as_bytes(), &user.to_be_bytes()]);
        } else {
            // Eleven places at an arbitrary position: the rank is known only after the first response, and every
            // position costs the same.
            let place = user * 997 % PLAYERS;
            let (first, last) = (place.to_string(), (place + 10).to_string());
            write_redis(into, &[b"ZRANGE", key.as_bytes(), first.as_bytes(), last.as_bytes(), b"WITHSCORES"]);
        }
    });
    let bare = Target { address: stage.redis()?, protocol: Protocol::Redis, requests, requests_a_unit: 2 };
    let (our_numbers, bare_numbers) = (Arc::default(), Arc::default());
    let load = Load { connections: CONNECTIONS, length: stage.length, rate: None };
    let (rounds, cores) = stage
        .alternate(
            &stage.groups(&service),
            async |_| Ok(load::run(&ours, load, &our_numbers).await?.rate),
            async |_| Ok(load::run(&bare, load, &bare_numbers).await?.rate),
        )
        .await?;
    let mut outcome = Outcome::of("rank", rounds);
    let sides =
        ((Side::Requests(&ours, &our_numbers), CONNECTIONS), (Side::Requests(&bare, &bare_numbers), CONNECTIONS));
    outcome.latency = Some(latencies(stage, sides.0, sides.1, easy_rate(&outcome)).await?);
    let (redis, board) = (stage.redis()?, format!("{{{name}:board:all}}"));
    let (host, port) = (redis.ip().to_string(), redis.port().to_string());
    let memory = output(Command::new("redis-cli").args(["-h", &host, "-p", &port, "MEMORY", "USAGE", &board]))?;
    let memory = memory.trim().parse::<f64>()? / 1e6;
    drop(service);
    stage.forget_in_redis(name)?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("Top ten, own rank and neighbours among {PLAYERS} players, {CONNECTIONS} connections"),
        beside: "ZRANK and ZRANGE on the same Redis, one after another".to_owned(),
        goal: Some(Goal::AtLeast(0.4)),
        size: Some(PLAYERS),
        limit: format!("the leaderboard uses {memory:.0} MB; {cores}"),
        ..outcome
    }])
}
