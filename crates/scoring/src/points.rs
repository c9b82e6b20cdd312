//! Points of a forecast for an outcome.

use crate::{
    forecast::{Confidence, Forecast, Pick},
    outcome::Outcome,
};

/// Version of the points rules. A match keeps the version it was imported under, so a new version does not change points
/// that users already have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesVersion {
    /// The best hit counts: 40 points for the exact score, 30 for the goal difference of a match that was not drawn, 20
    /// for the outcome. The confidence adds or subtracts up to 20.
    First,
}

impl RulesVersion {
    /// The version that new matches get.
    pub const CURRENT: Self = Self::First;

    /// Number in the API and in the database.
    pub fn number(self) -> i16 {
        match self {
            Self::First => 1,
        }
    }
}

/// A rules version that this binary does not implement.
#[derive(Debug, thiserror::Error)]
#[error("there are no rules with version {0}")]
pub struct UnknownRules(i16);

impl TryFrom<i16> for RulesVersion {
    type Error = UnknownRules;

    fn try_from(number: i16) -> Result<Self, UnknownRules> {
        match number {
            1 => Ok(Self::First),
            other => Err(UnknownRules(other)),
        }
    }
}

/// How well a forecast fits the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The pick is wrong.
    Wrong,
    /// The pick is right.
    Outcome,
    /// The winner and the goal difference are right.
    Difference,
    /// The score is right.
    Exact,
}

impl Hit {
    /// Points before the stake.
    pub fn points(self) -> i32 {
        match self {
            Self::Wrong => 0,
            Self::Outcome => 20,
            Self::Difference => 30,
            Self::Exact => 40,
        }
    }
}

/// Points by component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earnings {
    /// How well the forecast fits the result.
    pub hit: Hit,
    /// Points that the confidence added, or took if negative.
    pub stake: i32,
}

impl Earnings {
    /// Sum of both components.
    pub fn total(self) -> i32 {
        self.hit.points() + self.stake
    }
}

impl Confidence {
    /// Points that the confidence adds. With q the confidence from 0 to 1, that is 20·(2q − q²) if the pick was right and
    /// −20·q² if it was wrong. A user who is right with probability p expects 20·(2pq − q²), which is greatest for q = p,
    /// so stating one's honest confidence pays best. Both are rounded to whole points; no confidence gives a half.
    fn stake(self, right: bool) -> i32 {
        let percent = i32::from(self.percent());
        // 20·q² is percent² / 500.
        let rounded = |five_hundredths: i32| (five_hundredths + 250) / 500;
        if right { rounded(200 * percent - percent * percent) } else { -rounded(percent * percent) }
    }
}

impl Forecast {
    /// Points from −20 to 60; `None` while the match has no result, and for good if it is void. The SQL function
    /// `prediction_points` computes the same.
    pub fn points(self, rules: RulesVersion, outcome: Outcome) -> Option<i32> {
        self.earnings(rules, outcome).map(Earnings::total)
    }

    /// [`Forecast::points`] by component.
    pub fn earnings(self, rules: RulesVersion, outcome: Outcome) -> Option<Earnings> {
        let Outcome::Result { home, away } = outcome else { return None };
        let goals = self.score().map(|score| (i32::from(score.home()), i32::from(score.away())));
        let hit = match goals {
            _ if self.pick() != Pick::of(home, away) => Hit::Wrong,
            Some(predicted) if predicted == (home, away) => Hit::Exact,
            // All draws have the same difference, so for a draw it adds nothing to the pick.
            Some((h, a)) if h - a == home - away && home != away => Hit::Difference,
            _ => Hit::Outcome,
        };
        Some(self.earnings_for(rules, hit))
    }

    fn earnings_for(self, rules: RulesVersion, hit: Hit) -> Earnings {
        let RulesVersion::First = rules;
        Earnings { hit, stake: self.confidence().stake(hit != Hit::Wrong) }
    }

    /// Whether a result exists for which the forecast gets this hit. A forecast without a score cannot hit more than the
    /// outcome, and a draw has no difference to hit.
    pub(crate) fn can_hit(self, hit: Hit) -> bool {
        match hit {
            Hit::Wrong | Hit::Outcome => true,
            Hit::Difference => self.score().is_some() && self.pick() != Pick::Draw,
            Hit::Exact => self.score().is_some(),
        }
    }
}

/// Points that a forecast would earn for each possible hit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview {
    /// The rules that apply to the match.
    pub rules: RulesVersion,
    /// Points for the right outcome.
    pub right: i32,
    /// Points for the right goal difference; `None` without a score, and for a draw.
    pub goal_difference: Option<i32>,
    /// Points for the exact score; `None` without a score.
    pub exact_score: Option<i32>,
    /// Points for the wrong outcome: zero or negative.
    pub wrong: i32,
}

