//! Seals matches that have closed, and proves predictions against their seals.
//!
//! A match is sealed in three steps:
//!
//! 1. The worker closes the gate of the match for a moment. Every prediction that was accepted before is then committed,
//!    also those of other processes and of processes that were killed, and every later one is refused.
//! 2. It reads the predictions in chunks, outside a transaction, and builds the tree. Memory is bounded, however many
//!    predictions the match has.
//! 3. One transaction stores the tree, checks that the match has not changed since the first step, and appends the seal to
//!    the chain, whose end it has locked.
//!
//! After a crash or a lost race, any worker can start again.

use std::{
    collections::HashSet,
    sync::Arc,
    time::{Duration, Instant},
};

use bytes::Bytes;
use futures_util::{StreamExt as _, stream::FuturesUnordered};
use platform::{
    Core, Environment, database,
    outbox::{self, Message},
    page_cache::PageCache,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgPool, Postgres, Transaction};
use time::OffsetDateTime;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;
use utoipa::ToSchema;
use web::ids::{MatchId, PredictionId, TournamentId, UserId};

use super::{
    rules::{self, Content, Pass, Seal, SealFact, TILE, Tile, TreeBuilder},
    store::{self, Due, Target},
    timestamps::Timestamps,
};
use crate::{
    catalogue::matches::gates,
    game::predictions::{
        receipts::{Hash, Receipt},
        service::Predictions,
    },
};

/// Published when a match is sealed.
pub const SEALED: &str = "fact.event.sealed";

/// Interval at which the worker looks for matches that have closed.
const POLL: Duration = Duration::from_secs(1);

/// Interval at which the worker looks for predictions without receipts in open matches.
const ADD_RECEIPTS_EVERY: Duration = Duration::from_mins(10);

/// Number of predictions read by one statement.
const CHUNK: i64 = 5_000;

/// Number of matches that are sealed at the same time.
const AT_ONCE: usize = 4;

/// Of these, number of matches with many predictions, so that others do not wait for them.
const LARGE_AT_ONCE: usize = 2;

/// Number of predictions of a match with many.
const LARGE: i64 = 100_000;

/// Pause after each statement that reads predictions of such a match, as a multiple of its duration. Other requests lose
/// at most a tenth of a core; a seal that is some seconds later proves the same. Smaller matches are sealed at once, with
/// pauses as long as the work.
const PAUSE_OF_LARGE: u32 = 9;

/// Delay of the seals of the demo.
const DEMO_DELAY: Duration = Duration::from_secs(2);

/// Number of leaves added to the tree by one task that does not yield.
const LEAVES_PER_TASK: usize = 64 * TILE;

/// Number of tiles inserted by one statement, about a megabyte.
const TILES_AT_ONCE: usize = 128;

/// Number of seals in a cached part of the chain. Requests for any page share the parts.
const PART: i64 = 100;

/// Bytes of cached parts.
const PART_BYTES: u64 = 64 << 20;

/// Time for which the newest part, and the seals of a match, are served without reading them again.
const NEW_FOR: Duration = Duration::from_secs(1);

/// The same for earlier parts, in which only a delayed time-stamp token can change.
const EARLIER_FOR: Duration = Duration::from_mins(1);

/// Between the seals of a part.
const BETWEEN: &[u8] = b",\n";

#[derive(Clone)]
pub struct Seals {
    env: Environment,
    pub(super) db: PgPool,
    predictions: Predictions,
    timestamps: Option<Timestamps>,
    outbox_written: Arc<Notify>,
    parts: Arc<PageCache<PartKey, ListError>>,
    earlier_parts: Arc<PageCache<PartKey, ListError>>,
}

/// A cached part of the public list. Requests choose none of the numbers freely, except for the match.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum PartKey {
    /// The newest seal.
    Head,
    /// Seals of the chain, from a multiple of [`PART`]. Their number keeps the newest part in step with the head.
    Chain { before: i64, seals: i64 },
    /// Seals of a match, once this seal was the newest of the chain.
    OfMatch { event: MatchId, newest: i64 },
}

/// Error from building a part of the public list.
#[derive(Debug, thiserror::Error)]
pub enum ListError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A part could not be serialised.
    #[error(transparent)]
    Render(#[from] serde_json::Error),
}

