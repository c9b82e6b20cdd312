//! Recomputes the table of a tournament from its bundle, and compares it with the published one.

use std::{
    collections::{BTreeMap, HashMap, HashSet},
    io::BufRead,
};

use scoring::{Hit, Margin, Multiplier, Outcome, RuleSet, Terms};
use serde_json::Value;

use crate::{
    chain::{Chain, verify_follows, verify_hash, verify_number},
    fields::{CLOCK_STEP, Fields, Hash, Malformed, Pseudonym, Receipt, Seal, VERSION},
    input::{self, InputError},
    report::{Check, Flag, Report},
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
    /// Time of the first result that is not void.
    decided_at: Option<i64>,
}

/// Rules of points, and the number of jokers that a user has.
struct Rules {
    points: RuleSet,
    jokers: Option<u64>,
}

/// Order of a line in the file: its type, and its place among the lines of the type.
type Place = (usize, i128, [u8; 32]);

/// Types of lines in the order of the file, with their fields. A rule set also has fields that no points follow from.
const KINDS: [(&str, &[&str]); 6] = [
    ("bundle", &["version", "tournament_id", "tournament", "created_at"]),
    (
        "rule_set",
        &[
            "id",
            "slug",
            "name",
            "outcome",
            "difference",
            "exact",
            "margin",
            "stake",
            "advances",
            "multiplier",
            "joker",
            "created_at",
        ],
    ),
    (
        "seal",
        &[
            "sequence",
            "version",
            "event_id",
            "event_sequence",
            "count",
            "root",
            "start_time",
            "sealed_at",
            "previous",
            "hash",
            "timestamp_token",
        ],
    ),
    ("event", &["event_id", "rule_set_id", "multiplier", "is_knockout", "start_time", "results"]),
    (
        "prediction",
        &[
            "version",
            "leaf_hash",
            "event_id",
            "pseudonym",
            "salt",
            "prediction",
            "score_prediction",
            "confidence",
            "advances",
            "joker",
            "revision",
            "accepted_at",
        ],
    ),
    ("row", &["pseudonym", "points", "correct", "exact"]),
];

const RESULT_FIELDS: [&str; 6] = ["revision", "status", "home_score", "away_score", "advanced", "recorded_at"];

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
    created_at: i64,
    /// Number and place of the last line.
    line: usize,
    place: Place,
    rule_sets: HashMap<u64, Rules>,
    seals: BTreeMap<u64, Seal>,
    /// Seal of each match that counts: the last one.
    latest: BTreeMap<u64, Seal>,
    matches: BTreeMap<u64, Match>,
    /// Leaf hashes by match, in the order of lines.
    leaves: BTreeMap<u64, Vec<Hash>>,
    predictors: HashSet<(u64, Pseudonym)>,
    /// Number of withheld predictions by match.
    withheld: BTreeMap<u64, u64>,
    /// Number of predictions by match that are dated after the seal, by no more than a correction of the clock.
    after_seal: BTreeMap<u64, u64>,
    /// Number of jokers in matches with a result, by user and rule set.
    jokers: BTreeMap<(Pseudonym, u64), u64>,
    totals: HashMap<Pseudonym, Totals>,
    rows: HashMap<Pseudonym, Totals>,
    report: Report,
}

