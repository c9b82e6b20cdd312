//! Cost of one call: its latency, and what PostgreSQL did for it.

use std::time::{Duration, Instant};

use anyhow::ensure;
use sqlx::PgPool;

use super::{Cost, calls::Case};
use crate::{
    environment::{Stage, service::Service, until},
    load::Latency,
};

/// Requests of a case; fewer if they take longer than the time.
const REQUESTS: u64 = 100;
const TIME: Duration = Duration::from_secs(2);

pub(super) async fn measure(stage: &Stage, service: &Service, pool: &PgPool, case: &Case) -> anyhow::Result<Cost> {
    let (mut number, mut latency) = (0, Latency::default());
    // The first request for a leaderboard builds it.
    let mut took = Duration::ZERO;
    until("the service is prepared", Duration::from_mins(10), async || {
        let answered = send(service, pool, case, number).await;
        number += 1;
        took = answered.as_ref().map_or(took, |(.., took)| *took);
        !matches!(answered, Ok((503, body, _)) if body.contains("leaderboard_rebuilding"))
    })
    .await?;
    // Pages are kept for a second, or some times as long as they take to read: count what a request costs without them.
    tokio::time::sleep(Duration::from_millis(1_100) + took * 6).await;
    sqlx::query("select pg_stat_statements_reset()").execute(pool).await?;
    latency.record(expect(service, pool, case, number).await?);
    number += 1;
    let statements: Vec<(String, i64, i64)> = sqlx::query_as(
        "select left(regexp_replace(query, '\\s+', ' ', 'g'), 80), rows::int8, (shared_blks_hit + shared_blks_read)::int8
         from pg_stat_statements s join pg_roles r on r.oid = s.userid
         where s.dbid = (select oid from pg_database where datname = current_database()) and r.rolname = 'matchday_app'
         order by 3 desc",
    )
    .fetch_all(pool)
    .await?;
    let sum = |of: fn(&(String, i64, i64)) -> i64| statements.iter().map(of).sum::<i64>();
    #[expect(clippy::cast_precision_loss, reason = "far fewer than a float has digits")]
    let (rows, blocks) = (sum(|s| s.1) as f64, sum(|s| s.2) as f64);
    let worst = statements.first().map(|first| first.0.clone()).unwrap_or_default();
    let began = Instant::now();
    while number < case.most.min(REQUESTS) && began.elapsed() < TIME {
        latency.record(expect(service, pool, case, number).await?);
        number += 1;
    }
    stage.say(format!("{}: {blocks:.0} blocks, p99 {:.1} ms", case.title(), latency.quantile(0.99)));
    Ok(Cost { p50: latency.quantile(0.5), p99: latency.quantile(0.99), rows, blocks, worst })
}

/// Sends a request that must succeed; returns how long it took.
async fn expect(service: &Service, pool: &PgPool, case: &Case, number: u64) -> anyhow::Result<Duration> {
    let (status, body, took) = send(service, pool, case, number).await?;
    ensure!(case.expects(status), "{status}: {body}");
    Ok(took)
}

async fn send(service: &Service, pool: &PgPool, case: &Case, number: u64) -> anyhow::Result<(u16, String, Duration)> {
    let request = case.request(service, pool, number).await?.timeout(Duration::from_secs(30));
    let sent = Instant::now();
    let response = request.send().await?;
    let (status, body) = (response.status().as_u16(), response.text().await?);
    Ok((status, body, sent.elapsed()))
}
