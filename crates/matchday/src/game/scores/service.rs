//! Keeps scores in step with results.
//!
//! A result, a correction and an annulment each add a row to `event_results`. A result counts the predictions that were
//! current when it was recorded, or when the match started if that was earlier. The points that a result gives a user
//! therefore never change, regardless of later predictions or results. The same holds for the resolutions of questions, in
//! `question_results`.
//!
//! The users of a match or question are divided into chunks. Applying a chunk replaces the result in its users' scores with the
//! latest one: it adds the difference between the points of the two results and stores the new revision in the same
//! transaction. Applying it again changes nothing, and a result that was superseded in between is skipped.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::{
    Core,
    clock::Clock,
    database,
    outbox::{self, Message},
    stream::{Delivery, Failure, Stream, Streams, TransportError, WorkSpec},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::Notify;
use web::ids::{MatchId, QuestionId, TournamentId, UserId};

use super::{
    leaderboard_cache::{LeaderboardCache, LeaderboardError, Users, Written},
    rules::{self, Scope, Score, Source},
    settings::Settings,
    store::{self, Chunk, ScoreRow, StoredResult},
};
use crate::{
    catalogue::matches::{
        partitions,
        results::{PLANNED, Planned, planned},
    },
    game::coins::payouts::{Payouts, Slice},
};

/// Number of users whose scores one statement of a rebuild recomputes.
const REBUILT_AT_ONCE: i64 = 10_000;

/// Maximum number of users of a chunk whose missing rows are inserted one user at a time.
const INSERTED_ALONE: usize = 200;

/// Published when a result has reached all scores and leaderboards.
pub const UPDATED: &str = "fact.scores.updated";
/// Published when a result of a question has reached all scores and leaderboards.
pub const ANSWERED: &str = "fact.scores.answered";
/// Work message: bring a chunk of a match or question up to the latest result.
pub const CHUNK: &str = "work.score.lane";
/// Work message: plan the score job of a question.
const QUESTION: &str = "work.score.question";

#[derive(Clone)]
pub struct Scores {
    inner: Arc<Inner>,
}

/// Outcome of applying a chunk to the scores.
enum ChunkOutcome {
    /// The chunk does not exist, or the match has no result.
    Nothing,
    /// Nothing was written, because the chunk of another match has inserted a row that this one was about to insert.
    Raced,
    /// The chunk's scores include the latest result.
    Applied { held: Chunk, latest: StoredResult, written: Option<Written> },
}

struct Inner {
    db: PgPool,
    streams: Streams,
    boards: LeaderboardCache,
    payouts: Payouts,
    config: Settings,
    outbox_written: Arc<Notify>,
    clock: Arc<dyn Clock>,
}

/// Published when a result has reached all scores and leaderboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoresFact {
    pub event_id: MatchId,
    /// Revision of the result.
    pub result_revision: i64,
}

/// Published when a result of a question has reached all scores and leaderboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AnswersFact {
    pub question_id: QuestionId,
    pub tournament_id: TournamentId,
    /// Revision of the result.
    pub result_revision: i64,
}

#[derive(Serialize, Deserialize)]
struct ChunkWork {
    #[serde(flatten)]
    source: Source,
    /// Keeps the serialised name that workers of the previous version use.
    #[serde(rename = "lane")]
    chunk: i32,
}

#[derive(Serialize, Deserialize)]
struct PlannedQuestion {
    question_id: QuestionId,
}

/// Returns the message that requests a score job for a result of a question.
pub fn planned_question(question: QuestionId) -> serde_json::Result<Message> {
    Message::new(QUESTION, format!("question:{question}"), &PlannedQuestion { question_id: question })
}

/// Reason why scores could not be updated. Every variant but `Archived` may be transient, so the caller can retry.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// NATS did not accept a message.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
    /// The scores were updated, but the leaderboards were not.
    #[error(transparent)]
    Board(#[from] LeaderboardError),
    /// Scores contain a match whose predictions were archived, so they cannot be recomputed.
    #[error("the predictions of match {0} are archived: attach its partition of predictions and prediction_revisions")]
    Archived(MatchId),
}

