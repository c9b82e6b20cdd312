mod document;
mod lists;
mod own;
mod partitions;
mod plans;
mod points;
mod rules;

use std::collections::BTreeMap;

use futures_util::future::join_all;
use http::Method;
use scoring::{Confidence, Forecast, Pick};
use serde_json::{Value, json};
use time::{Duration, OffsetDateTime, format_description::well_known::Rfc3339};
use web::ids::MatchId;

use super::service::Predictions;
use crate::{
    catalogue::matches::gates,
    testing::{Answer, MatchBuilder, TestApp, TestFixtures, TestUser, eventually},
};

/// The database clock decides whether a match is open, and no test moves it. A match this far ahead has not started.
const FAR: Duration = Duration::days(365 * 75);

fn far<'f, 'a>(fixtures: &'f TestFixtures<'a>) -> MatchBuilder<'f, 'a> {
    fixtures.a_match("m").starting_in(FAR)
}

async fn predict(user: &TestUser<'_>, body: Value) -> Answer {
    user.post("/api/auth/predictions", body).await
}

async fn list(user: &TestUser<'_>, event: i64, query: &str) -> Value {
    user.get(&format!("/api/auth/events/{event}/predictions?{query}")).await.expect(200)
}

fn ids(list: &Value) -> Vec<i64> {
    list["data"].as_array().expect("a list").iter().map(|item| item["id"].as_i64().expect("an id")).collect()
}

/// Returns the number of stored predictions and the number in the tally.
async fn counts(app: &TestApp, event: i64) -> (i64, i64) {
    sqlx::query_as(
        "select (select count(*) from predictions where event_id = $1),
                (select coalesce(sum(home + draw + away), 0)::bigint from event_tallies where event_id = $1)",
    )
    .bind(event)
    .fetch_one(&app.app.core.db)
    .await
    .expect("counted")
}

/// Checks that the tallies of every match equal its predictions.
async fn check_tallies(app: &TestApp) {
    type Tally = (i64, i64, i64, i64, i64);
    let tallied: Vec<Tally> = sqlx::query_as(
        "select event_id, sum(home)::bigint, sum(draw)::bigint, sum(away)::bigint, sum(confidence)::bigint
         from event_tallies group by event_id order by event_id",
    )
    .fetch_all(&app.app.core.db)
    .await
    .expect("the tallies");
    let counted: Vec<Tally> = sqlx::query_as(
        "select event_id, count(*) filter (where prediction = 'home'), count(*) filter (where prediction = 'draw'),
                count(*) filter (where prediction = 'away'), sum(confidence)
         from predictions group by event_id order by event_id",
    )
    .fetch_all(&app.app.core.db)
    .await
    .expect("the predictions");
    assert_eq!(tallied, counted);
}

async fn points(user: &TestUser<'_>, event: i64) -> Vec<Value> {
    let list = list(user, event, "").await;
    list["data"].as_array().expect("a list").iter().map(|item| item["points_earned"].clone()).collect()
}

#[tokio::test]
async fn prediction_response_has_all_fields() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let score = json!({"home": 2, "away": 1});
        let body = json!({"event_id": event, "prediction": "home", "score_prediction": score, "confidence": 75});
        let saved = predict(&user, body).await.expect(201);
        let (id, created_at) = (saved["data"]["id"].clone(), saved["data"]["created_at"].clone());
        assert!(id.as_i64().is_some_and(|id| id >= 1), "{saved}");
        OffsetDateTime::parse(created_at.as_str().expect("a moment"), &Rfc3339).expect("a moment");
        assert_eq!(
            saved,
            json!({"message": "Prediction saved.", "data": {
                "id": id, "user_id": user.id, "event_id": event, "prediction": "home", "score_prediction": score,
                "confidence": 75, "advances": null, "joker": false, "points_earned": null, "created_at": created_at,
                "receipt": saved["data"]["receipt"],
            }})
        );
        let me = user.get("/api/auth/me").await.expect(200)["data"].clone();
        assert_eq!(
            list(&user, event, "").await,
            json!({
                "data": [{
                    "id": id, "prediction": "home",
                    "user": {"id": user.id, "username": me["username"], "name": null},
                    "score_prediction": score, "confidence": 75, "advances": null, "joker": false, "points_earned": null,
                    "created_at": created_at,
                }],
                "meta": {
                    "total_predictions": 1, "prediction_distribution": {"home": 1, "draw": 0, "away": 0},
                    "average_confidence": 75.0, "next_cursor": null,
                },
            })
        );
    })
    .await;
}