/// Error from sealing a match.
#[derive(Debug, thiserror::Error)]
pub enum SealError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The fact could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
    /// The task that builds the tree ended without a result.
    #[error(transparent)]
    Task(#[from] tokio::task::JoinError),
    /// A seal with another time than the current one was requested outside of development.
    #[error("matches are sealed in the past only in development")]
    NotInDevelopment,
}

/// The newest seal of the chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub(super) struct ChainHead {
    #[schema(example = 2)]
    pub(super) sequence: i64,
    #[schema(value_type = String, example = "80dd93d2cf5c6dade0265bd19165bdc26ed8f42cfc211e25ee8a5174ffbb2feb")]
    pub(super) hash: Hash,
}

/// A page of the chain.
#[derive(Debug, Default)]
pub(super) struct ChainPage {
    /// JSON of seals, each with one or more of them, separated by commas.
    pub(super) seals: Vec<Bytes>,
    /// Sequence of the last seal of the page.
    pub(super) last: Option<i64>,
    pub(super) more: bool,
    pub(super) head: Option<ChainHead>,
    /// Digest of the parts that the page was taken from.
    pub(super) digest: Hash,
}

/// Inclusion of a prediction in a seal.
#[derive(Clone, Debug)]
pub struct Proof {
    pub receipt: Receipt,
    pub seal: Seal,
    /// Position of the prediction among the sorted hashes.
    pub leaf_index: u64,
    pub path: Vec<Hash>,
}

/// Reason why a prediction has no proof.
#[derive(Debug, thiserror::Error)]
pub enum ProofError {
    /// The user has no such prediction.
    #[error("the prediction does not exist")]
    NoSuchPrediction,
    /// The match, or this prediction of a match that has opened again, is not sealed yet.
    #[error("the match is not sealed yet")]
    NotSealed,
    /// Every revision was accepted after the start of the match.
    #[error("the prediction was late")]
    NotCounted,
    /// The stored prediction differs from the sealed prediction.
    #[error("the stored prediction differs from the sealed one")]
    Differs,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Seals {
    pub fn new(core: &Core, predictions: Predictions, timestamps: Option<Timestamps>) -> Self {
        Self {
            env: core.env,
            db: core.db.clone(),
            predictions,
            timestamps,
            outbox_written: core.outbox_written.clone(),
            parts: Arc::new(PageCache::uncompressed(NEW_FOR, PART_BYTES)),
            earlier_parts: Arc::new(PageCache::uncompressed(EARLIER_FOR, PART_BYTES)),
        }
    }

    /// Whether seals get a time-stamp token later.
    pub fn has_authority(&self) -> bool {
        self.timestamps.is_some()
    }

    /// Seals matches when they close, and requests time stamps, until shutdown. Only the holder of the lease runs this; a
    /// second one would do no harm.
    pub async fn run(&self, closing: CancellationToken) {
        tokio::join!(self.seal_matches(&closing), self.stamp_seals(&closing), self.add_receipts(&closing));
    }

    async fn seal_matches(&self, closing: &CancellationToken) {
        let mut running = FuturesUnordered::new();
        let mut busy: HashSet<MatchId> = HashSet::new();
        let mut large = 0;
        while !closing.is_cancelled() {
            let due = match self.due().await {
                Ok(due) => due,
                Err(error) => {
                    tracing::debug!(%error, "closed matches not checked; retrying");
                    Vec::new()
                }
            };
            for Due { event, predictions } in due {
                let is_large = predictions >= LARGE;
                if running.len() >= AT_ONCE || (is_large && large >= LARGE_AT_ONCE) || !busy.insert(event) {
                    continue;
                }
                large += usize::from(is_large);
                running.push(async move { (event, is_large, self.seal(event, predictions).await) });
            }
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(POLL) => {}
                Some((event, was_large, outcome)) = running.next() => {
                    busy.remove(&event);
                    large -= usize::from(was_large);
                    report(event, outcome);
                }
            }
        }
    }

    async fn stamp_seals(&self, closing: &CancellationToken) {
        let Some(timestamps) = &self.timestamps else { return };
        while !closing.is_cancelled() {
            let pause = timestamps.stamp(&self.db).await;
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
        }
    }

    /// Requests tokens once. Returns the pause before the next request.
    #[cfg(test)]
    pub(super) async fn stamp_once(&self) -> Option<Duration> {
        Some(self.timestamps.as_ref()?.stamp(&self.db).await)
    }

