//! What a prediction can say, and what it earns; no I/O.

use std::{cmp::Ordering, str::FromStr};

use serde::Serialize;
use utoipa::ToSchema;

use crate::events::rules::Outcome;

/// Who wins.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Pick {
    /// The home team.
    Home,
    /// Neither.
    Draw,
    /// The away team.
    Away,
}

impl Pick {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Home, Self::Draw, Self::Away];

    /// As it is stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Home => "home",
            Self::Draw => "draw",
            Self::Away => "away",
        }
    }

    /// Who wins with so many goals.
    pub fn of(home: i32, away: i32) -> Self {
        match home.cmp(&away) {
            Ordering::Greater => Self::Home,
            Ordering::Equal => Self::Draw,
            Ordering::Less => Self::Away,
        }
    }
}

/// A stored or given pick that is none of the three.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither home, draw nor away")]
pub struct UnknownPick(String);

impl FromStr for Pick {
    type Err = UnknownPick;

    fn from_str(name: &str) -> Result<Self, UnknownPick> {
        Self::ALL.into_iter().find(|pick| pick.name() == name).ok_or_else(|| UnknownPick(name.to_owned()))
    }
}

/// A predicted score: each side has 0 to 99 goals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, ToSchema)]
#[schema(as = ScorePrediction)]
pub struct Score {
    #[schema(minimum = 0, maximum = 99, example = 2)]
    home: i16,
    #[schema(minimum = 0, maximum = 99, example = 1)]
    away: i16,
}

impl Score {
    /// A score, unless one side has an impossible number of goals.
    pub fn new(home: i64, away: i64) -> Option<Self> {
        let goals = |number| i16::try_from(number).ok().filter(|number| (0..=99).contains(number));
        Some(Self { home: goals(home)?, away: goals(away)? })
    }

    /// Goals of the home team.
    pub fn home(self) -> i16 {
        self.home
    }

    /// Goals of the away team.
    pub fn away(self) -> i16 {
        self.away
    }

    /// Who wins with it.
    pub fn pick(self) -> Pick {
        Pick::of(self.home.into(), self.away.into())
    }
}

/// How sure somebody is, in percent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(transparent)]
pub struct Confidence(i16);

impl Confidence {
    /// A confidence, if it is from 0 to 100.
    pub fn new(percent: i64) -> Option<Self> {
        i16::try_from(percent).ok().filter(|percent| (0..=100).contains(percent)).map(Self)
    }

    /// The number.
    pub fn percent(self) -> i16 {
        self.0
    }

    /// What it adds to the points: with q the confidence from 0 to 1, 20·(2q − q²) if the pick was right, −20·q² if it
    /// was wrong. Who is right with probability p expects 20·(2pq − q²), which is greatest for q = p: it pays to be
    /// honest. Both are rounded to whole points, halves up, though no confidence gives a half.
    fn stake(self, right: bool) -> i32 {
        let percent = i32::from(self.0);
        // 20·q² is percent² / 500.
        let rounded = |five_hundredths: i32| (five_hundredths + 250) / 500;
        if right { rounded(200 * percent - percent * percent) } else { -rounded(percent * percent) }
    }
}

/// What somebody says of a match. Its score, if there is one, agrees with its pick.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Forecast {
    pick: Pick,
    score: Option<Score>,
    confidence: Confidence,
}

impl Forecast {
    /// A forecast, unless the score contradicts the pick.
    pub fn new(pick: Pick, score: Option<Score>, confidence: Confidence) -> Option<Self> {
        let agrees = score.is_none_or(|score| score.pick() == pick);
        agrees.then_some(Self { pick, score, confidence })
    }

    /// Who wins.
    pub fn pick(self) -> Pick {
        self.pick
    }

    /// The score, if one was ventured.
    pub fn score(self) -> Option<Score> {
        self.score
    }

    /// How sure they are.
    pub fn confidence(self) -> Confidence {
        self.confidence
    }

