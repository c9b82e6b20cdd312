//! Scheduled polling of feeds.

use std::time::Duration as Wait;

use platform::lease::{Lease, Leases};
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::{
    catalogue::feeds::{service::Feeds, settings::Settings},
    testing::eventually,
};

/// A process that polls feeds.
struct Process {
    feeds: Feeds,
    lease: Lease,
    is_ours: bool,
}

impl Process {
    /// Creates a process that has only the state in the database.
    fn new(app: &TestApp, number: u128) -> Self {
        Self::with(app, number, &app.app.config.feeds)
    }

    /// Creates a process with other settings.
    fn with(app: &TestApp, number: u128, settings: &Settings) -> Self {
        let feeds = Feeds::new(&app.app.core, settings, app.app.fixtures.clone()).expect("feeds");
        let leases = Leases::new(app.app.core.db.clone(), Uuid::from_u128(number), None);
        Self { feeds, lease: leases.lease("feeds", Wait::from_secs(1)), is_ours: false }
    }

    /// Polls all feeds that are due. Returns the number of polls, and the seconds until the next one; `None` if another
    /// process holds the lease.
    async fn work(&mut self) -> Option<(usize, u64)> {
        let mut polls = 0;
        loop {
            match self
                .feeds
                .turn(&self.lease, &mut self.is_ours, &|_: &Polled| {})
                .await
                .expect("the database is available")
            {
                None => return None,
                Some(Wait::ZERO) => polls += 1,
                Some(pause) => return Some((polls, pause.as_secs())),
            }
        }
    }
}

#[tokio::test]
async fn feeds_are_polled_when_due() {
    let provider = Provider::start().await;
    let mut entry = a_match(1, "TIMED", None);
    entry["utcDate"] = json!("2026-11-20T17:00:00Z");
    provider.says(Answer::ok(&document(&[entry.clone()])));
    run_with(&settings(&provider), async |app| {
        let mut process = Process::new(app, 1);
        assert_eq!(process.work().await, Some((1, 3_600)), "no match is near");
        app.clock.advance(Duration::minutes(59));
        assert_eq!(process.work().await, Some((0, 60)));
        app.clock.advance(Duration::minutes(1));
        assert_eq!(process.work().await, Some((1, 50 * 60)), "ten minutes before the kick-off");
        app.clock.advance(Duration::minutes(50));
        assert_eq!(process.work().await, Some((1, 60)));
        (entry["status"], entry["score"]["fullTime"]) = (json!("IN_PLAY"), json!({"home": 0, "away": 0}));
        provider.says(Answer::ok(&document(&[entry.clone()])));
        app.clock.advance(Duration::minutes(11));
        assert_eq!(process.work().await, Some((1, 60)), "the match is live");
        app.clock.advance(Duration::minutes(100));
        assert_eq!(process.work().await, Some((1, 20)), "the match may end at any moment");
        entry["status"] = json!("FINISHED");
        provider.says(Answer::ok(&document(&[entry.clone()])));
        app.clock.advance(Duration::seconds(20));
        assert_eq!(process.work().await, Some((1, 300)), "the result may be corrected");
        app.clock.advance(Duration::hours(2));
        assert_eq!(process.work().await, Some((1, 3_600)));
        assert_eq!(provider.seen().len(), 7);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn standby_process_takes_over_polling() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[a_match(1, "TIMED", None)])));
    run_with(&settings(&provider), async |app| {
        let (mut first, mut second) = (Process::new(app, 1), Process::new(app, 2));
        assert_eq!(first.work().await, Some((1, 60)));
        for _ in 0..3 {
            app.clock.advance(Duration::minutes(1));
            assert_eq!(second.work().await, None);
            assert_eq!(first.work().await, Some((1, 60)));
        }
        // The first process dies without releasing the lease. The second one finds in the database which feeds are due,
        // and when they were polled.
        drop(first);
        eventually("the lease expires", async || second.lease.hold().await.expect("checked")).await;
        assert_eq!(second.work().await, Some((0, 60)));
        app.clock.advance(Duration::minutes(1));
        assert_eq!(second.work().await, Some((1, 60)));
        assert_eq!(provider.seen().len(), 5);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn shutdown_releases_the_lease() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[])));
    run_with(&settings(&provider), async |app| {
        let (feeds, closing) = (app.app.feeds.clone(), CancellationToken::new());
        let leases = Leases::new(app.app.core.db.clone(), Uuid::from_u128(1), None);
        let lease = leases.lease("feeds", Wait::from_millis(500));
        let until = closing.clone();
        let task = tokio::spawn(async move { feeds.run(lease, until, |_| {}).await });
        eventually("the feed is polled", async || provider.seen().len() == 1).await;
        app.clock.advance(Duration::hours(1));
        eventually("the feed is polled again", async || provider.seen().len() == 2).await;
        closing.cancel();
        task.await.expect("ended");
        assert_eq!(rows(app, "leases").await, 0);
    })
    .await;
}

