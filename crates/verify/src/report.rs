//! Outcome of a verification.

use std::fmt;

use serde_json::{Value, json};

/// What was compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Check {
    /// The fields of a receipt have its leaf hash.
    LeafHash,
    /// A receipt belongs to the match of its seal, and was accepted before its start.
    Event,
    /// The inclusion path leads from the leaf to the root of the seal.
    Inclusion,
    /// The fields of a seal have its hash.
    SealHash,
    /// The sequences of a chain have no gaps.
    Sequence,
    /// Each seal names the hash of the one before.
    Previous,
    /// The chain has this seal.
    NotInChain,
    /// The leaves of a match have the root of its seal.
    Root,
    /// A match has as many leaves as its seal says.
    Count,
    /// A row of the table follows from predictions, results and rules.
    Row,
    /// Every user with a settled prediction has a row.
    MissingRow,
}

impl Check {
    pub fn name(self) -> &'static str {
        match self {
            Self::LeafHash => "leaf_hash",
            Self::Event => "event",
            Self::Inclusion => "inclusion",
            Self::SealHash => "seal_hash",
            Self::Sequence => "sequence",
            Self::Previous => "previous",
            Self::NotInChain => "not_in_chain",
            Self::Root => "root",
            Self::Count => "count",
            Self::Row => "row",
            Self::MissingRow => "missing_row",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that does not match.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Failure {
    pub check: Check,
    pub detail: String,
}

/// Outcome of a verification that could be carried out.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    pub failures: Vec<Failure>,
    /// What was verified, for people.
    pub summary: String,
}

impl Report {
    pub fn is_verified(&self) -> bool {
        self.failures.is_empty()
    }

    /// Notes a failure unless the condition holds.
    pub(crate) fn require(&mut self, holds: bool, check: Check, detail: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(Failure { check, detail: detail() });
        }
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.failures.extend(other.failures);
    }

    /// The failed checks, each once.
    pub fn checks(&self) -> Vec<Check> {
        let mut checks: Vec<Check> = self.failures.iter().map(|failure| failure.check).collect();
        checks.sort_unstable();
        checks.dedup();
        checks
    }

    pub fn to_json(&self) -> Value {
        let failures: Vec<Value> = self
            .failures
            .iter()
            .map(|failure| json!({"check": failure.check.name(), "detail": failure.detail}))
            .collect();
        json!({"verified": self.is_verified(), "failures": failures})
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_verified() {
            return write!(f, "verified: {}", self.summary);
        }
        f.write_str("NOT VERIFIED")?;
        for Failure { check, detail } in &self.failures {
            write!(f, "\n  {check}: {detail}")?;
        }
        Ok(())
    }
}