#[tokio::test]
async fn replaced_prediction_keeps_its_id() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let body = json!({"event_id": event, "prediction": "away", "score_prediction": {"home": 0, "away": 3}, "confidence": 90});
        let first = predict(&user, body).await.expect(201)["data"].clone();
        let scores = [("draw", json!(null)), ("home", json!({"home": 99, "away": 0})), ("draw", json!({"home": 0, "away": 0}))];
        for (revision, (pick, score)) in (2..).zip(scores) {
            let body = json!({"event_id": event, "prediction": pick, "score_prediction": score});
            let second = predict(&user, body).await.expect(200);
            assert_eq!(second["message"], "Prediction replaced.");
            assert_eq!(second["data"]["receipt"]["revision"], revision);
            let mut expected = first.clone();
            expected["receipt"] = second["data"]["receipt"].clone();
            (expected["prediction"], expected["score_prediction"], expected["confidence"]) = (json!(pick), score, json!(0));
            assert_eq!(second["data"], expected);
        }
        let body = json!({"event_id": event, "prediction": "home", "confidence": null});
        assert_eq!(predict(&user, body).await.expect(200)["data"]["score_prediction"], Value::Null);
        assert_eq!(counts(app, event).await, (1, 1));
    })
    .await;
}

#[tokio::test]
async fn prediction_has_at_most_fifty_revisions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (user, other) = (app.user().await, app.user().await);
        let save = async |user: &TestUser<'_>, key: &str, pick: &str| {
            let body = json!({"event_id": event, "prediction": pick}).to_string();
            user.send_with(Method::POST, "/api/auth/predictions", &[("idempotency-key", key)], Some(body)).await
        };
        save(&user, "1", "home").await.expect(201);
        save(&other, "1", "home").await.expect(201);
        for revision in 2..=50 {
            save(&user, &revision.to_string(), if revision % 2 == 0 { "draw" } else { "home" }).await.expect(200);
        }
        let stored = async || -> (i32, String, i64) {
            let statement = "select revision, prediction, (select count(*) from prediction_revisions r
                                                           where r.user_id = p.user_id)
                             from predictions p where user_id = $1";
            sqlx::query_as(statement).bind(user.id).fetch_one(&app.app.core.db).await.expect("read")
        };
        let full = (50, "draw".to_owned(), 49);
        assert_eq!(stored().await, full);
        // In one batch with a prediction that is saved.
        let (refused, saved) = tokio::join!(save(&user, "51", "away"), save(&other, "2", "away"));
        saved.expect(200);
        let refused = refused.expect(409);
        assert_eq!(refused["code"], "too_many_revisions");
        assert_eq!(save(&user, "51", "away").await.expect(409), refused);
        assert_eq!(save(&user, "50", "draw").await.expect(200)["data"]["prediction"], "draw", "a repeated request");
        assert_eq!(stored().await, full);
        check_tallies(app).await;
    })
    .await;
}

#[tokio::test]
async fn predictions_are_separate_per_match_and_user() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let other = fixtures.a_match("n").between("albion", "wanderers").starting_in(FAR).put().await;
        let (ada, ben) = (app.user().await, app.user().await);
        for (user, event) in [(&ada, event), (&ben, event), (&ada, other)] {
            predict(user, json!({"event_id": event, "prediction": "home"})).await.expect(201);
        }
        assert_eq!((counts(app, event).await, counts(app, other).await), ((2, 2), (1, 1)));
    })
    .await;
}

