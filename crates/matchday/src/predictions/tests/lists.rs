//! What lists show of whom, and when.

use platform::clock::Clock as _;
use serde_json::{Value, json};

use super::{far, ids, list, predict};
use crate::testing::{TestApp, TestUser};

/// Says that a match began at the moment of this user's last word, and ended 2:1: the word came too late.
pub(super) async fn begin_at_last_word(app: &TestApp, event: i64, user: &TestUser<'_>) {
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

/// A room for a match with these members; no homeserver is needed to look at it.
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
async fn a_word_that_came_too_late_leaves_the_one_before_it() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (early, late, never) = (app.user().await, app.user().await, app.user().await);
        let score = json!({"home": 2, "away": 1});
        let say = async |user: &TestUser<'_>, pick: &str, score: Value, confidence: i32| {
            let body =
                json!({"event_id": event, "prediction": pick, "score_prediction": score, "confidence": confidence});
            let answer = predict(user, body).await;
            assert!(answer.status.is_success());
        };
        say(&early, "home", json!(null), 0).await;
        for (pick, score, confidence) in
            [("draw", json!(null), 10), ("home", score.clone(), 50), ("away", json!(null), 100)]
        {
            say(&late, pick, score, confidence).await;
        }
        begin_at_last_word(app, event, &late).await;
        // As if a match had been taken back, predicted, and begun again.
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
        assert_eq!(shown(&list(&early, event, "prediction=home").await).len(), 3, "the filter goes by what is shown");
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
async fn one_users_prediction_is_found_as_the_whole_list_would_show_it() {
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
        assert_eq!(ids(&room_list(&ada, &of(&cleo)).await), [0; 0], "who is not in the room");
        assert_eq!(room_list(&ada, &of(&cleo)).await["meta"]["total_predictions"], 2);
        // With the cursor of another list: before it, and past it.
        let first = list(&ada, event, "per_page=1").await["meta"]["next_cursor"].as_str().expect("a cursor").to_owned();
        assert_eq!(ids(&list(&ada, event, &format!("{}&cursor={first}", of(&ada))).await), [0; 0]);
        assert_eq!(ids(&list(&ada, event, &format!("{}&cursor={first}", of(&ben))).await), [made[1]]);
        ada.post(&format!("/api/auth/blocks/{}", ben.id), json!({})).await.expect(200);
        assert_eq!(ids(&list(&ada, event, &of(&ben)).await), [0; 0], "whom she blocked");
        assert_eq!(ids(&list(&ben, event, &of(&ada)).await), [made[0]]);
        app.told().await;
    })
    .await;
}

#[tokio::test]
async fn what_is_said_of_a_whole_match_follows_the_last_word_of_everybody() {
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
            let answer = predict(user, json!({"event_id": event, "prediction": pick, "confidence": confidence})).await;
            assert!(answer.status.is_success());
            assert_eq!(meta().await, expected);
        }
    })
    .await;
}

/// Holds what a user who predicted, and one who did not, see of two predictions in each state of their match.
async fn check_what_is_seen(reveal: &str, states: &[(&str, &str, [usize; 2])]) {
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
                assert_eq!(ids(&of_match).len(), expected, "{status} and to start in {start}");
                assert_eq!(ids(&of_match), ids(&of_room));
                for list in [&of_match, &of_room] {
                    assert_eq!(list["meta"]["total_predictions"], 2);
                }
                // A filter shows no more than the list does.
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
async fn everybody_sees_everything_where_nothing_is_hidden() {
    check_what_is_seen("always", &[("1 hour", "scheduled", [2, 2]), ("1 hour", "postponed", [2, 2])]).await;
}

#[tokio::test]
async fn until_the_start_only_ones_own_is_seen_where_others_are_hidden() {
    let states = [
        ("1 hour", "scheduled", [1, 0]),
        ("1 hour", "postponed", [1, 0]),
        ("-1 hour", "postponed", [1, 0]),
        ("0 seconds", "scheduled", [2, 2]),
        ("1 hour", "live", [2, 2]),
        ("-1 hour", "finished", [2, 2]),
        ("1 hour", "cancelled", [2, 2]),
    ];
    check_what_is_seen("after_start", &states).await;
}
