//! Knockout matches, jokers, and sports with other rules.

use std::collections::BTreeSet;

use scoring::Side;
use web::ids::TournamentId;

use super::*;
use crate::game::predictions::{
    rules::{Conditions, check_forecast},
    service::SaveError,
};

/// A document with a rule set that has this many jokers, and that its matches use.
fn with_jokers(fixtures: &TestFixtures<'_>, jokers: i32) -> Value {
    let slug = format!("rules_{}", fixtures.tag);
    json!({
        "rule_sets": [{"slug": slug, "name": "Jokers", "joker": jokers}],
        "tournament": {"slug": format!("cup_{}", fixtures.tag), "name": "Cup", "rule_set": slug},
    })
}

/// Imports matches that have not started, with this many jokers.
async fn joker_matches(fixtures: &TestFixtures<'_>, number: usize, jokers: i32) -> Vec<i64> {
    let entry = |at: usize| fixtures.a_match(&format!("m{at}")).starting_in(FAR).json();
    let entries: Vec<Value> = (0..number).map(entry).collect();
    fixtures.import_with(with_jokers(fixtures, jokers), &entries).await
}

fn body(event: i64, more: &Value) -> Value {
    let mut body = json!({"event_id": event, "prediction": "home"});
    body.as_object_mut().expect("an object").extend(more.as_object().expect("an object").clone());
    body
}

#[tokio::test]
async fn knockout_prediction_names_team_that_advances() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let knockout = || far(&fixtures).with(json!({"knockout": true, "stage": "final", "multiplier": 2}));
        let event = knockout().put().await;
        let group = fixtures.a_match("group").starting_in(FAR).put().await;
        let user = app.user().await;
        let saved = predict(&user, body(event, &json!({"prediction": "draw", "advances": "away"}))).await.expect(201);
        assert_eq!((&saved["data"]["advances"], &saved["data"]["joker"]), (&json!("away"), &json!(false)));
        assert_eq!(list(&user, event, "").await["data"][0]["advances"], "away");
        for value in [json!("draw"), json!(1), json!(true)] {
            assert_eq!(predict(&user, body(event, &json!({"advances": value}))).await.invalid_fields(), ["advances"]);
        }
        assert_eq!(predict(&user, body(group, &json!({"advances": "home"}))).await.invalid_fields(), ["advances"]);
        let earned = async || user.get("/api/auth/predictions").await.expect(200)["data"][0]["points_earned"].clone();
        for (advanced, points) in [(json!(null), 40), (json!("home"), 40), (json!("away"), 60)] {
            let over = knockout().at("finished", 1, 1);
            over.with(json!({"knockout": true, "stage": "final", "multiplier": 2, "advanced": advanced})).put().await;
            assert_eq!(earned().await, points, "{advanced}");
        }
    })
    .await;
}

#[tokio::test]
async fn sport_without_draws_limits_predictions() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let sport = json!({"sport": {"slug": "hoops", "name": "Hoops", "draws_allowed": false, "max_score": 120}});
        let entry = far(&fixtures).with(json!({"knockout": true})).json();
        let event = fixtures.import_with(sport, &[entry]).await[0];
        let user = app.user().await;
        let score = |home, away| json!({"score_prediction": {"home": home, "away": away}});
        let refused = async |more: Value| predict(&user, body(event, &more)).await.invalid_fields();
        assert_eq!(refused(json!({"prediction": "draw"})).await, ["prediction"]);
        assert_eq!(refused(score(121, 0)).await, ["score_prediction"]);
        assert_eq!(refused(score(1_000, 0)).await, ["score_prediction"]);
        assert_eq!(refused(json!({"advances": "away"})).await, ["advances"]);
        assert_eq!(counts(app, event).await, (0, 0), "refused predictions are not stored");
        predict(&user, body(event, &json!({"advances": "home"}))).await.expect(201);
        assert_eq!(refused(score(121, 0)).await, ["score_prediction"], "a replacement");
        let path = format!("/api/auth/events/{event}/points-preview?prediction=home");
        assert_eq!(user.get(&format!("{path}&home=121&away=0")).await.invalid_fields(), ["home"]);
        assert_eq!(user.get(&format!("{path}&joker=true")).await.invalid_fields(), ["joker"]);
        assert_eq!(user.get(&format!("{path}&home=120&away=119")).await.expect(200)["data"]["advances"], 10);
        check_tallies(app).await;
    })
    .await;
}