#[tokio::test]
async fn invalid_prediction_fields_are_reported() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let with = |field: &str, value: Value| {
            let mut body = json!({"event_id": event, "prediction": "home", "score_prediction": {"home": 1, "away": 0}, "confidence": 1});
            body[field] = value;
            body
        };
        let faulty: [(&str, &[Value]); 4] = [
            ("event_id", &[json!(null), json!(0), json!(-1), json!(1.5), json!("1"), json!([]), json!(u64::MAX)]),
            ("prediction", &[json!(null), json!("Home"), json!(""), json!("x"), json!(1), json!(true)]),
            (
                "score_prediction",
                &[
                    json!("1:0"),
                    json!([1, 0]),
                    json!({}),
                    json!({"home": 1}),
                    json!({"home": 1, "away": null}),
                    json!({"home": "1", "away": 0}),
                    json!({"home": 1, "away": -1}),
                    json!({"home": 65_537, "away": 0}),
                    // These scores contradict the pick.
                    json!({"home": 0, "away": 0}),
                    json!({"home": 0, "away": 1}),
                ],
            ),
            ("confidence", &[json!(-1), json!(101), json!(0.5), json!("50"), json!({}), json!(i64::MAX)]),
        ];
        for (field, values) in faulty {
            for value in values {
                let response = predict(&user, with(field, value.clone())).await;
                assert_eq!(response.invalid_fields(), [field], "{value}");
            }
        }
        assert_eq!(predict(&user, json!({})).await.invalid_fields(), ["event_id", "prediction"]);
        let all = json!({"event_id": 0, "prediction": "draw", "score_prediction": {"home": 1, "away": 0}, "confidence": 101});
        let fields = predict(&user, all).await.invalid_fields();
        assert_eq!(fields, ["confidence", "event_id", "score_prediction"]);
        assert_eq!(counts(app, event).await, (0, 0), "nothing was written");
    })
    .await;
}

#[tokio::test]
async fn unknown_match_is_404() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for unknown in [2_147_483_647, i64::MAX] {
            let body = json!({"event_id": unknown, "prediction": "home"});
            assert_eq!(predict(&user, body).await.expect(404)["code"], "not_found");
        }
        for unknown in ["2147483647", "0", "x", "-1"] {
            user.get(&format!("/api/auth/events/{unknown}/predictions")).await.expect(404);
        }
    })
    .await;
}

#[tokio::test]
async fn refused_prediction_names_status_of_its_match() {
    TestApp::run(async |app| {
        let user = app.user().await;
        for (status, code) in [
            ("live", "event_started"),
            ("suspended", "event_started"),
            ("postponed", "event_postponed"),
            ("cancelled", "event_cancelled"),
            ("finished", "event_finished"),
            ("abandoned", "event_finished"),
            ("awarded", "event_finished"),
        ] {
            let fixtures = app.fixtures();
            let event = far(&fixtures).put().await;
            let body = json!({"event_id": event, "prediction": "home", "confidence": 10});
            predict(&user, body.clone()).await.expect(201);
            let scored = ["finished", "awarded"].contains(&status);
            if scored { far(&fixtures).at(status, 1, 0) } else { far(&fixtures).being(status) }.put().await;
            let late = json!({"event_id": event, "prediction": "away"});
            for user in [&user, &app.user().await] {
                let refusal = predict(user, late.clone()).await.expect(400);
                assert_eq!(refusal["code"], code, "{status}");
                let message = refusal["message"].as_str().expect("a message");
                assert!(message.contains("Predictions are closed"), "{message}");
            }
            let listed = list(&user, event, "").await["data"][0].clone();
            assert_eq!(
                (&listed["prediction"], &listed["confidence"]),
                (&json!("home"), &json!(10)),
                "the prediction is unchanged"
            );
            assert_eq!(counts(app, event).await, (1, 1));
            // The match accepts predictions again once it is rescheduled.
            far(&fixtures).put().await;
            predict(&user, body).await.expect(200);
        }
    })
    .await;
}