    /// What it earns by the given rules, from −20 to 60; `None` while the match has no result, or will not have any.
    pub fn points(self, rules: RulesVersion, outcome: Outcome) -> Option<i32> {
        self.earnings(rules, outcome).map(Earnings::total)
    }

    /// The same in its parts. `prediction_points` in the database says the same; a test holds the two together.
    pub fn earnings(self, rules: RulesVersion, outcome: Outcome) -> Option<Earnings> {
        let RulesVersion::First = rules;
        let Outcome::Result { home, away } = outcome else { return None };
        let goals = self.score.map(|score| (i32::from(score.home), i32::from(score.away)));
        let hit = match goals {
            _ if self.pick != Pick::of(home, away) => Hit::Wrong,
            Some(predicted) if predicted == (home, away) => Hit::Exact,
            // Every draw has the same difference: it says no more than the pick.
            Some((h, a)) if h - a == home - away && home != away => Hit::Difference,
            _ => Hit::Outcome,
        };
        Some(Earnings { hit, stake: self.confidence.stake(hit != Hit::Wrong) })
    }

    /// What it would earn if it hit so well.
    pub fn earnings_if(self, rules: RulesVersion, hit: Hit) -> Earnings {
        let RulesVersion::First = rules;
        Earnings { hit, stake: self.confidence.stake(hit != Hit::Wrong) }
    }

    /// Whether it can hit so well: without a score it can be right only about the outcome, and a draw has no difference.
    pub fn can_hit(self, hit: Hit) -> bool {
        match hit {
            Hit::Wrong | Hit::Outcome => true,
            Hit::Difference => self.score.is_some() && self.pick != Pick::Draw,
            Hit::Exact => self.score.is_some(),
        }
    }
}

/// By which rules predictions earn points. A match keeps those it was imported under, so that new rules change nobody's
/// points.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum RulesVersion {
    /// The best of these counts: 40 for the score, 30 for the difference of a match that somebody won, 20 for who won or
    /// that nobody did. What the confidence adds or takes comes on top.
    First,
}

impl RulesVersion {
    /// What new matches get.
    pub const CURRENT: Self = Self::First;

    /// As it is stored and shown.
    pub fn number(self) -> i16 {
        match self {
            Self::First => 1,
        }
    }
}

/// A stored version of the rules that this binary does not know.
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

/// How well a prediction fits the result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Hit {
    /// Not at all.
    Wrong,
    /// Who won, or that nobody did.
    Outcome,
    /// By how many goals somebody won.
    Difference,
    /// Every goal.
    Exact,
}

impl Hit {
    /// What it earns without a stake.
    pub fn points(self) -> i32 {
        match self {
            Self::Wrong => 0,
            Self::Outcome => 20,
            Self::Difference => 30,
            Self::Exact => 40,
        }
    }
}

/// Points and where they come from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Earnings {
    /// How well the prediction fits.
    pub hit: Hit,
    /// What the confidence added, or took.
    pub stake: i32,
}

