//! A session that ends in one process ends in all processes.

use std::time::{Duration, Instant};

use matchday::testing::with_database;

use crate::process::{Setting, get};

#[tokio::test]
async fn revoked_token_is_refused_elsewhere_within_a_second() {
    with_database(async |options| {
        // Cached tokens are trusted for long, so that only a message can cause the refusal.
        let setting = Setting::new(&options).with("MATCHDAY_SESSIONS__CACHE_UNHEARD", "10m");
        let (one, two) = (setting.start(&["serve"]), setting.start(&["serve", "--no-workers"]));
        for round in 0..10 {
            let token = setting.expect(&["sessions", "issue"], "");
            for process in [&one, &two] {
                assert_eq!(get(&process.public, "/api/auth/teams", &token).await.0, 200);
            }
            let (ends, hears) = if round % 2 == 0 { (&one, &two) } else { (&two, &one) };
            let logout = reqwest::Client::new()
                .post(format!("{}/api/auth/logout", ends.public))
                .bearer_auth(&token)
                .send()
                .await;
            assert_eq!(logout.expect("a response").status(), 200);
            let ended = Instant::now();
            assert_eq!(
                get(&ends.public, "/api/auth/teams", &token).await.0,
                401,
                "immediately in the process that ended it"
            );
            while get(&hears.public, "/api/auth/teams", &token).await.0 != 401 {
                assert!(ended.elapsed() < Duration::from_secs(1), "round {round}: still valid after a second");
                tokio::time::sleep(Duration::from_millis(5)).await;
            }
        }
    })
    .await;
}
