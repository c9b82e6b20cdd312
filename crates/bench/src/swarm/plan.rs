//! Messages between the coordinator and its agents: lines of JSON on one connection per run.

use serde::{Deserialize, Serialize};

use super::{script::Course, tally::Tally};

/// Work of one agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// Base URL of the deployment.
    pub(crate) url: String,
    /// Number of this run, which makes idempotency keys and references unique.
    pub(crate) run: u64,
    /// Place of this agent among all agents.
    pub(crate) agent: u64,
    pub(crate) agents: u64,
    pub(crate) courses: Vec<Course>,
    /// Seconds that listeners stay at least.
    pub(crate) seconds: f64,
    /// Session tokens of this agent's fans.
    pub(crate) tokens: Vec<String>,
    pub(crate) phones: Option<Phones>,
    /// The match that fans predict.
    pub(crate) event: u64,
    pub(crate) tournament: u64,
    /// Matrix ids of rooms to join.
    pub(crate) rooms: Vec<String>,
    /// Whether to send a different `X-Forwarded-For` for each fan.
    pub(crate) spread_addresses: bool,
}

/// Phone numbers for log-ins: `prefix` followed by consecutive numbers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Phones {
    pub(crate) prefix: String,
    pub(crate) first: u64,
}

impl Phones {
    /// Splits a first phone, like `+14152000000`, into its country and area, and seven digits.
    pub(crate) fn from_first(phone: &str) -> Option<Self> {
        let split = phone.len().checked_sub(7)?;
        let (prefix, digits) = phone.split_at_checked(split)?;
        let is_number = prefix.strip_prefix('+')?.bytes().all(|byte| byte.is_ascii_digit());
        Some(Self { prefix: prefix.to_owned(), first: digits.parse().ok()? }).filter(|_| is_number)
    }

    pub(crate) fn phone(&self, number: u64) -> String {
        format!("{}{:07}", self.prefix, self.first + number)
    }
}

/// Message to an agent.
#[derive(Clone, Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Order {
    Plan(Box<Plan>),
    Start,
    /// An operator changes the match now; listeners will receive an event of this kind.
    Fact {
        kind: String,
    },
}

/// Message from an agent.
#[derive(Clone, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Reply {
    Ready,
    Progress { ok: u64, refused: u64, failed: u64 },
    Done(Box<Tally>),
    Refused { reason: String },
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn phones_follow_the_first() {
        let phones = Phones::from_first("+14152000000").expect("a phone");
        assert_eq!([phones.phone(0), phones.phone(17)], ["+14152000000", "+14152000017"]);
        for wrong in ["", "4152000000", "+1415x000000", "123"] {
            assert_eq!(Phones::from_first(wrong), None, "{wrong}");
        }
    }
}