#[tokio::test]
async fn match_is_open_until_start_by_database_clock() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let body = json!({"event_id": event, "prediction": "home"});
        // By the test clock, all these start times have passed.
        app.clock.advance(Duration::days(365 * 100));
        for (start, status) in
            [("1 hour", 201), ("1 minute", 200), ("0 seconds", 400), ("-1 second", 400), ("-20 years", 400)]
        {
            sqlx::query("update events set start_time = now() + $1::interval where id = $2")
                .bind(start)
                .bind(event)
                .execute(&app.app.core.db)
                .await
                .expect("moved");
            let user = app.login(user.id).await;
            let response = predict(&user, body.clone()).await.expect(status);
            assert_eq!(response.get("code"), (status == 400).then(|| json!("event_started")).as_ref(), "{start}");
        }
    })
    .await;
}

#[tokio::test]
async fn prediction_waits_for_a_start_being_written() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
        gates::close(&mut tx, [MatchId(event)].into_iter()).await.expect("closed");
        sqlx::query("update events set status = 'live' where id = $1")
            .bind(event)
            .execute(&mut *tx)
            .await
            .expect("written");
        let late = predict(&user, json!({"event_id": event, "prediction": "home"}));
        let start = async {
            eventually("the prediction waits", async || is_waiting_at_gate(app).await).await;
            tx.commit().await.expect("committed");
        };
        let (response, ()) = tokio::join!(late, start);
        assert_eq!(response.expect(400)["code"], "event_started");
        assert_eq!(counts(app, event).await, (0, 0));
    })
    .await;
}

#[tokio::test]
async fn racing_first_predictions_create_one_prediction() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let racing = (0..24).map(|n| {
            let pick = Pick::ALL[n % 3].name();
            predict(&user, json!({"event_id": event, "prediction": pick, "confidence": n}))
        });
        let responses = join_all(racing).await;
        let created = responses.iter().filter(|response| response.status == 201).count();
        assert_eq!(created, 1);
        let data: Vec<Value> = responses
            .into_iter()
            .map(|response| {
                let status = if response.status == 201 { 201 } else { 200 };
                response.expect(status)["data"].clone()
            })
            .collect();
        assert!(data.iter().all(|item| item["id"] == data[0]["id"] && item["created_at"] == data[0]["created_at"]));
        assert_eq!(counts(app, event).await, (1, 1));
        // The stored prediction is one of the submitted ones, not a mixture.
        let left = list(&user, event, "").await["data"][0].clone();
        assert!(
            data.iter()
                .any(|item| item["prediction"] == left["prediction"] && item["confidence"] == left["confidence"])
        );
    })
    .await;
}

#[tokio::test]
async fn tally_is_exact_under_concurrent_predictions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        // More users than slots, so that some share a slot.
        let mut users = Vec::new();
        for _ in 0..80 {
            users.push(app.user().await);
        }
        let racing = users.iter().flat_map(|user| {
            ["home", "away"].map(|pick| predict(user, json!({"event_id": event, "prediction": pick})))
        });
        let responses = join_all(racing).await;
        let of = |status: u16| responses.iter().filter(|response| response.status == status).count();
        assert_eq!((of(201), of(200)), (80, 80));
        assert_eq!(counts(app, event).await, (80, 80));
        check_tallies(app).await;
        let event = users[0].get(&format!("/api/auth/events/{event}")).await.expect(200)["data"].clone();
        assert_eq!(event["predictions_count"], 80);
    })
    .await;
}