#[tokio::test]
async fn feeds_share_the_providers_limit() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[])));
    let mut settings = settings(&provider);
    settings[2].1 = "AA,BB,CC,DD,EE".to_owned();
    settings.push(("MATCHDAY_FEEDS__FOOTBALL_DATA_PER_MINUTE", "3".to_owned()));
    run_with(&settings, async |app| {
        let mut process = Process::new(app, 1);
        assert_eq!(process.work().await, Some((3, 61)));
        app.clock.advance(Duration::seconds(30));
        assert_eq!(process.work().await, Some((0, 31)));
        app.clock.advance(Duration::seconds(31));
        assert_eq!(process.work().await, Some((2, 3_539)));
        let mut paths: Vec<String> = provider.seen().into_iter().map(|seen| seen.path).collect();
        paths.sort();
        paths.dedup();
        assert_eq!(paths.len(), 5, "every feed was polled");
    })
    .await;
}

/// A process that takes over counts the requests that its predecessor sent.
#[tokio::test]
async fn limit_survives_process_change() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[])));
    let mut settings = settings(&provider);
    settings[2].1 = "AA,BB,CC".to_owned();
    settings.push(("MATCHDAY_FEEDS__FOOTBALL_DATA_PER_MINUTE", "2".to_owned()));
    run_with(&settings, async |app| {
        let mut first = Process::new(app, 1);
        for _ in 0..2 {
            let turn = first.feeds.turn(&first.lease, &mut first.is_ours, &|_: &Polled| {}).await;
            assert_eq!(turn.expect("the database is available"), Some(Wait::ZERO));
            app.clock.advance(Duration::seconds(1));
        }
        first.lease.release().await.expect("released");
        let mut second = Process::new(app, 2);
        assert_eq!(second.work().await, Some((0, 59)));
        app.clock.advance(Duration::seconds(59));
        assert_eq!(second.work().await, Some((1, 3_539)));
    })
    .await;
}

#[tokio::test]
async fn requested_wait_applies_to_all_feeds() {
    for answer in [
        Answer::new(429, "{\"message\": \"You reached your request limit. Wait 41 seconds.\", \"errorCode\": 429}"),
        Answer::ok(&document(&[])).with("X-Requests-Available-Minute", "0").with("X-RequestCounter-Reset", "41"),
    ] {
        let provider = Provider::start().await;
        provider.says(answer);
        let mut settings = settings(&provider);
        settings[2].1 = "AA,BB".to_owned();
        run_with(&settings, async |app| {
            let mut process = Process::new(app, 1);
            assert_eq!(process.work().await, Some((1, 41)));
            provider.says(Answer::ok(&document(&[])));
            app.clock.advance(Duration::seconds(41));
            assert!(process.work().await.expect("the lease is held").0 >= 1);
            assert!(provider.seen().iter().any(|seen| seen.path.contains("/BB/")));
        })
        .await;
    }
}

/// A poll that cannot be saved is not repeated immediately, to spare the provider while the database is unavailable.
#[tokio::test]
async fn unsaved_poll_is_not_repeated() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[])));
    run_with(&settings(&provider), async |app| {
        sqlx::query("revoke insert, update on feeds from matchday_app").execute(app.owner()).await.expect("revoked");
        let mut process = Process::new(app, 1);
        assert_eq!(process.work().await, Some((1, 3_600)));
        assert_eq!(process.work().await, Some((0, 3_600)));
        sqlx::query("grant insert, update on feeds to matchday_app").execute(app.owner()).await.expect("granted");
        app.clock.advance(Duration::hours(1));
        assert_eq!(process.work().await, Some((1, 3_600)));
        assert_eq!(rows(app, "feeds").await, 1);
    })
    .await;
}

/// Changed settings take effect at the next start of the process, not an hour later.
#[tokio::test]
async fn changed_settings_change_the_due_time() {
    let (provider, other) = (Provider::start().await, Provider::start().await);
    provider.says(Answer::ok(&document(&[])));
    other.says(Answer::new(429, "{}").with("Retry-After", "300"));
    run_with(&settings(&provider), async |app| {
        assert_eq!(Process::new(app, 1).work().await, Some((1, 3_600)));
        let mut config = app.app.config.feeds.clone();
        config.idle = Wait::from_mins(10);
        assert_eq!(Process::with(app, 1, &config).work().await, Some((0, 600)));
        config.football_data_url = other.url.parse().expect("a URL");
        assert_eq!(Process::with(app, 1, &config).work().await, Some((1, 300)), "the URL is different");
        config.idle = Wait::from_mins(1);
        assert_eq!(Process::with(app, 1, &config).work().await, Some((0, 300)), "the requested wait is kept");
    })
    .await;
}
