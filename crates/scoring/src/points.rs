//! Computes the points of a forecast for an outcome.

use crate::{
    forecast::{Confidence, Forecast, Pick},
    outcome::Outcome,
};

/// Version of the points rules. A match keeps the version it was imported with, so a new version does not change points
/// that users have already earned.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesVersion {
    /// Only the best hit counts: 40 points for the exact score, 30 for the goal difference if the match was not a draw,
    /// 20 for the outcome. The confidence adds or subtracts up to 20 points.
    First,
}

impl RulesVersion {
    /// Version assigned to new matches.
    pub const CURRENT: Self = Self::First;

    /// Version number in the API and in the database.
    pub fn number(self) -> i16 {
        match self {
            Self::First => 1,
        }
    }
}

/// Error for a rules version that this binary does not implement.
#[derive(Debug, thiserror::Error)]
#[error("points rules version {0} is not supported")]
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

/// How closely a forecast matches the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The pick is wrong.
    Wrong,
    /// The pick is right.
    Outcome,
    /// The winner and the goal difference are right.
    Difference,
    /// The score is exactly right.
    Exact,
}

impl Hit {
    /// Points for this hit, without the stake.
    pub fn points(self) -> i32 {
        match self {
            Self::Wrong => 0,
            Self::Outcome => 20,
            Self::Difference => 30,
            Self::Exact => 40,
        }
    }
}

/// Points of a forecast, split into hit and stake.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earnings {
    pub hit: Hit,
    /// Points that the confidence added; negative if it cost points.
    pub stake: i32,
}

impl Earnings {
    pub fn total(self) -> i32 {
        self.hit.points() + self.stake
    }
}

impl Confidence {
    /// Returns the points that the confidence adds. With confidence q from 0 to 1, this is 20·(2q − q²) if the pick was
    /// right and −20·q² if it was wrong. A user who is right with probability p expects 20·(2pq − q²), which is
    /// greatest for q = p, so an honest confidence maximises the expected points. Both values are rounded to whole
    /// points; no percentage produces an exact half.
    fn stake(self, right: bool) -> i32 {
        let percent = i32::from(self.percent());
        // With q = percent / 100, 20·q² equals percent² / 500.
        let rounded = |five_hundredths: i32| (five_hundredths + 250) / 500;
        if right { rounded(200 * percent - percent * percent) } else { -rounded(percent * percent) }
    }
}

impl Forecast {
    /// Returns the points, from −20 to 60; `None` if the match has no result yet or is void. The SQL function
    /// `prediction_points` computes the same value.
    pub fn points(self, rules: RulesVersion, outcome: Outcome) -> Option<i32> {
        self.earnings(rules, outcome).map(Earnings::total)
    }

    /// Returns [`Forecast::points`] split into hit and stake.
    pub fn earnings(self, rules: RulesVersion, outcome: Outcome) -> Option<Earnings> {
        let Outcome::Result { home, away } = outcome else { return None };
        let goals = self.score().map(|score| (i32::from(score.home()), i32::from(score.away())));
        let hit = match goals {
            _ if self.pick() != Pick::of(home, away) => Hit::Wrong,
            Some(predicted) if predicted == (home, away) => Hit::Exact,
            // All draws have the same goal difference, so for a draw it adds nothing to the pick.
            Some((h, a)) if h - a == home - away && home != away => Hit::Difference,
            _ => Hit::Outcome,
        };
        Some(self.earnings_for(rules, hit))
    }

    fn earnings_for(self, rules: RulesVersion, hit: Hit) -> Earnings {
        let RulesVersion::First = rules;
        Earnings { hit, stake: self.confidence().stake(hit != Hit::Wrong) }
    }

    /// Whether any result gives the forecast this hit. A forecast without a score can hit only the outcome, and a draw
    /// has no goal difference to hit.
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
    /// Points rules of the match.
    pub rules: RulesVersion,
    /// Points if only the outcome is right.
    pub right: i32,
    /// Points if the goal difference is right; `None` without a score and for a draw.
    pub goal_difference: Option<i32>,
    /// Points if the score is exactly right; `None` without a score.
    pub exact_score: Option<i32>,
    /// Points if the outcome is wrong: zero or negative.
    pub wrong: i32,
}

impl Preview {
    /// Computes the points of a forecast under these rules.
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
    fn stakes_never_need_to_round_a_half() {
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

        /// The comparison tolerates the rounding of the two stakes.
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