#[tokio::test]
async fn jokers_run_out_and_return() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let events = joker_matches(&fixtures, 3, 1).await;
        let user = app.user().await;
        let play = async |at: usize, joker: bool| predict(&user, body(events[at], &json!({"joker": joker}))).await;
        assert_eq!(play(0, true).await.expect(201)["data"]["joker"], true);
        play(1, false).await.expect(201);
        assert_eq!(play(1, true).await.expect(409)["code"], "no_joker_left");
        let own = user.get("/api/auth/predictions").await.expect(200);
        let jokers: Vec<bool> =
            own["data"].as_array().expect("a list").iter().map(|own| own["joker"] == true).collect();
        assert_eq!(jokers, [false, true], "a refused joker changes nothing");
        play(0, false).await.expect(200);
        play(1, true).await.expect(200);
        assert_eq!(play(2, true).await.expect(409)["code"], "no_joker_left");
        fixtures.import_with(with_jokers(&fixtures, 1), &[fixtures.a_match("m1").being("cancelled").json()]).await;
        play(2, true).await.expect(201);
        let bare = app.fixtures();
        let event = far(&bare).put().await;
        assert_eq!(predict(&user, body(event, &json!({"joker": true}))).await.invalid_fields(), ["joker"]);
    })
    .await;
}

/// Two processes write the predictions of one user at the same time.
#[tokio::test]
async fn racing_predictions_cannot_exceed_jokers() {
    TestApp::run(async |app| {
        let fixtures = app.fixtures();
        let events = joker_matches(&fixtures, 12, 3).await;
        let other = Predictions::new(&app.app.core, &app.app.matches, &app.app.config.predictions);
        let users: Vec<_> = join_all((0..4).map(|_| app.app.accounts.make_without_phone())).await;
        let users: Vec<_> = users.into_iter().map(|user| user.expect("a user")).collect();
        let with = Forecast::new(Pick::Home, None, Confidence::default()).expect("a forecast").with_joker(true);
        let saves = users.iter().flat_map(|&user| events.iter().enumerate().map(move |(at, &event)| (user, at, event)));
        let saves = saves.map(|(user, at, event)| {
            let predictions = if at % 2 == 0 { &other } else { &app.app.predictions };
            predictions.save(user, MatchId(event), with)
        });
        let outcomes = join_all(saves).await;
        let refused = outcomes.iter().filter(|saved| matches!(saved, Err(SaveError::NoJokerLeft))).count();
        assert_eq!((outcomes.iter().filter(|saved| saved.is_ok()).count(), refused), (4 * 3, 4 * 9));
        let played: Vec<i64> = sqlx::query_scalar("select count(*) from predictions where joker group by user_id")
            .fetch_all(&app.app.core.db)
            .await
            .expect("counted");
        assert_eq!(played, [3; 4]);
        check_tallies(app).await;
    })
    .await;
}

/// The statement for a single prediction decides in SQL what batches decide in Rust.
#[tokio::test]
async fn sql_and_rust_agree_on_allowed_predictions() {
    TestApp::run(async |app| {
        let scores = [None, Some((0, 0)), Some((1, 0)), Some((99, 98)), Some((100, 99)), Some((0, 300))];
        let mut seen = BTreeSet::new();
        for (draws_allowed, max_score, is_knockout) in
            [(true, 99, false), (true, 99, true), (false, 299, false), (false, 299, true), (false, 1, true)]
        {
            let conditions =
                Conditions { tournament: TournamentId(1), draws_allowed, max_score, is_knockout, jokers: 1 };
            for (pick, score) in Pick::ALL.into_iter().flat_map(|pick| scores.map(|score| (pick, score))) {
                let goals = score.and_then(|(home, away)| scoring::Score::new(home, away));
                let Some(forecast) = Forecast::new(pick, goals, Confidence::default()) else { continue };
                for advances in [None, Some(Side::Home), Some(Side::Away)] {
                    let allowed: bool =
                        sqlx::query_scalar("select allows_prediction($1, $2, $3, $4, $5::smallint, $6::smallint, $7)")
                            .bind(draws_allowed)
                            .bind(max_score)
                            .bind(is_knockout)
                            .bind(pick.name())
                            .bind(goals.map(scoring::Score::home))
                            .bind(goals.map(scoring::Score::away))
                            .bind(advances.map(Side::name))
                            .fetch_one(&app.app.core.db)
                            .await
                            .expect("decided");
                    let broken = check_forecast(forecast.with_advances(advances), &conditions);
                    assert_eq!(allowed, broken.is_none(), "{conditions:?} {forecast:?} {advances:?}: {broken:?}");
                    seen.insert(allowed);
                }
            }
        }
        assert_eq!(seen.len(), 2);
    })
    .await;
}