    async fn due(&self) -> sqlx::Result<Vec<Due>> {
        let now = database::now(&self.db).await?;
        store::due(&self.db, now).await
    }

    /// Seals all matches that are due. Returns their number.
    pub async fn seal_due(&self) -> Result<usize, SealError> {
        let mut sealed = 0;
        for Due { event, predictions } in self.due().await? {
            sealed += usize::from(self.seal(event, predictions).await?.is_some());
        }
        Ok(sealed)
    }

    /// Completes what processes of the previous version leave out, until shutdown: marks of open matches, and receipts of
    /// their predictions.
    async fn add_receipts(&self, closing: &CancellationToken) {
        while !closing.is_cancelled() {
            let work = async {
                let mut added = 0;
                let now = database::now(&self.db).await?;
                store::mark_open(&self.db, now).await?;
                for event in store::open(&self.db, now).await? {
                    added += self.predictions.add_receipts(event).await?;
                }
                Ok::<_, sqlx::Error>(added)
            };
            let outcome = tokio::select! {
                () = closing.cancelled() => return,
                outcome = work => outcome,
            };
            match outcome {
                Ok(0) => {}
                Ok(added) => tracing::info!(added, "receipts added to earlier predictions"),
                Err(error) => tracing::warn!(%error, "receipts not added to earlier predictions"),
            }
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(ADD_RECEIPTS_EVERY) => {}
            }
        }
    }

    /// Seals a match with about this number of predictions. `None` if it need not be sealed, or not now.
    async fn seal(&self, event: MatchId, predictions: i64) -> Result<Option<Seal>, SealError> {
        let Some(target) = self.close(event).await? else { return Ok(None) };
        let event_sequence = target.last.map_or(0, |last| last.event_sequence) + 1;
        let (mut tx, content) = self.tree((event, event_sequence), target.start_time, predictions).await?;
        // A moved start alone needs a new seal only if it changes the predictions that count.
        let is_same = target.last.is_some_and(|last| {
            last.sealed_at > target.opened_at && (last.count, last.root) == (content.count, content.root)
        });
        if is_same {
            tx.rollback().await?;
            let mut tx = database::begin(&self.db).await?;
            store::set_sealed(&mut tx, event, &target).await?;
            tx.commit().await?;
            return Ok(None);
        }
        if !store::set_sealed(&mut tx, event, &target).await? {
            tx.rollback().await?;
            return Ok(None);
        }
        let (head, now) = store::lock_chain(&mut tx).await?;
        Ok(Some(self.append(tx, content.seal(head, now), target.tournament).await?))
    }

    /// Seals a match of the demo as if a worker had done so soon after this start, which is in the past. Only for the
    /// demo, and refused outside of development: everywhere else a seal has the time at which it was made.
    pub(crate) async fn seal_in_past(&self, event: MatchId, start_time: OffsetDateTime) -> Result<(), SealError> {
        if !self.env.is_development() {
            return Err(SealError::NotInDevelopment);
        }
        let mut connection = self.db.acquire().await?;
        let Some(target) = store::target(&mut connection, event).await? else { return Ok(()) };
        drop(connection);
        let (mut tx, content) = self.tree((event, 1), start_time, 0).await?;
        let (head, _) = store::lock_chain(&mut tx).await?;
        self.append(tx, content.seal(head, start_time + DEMO_DELAY), target.tournament).await?;
        Ok(())
    }

    /// Stores the tree over the predictions before a start. Returns the open transaction and the content of the seal.
    async fn tree(
        &self,
        (event, event_sequence): (MatchId, i32),
        start_time: OffsetDateTime,
        predictions: i64,
    ) -> Result<(Transaction<'static, Postgres>, Content), SealError> {
        let mut tree = Tree { event, event_sequence, builder: TreeBuilder::default(), tiles: Vec::new(), tx: None };
        for pass in Pass::all(predictions.unsigned_abs()) {
            let leaves = self.leaves(event, start_time, pass, predictions).await?;
            tree.add(&self.db, leaves).await?;
        }
        let (tx, count, root) = tree.finish(&self.db).await?;
        let count = i64::try_from(count).unwrap_or(i64::MAX);
        Ok((tx, Content { event, event_sequence, count, root, start_time }))
    }

    /// Appends a seal to the chain, whose end is locked, and publishes it.
    async fn append(
        &self,
        mut tx: Transaction<'static, Postgres>,
        seal: Seal,
        tournament: TournamentId,
    ) -> Result<Seal, SealError> {
        store::insert(&mut tx, &seal).await?;
        let fact = SealFact { tournament_id: tournament, seal: seal.clone() };
        outbox::enqueue(&mut tx, &[Message::new(SEALED, format!("event:{}", seal.event_id), &fact)?.logged()]).await?;
        tx.commit().await?;
        self.outbox_written.notify_one();
        self.parts.mark_stale();
        Ok(seal)
    }

    /// Waits until every prediction that was accepted before is committed. Returns the match if it is closed and must be
    /// sealed.
    async fn close(&self, event: MatchId) -> sqlx::Result<Option<Target>> {
        let mut tx = database::begin(&self.db).await?;
        gates::close(&mut tx, [event].into_iter()).await?;
        let now = database::now(&mut *tx).await?;
        let target = store::target(&mut tx, event).await?;
        tx.commit().await?;
        Ok(target.filter(|target| target.status.is_closed(target.start_time, now)))
    }

    /// Reads the hashes of one pass, sorted, with pauses for other work.
    async fn leaves(
        &self,
        event: MatchId,
        start_time: OffsetDateTime,
        pass: Pass,
        predictions: i64,
    ) -> Result<Vec<Hash>, SealError> {
        let (mut leaves, mut after) = (Vec::with_capacity(pass.expected(predictions.unsigned_abs())), 0);
        let pause = if predictions < LARGE { 1 } else { PAUSE_OF_LARGE };
        loop {
            let began = Instant::now();
            let (found, last) = self.counted(event, start_time, after).await?;
            leaves.extend(found.iter().map(Receipt::leaf_hash).filter(|leaf| pass.contains(leaf)));
            let Some(last) = last else { break };
            after = last;
            tokio::time::sleep(began.elapsed() * pause).await;
        }
        let sorted = tokio::task::spawn_blocking(move || {
            leaves.sort_unstable();
            leaves
        });
        Ok(sorted.await?)
    }

    /// Reads a chunk of the receipts that count, after a user. Returns the last user, unless there are no more.
    async fn counted(
        &self,
        event: MatchId,
        start_time: OffsetDateTime,
        after: i64,
    ) -> sqlx::Result<(Vec<Receipt>, Option<i64>)> {
        let read = async || {
            let mut connection = self.db.acquire().await?;
            Predictions::counted(&mut connection, event, start_time, after, CHUNK).await
        };
        let (mut rows, last) = read().await?;
        let missing: Vec<i64> = rows.iter().filter(|(_, receipt)| receipt.is_none()).map(|(user, _)| user.0).collect();
        // Made by a process of the previous version, or by a deleted account. The latter have no leaf.
        if !missing.is_empty() && self.predictions.add_receipts_of(event, &missing).await? > 0 {
            (rows, _) = read().await?;
        }
        Ok((rows.into_iter().filter_map(|(_, receipt)| receipt).collect(), last))
    }

    /// Returns at most `limit` seals after a sequence, of one match or of all.
    pub async fn list(&self, event: Option<MatchId>, after: i64, limit: i64) -> sqlx::Result<Vec<Seal>> {
        store::list(&self.db, event, after, limit).await
    }

    /// Returns a page of the public chain: at most `limit` seals after a sequence, from parts that are at most a second
    /// old.
    pub(super) async fn page(
        &self,
        event: Option<MatchId>,
        after: i64,
        limit: i64,
    ) -> Result<ChainPage, Arc<ListError>> {
        let head = async || Ok::<_, ListError>(Bytes::from(serde_json::to_vec(&store::head(&self.db).await?)?));
        let head = self.parts.get(PartKey::Head, head).await?;
        let head: Option<ChainHead> =
            serde_json::from_slice(&head.body).map_err(|error| Arc::new(ListError::from(error)))?;
        let Some(newest) = head else { return Ok(ChainPage::default()) };
        match event {
            Some(event) => self.page_of_match(event, newest, (after, limit)).await,
            None => self.page_of_all(newest, (after, limit)).await,
        }
    }

    async fn page_of_all(&self, head: ChainHead, (after, limit): (i64, i64)) -> Result<ChainPage, Arc<ListError>> {
        let last = after.saturating_add(limit).min(head.sequence);
        let mut page = ChainPage { head: Some(head), more: last < head.sequence, ..ChainPage::default() };
        let mut digest = Vec::new();
        let mut before = after - after % PART;
        while before < last && after < last {
            let seals = PART.min(head.sequence - before);
            let cache = if before + PART < head.sequence { &self.earlier_parts } else { &self.parts };
            let build = async || render(&self.list(None, before, seals).await?);
            let part = cache.get(PartKey::Chain { before, seals }, build).await?;
            digest.extend_from_slice(part.etag.as_bytes());
            let (from, until) = (after - before, last - before);
            let is_whole = from <= 0 && until >= seals;
            page.seals.push(if is_whole { part.body.clone() } else { some_of(&part.body, from, until) });
            before += PART;
        }
        page.last = (after < last).then_some(last);
        page.digest = Hash::of(&[&digest]);
        Ok(page)
    }

    async fn page_of_match(
        &self,
        event: MatchId,
        head: ChainHead,
        (after, limit): (i64, i64),
    ) -> Result<ChainPage, Arc<ListError>> {
        let build = async || render(&self.list(Some(event), 0, i64::MAX).await?);
        let part = self.parts.get(PartKey::OfMatch { event, newest: head.sequence }, build).await?;
        let seals: Vec<ChainHead> = lines(&part.body)
            .map(serde_json::from_slice)
            .collect::<serde_json::Result<_>>()
            .map_err(|error| Arc::new(ListError::from(error)))?;
        let first = seals.partition_point(|seal| seal.sequence <= after);
        let until = seals.len().min(first.saturating_add(usize::try_from(limit).unwrap_or_default()));
        let number = |seals: usize| i64::try_from(seals).unwrap_or(i64::MAX);
        let mut page = ChainPage {
            more: until < seals.len(),
            // A seal of this match may be newer than the head that was read before.
            head: seals.last().copied().max(Some(head)),
            digest: Hash::of(&[part.etag.as_bytes()]),
            ..ChainPage::default()
        };
        if first < until {
            page.seals.push(some_of(&part.body, number(first), number(until)));
            page.last = seals.get(until - 1).map(|seal| seal.sequence);
        }
        Ok(page)
    }

    /// Returns the number of cached parts and their bytes.
    #[cfg(test)]
    pub(super) fn cached(&self) -> (usize, u64) {
        let (newer, earlier) = (self.parts.size(), self.earlier_parts.size());
        (newer.0 + earlier.0, newer.1 + earlier.1)
    }

    pub async fn find(&self, sequence: i64) -> sqlx::Result<Option<Seal>> {
        store::find(&self.db, sequence).await
    }

    /// Proves a user's own prediction against the latest seal of its match.
    pub async fn prove(&self, user: UserId, id: PredictionId) -> Result<Proof, ProofError> {
        let event = self.predictions.match_of(user, id).await?.ok_or(ProofError::NoSuchPrediction)?;
        let seal = store::latest(&self.db, event).await?.ok_or(ProofError::NotSealed)?;
        // A match that has opened again can have later revisions before its start.
        let before = seal.start_time.min(seal.sealed_at);
        let found = self.predictions.receipt_before(user, id, before).await?.ok_or(ProofError::NoSuchPrediction)?;
        let Some(receipt) = found else {
            let late = self.predictions.receipt_before(user, id, seal.start_time).await?.flatten();
            return Err(if late.is_some() { ProofError::NotSealed } else { ProofError::NotCounted });
        };
        let leaf = receipt.leaf_hash();
        let Some((tile, hashes)) = store::leaf_tile(&self.db, &seal, leaf).await? else {
            return Err(ProofError::Differs);
        };
        let Ok(within) = hashes.binary_search(&leaf) else { return Err(ProofError::Differs) };
        let mut path = rules::path(&hashes, within);
        let tile_size = i32::try_from(TILE).unwrap_or(i32::MAX);
        let (mut levels, mut numbers, mut places, mut number) = (Vec::new(), Vec::new(), Vec::new(), tile);
        for level in 1..rules::levels(seal.count.unsigned_abs()).len() {
            levels.push(i16::try_from(level).unwrap_or(i16::MAX));
            places.push(usize::try_from(number % tile_size).unwrap_or_default());
            number /= tile_size;
            numbers.push(number);
        }
        let upper = store::upper_tiles(&self.db, &seal, &levels, &numbers).await?;
        for (hashes, place) in upper.iter().zip(places) {
            path.extend(rules::path(hashes, place));
        }
        let leaf_index = u64::from(tile.unsigned_abs()) * TILE as u64 + within as u64;
        Ok(Proof { receipt, seal, leaf_index, path })
    }
}

