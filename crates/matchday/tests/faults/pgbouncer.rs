//! Several processes behind a PgBouncer in transaction mode, with the settings of `deploy/pgbouncer`.

use std::time::{Duration, Instant};

use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::{
    dependencies::{pgbouncer::PgBouncer, postgres::Postgres},
    load::{Crowd, matches},
    stage::{
        client::{Client, within},
        process::get,
        proof::held,
    },
};

/// Number of fans that create load at each process.
const FANS: usize = 12;

#[tokio::test(flavor = "multi_thread")]
async fn processes_share_few_connections_and_survive_its_kill() {
    let postgres = Postgres::start().await;
    // Fewer server connections than the processes would open by themselves.
    let mut pgbouncer =
        PgBouncer::start(&postgres, &[("pool_size=24", "pool_size=6"), ("pool_size=16", "pool_size=4")]).await;
    let setting = pgbouncer.setting(&postgres).without("MATCHDAY_MATRIX__HOMESERVER_URL");
    let mut crowds = Vec::new();
    for _ in 0..2 {
        crowds.push(Crowd::create_without_first(&setting, &postgres.owner(), FANS, 1).await);
    }
    let services = [setting.start(&["serve"]), setting.start(&["serve"])];

    // A user logs in at one process and uses the other one.
    let ada = Client::new(&services[0]).log_in("+14155550100", Some("ada")).await;
    let elsewhere = Client::new(&services[1]);
    let event = crowds[0].first_event() - 1;
    let prediction = json!({"event_id": event, "prediction": "home"});
    elsewhere.post("/api/auth/predictions", &ada.token, prediction).await.expect(201);
    let (status, coins) = get(&services[1].public, "/api/auth/coins", &ada.token).await;
    assert_eq!(status, 200, "{coins}");

    let loads = [crowds[0].start(&services[0]), crowds[1].start(&services[1])];
    for load in &loads {
        load.wait_for_progress(300, Duration::from_secs(30)).await;
    }
    let most = connections(&postgres).await;
    assert!(most <= 10, "{most} connections to PostgreSQL");
    pgbouncer.process().kill();
    tokio::time::sleep(Duration::from_secs(1)).await;
    pgbouncer.restart().await;
    let began = Instant::now();
    for load in &loads {
        load.wait_for_progress(300, Duration::from_secs(30)).await;
    }
    let back = began.elapsed();

    // A result reaches the scores through the work queue.
    setting.expect(&["fixtures", "import", "-"], &matches(&[(2, 1)]));
    within(Duration::from_secs(30), "the result is in the scores", async || {
        let (_, body) = get(&services[1].public, "/api/auth/predictions?status=settled", &ada.token).await;
        let (_, board) = get(&services[0].public, "/api/auth/leaderboards", &ada.token).await;
        body["data"][0]["points_earned"].as_i64().is_some_and(|points| points > 0) && board["data"]["me"].is_object()
    })
    .await;

    let mut acknowledged = Vec::new();
    for (load, service) in loads.into_iter().zip(&services) {
        let outcome = load.finish(service, &setting, &postgres.owner()).await;
        assert!(outcome.slowest < Duration::from_secs(12), "the slowest response took {:.1?}", outcome.slowest);
        acknowledged.push(format!("{outcome}"));
    }
    for service in &services {
        let log = service.log();
        let prepared = |line: &&String| line.contains("prepared statement");
        assert!(!log.iter().any(|line| prepared(&line)), "{log:#?}");
    }
    held(
        "PgBouncer in transaction mode, in front of two processes, killed (-9) and restarted under load",
        &format!(
            "{most} connections to PostgreSQL for both processes; {}; 300 more acknowledged at each process within {back:.1?} of its \
             restart; a result reached all scores",
            acknowledged.join("; ")
        ),
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn refuses_start_with_pooler_that_sets_nothing() {
    let postgres = Postgres::start().await;
    let pgbouncer = PgBouncer::start(&postgres, &[("set enable_seqscan = off;", ""), ("set jit = off;", "")]).await;
    let output = pgbouncer.setting(&postgres).without("MATCHDAY_MATRIX__HOMESERVER_URL").run(&["serve"], "");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(!output.status.success() && said.contains("planner settings") && said.contains("jit"), "{said}");
}

/// Number of the service's connections to PostgreSQL.
async fn connections(postgres: &Postgres) -> i64 {
    let mut owner = PgConnection::connect_with(&postgres.owner()).await.expect("connected");
    let query = "select count(*) from pg_stat_activity where usename = 'matchday_app'";
    let count = sqlx::query_scalar(query).fetch_one(&mut owner).await.expect("read");
    owner.close().await.expect("closed");
    count
}
