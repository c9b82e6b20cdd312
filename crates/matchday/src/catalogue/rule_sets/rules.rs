//! Content of a rule set; no I/O.

use std::collections::BTreeMap;

use scoring::{Multiplier, RuleSet};
use time::OffsetDateTime;
use web::ids::RuleSetId;

/// Slug of the rule set that a migration creates.
pub const DEFAULT_SLUG: &str = "default";
/// Greatest number of stages with a multiplier.
pub const MOST_STAGES: usize = 20;
/// Greatest number of jokers.
pub const MOST_JOKERS: i32 = 100;

/// A rule set before it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NewRuleSet {
    pub slug: String,
    pub name: String,
    pub values: Values,
}

/// The values of a rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Values {
    pub rules: RuleSet,
    /// Multipliers by stage.
    pub multipliers: BTreeMap<String, Multiplier>,
    /// Number of jokers of a user in a tournament.
    pub jokers: i32,
}

impl Default for Values {
    fn default() -> Self {
        Self { rules: RuleSet::DEFAULT, multipliers: BTreeMap::new(), jokers: 0 }
    }
}

impl Values {
    /// Multiplier of a match: its own, or that of its stage.
    pub fn multiplier(&self, own: Option<Multiplier>, stage: Option<&str>) -> Multiplier {
        own.or_else(|| self.multipliers.get(stage?).copied()).unwrap_or_default()
    }
}

/// A stored rule set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredRuleSet {
    pub id: RuleSetId,
    pub slug: String,
    pub name: String,
    pub values: Values,
    pub created_at: OffsetDateTime,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn own_multiplier_precedes_that_of_the_stage() {
        let multipliers = BTreeMap::from([("final".to_owned(), Multiplier::Two)]);
        let values = Values { multipliers, ..Values::default() };
        for (own, stage, expected) in [
            (None, None, Multiplier::One),
            (None, Some("group"), Multiplier::One),
            (None, Some("final"), Multiplier::Two),
            (Some(Multiplier::Three), Some("final"), Multiplier::Three),
            (Some(Multiplier::One), Some("final"), Multiplier::One),
        ] {
            assert_eq!(values.multiplier(own, stage), expected, "{own:?} {stage:?}");
        }
    }
}