/// Renders seals as JSON, each on its own line.
fn render(seals: &[Seal]) -> Result<Bytes, ListError> {
    let seals = seals.iter().map(serde_json::to_vec).collect::<serde_json::Result<Vec<_>>>()?;
    Ok(seals.join(BETWEEN).into())
}

/// Rendered seals, one by one. JSON text has no line break of its own.
fn lines(part: &Bytes) -> impl Iterator<Item = &[u8]> {
    let lines = part.split(|&byte| byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| line.strip_suffix(b",").unwrap_or(line))
}

/// Seals of a part from one position to another, which may lie outside the part.
fn some_of(part: &Bytes, from: i64, until: i64) -> Bytes {
    let (from, until) = (usize::try_from(from).unwrap_or(0), usize::try_from(until).unwrap_or(0));
    let (mut start, mut end, mut at) = (0, 0, 0);
    for (position, line) in lines(part).enumerate() {
        if position == from {
            start = at;
        }
        if position < until {
            end = at + line.len();
        }
        at += line.len() + BETWEEN.len();
    }
    part.slice(start..end)
}

fn report(event: MatchId, outcome: Result<Option<Seal>, SealError>) {
    match outcome {
        Ok(None) => {}
        Ok(Some(seal)) => {
            metrics::counter!("matchday_seals_total").increment(1);
            tracing::info!(event = event.0, sequence = seal.sequence, predictions = seal.count, "match sealed");
        }
        Err(error) => tracing::warn!(%error, event = event.0, "match not sealed; retrying"),
    }
}