/// Verifies a bundle line by line: order of the lines, leaf hashes, all seals of each match, count and root of the latest
/// one, seals that follow each other in the chain, and every row of the table; with a chain also that it is valid and has
/// these seals, and no others of their matches.
pub fn verify(lines: impl BufRead, file: &str, chain: Option<&Chain>) -> Result<Report, InputError> {
    let mut bundle = Bundle::default();
    let mut is_first = true;
    for line in lines.lines() {
        let line = line.map_err(|error| InputError::File { file: file.to_owned(), error })?;
        let value = input::parse(&line, file)?;
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
        let Some(order) = KINDS.iter().position(|(name, _)| *name == kind) else {
            return Err(Malformed(format!("the line type {kind} is unknown")));
        };
        self.line += 1;
        let place = match kind {
            "bundle" => {
                fields.version()?;
                fields.number("tournament_id")?;
                fields.text("tournament")?.clone_into(&mut self.tournament);
                self.created_at = fields.time("created_at")?;
                (0, [0; 32])
            }
            "rule_set" => self.read_rule_set(fields)?,
            "seal" => self.read_seal(fields)?,
            "event" => self.read_match(fields)?,
            "prediction" => self.read_prediction(fields)?,
            _ => self.read_row(fields)?,
        };
        let place = (order, place.0, place.1);
        self.report.require(is_first || place > self.place, Check::Line, || {
            format!("line {} ({kind}) is not in order, or repeats the line before it", self.line)
        });
        self.place = self.place.max(place);
        self.flag_unknown(fields, KINDS[order].1);
        Ok(())
    }

    /// Flags a field that the format does not have. What a reader takes from it is not verified.
    fn flag_unknown(&mut self, fields: Fields<'_>, known: &[&str]) {
        if let Some(name) = fields.other_than(known) {
            self.report.flag(Flag::UnknownField, format!("line {} has the field {name:?}", self.line));
        }
    }

    fn read_rule_set(&mut self, fields: Fields<'_>) -> Result<(i128, [u8; 32]), Malformed> {
        let id = fields.number("id")?;
        let jokers = if fields.has("joker") { Some(fields.number("joker")?) } else { None };
        self.rule_sets.entry(id).or_insert(Rules { points: read_rule_set(fields)?, jokers });
        Ok((id.into(), [0; 32]))
    }

    fn read_seal(&mut self, fields: Fields<'_>) -> Result<(i128, [u8; 32]), Malformed> {
        let seal = Seal::read(fields)?;
        verify_hash(&seal, &mut self.report);
        let before = self.latest.get(&seal.event);
        verify_number(&seal, before.map_or(1, |seal| seal.event_sequence.saturating_add(1)), &mut self.report);
        self.latest.insert(seal.event, seal);
        self.seals.entry(seal.sequence).or_insert(seal);
        if seal.sealed_at > self.created_at {
            self.report.flag(Flag::Clock, format!("the bundle is dated before seal {}", seal.sequence));
        }
        Ok((seal.sequence.into(), [0; 32]))
    }

    fn read_match(&mut self, fields: Fields<'_>) -> Result<(i128, [u8; 32]), Malformed> {
        let event = fields.number("event_id")?;
        let of = read_match(fields)?;
        if !self.rule_sets.contains_key(&of.rule_set) {
            return Err(Malformed(format!(
                "match {event} has the rule set {}, which has no line before it",
                of.rule_set
            )));
        }
        let mut revision = 0;
        for result in fields.array("results")? {
            let result = Fields::of(result, "result")?;
            self.flag_unknown(result, &RESULT_FIELDS);
            let next = result.number("revision")?;
            self.report.require(next > revision, Check::Event, || {
                format!("the results of match {event} are not in the order of their revisions")
            });
            revision = revision.max(next);
        }
        if let Some(seal) = self.latest.get(&event) {
            self.report.require(of.start_time == seal.start_time, Check::Event, || {
                format!("match {event} has another start than its seal {}", seal.sequence)
            });
            if let Some(minutes) = seal.minutes_late() {
                self.report.flag(Flag::LateSeal, format!("match {event} was sealed {minutes} minutes after its start"));
            } else if of.decided_at.is_some_and(|time| time < seal.sealed_at) {
                self.report.flag(Flag::LateSeal, format!("match {event} was sealed after its first result"));
            }
        }
        self.matches.entry(event).or_insert(of);
        Ok((event.into(), [0; 32]))
    }

    fn read_prediction(&mut self, fields: Fields<'_>) -> Result<(i128, [u8; 32]), Malformed> {
        let (event, leaf_hash) = (fields.number("event_id")?, fields.hash("leaf_hash")?);
        let place = (event.into(), leaf_hash.0);
        self.leaves.entry(event).or_default().push(leaf_hash);
        let Some(of) = self.matches.get(&event) else {
            return Err(Malformed(format!("a prediction is for match {event}, which has no line before it")));
        };
        if !fields.has("salt") && !fields.has("pseudonym") {
            let other = fields.other_than(&["event_id", "leaf_hash"]);
            self.report.require(other.is_none(), Check::Line, || {
                format!("line {} shows a part of a prediction, which cannot be verified", self.line)
            });
            *self.withheld.entry(event).or_default() += 1;
            return Ok(place);
        }
        let receipt = Receipt::read(fields)?;
        let (computed, pseudonym) = (receipt.computed_hash(), receipt.pseudonym);
        let report = &mut self.report;
        report.require(computed == leaf_hash, Check::LeafHash, || {
            format!("a prediction of match {event} has the hash {computed}, not {leaf_hash}")
        });
        if let Some(seal) = self.latest.get(&event) {
            let after_seal = receipt.accepted_at - seal.sealed_at;
            let is_in_time = receipt.accepted_at < seal.start_time && after_seal <= CLOCK_STEP;
            report.require(is_in_time, Check::Event, || {
                format!("the prediction of match {event} by {pseudonym} was accepted after the start or the seal")
            });
            if is_in_time && after_seal > 0 {
                *self.after_seal.entry(event).or_default() += 1;
            }
        }
        let is_first = self.predictors.insert((event, pseudonym));
        report.require(is_first, Check::Row, || format!("{pseudonym} has two predictions of match {event}"));
        let Some(rules) = self.rule_sets.get(&of.rule_set) else { return Ok(place) };
        let TermsOfMatch { multiplier, is_knockout } = of.terms;
        let terms = Terms { rules: rules.points, multiplier, is_knockout };
        let forecast = receipt.forecast();
        report.require(forecast.is_some(), Check::Row, || {
            format!("the prediction of match {event} by {pseudonym} contradicts itself, so it has no points")
        });
        if receipt.accepted_at < of.start_time
            && let Some(earned) = forecast.and_then(|forecast| forecast.earnings(&terms, of.outcome))
        {
            let totals = self.totals.entry(pseudonym).or_default();
            totals.points += i64::from(earned.total());
            totals.correct += u64::from(earned.hit != Hit::Wrong);
            totals.exact += u64::from(earned.hit == Hit::Exact);
            *self.jokers.entry((pseudonym, of.rule_set)).or_default() += u64::from(receipt.joker);
        }
        Ok(place)
    }

    fn read_row(&mut self, fields: Fields<'_>) -> Result<(i128, [u8; 32]), Malformed> {
        let pseudonym = fields.pseudonym("pseudonym")?;
        let row = Totals {
            points: fields.signed("points")?,
            correct: fields.number("correct")?,
            exact: fields.number("exact")?,
        };
        let is_first = self.rows.insert(pseudonym, row).is_none();
        self.report.require(is_first, Check::Row, || format!("{pseudonym} has two rows"));
        let mut tie = [0; 32];
        tie[..16].copy_from_slice(&pseudonym.0);
        Ok((-i128::from(row.points), tie))
    }

    fn verify(mut self, chain: Option<&Chain>) -> Report {
        self.verify_seals(chain);
        self.verify_rows();
        self.flag_seals();
        self.flag_points();
        let predictions: usize = self.leaves.values().map(Vec::len).sum();
        self.report.summary = format!(
            "{} of {}: {} matches, {predictions} predictions ({} withheld), {} rows",
            if chain.is_some() { "bundle and chain" } else { "bundle" },
            self.tournament,
            self.matches.len(),
            self.withheld.values().sum::<u64>(),
            self.rows.len()
        );
        self.report
    }

    fn verify_seals(&mut self, chain: Option<&Chain>) {
        let (report, latest) = (&mut self.report, &self.latest);
        for event in self.matches.keys().chain(self.leaves.keys()) {
            report.require(latest.contains_key(event), Check::Root, || format!("match {event} has no seal"));
        }
        for (event, seal) in latest {
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
        let Some(chain) = chain else {
            for (before, seal) in self.seals.values().zip(self.seals.values().skip(1)) {
                if before.sequence.checked_add(1) == Some(seal.sequence) {
                    verify_follows(seal, before, report);
                }
            }
            return;
        };
        report.add(chain.verify());
        for seal in self.seals.values() {
            chain.verify_holds(seal, report);
        }
        for other in chain.seals() {
            let is_left_out = latest.contains_key(&other.event) && !self.seals.contains_key(&other.sequence);
            report.require(!is_left_out, Check::NotInChain, || {
                format!("the bundle leaves out seal {} of match {}", other.sequence, other.event)
            });
        }
    }

    /// Names all seals of matches with several, because the predictions of a match can change while it is open again.
    /// Counts predictions that are dated after their seal.
    fn flag_seals(&mut self) {
        for (event, predictions) in &self.after_seal {
            let detail = format!("predictions of match {event} that are dated after its seal: {predictions}");
            self.report.flag(Flag::Clock, detail);
        }
        for latest in self.latest.values().filter(|latest| latest.event_sequence > 1) {
            let when = |seal: &Seal| match seal.sealed_at - seal.start_time {
                early if early < 0 => format!("seal {} before its start", seal.sequence),
                late => format!("seal {} {} minutes after its start", seal.sequence, late / 60_000_000),
            };
            let seals: Vec<String> = self.seals.values().filter(|seal| seal.event == latest.event).map(when).collect();
            let detail = format!("match {} was sealed {} times: {}", latest.event, seals.len(), seals.join(", "));
            self.report.flag(Flag::Resealed, detail);
        }
    }

    fn flag_points(&mut self) {
        let is_settled =
            |event: &u64| self.matches.get(event).is_some_and(|of| matches!(of.outcome, Outcome::Result { .. }));
        let settled = self.withheld.iter().filter(|(event, _)| is_settled(event));
        let (matches, withheld) = settled.fold((0, 0), |(matches, sum), (_, withheld)| (matches + 1, sum + withheld));
        if withheld > 0 {
            let detail = format!(
                "not verified: {withheld} withheld predictions of matches with a result, in {matches} matches; a user with a \
                 row can have withheld losses"
            );
            self.report.flag(Flag::Withheld, detail);
        }
        for ((pseudonym, rule_set), played) in &self.jokers {
            let allowed = self.rule_sets.get(rule_set).and_then(|rules| rules.jokers);
            if let Some(allowed) = allowed.filter(|allowed| played > allowed) {
                let detail = format!("{pseudonym} played {played} jokers, and rule set {rule_set} allows {allowed}");
                self.report.flag(Flag::Jokers, detail);
            }
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
    let (mut outcome, mut decided_at) = (Outcome::Open, None);
    for result in fields.array("results")? {
        let result = Fields::of(result, "result")?;
        outcome = read_result(result)?;
        let recorded_at = result.time("recorded_at")?;
        if matches!(outcome, Outcome::Result { .. }) {
            decided_at = decided_at.or(Some(recorded_at));
        }
    }
    Ok(Match {
        rule_set: fields.number("rule_set_id")?,
        terms: TermsOfMatch {
            multiplier: multiplier.ok_or_else(|| Malformed("a multiplier is neither 1, 1.5, 2 nor 3".to_owned()))?,
            is_knockout: fields.boolean("is_knockout")?,
        },
        start_time: fields.time("start_time")?,
        outcome,
        decided_at,
    })
}

fn read_result(fields: Fields<'_>) -> Result<Outcome, Malformed> {
    let scores = fields.optional_goals("home_score")?.zip(fields.optional_goals("away_score")?);
    let advanced = fields.side("advanced")?;
    Ok(match (fields.text("status")?, scores) {
        ("finished", Some((home, away))) => Outcome::Result { home, away, advanced },
        _ => Outcome::Void,
    })
}

const _: () = assert!(VERSION == 1, "a new version needs another reader");
