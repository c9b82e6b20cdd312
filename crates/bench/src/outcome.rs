//! Result of a scenario: one line of JSON.

use serde::{Deserialize, Serialize};

/// A figure of Matchday and the same figure of the bare engine.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Outcome {
    /// Name of the scenario, with its size if it has several.
    pub(crate) scenario: String,
    /// Description of the workload.
    pub(crate) what: String,
    /// Description of the bare engine's workload.
    pub(crate) beside: String,
    /// Unit of `ours` and `bare`.
    pub(crate) unit: String,
    /// Median of Matchday's figures over all rounds.
    pub(crate) ours: f64,
    /// Median of the bare engine's figures over all rounds.
    pub(crate) bare: f64,
    /// Median of `ours / bare` over all rounds.
    pub(crate) ratio: f64,
    /// Smallest and largest ratio of a round.
    pub(crate) spread: [f64; 2],
    pub(crate) goal: Option<Goal>,
    /// Limiting factor: use of the cores during the measurement, and other observations.
    pub(crate) limit: String,
    /// Figures of both sides, round by round.
    pub(crate) rounds: Vec<[f64; 2]>,
    /// Number of rows, users or connections.
    pub(crate) size: Option<u64>,
    /// Latencies at a rate that both sides can sustain.
    pub(crate) latency: Option<Latencies>,
}

/// Target for the ratio.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Goal {
    /// For rates, where more is better.
    AtLeast(f64),
    /// For times and memory, where less is better.
    AtMost(f64),
}

impl Goal {
    pub(crate) fn is_met(self, ratio: f64) -> bool {
        match self {
            Self::AtLeast(least) => ratio >= least,
            Self::AtMost(most) => ratio <= most,
        }
    }
}

/// p50, p99 and p99.9 of both sides, in milliseconds.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(crate) struct Latencies {
    /// Requests per second on either side.
    pub(crate) rate: f64,
    pub(crate) ours: [f64; 3],
    /// `None` if the bare engine has no latencies.
    pub(crate) bare: Option<[f64; 3]>,
}

impl Outcome {
    /// Computes medians and spread from the rounds.
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
    fn ratio_is_the_median_of_rounds() {
        let outcome = Outcome::of("any", vec![[10.0, 10.0], [30.0, 10.0], [10.0, 5.0]]);
        let shown = |numbers: &[f64]| format!("{numbers:.1?}");
        assert_eq!(shown(&[outcome.ours, outcome.bare, outcome.ratio]), "[10.0, 10.0, 2.0]");
        assert_eq!(shown(&outcome.spread), "[1.0, 3.0]");
        assert!(Goal::AtLeast(2.0).is_met(outcome.ratio) && !Goal::AtMost(1.5).is_met(outcome.ratio));
    }
}