/// A tree that is being built and stored.
struct Tree {
    event: MatchId,
    event_sequence: i32,
    builder: TreeBuilder,
    /// Tiles that are not stored yet.
    tiles: Vec<Tile>,
    /// Begun with the first tiles, so that reading the predictions of most matches holds no transaction open.
    tx: Option<Transaction<'static, Postgres>>,
}

impl Tree {
    /// Adds sorted leaves.
    async fn add(&mut self, db: &PgPool, leaves: Vec<Hash>) -> Result<(), SealError> {
        let leaves = Arc::new(leaves);
        let mut from = 0;
        while from < leaves.len() {
            let until = leaves.len().min(from + LEAVES_PER_TASK);
            let (mut builder, mut tiles) = (std::mem::take(&mut self.builder), std::mem::take(&mut self.tiles));
            let some = Arc::clone(&leaves);
            let added = tokio::task::spawn_blocking(move || {
                for &leaf in &some[from..until] {
                    builder.push(leaf, &mut tiles);
                }
                (builder, tiles)
            });
            (self.builder, self.tiles) = added.await?;
            if self.tiles.len() >= TILES_AT_ONCE {
                self.store(db).await?;
            }
            from = until;
        }
        Ok(())
    }

    /// Stores the finished tiles.
    async fn store(&mut self, db: &PgPool) -> sqlx::Result<&mut Transaction<'static, Postgres>> {
        let tx = if let Some(tx) = self.tx.take() {
            tx
        } else {
            let mut tx = database::begin(db).await?;
            store::allow_pauses(&mut tx).await?;
            tx
        };
        let tx = self.tx.insert(tx);
        for tiles in self.tiles.chunks(TILES_AT_ONCE) {
            store::insert_tiles(tx, self.event, self.event_sequence, tiles).await?;
        }
        self.tiles.clear();
        Ok(tx)
    }

    /// Stores the rest. Returns the open transaction, the number of leaves and the root.
    async fn finish(mut self, db: &PgPool) -> sqlx::Result<(Transaction<'static, Postgres>, u64, Hash)> {
        let (count, root) = std::mem::take(&mut self.builder).finish(&mut self.tiles);
        self.store(db).await?;
        let tx = match self.tx.take() {
            Some(tx) => tx,
            None => database::begin(db).await?,
        };
        Ok((tx, count, root))
    }
}
