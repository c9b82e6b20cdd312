//! Bundles and chains that an operator forged with all hashes in order. Each is refused or flagged.

use std::collections::BTreeSet;

use matchday_verify::{Report, bundle, chain::Chain};
use serde_json::{Value, json};
use sha2::{Digest as _, Sha256};

/// Start of 20 November 2026 in microseconds since 1970.
const DAY: i64 = 1_795_132_800_000_000;
const SECOND: i64 = 1_000_000;
const MINUTE: i64 = 60 * SECOND;
const HOUR: i64 = 60 * MINUTE;

/// Start of the matches, and times before and after it.
const START: i64 = 15 * HOUR;
const BEFORE: i64 = START - HOUR;
const SEALED: i64 = START + 2 * SECOND;
const FULL_TIME: i64 = START + 2 * HOUR;

const HOME_WIN: (u16, u16) = (2, 1);
const AWAY_WIN: (u16, u16) = (0, 1);

fn hash(parts: &[&[u8]]) -> [u8; 32] {
    parts.iter().fold(Sha256::new(), Sha256::chain_update).finalize().into()
}

/// A time of the day as text.
fn text(time: i64) -> String {
    let (seconds, micros) = (time / SECOND, time % SECOND);
    format!("2026-11-20T{:02}:{:02}:{:02}.{micros:06}Z", seconds / 3_600, seconds / 60 % 60, seconds % 60)
}

/// A prediction with confidence 100. `user` is every byte of the pseudonym.
#[derive(Clone, Copy)]
struct Leaf {
    user: u8,
    event: u64,
    pick: &'static str,
    score: Option<(u16, u16)>,
    joker: bool,
    accepted_at: i64,
}

impl Leaf {
    fn hash(&self) -> [u8; 32] {
        let pick = match self.pick {
            "home" => 1,
            "draw" => 2,
            _ => 3,
        };
        let (home, away) = self.score.unwrap_or_default();
        hash(&[
            &[0, 1],
            &[self.user; 16],
            &self.salt(),
            &self.event.to_be_bytes(),
            &[pick, u8::from(self.score.is_some())],
            &home.to_be_bytes(),
            &away.to_be_bytes(),
            &[100, 0, u8::from(self.joker)],
            &1_u32.to_be_bytes(),
            &(DAY + self.accepted_at).to_be_bytes(),
        ])
    }

    /// Another one for each pick of a user.
    fn salt(&self) -> [u8; 16] {
        [self.user ^ self.pick.as_bytes()[0]; 16]
    }

    fn shown(&self) -> Value {
        json!({
            "type": "prediction", "version": 1, "leaf_hash": hex::encode(self.hash()), "event_id": self.event,
            "pseudonym": hex::encode([self.user; 16]), "salt": hex::encode(self.salt()), "prediction": self.pick,
            "score_prediction": self.score.map(|(home, away)| json!({"home": home, "away": away})), "confidence": 100,
            "advances": null, "joker": self.joker, "revision": 1, "accepted_at": text(self.accepted_at),
        })
    }

    fn withheld(&self) -> Value {
        json!({"type": "prediction", "event_id": self.event, "leaf_hash": hex::encode(self.hash())})
    }
}

fn leaf(user: u8, event: u64, pick: &'static str, score: (u16, u16)) -> Leaf {
    Leaf { user, event, pick, score: Some(score), joker: false, accepted_at: BEFORE }
}

fn root(leaves: &[[u8; 32]]) -> [u8; 32] {
    match leaves {
        [] => hash(&[]),
        [only] => *only,
        _ => {
            let (left, right) = leaves.split_at(leaves.len().next_power_of_two() / 2);
            hash(&[&[1], &root(left), &root(right)])
        }
    }
}

/// What an operator hands out.
struct Files {
    lines: Vec<Value>,
    chain: Vec<Value>,
}

