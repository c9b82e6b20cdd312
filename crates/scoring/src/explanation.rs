//! Explanation of the points of a prediction: parts that add up to its points, each with a sentence.

use serde::Serialize;

use crate::{
    forecast::{Forecast, Pick, Score},
    outcome::Outcome,
    points::{Hit, RulesVersion},
};

/// Whether a prediction counts, and whether its match has a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PredictionState {
    /// The match has no result yet.
    Open,
    /// The match has a result.
    Settled,
    /// The match was cancelled, abandoned or awarded.
    Void,
    /// The prediction was made after the match began, so it does not count.
    Late,
}

impl PredictionState {
    /// State of a prediction; `is_in_time` tells whether it was made before the match began.
    pub fn of(is_in_time: bool, outcome: Outcome) -> Self {
        match outcome {
            // First, because it applies to late predictions too.
            Outcome::Void => Self::Void,
            _ if !is_in_time => Self::Late,
            Outcome::Result { .. } => Self::Settled,
            Outcome::Open => Self::Open,
        }
    }
}

/// The aspect of a prediction that points are given for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PointsReason {
    /// The winner, or a draw.
    Outcome,
    /// The number of goals between the teams.
    GoalDifference,
    /// The goals of both teams.
    ExactScore,
    /// The stake of the confidence.
    Confidence,
}

/// Points of a prediction for one aspect of it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PointsPart {
    part: PointsReason,
    /// All parts add up to the points of the prediction.
    #[cfg_attr(feature = "openapi", schema(example = 20))]
    points: i32,
    /// Reason for these points, as a sentence.
    #[cfg_attr(feature = "openapi", schema(example = "The home team won, as you said."))]
    reason: String,
}

/// Explains the points of a forecast. There is a part for every aspect that could earn points, also if it earned none;
/// without a result there are no parts.
///
/// The parts are increments: the 30 points of a goal difference are 20 for the outcome and 10 more for the difference, the
/// 40 points of an exact score are 10 more again. A draw has no difference to hit, so for a draw the exact score adds 20.
pub fn explain(forecast: Forecast, rules: RulesVersion, outcome: Outcome) -> Vec<PointsPart> {
    let (Outcome::Result { home, away }, Some(earnings)) = (outcome, forecast.earnings(rules, outcome)) else {
        return Vec::new();
    };
    let (pick, winner) = (forecast.pick(), Pick::of(home, away));
    let mut parts = Vec::with_capacity(4);
    let mut given = 0;
    // Each step adds the points of its hit less those that earlier steps added.
    let mut step = |part, hit: Hit, is_reached: bool, reason| {
        let points = if is_reached { hit.points() - given } else { 0 };
        given += points;
        parts.push(PointsPart { part, points, reason });
    };
    let is_right = earnings.hit != Hit::Wrong;
    step(PointsReason::Outcome, Hit::Outcome, is_right, outcome_reason(pick, winner));
    if let Some(score) = forecast.score() {
        if forecast.can_hit(Hit::Difference) {
            let is_reached = matches!(earnings.hit, Hit::Difference | Hit::Exact);
            step(PointsReason::GoalDifference, Hit::Difference, is_reached, difference_reason(score, home - away));
        }
        step(PointsReason::ExactScore, Hit::Exact, earnings.hit == Hit::Exact, score_reason(score, home, away));
    }
    let reason = confidence_reason(forecast.confidence().percent(), is_right);
    parts.push(PointsPart { part: PointsReason::Confidence, points: earnings.stake, reason });
    parts
}

fn outcome_reason(pick: Pick, winner: Pick) -> String {
    let won = match winner {
        Pick::Home => "The home team won",
        Pick::Draw => "Nobody won",
        Pick::Away => "The away team won",
    };
    let said = match pick {
        _ if pick == winner => "as you said",
        Pick::Home => "and you said that the home team would",
        Pick::Draw => "and you said that nobody would",
        Pick::Away => "and you said that the away team would",
    };
    format!("{won}, {said}.")
}

/// `difference` belongs to the result; it is positive if the home team won.
fn difference_reason(score: Score, difference: i32) -> String {
    let said = i32::from(score.home()) - i32::from(score.away());
    let goals = |number: i32| if number == 1 { "1 goal".to_owned() } else { format!("{number} goals") };
    if said == difference {
        format!("It was won by {}, as you said.", goals(said.abs()))
    } else if said.signum() == difference.signum() {
        format!("It was won by {}, and you said by {}.", goals(difference.abs()), goals(said.abs()))
    } else {
        "The difference counts only with the right outcome.".to_owned()
    }
}

