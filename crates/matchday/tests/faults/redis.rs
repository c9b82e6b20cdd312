//! Redis gone, frozen and slow.

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

/// How Redis fails.
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
            // More than a call may take.
            Self::Slow => proxy.set(Wire::Slow(Duration::from_millis(1_500))),
        }
    }

    async fn end(self, redis: &mut Redis, proxy: &Proxy) {
        match self {
            Self::Killed => redis.start_again().await,
            Self::Paused => redis.process().signal("CONT"),
            Self::Slow => proxy.set(Wire::Whole),
        }
    }

    fn words(self) -> &'static str {
        match self {
            Self::Killed => "Redis killed (-9), and started again empty, under load",
            Self::Paused => "Redis paused (SIGSTOP), and going on later, under load",
            Self::Slow => "Redis slow, each word 1.5 s on the way there and 1.5 s back, under load",
        }
    }
}

/// People go on predicting and spending, logging in and looking at the boards of rooms; the large boards say that they
/// are away, and come back as the database has them, with a result that came meanwhile.
async fn fails(fault: Fault) {
    with_database(async |owner| {
        let mut redis = Redis::start().await;
        let proxy = Proxy::to(redis.port).await;
        let setting =
            Setting::new(&owner).with("MATCHDAY_REDIS__URL", &format!("redis://127.0.0.1:{}", proxy.port()));
        let quiet = setting.clone().without("MATCHDAY_MATRIX__HOMESERVER_URL");
        let crowd = Crowd::gather_without_first(&quiet, &owner, 8, leaderboards::WITH_RESULTS).await;
        leaderboards::add_players(&owner).await;
        let service = setting.start(&["serve"]);
        let client = Client::new(&service);
        let person = client.log_in("+14155550100", Some(&unique("fan"))).await;
        let room = client.open_room(&person, "The stand", false).await;
        leaderboards::import(&quiet, &[(2, 1)]);
        leaderboards::settled(&owner, Duration::from_secs(30)).await;
        leaderboards::comes_back(&service, &person.token, Duration::from_secs(10)).await;

        let load = crowd.start(&service);
        load.gets_on(200, Duration::from_secs(20)).await;
        fault.begin(&mut redis, &proxy);
        let began = Instant::now();
        // A result that comes now is in the scores before it is on any board.
        leaderboards::import(&quiet, &[(2, 1), (0, 0)]);
        let (mut slowest_board, mut slowest_login, mut logins) = (Duration::ZERO, Duration::ZERO, 0);
        while began.elapsed() < Duration::from_secs(6) {
            let asked = Instant::now();
            let refused = leaderboards::shown(&service, &person.token).await.expect_err("no board while Redis is away");
            slowest_board = slowest_board.max(asked.elapsed());
            assert_eq!(refused, "503 leaderboard_unavailable");
            let path = format!("/api/auth/leaderboards?room_id={room}");
            let (status, of_room) = get(&service.public, &path, &person.token).await;
            assert_eq!(status, 200, "{of_room}");
            let asked = Instant::now();
            logins += 1;
            client.log_in(&format!("+1415555{:04}", 200 + logins), Some(&unique("fan"))).await;
            slowest_login = slowest_login.max(asked.elapsed());
            load.gets_on(20, Duration::from_secs(10)).await;
        }
        assert_eq!(get(&service.public, "/readyz", "").await.0, 200, "ready without Redis");
        fault.end(&mut redis, &proxy).await;
        let back = leaderboards::comes_back(&service, &person.token, Duration::from_secs(20)).await;
        let settled = leaderboards::settled(&owner, Duration::from_mins(1)).await;
        // Until then it may show what it had. From then on it is what the database says.
        let board = leaderboards::shown(&service, &person.token).await.expect("a board");
        assert_eq!(board, leaderboards::expected(&owner).await);
        let outcome = load.finish(&service, &quiet, &owner).await;
        assert!(slowest_board < Duration::from_secs(5), "a board was refused only after {slowest_board:.1?}");
        held(
            "faults",
            fault.words(),
            &format!(
                "{outcome}, the slowest after {:.1?}, {}; logged in {logins} times, the slowest after {slowest_login:.1?}; boards \
                 of rooms answered, the large ones were 503 within {slowest_board:.1?}; the first large one again \
                 {back:.1?} after Redis was back; a result imported meanwhile was on it {settled:.1?} later, and it was \
                 equal to the database",
                outcome.slowest,
                outcome.refused()
            ),
        );
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn killed_under_load() {
    fails(Fault::Killed).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute"]
async fn paused_under_load() {
    fails(Fault::Paused).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "nightly: takes half a minute"]
async fn slow_under_load() {
    fails(Fault::Slow).await;
}
