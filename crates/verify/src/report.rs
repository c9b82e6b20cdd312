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
    /// The lines of a bundle have the order of the format, and each is there once.
    Line,
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
            Self::Line => "line",
        }
    }
}

impl fmt::Display for Check {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A circumstance under which everything can match although the operator cheated. Each also has honest reasons, so a
/// person has to decide.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Flag {
    /// A match was sealed long after its start, or after its result.
    LateSeal,
    /// A match was sealed more than once. Predictions may have changed between.
    Resealed,
    /// Predictions of matches with a result are withheld.
    Withheld,
    /// A user played more jokers than the rule set allows.
    Jokers,
    /// A seal or a bundle is dated before a seal that it follows, or a prediction soon after its seal.
    Clock,
    /// A line has a field that the format does not have.
    UnknownField,
}

impl Flag {
    pub fn name(self) -> &'static str {
        match self {
            Self::LateSeal => "late_seal",
            Self::Resealed => "resealed",
            Self::Withheld => "withheld",
            Self::Jokers => "jokers",
            Self::Clock => "clock",
            Self::UnknownField => "unknown_field",
        }
    }
}

impl fmt::Display for Flag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// Something that matches, but proves less than it seems to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Flagged {
    pub flag: Flag,
    pub detail: String,
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
    pub flags: Vec<Flagged>,
    /// What was verified, for people.
    pub summary: String,
}

impl Report {
    /// Whether everything matches, and nothing is flagged.
    pub fn is_verified(&self) -> bool {
        self.failures.is_empty() && self.flags.is_empty()
    }

    /// Exit code of the command.
    pub fn exit_code(&self) -> u8 {
        match (self.failures.is_empty(), self.flags.is_empty()) {
            (true, true) => 0,
            (false, _) => 1,
            (true, false) => 3,
        }
    }

    /// Notes a failure unless the condition holds.
    pub(crate) fn require(&mut self, holds: bool, check: Check, detail: impl FnOnce() -> String) {
        if !holds {
            self.failures.push(Failure { check, detail: detail() });
        }
    }

    pub(crate) fn flag(&mut self, flag: Flag, detail: String) {
        self.flags.push(Flagged { flag, detail });
    }

    pub(crate) fn add(&mut self, other: Self) {
        self.failures.extend(other.failures);
        self.flags.extend(other.flags);
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
        let flags: Vec<Value> =
            self.flags.iter().map(|flagged| json!({"flag": flagged.flag.name(), "detail": flagged.detail})).collect();
        json!({"verified": self.is_verified(), "failures": failures, "flags": flags})
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.exit_code() {
            0 => write!(f, "verified: {}", self.summary)?,
            3 => write!(f, "VERIFIED WITH FLAGS: {}", self.summary)?,
            _ => f.write_str("NOT VERIFIED")?,
        }
        for Failure { check, detail } in &self.failures {
            write!(f, "\n  {check}: {detail}")?;
        }
        for Flagged { flag, detail } in &self.flags {
            write!(f, "\n  flag {flag}: {detail}")?;
        }
        Ok(())
    }
}
