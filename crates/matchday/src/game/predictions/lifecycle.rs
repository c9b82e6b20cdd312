//! Tests of predictions for matches that are moved, postponed or cancelled. These tests control the database clock.

use std::{
    sync::atomic::{AtomicUsize, Ordering},
    time::Duration as Pause,
};

use futures_util::future::join_all;
use scoring::{Confidence, Forecast, Pick};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime};
use web::ids::{MatchId, UserId};

use super::service::SaveError;
use crate::testing::{Answer, TestApp, TestUser};

const MINUTE: Duration = Duration::MINUTE;

async fn predict(user: &TestUser<'_>, event: i64, pick: &str) -> Answer {
    user.post("/api/auth/predictions", json!({"event_id": event, "prediction": pick})).await
}

/// Whether the match accepts predictions. Checks both a new prediction and a replacement.
async fn is_open(app: &TestApp, event: i64, user: &TestUser<'_>) -> bool {
    let (again, first) = (predict(user, event, "draw").await, predict(&app.user().await, event, "draw").await);
    let open = again.status == 200;
    assert_eq!(first.status.as_u16(), if open { 201 } else { 400 }, "new and repeated predictions are treated alike");
    assert!(open || again.expect(400)["code"].as_str().is_some_and(|code| code.starts_with("event_")));
    open
}

/// Returns the pick and points that the list shows for a user.
async fn shown(user: &TestUser<'_>, event: i64) -> (Value, Value) {
    let list = user.get(&format!("/api/auth/events/{event}/predictions?user_id={}", user.id)).await.expect(200);
    (list["data"][0]["prediction"].clone(), list["data"][0]["points_earned"].clone())
}

async fn score(app: &TestApp, user: UserId) -> Option<(i32, i32)> {
    sqlx::query_as("select points, settled from user_scores where user_id = $1 and scope = 'all' and settled > 0")
        .bind(user)
        .fetch_optional(&app.app.core.db)
        .await
        .expect("read")
}

#[tokio::test]
async fn database_clock_closes_predictions() {
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::HOUR).put().await;
        let user = app.user().await;
        predict(&user, event, "home").await.expect(201);
        // The clock of the process is an hour behind.
        app.advance_database(Duration::HOUR - Duration::SECOND).await;
        assert!(is_open(app, event, &user).await);
        app.advance_database(Duration::SECOND).await;
        assert!(!is_open(app, event, &user).await);
    })
    .await;
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::HOUR).put().await;
        let user = app.user().await;
        // The clock of the process is ahead.
        app.clock.advance(Duration::HOUR * 2);
        predict(&user, event, "home").await.expect(201);
        assert!(is_open(app, event, &user).await);
    })
    .await;
}

#[tokio::test]
async fn closing_time_follows_a_moved_kick_off() {
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let at = |minutes: i64| fixtures.a_match("m").starting_in(MINUTE * i32::try_from(minutes).expect("fits"));
        let event = at(60).put().await;
        let user = app.user().await;
        predict(&user, event, "home").await.expect(201);
        at(120).put().await;
        app.advance_database(MINUTE * 90).await;
        assert!(is_open(app, event, &user).await, "moved to a later time, open until then");
        at(100).put().await;
        app.advance_database(MINUTE * 9).await;
        assert!(is_open(app, event, &user).await, "moved to an earlier time, open until then");
        app.advance_database(MINUTE).await;
        assert!(!is_open(app, event, &user).await);
        at(130).put().await;
        assert!(is_open(app, event, &user).await, "not started, and moved to a later time");
        app.advance_database(MINUTE * 30).await;
        at(130).being("live").put().await;
        assert!(!is_open(app, event, &user).await);
    })
    .await;
}

