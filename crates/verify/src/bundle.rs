//! Recomputes the table of a tournament from its bundle, and compares it with the published one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::BufRead,
};

use scoring::{Hit, Margin, Multiplier, Outcome, RuleSet, Terms};
use serde_json::Value;

use crate::{
    chain::{Chain, verify_hash},
    fields::{Fields, Hash, Malformed, Pseudonym, Receipt, Seal, VERSION},
    input::InputError,
    report::{Check, Report},
    tree,
};

/// Points and counts of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
struct Totals {
    points: i64,
    correct: u64,
    exact: u64,
}

/// A match with its last result.
struct Match {
    rule_set: u64,
    terms: TermsOfMatch,
    start_time: i64,
    outcome: Outcome,
}

/// Terms without the rule set, which may be read later.
#[derive(Clone, Copy)]
struct TermsOfMatch {
    multiplier: Multiplier,
    is_knockout: bool,
}

/// What was read from the lines of a bundle.
#[derive(Default)]
struct Bundle {
    tournament: String,
    rule_sets: HashMap<u64, RuleSet>,
    seals: BTreeMap<u64, Seal>,
    matches: BTreeMap<u64, Match>,
    /// Leaf hashes by match, in the order of lines.
    leaves: BTreeMap<u64, Vec<Hash>>,
    predictors: HashSet<(u64, Pseudonym)>,
    withheld: u64,
    totals: HashMap<Pseudonym, Totals>,
    rows: HashMap<Pseudonym, Totals>,
    report: Report,
}

/// Verifies a bundle line by line: leaf hashes, count and root of the latest seal of each match, seal hashes, and every
/// row of the table; with a chain also that it is valid and has these seals, and no later ones of their matches.
pub fn verify(lines: impl BufRead, file: &str, chain: Option<&Chain>) -> Result<Report, InputError> {
    let mut bundle = Bundle::default();
    let mut is_first = true;
    for line in lines.lines() {
        let line = line.map_err(|error| InputError::File { file: file.to_owned(), error })?;
        let value: Value =
            serde_json::from_str(&line).map_err(|error| InputError::Json { file: file.to_owned(), error })?;
        bundle.read(&value, is_first).map_err(|error| InputError::Malformed { file: file.to_owned(), error })?;
        is_first = false;
    }
    if is_first {
        return Err(InputError::Malformed {
            file: file.to_owned(),
            error: Malformed("the bundle is empty".to_owned()),
        });
    }
    Ok(bundle.verify(chain))
}

impl Bundle {
    fn read(&mut self, value: &Value, is_first: bool) -> Result<(), Malformed> {
        let kind = Fields::of(value, "line")?.text("type")?;
        let fields = Fields::of(value, kind)?;
        if is_first != (kind == "bundle") {
            return Err(Malformed("the first line, and only the first line, must have the type bundle".to_owned()));
        }
        match kind {
            "bundle" => {
                fields.version()?;
                fields.number("tournament_id")?;
                fields.text("created_at")?;
                fields.text("tournament")?.clone_into(&mut self.tournament);
            }
            "rule_set" => {
                self.rule_sets.insert(fields.number("id")?, read_rule_set(fields)?);
            }
            "seal" => {
                let seal = Seal::read(fields)?;
                verify_hash(&seal, &mut self.report);
                self.seals.insert(seal.sequence, seal);
            }
            "event" => {
                self.matches.insert(fields.number("event_id")?, read_match(fields)?);
            }
            "prediction" => self.read_prediction(fields)?,
            "row" => self.read_row(fields)?,
            other => return Err(Malformed(format!("the line type {other} is unknown"))),
        }
        Ok(())
    }

    fn read_prediction(&mut self, fields: Fields<'_>) -> Result<(), Malformed> {
        let (event, leaf_hash) = (fields.number("event_id")?, fields.hash("leaf_hash")?);
        self.leaves.entry(event).or_default().push(leaf_hash);
        if !fields.has("salt") && !fields.has("pseudonym") {
            self.withheld += 1;
            return Ok(());
        }
        let receipt = Receipt::read(fields)?;
        let computed = receipt.computed_hash();
        self.report.require(computed == leaf_hash, Check::LeafHash, || {
            format!("a prediction of match {event} has the hash {computed}, not {leaf_hash}")
        });
        let pseudonym = receipt.pseudonym;
        let is_first = self.predictors.insert((event, pseudonym));
        self.report.require(is_first, Check::Row, || format!("{pseudonym} has two predictions of match {event}"));
        let Some(of) = self.matches.get(&event) else {
            return Err(Malformed(format!("a prediction is for match {event}, which has no line before it")));
        };
        let Some(&rules) = self.rule_sets.get(&of.rule_set) else {
            return Err(Malformed(format!("match {event} has the rule set {}, which has no line", of.rule_set)));
        };
        let TermsOfMatch { multiplier, is_knockout } = of.terms;
        let terms = Terms { rules, multiplier, is_knockout };
        if receipt.accepted_at < of.start_time
            && let Some(earned) = receipt.forecast().and_then(|forecast| forecast.earnings(&terms, of.outcome))
        {
            let totals = self.totals.entry(pseudonym).or_default();
            totals.points += i64::from(earned.total());
            totals.correct += u64::from(earned.hit != Hit::Wrong);
            totals.exact += u64::from(earned.hit == Hit::Exact);
        }
        Ok(())
    }