impl Preview {
    /// Points of a forecast under these rules.
    pub fn of(forecast: Forecast, rules: RulesVersion) -> Self {
        let points = |hit| forecast.earnings_for(rules, hit).total();
        let possible = |hit| forecast.can_hit(hit).then(|| points(hit));
        Self {
            rules,
            right: points(Hit::Outcome),
            goal_difference: possible(Hit::Difference),
            exact_score: possible(Hit::Exact),
            wrong: points(Hit::Wrong),
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::forecast::{Score, tests::forecast};

    const RULES: RulesVersion = RulesVersion::CURRENT;

    fn result(home: i32, away: i32) -> Outcome {
        Outcome::Result { home, away }
    }

    #[test]
    fn best_of_score_difference_and_outcome_counts() {
        for (pick, score, (home, away), expected) in [
            (Pick::Home, Some((2, 1)), (2, 1), 40),
            (Pick::Home, Some((3, 2)), (2, 1), 30),
            (Pick::Home, Some((3, 1)), (2, 1), 20),
            (Pick::Home, None, (2, 1), 20),
            (Pick::Home, Some((2, 1)), (1, 2), 0),
            (Pick::Home, Some((1, 0)), (0, 0), 0),
            (Pick::Away, Some((0, 2)), (0, 2), 40),
            (Pick::Away, Some((1, 3)), (0, 2), 30),
            (Pick::Away, Some((0, 1)), (0, 2), 20),
            (Pick::Away, None, (2, 0), 0),
            (Pick::Draw, Some((1, 1)), (1, 1), 40),
            (Pick::Draw, Some((0, 0)), (1, 1), 20),
            (Pick::Draw, None, (1, 1), 20),
            (Pick::Draw, None, (1, 0), 0),
            (Pick::Home, Some((99, 0)), (999, 0), 20),
        ] {
            let points = forecast(pick, score, 0).points(RULES, result(home, away));
            assert_eq!(points, Some(expected), "{pick:?} {score:?} of {home}:{away}");
        }
    }

    #[test]
    fn confidence_adds_if_right_and_subtracts_if_wrong() {
        for (confidence, gain, loss) in
            [(0, 0, 0), (1, 0, 0), (10, 4, 0), (25, 9, -1), (50, 15, -5), (75, 19, -11), (90, 20, -16), (100, 20, -20)]
        {
            let staked = forecast(Pick::Home, None, confidence);
            assert_eq!(staked.points(RULES, result(1, 0)), Some(20 + gain), "{confidence} and right");
            assert_eq!(staked.points(RULES, result(0, 1)), Some(loss), "{confidence} and wrong");
        }
    }

    #[test]
    fn no_points_without_a_result() {
        for outcome in [Outcome::Open, Outcome::Void] {
            assert_eq!(forecast(Pick::Home, Some((2, 1)), 100).points(RULES, outcome), None);
        }
    }

    #[test]
    fn no_confidence_gives_half_a_point() {
        for percent in 0..=100 {
            assert_ne!((200 * percent - percent * percent) % 500, 250, "{percent} and right");
            assert_ne!(percent * percent % 500, 250, "{percent} and wrong");
        }
    }

    prop_compose! {
        fn any_forecast()(home in 0_i64..=99, away in 0_i64..=99, scored: bool, confidence in 0_i64..=100) -> Forecast {
            let score = Score::new(home, away).expect("a score");
            forecast(score.pick(), scored.then_some((home, away)), confidence)
        }
    }

    proptest! {
        #[test]
        fn points_stay_in_range(forecast in any_forecast(), home in 0..=999, away in 0..=999) {
            let points = forecast.points(RULES, result(home, away)).expect("points");
            let range = if forecast.pick() == Pick::of(home, away) { 20..=60 } else { -20..=0 };
            prop_assert!(range.contains(&points), "{points}");
        }

        #[test]
        fn swapping_the_teams_keeps_the_points(forecast in any_forecast(), home in 0..=9, away in 0..=9) {
            let pick = match forecast.pick() {
                Pick::Home => Pick::Away,
                Pick::Draw => Pick::Draw,
                Pick::Away => Pick::Home,
            };
            let score = forecast.score().and_then(|score| Score::new(score.away().into(), score.home().into()));
            let mirrored = Forecast::new(pick, score, forecast.confidence()).expect("no contradiction");
            prop_assert_eq!(forecast.points(RULES, result(home, away)), mirrored.points(RULES, result(away, home)));
        }

        #[test]
        fn score_never_costs_points(forecast in any_forecast(), home in 0..=9, away in 0..=9) {
            let bare = Forecast::new(forecast.pick(), None, forecast.confidence()).expect("no contradiction");
            prop_assert!(forecast.points(RULES, result(home, away)) >= bare.points(RULES, result(home, away)));
        }

        #[test]
        fn higher_confidence_raises_the_stake(less in 0_i64..=100, more in 0_i64..=100) {
            let (less, more) = (less.min(more), less.max(more));
            let points = |confidence, outcome| forecast(Pick::Home, None, confidence).points(RULES, outcome);
            prop_assert!(points(less, result(1, 0)) <= points(more, result(1, 0)));
            prop_assert!(points(less, result(0, 1)) >= points(more, result(0, 1)));
        }

        /// Within the rounding of the two stakes.
        #[test]
        fn honest_confidence_has_the_best_expectation(chance in 0_i32..=100, claimed in 0_i64..=100) {
            let expected = |confidence: i64| {
                let confidence = Confidence::new(confidence).expect("a confidence");
                chance * confidence.stake(true) + (100 - chance) * confidence.stake(false)
            };
            prop_assert!(expected(chance.into()) >= expected(claimed) - 100);
        }
    }
}
