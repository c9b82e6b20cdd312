//! PostgreSQL gone, out of reach, and failing over.

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

/// How many people are there.
const FANS: usize = 12;

/// Waits until readiness says so; returns how long it took.
async fn readiness(process: &Process, status: u16, postgres: &str) -> Duration {
    let began = Instant::now();
    within(Duration::from_secs(20), "readiness follows", async || {
        let (told, body) = get(&process.public, "/readyz", "").await;
        (told, &body["parts"]["postgres"]) == (status, &json!(postgres))
    })
    .await;
    began.elapsed()
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_under_load() {
    let mut postgres = Postgres::start().await;
    let setting = postgres.setting().without("MATCHDAY_MATRIX__HOMESERVER_URL");
    let crowd = Crowd::gather(&setting, &postgres.owner(), FANS).await;
    let service = setting.start(&["serve"]);
    let load = crowd.start(&service);
    load.gets_on(300, Duration::from_secs(20)).await;
    postgres.process().kill();
    let noticed = readiness(&service, 503, "down").await;
    postgres.start_again().await;
    let began = Instant::now();
    readiness(&service, 200, "up").await;
    load.gets_on(300, Duration::from_secs(30)).await;
    let back = began.elapsed();
    let outcome = load.finish(&service, &setting, &postgres.owner()).await;
    assert!(outcome.slowest < Duration::from_secs(12), "the slowest answer took {:.1?}", outcome.slowest);
    held(
        "faults",
        "PostgreSQL killed (-9, all its processes) and started again, under load",
        &format!(
            "{outcome}; readiness off after {noticed:.1?}; {:.1?} without an acknowledgement, the service not \
             restarted; 300 more acknowledged {back:.1?} after it was there again; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );
}

/// How many of the service wait for a lock.
async fn held_up(postgres: &Postgres) -> i64 {
    let mut owner = PgConnection::connect_with(&postgres.owner()).await.expect("connected");
    let query = "select count(*) from pg_stat_activity where usename = 'matchday_app' and wait_event_type = 'Lock'";
    let count = sqlx::query_scalar(query).fetch_one(&mut owner).await.expect("read");
    owner.close().await.expect("closed");
    count
}

/// A machine dies without a word, and another one takes its address. Whoever waits on an old connection waits for nothing,
/// and must not do so for longer than a request may take, nor keep its place among the connections.
#[tokio::test(flavor = "multi_thread")]
async fn connections_that_nobody_answers_any_more_are_replaced() {
    let postgres = Postgres::start().await;
    let proxy = Proxy::to(postgres.port).await;
    let setting = setting_at(&postgres.owner(), proxy.port())
        .without("MATCHDAY_MATRIX__HOMESERVER_URL")
        .with("MATCHDAY_HTTP__DEADLINE", "3s")
        .with("MATCHDAY_DATABASE__STATEMENT_TIMEOUT", "2s")
        .with("MATCHDAY_DATABASE__MAX_CONNECTIONS", "8");
    let crowd = Crowd::gather(&postgres.setting(), &postgres.owner(), FANS).await;
    let service = setting.start(&["serve"]);
    let load = crowd.start(&service);
    let ask = async || {
        let each = crowd.fans.iter().map(|fan| get(&service.public, "/api/auth/teams", &fan.token));
        join_all(each).await.iter().filter(|(status, _)| *status == 200).count()
    };
    load.gets_on(100, Duration::from_secs(20)).await;
    let mut owner = PgConnection::connect_with(&postgres.owner()).await.expect("connected");
    // Many ask for what somebody holds: so all connections there may be are made.
    owner.execute("begin; lock table teams in access exclusive mode").await.expect("held");
    let (answered, ()) = tokio::join!(ask(), async {
        within(Duration::from_secs(2), "all connections are in use", async || held_up(&postgres).await >= 8).await;
        owner.execute("commit").await.expect("let go");
    });
    assert_eq!(answered, FANS);
    proxy.forget();
    let forgotten = Instant::now();
    // What a dead machine had begun is over.
    let end = "select pg_terminate_backend(pid) from pg_stat_activity where usename = 'matchday_app'";
    owner.execute(end).await.expect("ended");
    owner.close().await.expect("closed");
    within(Duration::from_secs(20), "everybody is answered", async || ask().await == FANS).await;
    let reads = forgotten.elapsed();
    load.gets_on(300, Duration::from_secs(30)).await;
    let outcome = load.finish(&service, &postgres.setting(), &postgres.owner()).await;
    held(
        "faults",
        "All connections to PostgreSQL silent for good, new ones possible (a machine that died, its address taken over)",
        &format!(
            "{outcome}; every reader was answered again {reads:.1?} later, where a request may take 3 s; {:.1?} without an \
             acknowledgement; {}",
            outcome.longest_silence(),
            outcome.refused()
        ),
    );
}

/// The worst way to be away: connections stay open, and nothing is heard on them.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: waits out deadlines"]
async fn cut_off_without_a_word_under_load() {
    let postgres = Postgres::start().await;
    let proxy = Proxy::to(postgres.port).await;
    let setting = setting_at(&postgres.owner(), proxy.port()).without("MATCHDAY_MATRIX__HOMESERVER_URL");
    let crowd = Crowd::gather(&postgres.setting(), &postgres.owner(), FANS).await;
    let service = setting.start(&["serve"]);
    let load = crowd.start(&service);
    load.gets_on(300, Duration::from_secs(20)).await;
    proxy.set(Wire::Silent);
    let cut = Instant::now();
    let noticed = readiness(&service, 503, "down").await;
    // Longer than a request may take, and than a writer waits for its statement.
    let token = &crowd.fans[0].token;
    let mut slowest = Duration::ZERO;
    while cut.elapsed() < Duration::from_secs(14) {
        let began = Instant::now();
        let (status, body) = get(&service.public, "/api/auth/me", token).await;
        slowest = slowest.max(began.elapsed());
        assert_eq!((status, body["code"].is_string()), (503, true), "{body}");
        assert_eq!(get(&service.public, "/healthz", "").await.0, 200);
    }
    proxy.set(Wire::Whole);
    let healed = Instant::now();
    readiness(&service, 200, "up").await;
    load.gets_on(300, Duration::from_secs(30)).await;
    let back = healed.elapsed();
    within(Duration::from_secs(20), "reads are answered", async || {
        get(&service.public, "/api/auth/me", token).await.0 == 200
    })
    .await;
    // The owner's commands do not go through the proxy.
    let outcome = load.finish(&service, &postgres.setting(), &postgres.owner()).await;
    let slowest = slowest.max(outcome.slowest);
    assert!(slowest < Duration::from_secs(12), "the slowest answer took {slowest:.1?}");
    held(
        "faults",
        "The network between the service and PostgreSQL cut for 14 s without a reset, under load",
        &format!(
            "{outcome}; readiness off after {noticed:.1?}; every answer 503 with Retry-After, the slowest after \
             {slowest:.1?}; 300 more acknowledged {back:.1?} after the network was whole, the service not restarted"
        ),
    );
}
