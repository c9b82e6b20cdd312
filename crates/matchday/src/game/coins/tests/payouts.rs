//! Tests of payouts for points.

use proptest::{collection::vec, prelude::*, test_runner::Config as ProptestConfig};
use serde_json::json;
use time::Duration;
use web::ids::MatchId;

use super::{assert_clean, balance, check_cases, deduction};
use crate::testing::{MatchBuilder, TestApp, TestFixtures, TestUser};

/// The database clock decides whether a match is open, and these tests do not move it. A match this far ahead has not
/// started.
const FAR: Duration = Duration::days(365 * 75);

/// Chunks are small, so that a few users make several of them.
const PAYING: [(&str, &str); 2] = [("MATCHDAY_COINS__PER_POINT", "2"), ("MATCHDAY_SCORES__LANE_SIZE", "2")];

fn far<'f, 'a>(fixtures: &'f TestFixtures<'a>) -> MatchBuilder<'f, 'a> {
    fixtures.a_match("m").starting_in(FAR)
}

async fn predict(user: &TestUser<'_>, event: i64, pick: &str) {
    user.post("/api/auth/predictions", json!({"event_id": event, "prediction": pick})).await.expect(201);
}

/// Returns the revision, due, had, written off, and whether coins moved.
async fn payouts(app: &TestApp, user: &TestUser<'_>) -> Vec<(i64, i64, i64, i64, bool)> {
    sqlx::query_as(
        "select revision, due, had, written_off, number is not null from coin_payouts where user_id = $1 order by revision",
    )
    .bind(user.id)
    .fetch_all(&app.app.core.db)
    .await
    .expect("read")
}

#[tokio::test]
async fn points_pay_no_coins_by_default() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        predict(&user, event, "home").await;
        far(&fixtures).at("finished", 1, 0).put().await;
        app.settle().await;
        assert_eq!(balance(&user).await, 100);
        assert_eq!(payouts(app, &user).await, []);
        assert!(app.app.scores.in_progress().await.expect("read").is_empty());
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn result_pays_once_and_correction_pays_the_difference() {
    TestApp::run_with(&PAYING, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (home, away, spender) = (app.user().await, app.user().await, app.user().await);
        predict(&home, event, "home").await;
        predict(&away, event, "away").await;
        predict(&spender, event, "home").await;
        far(&fixtures).at("finished", 1, 0).put().await;
        app.settle().await;
        assert_eq!([balance(&home).await, balance(&away).await, balance(&spender).await], [140, 100, 140]);
        // Applying the result again changes nothing.
        app.app.scores.rerun(MatchId(event), |_, _| ()).await.expect("again");
        assert_eq!(balance(&home).await, 140);
        spender.post("/api/auth/coins/deduct", deduction(130, "all")).await.expect(200);
        // A correction: the away team won.
        far(&fixtures).at("finished", 0, 1).put().await;
        app.settle().await;
        assert_eq!([balance(&home).await, balance(&away).await, balance(&spender).await], [100, 140, 0]);
        assert_eq!(payouts(app, &spender).await, [(1, 40, 40, 0, true), (2, 0, 30, 30, true)]);
        // The result is corrected back. Coins that the spender kept are not paid twice.
        far(&fixtures).at("finished", 2, 0).put().await;
        app.settle().await;
        assert_eq!([balance(&home).await, balance(&away).await, balance(&spender).await], [140, 100, 10]);
        // The match is abandoned, so its predictions earn nothing.
        far(&fixtures).being("abandoned").put().await;
        app.settle().await;
        assert_eq!([balance(&home).await, balance(&away).await, balance(&spender).await], [100, 100, 0]);
        let history = home.get("/api/auth/coins").await.expect(200)["data"]["history"].clone();
        assert_eq!((&history[0]["kind"], &history[0]["amount"]), (&json!("points"), &json!(-40)));
        assert_eq!(history[0]["event_id"], event);
        assert_clean(app).await;
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn match_keeps_its_first_rate() {
    TestApp::run_with(&PAYING, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        predict(&user, event, "home").await;
        sqlx::query("insert into coin_rates (event_id, per_point) values ($1, 5)")
            .bind(event)
            .execute(&app.app.core.db)
            .await
            .expect("fixed before");
        far(&fixtures).at("finished", 1, 0).put().await;
        app.settle().await;
        assert_eq!(balance(&user).await, 200);
        app.published().await;
    })
    .await;
}

/// Several workers apply the same chunks while results change. Every user ends with the coins of the last result.
#[tokio::test]
async fn racing_workers_and_corrections_pay_once() {
    // Each chunk is paid in several slices.
    let settings = [("MATCHDAY_COINS__PER_POINT", "2"), ("MATCHDAY_SCORES__LANE_SIZE", "5")];
    TestApp::run_with(&settings, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let mut users = Vec::new();
        for number in 0..12 {
            let user = app.user().await;
            predict(&user, event, if number % 2 == 0 { "home" } else { "away" }).await;
            users.push(user);
        }
        for round in 0..6 {
            far(&fixtures).at("finished", round % 2, (round + 1) % 2).put().await;
            let scores = &app.app.scores;
            let work = async {
                for chunk in scores.plan(MatchId(event)).await.expect("planned") {
                    scores.apply(MatchId(event), chunk.number).await.expect("applied");
                }
            };
            let again = async {
                for chunk in scores.plan(MatchId(event)).await.expect("planned").into_iter().rev() {
                    scores.apply(MatchId(event), chunk.number).await.expect("applied");
                }
            };
            let correction = async {
                if round == 3 {
                    far(&fixtures).at("finished", 3, 3).put().await;
                }
            };
            tokio::join!(work, again, correction);
        }
        app.settle().await;
        for (number, user) in users.iter().enumerate() {
            // The last result is 1:0.
            assert_eq!(balance(user).await, if number % 2 == 0 { 140 } else { 100 }, "user {number}");
        }
        assert_clean(app).await;
        app.published().await;
    })
    .await;
}

