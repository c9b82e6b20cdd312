//! Tests of the daily bonus.

use futures_util::future::join_all;
use platform::clock::Clock as _;
use serde_json::{Value, json};
use time::Duration;

use super::{assert_clean, balance};
use crate::testing::{Answer, TestApp, TestUser};

async fn claim(user: &TestUser<'_>) -> Answer {
    user.post("/api/auth/daily-coins", json!({})).await
}

/// Claims, and returns the coins awarded, the streak and the streak bonus.
async fn claimed(user: &TestUser<'_>) -> (i64, i64, i64) {
    let response = claim(user).await.expect(200);
    let number = |name: &str| response["data"][name].as_i64().expect("a number");
    (number("coins_awarded"), number("streak_days"), number("streak_bonus"))
}

async fn streak(user: &TestUser<'_>) -> Value {
    user.get("/api/auth/coins").await.expect(200)["data"]["streak"].clone()
}

#[tokio::test]
async fn daily_bonus_grows_with_the_streak() {
    TestApp::run(async |app| {
        let user = app.user().await;
        assert_eq!(
            streak(&user).await,
            json!({"days": 0, "claimed_today": false, "next_claim_at": "2026-11-20T15:00:00.000Z", "next_coins": 50})
        );
        let response = claim(&user).await;
        assert_eq!(
            (response.header("x-ratelimit-limit"), response.header("x-ratelimit-remaining")),
            (Some("10"), Some("9"))
        );
        assert_eq!(
            response.expect(200)["data"],
            json!({"coins_awarded": 50, "new_balance": 150, "next_claim_at": "2026-11-21T00:00:00.000Z", "streak_days": 1,
                   "streak_bonus": 0})
        );
        let refused = claim(&user).await;
        assert!(refused.header("x-ratelimit-remaining").is_some());
        let refused = refused.expect(400);
        assert_eq!(refused["code"], "already_claimed");
        assert!(
            refused["message"].as_str().is_some_and(|message| message.contains("2026-11-21T00:00:00.000Z")),
            "{refused}"
        );
        assert_eq!(
            streak(&user).await,
            json!({"days": 1, "claimed_today": true, "next_claim_at": "2026-11-21T00:00:00.000Z", "next_coins": 60})
        );
        let mut expected = 150;
        for (day, bonus) in [(2, 10), (3, 20), (4, 30), (5, 40), (6, 50), (7, 60), (8, 60)] {
            app.clock.advance(Duration::DAY);
            let user = app.login(user.id).await;
            assert_eq!(claimed(&user).await, (50 + bonus, day, bonus));
            expected += 50 + bonus;
            assert_eq!(balance(&user).await, expected);
        }
        // The user misses a day.
        app.clock.advance(Duration::DAY * 2);
        let user = app.login(user.id).await;
        assert_eq!(streak(&user).await["days"], 0);
        assert_eq!(claimed(&user).await, (50, 1, 0));
        assert_clean(app).await;
        app.published().await;
    })
    .await;
}

/// Users claim continuously while the day changes, several times. For every timing around midnight, each user has
/// exactly one claim per day.
#[tokio::test]
async fn each_user_claims_once_per_day_across_midnight() {
    TestApp::run(async |app| {
        const DAYS: i64 = 6;
        let mut users = Vec::new();
        for _ in 0..8 {
            users.push(app.user().await);
        }
        // One second before midnight.
        app.clock.advance(Duration::hours(8) + Duration::minutes(59) + Duration::seconds(59));
        let mut paid = vec![0; users.len()];
        for _ in 0..DAYS {
            // The requests run interleaved, so the clock advances before some responses and after others.
            let claims = users.iter().enumerate().flat_map(|(number, user)| {
                (0..3).map(move |_| async move { (number, claim(user).await.status.as_u16()) })
            });
            let midnight = async {
                tokio::task::yield_now().await;
                app.clock.advance(Duration::SECOND);
            };
            let (responses, ()) = tokio::join!(join_all(claims), midnight);
            for (number, status) in responses {
                assert!([200, 400].contains(&status), "{status}");
                paid[number] += i32::from(status == 200);
            }
            app.clock.advance(Duration::DAY - Duration::SECOND);
        }
        let rows: Vec<(i64, time::Date, i32)> =
            sqlx::query_as("select user_id, day, streak_days from daily_claims order by user_id, day")
                .fetch_all(&app.app.core.db)
                .await
                .expect("read");
        for (number, user) in users.iter().enumerate() {
            let days: Vec<_> = rows.iter().filter(|row| row.0 == user.id.0).map(|row| (row.1, row.2)).collect();
            // Users who claimed before the first midnight have one claim more.
            let first = days.first().expect("a claim").0;
            assert!(i64::try_from(days.len()).is_ok_and(|days| (DAYS..=DAYS + 1).contains(&days)), "{days:?}");
            for (at, &(day, streak)) in (0..).zip(&days) {
                assert_eq!(
                    (day, streak),
                    (first + Duration::days(at.into()), at + 1),
                    "one claim per day, without gaps"
                );
            }
            assert_eq!(paid[number], i32::try_from(days.len()).expect("few"), "every claim was acknowledged");
            let earned: i64 = (0..).zip(&days).map(|(at, _)| 50 + (10 * at).min(60)).sum();
            let user = app.login(user.id).await;
            assert_eq!(balance(&user).await, 100 + earned);
        }
        assert_clean(app).await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn claim_day_changes_exactly_at_midnight_utc() {
    TestApp::run(async |app| {
        let user = app.user().await;
        app.clock.advance(Duration::hours(9) - Duration::NANOSECOND);
        let next = claim(&user).await.expect(200)["data"]["next_claim_at"].clone();
        claim(&user).await.expect(400);
        app.clock.advance(Duration::NANOSECOND);
        assert_eq!(next, platform::timestamp::text(app.clock.now()).expect("a moment"));
        assert_eq!(claimed(&user).await, (60, 2, 10));
        claim(&user).await.expect(400);
    })
    .await;
}

#[tokio::test]
async fn racing_claims_pay_once() {
    TestApp::run(async |app| {
        let user = app.user().await;
        let responses = join_all((0..10).map(|_| claim(&user))).await;
        let paid = responses.iter().filter(|response| response.status == 200).count();
        assert_eq!(paid, 1);
        assert!(responses.iter().all(|response| [200, 400].contains(&response.status.as_u16())));
        assert_eq!(balance(&user).await, 150);
        assert_clean(app).await;
    })
    .await;
}

#[tokio::test]
async fn claims_are_rate_limited() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for tried in 0..10 {
            assert_eq!(claim(&user).await.status.as_u16(), if tried == 0 { 200 } else { 400 });
        }
        let limited = claim(&user).await;
        assert_eq!(limited.header("retry-after"), Some("6"));
        assert_eq!(limited.expect(429)["code"], "rate_limited");
        let other = app.user().await;
        claim(&other).await.expect(200);
        app.clock.advance(Duration::seconds(6));
        claim(&user).await.expect(400);
        claim(&user).await.expect(429);
    })
    .await;
}

#[tokio::test]
async fn bonus_follows_the_settings() {
    let settings =
        [("MATCHDAY_COINS__DAILY", "5"), ("MATCHDAY_COINS__STREAK_STEP", "3"), ("MATCHDAY_COINS__STREAK_MOST", "4")];
    TestApp::run_with(&settings, async |app| {
        let user = app.user().await;
        for (day, bonus) in [(1, 0), (2, 3), (3, 4), (4, 4)] {
            assert_eq!(claimed(&user).await, (5 + bonus, day, bonus));
            app.clock.advance(Duration::DAY);
        }
    })
    .await;
}