impl Files {
    /// Line of a bundle before any match.
    fn new() -> Self {
        let bundle = json!({
            "type": "bundle", "version": 1, "tournament_id": 1, "tournament": "cup", "created_at": text(20 * HOUR),
        });
        Self { lines: vec![bundle, json!({"type": "rule_set", "id": 1, "name": "default"})], chain: Vec::new() }
    }

    /// Appends a seal to the chain.
    fn seal(&mut self, event: u64, number: u32, leaves: &[Leaf], start: i64, at: i64) -> Value {
        let mut leaves: Vec<[u8; 32]> = leaves.iter().map(Leaf::hash).collect();
        leaves.sort_unstable();
        let previous: [u8; 32] = self.chain.last().map_or([0; 32], |seal| {
            let text = seal["hash"].as_str().expect("a hash");
            hex::decode(text).expect("digits").try_into().expect("32 bytes")
        });
        let (sequence, count, root) = (self.chain.len() as u64 + 1, leaves.len() as u64, root(&leaves));
        let hash = hash(&[
            &[2, 1],
            &sequence.to_be_bytes(),
            &event.to_be_bytes(),
            &number.to_be_bytes(),
            &count.to_be_bytes(),
            &root,
            &(DAY + start).to_be_bytes(),
            &(DAY + at).to_be_bytes(),
            &previous,
        ]);
        let seal = json!({
            "sequence": sequence, "version": 1, "event_id": event, "event_sequence": number, "count": count,
            "root": hex::encode(root), "start_time": text(start), "sealed_at": text(at),
            "previous": hex::encode(previous), "hash": hex::encode(hash), "timestamp_token": null,
        });
        self.chain.push(seal.clone());
        let mut line = seal.clone();
        line["type"] = json!("seal");
        self.lines.push(line);
        seal
    }

    fn event(&mut self, event: u64, start: i64, scores: &[(u16, u16)]) {
        let result = |(revision, (home, away)): (usize, &(u16, u16))| {
            json!({
                "revision": revision + 1, "status": "finished", "home_score": home, "away_score": away, "advanced": null,
                "recorded_at": text(FULL_TIME),
            })
        };
        self.lines.push(json!({
            "type": "event", "event_id": event, "rule_set_id": 1, "multiplier": 1, "is_knockout": false,
            "start_time": text(start), "results": scores.iter().enumerate().map(result).collect::<Vec<_>>(),
        }));
    }

    /// Appends predictions in the order of their hashes.
    fn predictions(&mut self, mut lines: Vec<Value>) {
        lines.sort_by_key(|line| (line["event_id"].as_u64(), line["leaf_hash"].to_string()));
        self.lines.extend(lines);
    }

    /// Appends rows: user, points, correct, exact.
    fn rows(mut self, rows: &[(u8, i64, u64, u64)]) -> Self {
        self.lines.extend(rows.iter().map(|(user, points, correct, exact)| {
            let pseudonym = hex::encode([*user; 16]);
            json!({"type": "row", "pseudonym": pseudonym, "points": points, "correct": correct, "exact": exact})
        }));
        self
    }

    /// Position of the first line of a type.
    fn first(&self, kind: &str) -> usize {
        self.lines.iter().position(|line| line["type"] == kind).expect("a line")
    }

    fn text(&self) -> String {
        self.lines.iter().flat_map(|line| [line.to_string(), "\n".to_owned()]).collect()
    }

    fn verify(&self) -> Report {
        let chain = Chain::read(&json!(self.chain)).expect("a chain");
        bundle::verify(self.text().as_bytes(), "bundle", Some(&chain)).expect("a bundle")
    }

    /// Exit code, and the names of failed checks and flags.
    fn outcome(&self) -> (u8, BTreeSet<&'static str>) {
        let report = self.verify();
        let checks = report.failures.iter().map(|failure| failure.check.name());
        let names = checks.chain(report.flags.iter().map(|flagged| flagged.flag.name())).collect();
        (report.exit_code(), names)
    }
}

