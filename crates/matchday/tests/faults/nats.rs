//! NATS killed, paused, and with one server of a cluster missing.

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

async fn outbox_size(owner: &PgConnectOptions) -> i64 {
    let db = PgPool::connect_with(owner.clone()).await.expect("connected");
    let count = sqlx::query_scalar("select count(*) from outbox").fetch_one(&db).await.expect("read");
    db.close().await;
    count
}

/// Checks that the service reports NATS as down, stays ready, and serves requests.
async fn serves_without_nats(service: &Process, token: &str) {
    within(Duration::from_secs(10), "readiness reports NATS as down", async || {
        let (status, reported) = get(&service.public, "/readyz", "").await;
        (status, &reported["parts"]["nats"]) == (200, &json!("down"))
    })
    .await;
    for path in ["/api/auth/events", "/api/auth/me", "/api/auth/leaderboards", "/api/auth/predictions"] {
        assert_eq!(get(&service.public, path, token).await.0, 200, "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_under_load_loses_no_write() {
    with_database(async |owner| {
        let mut nats = Nats::alone().await;
        let setting = setting_with(&nats, &owner);
        let crowd = Crowd::create_without_first(&setting, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        let token = &crowd.fans[0].token;
        leaderboards::import(&setting, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_secs(30)).await;
        let load = crowd.start(&service);
        load.wait_for_progress(100, Duration::from_secs(20)).await;
        nats.kill_all();
        let killed = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0)]);
        serves_without_nats(&service, token).await;
        load.wait_for_progress(200, Duration::from_secs(20)).await;
        let messages = outbox_size(&owner).await;
        assert!(messages > 0, "unsent messages stay in the outbox");
        let downtime = killed.elapsed();
        nats.restart().await;
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        leaderboards::verify_scores_and_payouts(&setting, &owner).await;
        assert_eq!(leaderboards::shown(&service, token).await.expect("a leaderboard"), leaderboards::expected(&owner).await);
        let outcome = load.finish(&service, &setting, &owner).await;
        held("NATS killed (-9) and restarted under load, with a result imported during the outage",
            &format!(
                "{outcome}, the slowest in {:.1?}, {}; NATS was down for {downtime:.1?}, and {messages} messages waited in the \
                 outbox; {settled:.1?} after it was back the result was in all scores and on the leaderboards, and its \
                 coins were paid once",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}

/// A process trusts cached tokens for long only while revocations arrive. Paused, the server keeps its connections, so
/// the processes can notice only that the relay's pulses are missing.
#[tokio::test(flavor = "multi_thread")]
async fn revoked_token_is_refused_within_bound_without_nats() {
    with_database(async |owner| {
        let bound = Duration::from_secs(6);
        let mut nats = Nats::alone().await;
        let setting = setting_with(&nats, &owner)
            .with("MATCHDAY_SESSIONS__CACHE_UNHEARD", "6s")
            .with("MATCHDAY_OUTBOX__POLL", "200ms");
        let (ends, hears) = (setting.start(&["serve"]), setting.start(&["serve", "--no-workers"]));
        for outage in ["STOP", "KILL"] {
            let token = setting.expect(&["sessions", "issue"], "");
            let lookups = async || hears.counted("matchday_session_lookups_total").await;
            let request = async || get(&hears.public, "/api/auth/teams", &token).await.0;
            // The pulses may have just begun. Then the first lookup is trusted for only the short time.
            within(Duration::from_mins(1), "the token is trusted for longer than the bound", async || {
                assert_eq!(request().await, 200);
                let before = lookups().await;
                tokio::time::sleep(bound + Duration::from_secs(1)).await;
                assert_eq!(request().await, 200);
                lookups().await <= before
            })
            .await;
            if outage == "KILL" {
                nats.kill_all();
            } else {
                nats.signal(outage);
            }
            let logout = reqwest::Client::new().post(format!("{}/api/auth/logout", ends.public)).bearer_auth(&token);
            assert_eq!(logout.send().await.expect("a response").status(), 200);
            let ended = Instant::now();
            within(Duration::from_secs(20), "the token is refused", async || request().await == 401).await;
            // The last second is for a slow machine.
            assert!(ended.elapsed() < bound + Duration::from_secs(1), "{outage}: {:?}", ended.elapsed());
            if outage == "KILL" {
                nats.restart().await;
            } else {
                nats.signal("CONT");
            }
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute"]
async fn pause_under_load_loses_no_write() {
    with_database(async |owner| {
        let nats = Nats::alone().await;
        let setting = setting_with(&nats, &owner);
        let crowd = Crowd::create_without_first(&setting, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        leaderboards::import(&setting, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_secs(30)).await;
        let load = crowd.start(&service);
        load.wait_for_progress(100, Duration::from_secs(20)).await;
        nats.signal("STOP");
        let paused = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0)]);
        while paused.elapsed() < Duration::from_secs(10) {
            load.wait_for_progress(50, Duration::from_secs(10)).await;
            for path in ["/api/auth/events", "/api/auth/me", "/api/auth/leaderboards"] {
                assert_eq!(get(&service.public, path, &crowd.fans[0].token).await.0, 200, "{path}");
            }
        }
        let messages = outbox_size(&owner).await;
        assert!(messages > 0, "unsent messages stay in the outbox");
        nats.signal("CONT");
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        leaderboards::verify_scores_and_payouts(&setting, &owner).await;
        let outcome = load.finish(&service, &setting, &owner).await;
        held("NATS paused (SIGSTOP) for 10 s under load, with a result imported during the pause",
            &format!(
                "{outcome}, the slowest in {:.1?}, {}; {messages} messages waited in the outbox; {settled:.1?} after NATS \
                 resumed the result was in all scores, and its coins were paid once",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes a minute"]
async fn cluster_outage_under_load_loses_no_write() {
    with_database(async |owner| {
        let mut nats = Nats::cluster().await;
        let setting = setting_with(&nats, &owner).with("MATCHDAY_NATS__REPLICAS", "3");
        let crowd = Crowd::create_without_first(&setting, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        let token = &crowd.fans[0].token;
        leaderboards::import(&setting, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_mins(1)).await;
        let load = crowd.start(&service);
        load.wait_for_progress(100, Duration::from_secs(20)).await;

        // The server in `nats.url`, to which the service is connected.
        nats.kill(0);
        let killed = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0)]);
        leaderboards::settled(&owner, Duration::from_mins(1)).await;
        let with_two = killed.elapsed();
        leaderboards::verify_scores_and_payouts(&setting, &owner).await;
        nats.restart().await;

        nats.kill_all();
        let killed = Instant::now();
        leaderboards::import(&setting, &[(2, 1), (0, 0), (1, 3)]);
        serves_without_nats(&service, token).await;
        load.wait_for_progress(200, Duration::from_secs(20)).await;
        let (messages, downtime) = (outbox_size(&owner).await, killed.elapsed());
        assert!(messages > 0, "unsent messages stay in the outbox");
        nats.restart().await;
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        leaderboards::verify_scores_and_payouts(&setting, &owner).await;
        let outcome = load.finish(&service, &setting, &owner).await;
        held("NATS cluster of three servers: one killed, later all three, under load, with a result imported each time",
            &format!(
                "{outcome}, the slowest in {:.1?}, {}; with two servers left a result was in all scores {with_two:.1?} \
                 after the kill; with none, for {downtime:.1?}, {messages} messages waited in the outbox, and {settled:.1?} \
                 after all were back that result was in all scores; the coins of both results were paid once",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}
