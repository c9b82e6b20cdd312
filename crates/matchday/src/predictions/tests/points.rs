//! Points are worked out in two places: here for what is read, in the database for what is added up. They are one.

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

/// Numbers of goals of one side that are looked at.
#[derive(Clone, Copy)]
struct Goals(&'static [i32]);

/// All that happen.
const USUAL: Goals = Goals(&[0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20]);

/// The greatest that can be predicted and that can be stored, and their neighbours.
const GREATEST: Goals = Goals(&[0, 1, 20, 21, 98, 99, 100, 998, 999]);

impl Goals {
    /// Every result with these.
    fn results(self) -> impl Iterator<Item = (i32, i32)> {
        self.0.iter().flat_map(move |&home| self.0.iter().map(move |&away| (home, away)))
    }

    /// Everything that can be said with these, but for the confidence.
    fn sayings(self) -> impl Iterator<Item = (Pick, Option<Score>)> {
        let scores = self.results().filter_map(|(home, away)| Score::new(home.into(), away.into()));
        Pick::ALL.into_iter().map(|pick| (pick, None)).chain(scores.map(|score| (score.pick(), Some(score))))
    }
}

fn forecast(pick: Pick, score: Option<Score>, confidence: i64) -> Forecast {
    Forecast::new(pick, score, Confidence::new(confidence).expect("a confidence")).expect("no contradiction")
}

/// Holds our points of a saying, with every confidence and of every result, against those of the database; returns how many
/// there were. Ours go over as one string of bytes, each 20 too great so that none is below zero, and the database counts
/// where its own are the same.
async fn compare(db: &PgPool, goals: Goals, pick: Pick, score: Option<Score>) -> i64 {
    let forecasts: Vec<Forecast> = (0..=100).map(|confidence| forecast(pick, score, confidence)).collect();
    let ours: Vec<u8> = goals
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
    .bind(&ours)
    .bind(&homes)
    .bind(&aways)
    .fetch_one(db)
    .await
    .expect("compared");
    assert_eq!(same, all, "{pick:?} {score:?}");
    all
}

/// Every pick without a score and every score up to 20:20, with every confidence, of every result up to 20:20: 444 · 101 · 441,
/// some 20 million. Nothing is sampled and nothing is inferred. Then the same at the edges of what can be stored; what
/// lies between is left to chance, below.
#[tokio::test]
async fn the_database_gives_the_same_points_for_everything_that_can_be_said() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        for (goals, expected) in [(USUAL, 444 * 101 * 441), (GREATEST, (3 + 36) * 101 * 81)] {
            // While the database is at one, the next is prepared.
            let compared: Vec<i64> = stream::iter(goals.sayings())
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

/// A match without a result is one whose goals, or those of one side, are null.
#[tokio::test]
async fn the_database_gives_no_points_without_a_result_or_by_rules_it_does_not_know() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let (picks, scores): (Vec<Pick>, Vec<Option<Score>>) = USUAL.sayings().unzip();
        for outcome in [Outcome::Void, Outcome::Open] {
            let ours = USUAL.sayings().flat_map(|(pick, score)| (0..=100).map(move |c| forecast(pick, score, c)));
            assert!(ours.into_iter().all(|forecast| forecast.points(RULES, outcome).is_none()));
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
async fn the_database_knows_who_wins() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let results: Vec<(i32, i32)> = USUAL.results().chain(GREATEST.results()).collect();
        let (homes, aways): (Vec<i32>, Vec<i32>) = results.iter().copied().unzip();
        let theirs: Vec<String> = sqlx::query_scalar(
            "select pick_of(home, away)
             from unnest($1::integer[], $2::integer[]) with ordinality as r (home, away, at) order by at",
        )
        .bind(&homes)
        .bind(&aways)
        .fetch_all(&db)
        .await
        .expect("picked");
        let ours: Vec<&str> = results.iter().map(|&(home, away)| Pick::of(home, away).name()).collect();
        assert_eq!(theirs, ours);
        db.close().await;
    })
    .await;
}

/// A prediction and a result, with any number of goals that each can have.
fn any_case() -> impl Strategy<Value = (Forecast, i32, i32)> {
    let said = (0_i64..=99, 0_i64..=99, any::<bool>(), 0_i64..=100);
    // Results that come close to what was said: by chance hardly any would.
    let ended = prop_oneof![Just(None), (0..=2, 0..=2).prop_map(Some), (0..=900).prop_map(|more| Some((more, more))),];
    (said, ended, 0..=999, 0..=999).prop_map(|((home, away, scored, confidence), near, any_home, any_away)| {
        let score = Score::new(home, away).expect("a score");
        let forecast = forecast(score.pick(), scored.then_some(score), confidence);
        let (near_home, near_away) = (i32::from(score.home()), i32::from(score.away()));
        match near {
            Some((more_home, more_away)) => (forecast, near_home + more_home, near_away + more_away),
            None => (forecast, any_home, any_away),
        }
    })
}

/// The points of some cases by the database.
async fn theirs(db: &PgPool, cases: &[(Forecast, i32, i32)]) -> Vec<Option<i32>> {
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
async fn the_database_gives_the_same_points_for_anything() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let mut runner = TestRunner::new(Config { cases: 100, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&vec(any_case(), 1..200), |cases| {
            let theirs = block_in_place(|| Handle::current().block_on(theirs(&db, &cases)));
            let ours: Vec<Option<i32>> = cases
                .iter()
                .map(|&(forecast, home, away)| forecast.points(RULES, Outcome::Result { home, away }))
                .collect();
            prop_assert_eq!(theirs, ours);
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{error}");
        }
        db.close().await;
    })
    .await;
}
