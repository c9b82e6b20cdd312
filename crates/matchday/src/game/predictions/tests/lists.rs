//! Tests of the lists of predictions: their content, filters and visibility.

use platform::clock::Clock as _;
use serde_json::{Value, json};

use super::{far, ids, list, predict};
use crate::testing::{TestApp, TestUser};

/// Finishes a match 2:1 with a start at the time of this user's last revision, so that this revision is late.
pub(super) async fn start_at_last_revision(app: &TestApp, event: i64, user: &TestUser<'_>) {
    sqlx::query(
        "update events set status = 'finished', home_score = 2, away_score = 1,
                start_time = (select updated_at from predictions where event_id = $1 and user_id = $2)
         where id = $1",
    )
    .bind(event)
    .bind(user.id)
    .execute(&app.app.core.db)
    .await
    .expect("begun");
}

/// Creates a room for a match with these members. Reading it needs no homeserver.
async fn room(app: &TestApp, event: i64, members: &[&TestUser<'_>]) {
    let now = app.clock.now();
    sqlx::raw_sql(sqlx::AssertSqlSafe(format!(
        "insert into rooms (matrix_id, alias, name, event_id, stand, created_at, made_until, opened_at)
           values ('!room:example.org', 'room', 'Room', {event}, 1, '{now}', '{now}', '{now}');
         insert into room_activity (room_id, last_activity, compared_at) select id, '{now}', '{now}' from rooms"
    )))
    .execute(&app.app.core.db)
    .await
    .expect("a room");
    for user in members {
        sqlx::query(
            "insert into room_members (user_id, room_id, membership, changed_at) select $1, id, 'join', $2 from rooms",
        )
        .bind(user.id)
        .bind(now)
        .execute(&app.app.core.db)
        .await
        .expect("a member");
    }
}

async fn room_list(user: &TestUser<'_>, query: &str) -> Value {
    user.get(&format!("/api/auth/chat-rooms/!room:example.org/predictions?{query}")).await.expect(200)
}

#[tokio::test]
async fn late_revision_leaves_the_previous_one() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (early, late, never) = (app.user().await, app.user().await, app.user().await);
        let score = json!({"home": 2, "away": 1});
        let submit = async |user: &TestUser<'_>, pick: &str, score: Value, confidence: i32| {
            let body =
                json!({"event_id": event, "prediction": pick, "score_prediction": score, "confidence": confidence});
            let response = predict(user, body).await;
            assert!(response.status.is_success());
        };
        submit(&early, "home", json!(null), 0).await;
        for (pick, score, confidence) in
            [("draw", json!(null), 10), ("home", score.clone(), 50), ("away", json!(null), 100)]
        {
            submit(&late, pick, score, confidence).await;
        }
        start_at_last_revision(app, event, &late).await;
        // Simulates a match that was reset, predicted, and started again.
        sqlx::query(
            "insert into predictions (user_id, event_id, prediction, confidence, revision, created_at, updated_at)
             select $1, id, 'home', 70, 1, start_time + interval '1 second', start_time + interval '1 second'
             from events where id = $2",
        )
        .bind(never.id)
        .bind(event)
        .execute(&app.app.core.db)
        .await
        .expect("predicted");

        let shown = |list: &Value| -> Vec<Value> {
            let items = list["data"].as_array().expect("a list").iter();
            items
                .map(|item| {
                    json!([item["prediction"], item["score_prediction"], item["confidence"], item["points_earned"]])
                })
                .collect()
        };
        let (of_early, of_late, of_never) =
            (json!(["home", null, 0, 20]), json!(["home", score, 50, 55]), json!(["home", null, 70, null]));
        let all = list(&early, event, "").await;
        assert_eq!(shown(&all), [of_early.clone(), of_late.clone(), of_never.clone()]);
        assert_eq!(
            shown(&list(&early, event, "prediction=home").await).len(),
            3,
            "the filter applies to the revision that counts"
        );
        assert_eq!(shown(&list(&early, event, "prediction=away").await).len(), 0);
        for (user, expected) in [(&early, of_early), (&late, of_late), (&never, of_never)] {
            for query in ["", "&prediction=home"] {
                let one = list(&early, event, &format!("user_id={}{query}", user.id)).await;
                assert_eq!(shown(&one), std::slice::from_ref(&expected));
            }
            assert_eq!(shown(&list(&early, event, &format!("user_id={}&prediction=away", user.id)).await).len(), 0);
        }
    })
    .await;
}

