//! Looking at feeds by themselves, when they are due.

use std::time::Duration as Wait;

use platform::lease::Lease;
use tokio_util::sync::CancellationToken;
use uuid::Uuid;

use super::*;
use crate::{
    feeds::{service::Feeds, settings::Settings},
    testing::eventually,
};

/// A process that looks at feeds.
struct Process {
    feeds: Feeds,
    lease: Lease,
    is_ours: bool,
}

impl Process {
    /// One that begins now, and knows only what is in the database.
    fn new(app: &TestApp, number: u128) -> Self {
        Self::with(app, number, &app.app.config.feeds)
    }

    /// The same with other settings.
    fn with(app: &TestApp, number: u128, settings: &Settings) -> Self {
        let feeds = Feeds::new(&app.app.core, settings, app.app.fixtures.clone()).expect("feeds");
        Self { feeds, lease: Lease::new("feeds", Uuid::from_u128(number), Wait::from_secs(1)), is_ours: false }
    }

    /// Does all that is due. Returns how many looks that took, and how many seconds there is nothing to do; `None` if that is
    /// another process's business.
    async fn work(&mut self) -> Option<(usize, u64)> {
        let mut looks = 0;
        loop {
            match self
                .feeds
                .turn(&self.lease, &mut self.is_ours, &|_: &Polled| {})
                .await
                .expect("the database is there")
            {
                None => return None,
                Some(Wait::ZERO) => looks += 1,
                Some(pause) => return Some((looks, pause.as_secs())),
            }
        }
    }
}

#[tokio::test]
async fn feeds_are_looked_at_when_they_are_due() {
    let provider = Provider::start().await;
    let mut entry = a_match(1, "TIMED", None);
    entry["utcDate"] = json!("2026-11-20T17:00:00Z");
    provider.says(Answer::ok(&document(&[entry.clone()])));
    run_with(&settings(&provider), async |app| {
        let mut process = Process::new(app, 1);
        assert_eq!(process.work().await, Some((1, 3_600)), "nothing is near");
        app.clock.advance(Duration::minutes(59));
        assert_eq!(process.work().await, Some((0, 60)));
        app.clock.advance(Duration::minutes(1));
        assert_eq!(process.work().await, Some((1, 50 * 60)), "ten minutes before the kick-off");
        app.clock.advance(Duration::minutes(50));
        assert_eq!(process.work().await, Some((1, 60)));
        (entry["status"], entry["score"]["fullTime"]) = (json!("IN_PLAY"), json!({"home": 0, "away": 0}));
        provider.says(Answer::ok(&document(&[entry.clone()])));
        app.clock.advance(Duration::minutes(11));
        assert_eq!(process.work().await, Some((1, 60)), "it is on");
        app.clock.advance(Duration::minutes(100));
        assert_eq!(process.work().await, Some((1, 20)), "it may end any moment");
        entry["status"] = json!("FINISHED");
        provider.says(Answer::ok(&document(&[entry.clone()])));
        app.clock.advance(Duration::seconds(20));
        assert_eq!(process.work().await, Some((1, 300)), "its result may be corrected");
        app.clock.advance(Duration::hours(2));
        assert_eq!(process.work().await, Some((1, 3_600)));
        assert_eq!(provider.seen().len(), 7);
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn one_process_looks_and_another_follows_it() {
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
        // The first dies, and says nothing. The second finds what is due, and when the first has looked.
        drop(first);
        eventually("the lease runs out", async || second.lease.hold(&app.app.core.db).await.expect("asked")).await;
        assert_eq!(second.work().await, Some((0, 60)));
        app.clock.advance(Duration::minutes(1));
        assert_eq!(second.work().await, Some((1, 60)));
        assert_eq!(provider.seen().len(), 5);
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn whoever_ends_hands_the_lease_back() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[])));
    run_with(&settings(&provider), async |app| {
        let (feeds, closing) = (app.app.feeds.clone(), CancellationToken::new());
        let lease = Lease::new("feeds", Uuid::from_u128(1), Wait::from_mins(1));
        let until = closing.clone();
        let task = tokio::spawn(async move { feeds.run(lease, Wait::from_millis(20), until, |_| {}).await });
        eventually("it looks", async || provider.seen().len() == 1).await;
        app.clock.advance(Duration::hours(1));
        eventually("it looks again", async || provider.seen().len() == 2).await;
        closing.cancel();
        task.await.expect("ended");
        assert_eq!(rows(app, "leases").await, 0);
    })
    .await;
}

#[tokio::test]
async fn all_feeds_of_a_provider_together_keep_its_limit() {
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
        assert_eq!(paths.len(), 5, "each had its turn");
    })
    .await;
}

/// A process that takes over knows what the one before it has sent.
#[tokio::test]
async fn a_limit_outlives_a_process() {
    let provider = Provider::start().await;
    provider.says(Answer::ok(&document(&[])));
    let mut settings = settings(&provider);
    settings[2].1 = "AA,BB,CC".to_owned();
    settings.push(("MATCHDAY_FEEDS__FOOTBALL_DATA_PER_MINUTE", "2".to_owned()));
    run_with(&settings, async |app| {
        let mut first = Process::new(app, 1);
        for _ in 0..2 {
            let turn = first.feeds.turn(&first.lease, &mut first.is_ours, &|_: &Polled| {}).await;
            assert_eq!(turn.expect("the database is there"), Some(Wait::ZERO));
            app.clock.advance(Duration::seconds(1));
        }
        first.lease.release(&app.app.core.db).await.expect("given back");
        let mut second = Process::new(app, 2);
        assert_eq!(second.work().await, Some((0, 59)));
        app.clock.advance(Duration::seconds(59));
        assert_eq!(second.work().await, Some((1, 3_539)));
    })
    .await;
}

#[tokio::test]
async fn a_wait_means_all_feeds_of_the_provider() {
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
            assert!(process.work().await.expect("it is ours").0 >= 1);
            assert!(provider.seen().iter().any(|seen| seen.path.contains("/BB/")));
        })
        .await;
    }
}

/// A look that cannot be written down is not made again at once: the provider must not suffer for our database.
#[tokio::test]
async fn what_cannot_be_written_down_is_remembered() {
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

/// What an operator changes is seen when the process is started anew, and not an hour later.
#[tokio::test]
async fn other_settings_change_when_a_feed_is_due() {
    let (provider, other) = (Provider::start().await, Provider::start().await);
    provider.says(Answer::ok(&document(&[])));
    other.says(Answer::new(429, "{}").with("Retry-After", "300"));
    run_with(&settings(&provider), async |app| {
        assert_eq!(Process::new(app, 1).work().await, Some((1, 3_600)));
        let mut config = app.app.config.feeds.clone();
        config.idle = Wait::from_mins(10);
        assert_eq!(Process::with(app, 1, &config).work().await, Some((0, 600)));
        config.football_data_url = other.url.parse().expect("a URL");
        assert_eq!(Process::with(app, 1, &config).work().await, Some((1, 300)), "it is another place");
        config.idle = Wait::from_mins(1);
        assert_eq!(Process::with(app, 1, &config).work().await, Some((0, 300)), "what it was told to wait stays");
    })
    .await;
}