    fn read_row(&mut self, fields: Fields<'_>) -> Result<(), Malformed> {
        let pseudonym = fields.pseudonym("pseudonym")?;
        let row = Totals {
            points: fields.signed("points")?,
            correct: fields.number("correct")?,
            exact: fields.number("exact")?,
        };
        let is_first = self.rows.insert(pseudonym, row).is_none();
        self.report.require(is_first, Check::Row, || format!("{pseudonym} has two rows"));
        Ok(())
    }

    fn verify(mut self, chain: Option<&Chain>) -> Report {
        self.verify_seals(chain);
        self.verify_rows();
        let predictions: usize = self.leaves.values().map(Vec::len).sum();
        self.report.summary = format!(
            "{} of {}: {} matches, {predictions} predictions ({} withheld), {} rows",
            if chain.is_some() { "bundle and chain" } else { "bundle" },
            self.tournament,
            self.matches.len(),
            self.withheld,
            self.rows.len()
        );
        self.report
    }

    fn verify_seals(&mut self, chain: Option<&Chain>) {
        let report = &mut self.report;
        let mut latest: BTreeMap<u64, Seal> = BTreeMap::new();
        for &seal in self.seals.values() {
            let known = latest.entry(seal.event).or_insert(seal);
            if seal.event_sequence > known.event_sequence {
                *known = seal;
            }
        }
        for event in self.matches.keys().chain(self.leaves.keys()) {
            report.require(latest.contains_key(event), Check::Root, || format!("match {event} has no seal"));
        }
        for (event, seal) in &latest {
            report.require(self.matches.contains_key(event), Check::Event, || {
                format!("seal {} is for match {event}, which the bundle leaves out", seal.sequence)
            });
            let mut leaves = self.leaves.remove(event).unwrap_or_default();
            let count = leaves.len() as u64;
            report.require(count == seal.count, Check::Count, || {
                format!("match {event} has {count} predictions, and its seal {} has {}", seal.sequence, seal.count)
            });
            leaves.sort_unstable();
            let root = tree::root(leaves.iter().copied());
            report.require(root == seal.root, Check::Root, || {
                format!("the predictions of match {event} have the root {root}, and its seal {}", seal.root)
            });
            self.leaves.insert(*event, leaves);
        }
        let Some(chain) = chain else { return };
        report.add(chain.verify());
        for seal in self.seals.values() {
            chain.verify_holds(seal, report);
        }
        for seal in latest.values() {
            chain.verify_is_latest(seal, report);
        }
    }

    fn verify_rows(&mut self) {
        let mut expected: Vec<(&Pseudonym, &Totals)> = self.totals.iter().collect();
        expected.sort_unstable_by_key(|(pseudonym, _)| **pseudonym);
        for (pseudonym, totals) in expected {
            match self.rows.get(pseudonym) {
                None => self.report.require(false, Check::MissingRow, || {
                    format!("{pseudonym} has {} points and no row", totals.points)
                }),
                Some(row) => self.report.require(row == totals, Check::Row, || {
                    let shown = |Totals { points, correct, exact }: &Totals| {
                        format!("{points} points, {correct} correct, {exact} exact")
                    };
                    format!("the row of {pseudonym} has {}, but its predictions give {}", shown(row), shown(totals))
                }),
            }
        }
        let mut unexpected: Vec<&Pseudonym> = self.rows.keys().filter(|row| !self.totals.contains_key(*row)).collect();
        unexpected.sort_unstable();
        for pseudonym in unexpected {
            self.report.require(false, Check::Row, || format!("{pseudonym} has a row, but no settled prediction"));
        }
    }
}

/// Reads a rule set. One without values is the default.
fn read_rule_set(fields: Fields<'_>) -> Result<RuleSet, Malformed> {
    if !fields.has("outcome") {
        return Ok(RuleSet::DEFAULT);
    }
    let points = |name| fields.small::<u16>(name).map(i32::from);
    let margin = if fields.value("margin")?.is_null() {
        None
    } else {
        let margin = fields.part("margin")?;
        let number = |name| margin.small::<u16>(name).map(i32::from);
        Some(Margin { within: number("within")?, points: number("points")? })
    };
    let rules = RuleSet {
        outcome: points("outcome")?,
        difference: points("difference")?,
        exact: points("exact")?,
        margin,
        stake: points("stake")?,
        advances: points("advances")?,
    };
    if rules.is_valid() { Ok(rules) } else { Err(Malformed("a rule set has impossible values".to_owned())) }
}

fn read_match(fields: Fields<'_>) -> Result<Match, Malformed> {
    let factor = fields.float("multiplier")?;
    let multiplier = Multiplier::ALL.into_iter().find(|multiplier| (multiplier.factor() - factor).abs() < 1e-9);
    let mut outcome = Outcome::Open;
    for result in fields.array("results")? {
        outcome = read_result(Fields::of(result, "result")?)?;
    }
    Ok(Match {
        rule_set: fields.number("rule_set_id")?,
        terms: TermsOfMatch {
            multiplier: multiplier.ok_or_else(|| Malformed("a multiplier is neither 1, 1.5, 2 nor 3".to_owned()))?,
            is_knockout: fields.boolean("is_knockout")?,
        },
        start_time: fields.time("start_time")?,
        outcome,
    })
}

fn read_result(fields: Fields<'_>) -> Result<Outcome, Malformed> {
    fields.number("revision")?;
    fields.text("recorded_at")?;
    let scores = fields.optional_goals("home_score")?.zip(fields.optional_goals("away_score")?);
    let advanced = fields.side("advanced")?;
    Ok(match (fields.text("status")?, scores) {
        ("finished", Some((home, away))) => Outcome::Result { home, away, advanced },
        _ => Outcome::Void,
    })
}

const _: () = assert!(VERSION == 1, "a new version needs another reader");