const ANNE: u8 = 0xaa;
const BEN: u8 = 0xbb;

/// Predictions of a match that ends 2:1: Anne's is exact, and Ben's is wrong.
fn predictions() -> [Leaf; 2] {
    [leaf(ANNE, 1, "home", HOME_WIN), leaf(BEN, 1, "away", (0, 3))]
}

fn shown(leaves: &[Leaf]) -> Vec<Value> {
    leaves.iter().map(Leaf::shown).collect()
}

/// A bundle of one match, sealed two seconds after its start.
fn honest() -> Files {
    with(&predictions(), &[HOME_WIN])
}

/// The same with other predictions and results, and the rows of the honest one.
fn with(leaves: &[Leaf], scores: &[(u16, u16)]) -> Files {
    let mut files = Files::new();
    files.seal(1, 1, leaves, START, SEALED);
    files.event(1, START, scores);
    files.predictions(shown(leaves));
    files.rows(&[(ANNE, 60, 1, 1), (BEN, -20, 0, 0)])
}

/// Changes an honest bundle.
fn changed(change: impl FnOnce(&mut Files)) -> Files {
    let mut files = honest();
    change(&mut files);
    files
}

#[test]
fn honest_bundles_are_verified_without_flags() {
    assert_eq!(honest().outcome(), (0, BTreeSet::new()));
    // With a joker, a correction, a withheld prediction of a match without a result, and a seal of another tournament.
    let [mut anne, ben] = predictions();
    anne.joker = true;
    let open = [leaf(ANNE, 2, "draw", (1, 1)), leaf(BEN, 2, "home", HOME_WIN)];
    let mut files = Files::new();
    files.lines[1] = json!({
        "type": "rule_set", "id": 1, "name": "one joker", "outcome": 20, "difference": 30, "exact": 40, "margin": null,
        "stake": 20, "advances": 10, "joker": 1,
    });
    files.seal(1, 1, &[anne, ben], START, SEALED);
    files.seal(2, 1, &open, START, SEALED);
    files.seal(77, 1, &[], START, SEALED + SECOND);
    files.lines.pop();
    files.event(1, START, &[AWAY_WIN, HOME_WIN]);
    files.event(2, START, &[]);
    let mut lines = shown(&[anne, ben]);
    lines.extend([open[0].shown(), open[1].withheld()]);
    files.predictions(lines);
    let files = files.rows(&[(ANNE, 120, 1, 1), (BEN, -20, 0, 0)]);
    assert_eq!(files.outcome(), (0, BTreeSet::new()), "{}", files.verify());
}

#[test]
fn two_results_of_one_match_are_refused() {
    // Each prediction follows a line with the result that it predicts.
    let [anne, ben] = predictions();
    let mut files = Files::new();
    files.seal(1, 1, &[anne, ben], START, SEALED);
    files.event(1, START, &[HOME_WIN]);
    files.predictions(vec![anne.shown()]);
    files.event(1, START, &[(0, 3)]);
    files.predictions(vec![ben.shown()]);
    let (code, checks) = files.rows(&[(ANNE, 60, 1, 1), (BEN, 60, 1, 1)]).outcome();
    assert!(code == 1 && checks.is_superset(&BTreeSet::from(["line", "row"])), "{code} {checks:?}");
}

#[test]
fn two_rule_sets_with_one_id_are_refused() {
    let generous = json!({
        "type": "rule_set", "id": 1, "name": "x", "outcome": 1000, "difference": 1000, "exact": 1000, "margin": null,
        "stake": 0, "advances": 0,
    });
    for place in ["seal", "row"] {
        let files = changed(|files| files.lines.insert(files.first(place), generous.clone()));
        let (code, checks) = files.outcome();
        assert!(code == 1 && checks.contains("line"), "{place}: {code} {checks:?}");
    }
}