fn score_reason(score: Score, home: i32, away: i32) -> String {
    if (i32::from(score.home()), i32::from(score.away())) == (home, away) {
        format!("It ended {home}:{away}, as you said.")
    } else {
        format!("It ended {home}:{away}, and you said {}:{}.", score.home(), score.away())
    }
}

fn confidence_reason(percent: i16, is_right: bool) -> String {
    match (percent, is_right) {
        (0, _) => "You did not say how sure you were, so nothing was at stake.".to_owned(),
        (_, true) => format!("You were {percent} percent sure, and right."),
        (_, false) => format!("You were {percent} percent sure, and wrong."),
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::forecast::tests::forecast;

    const RULES: RulesVersion = RulesVersion::CURRENT;

    fn explained(forecast: Forecast, home: i32, away: i32) -> String {
        let parts = explain(forecast, RULES, Outcome::Result { home, away });
        let lines: Vec<String> =
            parts.iter().map(|part| format!("{:?} {}: {}", part.part, part.points, part.reason)).collect();
        lines.join("\n")
    }

    #[test]
    fn every_part_has_a_reason() {
        insta::assert_snapshot!(explained(forecast(Pick::Home, Some((2, 1)), 75), 2, 1), @r"
        Outcome 20: The home team won, as you said.
        GoalDifference 10: It was won by 1 goal, as you said.
        ExactScore 10: It ended 2:1, as you said.
        Confidence 19: You were 75 percent sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Away, Some((0, 2)), 10), 1, 3), @r"
        Outcome 20: The away team won, as you said.
        GoalDifference 10: It was won by 2 goals, as you said.
        ExactScore 0: It ended 1:3, and you said 0:2.
        Confidence 4: You were 10 percent sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Home, Some((3, 0)), 0), 1, 0), @r"
        Outcome 20: The home team won, as you said.
        GoalDifference 0: It was won by 1 goal, and you said by 3 goals.
        ExactScore 0: It ended 1:0, and you said 3:0.
        Confidence 0: You did not say how sure you were, so nothing was at stake.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Draw, Some((1, 1)), 50), 1, 1), @r"
        Outcome 20: Nobody won, as you said.
        ExactScore 20: It ended 1:1, as you said.
        Confidence 15: You were 50 percent sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Draw, Some((0, 0)), 50), 1, 1), @r"
        Outcome 20: Nobody won, as you said.
        ExactScore 0: It ended 1:1, and you said 0:0.
        Confidence 15: You were 50 percent sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Home, Some((2, 1)), 100), 1, 2), @r"
        Outcome 0: The away team won, and you said that the home team would.
        GoalDifference 0: The difference counts only with the right outcome.
        ExactScore 0: It ended 1:2, and you said 2:1.
        Confidence -20: You were 100 percent sure, and wrong.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Draw, None, 5), 1, 0), @r"
        Outcome 0: The home team won, and you said that nobody would.
        Confidence 0: You were 5 percent sure, and wrong.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Away, None, 1), 0, 0), @r"
        Outcome 0: Nobody won, and you said that the away team would.
        Confidence 0: You were 1 percent sure, and wrong.
        ");
    }

    #[test]
    fn no_parts_without_a_result() {
        for outcome in [Outcome::Open, Outcome::Void] {
            assert_eq!(explain(forecast(Pick::Home, Some((2, 1)), 100), RULES, outcome), []);
        }
    }

    #[test]
    fn late_prediction_never_counts_and_void_comes_first() {
        let result = Outcome::Result { home: 1, away: 0 };
        for (is_in_time, outcome, expected) in [
            (true, Outcome::Open, PredictionState::Open),
            (true, result, PredictionState::Settled),
            (true, Outcome::Void, PredictionState::Void),
            (false, Outcome::Open, PredictionState::Late),
            (false, result, PredictionState::Late),
            (false, Outcome::Void, PredictionState::Void),
        ] {
            assert_eq!(PredictionState::of(is_in_time, outcome), expected);
        }
    }

    proptest! {
        #[test]
        fn parts_add_up_to_the_points(
            goals in (0_i64..=9, 0_i64..=9), scored: bool, confidence in 0_i64..=100, home in 0..=9, away in 0..=9,
        ) {
            let pick = Score::new(goals.0, goals.1).expect("a score").pick();
            let forecast = forecast(pick, scored.then_some(goals), confidence);
            let outcome = Outcome::Result { home, away };
            let parts = explain(forecast, RULES, outcome);
            let total: i32 = parts.iter().map(|part| part.points).sum();
            prop_assert_eq!(Some(total), forecast.points(RULES, outcome));
            let negative = |part: &&PointsPart| part.points < 0;
            prop_assert!(parts.iter().filter(negative).all(|part| part.part == PointsReason::Confidence));
        }
    }
}
