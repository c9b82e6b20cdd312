//! Redis killed, paused and slow.

use std::time::{Duration, Instant};

use matchday::testing::{unique, with_database};

use crate::{
    dependencies::{
        proxy::{Proxy, Wire},
        redis::Redis,
    },
    leaderboards,
    load::Crowd,
    stage::{
        client::Client,
        process::{Setting, get},
        proof::held,
    },
};

#[derive(Clone, Copy, PartialEq, Eq)]
enum Fault {
    Killed,
    Paused,
    Slow,
}

impl Fault {
    fn begin(self, redis: &mut Redis, proxy: &Proxy) {
        match self {
            Self::Killed => redis.process().kill(),
            Self::Paused => redis.process().signal("STOP"),
            // Longer than the timeout of a call.
            Self::Slow => proxy.set(Wire::Slow(Duration::from_millis(1_500))),
        }
    }

    async fn end(self, redis: &mut Redis, proxy: &Proxy) {
        match self {
            Self::Killed => redis.restart().await,
            Self::Paused => redis.process().signal("CONT"),
            Self::Slow => proxy.set(Wire::Normal),
        }
    }

    fn description(self) -> &'static str {
        match self {
            Self::Killed => "Redis killed (-9) and restarted empty under load",
            Self::Paused => "Redis paused (SIGSTOP) and resumed under load",
            Self::Slow => "Redis slow (1.5 s added in each direction) under load",
        }
    }
}

/// Fans can still predict, spend coins, log in and read room leaderboards. The large leaderboards return 503 during the
/// fault, and match the database afterwards, including a result imported during the fault.
async fn run_with_fault(fault: Fault) {
    with_database(async |owner| {
        let mut redis = Redis::start().await;
        let proxy = Proxy::to(redis.port).await;
        let setting =
            Setting::new(&owner).with("MATCHDAY_REDIS__URL", &format!("redis://127.0.0.1:{}", proxy.port()));
        let quiet = setting.clone().without("MATCHDAY_MATRIX__HOMESERVER_URL");
        let crowd = Crowd::create_without_first(&quiet, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        let client = Client::new(&service);
        let person = client.log_in("+14155550100", Some(&unique("fan"))).await;
        let room = client.open_room(&person, "The stand", false).await;
        leaderboards::import(&quiet, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_secs(30)).await;
        leaderboards::wait_until_available(&service, &person.token, Duration::from_secs(10)).await;

        let load = crowd.start(&service);
        load.wait_for_progress(200, Duration::from_secs(20)).await;
        fault.begin(&mut redis, &proxy);
        let began = Instant::now();
        // During the fault, this result reaches the scores, but no leaderboard.
        leaderboards::import(&quiet, &[(2, 1), (0, 0)]);
        let (mut slowest_board, mut slowest_login, mut logins) = (Duration::ZERO, Duration::ZERO, 0);
        while began.elapsed() < Duration::from_secs(6) {
            let started = Instant::now();
            let refused = leaderboards::shown(&service, &person.token).await.expect_err("no leaderboard without Redis");
            slowest_board = slowest_board.max(started.elapsed());
            assert_eq!(refused, "503 leaderboard_unavailable");
            let path = format!("/api/auth/leaderboards?room_id={room}");
            let (status, of_room) = get(&service.public, &path, &person.token).await;
            assert_eq!(status, 200, "{of_room}");
            let started = Instant::now();
            logins += 1;
            client.log_in(&format!("+1415555{:04}", 200 + logins), Some(&unique("fan"))).await;
            slowest_login = slowest_login.max(started.elapsed());
            load.wait_for_progress(20, Duration::from_secs(10)).await;
        }
        assert_eq!(get(&service.public, "/readyz", "").await.0, 200, "ready without Redis");
        fault.end(&mut redis, &proxy).await;
        let back = leaderboards::wait_until_available(&service, &person.token, Duration::from_secs(20)).await;
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        // Before this point the leaderboard may be outdated; from now on it must match the database.
        let board = leaderboards::shown(&service, &person.token).await.expect("a leaderboard");
        assert_eq!(board, leaderboards::expected(&owner).await);
        let outcome = load.finish(&service, &quiet, &owner).await;
        assert!(slowest_board < Duration::from_secs(5), "a leaderboard was refused only after {slowest_board:.1?}");
        held(fault.description(),
            &format!(
                "{outcome}, the slowest in {:.1?}, {}; {logins} logins, the slowest in {slowest_login:.1?}; room leaderboards \
                 kept working, the large ones returned 503 within {slowest_board:.1?}; the first large one was available \
                 {back:.1?} after Redis was back; a result imported during the fault was on it {settled:.1?} later, and it \
                 matched the database",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn kill_under_load_loses_no_write() {
    run_with_fault(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute"]
async fn pause_under_load_loses_no_write() {
    run_with_fault(Fault::Paused).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute"]
async fn slowness_under_load_loses_no_write() {
    run_with_fault(Fault::Slow).await;
}
