//! Computes the points of a forecast for an outcome.

use crate::{
    forecast::{Confidence, Forecast, Pick},
    outcome::Outcome,
    rule_set::{Multiplier, RuleSet, Terms},
};

/// How closely a forecast matches the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// The pick is wrong.
    Wrong,
    /// The pick is right.
    Outcome,
    /// The winner is right, and the difference is within the margin of the rule set.
    Margin,
    /// The winner and the difference are right.
    Difference,
    /// The score is exactly right.
    Exact,
}

impl RuleSet {
    /// Points for a hit, without stake, multiplier and joker.
    pub fn base(&self, hit: Hit) -> i32 {
        // A right difference is also within the margin, which may be worth more.
        let margin = self.margin.map_or(self.outcome, |margin| margin.points);
        match hit {
            Hit::Wrong => 0,
            Hit::Outcome => self.outcome,
            Hit::Margin => margin,
            Hit::Difference => self.difference.max(margin),
            Hit::Exact => self.exact,
        }
    }

    /// Returns the points that a confidence adds. With confidence q from 0 to 1, this is stake·(2q − q²) if the pick
    /// was right and −stake·q² if it was wrong. A user who is right with probability p expects stake·(2pq − q²), which
    /// is greatest for q = p, so an honest confidence maximises the expected points. Both values are rounded to whole
    /// points, halves away from zero.
    fn stake_of(&self, confidence: Confidence, right: bool) -> i32 {
        let percent = i32::from(confidence.percent());
        // With q = percent / 100, stake·q² equals stake·percent² / 10,000.
        let rounded = |ten_thousandths: i32| (self.stake * ten_thousandths + 5_000) / 10_000;
        if right { rounded(200 * percent - percent * percent) } else { -rounded(percent * percent) }
    }
}

/// Points of a forecast, by component.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earnings {
    pub hit: Hit,
    /// Points for the hit.
    pub base: i32,
    /// Points that the confidence added; negative if it cost points.
    pub stake: i32,
    /// Points for the team that advanced.
    pub advances: i32,
    multiplier: Multiplier,
    joker: bool,
}

impl Earnings {
    /// Points before multiplier and joker.
    pub fn sum(self) -> i32 {
        self.base + self.stake + self.advances
    }

    /// Points after the multiplier, before the joker.
    pub fn multiplied(self) -> i32 {
        half(self.sum() * i32::from(self.multiplier.halves()))
    }

    /// Multiplier and joker apply to the whole sum, also if it is negative. Their product is rounded once.
    pub fn total(self) -> i32 {
        let factor = if self.joker { 2 } else { 1 };
        half(self.sum() * i32::from(self.multiplier.halves()) * factor)
    }
}

/// Half of a number, rounded to a whole one; halves away from zero.
fn half(number: i32) -> i32 {
    // The division rounds towards zero.
    number - number / 2
}

impl Forecast {
    /// Returns the points; `None` if the match has no result yet or is void. The SQL function `prediction_points`
    /// computes the same value.
    pub fn points(self, terms: &Terms, outcome: Outcome) -> Option<i32> {
        self.earnings(terms, outcome).map(Earnings::total)
    }

    /// Returns the components of [`Forecast::points`].
    pub fn earnings(self, terms: &Terms, outcome: Outcome) -> Option<Earnings> {
        let Outcome::Result { home, away, advanced } = outcome else { return None };
        let has_advanced = terms.is_knockout && advanced.is_some() && self.advances() == advanced;
        let advances = if has_advanced { terms.rules.advances } else { 0 };
        Some(Earnings { advances, ..self.earnings_for(terms, self.hit(&terms.rules, home, away)) })
    }

    fn hit(self, rules: &RuleSet, home: i32, away: i32) -> Hit {
        if self.pick() != Pick::of(home, away) {
            return Hit::Wrong;
        }
        let Some(score) = self.score() else { return Hit::Outcome };
        let (predicted_home, predicted_away) = (i32::from(score.home()), i32::from(score.away()));
        let off_by = ((predicted_home - predicted_away) - (home - away)).abs();
        match rules.margin {
            _ if (predicted_home, predicted_away) == (home, away) => Hit::Exact,
            // All draws have the same difference, so for a draw it adds nothing to the pick.
            _ if home == away => Hit::Outcome,
            _ if off_by == 0 => Hit::Difference,
            Some(margin) if off_by <= margin.within => Hit::Margin,
            _ => Hit::Outcome,
        }
    }