#[test]
fn hedged_predictions_are_flagged() {
    // Anne has a leaf for each outcome, and the wrong ones are withheld after the result.
    let [lost, drawn, won] =
        [leaf(ANNE, 1, "home", HOME_WIN), leaf(ANNE, 1, "draw", (1, 1)), leaf(ANNE, 1, "away", AWAY_WIN)];
    let ben = leaf(BEN, 1, "away", (0, 3));
    let mut files = Files::new();
    files.seal(1, 1, &[lost, drawn, won, ben], START, SEALED);
    files.event(1, START, &[AWAY_WIN]);
    files.predictions(vec![lost.withheld(), drawn.withheld(), won.shown(), ben.shown()]);
    let files = files.rows(&[(ANNE, 60, 1, 1), (BEN, 40, 1, 0)]);
    assert_eq!(files.outcome(), (3, BTreeSet::from(["withheld"])));
    let detail = files.verify().flags[0].detail.clone();
    assert!(detail.starts_with("not verified: 2 withheld predictions"), "{detail}");
}

#[test]
fn withheld_loss_is_flagged() {
    let [anne, ben] = predictions();
    let mut files = Files::new();
    files.seal(1, 1, &[anne, ben], START, SEALED);
    files.event(1, START, &[HOME_WIN]);
    files.predictions(vec![anne.shown(), ben.withheld()]);
    assert_eq!(files.rows(&[(ANNE, 60, 1, 1)]).outcome(), (3, BTreeSet::from(["withheld"])));
}

#[test]
fn second_leaf_of_a_user_is_refused() {
    let leaves = [leaf(ANNE, 1, "home", HOME_WIN), leaf(ANNE, 1, "away", (0, 3))];
    let (code, checks) = with(&leaves, &[HOME_WIN]).outcome();
    assert!(code == 1 && checks.contains("row"), "{code} {checks:?}");
}

/// A bundle of a match that was sealed again three hours after its start, with another prediction of Anne.
fn resealed(number: u32) -> Files {
    let ben = leaf(BEN, 1, "away", (0, 3));
    let forged = leaf(ANNE, 1, "away", AWAY_WIN);
    let mut files = Files::new();
    files.seal(1, 1, &[leaf(ANNE, 1, "home", HOME_WIN), ben], START, SEALED);
    files.seal(1, number, &[forged, ben], START, START + 3 * HOUR);
    files.event(1, START, &[AWAY_WIN]);
    files.predictions(shown(&[forged, ben]));
    files.rows(&[(ANNE, 60, 1, 1), (BEN, 40, 1, 0)])
}

#[test]
fn predictions_changed_by_a_later_seal_are_flagged() {
    let files = resealed(2);
    assert_eq!(files.outcome(), (3, BTreeSet::from(["late_seal", "resealed"])));
    let report = files.verify().to_string();
    let all = "match 1 was sealed 2 times: seal 1 0 minutes after its start, seal 2 180 minutes after its start";
    assert!(report.contains(all) && report.starts_with("VERIFIED WITH FLAGS"), "{report}");
}

#[test]
fn seals_of_a_match_that_are_left_out_are_refused() {
    // The first seal is missing, and the other one has its number.
    let mut files = resealed(1);
    files.lines.remove(files.first("seal"));
    let (code, checks) = files.outcome();
    assert!(code == 1 && checks.is_superset(&BTreeSet::from(["sequence", "not_in_chain"])), "{code} {checks:?}");
    // The first seal is missing, and the other one has its own number.
    let mut files = resealed(2);
    files.lines.remove(files.first("seal"));
    let (code, checks) = files.outcome();
    assert!(code == 1 && checks.contains("sequence"), "{code} {checks:?}");
    // A later seal is missing, which has the true predictions.
    let mut files = honest();
    let lines = files.lines.clone();
    files.seal(1, 2, &[], START, SEALED + MINUTE);
    files.lines = lines;
    assert_eq!(files.outcome(), (1, BTreeSet::from(["not_in_chain"])));
}

