//! Tests of a user's own predictions: the list, the preview, the explanation and the calibration.

use serde_json::{Value, json};
use time::{OffsetDateTime, format_description::well_known::Rfc3339};

use super::{FAR, far, ids, lists::start_at_last_revision, predict};
use crate::testing::{Answer, TestApp, TestUser};

async fn own(user: &TestUser<'_>, query: &str) -> Value {
    user.get(&format!("/api/auth/predictions?{query}")).await.expect(200)
}

async fn explanation(user: &TestUser<'_>, id: i64) -> Value {
    user.get(&format!("/api/auth/predictions/{id}/explanation")).await.expect(200)["data"].clone()
}

async fn preview(user: &TestUser<'_>, event: i64, query: &str) -> Answer {
    user.get(&format!("/api/auth/events/{event}/points-preview?{query}")).await
}

async fn calibration(user: &TestUser<'_>) -> Value {
    user.get("/api/auth/me/calibration").await.expect(200)["data"].clone()
}

/// Submits a prediction and returns its id.
async fn submit(user: &TestUser<'_>, body: Value) -> i64 {
    let response = predict(user, body).await;
    assert!(response.status.is_success());
    let status = response.status.as_u16();
    response.expect(status)["data"]["id"].as_i64().expect("an id")
}

#[tokio::test]
async fn own_prediction_includes_its_match() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        assert_eq!(own(&user, "").await, json!({"data": [], "meta": {"next_cursor": null}}));
        let score = json!({"home": 2, "away": 1});
        let body = json!({"event_id": event, "prediction": "home", "score_prediction": score, "confidence": 75});
        let saved = predict(&user, body).await.expect(201)["data"].clone();
        let list = own(&user, "").await;
        let updated_at = list["data"][0]["updated_at"].clone();
        let start_time = list["data"][0]["event"]["start_time"].clone();
        for moment in [&updated_at, &start_time] {
            OffsetDateTime::parse(moment.as_str().expect("a moment"), &Rfc3339).expect("a moment");
        }
        let mut expected = saved.clone();
        // Receipts are in no list.
        expected.as_object_mut().expect("an object").remove("receipt").expect("a receipt");
        expected["updated_at"] = updated_at;
        expected["event"] = json!({
            "id": event, "home_team": format!("Rovers {}", fixtures.tag), "away_team": format!("City {}", fixtures.tag),
            "start_time": start_time, "status": "scheduled", "home_score": null, "away_score": null,
        });
        assert_eq!(list, json!({"data": [expected], "meta": {"next_cursor": null}}));
        far(&fixtures).at("finished", 2, 1).put().await;
        let settled = own(&user, "").await["data"][0].clone();
        assert_eq!(settled["points_earned"], 59);
        let event = &settled["event"];
        assert_eq!(
            (&event["status"], &event["home_score"], &event["away_score"]),
            (&json!("finished"), &json!(2), &json!(1))
        );
        far(&fixtures).being("abandoned").put().await;
        assert_eq!(own(&user, "").await["data"][0]["points_earned"], Value::Null);
    })
    .await;
}