    /// Earnings for a hit, if no team advances.
    fn earnings_for(self, terms: &Terms, hit: Hit) -> Earnings {
        Earnings {
            hit,
            base: terms.rules.base(hit),
            stake: terms.rules.stake_of(self.confidence(), hit != Hit::Wrong),
            advances: 0,
            multiplier: terms.multiplier,
            joker: self.joker(),
        }
    }

    /// Whether any result gives the forecast this hit. A forecast without a score can hit only the outcome, and a draw
    /// has no difference to hit.
    pub(crate) fn can_hit(self, rules: &RuleSet, hit: Hit) -> bool {
        let has_difference = self.score().is_some() && self.pick() != Pick::Draw;
        match hit {
            Hit::Wrong | Hit::Outcome => true,
            Hit::Margin => has_difference && rules.margin.is_some(),
            Hit::Difference => has_difference,
            Hit::Exact => self.score().is_some(),
        }
    }
}

/// Points that a forecast would earn for each possible hit, with multiplier and joker, and without the points for the
/// team that advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Preview {
    /// Points if only the outcome is right.
    pub right: i32,
    /// Points if the difference is within the margin; `None` without a margin in the rule set, without a score, and for
    /// a draw.
    pub margin: Option<i32>,
    /// Points if the difference is right; `None` without a score and for a draw.
    pub goal_difference: Option<i32>,
    /// Points if the score is exactly right; `None` without a score.
    pub exact_score: Option<i32>,
    /// Points if the outcome is wrong: zero or negative.
    pub wrong: i32,
}