/// Each process has its own batch writers, and one user's predictions may pass through both.
#[tokio::test(flavor = "multi_thread")]
async fn tallies_are_exact_across_two_processes() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let first = far(&fixtures).put().await;
        let second = fixtures.a_match("n").between("albion", "wanderers").starting_in(FAR).put().await;
        let config = crate::testing::test_config(&[("MATCHDAY_MATRIX__HOMESERVER_URL", "")]);
        let random = std::sync::Arc::new(crate::testing::SeededRandom::new(7));
        let core = platform::Core { random, ..app.app.core.clone() };
        let other = Predictions::new(&core, &app.app.matches, &config.predictions);
        let mut users = Vec::new();
        for _ in 0..10 {
            users.push(app.app.accounts.make_without_phone().await.expect("a user"));
        }
        let submissions = (0..600_usize).map(|n| {
            let predictions = if n % 3 == 0 { &other } else { &app.app.predictions };
            let confidence = Confidence::new(i64::try_from(n % 101).expect("small")).expect("a confidence");
            let forecast = Forecast::new(Pick::ALL[n % 7 % 3], None, confidence).expect("a forecast");
            let event = if n % 2 == 0 { first } else { second };
            predictions.save(users[n % 10], MatchId(event), forecast)
        });
        let saved = join_all(submissions).await.into_iter().flatten().count();
        assert!(saved > 100, "{saved}");
        check_tallies(app).await;
        let kept: i64 = sqlx::query_scalar(
            "select sum(revision)::bigint - count(*) - (select count(*) from prediction_revisions) from predictions",
        )
        .fetch_one(&app.app.core.db)
        .await
        .expect("counted");
        assert_eq!(kept, 0, "every replaced revision is kept");
    })
    .await;
}

#[tokio::test]
async fn repeated_prediction_changes_only_its_revision() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let body = json!({"event_id": event, "prediction": "home", "confidence": 10});
        let first = predict(&user, body.clone()).await.expect(201);
        let again = predict(&user, body).await.expect(200);
        let mut expected = first["data"].clone();
        expected["receipt"] = again["data"]["receipt"].clone();
        assert_eq!(again["data"], expected);
        let revision: i32 =
            sqlx::query_scalar("select revision from predictions").fetch_one(&app.app.core.db).await.expect("read");
        assert_eq!((revision, &again["data"]["receipt"]["revision"]), (2, &json!(2)));
    })
    .await;
}

/// A batch inserts pseudonyms, and then locks predictions. Receipts added in the other order could deadlock with it.
#[tokio::test]
async fn added_receipts_lock_pseudonyms_before_predictions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        predict(&user, json!({"event_id": event, "prediction": "home"})).await.expect(201);
        for statement in ["update predictions set salt = null", "delete from pseudonyms"] {
            sqlx::query(statement).execute(app.owner()).await.expect("written");
        }
        let mut batch = platform::database::begin(app.owner()).await.expect("a transaction");
        let pseudonym = "insert into pseudonyms select $1, tournament_id, gen_random_uuid() from events where id = $2";
        sqlx::query(pseudonym).bind(user.id).bind(event).execute(&mut *batch).await.expect("inserted");
        let saving = async {
            eventually("the receipts wait for the pseudonym", async || {
                let waiting = "select exists (select from pg_stat_activity where datname = current_database()
                                                and wait_event_type = 'Lock' and query like '%into pseudonyms%')";
                sqlx::query_scalar::<_, bool>(waiting).fetch_one(&app.app.core.db).await.expect("read")
            })
            .await;
            let prediction = "select user_id from predictions where user_id = $1 for update nowait";
            let locked = sqlx::query(prediction).bind(user.id).fetch_one(&mut *batch).await;
            batch.commit().await.expect("committed");
            locked.expect("the prediction is not locked");
        };
        let (added, ()) = tokio::join!(app.app.predictions.add_receipts(MatchId(event)), saving);
        assert_eq!(added.expect("added"), 1);
    })
    .await;
}