#[test]
fn neighbouring_seals_are_compared_without_a_chain() {
    let files = |count: usize, at: i64| {
        let leaves = &predictions()[..count];
        let mut files = Files::new();
        files.seal(1, 1, leaves, START, SEALED);
        files.seal(2, 1, &[], START, at);
        files.event(1, START, &[]);
        files.event(2, START, &[]);
        files.predictions(shown(leaves));
        files
    };
    let checks = |files: &Files| -> Vec<&str> {
        let report = bundle::verify(files.text().as_bytes(), "bundle", None).expect("a bundle");
        let failed = report.failures.iter().map(|failure| failure.check.name());
        failed.chain(report.flags.iter().map(|flagged| flagged.flag.name())).collect()
    };
    assert!(checks(&files(2, SEALED)).is_empty());
    assert_eq!(checks(&files(2, SEALED - 1)), ["clock"]);
    // A prediction is removed, and the seal replaced.
    let (mut forged, original) = (files(1, SEALED), files(2, SEALED));
    let second = original.first("seal") + 1;
    forged.lines[second] = original.lines[second].clone();
    assert_eq!(checks(&forged), ["previous"]);
    // Nothing follows from seals with another one between.
    let mut files = Files::new();
    files.seal(1, 1, &[], START, SEALED);
    files.seal(77, 1, &[], START, SEALED);
    files.lines.pop();
    files.seal(2, 1, &[], START, SEALED);
    files.event(1, START, &[]);
    files.event(2, START, &[]);
    assert!(checks(&files).is_empty());
}

#[test]
fn chain_with_a_number_twice_or_a_gap_is_refused() {
    for number in [1, 3] {
        let report = Chain::read(&json!(resealed(number).chain)).expect("a chain").verify();
        let checks: Vec<_> = report.checks().into_iter().map(matchday_verify::Check::name).collect();
        assert_eq!(checks, ["sequence"], "{number}");
    }
    // A chain that starts later may start with any number.
    let chain = Chain::read(&json!(resealed(2).chain[1..])).expect("a chain");
    assert_eq!(chain.verify().exit_code(), 0, "{}", chain.verify());
}

#[test]
fn start_other_than_the_sealed_one_is_refused() {
    // An earlier one drops a prediction as late, a later one hides a late seal.
    let [anne, mut late] = predictions();
    (late.accepted_at, late.pick, late.score) = (START - 30 * MINUTE, "home", Some(HOME_WIN));
    let mut files = Files::new();
    files.seal(1, 1, &[anne, late], START, SEALED);
    files.event(1, START - 45 * MINUTE, &[HOME_WIN]);
    files.predictions(shown(&[anne, late]));
    assert_eq!(files.rows(&[(ANNE, 60, 1, 1)]).outcome(), (1, BTreeSet::from(["event"])));
    let files = changed(|files| {
        let event = files.first("event");
        files.lines[event]["start_time"] = json!(text(START + HOUR));
    });
    assert_eq!(files.outcome(), (1, BTreeSet::from(["event"])));
}

#[test]
fn predictions_accepted_after_the_start_or_the_seal_are_refused() {
    let [anne, mut ben] = predictions();
    ben.accepted_at = START + SECOND;
    let (code, checks) = with(&[anne, ben], &[HOME_WIN]).outcome();
    assert!(code == 1 && checks.contains("event"), "{code} {checks:?}");
    // Sealed an hour before the start, with a prediction that is dated after the seal.
    let outcome = |after_seal: i64| {
        let ben = Leaf { accepted_at: START - HOUR + after_seal, ..ben };
        let mut files = Files::new();
        files.seal(1, 1, &[anne, ben], START, START - HOUR);
        files.event(1, START, &[HOME_WIN]);
        files.predictions(shown(&[anne, ben]));
        files.rows(&[(ANNE, 60, 1, 1), (BEN, -20, 0, 0)]).outcome()
    };
    assert_eq!(outcome(59 * MINUTE), (1, BTreeSet::from(["event"])));
    assert_eq!(outcome(MINUTE + 1), (1, BTreeSet::from(["event"])));
    // The clock may have been corrected.
    assert_eq!(outcome(MINUTE), (3, BTreeSet::from(["clock"])));
    assert_eq!(outcome(1), (3, BTreeSet::from(["clock"])));
    assert_eq!(outcome(0), (0, BTreeSet::new()));
}

