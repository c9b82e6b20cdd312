//! Reads stored columns of rule sets and multipliers, for every feature that joins them.

use scoring::{Margin, Multiplier, RuleSet};

/// Reads the points of a rule set: outcome, difference, exact, stake and advances, then the margin as (within, points).
pub fn read_rules(values: [i32; 5], margin: Option<(i32, i32)>) -> sqlx::Result<RuleSet> {
    let [outcome, difference, exact, stake, advances] = values;
    let margin = margin.map(|(within, points)| Margin { within, points });
    let rules = RuleSet { outcome, difference, exact, margin, stake, advances };
    if rules.is_valid() { Ok(rules) } else { Err(sqlx::Error::Decode("a stored rule set is invalid".into())) }
}

/// Reads a stored multiplier.
pub fn read_multiplier(halves: i16) -> sqlx::Result<Multiplier> {
    Multiplier::of_halves(halves).ok_or_else(|| sqlx::Error::Decode("a stored multiplier is invalid".into()))
}
