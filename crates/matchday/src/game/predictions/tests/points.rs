//! Points are computed in Rust for reading predictions, and in SQL for adding up scores. These tests check that both
//! agree.

use futures_util::{StreamExt as _, stream};
use proptest::{
    collection::vec,
    prelude::*,
    test_runner::{Config, TestRunner},
};
use scoring::{Confidence, Forecast, Margin, Multiplier, Outcome, Pick, RuleSet, Score, Side, Terms};
use sqlx::{AssertSqlSafe, PgPool};
use tokio::{runtime::Handle, task::block_in_place};

use crate::testing::{as_service, with_database};

const TERMS: Terms = Terms::DEFAULT;

/// The values of [`TERMS`] in SQL.
const DEFAULT_RULES: &str = "row(20, 30, 40, null, null, 20, 10)::point_rules";

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
            let outcome = Outcome::result(home, away);
            forecasts.iter().map(move |forecast| forecast.points(&TERMS, outcome).expect("points"))
        })
        .map(|points| u8::try_from(points + 20).expect("from -20 to 60"))
        .collect();
    let (homes, aways): (Vec<i32>, Vec<i32>) = goals.results().unzip();
    let (same, all): (i64, i64) = sqlx::query_as(AssertSqlSafe(format!(
        "select count(*) filter (where prediction_points({DEFAULT_RULES}, row($1, $2, $3, confidence, null, false)::forecast,
                                                         row(home, away, null, false, 2)::match_result)
                                       = get_byte($4, (at::integer - 1) * 101 + confidence) - 20),
                count(*)
         from unnest($5::integer[], $6::integer[]) with ordinality as r (home, away, at),
              generate_series(0, 100) as c (confidence)",
    )))
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
        for (goals, expected) in [(USUAL, 444 * 101 * 441), (GREATEST, (3 + 81) * 101 * 81)] {
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
async fn sql_gives_no_points_without_result() {
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let (picks, scores): (Vec<Pick>, Vec<Option<Score>>) = USUAL.forecasts().unzip();
        for outcome in [Outcome::Void, Outcome::Open] {
            let from_rust = USUAL.forecasts().flat_map(|(pick, score)| (0..=100).map(move |c| forecast(pick, score, c)));
            assert!(from_rust.into_iter().all(|forecast| forecast.points(&TERMS, outcome).is_none()));
        }
        let points: i64 = sqlx::query_scalar(AssertSqlSafe(format!(
            "select count(prediction_points({DEFAULT_RULES}, row(pick, home_goals, away_goals, confidence, 'home', joker)::forecast,
                                            row(home, away, 'home', true, multiplier)::match_result))
             from unnest($1::text[], $2::integer[], $3::integer[]) as s (pick, home_goals, away_goals),
                  generate_series(0, 100) as c (confidence), (values (true), (false)) as j (joker),
                  (values (2, null, null), (2, 1, null), (3, null, 1)) as r (multiplier, home, away)",
        )))
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

/// A rule set, a prediction and a result.
#[derive(Clone, Copy, Debug)]
struct Case {
    terms: Terms,
    forecast: Forecast,
    home: i32,
    away: i32,
    advanced: Option<Side>,
}

impl Case {
    fn points(self) -> Option<i32> {
        let Self { home, away, advanced, .. } = self;
        self.forecast.points(&self.terms, Outcome::Result { home, away, advanced })
    }
}

fn any_side() -> impl Strategy<Value = Option<Side>> {
    prop::sample::select(&[None, Some(Side::Home), Some(Side::Away)][..])
}

prop_compose! {
    fn any_terms()(
        mut steps in vec(0..=1_000_i32, 3), share in 0..=100_i32, within in prop_oneof![1..=10_i32, 1..=999_i32],
        has_margin: bool, stake in 0..=1_000_i32, advances in 0..=1_000_i32, is_knockout: bool,
        multiplier in prop::sample::select(&Multiplier::ALL[..]), is_default: bool,
    ) -> Terms {
        steps.sort_unstable();
        let [outcome, difference, exact] = [steps[0], steps[1], steps[2]];
        let margin = has_margin.then_some(Margin { within, points: outcome + (exact - outcome) * share / 100 });
        let rules = RuleSet { outcome, difference, exact, margin, stake, advances };
        Terms { rules: if is_default { RuleSet::DEFAULT } else { rules }, multiplier, is_knockout }
    }
}