#[test]
fn late_seals_are_flagged() {
    let sealed = |at: i64| {
        let mut files = Files::new();
        files.seal(1, 1, &predictions(), START, at);
        files.event(1, START, &[HOME_WIN]);
        files.predictions(shown(&predictions()));
        files.rows(&[(ANNE, 60, 1, 1), (BEN, -20, 0, 0)])
    };
    assert_eq!(sealed(START + 4 * MINUTE).outcome().0, 0);
    assert_eq!(sealed(START + 5 * MINUTE).outcome(), (3, BTreeSet::from(["late_seal"])));
    // Soon after the start, but after the result.
    let mut files = sealed(SEALED);
    let event = files.first("event");
    files.lines[event]["results"][0]["recorded_at"] = json!(text(START));
    assert_eq!(files.outcome(), (3, BTreeSet::from(["late_seal"])));
}

#[test]
fn abandoned_match_that_is_replayed_is_only_resealed() {
    // Each start is sealed on time. The void result between them decides nothing.
    let replay = START + 3 * HOUR;
    let mut files = Files::new();
    files.seal(1, 1, &predictions(), START, SEALED);
    files.seal(1, 2, &predictions(), replay, replay + 2 * SECOND);
    files.event(1, replay, &[HOME_WIN, HOME_WIN]);
    let event = files.first("event");
    files.lines[event]["results"][0] = json!({
        "revision": 1, "status": "abandoned", "home_score": null, "away_score": null, "advanced": null,
        "recorded_at": text(START + HOUR),
    });
    files.lines[event]["results"][1]["recorded_at"] = json!(text(replay + 2 * HOUR));
    files.predictions(shown(&predictions()));
    let files = files.rows(&[(ANNE, 60, 1, 1), (BEN, -20, 0, 0)]);
    assert_eq!(files.outcome(), (3, BTreeSet::from(["resealed"])), "{}", files.verify());
}

#[test]
fn results_in_another_order_are_refused() {
    // The corrected result was wrong before, and the older one counts again.
    let files = changed(|files| {
        let event = files.first("event");
        let older = json!({
            "revision": 1, "status": "finished", "home_score": 2, "away_score": 1, "advanced": null,
            "recorded_at": text(FULL_TIME),
        });
        let mut newer = older.clone();
        (newer["revision"], newer["home_score"]) = (json!(2), json!(0));
        files.lines[event]["results"] = json!([newer, older]);
    });
    assert_eq!(files.outcome(), (1, BTreeSet::from(["event"])));
}

#[test]
fn repeated_and_misplaced_lines_are_refused() {
    for kind in ["rule_set", "seal", "event", "prediction", "row"] {
        let files = changed(|files| {
            let line = files.lines[files.first(kind)].clone();
            files.lines.insert(files.first(kind), line);
        });
        let (code, checks) = files.outcome();
        assert!(code == 1 && checks.contains("line"), "{kind} twice: {code} {checks:?}");
    }
    for kind in ["prediction", "row"] {
        let files = changed(|files| {
            let first = files.first(kind);
            files.lines.swap(first, first + 1);
        });
        assert_eq!(files.outcome(), (1, BTreeSet::from(["line"])), "{kind} in another order");
    }
    let files = changed(|files| {
        let seal = files.lines.remove(files.first("seal"));
        files.lines.push(seal);
    });
    let (code, checks) = files.outcome();
    assert!(code == 1 && checks.contains("line"), "seal at the end: {code} {checks:?}");
}