#[tokio::test]
async fn own_predictions_are_paged_and_filtered_by_state() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let (user, other) = (app.user().await, app.user().await);
        let mut made = Vec::new();
        for (key, status) in [
            ("a", "scheduled"),
            ("b", "finished"),
            ("c", "live"),
            ("d", "cancelled"),
            ("e", "awarded"),
            ("f", "finished"),
        ] {
            let event = fixtures.a_match(key).starting_in(FAR).put().await;
            made.push(submit(&user, json!({"event_id": event, "prediction": "home"})).await);
            submit(&other, json!({"event_id": event, "prediction": "away"})).await;
            let built = fixtures.a_match(key).starting_in(FAR);
            match status {
                "finished" | "awarded" => built.at(status, 1, 0).put().await,
                _ => built.being(status).put().await,
            };
        }
        // Scheduled, but its start time has passed.
        let begun = fixtures.a_match("g").starting_in(FAR).put().await;
        made.push(submit(&user, json!({"event_id": begun, "prediction": "home"})).await);
        sqlx::query("update events set start_time = statement_timestamp() where id = $1")
            .bind(begun)
            .execute(&app.app.core.db)
            .await
            .expect("moved");
        let newest_first: Vec<i64> = made.iter().rev().copied().collect();
        assert_eq!(ids(&own(&user, "").await), newest_first);
        assert_eq!(ids(&own(&user, "status=open").await), [made[0]]);
        assert_eq!(ids(&own(&user, "status=settled").await), [made[5], made[1]]);
        let (mut seen, mut cursor) = (Vec::new(), String::new());
        for size in [3, 3, 1] {
            let part = own(&user, &format!("per_page=3{cursor}")).await;
            assert_eq!(ids(&part).len(), size);
            seen.extend(ids(&part));
            cursor = part["meta"]["next_cursor"].as_str().map(|next| format!("&cursor={next}")).unwrap_or_default();
        }
        assert_eq!((seen, cursor.as_str()), (newest_first, ""));
        let first = own(&user, "status=settled&per_page=1").await;
        let next = first["meta"]["next_cursor"].as_str().expect("a cursor");
        let second = own(&user, &format!("status=settled&per_page=1&cursor={next}")).await;
        assert_eq!((ids(&second), &second["meta"]["next_cursor"]), (vec![made[1]], &Value::Null));
        for (query, field) in [
            ("status=lost", "status"),
            ("status=", "status"),
            ("status=Open", "status"),
            ("per_page=0", "per_page"),
            ("cursor=1", "cursor"),
        ] {
            assert_eq!(user.get(&format!("/api/auth/predictions?{query}")).await.invalid_fields(), [field], "{query}");
        }
        let response = user.get("/api/auth/predictions?status=x&per_page=x&cursor=x").await;
        assert_eq!(response.invalid_fields(), ["cursor", "per_page", "status"]);
    })
    .await;
}

#[tokio::test]
async fn own_list_shows_the_counting_revision() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        submit(&user, json!({"event_id": event, "prediction": "home", "confidence": 50})).await;
        let before = own(&user, "").await["data"][0].clone();
        submit(&user, json!({"event_id": event, "prediction": "away", "confidence": 100})).await;
        start_at_last_revision(app, event, &user).await;
        let after = own(&user, "status=settled").await["data"][0].clone();
        for field in ["id", "prediction", "confidence", "created_at", "updated_at"] {
            assert_eq!(after[field], before[field], "{field}");
        }
        assert_eq!(after["points_earned"], 35);
    })
    .await;
}

#[tokio::test]
async fn preview_lists_points_of_each_hit() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let data = |right: i32, goal_difference: Value, exact_score: Value, wrong: i32| {
            json!({"data": {"rules_version": 1, "rule_set_id": 1, "multiplier": 1, "right": right, "margin": null,
                            "goal_difference": goal_difference, "exact_score": exact_score, "wrong": wrong, "advances": null}})
        };
        for (query, expected) in [
            ("prediction=home", data(20, json!(null), json!(null), 0)),
            ("prediction=away&confidence=100", data(40, json!(null), json!(null), -20)),
            ("prediction=home&home=2&away=1&confidence=75", data(39, json!(49), json!(59), -11)),
            ("prediction=away&home=0&away=99&confidence=0", data(20, json!(30), json!(40), 0)),
            ("prediction=draw&home=1&away=1&confidence=50", data(35, json!(null), json!(55), -5)),
        ] {
            assert_eq!(preview(&user, event, query).await.expect(200), expected, "{query}");
        }
        // The actual points equal the preview.
        let body = json!({"event_id": event, "prediction": "home", "score_prediction": {"home": 2, "away": 1}, "confidence": 75});
        submit(&user, body).await;
        for ((home, away), field) in
            [((2, 1), "exact_score"), ((1, 0), "goal_difference"), ((4, 0), "right"), ((0, 0), "wrong")]
        {
            far(&fixtures).at("finished", home, away).put().await;
            let previewed =
                preview(&user, event, "prediction=home&home=2&away=1&confidence=75").await.expect(200)["data"][field].clone();
            assert_eq!(own(&user, "").await["data"][0]["points_earned"], previewed, "{field}");
        }
    })
    .await;
}