/// Marks a result as applied and publishes [`UPDATED`] or [`ANSWERED`], if every chunk has it. Returns whether this call
/// marked it.
async fn mark_applied(connection: &mut PgConnection, source: Source, revision: i64) -> Result<bool, ScoreError> {
    let Some(result_revision) = store::mark_applied(connection, source, revision).await? else { return Ok(false) };
    let message = match source {
        Source::Match(event) => {
            Message::new(UPDATED, format!("event:{event}"), &ScoresFact { event_id: event, result_revision })?.logged()
        }
        Source::Question(question_id) => {
            let tournament_id = store::tournament_of(&mut *connection, question_id).await?;
            let fact = AnswersFact { question_id, tournament_id, result_revision };
            Message::new(ANSWERED, format!("question:{question_id}"), &fact)?
        }
    };
    outbox::enqueue(connection, &[message]).await?;
    Ok(true)
}

/// Adds a result to the scores of a chunk's users, and returns the new scores. Existing rows are updated; then the
/// missing ones are inserted with their final values, because inserting and updating them would write each twice.
/// Returns `None` if another transaction inserted one of the missing rows in between: the caller must start over.
///
/// Chunks of several matches do this at the same time without deadlocks. Updates lock rows in the order of users and
/// scopes, and so do inserts. A transaction that has begun to insert holds all rows that it updates, so it waits only
/// for others that insert.
async fn add_result(
    connection: &mut PgConnection,
    chunk: &Chunk,
    revision: i64,
    tables: &[String],
) -> sqlx::Result<Option<Vec<ScoreRow>>> {
    let mut scores = store::add_result(connection, chunk, revision, tables).await?;
    let users = store::count_users(connection, chunk).await?;
    if scores.len() as u64 == users * tables.len() as u64 {
        return Ok(Some(scores));
    }
    let users = store::users_of_result(connection, chunk, revision).await?;
    scores.sort_unstable_by_key(ScoreRow::place);
    let found: Vec<(i32, i64)> = scores.iter().map(ScoreRow::place).collect();
    let missing = rules::missing_rows(&users, i32::try_from(tables.len()).unwrap_or(i32::MAX), &found);
    // Usually a few users of a chunk are new. Searching the whole chunk for them costs more than one statement for each.
    if missing.users.len() > INSERTED_ALONE {
        scores.extend(store::insert_result(connection, chunk, revision, tables).await?);
    } else {
        for user in missing.users {
            let only = Chunk { from_user: user, until_user: user.saturating_add(1), ..*chunk };
            scores.extend(store::insert_result(connection, &only, revision, tables).await?);
        }
    }
    Ok((scores.len() == found.len() + missing.rows).then_some(scores))
}

/// Returns the scopes that a result counts for, without dropped weeks; `None` if the result gives no points.
async fn kept_tables(
    connection: &mut PgConnection,
    source: Source,
    revision: i64,
) -> sqlx::Result<Option<Vec<String>>> {
    let Some(mut tables) = store::tables_of_result(connection, source, revision).await? else { return Ok(None) };
    let first_kept = store::first_kept_week(connection).await?;
    tables.retain(|table| !rules::is_dropped(table, first_kept.as_deref()));
    Ok(Some(tables))
}

fn is_unique_violation(error: &sqlx::Error) -> bool {
    error.as_database_error().is_some_and(sqlx::error::DatabaseError::is_unique_violation)
}

/// Progress of adding the latest result of a match or question to the scores.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    pub source: Source,
    /// Revision of the latest result.
    pub revision: i64,
    pub recorded_at: OffsetDateTime,
    /// Number of chunks; 0 before the match is planned.
    pub chunks: i64,
    /// Number of chunks that have the result.
    pub done: i64,
}

/// A stored score that differs from the one computed from predictions and results.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    pub user: UserId,
    /// Scope of the score, as stored.
    pub scope: String,
    /// Score computed from predictions and results.
    pub expected: Score,
    /// Score found in the database.
    pub found: Score,
}

/// Whether a rebuild repairs the differences that it finds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// Repair wrong scores and republish leaderboards.
    Repair,
    /// Only report differences.
    DryRun,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// All scores have the latest result.
    Done,
    /// The match does not exist.
    NoSuchMatch,
    /// The match never had a result that gives points.
    NothingToDo,
}

impl Scores {
    pub fn new(core: &Core, streams: Streams, boards: LeaderboardCache, payouts: Payouts, config: &Settings) -> Self {
        let Core { db, outbox_written, clock, .. } = core.clone();
        Self { inner: Arc::new(Inner { db, streams, boards, payouts, config: config.clone(), outbox_written, clock }) }
    }

    pub(super) fn db(&self) -> &PgPool {
        &self.inner.db
    }

