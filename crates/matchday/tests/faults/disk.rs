//! PostgreSQL without disk space.

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

/// At first, tables cannot grow. Then PostgreSQL has no space for its write-ahead log, and panics.
#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute and needs permission to mount"]
async fn full_disk_under_load_loses_no_write() {
    let place = Directory::new("disk");
    let Some(disk) = Disk::mount(&place.join("disk"), 256) else {
        let _ =
            writeln!(std::io::stderr(), "NOT TESTED: a full disk, because this process may not mount a file system");
        return;
    };
    let settings = [("min_wal_size", "32MB"), ("max_wal_size", "64MB"), ("checkpoint_timeout", "30s")];
    let mut postgres = Postgres::start_in(Directory::new("postgres"), &disk.join("data"), &settings).await;
    let setting = postgres.setting().without("MATCHDAY_MATRIX__HOMESERVER_URL");
    let crowd = Crowd::create(&setting, &postgres.owner(), 12).await;
    let service = setting.start(&["serve"]);
    let token = &crowd.fans[0].token;
    let load = crowd.start(&service);
    load.wait_for_progress(300, Duration::from_secs(20)).await;

    disk.fill();
    let filled = Instant::now();
    load.wait_for_refusals(20, Duration::from_mins(1)).await;
    let first_refused = filled.elapsed();
    for path in ["/api/auth/events", "/api/auth/me", "/healthz"] {
        assert_eq!(get(&service.public, path, token).await.0, 200, "reads keep working: {path}");
    }
    let matching: Vec<String> = causes(&service).into_iter().filter(|cause| cause.contains("No space left")).collect();
    assert!(!matching.is_empty(), "the log names the cause: {:?}", causes(&service));

    // Switch to the next WAL segments, which do not fit on the disk.
    if let Ok(mut owner) = PgConnection::connect_with(&postgres.owner()).await {
        for _ in 0..4 {
            let _ = sqlx::query("select pg_switch_wal()").execute(&mut owner).await;
            let _ = sqlx::query("create temporary table filler as select 1").execute(&mut owner).await;
            let _ = sqlx::query("drop table if exists filler").execute(&mut owner).await;
        }
    }
    within(Duration::from_mins(1), "PostgreSQL panics", async || postgres.log().contains("PANIC")).await;
    within(Duration::from_secs(20), "the service reports not ready", async || {
        let (status, body) = get(&service.public, "/readyz", "").await;
        (status, &body["parts"]["postgres"]) == (503, &json!("down"))
    })
    .await;
    load.wait_for_refusals(50, Duration::from_secs(30)).await;
    let (events, _) = get(&service.public, "/api/auth/events", token).await;
    assert!([200, 503].contains(&events), "{events}");

    disk.free();
    let freed = Instant::now();
    let ended = postgres.process().has_ended();
    if ended {
        postgres.restart().await;
    }
    load.wait_for_progress(300, Duration::from_mins(1)).await;
    let back = freed.elapsed();
    let outcome = load.finish(&service, &setting, &postgres.owner()).await;
    held(
        "PostgreSQL's disk full under load, first for tables, then for the write-ahead log",
        &format!(
            "{outcome}; writes that needed space returned 503 after {first_refused:.1?} (\"No space left on device\" in \
             the log), and reads kept working; without space for the write-ahead log PostgreSQL panicked{}, and the \
             service reported not ready (lists: {}); 300 more acknowledged within {back:.1?} of freeing space, without a \
             service restart; {}",
            if ended { ", exited and had to be restarted manually" } else { " and recovered on its own" },
            if events == 200 { "served from the cache" } else { "503" },
            outcome.refused()
        ),
    );
}
