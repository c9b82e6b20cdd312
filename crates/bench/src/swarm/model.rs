//! The capacity model: processor time of each program as a sum of constant costs, one for each kind of load.
//!
//! The constants come from short runs with one kind of load each, so that comparing the model with a mixed evening is a
//! test of the model.

use std::{
    collections::{BTreeMap, HashMap},
    fmt::Write as _,
    time::Duration,
};

use serde::Serialize;

use super::{
    action::Action,
    script::{Course, float, scatter, stride},
};

/// Seconds of processor time by program.
pub(crate) type Spent = BTreeMap<&'static str, f64>;

/// Sum of `one` and `factor` times `other`.
pub(crate) fn plus(one: &Spent, factor: f64, other: &Spent) -> Spent {
    let mut sum = one.clone();
    for (group, seconds) in other {
        *sum.entry(group).or_default() += factor * seconds;
    }
    sum
}

/// Measured costs, in seconds of processor time by program.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Constants {
    /// Without any load, per second.
    pub(crate) idle: Spent,
    /// Per look-up of a token that no cache had.
    pub(crate) look_up: Spent,
    /// Per arrival, with a cached token.
    pub(crate) actions: BTreeMap<&'static str, Spent>,
    /// Per listener and second.
    pub(crate) listener: Spent,
    /// Per event and listener.
    pub(crate) delivery: Spent,
    /// Per prediction of a match that gets its result, with leaderboards and the predictor's stream events.
    pub(crate) scored: Spent,
    /// Memory of all processes of the service, and per listener, in kilobytes.
    pub(crate) memory: f64,
    pub(crate) listener_memory: f64,
}

/// Amounts of load in a run.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Load {
    pub(crate) seconds: f64,
    pub(crate) arrivals: BTreeMap<&'static str, u64>,
    pub(crate) look_ups: u64,
    pub(crate) listener_seconds: f64,
    pub(crate) deliveries: u64,
    pub(crate) scored: u64,
}

/// Processor time that the model expects for a load.
pub(crate) fn predict(constants: &Constants, load: &Load) -> Spent {
    let mut sum = plus(&Spent::new(), load.seconds, &constants.idle);
    for (action, number) in &load.arrivals {
        if let Some(cost) = constants.actions.get(action) {
            sum = plus(&sum, float(*number), cost);
        }
    }
    for (amount, cost) in [
        (float(load.look_ups), &constants.look_up),
        (load.listener_seconds, &constants.listener),
        (float(load.deliveries), &constants.delivery),
        (float(load.scored), &constants.scored),
    ] {
        sum = plus(&sum, amount, cost);
    }
    sum
}

/// Number of tokens that processes look up during an evening: each process caches a token for a time, and the balancer
/// gives each request to any process.
pub(crate) fn look_ups(courses: &[Course], fans: u64, processes: u64, cached_for: Duration) -> u64 {
    let step = stride(fans);
    let with_token = courses.iter().filter(|course| course.action != Action::LogIn);
    let mut requests: Vec<(Duration, u64)> = with_token
        .flat_map(|course| {
            (0..course.arrivals).map(move |arrival| (course.due(arrival), (arrival * step) % fans.max(1)))
        })
        .collect();
    requests.sort_unstable();
    let mut known: HashMap<(u64, u64), Duration> = HashMap::new();
    let mut look_ups = 0;
    for (number, (at, fan)) in (0_u64..).zip(requests) {
        let process = scatter(number) % processes.max(1);
        let is_cached = known.get(&(fan, process)).is_some_and(|checked| at < *checked + cached_for);
        if !is_cached {
            known.insert((fan, process), at);
            look_ups += 1;
        }
    }
    look_ups
}

/// Comparison of the model with a measurement.
#[derive(Clone, Debug, Serialize)]
pub(crate) struct Comparison {
    pub(crate) predicted: Spent,
    pub(crate) measured: Spent,
}

impl Comparison {
    /// Difference of the sums, as a share of the measured sum.
    pub(crate) fn error(&self) -> f64 {
        let (predicted, measured): (f64, f64) = (self.predicted.values().sum(), self.measured.values().sum());
        (predicted - measured) / measured.max(f64::MIN_POSITIVE)
    }

