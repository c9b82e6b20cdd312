//! Explains the points of a prediction: parts that add up to its points, each with a sentence for the user.

use serde::Serialize;

use crate::{
    forecast::{Forecast, Pick, Score, Side},
    outcome::Outcome,
    points::Hit,
    rule_set::{Margin, Multiplier, Terms},
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
    /// A difference that is almost right.
    Margin,
    /// The difference between the scores of the two teams.
    GoalDifference,
    /// The scores of both teams.
    ExactScore,
    /// Points won or lost through the confidence.
    Confidence,
    /// The team that advances.
    Advances,
    /// Points added by the multiplier of the match; negative if the sum is.
    Multiplier,
    /// Points added by the joker; negative if the sum is.
    Joker,
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
/// The parts are increments. In the default rule set, a right goal difference is worth 30 points: 20 for the outcome and
/// 10 more for the difference. An exact score is worth 40: another 10. A draw has no goal difference part, so its exact
/// score adds 20.
pub fn explain(forecast: Forecast, terms: &Terms, outcome: Outcome) -> Vec<PointsPart> {
    let (Outcome::Result { home, away, advanced }, Some(earnings)) = (outcome, forecast.earnings(terms, outcome))
    else {
        return Vec::new();
    };
    let (rules, hit, is_right) = (&terms.rules, earnings.hit, earnings.hit != Hit::Wrong);
    let mut parts = Vec::with_capacity(8);
    let mut given = 0;
    // Each step adds the points of its hit minus the points that earlier steps added.
    let mut step = |part, value: i32, is_reached: bool, reason| {
        let points = if is_reached { (value - given).max(0) } else { 0 };
        given += points;
        parts.push(PointsPart { part, points, reason });
    };
    step(PointsReason::Outcome, rules.outcome, is_right, outcome_reason(forecast.pick(), Pick::of(home, away)));
    if let Some(score) = forecast.score() {
        let difference = home - away;
        if let Some(margin) = rules.margin.filter(|_| forecast.can_hit(rules, Hit::Margin)) {
            // A difference or score that is exactly right is within the margin too.
            let is_reached = matches!(hit, Hit::Margin | Hit::Difference | Hit::Exact);
            step(PointsReason::Margin, margin.points, is_reached, margin_reason(score, margin, difference, is_right));
        }
        if forecast.can_hit(rules, Hit::Difference) {
            let is_reached = matches!(hit, Hit::Difference | Hit::Exact);
            step(PointsReason::GoalDifference, rules.difference, is_reached, difference_reason(score, difference));
        }
        step(PointsReason::ExactScore, rules.exact, hit == Hit::Exact, score_reason(score, home, away));
    }
    let mut add = |part, points, reason| parts.push(PointsPart { part, points, reason });
    let reason = confidence_reason(forecast.confidence().percent(), is_right);
    add(PointsReason::Confidence, earnings.stake, reason);
    if let Some(named) = forecast.advances().filter(|_| terms.is_knockout) {
        add(PointsReason::Advances, earnings.advances, advances_reason(named, advanced));
    }
    if terms.multiplier != Multiplier::One {
        let times = match terms.multiplier {
            Multiplier::One => "once",
            Multiplier::OneAndHalf => "1.5 times",
            Multiplier::Two => "twice",
            Multiplier::Three => "three times",
        };
        let reason = format!("All points of this match count {times}.");
        add(PointsReason::Multiplier, earnings.multiplied() - earnings.sum(), reason);
    }
    if forecast.joker() {
        let reason = "Your joker doubled all points of this match.".to_owned();
        add(PointsReason::Joker, earnings.total() - earnings.multiplied(), reason);
    }
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

/// `difference` is the difference of the result, positive if the home team won.
fn difference_reason(score: Score, difference: i32) -> String {
    let predicted = predicted_difference(score);
    if predicted == difference {
        format!("The winning margin was {}, as you predicted.", predicted.abs())
    } else if predicted.signum() == difference.signum() {
        format!("The winning margin was {}; you predicted {}.", difference.abs(), predicted.abs())
    } else {
        "The winning margin counts only with the right outcome.".to_owned()
    }
}

fn margin_reason(score: Score, margin: Margin, difference: i32, is_right: bool) -> String {
    let (within, off_by) = (margin.within, (predicted_difference(score) - difference).abs());
    if !is_right {
        "A close winning margin counts only with the right outcome.".to_owned()
    } else if off_by <= within {
        format!("Your winning margin was off by {off_by}, and up to {within} is close enough.")
    } else {
        format!("Your winning margin was off by {off_by}; only up to {within} is close enough.")
    }
}

fn predicted_difference(score: Score) -> i32 {
    i32::from(score.home()) - i32::from(score.away())
}

fn advances_reason(named: Side, advanced: Option<Side>) -> String {
    let team = |side| match side {
        Side::Home => "home team",
        Side::Away => "away team",
    };
    match advanced {
        None => "It is not known yet which team advances.".to_owned(),
        Some(advanced) if advanced == named => format!("The {} advanced, as you predicted.", team(advanced)),
        Some(advanced) => format!("The {} advanced; you predicted the {}.", team(advanced), team(named)),
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
    use crate::{
        forecast::tests::forecast,
        rule_set::{RuleSet, tests::any_terms},
    };

    const TERMS: Terms = Terms::DEFAULT;

    fn explained(forecast: Forecast, home: i32, away: i32) -> String {
        explained_on(&TERMS, forecast, Outcome::result(home, away))
    }

    fn explained_on(terms: &Terms, forecast: Forecast, outcome: Outcome) -> String {
        let parts = explain(forecast, terms, outcome);
        let lines: Vec<String> =
            parts.iter().map(|part| format!("{:?} {}: {}", part.part, part.points, part.reason)).collect();
        lines.join("\n")
    }

    #[test]
    fn every_part_has_a_reason() {
        insta::assert_snapshot!(explained(forecast(Pick::Home, Some((2, 1)), 75), 2, 1), @r"
        Outcome 20: The home team won, as you predicted.
        GoalDifference 10: The winning margin was 1, as you predicted.
        ExactScore 10: The score was 2–1, as you predicted.
        Confidence 19: You were 75% sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Away, Some((0, 2)), 10), 1, 3), @r"
        Outcome 20: The away team won, as you predicted.
        GoalDifference 10: The winning margin was 2, as you predicted.
        ExactScore 0: The score was 1–3; you predicted 0–2.
        Confidence 4: You were 10% sure, and right.
        ");
        insta::assert_snapshot!(explained(forecast(Pick::Home, Some((3, 0)), 0), 1, 0), @r"
        Outcome 20: The home team won, as you predicted.
        GoalDifference 0: The winning margin was 1; you predicted 3.
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
        GoalDifference 0: The winning margin counts only with the right outcome.
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
    fn optional_parts_appear_where_they_apply() {
        let rules = RuleSet { margin: Some(Margin { within: 1, points: 25 }), ..RuleSet::DEFAULT };
        let terms = Terms { rules, multiplier: Multiplier::OneAndHalf, is_knockout: true };
        let forecast = forecast(Pick::Home, Some((2, 1)), 75).with_advances(Some(Side::Home)).with_joker(true);
        let outcome = |home, away, advanced| Outcome::Result { home, away, advanced };
        insta::assert_snapshot!(explained_on(&terms, forecast, outcome(2, 1, Some(Side::Home))), @r"
        Outcome 20: The home team won, as you predicted.
        Margin 5: Your winning margin was off by 0, and up to 1 is close enough.
        GoalDifference 5: The winning margin was 1, as you predicted.
        ExactScore 10: The score was 2–1, as you predicted.
        Confidence 19: You were 75% sure, and right.
        Advances 10: The home team advanced, as you predicted.
        Multiplier 35: All points of this match count 1.5 times.
        Joker 103: Your joker doubled all points of this match.
        ");
        insta::assert_snapshot!(explained_on(&terms, forecast, outcome(4, 1, Some(Side::Away))), @r"
        Outcome 20: The home team won, as you predicted.
        Margin 0: Your winning margin was off by 2; only up to 1 is close enough.
        GoalDifference 0: The winning margin was 3; you predicted 1.
        ExactScore 0: The score was 4–1; you predicted 2–1.
        Confidence 19: You were 75% sure, and right.
        Advances 0: The away team advanced; you predicted the home team.
        Multiplier 20: All points of this match count 1.5 times.
        Joker 58: Your joker doubled all points of this match.
        ");
        insta::assert_snapshot!(explained_on(&terms, forecast, outcome(1, 1, None)), @r"
        Outcome 0: The match was a draw; you predicted a home win.
        Margin 0: A close winning margin counts only with the right outcome.
        GoalDifference 0: The winning margin counts only with the right outcome.
        ExactScore 0: The score was 1–1; you predicted 2–1.
        Confidence -11: You were 75% sure, and wrong.
        Advances 0: It is not known yet which team advances.
        Multiplier -6: All points of this match count 1.5 times.
        Joker -16: Your joker doubled all points of this match.
        ");
    }

    #[test]
    fn no_parts_without_a_result() {
        for outcome in [Outcome::Open, Outcome::Void] {
            assert_eq!(explain(forecast(Pick::Home, Some((2, 1)), 100), &TERMS, outcome), []);
        }
    }

    #[test]
    fn late_prediction_never_counts_and_void_comes_first() {
        let result = Outcome::result(1, 0);
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
            terms in any_terms(), joker: bool,
            named in prop::sample::select(&[None, Some(Side::Home), Some(Side::Away)][..]),
            advanced in prop::sample::select(&[None, Some(Side::Home), Some(Side::Away)][..]),
        ) {
            let pick = Score::new(goals.0, goals.1).expect("a score").pick();
            let forecast = forecast(pick, scored.then_some(goals), confidence).with_advances(named).with_joker(joker);
            let outcome = Outcome::Result { home, away, advanced };
            let parts = explain(forecast, &terms, outcome);
            let total: i32 = parts.iter().map(|part| part.points).sum();
            prop_assert_eq!(Some(total), forecast.points(&terms, outcome));
            let may_cost = [PointsReason::Confidence, PointsReason::Multiplier, PointsReason::Joker];
            prop_assert!(parts.iter().all(|part| part.points >= 0 || may_cost.contains(&part.part)));
        }
    }
}