#[tokio::test]
async fn receipts_give_deleted_account_no_pseudonym() {
    TestApp::run(async |app| {
        let event = far(&app.fixtures()).put().await;
        let (user, deleted) = (app.user().await, app.user().await);
        for user in [&user, &deleted] {
            predict(user, json!({"event_id": event, "prediction": "home"})).await.expect(201);
        }
        for statement in ["update predictions set salt = null", "delete from pseudonyms"] {
            sqlx::query(statement).execute(app.owner()).await.expect("written");
        }
        // The account is deleted after the users without receipts were read.
        let delete = "update users set deleted_at = now() where user_id = $1";
        sqlx::query(delete).bind(deleted.id).execute(app.owner()).await.expect("deleted");
        let added = app.app.predictions.add_receipts_of(MatchId(event), &[user.id.0, deleted.id.0]).await;
        assert_eq!(added.expect("added"), 1);
        let users: Vec<i64> =
            sqlx::query_scalar("select user_id from pseudonyms").fetch_all(app.owner()).await.expect("read");
        assert_eq!(users, [user.id.0]);
    })
    .await;
}

#[tokio::test]
async fn full_queue_refuses_predictions_immediately() {
    let settings = [("MATCHDAY_PREDICTIONS__WRITERS", "1"), ("MATCHDAY_PREDICTIONS__QUEUE", "3")];
    TestApp::run_with(&settings, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let mut users = Vec::new();
        for _ in 0..12 {
            users.push(app.user().await);
        }
        // No prediction is written while the gate is closed.
        let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
        gates::close(&mut tx, [MatchId(event)].into_iter()).await.expect("closed");
        let all = join_all(users.iter().map(|user| predict(user, json!({"event_id": event, "prediction": "home"}))));
        let open = async {
            eventually("a writer waits", async || is_waiting_at_gate(app).await).await;
            tx.rollback().await.expect("opened");
        };
        let (responses, ()) = tokio::join!(all, open);
        let refused = responses.iter().filter(|response| response.status == 503).count();
        assert!((1..12).contains(&refused), "{refused}");
        let code = |response: &Answer| serde_json::from_slice::<Value>(&response.bytes).expect("JSON")["code"].clone();
        assert!(
            responses.iter().filter(|response| response.status == 503).all(|response| code(response) == "overloaded")
        );
        assert!(
            responses
                .iter()
                .filter(|response| response.status == 503)
                .all(|response| response.headers.contains_key("retry-after"))
        );
        let saved = i64::try_from(12 - refused).expect("small");
        assert_eq!(counts(app, event).await, (saved, saved));
    })
    .await;
}

async fn is_waiting_at_gate(app: &TestApp) -> bool {
    sqlx::query_scalar(
        "select exists (select from pg_stat_activity where datname = current_database() and wait_event = 'advisory')",
    )
    .fetch_one(&app.app.core.db)
    .await
    .expect("connections were read")
}

/// Neither a gate that stays closed for too long nor a cut connection affects later predictions.
#[tokio::test]
async fn writer_recovers_after_a_failure() {
    let settings = [("MATCHDAY_PREDICTIONS__WRITERS", "1"), ("MATCHDAY_DATABASE__STATEMENT_TIMEOUT", "300ms")];
    TestApp::run_with(&settings, async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let user = app.user().await;
        let submit = async |pick: &str| predict(&user, json!({"event_id": event, "prediction": pick})).await;
        submit("home").await.expect(201);
        for round in 0..3 {
            let mut tx = platform::database::begin(&app.app.core.db).await.expect("begun");
            gates::close(&mut tx, [MatchId(event)].into_iter()).await.expect("closed");
            assert_eq!(submit("away").await.status, 503, "round {round}");
            tx.rollback().await.expect("opened");
            submit("draw").await.expect(200);
            submit("home").await.expect(200);
            // Selects the connection that committed last. The test's own queries run outside transactions.
            let cut = "select count(pg_terminate_backend(pid, 5000)) from pg_stat_activity
                       where datname = current_database() and lower(query) = 'commit' and pid <> pg_backend_pid()";
            let cut: i64 = sqlx::query_scalar(cut).fetch_one(&app.app.core.db).await.expect("cut");
            assert!(cut > 0, "round {round}");
            submit("away").await.expect(200);
            submit("home").await.expect(200);
        }
        check_tallies(app).await;
    })
    .await;
}