/// Generates a rule set, a forecast and a result over the whole range of scores.
fn any_case() -> impl Strategy<Value = Case> {
    let side = || prop_oneof![0_i64..=9, 0_i64..=999];
    let predicted = (side(), side(), any::<bool>(), 0_i64..=100, any_side(), any::<bool>());
    // Includes results close to the forecast, because random ones hardly ever match.
    let ended = prop_oneof![
        Just(None),
        (-3..=3, -3..=3).prop_map(Some),
        (-20..=20, -20..=20).prop_map(Some),
        (0..=900).prop_map(|more| Some((more, more))),
    ];
    (any_terms(), predicted, ended, 0..=999, 0..=999, any_side()).prop_map(
        |(terms, (home, away, scored, confidence, advances, joker), near, any_home, any_away, advanced)| {
            let score = Score::new(home, away).expect("a score");
            let forecast = forecast(score.pick(), scored.then_some(score), confidence);
            let forecast = forecast.with_advances(advances).with_joker(joker);
            let near = near.map(|(more_home, more_away)| {
                let near = |predicted: i16, more: i32| (i32::from(predicted) + more).clamp(0, 999);
                (near(score.home(), more_home), near(score.away(), more_away))
            });
            let (home, away) = near.unwrap_or((any_home, any_away));
            Case { terms, forecast, home, away, advanced }
        },
    )
}

/// Returns the points that SQL computes for these cases.
async fn from_sql(db: &PgPool, cases: &[Case]) -> Vec<Option<i32>> {
    let number = |read: &dyn Fn(&Case) -> Option<i32>| cases.iter().map(read).collect::<Vec<_>>();
    let rules = |read: &dyn Fn(&RuleSet) -> i32| number(&|case| Some(read(&case.terms.rules)));
    let margin = |read: &dyn Fn(&Margin) -> i32| number(&|case| case.terms.rules.margin.as_ref().map(read));
    let side =
        |read: &dyn Fn(&Case) -> Option<Side>| cases.iter().map(|case| read(case).map(Side::name)).collect::<Vec<_>>();
    sqlx::query_scalar(
        "select prediction_points(
                    row(outcome, difference, exact, within, margin, stake, advances_points)::point_rules,
                    row(pick, home_goals, away_goals, confidence, advances, joker)::forecast,
                    row(home, away, advanced, is_knockout, multiplier)::match_result)
         from unnest($1::integer[], $2::integer[], $3::integer[], $4::integer[], $5::integer[], $6::integer[], $7::integer[],
                     $8::text[], $9::integer[], $10::integer[], $11::integer[], $12::text[], $13::boolean[], $14::integer[],
                     $15::integer[], $16::text[], $17::boolean[], $18::integer[])
           with ordinality as c (outcome, difference, exact, within, margin, stake, advances_points, pick, home_goals,
                                 away_goals, confidence, advances, joker, home, away, advanced, is_knockout, multiplier, at)
         order by at",
    )
    .bind(rules(&|rules| rules.outcome))
    .bind(rules(&|rules| rules.difference))
    .bind(rules(&|rules| rules.exact))
    .bind(margin(&|margin| margin.within))
    .bind(margin(&|margin| margin.points))
    .bind(rules(&|rules| rules.stake))
    .bind(rules(&|rules| rules.advances))
    .bind(cases.iter().map(|case| case.forecast.pick().name()).collect::<Vec<_>>())
    .bind(number(&|case| case.forecast.score().map(|score| score.home().into())))
    .bind(number(&|case| case.forecast.score().map(|score| score.away().into())))
    .bind(number(&|case| Some(case.forecast.confidence().percent().into())))
    .bind(side(&|case| case.forecast.advances()))
    .bind(cases.iter().map(|case| case.forecast.joker()).collect::<Vec<_>>())
    .bind(number(&|case| Some(case.home)))
    .bind(number(&|case| Some(case.away)))
    .bind(side(&|case| case.advanced))
    .bind(cases.iter().map(|case| case.terms.is_knockout).collect::<Vec<_>>())
    .bind(number(&|case| Some(case.terms.multiplier.halves().into())))
    .fetch_all(db)
    .await
    .expect("points")
}

/// Compares the points from Rust and SQL for at least this many random cases.
async fn compare_random_cases(least: usize) {
    const AT_ONCE: usize = 500;
    with_database(async |options| {
        let db = PgPool::connect_with(as_service(&options)).await.expect("connected");
        let cases = u32::try_from(least.div_ceil(AT_ONCE)).expect("few");
        let mut runner = TestRunner::new(Config { cases, failure_persistence: None, ..Config::default() });
        let outcome = runner.run(&vec(any_case(), AT_ONCE..AT_ONCE + 50), |cases| {
            let from_sql = block_in_place(|| Handle::current().block_on(from_sql(&db, &cases)));
            for (case, from_sql) in cases.iter().zip(from_sql) {
                prop_assert_eq!(from_sql, case.points(), "{:?}", case);
            }
            Ok(())
        });
        if let Err(error) = outcome {
            panic!("{error}");
        }
        db.close().await;
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sql_and_rust_agree_on_points_of_random_cases() {
    compare_random_cases(20_000).await;
}

#[tokio::test(flavor = "multi_thread")]
#[ignore = "for the nightly run, because it takes a minute"]
async fn sql_and_rust_agree_on_points_of_200_000_random_cases() {
    compare_random_cases(200_000).await;
}
