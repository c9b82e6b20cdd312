//! Counts and latencies of a run. Agents send theirs as JSON; the coordinator merges them.

use std::{collections::BTreeMap, fmt::Write as _};

use serde::{Deserialize, Serialize};

use super::{
    action::{Action, Verdict},
    script::float,
};
use crate::load::Latency;

/// Counts of one action.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Row {
    /// Arrivals of the schedule.
    pub(crate) due: u64,
    /// Arrivals that succeeded, possibly after retries.
    pub(crate) ok: u64,
    /// Refused attempts by code. A refused attempt may have been repeated.
    pub(crate) refused: BTreeMap<String, u64>,
    /// Failed attempts by reason.
    pub(crate) failed: BTreeMap<String, u64>,
    /// Latency of successful arrivals, from the time at which they were due.
    pub(crate) latency: Latency,
}

impl Row {
    pub(crate) fn count(&mut self, verdict: Verdict) {
        match verdict {
            Verdict::Fine => {}
            Verdict::Refused(code) => *self.refused.entry(code).or_default() += 1,
            Verdict::Failed(reason) => *self.failed.entry(reason).or_default() += 1,
        }
    }

    fn merge(&mut self, other: &Self) {
        self.due += other.due;
        self.ok += other.ok;
        self.latency.add(&other.latency);
        for (mine, others) in [(&mut self.refused, &other.refused), (&mut self.failed, &other.failed)] {
            for (name, number) in others {
                *mine.entry(name.clone()).or_default() += number;
            }
        }
    }
}

/// Counts of one agent, or of all.
#[derive(Clone, Default, Serialize, Deserialize)]
pub(crate) struct Tally {
    pub(crate) rows: BTreeMap<Action, Row>,
    /// Events that listeners received, by kind.
    pub(crate) received: BTreeMap<String, u64>,
    /// Seconds that listeners were connected, in total.
    pub(crate) listened: f64,
    /// Lateness of the agents' own schedule. If it is large, the agents are overloaded and the latencies are theirs.
    pub(crate) lateness: Latency,
}

impl Tally {
    pub(crate) fn row(&mut self, action: Action) -> &mut Row {
        self.rows.entry(action).or_default()
    }

    pub(crate) fn merge(&mut self, other: &Self) {
        for (action, row) in &other.rows {
            self.row(*action).merge(row);
        }
        for (kind, number) in &other.received {
            *self.received.entry(kind.clone()).or_default() += number;
        }
        self.listened += other.listened;
        self.lateness.add(&other.lateness);
    }

    /// Number of failed attempts: the run succeeded if it is zero.
    pub(crate) fn failures(&self) -> u64 {
        self.rows.values().flat_map(|row| row.failed.values()).sum()
    }

    /// Events that listeners received.
    pub(crate) fn deliveries(&self) -> u64 {
        self.received.values().sum()
    }

    /// Table for a terminal, in milliseconds.
    pub(crate) fn table(&self, seconds: f64) -> String {
        let mut text = format!(
            "{:<18}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}{:>9}  refused, failed\n",
            "action", "arrivals", "a second", "ok", "p50 ms", "p95 ms", "p99 ms", "max ms"
        );
        for (action, row) in &self.rows {
            let [p50, p95, p99, max] = [0.5, 0.95, 0.99, 1.0].map(|share| row.latency.quantile(share));
            let rate = float(row.due) / seconds;
            let _ = write!(
                text,
                "{:<18}{:>9}{rate:>9.1}{:>9}{p50:>9.1}{p95:>9.1}{p99:>9.1}{max:>9.1}  ",
                action.name(),
                row.due,
                row.ok
            );
            let listed = |what: &str, counts: &BTreeMap<String, u64>| {
                let counts: Vec<_> = counts.iter().map(|(name, number)| format!("{name} {number}")).collect();
                if counts.is_empty() { String::new() } else { format!("{what}: {} ", counts.join(", ")) }
            };
            let _ = writeln!(text, "{}{}", listed("refused", &row.refused), listed("FAILED", &row.failed));
        }
        let received: Vec<_> = self.received.iter().map(|(kind, number)| format!("{kind} {number}")).collect();
        let received = if received.is_empty() { "none".to_owned() } else { received.join(", ") };
        let _ = writeln!(text, "events received by listeners: {received}");
        let _ = writeln!(text, "lateness of the agents, p99: {:.1} ms", self.lateness.quantile(0.99));
        text
    }

    /// Summary for the JSON file, without histograms.
    pub(crate) fn summary(&self, seconds: f64) -> serde_json::Value {
        let rows = self.rows.iter().map(|(action, row)| {
            let [p50, p95, p99, max] = [0.5, 0.95, 0.99, 1.0].map(|share| row.latency.quantile(share));
            let row = serde_json::json!({"arrivals": row.due, "rate": float(row.due) / seconds, "ok": row.ok,
                "refused": row.refused, "failed": row.failed,
                "milliseconds": {"p50": p50, "p95": p95, "p99": p99, "max": max}});
            (action.name().to_owned(), row)
        });
        serde_json::json!({"seconds": seconds, "actions": rows.collect::<serde_json::Map<_, _>>(),
            "received": self.received, "listener_seconds": self.listened, "failures": self.failures(),
            "agent_lateness_p99_milliseconds": self.lateness.quantile(0.99)})
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    fn tally(milliseconds: std::ops::Range<u64>, verdict: &Verdict) -> Tally {
        let mut tally = Tally::default();
        for millisecond in milliseconds {
            let row = tally.row(Action::Predict);
            row.due += 1;
            row.ok += 1;
            row.latency.record(Duration::from_millis(millisecond));
        }
        tally.row(Action::Predict).count(verdict.clone());
        tally
    }

    #[test]
    fn merged_quantiles_are_those_of_all_values() {
        let refused = Verdict::Refused("overloaded".to_owned());
        // The agents' histograms travel as JSON.
        let sent = |tally: &Tally| serde_json::to_string(tally).expect("JSON");
        let mut merged = Tally::default();
        for one in [tally(0..500, &refused), tally(500..1_000, &refused)] {
            merged.merge(&serde_json::from_str(&sent(&one)).expect("a tally"));
        }
        let all = tally(0..1_000, &refused);
        let row = &merged.rows[&Action::Predict];
        for share in [0.0, 0.5, 0.95, 0.99, 1.0] {
            let (one, other) = (row.latency.quantile(share), all.rows[&Action::Predict].latency.quantile(share));
            assert!((one - other).abs() < 1e-9, "{share}: {one} and {other}");
        }
        assert_eq!((row.due, row.ok, row.refused["overloaded"]), (1_000, 1_000, 2));
    }

    #[test]
    fn only_failures_fail_a_run() {
        let mut merged = tally(0..3, &Verdict::Refused("overloaded".to_owned()));
        assert_eq!(merged.failures(), 0);
        merged.merge(&tally(0..3, &Verdict::Failed("500 internal".to_owned())));
        assert_eq!(merged.failures(), 1);
        let table = merged.table(10.0);
        assert!(table.contains("refused: overloaded 1") && table.contains("FAILED: 500 internal 1"), "{table}");
    }
}