    /// Table in Markdown.
    pub(crate) fn table(&self) -> String {
        let mut text = "| program | model, CPU s | measured, CPU s | difference |\n|---|---|---|---|\n".to_owned();
        let mut row = |name: &str, predicted: f64, measured: f64| {
            let difference = 100.0 * (predicted - measured) / measured.max(f64::MIN_POSITIVE);
            let _ = writeln!(text, "| {name} | {predicted:.1} | {measured:.1} | {difference:+.0} % |");
        };
        for (group, measured) in &self.measured {
            row(group, self.predicted.get(group).copied().unwrap_or_default(), *measured);
        }
        row("**sum**", self.predicted.values().sum(), self.measured.values().sum());
        text
    }
}

impl Constants {
    /// Replaces costs below zero, which noise can cause for small ones.
    pub(crate) fn without_negative(mut self) -> Self {
        let all = [&mut self.idle, &mut self.look_up, &mut self.listener, &mut self.delivery, &mut self.scored];
        for seconds in all.into_iter().chain(self.actions.values_mut()).flat_map(BTreeMap::values_mut) {
            *seconds = seconds.max(0.0);
        }
        self
    }

    /// Table in Markdown: microseconds of processor time.
    pub(crate) fn table(&self) -> String {
        let groups: Vec<&str> = self.idle.keys().copied().collect();
        let mut text = format!("| µs of CPU time | {} |\n|---|{}\n", groups.join(" | "), "---|".repeat(groups.len()));
        let mut row = |name: &str, cost: &Spent| {
            let cells: Vec<_> = groups
                .iter()
                .map(|group| {
                    let micros = 1e6 * cost.get(group).copied().unwrap_or_default();
                    if micros < 9.95 { format!("{micros:.1}") } else { format!("{micros:.0}") }
                })
                .collect();
            let _ = writeln!(text, "| {name} | {} |", cells.join(" | "));
        };
        row("nothing, per second (all processes)", &self.idle);
        for (action, cost) in &self.actions {
            row(&format!("`{action}`"), cost);
        }
        row("look-up of an uncached token", &self.look_up);
        row("listener, per second", &self.listener);
        row("stream event to one listener", &self.delivery);
        row("prediction scored after a result", &self.scored);
        text
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::swarm::script::{FINAL_EVENING, courses};

    fn cost(seconds: f64) -> Spent {
        Spent::from([("the service", seconds)])
    }

    #[test]
    fn prediction_is_the_sum_of_all_kinds() {
        let constants = Constants {
            idle: cost(0.01),
            look_up: cost(0.001),
            actions: BTreeMap::from([("rank", cost(0.002))]),
            listener: cost(0.0001),
            delivery: cost(0.00001),
            scored: cost(0.00002),
            ..Constants::default()
        };
        let load = Load {
            seconds: 100.0,
            arrivals: BTreeMap::from([("rank", 1_000), ("unknown", 7)]),
            look_ups: 500,
            listener_seconds: 2_000.0,
            deliveries: 10_000,
            scored: 5_000,
        };
        let predicted = predict(&constants, &load)["the service"];
        assert!((predicted - (1.0 + 2.0 + 0.5 + 0.2 + 0.1 + 0.1)).abs() < 1e-9, "{predicted}");
        let comparison = Comparison { predicted: cost(predicted), measured: cost(3.0) };
        assert!((comparison.error() - 0.3).abs() < 1e-9);
        assert!(comparison.table().contains("+30 %"), "{}", comparison.table());
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(16))]
        #[test]
        fn look_ups_are_between_one_per_fan_and_one_per_request(fans in 50_u64..400, processes in 1_u64..9) {
            let length = Duration::from_mins(10);
            let courses = courses(&FINAL_EVENING, fans, length);
            let requests: u64 =
                courses.iter().filter(|course| course.action != Action::LogIn).map(|course| course.arrivals).sum();
            let forever = look_ups(&courses, fans, processes, 2 * length);
            prop_assert!(fans <= forever && forever <= requests.min(fans * processes));
            prop_assert_eq!(look_ups(&courses, fans, processes, Duration::ZERO), requests);
            prop_assert!(forever <= look_ups(&courses, fans, processes, Duration::from_secs(30)));
        }
    }
}
