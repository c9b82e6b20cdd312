//! Points are computed in Rust for reading predictions, and in SQL for adding up scores. These tests check that both
//! agree.

use futures_util::{StreamExt as _, stream};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use scoring::{Confidence, Forecast, Outcome, Pick, RulesVersion, Score};
use sqlx::PgPool;
use tokio::{runtime::Handle, task::block_in_place};

use crate::testing::{as_service, with_database};

const RULES: RulesVersion = RulesVersion::CURRENT;

/// Goals per team that a test covers.
#[derive(Clone, Copy)]
struct Goals(&'static [i32]);

/// All realistic numbers of goals.
const USUAL: Goals = Goals(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);

/// The greatest numbers of goals that can be predicted or stored, and their neighbours.
const GREATEST: Goals = Goals(&[0, 1, 20, 21, 98, 99, 100, 998, 999]);

impl Goals {
    /// All results with these numbers of goals.
    fn results(self) -> impl Iterator<Item = (i32, i32)> {
        self.0.iter().flat_map(move |&home| self.0.iter().map(move |&away| (home, away)))
    }

    /// All forecasts with these numbers of goals, without the confidence.
    fn forecasts(self) -> impl Iterator<Item = (Pick, Option<Score>)> {
        let scores = self.results().filter_map(|(home, away)| Score::new(home.into(), away.into()));
        Pick::ALL.into_iter().map(|pick| (pick, None)).chain(scores.map(|score| (score.pick(), Some(score))))
    }
}

fn forecast(pick: Pick, score: Option<Score>, confidence: i64) -> Forecast {
    Forecast::new(pick, score, Confidence::new(confidence).expect("a confidence")).expect("no contradiction")
}

/// Compares the points from Rust and SQL for one pick and score, with every confidence and every result; returns the
/// number of comparisons. The points from Rust are sent as one byte string, each increased by 20 so that none is
/// negative, and the database counts the equal ones.
async fn compare(db: &PgPool, goals: Goals, pick: Pick, score: Option<Score>) -> i64 {
    let forecasts: Vec<Forecast> = (0..=100).map(|confidence| forecast(pick, score, confidence)).collect();
    let from_rust: Vec<u8> = goals
        .results()
        .flat_map(|(home, away)| {
            let outcome = Outcome::Result { home, away };
            forecasts.iter().map(move |forecast| forecast.points(RULES, outcome).expect("points"))
        })
        .map(|points| u8::try_from(points + 20).expect("from -20 to 60"))
        .collect();
    let (homes, aways): (Vec<i32>, Vec<i32>) = goals.results().unzip();
    let (same, all): (i64, i64) = sqlx::query_as(
        "select count(*) filter (where prediction_points($1, row($2, $3, $4, confidence)::forecast, row(home, away)::final_score)
                                       = get_byte($5, (at::integer - 1) * 101 + confidence) - 20),
                count(*)
         from unnest($6::integer[], $7::integer[]) with ordinality as r (home, away, at),
              generate_series(0, 100) as c (confidence)",
    )
    .bind(RULES.number())
    .bind(pick.name())
    .bind(score.map(|score| i32::from(score.home())))
    .bind(score.map(|score| i32::from(score.away())))
    .bind(&from_rust)
    .bind(&homes)
    .bind(&aways)
    .fetch_one(db)
    .await
    .expect("compared");
    assert_eq!(same, all, "{pick:?} {score:?}");
    all
}

/// Covers every pick without a score and every score up to 20:20, with every confidence and every result up to 20:20:
/// 444 · 101 · 441 combinations, about 20 million, without sampling. Then covers the limits of the stored values. The
/// property test below samples the values in between.
#[tokio::test]
async fn sql_and_rust_agree_on_points_exhaustively() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        for (goals, expected) in [(USUAL, 444 * 101 * 441), (GREATEST, (3 + 36) * 101 * 81)] {
            // Prepares the next comparison while the database runs one.
            let compared: Vec<i64> = stream::iter(goals.forecasts())
                .map(|(pick, score)| compare(&db, goals, pick, score))
                .buffer_unordered(2)
                .collect()
                .await;
            assert_eq!(compared.iter().sum::<i64>(), expected);
        }
        db.close().await;
    })
    .await;
}

