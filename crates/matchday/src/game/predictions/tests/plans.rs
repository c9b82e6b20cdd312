//! Tests of the rows that statements read in a database with many users and partitions.

use web::ids::{MatchId, UserId};

use super::{super::store, far, list};
use crate::testing::TestApp;

const USERS: i64 = 10_000;
const OTHER_PARTITIONS: &str = "^prediction_revisions_[1-9]";

/// Fills a database: every user has a prediction of a match, which counts with its latest revision, one earlier revision
/// of it, and two revisions in each of ten other partitions. Returns the match and the id of the first of the users.
async fn fill(app: &TestApp) -> (MatchId, i64) {
    let event = far(&app.fixtures()).put().await;
    let first = app.user().await.id.0 + 1;
    for statement in [
        "insert into events (id, tournament_id, key, home_team_id, away_team_id, start_time, status, updated_at)
             overriding system value
         select n * 1000 + 1, tournament_id, 'other ' || n, home_team_id, away_team_id, start_time, status, updated_at
         from events, generate_series(1, 19) as n where id = $1",
        "select add_event_partitions()",
        "insert into event_results (event_id, revision, home_score, away_score, start_time, recorded_at, look_again_at)
         select id, 1, 1, 0, start_time, start_time, start_time from events where id = $1",
        "insert into users (user_id, created_at, username, username_is_generated) overriding system value
         select n, now(), 'reader' || n, false from generate_series($2, $2 + $3 - 1) as n",
        "insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
         select n, $1, 'home', 50, 2, now(), now() from generate_series($2, $2 + $3 - 1) as n",
        "insert into prediction_revisions (user_id, event_id, revision, prediction, confidence, made_at, replaced_at)
         select n, $1, 1, 'home', 50, now(), now() from generate_series($2, $2 + $3 - 1) as n
         union all
         select n, p * 1000 + 1, r, 'home', 50, now(), now()
         from generate_series($2, $2 + $3 - 1) as n, generate_series(1, 10) as p, generate_series(1, 2) as r",
        "vacuum analyze users",
        "vacuum analyze events",
        "vacuum analyze predictions",
        "vacuum analyze prediction_revisions",
    ] {
        let query = sqlx::query(statement).bind(event).bind(first).bind(USERS);
        query.execute(app.owner()).await.expect(statement);
    }
    (MatchId(event), first)
}

#[tokio::test]
async fn revisions_of_other_matches_are_not_read() {
    TestApp::run(async |app| {
        let (event, first) = fill(app).await;
        for number in [10, 300, 5_000] {
            let users: Vec<UserId> = (first..first + number).map(UserId).collect();
            let ids: Vec<i64> = users.iter().map(|user| user.0).collect();
            let of_users = app.rows_read(OTHER_PARTITIONS, async |db| {
                let found = store::of_users(db, event, &users).await.expect("read");
                assert_eq!(found.len(), users.len());
            });
            assert_eq!(of_users.await, 0, "predictions of {number} users");
            let listed = app.rows_read(OTHER_PARTITIONS, async |db| {
                let found = store::list_of_users(db, event, &ids, &[], None, 101).await.expect("read");
                assert_eq!(found.len(), ids.len().min(101));
            });
            assert_eq!(listed.await, 0, "list of {number} users");
            for points in [
                "select user_id from result_points where event_id = $1 and revision = 1 and user_id = any($2)",
                "select user_id from result_points where event_id = $1 and revision = 1 and user_id >= $3 and user_id < $4",
            ] {
                let read = app.rows_read(OTHER_PARTITIONS, async |db| {
                    let query = sqlx::query_scalar::<_, i64>(points).bind(event).bind(&ids);
                    let found = query.bind(first).bind(first + number).fetch_all(db).await.expect("read");
                    assert_eq!(found.len(), ids.len());
                });
                assert_eq!(read.await, 0, "points of {number} users: {points}");
            }
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn late_pages_read_few_rows() {
    TestApp::run(async |app| {
        let (event, first) = fill(app).await;
        for after in [first - 1, first + USERS / 2, first + USERS - 300] {
            for plans in ["force_custom_plan", "force_generic_plan"] {
                let read = app.rows_read("^(users|predictions_0|prediction_revisions_0)$", async |db| {
                    let mode = sqlx::query("select set_config('plan_cache_mode', $1, true)").bind(plans);
                    mode.execute(&mut *db).await.expect("set");
                    let until = store::chunk_end(&mut *db, event, after, 101).await.expect("read");
                    let bounds = (after, until.unwrap_or(i64::MAX));
                    let found = store::list(db, event, &[], None, bounds, 101).await.expect("read");
                    assert_eq!((found.len(), found[0].prediction.user_id.0), (101, after + 1));
                });
                let read = read.await;
                // Plans of the last 299 predictions read each up to four times. Without bounds, they read 30,000 rows.
                assert!(read <= 2_000, "{read} rows read after user {after} with {plans}");
            }
        }
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn page_with_a_rare_pick_examines_a_limited_number() {
    TestApp::run(async |app| {
        let (event, user) = (far(&app.fixtures()).put().await, app.user().await);
        let (first, users) = (user.id.0 + 1, 11_000_i64);
        for statement in [
            "insert into users (user_id, created_at, username, username_is_generated) overriding system value
             select n, now(), 'reader' || n, false from generate_series($2, $2 + $3 - 1) as n",
            "insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
             select n, $1, case when n = $2 + $3 - 1 then 'away' else 'home' end, 50, 1, now(), now()
             from generate_series($2, $2 + $3 - 1) as n",
        ] {
            let query = sqlx::query(statement).bind(event).bind(first).bind(users);
            query.execute(app.owner()).await.expect(statement);
        }
        let (mut cursor, mut pages) = (String::new(), Vec::new());
        while pages.len() < 10 {
            let page = list(&user, event, &format!("prediction=away{cursor}")).await;
            pages.push(page["data"].as_array().map(Vec::len).expect("a list"));
            let Some(next) = page["meta"]["next_cursor"].as_str() else { break };
            cursor = format!("&cursor={next}");
        }
        assert_eq!(pages, [0, 0, 1]);
        app.published().await;
    })
    .await;
}
