//! Verifies a chain of seals.

use std::collections::HashMap;

use serde_json::Value;

use crate::{
    fields::{Fields, Hash, Malformed, Seal},
    report::{Check, Flag, Report},
};

/// Seals in the order of their sequences.
#[derive(Clone, Debug)]
pub struct Chain {
    seals: Vec<Seal>,
    by_sequence: HashMap<u64, usize>,
}

impl Chain {
    /// Reads an array of seals.
    pub fn read(value: &Value) -> Result<Self, Malformed> {
        let values = value.as_array().ok_or_else(|| Malformed("the chain is not an array of seals".to_owned()))?;
        let seals = values.iter().map(|value| Seal::read(Fields::of(value, "seal")?)).collect::<Result<Vec<_>, _>>()?;
        let by_sequence = seals.iter().enumerate().map(|(at, seal)| (seal.sequence, at)).collect();
        Ok(Self { seals, by_sequence })
    }

    /// Verifies that the seals ascend without gaps, that each has its hash and names the hash of the one before, and that
    /// those of each match are numbered without gaps. A chain may start above sequence 1; the first `previous` is then
    /// taken as given, and so is the first number of each match.
    pub fn verify(&self) -> Report {
        let mut report = Report::default();
        let mut before: Option<&Seal> = None;
        let is_complete = self.seals.first().is_none_or(|first| first.sequence <= 1);
        let mut numbers: HashMap<u64, u32> = HashMap::new();
        for seal in &self.seals {
            let sequence = seal.sequence;
            verify_hash(seal, &mut report);
            match before {
                None => report.require(sequence > 1 || seal.previous == Hash::default(), Check::Previous, || {
                    format!("seal {sequence} is the first one, but names another before it")
                }),
                Some(before) => {
                    report.require(before.sequence.checked_add(1) == Some(sequence), Check::Sequence, || {
                        format!("seal {sequence} follows seal {}", before.sequence)
                    });
                    verify_follows(seal, before, &mut report);
                }
            }
            // A gap in the chain is reported already.
            let is_next = before.is_none_or(|before| before.sequence.checked_add(1) == Some(sequence));
            let first = if is_complete { 1 } else { seal.event_sequence.max(1) };
            let expected = numbers.insert(seal.event, seal.event_sequence).map_or(first, |last| last.saturating_add(1));
            verify_number(seal, if is_next { expected } else { seal.event_sequence }, &mut report);
            before = Some(seal);
        }
        report.summary = match (self.seals.first(), self.seals.last()) {
            (Some(first), Some(last)) => {
                format!("seals {} to {}; the last hash is {}", first.sequence, last.sequence, last.hash)
            }
            _ => "the chain has no seals".to_owned(),
        };
        report
    }

    pub(crate) fn seals(&self) -> &[Seal] {
        &self.seals
    }

    /// Verifies that the chain has this seal, and not another one at its place.
    pub(crate) fn verify_holds(&self, seal: &Seal, report: &mut Report) {
        let found = self.by_sequence.get(&seal.sequence).and_then(|&at| self.seals.get(at));
        report.require(found.is_some_and(|found| found.hash == seal.hash), Check::NotInChain, || match found {
            Some(found) => format!("the chain has another seal {}, with the hash {}", seal.sequence, found.hash),
            None => format!("the chain has no seal {}", seal.sequence),
        });
    }

    /// Verifies that the chain has no later seal of the same match.
    pub(crate) fn verify_is_latest(&self, seal: &Seal, report: &mut Report) {
        let later =
            self.seals.iter().find(|other| other.event == seal.event && other.event_sequence > seal.event_sequence);
        if let Some(later) = later {
            report.require(false, Check::NotInChain, || {
                format!("seal {} of match {} replaces seal {}", later.sequence, seal.event, seal.sequence)
            });
        }
    }
}

/// Verifies the number of a seal among those of its match.
pub(crate) fn verify_number(seal: &Seal, expected: u32, report: &mut Report) {
    report.require(seal.event_sequence == expected, Check::Sequence, || {
        format!("seal {} is number {} of match {}, not {expected}", seal.sequence, seal.event_sequence, seal.event)
    });
}

/// Verifies that a seal names the hash of the one before it in the chain, and is not dated before it.
pub(crate) fn verify_follows(seal: &Seal, before: &Seal, report: &mut Report) {
    if seal.sealed_at < before.sealed_at {
        report.flag(Flag::Clock, format!("seal {} is dated before seal {}", seal.sequence, before.sequence));
    }
    report.require(seal.previous == before.hash, Check::Previous, || {
        format!("seal {} names {} as the hash before it, which is {}", seal.sequence, seal.previous, before.hash)
    });
}

pub(crate) fn verify_hash(seal: &Seal, report: &mut Report) {
    let computed = seal.computed_hash();
    report.require(computed == seal.hash, Check::SealHash, || {
        format!("seal {} has the hash {computed}, not {}", seal.sequence, seal.hash)
    });
}
