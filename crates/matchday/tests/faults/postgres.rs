//! PostgreSQL killed, unreachable, and replaced by another machine.

use std::time::{Duration, Instant};

use futures_util::future::join_all;
use serde_json::json;
use sqlx::{Connection as _, Executor as _, PgConnection};

use crate::{
    dependencies::{
        postgres::{Postgres, setting_at},
        proxy::{Proxy, Wire},
    },
    load::Crowd,
    stage::{
        client::within,
        process::{Process, get},
        proof::held,
    },
};

/// Number of fans that create load.
const FANS: usize = 12;

/// Waits until readiness reports this status and this state of PostgreSQL; returns how long it took.
async fn readiness(process: &Process, status: u16, postgres: &str) -> Duration {
    let began = Instant::now();
    within(Duration::from_secs(20), "readiness changes", async || {
        let (reported, body) = get(&process.public, "/readyz", "").await;
        (reported, &body["parts"]["postgres"]) == (status, &json!(postgres))
    })
    .await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_under_load_loses_no_write() {
    let mut postgres = Postgres::start().await;
    let setting = postgres.setting().without("MATCHDAY_MATRIX__HOMESERVER_URL");
    let crowd = Crowd::create(&setting, &postgres.owner(), FANS).await;
    let service = setting.start(&["serve"]);
    let load = crowd.start(&service);
    load.wait_for_progress(300, Duration::from_secs(20)).await;
    postgres.process().kill();
    let noticed = readiness(&service, 503, "down").await;
    postgres.restart().await;
    let began = Instant::now();
    readiness(&service, 200, "up").await;
    load.wait_for_progress(300, Duration::from_secs(30)).await;
    let back = began.elapsed();
    let outcome = load.finish(&service, &setting, &postgres.owner()).await;
    assert!(outcome.slowest < Duration::from_secs(12), "the slowest response took {:.1?}", outcome.slowest);
    held(
        "PostgreSQL killed (-9, all its processes) and restarted under load",
        &format!(
            "{outcome}; reported not ready after {noticed:.1?}; {:.1?} without an acknowledgement; 300 more acknowledged \
             within {back:.1?} of PostgreSQL's restart, without a service restart; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );
}

/// Number of the service's connections that wait for a lock.
async fn held_up(postgres: &Postgres) -> i64 {
    let mut owner = PgConnection::connect_with(&postgres.owner()).await.expect("connected");
    let query = "select count(*) from pg_stat_activity where usename = 'matchday_app' and wait_event_type = 'Lock'";
    let count = sqlx::query_scalar(query).fetch_one(&mut owner).await.expect("read");
    owner.close().await.expect("closed");
    count
}

/// A machine dies without closing its connections, and another machine takes over its address. A request on an old
/// connection gets no reply. It must not wait longer than its deadline, and the connection must not stay in the pool.
#[tokio::test(flavor = "multi_thread")]
async fn silent_connections_are_replaced() {
    let postgres = Postgres::start().await;
    let proxy = Proxy::to(postgres.port).await;
    let setting = setting_at(&postgres.owner(), proxy.port())
        .without("MATCHDAY_MATRIX__HOMESERVER_URL")
        .with("MATCHDAY_HTTP__DEADLINE", "3s")
        .with("MATCHDAY_DATABASE__STATEMENT_TIMEOUT", "2s")
        .with("MATCHDAY_DATABASE__MAX_CONNECTIONS", "8");
    let crowd = Crowd::create(&postgres.setting(), &postgres.owner(), FANS).await;
    let service = setting.start(&["serve"]);
    let load = crowd.start(&service);
    let read_all = async || {
        let each = crowd.fans.iter().map(|fan| get(&service.public, "/api/auth/teams", &fan.token));
        join_all(each).await.iter().filter(|(status, _)| *status == 200).count()
    };
    load.wait_for_progress(100, Duration::from_secs(20)).await;
    let mut owner = PgConnection::connect_with(&postgres.owner()).await.expect("connected");
    // Concurrent reads of a locked table make the pool open all its connections.
    owner.execute("begin; lock table teams in access exclusive mode").await.expect("held");
    let (answered, ()) = tokio::join!(read_all(), async {
        within(Duration::from_secs(2), "all connections are in use", async || held_up(&postgres).await >= 8).await;
        owner.execute("commit").await.expect("released");
    });
    assert_eq!(answered, FANS);
    proxy.forget();
    let forgotten = Instant::now();
    // The new machine has none of the old sessions.
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'matchday_app'";
    owner.execute(end).await.expect("ended");
    owner.close().await.expect("closed");
    within(Duration::from_secs(20), "every read succeeds", async || read_all().await == FANS).await;
    let reads = forgotten.elapsed();
    load.wait_for_progress(300, Duration::from_secs(30)).await;
    let outcome = load.finish(&service, &postgres.setting(), &postgres.owner()).await;
    held(
        "All open connections to PostgreSQL silent, new ones possible (the machine died, another took over its address)",
        &format!(
            "{outcome}; every read succeeded again after {reads:.1?} (request deadline 3 s); {:.1?} without an \
             acknowledgement; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );
}

/// The worst kind of outage: connections stay open, but nothing arrives on them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out deadlines"]
async fn network_cut_under_load_loses_no_write() {
    let postgres = Postgres::start().await;
    let proxy = Proxy::to(postgres.port).await;
    let setting = setting_at(&postgres.owner(), proxy.port()).without("MATCHDAY_MATRIX__HOMESERVER_URL");
    let crowd = Crowd::create(&postgres.setting(), &postgres.owner(), FANS).await;
    let service = setting.start(&["serve"]);
    let load = crowd.start(&service);
    load.wait_for_progress(300, Duration::from_secs(20)).await;
    proxy.set(Wire::Silent);
    let cut = Instant::now();
    let noticed = readiness(&service, 503, "down").await;
    // Longer than the request deadline and the batch writer's statement timeout.
    let token = &crowd.fans[0].token;
    let mut slowest = Duration::ZERO;
    while cut.elapsed() < Duration::from_secs(14) {
        let began = Instant::now();
        let (status, body) = get(&service.public, "/api/auth/me", token).await;
        slowest = slowest.max(began.elapsed());
        assert_eq!((status, body["code"].is_string()), (503, true), "{body}");
        assert_eq!(get(&service.public, "/healthz", "").await.0, 200);
    }
    proxy.set(Wire::Normal);
    let healed = Instant::now();
    readiness(&service, 200, "up").await;
    load.wait_for_progress(300, Duration::from_secs(30)).await;
    let back = healed.elapsed();
    within(Duration::from_secs(20), "reads succeed", async || {
        get(&service.public, "/api/auth/me", token).await.0 == 200
    })
    .await;
    // The owner's commands do not use the proxy.
    let outcome = load.finish(&service, &postgres.setting(), &postgres.owner()).await;
    let slowest = slowest.max(outcome.slowest);
    assert!(slowest < Duration::from_secs(12), "the slowest response took {slowest:.1?}");
    held(
        "Network between the service and PostgreSQL cut for 14 s without a reset, under load",
        &format!(
            "{outcome}; reported not ready after {noticed:.1?}; every response was 503 with Retry-After, the slowest in \
             {slowest:.1?}; 300 more acknowledged within {back:.1?} of the network's recovery, without a service restart"
        ),
    );
}
