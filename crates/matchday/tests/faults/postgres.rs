//! PostgreSQL gone, out of reach, and failing over.

use std::time::{Duration, Instant};

use serde_json::json;

use crate::{
    load::Crowd,
    parts::{
        postgres::{Postgres, setting_at},
        proxy::{Proxy, Wire},
    },
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

/// The worst way to be away: connections stay open, and nothing is heard on them.
#[tokio::test(flavor = "multi_thread")]
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
