//! NATS gone, frozen, and with a server less.

use std::time::{Duration, Instant};

use matchday::testing::with_database;
use serde_json::json;
use sqlx::{PgPool, postgres::PgConnectOptions};

use crate::{
    dependencies::nats::Nats,
    leaderboards,
    load::Crowd,
    stage::{
        client::within,
        process::{Process, Setting, get},
        proof::held,
    },
};

fn setting_with(nats: &Nats, owner: &PgConnectOptions) -> Setting {
    Setting::new(owner)
        .without("MATCHDAY_MATRIX__HOMESERVER_URL")
        .with("MATCHDAY_NATS__URL", &nats.url())
        .with("MATCHDAY_COINS__PER_POINT", "1")
}

async fn waiting(owner: &PgConnectOptions) -> i64 {
    let db = PgPool::connect_with(owner.clone()).await.expect("connected");
    let count = sqlx::query_scalar("select count(*) from outbox").fetch_one(&db).await.expect("read");
    db.close().await;
    count
}

/// It knows, is ready all the same, and answers what it is asked.
async fn serves_without(service: &Process, token: &str) {
    within(Duration::from_secs(10), "readiness says that NATS is away", async || {
        let (status, told) = get(&service.public, "/readyz", "").await;
        (status, &told["parts"]["nats"]) == (200, &json!("down"))
    })
    .await;
    for path in ["/api/auth/events", "/api/auth/me", "/api/auth/leaderboards", "/api/auth/predictions"] {
        assert_eq!(get(&service.public, path, token).await.0, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_and_started_again_under_load() {
    with_database(async |owner| {
        let mut nats = Nats::alone().await;
        let setting = setting_with(&nats, &owner);
        let crowd = Crowd::gather_without_first(&setting, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        let token = &crowd.fans[0].token;
        leaderboards::import(&setting, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_secs(30)).await;
        let load = crowd.start(&service);
        load.gets_on(100, Duration::from_secs(20)).await;
        nats.kill_all();
        let killed = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0)]);
        serves_without(&service, token).await;
        load.gets_on(200, Duration::from_secs(20)).await;
        let messages = waiting(&owner).await;
        assert!(messages > 0, "what cannot be sent waits");
        let away = killed.elapsed();
        nats.start_again().await;
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        leaderboards::add_up(&setting, &owner).await;
        assert_eq!(leaderboards::shown(&service, token).await.expect("a board"), leaderboards::expected(&owner).await);
        let outcome = load.finish(&service, &setting, &owner).await;
        held(
            "faults",
            "NATS killed (-9) and started again, under load, with a result imported meanwhile",
            &format!(
                "{outcome}, the slowest after {:.1?}, {}; away for {away:.1?}, and {messages} messages waited; {settled:.1?} \
                 after it was back the result was in all scores and on the leaderboards, and its coins were paid once",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute"]
async fn paused_under_load() {
    with_database(async |owner| {
        let nats = Nats::alone().await;
        let setting = setting_with(&nats, &owner);
        let crowd = Crowd::gather_without_first(&setting, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        leaderboards::import(&setting, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_secs(30)).await;
        let load = crowd.start(&service);
        load.gets_on(100, Duration::from_secs(20)).await;
        nats.signal("STOP");
        let paused = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0)]);
        while paused.elapsed() < Duration::from_secs(10) {
            load.gets_on(50, Duration::from_secs(10)).await;
            for path in ["/api/auth/events", "/api/auth/me", "/api/auth/leaderboards"] {
                assert_eq!(get(&service.public, path, &crowd.fans[0].token).await.0, 200, "{path}");
            }
        }
        let messages = waiting(&owner).await;
        assert!(messages > 0, "what cannot be sent waits");
        nats.signal("CONT");
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        leaderboards::add_up(&setting, &owner).await;
        let outcome = load.finish(&service, &setting, &owner).await;
        held(
            "faults",
            "NATS paused (SIGSTOP) for 10 s under load, with a result imported meanwhile",
            &format!(
                "{outcome}, the slowest after {:.1?}, {}; {messages} messages waited; {settled:.1?} after it went on the \
                 result was in all scores, and its coins were paid once",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes a minute"]
async fn a_cluster_loses_a_server_and_then_all_of_them_under_load() {
    with_database(async |owner| {
        let mut nats = Nats::cluster().await;
        let setting = setting_with(&nats, &owner).with("MATCHDAY_NATS__REPLICAS", "3");
        let crowd = Crowd::gather_without_first(&setting, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        let token = &crowd.fans[0].token;
        leaderboards::import(&setting, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_mins(1)).await;
        let load = crowd.start(&service);
        load.gets_on(100, Duration::from_secs(20)).await;

        // The one that the service was told of, and began with.
        nats.kill(0);
        let killed = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0)]);
        leaderboards::settled(&owner, Duration::from_mins(1)).await;
        let with_two = killed.elapsed();
        leaderboards::add_up(&setting, &owner).await;
        nats.start_again().await;

        nats.kill_all();
        let killed = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0), (1, 3)]);
        serves_without(&service, token).await;
        load.gets_on(200, Duration::from_secs(20)).await;
        let (messages, away) = (waiting(&owner).await, killed.elapsed());
        assert!(messages > 0, "what cannot be sent waits");
        nats.start_again().await;
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        leaderboards::add_up(&setting, &owner).await;
        let outcome = load.finish(&service, &setting, &owner).await;
        held(
            "faults",
            "A NATS cluster of three: one server killed, later all three, under load, with a result imported each time",
            &format!(
                "{outcome}, the slowest after {:.1?}, {}; with two servers left a result was in all scores {with_two:.1?} \
                 after the kill; without any, for {away:.1?}, {messages} messages waited, and {settled:.1?} after all were \
                 back that result was in all scores too; the coins of both were paid once",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}
