//! Verifies that a prediction is in a seal.

use serde_json::Value;

use crate::{
    chain::{Chain, verify_hash},
    fields::{CLOCK_STEP, Fields, Hash, Malformed, Receipt, Seal, read_hash},
    report::{Check, Flag, Report},
    tree::root_from_path,
};

/// Verifies a proof: leaf hash, inclusion path and seal hash; with a chain also that it is valid and has this seal, and no
/// later one of the match.
pub fn verify(value: &Value, chain: Option<&Chain>) -> Result<Report, Malformed> {
    let fields = Fields::of(value, "proof")?;
    let (receipt, seal) = (Receipt::read(fields.part("receipt")?)?, Seal::read(fields.part("seal")?)?);
    let index = fields.number("leaf_index")?;
    let path: Option<Vec<Hash>> = fields.array("inclusion_path")?.iter().map(read_hash).collect();
    let path = path.ok_or_else(|| Malformed("inclusion_path of the proof is not an array of hashes".to_owned()))?;

    let mut report = Report::default();
    let computed = receipt.computed_hash();
    report.require(computed == receipt.leaf_hash, Check::LeafHash, || {
        format!("the fields of the receipt have the hash {computed}, not {}", receipt.leaf_hash)
    });
    report.require(receipt.event == seal.event, Check::Event, || {
        format!("the receipt is for match {}, the seal for match {}", receipt.event, seal.event)
    });
    report.require(receipt.accepted_at < seal.start_time, Check::Event, || {
        "the prediction was accepted after the start of the match".to_owned()
    });
    let after_seal = receipt.accepted_at - seal.sealed_at;
    report.require(after_seal <= CLOCK_STEP, Check::Event, || {
        "the prediction was accepted after its match was sealed".to_owned()
    });
    if (1..=CLOCK_STEP).contains(&after_seal) {
        report.flag(Flag::Clock, format!("the prediction is dated after seal {}", seal.sequence));
    }
    let root = root_from_path(receipt.leaf_hash, index, seal.count, &path);
    report.require(root == Some(seal.root), Check::Inclusion, || {
        format!("the inclusion path does not lead to the root of seal {}", seal.sequence)
    });
    verify_hash(&seal, &mut report);
    if let Some(chain) = chain {
        report.add(chain.verify());
        chain.verify_holds(&seal, &mut report);
        chain.verify_is_latest(&seal, &mut report);
    }
    if let Some(minutes) = seal.minutes_late() {
        report.flag(Flag::LateSeal, format!("match {} was sealed {minutes} minutes after its start", seal.event));
    }
    if seal.event_sequence > 1 {
        let detail = format!("seal {} is number {} of match {}", seal.sequence, seal.event_sequence, seal.event);
        report.flag(Flag::Resealed, detail);
    }
    report.summary = format!(
        "the prediction is one of {} in seal {} of match {}, with the hash {}",
        seal.count, seal.sequence, seal.event, seal.hash
    );
    Ok(report)
}