#[derive(Clone, Copy, Debug)]
enum Step {
    Result(i32, i32),
    CallOff,
    Settle,
    Spend(usize, i64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        3 => (0..3, 0..3).prop_map(|(home, away)| Step::Result(home, away)),
        1 => Just(Step::CallOff),
        3 => Just(Step::Settle),
        3 => (0_usize..3, 1_i64..200).prop_map(|(user, coins)| Step::Spend(user, coins)),
    ]
}

/// Runs the steps and checks that no balance is negative, that no user has received less than the last result is worth,
/// and that no user has received more than this plus the written-off amount.
async fn check_payouts_after_steps(app: &TestApp, steps: &[Step]) {
    const PICKS: [&str; 3] = ["home", "draw", "away"];
    let fixtures = app.fixtures();
    let users = [app.user().await, app.user().await, app.user().await];
    let key = format!("of-{}", users[0].id);
    let far = || fixtures.a_match(&key).starting_in(FAR);
    let event = far().put().await;
    for (user, pick) in users.iter().zip(PICKS) {
        predict(user, event, pick).await;
    }
    let mut spent = [0; PICKS.len()];
    let mut result = None;
    for (number, step) in steps.iter().enumerate() {
        match *step {
            Step::Result(home, away) => {
                far().at("finished", home, away).put().await;
                result = Some((home, away));
            }
            Step::CallOff => {
                far().being("abandoned").put().await;
                result = None;
            }
            Step::Settle => app.settle().await,
            Step::Spend(user, coins) => {
                let body = deduction(coins, &format!("order-{number}"));
                if users[user].post("/api/auth/coins/deduct", body).await.status == 200 {
                    spent[user] += coins;
                }
            }
        }
    }
    app.settle().await;
    for (at, (user, pick)) in users.iter().zip(PICKS).enumerate() {
        let winner = result.map(|(home, away)| match home.cmp(&away) {
            std::cmp::Ordering::Greater => "home",
            std::cmp::Ordering::Equal => "draw",
            std::cmp::Ordering::Less => "away",
        });
        let due = if winner == Some(pick) { 40 } else { 0 };
        let had = balance(user).await - 100 + spent[at];
        let written_off: i64 = payouts(app, user).await.iter().map(|payout| payout.3).sum();
        assert!((due..=due + written_off).contains(&had), "{pick}: due {due}, had {had}, written off {written_off}");
    }
    assert_clean(app).await;
    app.published().await;
}

#[test]
fn any_history_leaves_users_with_the_amount_due() {
    let config = ProptestConfig { cases: 24, max_shrink_iters: 100, ..ProptestConfig::default() };
    check_cases(&PAYING, config, vec(any_step(), 1..30), &async |app, steps| {
        check_payouts_after_steps(app, steps).await;
    });
}
