//! Explains the points of a prediction: parts that add up to its points, each with a sentence for the user.

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
    /// The prediction was made after the match started, so it does not count.
    Late,
}

impl PredictionState {
    /// `is_in_time` is true if the prediction was made before the match started.
    pub fn of(is_in_time: bool, outcome: Outcome) -> Self {
        match outcome {
            // Checked first: a late prediction on a void match is void, not late.
            Outcome::Void => Self::Void,
            _ if !is_in_time => Self::Late,
            Outcome::Result { .. } => Self::Settled,
            Outcome::Open => Self::Open,
        }
    }
}

/// Aspect of a prediction that earns points.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(rename_all = "snake_case")]
pub enum PointsReason {
    /// The winner, or a draw.
    Outcome,
    /// The difference between the goals of the two teams.
    GoalDifference,
    /// The goals of both teams.
    ExactScore,
    /// Points won or lost through the confidence.
    Confidence,
}

/// Points that a prediction earned for one aspect.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct PointsPart {
    part: PointsReason,
    /// Points for this aspect. All parts add up to the points of the prediction.
    #[cfg_attr(feature = "openapi", schema(example = 20))]
    points: i32,
    /// Sentence for the user that explains these points.
    #[cfg_attr(feature = "openapi", schema(example = "The home team won, as you predicted."))]
    reason: String,
}

/// Explains the points of a forecast. Returns a part for every aspect that could have earned points, including aspects
/// that earned none. Returns no parts if the match has no result.
///
/// The parts are increments. A right goal difference is worth 30 points: 20 for the outcome and 10 more for the
/// difference. An exact score is worth 40: another 10. A draw has no goal difference part, so its exact score adds 20.
pub fn explain(forecast: Forecast, rules: RulesVersion, outcome: Outcome) -> Vec<PointsPart> {
    let (Outcome::Result { home, away }, Some(earnings)) = (outcome, forecast.earnings(rules, outcome)) else {
        return Vec::new();
    };
    let (pick, winner) = (forecast.pick(), Pick::of(home, away));
    let mut parts = Vec::with_capacity(4);
    let mut given = 0;
    // Each step adds the points of its hit minus the points that earlier steps added.
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
        Pick::Draw => "The match was a draw",
        Pick::Away => "The away team won",
    };
    let predicted = match pick {
        _ if pick == winner => ", as you predicted",
        Pick::Home => "; you predicted a home win",
        Pick::Draw => "; you predicted a draw",
        Pick::Away => "; you predicted an away win",
    };
    format!("{won}{predicted}.")
}

/// `difference` is the goal difference of the result, positive if the home team won.
fn difference_reason(score: Score, difference: i32) -> String {
    let predicted = i32::from(score.home()) - i32::from(score.away());
    let goals = |number: i32| if number == 1 { "1 goal".to_owned() } else { format!("{number} goals") };
    if predicted == difference {
        format!("The winning margin was {}, as you predicted.", goals(predicted.abs()))
    } else if predicted.signum() == difference.signum() {
        format!("The winning margin was {}; you predicted {}.", goals(difference.abs()), goals(predicted.abs()))
    } else {
        "The goal difference counts only with the right outcome.".to_owned()
    }
}

fn score_reason(score: Score, home: i32, away: i32) -> String {
    if (i32::from(score.home()), i32::from(score.away())) == (home, away) {
        format!("The score was {home}–{away}, as you predicted.")
    } else {
        format!("The score was {home}–{away}; you predicted {}–{}.", score.home(), score.away())
    }
}

fn confidence_reason(percent: i16, is_right: bool) -> String {
    match (percent, is_right) {
        (0, _) => "Your confidence was 0%, so nothing was at stake.".to_owned(),
        (_, true) => format!("You were {percent}% sure, and right."),
        (_, false) => format!("You were {percent}% sure, and wrong."),
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
        Outcome 20: The home team won, as you predicted.
        GoalDifference 10: The winning margin was 1 goal, as you predicted.
        ExactScore 10: The score was 2–1, as you predicted.
        Confidence 19: You were 75% sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Away, Some((0, 2)), 10), 1, 3), @r"
        Outcome 20: The away team won, as you predicted.
        GoalDifference 10: The winning margin was 2 goals, as you predicted.
        ExactScore 0: The score was 1–3; you predicted 0–2.
        Confidence 4: You were 10% sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Home, Some((3, 0)), 0), 1, 0), @r"
        Outcome 20: The home team won, as you predicted.
        GoalDifference 0: The winning margin was 1 goal; you predicted 3 goals.
        ExactScore 0: The score was 1–0; you predicted 3–0.
        Confidence 0: Your confidence was 0%, so nothing was at stake.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Draw, Some((1, 1)), 50), 1, 1), @r"
        Outcome 20: The match was a draw, as you predicted.
        ExactScore 20: The score was 1–1, as you predicted.
        Confidence 15: You were 50% sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Draw, Some((0, 0)), 50), 1, 1), @r"
        Outcome 20: The match was a draw, as you predicted.
        ExactScore 0: The score was 1–1; you predicted 0–0.
        Confidence 15: You were 50% sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Home, Some((2, 1)), 100), 1, 2), @r"
        Outcome 0: The away team won; you predicted a home win.
        GoalDifference 0: The goal difference counts only with the right outcome.
        ExactScore 0: The score was 1–2; you predicted 2–1.
        Confidence -20: You were 100% sure, and wrong.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Draw, None, 5), 1, 0), @r"
        Outcome 0: The home team won; you predicted a draw.
        Confidence 0: You were 5% sure, and wrong.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Away, None, 1), 0, 0), @r"
        Outcome 0: The match was a draw; you predicted an away win.
        Confidence 0: You were 1% sure, and wrong.
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