#[tokio::test]
async fn predictions_after_actual_start_do_not_count() {
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(MINUTE * 60).put().await;
        let (steady, switcher, late) = (app.user().await, app.user().await, app.user().await);
        app.advance_database(MINUTE).await;
        predict(&steady, event, "home").await.expect(201);
        predict(&switcher, event, "draw").await.expect(201);
        app.advance_database(MINUTE).await;
        predict(&switcher, event, "away").await.expect(200);
        app.advance_database(MINUTE * 48).await;
        // The match has been running for five minutes, but the service has not learned this yet.
        for (user, status) in [(&switcher, 200), (&late, 201)] {
            predict(user, event, "home").await.expect(status);
        }
        app.advance_database(MINUTE * 2).await;
        let actual = || fixtures.a_match("m").starting_in(MINUTE * 45);
        actual().at("live", 1, 0).put().await;
        assert!(!is_open(app, event, &steady).await);
        actual().at("finished", 1, 0).put().await;
        app.settle_match(event).await;
        assert_eq!(shown(&steady, event).await, (json!("home"), json!(20)));
        assert_eq!(
            shown(&switcher, event).await,
            (json!("away"), json!(0)),
            "the last revision before the start counts"
        );
        assert_eq!(shown(&late, event).await, (json!("home"), Value::Null));
        assert_eq!(score(app, steady.id).await, Some((20, 1)));
        assert_eq!(score(app, switcher.id).await, Some((0, 1)));
        assert_eq!(score(app, late.id).await, None);
        // A correction: the match started on time after all.
        fixtures.a_match("m").starting_in(MINUTE * 60).at("finished", 1, 0).put().await;
        app.settle_match(event).await;
        assert_eq!(shown(&switcher, event).await, (json!("home"), json!(20)));
        assert_eq!(shown(&late, event).await, (json!("home"), json!(20)));
        for user in [&steady, &switcher, &late] {
            assert_eq!(score(app, user.id).await, Some((20, 1)));
        }
    })
    .await;
}

#[tokio::test]
async fn postponed_match_closes_and_reopens_predictions() {
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(MINUTE * 60).put().await;
        let (stays, changes) = (app.user().await, app.user().await);
        for user in [&stays, &changes] {
            predict(user, event, "home").await.expect(201);
        }
        app.advance_database(MINUTE * 30).await;
        fixtures.a_match("m").starting_in(MINUTE * 60).being("postponed").put().await;
        assert!(!is_open(app, event, &changes).await, "the match has no date");
        app.advance_database(MINUTE * 60).await;
        let again = || fixtures.a_match("m").starting_in(Duration::DAY);
        again().put().await;
        assert!(is_open(app, event, &changes).await);
        predict(&changes, event, "away").await.expect(200);
        app.advance_database(Duration::DAY).await;
        assert!(!is_open(app, event, &changes).await);
        again().at("finished", 0, 1).put().await;
        app.settle_match(event).await;
        assert_eq!(shown(&stays, event).await, (json!("home"), json!(0)), "earlier predictions remain valid");
        assert_eq!(shown(&changes, event).await, (json!("away"), json!(20)));
        assert_eq!(score(app, changes.id).await, Some((20, 1)));
    })
    .await;
}

#[tokio::test]
async fn cancelled_match_gives_no_points() {
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let started = || fixtures.a_match("m").starting_in(MINUTE * 60);
        let event = started().put().await;
        let user = app.user().await;
        predict(&user, event, "home").await.expect(201);
        app.advance_database(MINUTE).await;
        started().being("cancelled").put().await;
        assert!(!is_open(app, event, &user).await);
        app.settle().await;
        assert_eq!((shown(&user, event).await.1, score(app, user.id).await), (Value::Null, None));
        app.advance_database(MINUTE * 200).await;
        for (described, points, scored) in [
            (started().at("finished", 1, 0), json!(20), Some((20, 1))),
            (started().at("abandoned", 1, 0), Value::Null, None),
            (started().at("finished", 0, 1), json!(0), Some((0, 1))),
            (started().at("awarded", 3, 0), Value::Null, None),
            (started().being("cancelled"), Value::Null, None),
        ] {
            described.put().await;
            app.settle().await;
            assert_eq!((shown(&user, event).await.1, score(app, user.id).await), (points, scored));
        }
    })
    .await;
}

#[tokio::test]
async fn every_revision_is_kept() {
    TestApp::run_with_database_clock(&[], async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(MINUTE * 60).put().await;
        let user = app.user().await;
        let mut submitted = Vec::new();
        for (number, pick) in ["home", "draw", "draw", "away"].into_iter().enumerate() {
            let body = json!({"event_id": event, "prediction": pick, "confidence": number * 10});
            user.post("/api/auth/predictions", body).await;
            submitted.push((
                i32::try_from(number).expect("small") + 1,
                pick.to_owned(),
                i16::try_from(number * 10).expect("small"),
            ));
            app.advance_database(MINUTE).await;
        }
        let kept: Vec<(i32, String, i16, OffsetDateTime)> = sqlx::query_as(
            "select revision, prediction, confidence, made_at from prediction_revisions where user_id = $1
             union all
             select revision, prediction, confidence, updated_at from predictions where user_id = $1 order by 1",
        )
        .bind(user.id)
        .fetch_all(&app.app.core.db)
        .await
        .expect("read");
        assert!(kept.windows(2).all(|pair| pair[0].3 < pair[1].3), "{kept:?}");
        assert_eq!(
            kept.into_iter().map(|(revision, pick, confidence, _)| (revision, pick, confidence)).collect::<Vec<_>>(),
            submitted
        );
    })
    .await;
}