#[test]
fn part_of_a_withheld_prediction_is_refused() {
    let [anne, ben] = predictions();
    let mut line = ben.withheld();
    line["prediction"] = json!("home");
    let mut files = Files::new();
    files.seal(1, 1, &[anne, ben], START, SEALED);
    files.event(1, START, &[]);
    files.predictions(vec![anne.shown(), line]);
    let (code, checks) = files.outcome();
    assert!(code == 1 && checks.contains("line"), "{code} {checks:?}");
}

#[test]
fn prediction_that_contradicts_itself_is_refused() {
    let leaves = [leaf(ANNE, 1, "home", HOME_WIN), leaf(BEN, 1, "home", AWAY_WIN)];
    let mut files = with(&leaves, &[HOME_WIN]);
    files.lines.pop();
    assert_eq!(files.outcome(), (1, BTreeSet::from(["row"])));
}

#[test]
fn more_jokers_than_allowed_are_flagged() {
    let jokers = [1, 2].map(|event| Leaf { joker: true, ..leaf(ANNE, event, "home", HOME_WIN) });
    let mut files = Files::new();
    files.lines[1] = json!({
        "type": "rule_set", "id": 1, "name": "one joker", "outcome": 20, "difference": 30, "exact": 40, "margin": null,
        "stake": 20, "advances": 10, "joker": 1,
    });
    for joker in &jokers {
        files.seal(joker.event, 1, &[*joker], START, SEALED);
    }
    for joker in &jokers {
        files.event(joker.event, START, &[HOME_WIN]);
    }
    files.predictions(shown(&jokers));
    assert_eq!(files.rows(&[(ANNE, 240, 2, 2)]).outcome(), (3, BTreeSet::from(["jokers"])));
}

#[test]
fn unverified_fields_are_flagged() {
    for (kind, field) in [("bundle", "winner"), ("event", "name"), ("prediction", "points"), ("row", "rank")] {
        let files = changed(|files| {
            let line = files.first(kind);
            files.lines[line][field] = json!(1);
        });
        assert_eq!(files.outcome(), (3, BTreeSet::from(["unknown_field"])), "{kind}");
    }
    let files = changed(|files| {
        let line = files.first("event");
        files.lines[line]["results"][0]["note"] = json!("awarded");
    });
    assert_eq!(files.outcome(), (3, BTreeSet::from(["unknown_field"])));
}

#[test]
fn repeated_fields_and_unknown_lines_are_refused() {
    let text = honest().text();
    let verify = |text: &str| bundle::verify(text.as_bytes(), "bundle", None);
    assert!(verify(&text).is_ok());
    for twice in [
        text.replace("\"points\":60,", "\"points\":60,\"points\":99,"),
        text.replace("\"points\":60,", "\"points\":99,\"points\":60,"),
        text.replace("\"home_score\":2,", "\"home_score\":2,\"\\u0068ome_score\":2,"),
    ] {
        assert!(twice != text && verify(&twice).is_err(), "{twice}");
    }
    assert!(verify(&text.replace("\"type\":\"row\"", "\"type\":\"prize\"")).is_err());
}

#[test]
fn impossible_dates_are_flagged() {
    // The second seal of the chain pretends to be older than the first.
    let mut files = Files::new();
    files.seal(77, 1, &[], START, START + HOUR);
    files.lines.pop();
    files.seal(1, 1, &predictions(), START, SEALED);
    files.event(1, START, &[HOME_WIN]);
    files.predictions(shown(&predictions()));
    let files = files.rows(&[(ANNE, 60, 1, 1), (BEN, -20, 0, 0)]);
    assert_eq!(files.outcome(), (3, BTreeSet::from(["clock"])));
    // The bundle pretends to be older than its seal.
    let files = changed(|files| files.lines[0]["created_at"] = json!(text(BEFORE)));
    assert_eq!(files.outcome(), (3, BTreeSet::from(["clock"])));
}
