//! The command on files: examples of the format, changed ones, and unreadable ones.

use std::{
    fs,
    io::Write as _,
    path::PathBuf,
    process::{Command, Stdio},
};

use serde_json::{Value, json};

/// Examples of the format, which the TypeScript client verifies too.
fn vectors() -> Value {
    serde_json::from_str(include_str!("vectors.json")).expect("JSON")
}

/// Three proofs in one seal.
fn proofs() -> [Value; 3] {
    serde_json::from_value(vectors()["proofs"].take()).expect("three proofs")
}

/// Two seals.
fn chain() -> [Value; 2] {
    serde_json::from_value(vectors()["chain"].take()).expect("two seals")
}

/// A file that is deleted at the end of the test.
struct TempFile(PathBuf);

impl TempFile {
    fn new(name: &str, content: &[u8]) -> Self {
        let path = std::env::temp_dir().join(format!("matchday-verify-{}-{name}", std::process::id()));
        fs::write(&path, content).expect("written");
        Self(path)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

/// Runs the command with this text as standard input. Returns the exit code and the names of the failed checks.
fn run(arguments: &[&str], input: &str) -> (i32, Vec<String>) {
    let (code, checks, flags) = run_all(arguments, input);
    assert_eq!(flags, [""; 0]);
    (code, checks)
}

/// Also returns the names of the flags.
fn run_all(arguments: &[&str], input: &str) -> (i32, Vec<String>, Vec<String>) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_matchday-verify"));
    command.args(arguments).arg("--json").stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut process = command.spawn().expect("started");
    // A command that does not read its input ends before it is written.
    let _ = process.stdin.take().expect("piped").write_all(input.as_bytes());
    let output = process.wait_with_output().expect("ended");
    let code = output.status.code().expect("a code");
    if code == 2 {
        return (code, Vec::new(), Vec::new());
    }
    let report: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(report["verified"], code == 0);
    let names = |list: &str, name: &str| {
        let items = report[list].as_array().expect("a list").iter();
        let mut names: Vec<String> = items.map(|item| item[name].as_str().expect("a name").to_owned()).collect();
        names.dedup();
        names
    };
    (code, names("failures", "check"), names("flags", "flag"))
}

#[test]
fn examples_are_verified() {
    let chain = TempFile::new("chain.json", json!(chain()).to_string().as_bytes());
    let path = chain.0.to_str().expect("a path");
    for proof in proofs() {
        assert_eq!(run(&["receipt", "-"], &proof.to_string()), (0, vec![]));
        let response = json!({"data": proof}).to_string();
        assert_eq!(run(&["receipt", "-", "--chain", path], &response), (0, vec![]));
    }
    let [first, second] = self::chain();
    for chain in [json!([first, second]), json!([second]), json!({"data": [first], "meta": {}}), json!([])] {
        assert_eq!(run(&["chain", "-"], &chain.to_string()), (0, vec![]));
    }
}

#[test]
fn every_changed_field_of_a_proof_is_detected() {
    let [original, ..] = proofs();
    let other_hash = json!("11".repeat(32));
    for (pointer, value, check) in [
        ("/receipt/prediction", json!("away"), "leaf_hash"),
        ("/receipt/confidence", json!(81), "leaf_hash"),
        ("/receipt/revision", json!(2), "leaf_hash"),
        ("/receipt/score_prediction", Value::Null, "leaf_hash"),
        ("/receipt/score_prediction/home", json!(3), "leaf_hash"),
        ("/receipt/advances", json!("home"), "leaf_hash"),
        ("/receipt/joker", json!(true), "leaf_hash"),
        ("/receipt/accepted_at", json!("2026-11-20T14:31:07.123457Z"), "leaf_hash"),
        ("/receipt/accepted_at", json!("2026-11-20T15:00:00.000000Z"), "event"),
        ("/receipt/pseudonym", json!("ff".repeat(16)), "leaf_hash"),
        ("/receipt/salt", json!("ff".repeat(16)), "leaf_hash"),
        ("/receipt/leaf_hash", other_hash.clone(), "leaf_hash"),
        ("/receipt/event_id", json!(8), "event"),
        ("/leaf_index", json!(0), "inclusion"),
        ("/inclusion_path", json!([]), "inclusion"),
        ("/inclusion_path/0", other_hash.clone(), "inclusion"),
        ("/seal/root", other_hash.clone(), "inclusion"),
        ("/seal/count", json!(4), "seal_hash"),
        ("/seal/sealed_at", json!("2026-11-20T15:00:02.250001Z"), "seal_hash"),
        ("/seal/start_time", json!("2026-11-20T15:00:00.000001Z"), "seal_hash"),
        ("/seal/previous", other_hash.clone(), "seal_hash"),
        ("/seal/sequence", json!(3), "seal_hash"),
        ("/seal/event_sequence", json!(2), "seal_hash"),
        ("/seal/event_id", json!(8), "event"),
        ("/seal/hash", other_hash, "seal_hash"),
    ] {
        let mut proof = original.clone();
        *proof.pointer_mut(pointer).expect("a field") = value;
        let (code, checks, _) = run_all(&["receipt", "-"], &proof.to_string());
        assert!(code == 1 && checks.iter().any(|found| found == check), "{pointer}: {code} {checks:?}");
    }
}

#[test]
fn score_that_contradicts_the_pick_is_part_of_the_hash() {
    // The sealed prediction has no score. A receipt must not verify with an invented one.
    let [_, mut proof, _] = proofs();
    proof["receipt"]["score_prediction"] = json!({"home": 1, "away": 0});
    assert_eq!(run(&["receipt", "-"], &proof.to_string()), (1, vec!["leaf_hash".to_owned()]));
}

#[test]
fn changed_chains_are_detected() {
    let [first, second] = chain();
    let changed = |seal: &Value, field: &str, value: Value| {
        let mut seal = seal.clone();
        seal[field] = value;
        seal
    };
    let forged = changed(&first, "count", json!(1));
    for (chain, check) in [
        (json!([forged, second]), "seal_hash"),
        (json!([second, first]), "sequence"),
        (json!([first, first]), "sequence"),
        (json!([changed(&first, "previous", json!("22".repeat(32))), second]), "previous"),
        (json!([changed(&first, "hash", json!("22".repeat(32))), second]), "previous"),
    ] {
        let (code, checks, _) = run_all(&["chain", "-"], &chain.to_string());
        assert!(code == 1 && checks.iter().any(|found| found == check), "{check}: {checks:?}");
    }
    let other = TempFile::new("other.json", json!([first]).to_string().as_bytes());
    let path = other.0.to_str().expect("a path");
    let (code, checks) = run(&["receipt", "-", "--chain", path], &proofs()[0].to_string());
    assert_eq!((code, checks), (1, vec!["not_in_chain".to_owned()]));
}

#[test]
fn forged_proofs_and_chains_are_refused_or_flagged() {
    let forged = vectors()["forged"].take();
    let forged = forged.as_array().expect("forged ones");
    assert!(forged.len() > 5);
    for case in forged {
        let name = case["name"].as_str().expect("a name");
        let chain = TempFile::new("forged.json", case["chain"].to_string().as_bytes());
        let path = chain.0.to_str().expect("a path");
        let (code, checks, flags) = run_all(&["receipt", "-", "--chain", path], &case["proof"].to_string());
        assert_eq!((json!(checks), json!(flags)), (case["failures"].clone(), case["flags"].clone()), "{name}");
        assert_eq!(code, if checks.is_empty() { 3 } else { 1 }, "{name}");
    }
}

#[test]
fn repeated_field_is_unreadable() {
    let proof = proofs()[0].to_string();
    let twice = proof.replace("\"confidence\":80,", "\"confidence\":80,\"confidence\":80,");
    assert_eq!((run(&["receipt", "-"], &proof).0, run(&["receipt", "-"], &twice).0), (0, 2));
}

#[test]
fn unreadable_input_has_its_own_exit_code() {
    let [proof, ..] = proofs();
    let without = |part: &str, field: &str| {
        let mut proof = proof.clone();
        proof[part].as_object_mut().expect("an object").remove(field);
        proof.to_string()
    };
    let with = |pointer: &str, value: Value| {
        let mut proof = proof.clone();
        *proof.pointer_mut(pointer).expect("a field") = value;
        proof.to_string()
    };
    for input in [
        "not json".to_owned(),
        String::new(),
        "[]".to_owned(),
        json!({"receipt": proof["receipt"]}).to_string(),
        without("receipt", "salt"),
        without("receipt", "score_prediction"),
        without("seal", "root"),
        with("/receipt/version", json!(2)),
        with("/seal/version", json!(0)),
        with("/receipt/confidence", json!(101)),
        with("/receipt/confidence", json!("80")),
        with("/receipt/prediction", json!("HOME")),
        with("/receipt/accepted_at", json!("2026-11-20T14:31:07Z")),
        with("/seal/hash", json!("80DD93D2CF5C6DADE0265BD19165BDC26ED8F42CFC211E25EE8A5174FFBB2FEB")),
        with("/seal/count", json!(-1)),
        with("/inclusion_path", json!(["00"])),
    ] {
        assert_eq!(run(&["receipt", "-"], &input).0, 2, "{input:.200}");
    }
    assert_eq!(run(&["chain", "-"], r#"[{"sequence": 1}]"#).0, 2);
    assert_eq!(run(&["chain", "-"], "{}").0, 2);
    for bundle in ["", "{}", r#"{"type": "row"}"#, r#"{"type": "bundle", "version": 2}"#, "not json"] {
        assert_eq!(run(&["bundle", "-"], bundle).0, 2, "{bundle}");
    }
    assert_eq!(run(&["receipt", "/nonexistent/file.json"], "").0, 2);
    assert_eq!(run(&["frobnicate"], "").0, 2);
    assert_eq!(run(&[], "").0, 2);
}