#[tokio::test]
async fn invalid_preview_parameters_are_reported() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let cases: [(&str, &[&str]); 16] = [
            ("", &["prediction"]),
            ("prediction=", &["prediction"]),
            ("prediction=Home", &["prediction"]),
            ("prediction=home&home=1", &["away"]),
            ("prediction=home&away=0", &["home"]),
            ("home=1", &["away", "prediction"]),
            ("prediction=home&home=x&away=0", &["home"]),
            ("prediction=home&home=100&away=0", &["home"]),
            ("prediction=home&home=1&away=-1", &["away"]),
            ("prediction=home&home=&away=", &["away", "home"]),
            ("prediction=home&home=0&away=0", &["away", "home"]),
            ("prediction=draw&home=1&away=0", &["away", "home"]),
            ("prediction=away&home=1&away=0&confidence=101", &["away", "confidence", "home"]),
            ("prediction=home&confidence=-1", &["confidence"]),
            ("prediction=home&confidence=1.5", &["confidence"]),
            ("prediction=home&confidence=", &["confidence"]),
        ];
        for (query, fields) in cases {
            assert_eq!(preview(&user, event, query).await.invalid_fields(), fields, "{query}");
        }
        assert_eq!(preview(&user, 2_147_483_647, "prediction=home").await.expect(404)["code"], "not_found");
        for unknown in ["0", "x"] {
            user.get(&format!("/api/auth/events/{unknown}/points-preview?prediction=home")).await.expect(404);
        }
    })
    .await;
}

#[tokio::test]
async fn explanation_changes_with_match_state() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let score = json!({"home": 2, "away": 1});
        let body = json!({"event_id": event, "prediction": "home", "score_prediction": score, "confidence": 75});
        let id = submit(&user, body).await;
        let expected = |state: &str, result: Value, points: Value, parts: Value| {
            json!({"id": id, "event_id": event, "prediction": "home", "score_prediction": score, "confidence": 75,
                   "advances": null, "joker": false, "rule_set_id": 1, "state": state, "result": result, "points_earned": points, "rules_version": 1, "parts": parts})
        };
        let nothing = |state: &str| expected(state, json!(null), json!(null), json!([]));
        assert_eq!(explanation(&user, id).await, nothing("open"));
        far(&fixtures).at("live", 2, 1).put().await;
        assert_eq!(explanation(&user, id).await, nothing("open"));
        far(&fixtures).at("finished", 2, 1).put().await;
        let parts = json!([
            {"part": "outcome", "points": 20, "reason": "The home team won, as you predicted."},
            {"part": "goal_difference", "points": 10, "reason": "The winning margin was 1, as you predicted."},
            {"part": "exact_score", "points": 10, "reason": "The score was 2–1, as you predicted."},
            {"part": "confidence", "points": 19, "reason": "You were 75% sure, and right."},
        ]);
        assert_eq!(explanation(&user, id).await, expected("settled", json!({"home": 2, "away": 1, "advanced": null}), json!(59), parts));
        far(&fixtures).at("finished", 0, 0).put().await;
        let corrected = explanation(&user, id).await;
        assert_eq!((&corrected["points_earned"], &corrected["parts"][3]["points"]), (&json!(-11), &json!(-11)));
        for status in ["abandoned", "cancelled"] {
            far(&fixtures).being(status).put().await;
            assert_eq!(explanation(&user, id).await, nothing("void"), "{status}");
        }
        far(&fixtures).at("awarded", 3, 0).put().await;
        assert_eq!(explanation(&user, id).await, nothing("void"));
    })
    .await;
}

#[tokio::test]
async fn only_own_predictions_are_explained() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (user, other) = (app.user().await, app.user().await);
        let id = submit(&user, json!({"event_id": event, "prediction": "home"})).await;
        explanation(&user, id).await;
        for (user, id) in [
            (&other, id.to_string()),
            (&user, (id + 1_000).to_string()),
            (&user, "0".to_owned()),
            (&user, "x".to_owned()),
        ] {
            let response = user.get(&format!("/api/auth/predictions/{id}/explanation")).await;
            assert_eq!(response.expect(404)["code"], "not_found", "{id}");
        }
    })
    .await;
}