impl Earnings {
    /// All of it.
    pub fn total(self) -> i32 {
        self.hit.points() + self.stake
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const RULES: RulesVersion = RulesVersion::CURRENT;

    fn forecast(pick: Pick, score: Option<(i64, i64)>, confidence: i64) -> Forecast {
        let score = score.map(|(home, away)| Score::new(home, away).expect("a score"));
        Forecast::new(pick, score, Confidence::new(confidence).expect("a confidence")).expect("no contradiction")
    }

    fn result(home: i32, away: i32) -> Outcome {
        Outcome::Result { home, away }
    }

    #[test]
    fn every_pick_reads_back() {
        for pick in Pick::ALL {
            assert_eq!(pick.name().parse::<Pick>().expect("a pick"), pick);
            assert_eq!(serde_json::to_value(pick).expect("JSON"), pick.name());
        }
        assert!("Home".parse::<Pick>().is_err());
    }

    #[test]
    fn the_best_of_score_difference_and_outcome_counts() {
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
    fn confidence_adds_if_right_and_takes_if_wrong() {
        for (confidence, gain, loss) in
            [(0, 0, 0), (1, 0, 0), (10, 4, 0), (25, 9, -1), (50, 15, -5), (75, 19, -11), (90, 20, -16), (100, 20, -20)]
        {
            let staked = forecast(Pick::Home, None, confidence);
            assert_eq!(staked.points(RULES, result(1, 0)), Some(20 + gain), "{confidence} and right");
            assert_eq!(staked.points(RULES, result(0, 1)), Some(loss), "{confidence} and wrong");
        }
    }

    #[test]
    fn without_a_result_nobody_gains_or_loses() {
        for outcome in [Outcome::Open, Outcome::Void] {
            assert_eq!(forecast(Pick::Home, Some((2, 1)), 100).points(RULES, outcome), None);
        }
    }

    #[test]
    fn no_confidence_comes_to_half_a_point() {
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
        fn scores_and_confidence_stay_in_their_ranges(home: i64, away: i64, near in -5_i64..=120) {
            let possible = |goals: i64| (0..=99).contains(&goals);
            prop_assert_eq!(Score::new(home, near).is_some(), possible(home) && possible(near));
            prop_assert_eq!(Score::new(near, away).is_some(), possible(near) && possible(away));
            prop_assert_eq!(Confidence::new(near).is_some(), (0..=100).contains(&near));
            prop_assert_eq!(Confidence::new(home).is_some(), (0..=100).contains(&home));
        }

        #[test]
        fn a_score_that_contradicts_the_pick_is_no_forecast(home in 0_i64..=99, away in 0_i64..=99) {
            let score = Score::new(home, away).expect("a score");
            for pick in Pick::ALL {
                let forecast = Forecast::new(pick, Some(score), Confidence::default());
                prop_assert_eq!(forecast.is_some(), score.pick() == pick);
            }
        }

        #[test]
        fn points_stay_in_their_range(forecast in any_forecast(), home in 0..=999, away in 0..=999) {
            let points = forecast.points(RULES, result(home, away)).expect("points");
            let range = if forecast.pick() == Pick::of(home, away) { 20..=60 } else { -20..=0 };
            prop_assert!(range.contains(&points), "{points}");
        }

        #[test]
        fn both_sides_are_treated_alike(forecast in any_forecast(), home in 0..=9, away in 0..=9) {
            let pick = match forecast.pick {
                Pick::Home => Pick::Away,
                Pick::Draw => Pick::Draw,
                Pick::Away => Pick::Home,
            };
            let score = forecast.score.map(|score| Score { home: score.away, away: score.home });
            let mirrored = Forecast::new(pick, score, forecast.confidence).expect("no contradiction");
            prop_assert_eq!(forecast.points(RULES, result(home, away)), mirrored.points(RULES, result(away, home)));
        }

        #[test]
        fn a_score_never_costs_anything(forecast in any_forecast(), home in 0..=9, away in 0..=9) {
            let bare = Forecast { score: None, ..forecast };
            prop_assert!(forecast.points(RULES, result(home, away)) >= bare.points(RULES, result(home, away)));
        }

        #[test]
        fn the_surer_the_more_is_at_stake(less in 0_i64..=100, more in 0_i64..=100) {
            let (less, more) = (less.min(more), less.max(more));
            let points = |confidence, outcome| forecast(Pick::Home, None, confidence).points(RULES, outcome);
            prop_assert!(points(less, result(1, 0)) <= points(more, result(1, 0)));
            prop_assert!(points(less, result(0, 1)) >= points(more, result(0, 1)));
        }

        /// Up to the rounding of the two numbers it is made of.
        #[test]
        fn it_pays_to_be_honest(chance in 0_i32..=100, claimed in 0_i64..=100) {
            let expected = |confidence: i64| {
                let confidence = Confidence::new(confidence).expect("a confidence");
                chance * confidence.stake(true) + (100 - chance) * confidence.stake(false)
            };
            prop_assert!(expected(chance.into()) >= expected(claimed) - 100);
        }
    }
}
