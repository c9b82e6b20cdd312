//! What a scenario measured: one line of JSON.

use serde::{Deserialize, Serialize};

/// A figure of ours beside the same figure of the bare engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// The scenario, with its size where it has several.
    pub(crate) scenario: String,
    /// What was done, in a sentence.
    pub(crate) what: String,
    /// What it was put beside.
    pub(crate) beside: String,
    /// Of `ours` and `bare`.
    pub(crate) unit: String,
    /// Our figure: the median of the rounds.
    pub(crate) ours: f64,
    /// The bare engine's.
    pub(crate) bare: f64,
    /// `ours / bare`: the median of the rounds' ratios.
    pub(crate) ratio: f64,
    /// The smallest and the largest ratio of a round.
    pub(crate) spread: [f64; 2],
    /// What the ratio should be.
    pub(crate) goal: Option<Goal>,
    /// What it ran into: what the cores did meanwhile, or what else was seen.
    pub(crate) limit: String,
    /// Ours and bare, round by round.
    pub(crate) rounds: Vec<[f64; 2]>,
    /// How many rows, users or connections.
    pub(crate) size: Option<u64>,
    /// At a rate that both sides manage, in milliseconds.
    pub(crate) latency: Option<Latencies>,
}

/// What the ratio should be.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// Rates: the more the better.
    AtLeast(f64),
    /// Times and memory: the less the better.
    AtMost(f64),
}

impl Goal {
    /// Whether a ratio reaches it.
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }
}

/// p50, p99 and p99.9 of both sides.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// Requests a second on either side.
    pub(crate) rate: f64,
    /// Ours.
    pub(crate) ours: [f64; 3],
    /// The bare engine's, where it has any.
    pub(crate) bare: Option<[f64; 3]>,
}

impl Outcome {
    /// Makes one of its rounds, each ours and bare.
    pub(crate) fn of(scenario: &str, rounds: Vec<[f64; 2]>) -> Self {
        let ratios: Vec<f64> = rounds.iter().map(|[ours, bare]| ours / bare).collect();
        Self {
            scenario: scenario.to_owned(),
            what: String::new(),
            beside: String::new(),
            unit: "a second".to_owned(),
            ours: median(rounds.iter().map(|round| round[0])),
            bare: median(rounds.iter().map(|round| round[1])),
            ratio: median(ratios.iter().copied()),
            spread: [
                ratios.iter().copied().fold(f64::INFINITY, f64::min),
                ratios.iter().copied().fold(f64::NEG_INFINITY, f64::max),
            ],
            goal: None,
            limit: String::new(),
            rounds,
            size: None,
            latency: None,
        }
    }
}

/// The one in the middle.
pub(crate) fn median(numbers: impl Iterator<Item = f64>) -> f64 {
    let mut numbers: Vec<f64> = numbers.collect();
    numbers.sort_by(f64::total_cmp);
    let middle = numbers.len() / 2;
    match numbers.len() {
        0 => f64::NAN,
        length if length % 2 == 1 => numbers[middle],
        _ => f64::midpoint(numbers[middle - 1], numbers[middle]),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ratio_is_the_median_of_the_rounds() {
        let outcome = Outcome::of("any", vec![[10.0, 10.0], [30.0, 10.0], [10.0, 5.0]]);
        let shown = |numbers: &[f64]| format!("{numbers:.1?}");
        assert_eq!(shown(&[outcome.ours, outcome.bare, outcome.ratio]), "[10.0, 10.0, 2.0]");
        assert_eq!(shown(&outcome.spread), "[1.0, 3.0]");
        assert!(Goal::AtLeast(2.0).is_met(outcome.ratio) && !Goal::AtMost(1.5).is_met(outcome.ratio));
    }
}