impl Preview {
    /// Computes the points of a forecast on these terms.
    pub fn of(forecast: Forecast, terms: &Terms) -> Self {
        let points = |hit| forecast.earnings_for(terms, hit).total();
        let possible = |hit| forecast.can_hit(&terms.rules, hit).then(|| points(hit));
        Self {
            right: points(Hit::Outcome),
            margin: possible(Hit::Margin),
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
    use crate::{
        forecast::{Score, Side, tests::forecast},
        rule_set::{Margin, tests::any_terms},
    };

    const TERMS: Terms = Terms::DEFAULT;

    fn result(home: i32, away: i32) -> Outcome {
        Outcome::result(home, away)
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
            let points = forecast(pick, score, 0).points(&TERMS, result(home, away));
            assert_eq!(points, Some(expected), "{pick:?} {score:?} of {home}:{away}");
        }
    }

    #[test]
    fn confidence_adds_if_right_and_subtracts_if_wrong() {
        for (confidence, gain, loss) in
            [(0, 0, 0), (1, 0, 0), (10, 4, 0), (25, 9, -1), (50, 15, -5), (75, 19, -11), (90, 20, -16), (100, 20, -20)]
        {
            let staked = forecast(Pick::Home, None, confidence);
            assert_eq!(staked.points(&TERMS, result(1, 0)), Some(20 + gain), "{confidence} and right");
            assert_eq!(staked.points(&TERMS, result(0, 1)), Some(loss), "{confidence} and wrong");
        }
    }

    #[test]
    fn no_points_without_a_result() {
        for outcome in [Outcome::Open, Outcome::Void] {
            assert_eq!(forecast(Pick::Home, Some((2, 1)), 100).points(&TERMS, outcome), None);
        }
    }

    #[test]
    fn halves_are_rounded_away_from_zero() {
        assert_eq!([177, 176, 1, 0, -1, -5, -33, -34].map(half), [89, 88, 1, 0, -1, -3, -17, -17]);
        let rules = RuleSet { stake: 10, ..RuleSet::DEFAULT };
        let stake = |right| rules.stake_of(Confidence::new(50).expect("a confidence"), right);
        assert_eq!((stake(true), stake(false)), (8, -3), "7.5 and -2.5");
    }

    #[test]
    fn multiplier_and_joker_apply_to_the_sum() {
        let with = |multiplier| Terms { multiplier, is_knockout: true, ..TERMS };
        let home = forecast(Pick::Home, Some((2, 1)), 75);
        let draw = forecast(Pick::Draw, Some((1, 1)), 50).with_advances(Some(Side::Home));
        for (multiplier, right, wrong, advanced) in [
            (Multiplier::OneAndHalf, 89, -17, 98),
            (Multiplier::Two, 118, -22, 130),
            (Multiplier::Three, 177, -33, 195),
        ] {
            let terms = with(multiplier);
            assert_eq!(home.points(&terms, result(2, 1)), Some(right), "{multiplier}");
            assert_eq!(home.points(&terms, result(1, 1)), Some(wrong), "{multiplier}");
            let outcome = Outcome::Result { home: 1, away: 1, advanced: Some(Side::Home) };
            assert_eq!(draw.points(&terms, outcome), Some(advanced), "{multiplier}");
        }
        for (multiplier, right, wrong) in [(Multiplier::One, 118, -22), (Multiplier::OneAndHalf, 177, -33)] {
            let joker = home.with_joker(true);
            assert_eq!(joker.points(&with(multiplier), result(2, 1)), Some(right), "{multiplier}");
            assert_eq!(joker.points(&with(multiplier), result(1, 1)), Some(wrong), "{multiplier}");
        }
    }

    #[test]
    fn team_that_advances_counts_apart_from_the_outcome() {
        let knockout = Terms { is_knockout: true, ..TERMS };
        for (forecast, advances, (home, away), advanced, expected) in [
            (forecast(Pick::Draw, Some((1, 1)), 50), Some(Side::Home), (1, 1), Some(Side::Home), 65),
            (forecast(Pick::Draw, Some((1, 1)), 50), Some(Side::Away), (1, 1), Some(Side::Home), 55),
            (forecast(Pick::Home, Some((2, 1)), 60), Some(Side::Home), (1, 1), Some(Side::Home), 3),
            (forecast(Pick::Home, None, 0), None, (2, 0), Some(Side::Home), 20),
            (forecast(Pick::Home, None, 0), Some(Side::Away), (2, 0), Some(Side::Away), 30),
            (forecast(Pick::Home, None, 0), Some(Side::Home), (2, 0), None, 20),
        ] {
            let outcome = Outcome::Result { home, away, advanced };
            let points = forecast.with_advances(advances).points(&knockout, outcome);
            assert_eq!(points, Some(expected), "{forecast:?} {advances:?}");
        }
        let outcome = Outcome::Result { home: 2, away: 0, advanced: Some(Side::Home) };
        let named = forecast(Pick::Home, None, 0).with_advances(Some(Side::Home));
        assert_eq!(named.points(&TERMS, outcome), Some(20), "not a knockout match");
    }

    #[test]
    fn margin_counts_differences_that_are_almost_right() {
        let rules = RuleSet { margin: Some(Margin { within: 5, points: 25 }), stake: 10, ..RuleSet::DEFAULT };
        let terms = Terms { rules, ..TERMS };
        for (score, confidence, (home, away), expected) in [
            (Some((90, 80)), 0, (101, 94), 25),
            (Some((90, 80)), 0, (95, 80), 25),
            (Some((90, 80)), 0, (96, 80), 20),
            (Some((90, 80)), 0, (100, 90), 30),
            (Some((90, 80)), 50, (101, 94), 33),
            (Some((81, 80)), 50, (80, 81), -3),
            (None, 0, (101, 94), 20),
        ] {
            let points = forecast(Pick::Home, score, confidence).points(&terms, result(home, away));
            assert_eq!(points, Some(expected), "{score:?} of {home}:{away}");
        }
        let draw = forecast(Pick::Draw, Some((0, 0)), 0);
        assert_eq!(draw.points(&terms, result(1, 1)), Some(20), "a draw has no margin");
        // A margin can be worth more than the difference. A right difference is within it.
        let generous = Terms { rules: RuleSet { margin: Some(Margin { within: 1, points: 35 }), ..rules }, ..TERMS };
        assert_eq!(forecast(Pick::Home, Some((3, 2)), 0).points(&generous, result(2, 1)), Some(35));
    }

    prop_compose! {
        fn any_forecast()(
            home in 0_i64..=99, away in 0_i64..=99, scored: bool, confidence in 0_i64..=100, joker: bool,
            advances in prop::sample::select(&[None, Some(Side::Home), Some(Side::Away)][..]),
        ) -> Forecast {
            let score = Score::new(home, away).expect("a score");
            let forecast = forecast(score.pick(), scored.then_some((home, away)), confidence);
            forecast.with_advances(advances).with_joker(joker)
        }
    }

    proptest! {
        #[test]
        fn points_of_default_set_stay_in_range(forecast in any_forecast(), home in 0..=999, away in 0..=999) {
            let points = forecast.with_joker(false).points(&TERMS, result(home, away)).expect("points");
            let range = if forecast.pick() == Pick::of(home, away) { 20..=60 } else { -20..=0 };
            prop_assert!(range.contains(&points), "{points}");
        }

        #[test]
        fn points_stay_in_range_of_api(
            forecast in any_forecast(), terms in any_terms(), home in 0..=999, away in 0..=999,
            advanced in prop::sample::select(&[None, Some(Side::Home), Some(Side::Away)][..]),
        ) {
            let points = forecast.points(&terms, Outcome::Result { home, away, advanced }).expect("points");
            prop_assert!((-6_000..=18_000).contains(&points), "{points}");
        }

        #[test]
        fn swapping_the_teams_keeps_the_points(
            forecast in any_forecast(), terms in any_terms(), home in 0..=9, away in 0..=9,
        ) {
            let pick = match forecast.pick() {
                Pick::Home => Pick::Away,
                Pick::Draw => Pick::Draw,
                Pick::Away => Pick::Home,
            };
            let score = forecast.score().and_then(|score| Score::new(score.away().into(), score.home().into()));
            let mirrored = Forecast::new(pick, score, forecast.confidence()).expect("no contradiction");
            let mirrored = mirrored.with_joker(forecast.joker());
            prop_assert_eq!(forecast.points(&terms, result(home, away)), mirrored.points(&terms, result(away, home)));
        }

        #[test]
        fn score_never_costs_points(forecast in any_forecast(), terms in any_terms(), home in 0..=9, away in 0..=9) {
            let bare = Forecast::new(forecast.pick(), None, forecast.confidence()).expect("no contradiction");
            let bare = bare.with_joker(forecast.joker());
            prop_assert!(forecast.points(&terms, result(home, away)) >= bare.points(&terms, result(home, away)));
        }

        #[test]
        fn preview_has_the_points_of_results(forecast in any_forecast(), terms in any_terms()) {
            let preview = Preview::of(forecast, &terms);
            let Some(score) = forecast.score() else { return Ok(()) };
            let (home, away) = (i32::from(score.home()), i32::from(score.away()));
            prop_assert_eq!(forecast.points(&terms, result(home, away)), preview.exact_score);
            if home != away {
                prop_assert_eq!(forecast.points(&terms, result(home + 1, away + 1)), preview.goal_difference);
            }
            let reversed = if home == away { result(1, 0) } else { result(away, home) };
            prop_assert_eq!(forecast.points(&terms, reversed), Some(preview.wrong));
        }

        #[test]
        fn higher_confidence_raises_the_stake(less in 0_i64..=100, more in 0_i64..=100) {
            let (less, more) = (less.min(more), less.max(more));
            let points = |confidence, outcome| forecast(Pick::Home, None, confidence).points(&TERMS, outcome);
            prop_assert!(points(less, result(1, 0)) <= points(more, result(1, 0)));
            prop_assert!(points(less, result(0, 1)) >= points(more, result(0, 1)));
        }

        /// The comparison tolerates the rounding of the two stakes.
        #[test]
        fn honest_confidence_has_the_best_expectation(chance in 0_i32..=100, claimed in 0_i64..=100) {
            let expected = |confidence: i64| {
                let confidence = Confidence::new(confidence).expect("a confidence");
                let stake = |right| RuleSet::DEFAULT.stake_of(confidence, right);
                chance * stake(true) + (100 - chance) * stake(false)
            };
            prop_assert!(expected(chance.into()) >= expected(claimed) - 100);
        }
    }
}
