//! Fills leaderboards, and compares them with the database.

use std::time::{Duration, Instant};

use serde_json::{Value, json};
use sqlx::{PgPool, postgres::PgConnectOptions};

use crate::{
    load::matches,
    stage::process::{Process, Setting, get},
};

/// Number of matches that receive results, from the first one on. Fans who create load do not predict these.
pub(crate) const WITH_RESULTS: i64 = 3;
/// Number of users who predict those matches.
const PLAYERS: i64 = 2_000;

/// Adds users with predictions for the first matches. Predictions differ between users, but not between runs.
pub(crate) async fn add_players(owner: &PgConnectOptions) {
    let db = PgPool::connect_with(owner.clone()).await.expect("connected");
    sqlx::query(
        "with players as (
             insert into users (created_at, username) select now(), 'player' || n from generate_series(1, $1) n
             returning user_id)
         insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at)
         select p.user_id, e.id, pick_of(home, away), home::smallint, away::smallint, (p.user_id * 7 % 101)::smallint, 1, now(), now()
         from players p cross join (select id from events order by id limit $2) e
         cross join lateral (select (p.user_id * 31 + e.id * 17) % 4 as h, (p.user_id * 13 + e.id * 5) % 3 as a) g
         cross join lateral (select h::integer as home, a::integer as away) s",
    )
    .bind(PLAYERS)
    .bind(WITH_RESULTS)
    .execute(&db)
    .await
    .expect("players");
    db.close().await;
}

/// Imports results for the first matches.
pub(crate) fn import(setting: &Setting, results: &[(i32, i32)]) {
    setting.expect(&["fixtures", "import", "-"], &matches(results));
}

/// Waits until every result is in all scores and all scores are on the leaderboards; returns how long it took.
pub(crate) async fn settled(owner: &PgConnectOptions, most: Duration) -> Duration {
    let (began, db) = (Instant::now(), PgPool::connect_with(owner.clone()).await.expect("connected"));
    let query = "select (select count(*) from event_results where applied_at is null) + (select count(*) from outbox)";
    loop {
        let left: i64 = sqlx::query_scalar(query).fetch_one(&db).await.expect("read");
        if left == 0 {
            break;
        }
        assert!(began.elapsed() < most, "{left} results or messages are still pending after {most:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    db.close().await;
    began.elapsed()
}

/// Checks that every score matches predictions and results, and that every user was paid for their points exactly once.
/// Requires a rate of one coin per point.
pub(crate) async fn verify_scores_and_payouts(setting: &Setting, owner: &PgConnectOptions) {
    const EARNED: &str = "
        select user_id, sum(points)::bigint from (
            select p.user_id, greatest(prediction_points(
                   row(s.outcome, s.difference, s.exact, s.margin_within, s.margin_points, s.stake, s.advances)::point_rules,
                   row(p.prediction, p.home_goals, p.away_goals, p.confidence, p.advances, p.joker)::forecast,
                   row(e.home_score, e.away_score, e.advanced, e.is_knockout, e.multiplier)::match_result), 0) as points
            from predictions p join events e on e.id = p.event_id join rule_sets s on s.id = e.rule_set_id
        where e.status = 'finished') earned
        group by user_id having sum(points) > 0 order by 1";
    const PAID: &str =
        "select user_id, sum(amount)::bigint from coin_transactions where kind = 'points' group by user_id order by 1";
    let rebuilt = setting.expect(&["scores", "rebuild", "--dry-run"], "");
    assert_eq!(rebuilt, "every score matches predictions, answers and results");
    let db = PgPool::connect_with(owner.clone()).await.expect("connected");
    let earned: Vec<(i64, i64)> = sqlx::query_as(EARNED).fetch_all(&db).await.expect("read");
    let paid: Vec<(i64, i64)> = sqlx::query_as(PAID).fetch_all(&db).await.expect("read");
    db.close().await;
    assert!(earned.len() > 100, "many users earned points");
    assert!(paid == earned, "every user is paid exactly once for their points");
}

/// Top hundred according to the database.
pub(crate) async fn expected(owner: &PgConnectOptions) -> Vec<Value> {
    const BOARD: &str = "select user_id, points, exact, correct, settled, rank() over (order by points desc)
        from user_scores where scope = 'all' and settled > 0
        order by points desc, exact desc, correct desc, user_id limit 100";
    let db = PgPool::connect_with(owner.clone()).await.expect("connected");
    let rows: Vec<(i64, i32, i32, i32, i32, i64)> = sqlx::query_as(BOARD).fetch_all(&db).await.expect("read");
    db.close().await;
    let entry = |(user, points, exact, correct, settled, rank)| json!({"user": user, "points": points, "exact": exact, "correct": correct, "settled": settled, "rank": rank});
    assert!(!rows.is_empty(), "the leaderboard is not empty");
    rows.into_iter().map(entry).collect()
}

/// Top hundred of the global leaderboard, or status and code of the error.
pub(crate) async fn shown(service: &Process, token: &str) -> Result<Vec<Value>, String> {
    let (status, answer) = get(&service.public, "/api/auth/leaderboards?per_page=100", token).await;
    if status != 200 {
        return Err(format!("{status} {}", answer["code"].as_str().unwrap_or_default()));
    }
    let mut top = answer["data"]["top"].as_array().expect("a list").clone();
    for entry in &mut top {
        entry["user"] = entry["user"]["id"].clone();
    }
    Ok(top)
}

/// Polls until the leaderboard is available again; returns how long it took.
pub(crate) async fn wait_until_available(service: &Process, token: &str, most: Duration) -> Duration {
    let began = Instant::now();
    while let Err(refusal) = shown(service, token).await {
        assert!(refusal.starts_with("503 leaderboard_"), "{refusal}");
        assert!(began.elapsed() < most, "no leaderboard within {most:?}: {refusal}");
        tokio::time::sleep(Duration::from_millis(20)).await;
    }
    began.elapsed()
}
