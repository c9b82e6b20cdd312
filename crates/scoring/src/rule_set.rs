//! Values by which points are computed. They are data: each match refers to a rule set that never changes.

use std::{fmt, str::FromStr};

use serde::{Serialize, Serializer};

/// Version of the formula in [`Forecast::points`](crate::Forecast::points), as shown in the API. Rule sets change the
/// values in the formula, not the formula.
pub const FORMULA_VERSION: i16 = 1;

/// Greatest value of a rule set.
pub const MOST_POINTS: i32 = 1_000;

/// Points for each way in which a prediction can be right.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RuleSet {
    /// Points for the right outcome.
    pub outcome: i32,
    /// Points for the right difference between the scores of the teams, if a team won.
    pub difference: i32,
    /// Points for the exact score.
    pub exact: i32,
    /// Points for a difference that is almost right.
    pub margin: Option<Margin>,
    /// Greatest number of points that the confidence adds or takes.
    pub stake: i32,
    /// Points for the team that advances in a knockout match, on top of the others.
    pub advances: i32,
}

/// Points for a predicted difference that is close to the real one: for sports with high scores, where few users predict
/// the difference exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
pub struct Margin {
    /// Greatest distance between the predicted and the real difference.
    #[cfg_attr(feature = "openapi", schema(minimum = 1, maximum = 999, example = 5))]
    pub within: i32,
    #[cfg_attr(feature = "openapi", schema(minimum = 0, maximum = 1000, example = 25))]
    pub points: i32,
}

impl RuleSet {
    /// Rule set of every match that names no other.
    pub const DEFAULT: Self = Self { outcome: 20, difference: 30, exact: 40, margin: None, stake: 20, advances: 10 };

    /// Returns whether all values are in range: more precise predictions never earn less.
    pub fn is_valid(&self) -> bool {
        let in_range = |value: i32, least: i32| (least..=MOST_POINTS).contains(&value);
        let margin =
            |margin: Margin| (1..=999).contains(&margin.within) && (self.outcome..=self.exact).contains(&margin.points);
        in_range(self.outcome, 0)
            && in_range(self.difference, self.outcome)
            && in_range(self.exact, self.difference)
            && self.margin.is_none_or(margin)
            && in_range(self.stake, 0)
            && in_range(self.advances, 0)
    }
}

/// Factor for all points of a match.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Multiplier {
    #[default]
    One,
    OneAndHalf,
    Two,
    Three,
}

impl Multiplier {
    pub const ALL: [Self; 4] = [Self::One, Self::OneAndHalf, Self::Two, Self::Three];

    /// Twice the factor, which is a whole number. The database stores this number.
    pub fn halves(self) -> i16 {
        match self {
            Self::One => 2,
            Self::OneAndHalf => 3,
            Self::Two => 4,
            Self::Three => 6,
        }
    }

    /// Returns the multiplier with this value of [`halves`](Self::halves).
    pub fn of_halves(halves: i16) -> Option<Self> {
        Self::ALL.into_iter().find(|multiplier| multiplier.halves() == halves)
    }

    /// Factor as shown in the API.
    pub fn factor(self) -> f64 {
        f64::from(self.halves()) / 2.0
    }
}

impl fmt::Display for Multiplier {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::One => "1",
            Self::OneAndHalf => "1.5",
            Self::Two => "2",
            Self::Three => "3",
        })
    }
}

/// Whole factors are whole numbers in JSON too: 2, not 2.0.
impl Serialize for Multiplier {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.halves() {
            halves if halves % 2 == 0 => serializer.serialize_i16(halves / 2),
            _ => serializer.serialize_f64(self.factor()),
        }
    }
}

/// Error for a factor that is not one of the four.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is neither 1, 1.5, 2 nor 3")]
pub struct UnknownMultiplier(String);

impl FromStr for Multiplier {
    type Err = UnknownMultiplier;

    fn from_str(text: &str) -> Result<Self, UnknownMultiplier> {
        let found = Self::ALL.into_iter().find(|multiplier| multiplier.to_string() == text);
        found.ok_or_else(|| UnknownMultiplier(text.to_owned()))
    }
}

/// Everything that the points of a prediction depend on, besides the prediction and the outcome of the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Terms {
    pub rules: RuleSet,
    pub multiplier: Multiplier,
    /// Whether one of the teams advances, so that predictions can name it.
    pub is_knockout: bool,
}

impl Terms {
    /// Terms of a match without any of the optional details.
    pub const DEFAULT: Self = Self { rules: RuleSet::DEFAULT, multiplier: Multiplier::One, is_knockout: false };
}

#[cfg(test)]
pub(crate) mod tests {
    use proptest::prelude::*;

    use super::*;

    prop_compose! {
        pub(crate) fn any_rules()(
            mut steps in proptest::collection::vec(0..=MOST_POINTS, 3), within in 1..=999_i32, margin: bool,
            share in 0..=100_i32, stake in 0..=MOST_POINTS, advances in 0..=MOST_POINTS,
        ) -> RuleSet {
            steps.sort_unstable();
            let [outcome, difference, exact] = [steps[0], steps[1], steps[2]];
            let points = outcome + (exact - outcome) * share / 100;
            let margin = margin.then_some(Margin { within, points });
            RuleSet { outcome, difference, exact, margin, stake, advances }
        }
    }

    prop_compose! {
        pub(crate) fn any_terms()(
            rules in any_rules(), multiplier in prop::sample::select(&Multiplier::ALL[..]), is_knockout: bool,
        ) -> Terms {
            Terms { rules, multiplier, is_knockout }
        }
    }

    #[test]
    fn multipliers_are_plain_numbers_in_json() {
        let json = Multiplier::ALL.map(|multiplier| serde_json::to_string(&multiplier).expect("JSON"));
        assert_eq!(json, ["1", "1.5", "2", "3"]);
        for multiplier in Multiplier::ALL {
            assert_eq!(multiplier.to_string().parse::<Multiplier>().expect("a multiplier"), multiplier);
            assert_eq!(Multiplier::of_halves(multiplier.halves()), Some(multiplier));
        }
        assert!("2.5".parse::<Multiplier>().is_err() && Multiplier::of_halves(5).is_none());
    }

    #[test]
    fn values_out_of_order_or_range_are_invalid() {
        let valid = RuleSet { margin: Some(Margin { within: 5, points: 25 }), ..RuleSet::DEFAULT };
        assert!(RuleSet::DEFAULT.is_valid() && valid.is_valid());
        for invalid in [
            RuleSet { outcome: -1, ..valid },
            RuleSet { difference: 19, ..valid },
            RuleSet { exact: 29, ..valid },
            RuleSet { exact: 1_001, ..valid },
            RuleSet { stake: -1, ..valid },
            RuleSet { stake: 1_001, ..valid },
            RuleSet { advances: 1_001, ..valid },
            RuleSet { margin: Some(Margin { within: 0, points: 25 }), ..valid },
            RuleSet { margin: Some(Margin { within: 5, points: 19 }), ..valid },
            RuleSet { margin: Some(Margin { within: 5, points: 41 }), ..valid },
        ] {
            assert!(!invalid.is_valid(), "{invalid:?}");
        }
    }

    proptest! {
        #[test]
        fn generated_rule_sets_are_valid(rules in any_rules()) {
            prop_assert!(rules.is_valid());
        }
    }
}