/// In SQL, a match has no result if the goals of either team are null.
#[tokio::test]
async fn sql_gives_no_points_without_result_or_known_rules() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let (picks, scores): (Vec<Pick>, Vec<Option<Score>>) = USUAL.forecasts().unzip();
        for outcome in [Outcome::Void, Outcome::Open] {
            let from_rust = USUAL.forecasts().flat_map(|(pick, score)| (0..=100).map(move |c| forecast(pick, score, c)));
            assert!(from_rust.into_iter().all(|forecast| forecast.points(RULES, outcome).is_none()));
        }
        let points: i64 = sqlx::query_scalar(
            "select count(prediction_points(rules::smallint, row(pick, home_goals, away_goals, confidence)::forecast, row(home, away)::final_score))
             from unnest($1::text[], $2::integer[], $3::integer[]) as s (pick, home_goals, away_goals),
                  generate_series(0, 100) as c (confidence),
                  (values (1, null, null), (1, 1, null), (1, null, 1), (0, 1, 1), (2, 1, 1)) as r (rules, home, away)",
        )
        .bind(picks.iter().map(|pick| pick.name()).collect::<Vec<_>>())
        .bind(scores.iter().map(|score| score.map(|score| i32::from(score.home()))).collect::<Vec<_>>())
        .bind(scores.iter().map(|score| score.map(|score| i32::from(score.away()))).collect::<Vec<_>>())
        .fetch_one(&db)
        .await
        .expect("counted");
        assert_eq!(points, 0);
        db.close().await;
    })
    .await;
}

#[tokio::test]
async fn sql_and_rust_agree_on_the_winner() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let results: Vec<(i32, i32)> = USUAL.results().chain(GREATEST.results()).collect();
        let (homes, aways): (Vec<i32>, Vec<i32>) = results.iter().copied().unzip();
        let from_sql: Vec<String> = sqlx::query_scalar(
            "select pick_of(home, away)
             from unnest($1::integer[], $2::integer[]) with ordinality as r (home, away, at) order by at",
        )
        .bind(&homes)
        .bind(&aways)
        .fetch_all(&db)
        .await
        .expect("picked");
        let from_rust: Vec<&str> = results.iter().map(|&(home, away)| Pick::of(home, away).name()).collect();
        assert_eq!(from_sql, from_rust);
        db.close().await;
    })
    .await;
}

/// Generates a forecast and a result over the whole range of goals.
fn any_case() -> impl Strategy<Value = (Forecast, i32, i32)> {
    let predicted = (0_i64..=99, 0_i64..=99, any::<bool>(), 0_i64..=100);
    // Includes results close to the forecast, because random ones hardly ever match.
    let ended = prop_oneof![Just(None), (0..=2, 0..=2).prop_map(Some), (0..=900).prop_map(|more| Some((more, more))),];
    (predicted, ended, 0..=999, 0..=999).prop_map(|((home, away, scored, confidence), near, any_home, any_away)| {
        let score = Score::new(home, away).expect("a score");
        let forecast = forecast(score.pick(), scored.then_some(score), confidence);
        let (near_home, near_away) = (i32::from(score.home()), i32::from(score.away()));
        match near {
            Some((more_home, more_away)) => (forecast, near_home + more_home, near_away + more_away),
            None => (forecast, any_home, any_away),
        }
    })
}

/// Returns the points that SQL computes for these cases.
async fn from_sql(db: &PgPool, cases: &[(Forecast, i32, i32)]) -> Vec<Option<i32>> {
    let scores: Vec<Option<Score>> = cases.iter().map(|(forecast, ..)| forecast.score()).collect();
    sqlx::query_scalar(
        "select prediction_points($1, row(pick, home_goals, away_goals, confidence)::forecast, row(home, away)::final_score)
         from unnest($2::text[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[])
           with ordinality as c (pick, home_goals, away_goals, confidence, home, away, at)
         order by at",
    )
    .bind(RULES.number())
    .bind(cases.iter().map(|(forecast, ..)| forecast.pick().name()).collect::<Vec<_>>())
    .bind(scores.iter().map(|score| score.map(|score| i32::from(score.home()))).collect::<Vec<_>>())
    .bind(scores.iter().map(|score| score.map(|score| i32::from(score.away()))).collect::<Vec<_>>())
    .bind(cases.iter().map(|(forecast, ..)| i32::from(forecast.confidence().percent())).collect::<Vec<_>>())
    .bind(cases.iter().map(|&(_, home, _)| home).collect::<Vec<_>>())
    .bind(cases.iter().map(|&(.., away)| away).collect::<Vec<_>>())
    .fetch_all(db)
    .await
    .expect("points")
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_and_rust_agree_on_points_of_random_cases() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&vec(any_case(), 1..200), |cases| {
            let from_sql = block_in_place(|| Handle::current().block_on(from_sql(&db, &cases)));
            let from_rust: Vec<Option<i32>> = cases
                .iter()
                .map(|&(forecast, home, away)| forecast.points(RULES, Outcome::Result { home, away }))
                .collect();
            prop_assert_eq!(from_sql, from_rust);
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{error}");
        }
        db.close().await;
    })
    .await;
}
