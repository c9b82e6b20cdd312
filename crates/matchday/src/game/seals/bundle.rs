//! Bundles: the seals, sealed predictions, results, rules and table of a tournament in one public file, from which anyone
//! can recompute the table. Users appear under their pseudonyms, deleted ones only as hashes.

use std::{
    collections::{BTreeSet, HashMap},
    io,
};

use futures_util::TryStreamExt as _;
use platform::database;
use scoring::{Multiplier, Side};
use serde::Serialize;
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::{MatchId, RuleSetId, TournamentId};

use super::{
    rules::{Pass, Seal, TILE},
    service::Seals,
    store,
};
use crate::{
    catalogue::{
        matches::rules::Status,
        rule_sets::{self, RuleSetItem},
    },
    game::predictions::{
        receipts::{Hash, Receipt, ReceiptItem, timestamp},
        service::Predictions,
    },
};

/// Version of the file format.
const VERSION: u8 = 1;

/// Number of predictions read by one statement.
const CHUNK: i64 = 5_000;

/// Greatest number of predictions that are held in memory at the same time.
const MOST_IN_MEMORY: u64 = 200_000;

/// One line of the file.
#[derive(Serialize)]
#[serde(tag = "type", rename_all = "snake_case")]
enum Line<'a> {
    Bundle {
        version: u8,
        tournament_id: TournamentId,
        tournament: &'a str,
        #[serde(with = "timestamp")]
        created_at: OffsetDateTime,
    },
    RuleSet(RuleSetItem),
    Seal(&'a Seal),
    Event(&'a BundledMatch),
    Prediction(PredictionLine),
    Row(Row),
}

/// A sealed match.
#[derive(Debug, Serialize)]
pub(super) struct BundledMatch {
    pub(super) event_id: MatchId,
    pub(super) rule_set_id: RuleSetId,
    pub(super) multiplier: Multiplier,
    pub(super) is_knockout: bool,
    #[serde(with = "timestamp")]
    pub(super) start_time: OffsetDateTime,
    pub(super) results: Vec<ResultLine>,
}

/// A revision of a result.
#[derive(Debug, Serialize)]
pub(super) struct ResultLine {
    pub(super) revision: i64,
    pub(super) status: Status,
    pub(super) home_score: Option<i32>,
    pub(super) away_score: Option<i32>,
    pub(super) advanced: Option<Side>,
    #[serde(with = "timestamp")]
    pub(super) recorded_at: OffsetDateTime,
}

#[derive(Serialize)]
#[serde(untagged)]
enum PredictionLine {
    Shown(ReceiptItem),
    /// Of a deleted account.
    Withheld {
        event_id: MatchId,
        leaf_hash: Hash,
    },
}

/// A row of the table.
#[derive(Debug, Serialize)]
pub(super) struct Row {
    pub(super) pseudonym: String,
    pub(super) points: i64,
    pub(super) correct: i64,
    pub(super) exact: i64,
}

/// Contents of a written bundle.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct Summary {
    pub events: u64,
    pub predictions: u64,
    /// Predictions of deleted accounts.
    pub withheld: u64,
    pub rows: u64,
}