#[tokio::test]
async fn user_filter_agrees_with_the_full_list() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (ada, ben, cleo) = (app.user().await, app.user().await, app.user().await);
        room(app, event, &[&ada, &ben]).await;
        let mut made = Vec::new();
        for user in [&ada, &ben, &cleo] {
            let body = json!({"event_id": event, "prediction": "home"});
            made.push(predict(user, body).await.expect(201)["data"]["id"].as_i64().expect("an id"));
        }
        let of = |user: &TestUser<'_>| format!("user_id={}", user.id);
        assert_eq!(ids(&list(&ada, event, &of(&ben)).await), [made[1]]);
        assert_eq!(ids(&room_list(&ada, &of(&ben)).await), [made[1]]);
        assert_eq!(ids(&room_list(&ada, &of(&cleo)).await), [0; 0], "not a member of the room");
        assert_eq!(room_list(&ada, &of(&cleo)).await["meta"]["total_predictions"], 2);
        // Uses the cursor of another list, for users before and after it.
        let first = list(&ada, event, "per_page=1").await["meta"]["next_cursor"].as_str().expect("a cursor").to_owned();
        assert_eq!(ids(&list(&ada, event, &format!("{}&cursor={first}", of(&ada))).await), [0; 0]);
        assert_eq!(ids(&list(&ada, event, &format!("{}&cursor={first}", of(&ben))).await), [made[1]]);
        ada.post(&format!("/api/auth/blocks/{}", ben.id), json!({})).await.expect(200);
        assert_eq!(ids(&list(&ada, event, &of(&ben)).await), [0; 0], "blocked by the viewer");
        assert_eq!(ids(&list(&ben, event, &of(&ada)).await), [made[0]]);
        app.published().await;
    })
    .await;
}

#[tokio::test]
async fn summary_follows_latest_predictions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (ada, ben) = (app.user().await, app.user().await);
        let meta = async || {
            let meta = list(&ada, event, "").await["meta"].clone();
            json!([meta["total_predictions"], meta["prediction_distribution"], meta["average_confidence"]])
        };
        assert_eq!(meta().await, json!([0, {"home": 0, "draw": 0, "away": 0}, 0.0]));
        for (user, pick, confidence, expected) in [
            (&ada, "home", 100, json!([1, {"home": 1, "draw": 0, "away": 0}, 100.0])),
            (&ben, "draw", 25, json!([2, {"home": 1, "draw": 1, "away": 0}, 62.5])),
            (&ada, "away", 50, json!([2, {"home": 0, "draw": 1, "away": 1}, 37.5])),
            (&ben, "draw", 0, json!([2, {"home": 0, "draw": 1, "away": 1}, 25.0])),
        ] {
            let response =
                predict(user, json!({"event_id": event, "prediction": pick, "confidence": confidence})).await;
            assert!(response.status.is_success());
            assert_eq!(meta().await, expected);
        }
    })
    .await;
}

/// Checks how many of two predictions their author and a stranger see in each state of the match.
async fn check_visibility(reveal: &str, states: &[(&str, &str, [usize; 2])]) {
    TestApp::run_with(&[("MATCHDAY_PREDICTIONS__REVEAL", reveal)], async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (ada, ben, stranger) = (app.user().await, app.user().await, app.user().await);
        room(app, event, &[&ada, &ben]).await;
        for user in [&ada, &ben] {
            predict(user, json!({"event_id": event, "prediction": "home"})).await.expect(201);
        }
        for &(start, status, expected) in states {
            sqlx::query(
                "update events set start_time = statement_timestamp() + $1::interval, status = $2, home_score = 1, away_score = 0
                 where id = $3",
            )
            .bind(start)
            .bind(status)
            .bind(event)
            .execute(&app.app.core.db)
            .await
            .expect("moved");
            for (user, expected) in [&ada, &stranger].into_iter().zip(expected) {
                let (of_match, of_room) = (list(user, event, "").await, room_list(user, "").await);
                assert_eq!(ids(&of_match).len(), expected, "{status}, start in {start}");
                assert_eq!(ids(&of_match), ids(&of_room));
                for list in [&of_match, &of_room] {
                    assert_eq!(list["meta"]["total_predictions"], 2);
                }
                // A filter never shows more than the list does.
                let other = list(user, event, &format!("user_id={}", ben.id)).await;
                assert_eq!(ids(&other).len(), usize::from(expected == 2));
                let own = list(user, event, &format!("user_id={}", user.id)).await;
                assert_eq!(ids(&own).len(), usize::from(user.id == ada.id));
                assert_eq!(ids(&list(user, event, "prediction=away").await), [0; 0]);
            }
        }
    })
    .await;
}

#[tokio::test]
async fn all_predictions_are_visible_with_reveal_always() {
    check_visibility("always", &[("1 hour", "scheduled", [2, 2]), ("1 hour", "postponed", [2, 2])]).await;
}

#[tokio::test]
async fn only_own_predictions_are_visible_before_start() {
    let states = [
        ("1 hour", "scheduled", [1, 0]),
        ("1 hour", "postponed", [1, 0]),
        ("-1 hour", "postponed", [1, 0]),
        ("0 seconds", "scheduled", [2, 2]),
        ("1 hour", "live", [2, 2]),
        ("-1 hour", "finished", [2, 2]),
        ("1 hour", "cancelled", [2, 2]),
    ];
    check_visibility("after_start", &states).await;
}