/// Creates a thousand accounts with one statement.
async fn create_thousand_users(app: &TestApp) -> Vec<UserId> {
    sqlx::query_scalar("insert into users (created_at, username) select now(), 'racer' || n from generate_series(1, 1000) n returning user_id")
        .fetch_all(&app.app.core.db)
        .await
        .expect("users")
}

/// Submits a thousand predictions while `close` closes the match; returns the accepted users.
async fn race(app: &TestApp, event: i64, over: Pause, close: impl Future<Output = ()>) -> Vec<UserId> {
    let (users, done) = (create_thousand_users(app).await, AtomicUsize::new(0));
    let forecast = Forecast::new(Pick::Home, None, Confidence::default()).expect("a forecast");
    let submissions = users.iter().zip(1_u32..).map(|(&user, number)| {
        let done = &done;
        async move {
            tokio::time::sleep(over * number / 1_000).await;
            let saved = app.app.predictions.save(user, MatchId(event), forecast).await;
            done.fetch_add(1, Ordering::Relaxed);
            match saved {
                Ok(_) => Some(user),
                Err(SaveError::Closed(_)) => None,
                Err(error) => panic!("save failed: {error}"),
            }
        }
    });
    let (accepted, ()) = tokio::join!(join_all(submissions), close);
    assert_eq!(done.load(Ordering::Relaxed), 1_000);
    accepted.into_iter().flatten().collect()
}

/// Checks that exactly the accepted predictions are stored, that all were made in time, and that all count.
async fn check_counted_or_refused(app: &TestApp, event: i64, accepted: Vec<UserId>, before: OffsetDateTime) {
    assert!((1..1_000).contains(&accepted.len()), "the test had no race: {}", accepted.len());
    let stored: Vec<(i64, OffsetDateTime)> =
        sqlx::query_as("select user_id, updated_at from predictions where event_id = $1 order by user_id")
            .bind(event)
            .fetch_all(&app.app.core.db)
            .await
            .expect("read");
    assert_eq!(stored.iter().map(|&(user, _)| UserId(user)).collect::<Vec<_>>(), accepted);
    assert!(stored.iter().all(|&(_, made)| made < before), "{before}: {:?}", stored.iter().map(|row| row.1).max());
    let user = app.user().await;
    let list = user.get(&format!("/api/auth/events/{event}/predictions?per_page=1")).await.expect(200);
    assert_eq!(list["meta"]["total_predictions"], accepted.len());
    app.settle_match(event).await;
    for &user in &accepted {
        assert_eq!(score(app, user).await, Some((20, 1)));
    }
    let with_score: i64 = sqlx::query_scalar("select count(*) from user_scores where scope = 'all'")
        .fetch_one(&app.app.core.db)
        .await
        .expect("read");
    assert_eq!(usize::try_from(with_score).expect("fits"), accepted.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_racing_the_start_are_counted_or_refused() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = fixtures.a_match("m").starting_in(Duration::days(365 * 75)).put().await;
        // Uses the real database clock, which must not stand still in this test.
        let start: OffsetDateTime = sqlx::query_scalar(
            "update events set start_time = now() + interval '600 ms' where id = $1 returning start_time",
        )
        .bind(event)
        .fetch_one(&app.app.core.db)
        .await
        .expect("moved");
        let accepted = race(app, event, Pause::from_secs(1), async {}).await;
        sqlx::query("update events set status = 'live' where id = $1")
            .bind(event)
            .execute(&app.app.core.db)
            .await
            .expect("written");
        let in_document = start - app.app.core.clock.now();
        fixtures.a_match("m").starting_in(in_document).at("finished", 1, 0).put().await;
        check_counted_or_refused(app, event, accepted, start).await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn predictions_racing_a_status_change_are_counted_or_refused() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let far = || fixtures.a_match("m").starting_in(Duration::days(365 * 75));
        let event = far().put().await;
        let finish = async {
            tokio::time::sleep(Pause::from_millis(300)).await;
            far().at("finished", 1, 0).put().await;
        };
        let accepted = race(app, event, Pause::from_millis(600), finish).await;
        let recorded: OffsetDateTime = sqlx::query_scalar("select recorded_at from event_results where event_id = $1")
            .bind(event)
            .fetch_one(&app.app.core.db)
            .await
            .expect("the result");
        check_counted_or_refused(app, event, accepted, recorded).await;
    })
    .await;
}
