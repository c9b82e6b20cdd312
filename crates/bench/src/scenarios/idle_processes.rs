//! Load that idle processes put on PostgreSQL: six processes compared with one.

use std::time::Duration;

use sqlx::PgPool;

use super::{OPEN, prepare};
use crate::{
    environment::{Stage, service::Setting, synapse::Synapse},
    outcome::{Goal, Outcome, median},
};

const PROCESSES: usize = 6;
/// Time until the processes have connected and taken over the background tasks.
const SETTLING: Duration = Duration::from_secs(10);
/// Minimum time for counting. Servers report their counters with a delay of about a second.
const COUNTING: Duration = Duration::from_secs(20);

pub(super) async fn run(stage: &Stage) -> anyhow::Result<Vec<Outcome>> {
    let name = "bench_idle_processes";
    stage.say("starting a homeserver");
    let synapse = Synapse::start(stage).await?;
    let setting = Setting::on(name).with("MATCHDAY_MATRIX__HOMESERVER_URL", &synapse.url);
    prepare(stage, &setting, name, &[OPEN; 20]).await?;
    let db = stage.postgres.pool(name).await?;
    let (mut of_six, mut of_one) = (Vec::new(), Vec::new());
    let (rounds, _) = stage
        .alternate(
            &[],
            async |_| {
                let (transactions, connections) = count(stage, &setting, &db, PROCESSES).await?;
                of_six.push(connections);
                Ok(transactions)
            },
            async |_| {
                let (transactions, connections) = count(stage, &setting, &db, 1).await?;
                of_one.push(connections);
                Ok(transactions)
            },
        )
        .await?;
    db.close().await;
    drop(synapse);
    stage.postgres.forget("bench_synapse").await?;
    stage.postgres.forget(name).await?;
    Ok(vec![Outcome {
        what: format!("Transactions of {PROCESSES} idle processes with workers and chat"),
        beside: "one such process".to_owned(),
        size: u64::try_from(PROCESSES).ok(),
        goal: Some(Goal::AtMost(1.5)),
        limit: format!(
            "{:.0} connections, compared with {:.0}",
            median(of_six.into_iter()),
            median(of_one.into_iter())
        ),
        ..Outcome::of("idle-processes", rounds)
    }])
}

/// Starts some processes and leaves them idle. Returns their transactions per second, and their connections.
async fn count(stage: &Stage, setting: &Setting, db: &PgPool, processes: usize) -> anyhow::Result<(f64, f64)> {
    let mut running = Vec::new();
    for _ in 0..processes {
        running.push(stage.serve(setting, &[]).await?);
    }
    tokio::time::sleep(SETTLING).await;
    let (before, _) = counters(db).await?;
    let time = stage.length.max(COUNTING);
    tokio::time::sleep(time).await;
    let (after, connections) = counters(db).await?;
    drop(running);
    Ok(((after - before) / time.as_secs_f64(), connections))
}

/// Number of transactions in the database so far, and of the service's connections.
async fn counters(db: &PgPool) -> anyhow::Result<(f64, f64)> {
    let query = "select (xact_commit + xact_rollback)::float8,
                        (select count(*)::float8 from pg_stat_activity
                         where datname = current_database() and usename = 'matchday_app')
                 from pg_stat_database where datname = current_database()";
    Ok(sqlx::query_as(query).fetch_one(db).await?)
}