/// Error from writing a bundle.
#[derive(Debug, thiserror::Error)]
pub enum BundleError {
    #[error("the tournament does not exist")]
    NoSuchTournament,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    #[error(transparent)]
    Io(#[from] io::Error),
}

impl Seals {
    /// Writes the bundle of a tournament, given by slug or id, from one snapshot of the database. Matches that are not
    /// sealed are left out. So are reopened matches until they are sealed again.
    pub async fn write_bundle<W: io::Write>(&self, tournament: &str, mut file: W) -> Result<Summary, BundleError> {
        let mut tx = database::begin_with(&self.db, "begin isolation level repeatable read read only").await?;
        store::lift_statement_timeout(&mut tx).await?;
        let now = database::now(&mut *tx).await?;
        let found = store::tournament(&mut tx, tournament).await?;
        let (id, slug) = found.ok_or(BundleError::NoSuchTournament)?;
        let mut write = |line: Line<'_>| {
            serde_json::to_writer(&mut file, &line)?;
            file.write_all(b"\n")?;
            Ok::<(), BundleError>(())
        };
        let mut matches = store::bundled_matches(&mut tx, id, now).await?;
        let events: Vec<i64> = matches.iter().map(|one| one.event_id.0).collect();
        let seals = store::of_matches(&mut tx, &events).await?;
        let latest: HashMap<MatchId, &Seal> = seals.iter().map(|seal| (seal.event_id, seal)).collect();
        for one in &mut matches {
            // A start that moved without a new seal changed no prediction that counts. The sealed start can be verified.
            one.start_time = latest.get(&one.event_id).map_or(one.start_time, |seal| seal.start_time);
        }
        write(Line::Bundle { version: VERSION, tournament_id: id, tournament: &slug, created_at: now })?;
        let used: BTreeSet<RuleSetId> = matches.iter().map(|one| one.rule_set_id).collect();
        for rule_set in rule_sets::service::all(&mut *tx).await? {
            if used.contains(&rule_set.id) {
                write(Line::RuleSet(rule_set.into()))?;
            }
        }
        for seal in &seals {
            write(Line::Seal(seal))?;
        }
        for one in &matches {
            write(Line::Event(one))?;
        }
        let mut summary = Summary { events: matches.len() as u64, ..Summary::default() };
        for one in &matches {
            let Some(seal) = latest.get(&one.event_id) else { continue };
            write_predictions(&mut tx, seal, &mut summary, |line| write(Line::Prediction(line))).await?;
        }
        let mut rows = store::rows(&mut tx, id, &matches);
        while let Some(row) = rows.try_next().await? {
            summary.rows += 1;
            write(Line::Row(row))?;
        }
        drop(rows);
        tx.commit().await?;
        file.flush()?;
        Ok(summary)
    }
}

/// Writes the leaves of a seal in their order, each with its prediction if that is still stored.
async fn write_predictions(
    connection: &mut PgConnection,
    seal: &Seal,
    summary: &mut Summary,
    mut write: impl FnMut(PredictionLine) -> Result<(), BundleError>,
) -> Result<(), BundleError> {
    let count = seal.count.unsigned_abs();
    let (mut tile, mut leaves, mut at) = (0, Vec::new(), 0);
    for pass in Pass::of_at_most(count, MOST_IN_MEMORY) {
        let receipts = receipts(connection, seal, pass).await?;
        loop {
            if at == leaves.len() {
                leaves = store::tile(&mut *connection, seal, tile).await?.unwrap_or_default();
                debug_assert!(leaves.len() <= TILE, "a tile is too large");
                (tile, at) = (tile + 1, 0);
            }
            let Some(leaf) = leaves.get(at).filter(|leaf| pass.contains(leaf)) else { break };
            at += 1;
            summary.predictions += 1;
            write(if let Ok(found) = receipts.binary_search_by_key(leaf, |(hash, _)| *hash) {
                PredictionLine::Shown(receipts[found].1.into())
            } else {
                summary.withheld += 1;
                PredictionLine::Withheld { event_id: seal.event_id, leaf_hash: *leaf }
            })?;
        }
    }
    Ok(())
}

/// Reads the receipts of one pass, sorted by hash.
async fn receipts(connection: &mut PgConnection, seal: &Seal, pass: Pass) -> sqlx::Result<Vec<(Hash, Receipt)>> {
    let before = seal.start_time.min(seal.sealed_at);
    let (mut receipts, mut after) = (Vec::new(), 0);
    loop {
        let (rows, last) = Predictions::counted(&mut *connection, seal.event_id, before, after, CHUNK).await?;
        let hashed = rows.into_iter().filter_map(|(_, receipt)| Some((receipt?.leaf_hash(), receipt?)));
        receipts.extend(hashed.filter(|(hash, _)| pass.contains(hash)));
        let Some(last) = last else { break };
        after = last;
    }
    receipts.sort_unstable_by_key(|(hash, _)| *hash);
    Ok(receipts)
}