#[tokio::test]
async fn new_prediction_updates_match_list_immediately() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let (ada, ben) = (app.user().await, app.user().await);
        let count = async || ada.get("/api/auth/events").await.expect(200)["data"][0]["predictions_count"].clone();
        assert_eq!(count().await, 0);
        for (user, expected) in [(&ada, 1), (&ada, 1), (&ben, 2)] {
            predict(user, json!({"event_id": event, "prediction": "draw"})).await;
            assert_eq!(count().await, expected);
        }
    })
    .await;
}

#[tokio::test]
async fn filters_narrow_the_list_but_not_the_summary() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let empty = fixtures.a_match("n").between("albion", "wanderers").starting_in(FAR).put().await;
        let (mut users, mut made) = (Vec::new(), Vec::new());
        for (pick, confidence) in [("home", 100), ("away", 50), ("home", 0), ("draw", 31)] {
            let user = app.user().await;
            let body = json!({"event_id": event, "prediction": pick, "confidence": confidence});
            made.push(predict(&user, body).await.expect(201)["data"]["id"].as_i64().expect("an id"));
            users.push(user);
        }
        let stranger = app.user().await;
        let (second, meta) = (users[1].id, list(&stranger, event, "").await["meta"].clone());
        assert_eq!(
            meta,
            json!({"total_predictions": 4, "prediction_distribution": {"home": 2, "draw": 1, "away": 1},
                   "average_confidence": 45.25, "next_cursor": null})
        );
        for (query, expected) in [
            (String::new(), made.clone()),
            ("prediction=home".to_owned(), vec![made[0], made[2]]),
            ("prediction=draw".to_owned(), vec![made[3]]),
            (format!("user_id={second}"), vec![made[1]]),
            (format!("user_id={second}&prediction=away"), vec![made[1]]),
            (format!("user_id={second}&prediction=home"), vec![]),
            (format!("user_id={}", stranger.id), vec![]),
            ("user_id=9223372036854775807".to_owned(), vec![]),
        ] {
            let found = list(&stranger, event, &query).await;
            assert_eq!((ids(&found), &found["meta"]), (expected, &meta), "{query}");
        }
        assert_eq!(
            list(&stranger, empty, "").await,
            json!({"data": [], "meta": {"total_predictions": 0, "average_confidence": 0.0, "next_cursor": null,
                                        "prediction_distribution": {"home": 0, "draw": 0, "away": 0}}})
        );
        for (query, field) in [
            ("user_id=x", "user_id"),
            ("user_id=0", "user_id"),
            ("prediction=Home", "prediction"),
            ("prediction=", "prediction"),
            ("per_page=0", "per_page"),
            ("per_page=x", "per_page"),
            ("cursor=", "cursor"),
            ("cursor=1", "cursor"),
            ("cursor=AAAAAAAAAAA", "cursor"),
        ] {
            let response = stranger.get(&format!("/api/auth/events/{event}/predictions?{query}")).await;
            assert_eq!(response.invalid_fields(), [field], "{query}");
        }
    })
    .await;
}