#[tokio::test]
async fn late_revision_is_explained_by_the_previous_one() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (user, late) = (app.user().await, app.user().await);
        let id = submit(&user, json!({"event_id": event, "prediction": "home", "confidence": 50})).await;
        submit(&user, json!({"event_id": event, "prediction": "away", "confidence": 100})).await;
        let late_id = submit(&late, json!({"event_id": event, "prediction": "home", "confidence": 100})).await;
        start_at_last_revision(app, event, &user).await;
        let counted = explanation(&user, id).await;
        assert_eq!(
            (&counted["state"], &counted["prediction"], &counted["confidence"], &counted["points_earned"]),
            (&json!("settled"), &json!("home"), &json!(50), &json!(35))
        );
        assert_eq!(
            explanation(&late, late_id).await,
            json!({"id": late_id, "event_id": event, "prediction": "home", "score_prediction": null, "confidence": 100,
                   "advances": null, "joker": false, "rule_set_id": 1, "state": "late",
                   "result": {"home": 2, "away": 1, "advanced": null}, "points_earned": null, "rules_version": 1,
                   "parts": []})
        );
        sqlx::query("update events set status = 'live' where id = $1")
            .bind(event)
            .execute(&app.app.core.db)
            .await
            .expect("live");
        assert_eq!(explanation(&user, id).await["state"], "open");
        assert_eq!(explanation(&late, late_id).await["state"], "late", "a late prediction never counts");
    })
    .await;
}

#[tokio::test]
async fn calibration_compares_confidence_with_results() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let (user, other) = (app.user().await, app.user().await);
        let empty = calibration(&user).await;
        assert_eq!((&empty["settled"], &empty["without_stake"]), (&json!(0), &json!(0)));
        assert_eq!(empty["bins"].as_array().map(Vec::len), Some(10));
        let nothing = |from: i32| {
            json!({"from": from, "to": from + 9, "count": 0, "right": 0, "average_confidence": null, "hit_rate": null})
        };
        assert_eq!((&empty["bins"][0], &empty["bins"][9]), (&nothing(1), &nothing(91)));
        for (key, pick, confidence, status) in [
            ("a", "home", 72, "finished"),
            ("b", "away", 75, "finished"),
            ("c", "home", 80, "finished"),
            ("d", "home", 80, "finished"),
            ("e", "draw", 0, "finished"),
            ("f", "home", 100, "finished"),
            // These do not count: no result, or void.
            ("g", "home", 50, "scheduled"),
            ("h", "home", 50, "live"),
            ("i", "home", 50, "awarded"),
            ("j", "home", 50, "abandoned"),
        ] {
            let event = fixtures.a_match(key).starting_in(FAR).put().await;
            submit(&user, json!({"event_id": event, "prediction": pick, "confidence": confidence})).await;
            submit(&other, json!({"event_id": event, "prediction": "home", "confidence": 1})).await;
            let built = fixtures.a_match(key).starting_in(FAR);
            match status {
                "finished" | "awarded" => built.at(status, 2, 1).put().await,
                _ => built.being(status).put().await,
            };
        }
        // A late prediction does not count either. Of two revisions, the one before the start counts.
        let event = fixtures.a_match("k").starting_in(FAR).put().await;
        submit(&user, json!({"event_id": event, "prediction": "home", "confidence": 99})).await;
        start_at_last_revision(app, event, &user).await;
        let event = fixtures.a_match("l").starting_in(FAR).put().await;
        submit(&user, json!({"event_id": event, "prediction": "away", "confidence": 1})).await;
        submit(&user, json!({"event_id": event, "prediction": "home", "confidence": 99})).await;
        start_at_last_revision(app, event, &user).await;

        let shown = calibration(&user).await;
        assert_eq!((&shown["settled"], &shown["without_stake"]), (&json!(7), &json!(1)));
        let bin = |from: i32, count: i32, right: i32, average: f64, rate: f64| {
            json!({"from": from, "to": from + 9, "count": count, "right": right, "average_confidence": average, "hit_rate": rate})
        };
        let mut expected: Vec<Value> = (1..=91).step_by(10).map(nothing).collect();
        expected[0] = bin(1, 1, 0, 1.0, 0.0);
        expected[7] = bin(71, 4, 3, 76.75, 0.75);
        expected[9] = bin(91, 1, 1, 100.0, 1.0);
        assert_eq!(shown["bins"], json!(expected));
    })
    .await;
}