    pub(super) fn settings(&self) -> &Settings {
        &self.inner.config
    }

    pub(super) fn now(&self) -> OffsetDateTime {
        self.inner.clock.now()
    }

    /// Describes the work queue that score workers consume.
    pub fn work(&self) -> WorkSpec {
        WorkSpec {
            at_once: self.inner.config.workers,
            // A chunk takes a second or two, and its worker sends progress signals. The chunk of a dead worker is
            // redelivered soon.
            ack_wait: Duration::from_secs(10),
            longest_pause: Duration::from_secs(30),
            ..WorkSpec::new("scores", Stream::Work, "work.score.>")
        }
    }

    /// Handles one work message. Idempotent.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let unreadable = |error: serde_json::Error| Failure::GiveUp(error.into());
        match delivery.subject.as_str() {
            PLANNED => {
                let Planned { event_id } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.plan_and_queue(event_id.into()).await
            }
            QUESTION => {
                let PlannedQuestion { question_id } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.plan_and_queue(question_id.into()).await
            }
            CHUNK => {
                let ChunkWork { source, chunk } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.apply(source, chunk).await
            }
            other => return Err(Failure::GiveUp(anyhow::anyhow!("unknown work subject {other}"))),
        }
        .map_err(Failure::retry)
    }

    /// Queues one work message for every chunk that is behind.
    async fn plan_and_queue(&self, source: Source) -> Result<(), ScoreError> {
        let mut acknowledgements = Vec::new();
        for chunk in self.plan(source).await? {
            let work = serde_json::to_vec(&ChunkWork { source, chunk: chunk.number })?;
            let id = format!("score-{}-{}-{}-{}", source.kind(), source.id(), chunk.number, chunk.wanted);
            let message = PublishMessage::build().message_id(id).payload(work.into());
            acknowledgements.push(self.inner.streams.send(CHUNK, message).await?);
        }
        for acknowledgement in acknowledgements {
            acknowledgement.await.map_err(TransportError::from)?;
        }
        Ok(())
    }

    /// Divides the users of a match or question into chunks, unless a score already includes it. Returns the chunks that
    /// do not have the latest result yet.
    pub async fn plan(&self, source: impl Into<Source>) -> Result<Vec<Chunk>, ScoreError> {
        let source = source.into();
        let mut tx = platform::database::begin(&self.inner.db).await?;
        store::lock_plan(&mut tx, source).await?;
        let Some(latest) = store::latest_result(&mut tx, source).await? else { return Ok(Vec::new()) };
        // Until a score includes it, its chunks can be recreated: many users may have predicted since they were
        // planned.
        if latest.has_points && !store::is_in_scores(&mut tx, source).await? {
            store::cut_chunks(&mut tx, source, self.inner.config.lane_size.into()).await?;
        }
        let behind = store::chunks_behind(&mut tx, source, latest.revision).await?;
        if behind.is_empty() {
            mark_applied(&mut tx, source, latest.revision).await?;
        }
        tx.commit().await?;
        Ok(behind)
    }

    /// Brings a chunk's scores, leaderboard entries and payouts up to the latest result.
    pub async fn apply(&self, source: impl Into<Source>, chunk: i32) -> Result<(), ScoreError> {
        let source = source.into();
        let outcome = loop {
            match self.apply_to_scores(source, chunk).await {
                // The other transaction has committed the row, so it is found next time.
                Ok(ChunkOutcome::Raced) => {}
                Err(ScoreError::Database(error)) if is_unique_violation(&error) => {}
                outcome => break outcome?,
            }
        };
        let ChunkOutcome::Applied { held, latest, written } = outcome else { return Ok(()) };
        // A Redis failure in the leaderboards must not delay coins, so payouts run before the publish error is
        // returned.
        let published = self.publish(&held, written).await;
        self.pay(&held, &latest).await?;
        published?;
        store::set_shown(&self.inner.db, &held, latest.revision).await?;
        let mut tx = platform::database::begin(&self.inner.db).await?;
        let was_last = mark_applied(&mut tx, source, latest.revision).await?;
        tx.commit().await?;
        if was_last {
            self.inner.outbox_written.notify_one();
        }
        Ok(())
    }

    async fn apply_to_scores(&self, source: Source, chunk: i32) -> Result<ChunkOutcome, ScoreError> {
        let mut tx = platform::database::begin(&self.inner.db).await?;
        let mut held = store::lock_chunk(&mut tx, source, chunk).await?;
        if held.is_none() {
            // If the chunk was deleted and inserted again while the query waited for its lock, the query finds nothing.
            // A second query finds the new row.
            held = store::lock_chunk(&mut tx, source, chunk).await?;
        }
        let Some(held) = held else { return Ok(ChunkOutcome::Nothing) };
        let Some(latest) = store::latest_result(&mut tx, source).await? else { return Ok(ChunkOutcome::Nothing) };
        let mut written = None;
        if held.revision < latest.revision {
            let repairs = store::repairs(&mut *tx).await?;
            let before = kept_tables(&mut tx, source, held.revision).await?;
            if let Some(tables) = &before {
                store::subtract_result(&mut tx, &held, held.revision, tables).await?;
            }
            let mut added = None;
            if let Some(tables) = kept_tables(&mut tx, source, latest.revision).await? {
                let Some(scores) = add_result(&mut tx, &held, latest.revision, &tables).await? else {
                    tx.rollback().await?;
                    return Ok(ChunkOutcome::Raced);
                };
                metrics::counter!("matchday_scores_changed_total").increment(scores.len() as u64);
                added = Some((tables, scores));
            }
            let write = store::next_write(&mut tx).await?;
            // These are all scores that the chunk changes, unless an earlier result counted for another month or week.
            written = added
                .filter(|(tables, _)| before.is_none_or(|before| before == *tables))
                .map(|(tables, scores)| Written { scopes: read_scopes(&tables), scores, write, repairs });
            store::set_chunk(&mut tx, &held, latest.revision, write).await?;
        }
        tx.commit().await?;
        Ok(ChunkOutcome::Applied { held, latest, written })
    }

    /// Pays a chunk's users the coins that a result is worth. Stops if a later result exists or if the users were
    /// already paid for this one.
    pub(super) async fn pay(&self, chunk: &Chunk, result: &StoredResult) -> Result<(), ScoreError> {
        let (Inner { db, payouts, .. }, revision) = (&*self.inner, result.revision);
        // Only predictions are worth coins. The chunk of a question is marked as paid without a payout.
        let (mut left, rate) = match chunk.source {
            Source::Match(event) => {
                let slice = Slice { event, revision, from_user: chunk.from_user, until_user: chunk.until_user };
                (Some(slice), payouts.rate(db, event, result.has_points).await?)
            }
            Source::Question(_) => (None, 0),
        };
        if left.is_none() {
            let mut tx = platform::database::begin(db).await?;
            if store::lock_to_pay(&mut tx, chunk, revision).await? {
                store::set_paid(&mut tx, chunk, revision).await?;
            }
            tx.commit().await?;
        }
        while let Some(slice) = left {
            let mut tx = platform::database::begin(db).await?;
            // While this transaction holds the chunk, no other worker can pay its users or add a later result to their
            // scores.
            if !store::lock_to_pay(&mut tx, chunk, revision).await? {
                return Ok(());
            }
            let settled = if rate > 0 { Some(payouts.pay_some(&mut tx, slice, rate).await?) } else { None };
            left = settled.as_ref().and_then(|settled| settled.left);
            if left.is_none() {
                store::set_paid(&mut tx, chunk, revision).await?;
            }
            tx.commit().await?;
            if let Some(settled) = settled {
                settled.count();
            }
        }
        Ok(())
    }

    /// Updates the leaderboard entries of a chunk's users, including those on leaderboards of an earlier result that
    /// counted for another month or week.
    async fn publish(&self, chunk: &Chunk, written: Option<Written>) -> Result<(), ScoreError> {
        let users = Users::OfSource { source: chunk.source, from: chunk.from_user, until: chunk.until_user };
        if let Some(written) = written
            && self.inner.boards.publish_written(written, chunk).await?
        {
            return Ok(());
        }
        let scopes = store::scopes_of_source(&self.inner.db, chunk.source).await?;
        Ok(self.inner.boards.publish(&read_scopes(&scopes), users).await?)
    }

    /// Plans overdue results again, because the queue may have lost their work. Does nothing while NATS is
    /// disconnected: no work can have been lost yet, and the messages would only pile up in the outbox.
    pub async fn plan_overdue(&self) -> Result<usize, ScoreError> {
        if !self.inner.streams.is_connected() {
            return Ok(0);
        }
        let mut tx = platform::database::begin(&self.inner.db).await?;
        let overdue = store::overdue(&mut tx).await?;
        let message = |source: &Source| match *source {
            Source::Match(event) => planned(event),
            Source::Question(question) => planned_question(question),
        };
        let messages = overdue.iter().map(message).collect::<Result<Vec<_>, _>>()?;
        outbox::enqueue(&mut tx, &messages).await?;
        tx.commit().await?;
        if !overdue.is_empty() {
            self.inner.outbox_written.notify_one();
        }
        Ok(overdue.len())
    }

    /// Lists matches and questions whose latest result has not reached all scores yet, oldest first.
    pub async fn in_progress(&self) -> Result<Vec<Progress>, ScoreError> {
        Ok(store::in_progress(&self.inner.db).await?)
    }

    /// Applies all chunks of a match immediately. Chunks that already have the latest result are included, to publish
    /// their leaderboard entries again. Calls `progress` with the number of finished chunks and the total. A
    /// leaderboard failure does not stop the remaining chunks; it is returned at the end.
    pub async fn rerun(&self, event: MatchId, progress: impl Fn(usize, usize)) -> Result<Rerun, ScoreError> {
        if !store::event_exists(&self.inner.db, event).await? {
            return Ok(Rerun::NoSuchMatch);
        }
        self.plan(event).await?;
        let chunks = store::chunks(&self.inner.db, event).await?;
        if chunks.is_empty() {
            return Ok(Rerun::NothingToDo);
        }
        progress(0, chunks.len());
        let mut boards = Ok(Rerun::Done);
        for (done, &chunk) in chunks.iter().enumerate() {
            match self.apply(event, chunk).await {
                Err(error @ ScoreError::Board(_)) => boards = Err(error),
                outcome => outcome?,
            }
            progress(done + 1, chunks.len());
        }
        boards
    }

    /// Recomputes every score from predictions and results, and reports each difference to `differs`. In
    /// [`Rebuild::Repair`] mode, it also repairs the scores and republishes the leaderboards; a leaderboard failure is
    /// returned at the end. A result that has not reached the scores yet is not a difference. Calls `progress` with the
    /// user id reached so far and the greatest one. Fails if predictions of a scored match are archived.
    pub async fn rebuild(
        &self,
        mode: Rebuild,
        progress: impl Fn(i64, i64),
        mut differs: impl FnMut(Difference),
    ) -> Result<(), ScoreError> {
        let attached = partitions::attached(&self.inner.db).await?;
        let scored = store::scored_matches(&self.inner.db).await?;
        if let Some(archived) = scored.into_iter().find(|&event| !attached.contains(event)) {
            return Err(ScoreError::Archived(archived));
        }
        let last = store::last_user(&self.inner.db).await?;
        let (mut from, mut boards) = (0, Ok(()));
        while from <= last {
            let until = from.saturating_add(REBUILT_AT_ONCE);
            match self.rebuild_some(mode, from, until).await {
                Ok(differences) => differences.into_iter().for_each(&mut differs),
                // A chunk changed these users' scores concurrently, so they are checked again.
                Err(error) if database::is_conflict(&error) => continue,
                Err(error) => return Err(error.into()),
            }
            // Runs even without differences, because a leaderboard may differ from correct scores.
            if mode == Rebuild::Repair
                && let Err(error) = self.publish_all(from, until).await
            {
                boards = Err(error);
            }
            from = until;
            progress(from.min(last), last);
        }
        boards
    }

    async fn rebuild_some(&self, mode: Rebuild, from: i64, until: i64) -> sqlx::Result<Vec<Difference>> {
        let mut tx = store::begin_snapshot(&self.inner.db).await?;
        let first_kept = store::first_kept_week(&mut *tx).await?;
        let mut differences = store::differences(&mut tx, from, until).await?;
        differences.retain(|difference| !rules::is_dropped(&difference.scope, first_kept.as_deref()));
        if mode == Rebuild::Repair {
            store::repair(&mut tx, &differences).await?;
        }
        tx.commit().await?;
        Ok(differences)
    }

    async fn publish_all(&self, from: i64, until: i64) -> Result<(), ScoreError> {
        let scopes = store::scopes_of_users(&self.inner.db, from, until).await?;
        Ok(self.inner.boards.publish(&read_scopes(&scopes), Users::Between { from, until }).await?)
    }
}

/// Parses stored scopes. An unparsable scope belongs to no leaderboard, so it is skipped.
fn read_scopes(scopes: &[String]) -> Vec<Scope> {
    scopes.iter().filter_map(|scope| scope.parse().ok()).collect()
}