#[tokio::test]
async fn paging_has_no_gaps_or_repeats() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let mut made = Vec::new();
        let add = async |number: usize| {
            let user = app.app.accounts.make_without_phone().await.expect("a user");
            let forecast = Forecast::new(Pick::ALL[number % 2], None, Confidence::default()).expect("a forecast");
            app.app.predictions.save(user, MatchId(event), forecast).await.expect("saved").id.0
        };
        for number in 0..250 {
            made.push(add(number).await);
        }
        let user = app.user().await;
        let read = async |query: &str, mut between: Option<usize>| {
            let (mut seen, mut sizes, mut cursor) = (Vec::new(), Vec::new(), String::new());
            loop {
                let part = list(&user, event, &format!("{query}{cursor}")).await;
                sizes.push(ids(&part).len());
                seen.extend(ids(&part));
                if let Some(number) = between.take() {
                    add(number).await;
                }
                match part["meta"]["next_cursor"].as_str() {
                    Some(next) => cursor = format!("&cursor={next}"),
                    None => return (seen, sizes),
                }
            }
        };
        assert_eq!(read("", None).await, (made.clone(), vec![100, 100, 50]));
        assert_eq!(read("per_page=1000", None).await.1, [100, 100, 50]);
        assert_eq!(read("per_page=125", None).await.1, [100, 100, 50]);
        assert_eq!(read("per_page=50", None).await, (made.clone(), vec![50; 5]), "no empty page at the end");
        let even: Vec<i64> = made.iter().copied().step_by(2).collect();
        assert_eq!(read("per_page=60&prediction=home", None).await, (even, vec![60, 60, 5]));
        let (seen, _) = read("per_page=100", Some(250)).await;
        assert_eq!((&seen[..250], seen.len()), (&made[..], 251), "predictions made during paging come last");
    })
    .await;
}

#[tokio::test]
async fn points_follow_results_and_corrections() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let mut user = app.user().await;
        let predictions = [
            ("home", json!({"home": 2, "away": 1}), 100),
            ("home", json!({"home": 1, "away": 0}), 0),
            ("home", json!(null), 50),
            ("draw", json!({"home": 1, "away": 1}), 0),
            ("away", json!(null), 100),
        ];
        for (pick, score, confidence) in predictions {
            user = app.user().await;
            let body =
                json!({"event_id": event, "prediction": pick, "score_prediction": score, "confidence": confidence});
            predict(&user, body).await.expect(201);
        }
        let nothing = vec![Value::Null; 5];
        assert_eq!(points(&user, event).await, nothing);
        far(&fixtures).at("live", 2, 1).put().await;
        assert_eq!(points(&user, event).await, nothing, "no points before the end");
        for ((home, away), expected) in
            [((2, 1), [60, 30, 35, 0, -20]), ((2, 2), [-20, 0, -5, 20, -20]), ((0, 3), [-20, 0, -5, 0, 40])]
        {
            far(&fixtures).at("finished", home, away).put().await;
            assert_eq!(points(&user, event).await, expected.map(Value::from), "{home}:{away}");
        }
        for status in ["abandoned", "cancelled", "scheduled"] {
            far(&fixtures).being(status).put().await;
            assert_eq!(points(&user, event).await, nothing, "{status}");
        }
        far(&fixtures).at("awarded", 2, 1).put().await;
        assert_eq!(points(&user, event).await, nothing, "an abandoned match gives no points");
    })
    .await;
}

/// The table constraints refuse the same values as the Rust types.
#[tokio::test]
async fn table_constraints_refuse_invalid_predictions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let event = far(&fixtures).put().await;
        let mut outcomes = BTreeMap::new();
        for (values, accepted) in [
            ("'home', 1, 0, 0", true),
            ("'draw', null, null, 100", true),
            ("'won', null, null, 0", false),
            ("'home', 1, null, 0", false),
            ("'home', null, 1, 0", false),
            ("'home', 999, 0, 0", true),
            ("'home', 1000, 0, 0", false),
            ("'away', 0, -1, 0", false),
            ("'draw', 1, 0, 0", false),
            ("'home', 0, 1, 0", false),
            ("'away', 1, 1, 0", false),
            ("'home', null, null, 101", false),
            ("'home', null, null, -1", false),
        ] {
            let user = app.app.accounts.make_without_phone().await.expect("a user");
            let insert = format!(
                "insert into predictions (user_id, event_id, prediction, home_goals, away_goals, confidence, revision, created_at, updated_at)
                 values ({user}, {event}, {values}, 1, now(), now())"
            );
            let outcome = sqlx::query(sqlx::AssertSqlSafe(insert)).execute(&app.app.core.db).await;
            outcomes.insert(values, (outcome.is_ok(), accepted));
        }
        assert!(outcomes.values().all(|(got, expected)| got == expected), "{outcomes:?}");
    })
    .await;
}
