//! A database without room.

use std::{
    io::Write as _,
    time::{Duration, Instant},
};

use serde_json::json;
use sqlx::{Connection as _, PgConnection};

use crate::{
    dependencies::{Directory, disk::Disk, postgres::Postgres},
    load::{Crowd, causes},
    stage::{client::within, process::get, proof::held},
};

/// First tables cannot grow; then, where PostgreSQL finds no room for what it must write down before anything else, it
/// ends.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute, and the right to mount"]
async fn a_full_disk_under_load() {
    let place = Directory::new("disk");
    let Some(disk) = Disk::mount(&place.join("disk"), 256) else {
        let _ = writeln!(
            std::io::stderr(),
            "NOT TESTED: a full disk, because this machine does not let the test mount one"
        );
        return;
    };
    let settings = [("min_wal_size", "32MB"), ("max_wal_size", "64MB"), ("checkpoint_timeout", "30s")];
    let mut postgres = Postgres::start_in(Directory::new("postgres"), &disk.join("data"), &settings).await;
    let setting = postgres.setting().without("MATCHDAY_MATRIX__HOMESERVER_URL");
    let crowd = Crowd::gather(&setting, &postgres.owner(), 12).await;
    let service = setting.start(&["serve"]);
    let token = &crowd.fans[0].token;
    let load = crowd.start(&service);
    load.gets_on(300, Duration::from_secs(20)).await;

    disk.fill();
    let filled = Instant::now();
    load.is_refused(20, Duration::from_mins(1)).await;
    let first_refused = filled.elapsed();
    for path in ["/api/auth/events", "/api/auth/me", "/healthz"] {
        assert_eq!(get(&service.public, path, token).await.0, 200, "what is only read goes on: {path}");
    }
    let told: Vec<String> = causes(&service).into_iter().filter(|cause| cause.contains("No space left")).collect();
    assert!(!told.is_empty(), "the log says why: {:?}", causes(&service));

    // The next piece of the log of what is to be written finds no room.
    if let Ok(mut owner) = PgConnection::connect_with(&postgres.owner()).await {
        for _ in 0..4 {
            let _ = sqlx::query("select pg_switch_wal()").execute(&mut owner).await;
            let _ = sqlx::query("create temporary table filler as select 1").execute(&mut owner).await;
            let _ = sqlx::query("drop table if exists filler").execute(&mut owner).await;
        }
    }
    within(Duration::from_mins(1), "the server ended over it", async || postgres.log().contains("PANIC")).await;
    within(Duration::from_secs(20), "readiness is off", async || {
        let (status, body) = get(&service.public, "/readyz", "").await;
        (status, &body["parts"]["postgres"]) == (503, &json!("down"))
    })
    .await;
    load.is_refused(50, Duration::from_secs(30)).await;
    let (events, _) = get(&service.public, "/api/auth/events", token).await;
    assert!([200, 503].contains(&events), "{events}");

    disk.free();
    let freed = Instant::now();
    let ended = postgres.process().has_ended();
    if ended {
        postgres.start_again().await;
    }
    load.gets_on(300, Duration::from_mins(1)).await;
    let back = freed.elapsed();
    let outcome = load.finish(&service, &setting, &postgres.owner()).await;
    held(
        "faults",
        "The disk of PostgreSQL full under load, first for tables, then for its write-ahead log",
        &format!(
            "{outcome}; writes that needed room were 503 {first_refused:.1?} later (\"No space left on device\" in the \
             log), reads went on; without room for its log PostgreSQL panicked{}, and readiness went off (lists were {}); \
             300 more acknowledged {back:.1?} after there was room again, the service not restarted; {}",
            if ended { ", ended and had to be started by hand" } else { " and came back by itself" },
            if events == 200 { "answered from the cache" } else { "503" },
            outcome.refused()
        ),
    );
}
