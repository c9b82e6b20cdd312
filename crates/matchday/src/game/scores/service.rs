//! Keeping scores in step with results.
//!
//! A result, a correction or an annulment is one more row of `event_results`. The predictions that it counts are those
//! that stood when it was recorded, or when the match began if that was earlier; so what a result is worth to a user
//! never changes afterwards, whatever is predicted or recorded later. The users of a match are cut into chunks. A chunk
//! goes from the result that is in its scores to the latest one by adding the difference between what the two are worth,
//! and says so in the same transaction. Doing that twice changes nothing, and a result that came and went in between is
//! passed over.

use std::{sync::Arc, time::Duration};

use async_nats::jetstream::message::PublishMessage;
use platform::{
    Core, database,
    outbox::{self, Message},
    stream::{Delivery, Failure, Stream, Streams, TransportError, WorkSpec},
};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::Notify;
use web::ids::{MatchId, UserId};

use super::{
    leaderboard_cache::{LeaderboardCache, LeaderboardError, Users, Written},
    rules::{Scope, Score},
    settings::Settings,
    store::{self, Chunk, StoredResult},
};
use crate::{
    catalogue::matches::results::{PLANNED, Planned, planned},
    game::coins::payouts::{Payouts, Slice},
};

/// How many users' scores are worked out anew by one statement.
const REBUILT_AT_ONCE: i64 = 10_000;

/// A result is in all scores and on all leaderboards.
pub const UPDATED: &str = "fact.scores.updated";
/// A chunk of a match is to be brought up to the latest result.
pub const CHUNK: &str = "work.score.lane";

/// The scores.
#[derive(Clone)]
pub struct Scores {
    inner: Arc<Inner>,
}

/// Whether a chunk's users have scores already.
#[derive(Clone, Copy)]
enum Rows {
    Exist,
    AreMissing,
}

/// What came of a chunk.
enum Brought {
    /// There is no such chunk, or no result.
    Nothing,
    /// Nothing was written, because some users have no scores yet.
    NotAll,
    /// Its scores are those of this result.
    Up { held: Chunk, latest: StoredResult, written: Option<Written> },
}

struct Inner {
    db: PgPool,
    streams: Streams,
    boards: LeaderboardCache,
    payouts: Payouts,
    config: Settings,
    outbox_written: Arc<Notify>,
}

/// A result is in all scores and on all leaderboards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ScoresFact {
    /// The match.
    pub event_id: MatchId,
    /// Which of its results.
    pub result_revision: i64,
}

#[derive(Serialize, Deserialize)]
struct ChunkWork {
    event_id: MatchId,
    /// By the name that workers of the version before know.
    #[serde(rename = "lane")]
    chunk: i32,
}

/// Why scores were not brought in step. All of it may pass.
#[derive(Debug, thiserror::Error)]
pub enum ScoreError {
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// NATS did not take a message.
    #[error(transparent)]
    Transport(#[from] TransportError),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
    /// The leaderboards do not show it.
    #[error(transparent)]
    Board(#[from] LeaderboardError),
}

/// Takes note that all scores have a result, if they do, and tells of it once; returns whether they do now and did not
/// before.
async fn mark_applied(connection: &mut PgConnection, event: MatchId, revision: i64) -> Result<bool, ScoreError> {
    let Some(result_revision) = store::mark_applied(connection, event, revision).await? else { return Ok(false) };
    let fact = ScoresFact { event_id: event, result_revision };
    outbox::enqueue(connection, &[Message::new(UPDATED, format!("event:{event}"), &fact)?]).await?;
    Ok(true)
}

/// How a match's scores stand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Progress {
    /// The match.
    pub event: MatchId,
    /// Its latest result.
    pub revision: i64,
    /// When that was recorded.
    pub recorded_at: OffsetDateTime,
    /// How many chunks the match has; 0 before it is planned.
    pub chunks: i64,
    /// How many of them have it.
    pub done: i64,
}

/// A score that is not what its predictions and results make it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Difference {
    /// Whose.
    pub user: UserId,
    /// In which table.
    pub scope: String,
    /// What it should be.
    pub expected: Score,
    /// What it was.
    pub found: Score,
}

/// Whether differences are only looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rebuild {
    /// Put right what differs.
    Repair,
    /// Only say what differs.
    DryRun,
}

/// What came of bringing a match up to its result.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Rerun {
    /// It is in all scores.
    Done,
    /// There is no such match.
    NoSuchMatch,
    /// It never had a result that anybody gains or loses by.
    NothingToDo,
}

impl Scores {
    /// Scores in this database.
    pub fn new(core: &Core, streams: Streams, boards: LeaderboardCache, payouts: Payouts, config: &Settings) -> Self {
        let Core { db, outbox_written, .. } = core.clone();
        Self { inner: Arc::new(Inner { db, streams, boards, payouts, config: config.clone(), outbox_written }) }
    }

    /// The work that is left for workers.
    pub fn work(&self) -> WorkSpec {
        WorkSpec {
            at_once: self.inner.config.workers,
            // The database or Redis may be away for a day, and all of this must be done when they are back.
            attempts: 10_000,
            // A chunk takes a second or two, and says that it lives. What a dead worker held goes on soon.
            ack_wait: Duration::from_secs(10),
            longest_pause: Duration::from_secs(30),
            ..WorkSpec::new("scores", Stream::Work, "work.score.>")
        }
    }

    /// Does a piece of that work. Doing it twice changes nothing.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let unreadable = |error: serde_json::Error| Failure::GiveUp(error.into());
        match delivery.subject.as_str() {
            PLANNED => {
                let Planned { event_id } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.plan_and_queue(event_id).await
            }
            CHUNK => {
                let ChunkWork { event_id, chunk } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.apply(event_id, chunk).await
            }
            other => return Err(Failure::GiveUp(anyhow::anyhow!("nobody knows how to do {other}"))),
        }
        .map_err(Failure::retry)
    }

    /// Puts one piece of work for every chunk that is behind on the queue.
    async fn plan_and_queue(&self, event: MatchId) -> Result<(), ScoreError> {
        let mut acknowledgements = Vec::new();
        for chunk in self.plan(event).await? {
            let work = serde_json::to_vec(&ChunkWork { event_id: event, chunk: chunk.number })?;
            let id = format!("score-{event}-{}-{}", chunk.number, chunk.wanted);
            let message = PublishMessage::build().message_id(id).payload(work.into());
            acknowledgements.push(self.inner.streams.send(CHUNK, message).await?);
        }
        for acknowledgement in acknowledgements {
            acknowledgement.await.map_err(TransportError::from)?;
        }
        Ok(())
    }

    /// Cuts a match's users into chunks, unless that was done; returns those that do not have the latest result yet.
    pub async fn plan(&self, event: MatchId) -> Result<Vec<Chunk>, ScoreError> {
        let mut tx = self.inner.db.begin().await?;
        store::lock_plan(&mut tx, event).await?;
        let Some(latest) = store::latest_result(&mut tx, event).await? else { return Ok(Vec::new()) };
        // As long as nothing of a match is in any score it can be cut anew: many may have predicted it since.
        if latest.has_points() && !store::is_in_scores(&mut tx, event).await? {
            store::cut_chunks(&mut tx, event, self.inner.config.lane_size.into()).await?;
        }
        let behind = store::chunks_behind(&mut tx, event, latest.revision).await?;
        if behind.is_empty() {
            mark_applied(&mut tx, event, latest.revision).await?;
        }
        tx.commit().await?;
        Ok(behind)
    }

    /// Brings a chunk's scores up to the latest result.
    pub async fn apply(&self, event: MatchId, chunk: i32) -> Result<(), ScoreError> {
        let brought = match self.bring_up(event, chunk, Rows::Exist).await? {
            // From the beginning, in another transaction: whoever changed some rows and then added those between them would
            // wait for somebody who changed the latter and waits for the former.
            Brought::NotAll => self.bring_up(event, chunk, Rows::AreMissing).await?,
            brought => brought,
        };
        let Brought::Up { held, latest, written } = brought else { return Ok(()) };
        // Neither waits for the other's trouble: leaderboards are in Redis, which may be away, and coins are not.
        let published = self.publish(&held, written).await;
        self.pay(&held, &latest).await?;
        published?;
        store::set_shown(&self.inner.db, &held, latest.revision).await?;
        let mut tx = self.inner.db.begin().await?;
        let was_last = mark_applied(&mut tx, event, latest.revision).await?;
        tx.commit().await?;
        if was_last {
            self.inner.outbox_written.notify_one();
        }
        Ok(())
    }

    async fn bring_up(&self, event: MatchId, chunk: i32, rows: Rows) -> Result<Brought, ScoreError> {
        let mut tx = self.inner.db.begin().await?;
        let mut held = store::hold_chunk(&mut tx, event, chunk).await?;
        if held.is_none() {
            // Whoever waits for a row that is deleted and written anew finds nothing; a second look finds the new one.
            held = store::hold_chunk(&mut tx, event, chunk).await?;
        }
        let Some(held) = held else { return Ok(Brought::Nothing) };
        let Some(latest) = store::latest_result(&mut tx, event).await? else { return Ok(Brought::Nothing) };
        let mut written = None;
        if held.revision < latest.revision {
            let before = store::tables_of_result(&mut tx, event, held.revision).await?;
            if let Some(tables) = &before {
                store::take_result_back(&mut tx, &held, held.revision, tables).await?;
            }
            if let Some(tables) = store::tables_of_result(&mut tx, event, latest.revision).await? {
                let scores = match rows {
                    Rows::Exist => store::add_result(&mut tx, &held, latest.revision, &tables).await?,
                    Rows::AreMissing => Some(store::put_result(&mut tx, &held, latest.revision, &tables).await?),
                };
                let Some(scores) = scores else {
                    tx.rollback().await?;
                    return Ok(Brought::NotAll);
                };
                metrics::counter!("matchday_scores_changed_total").increment(scores.len() as u64);
                // All that this chunk changes, unless an earlier result counted for another month or week.
                if before.is_none_or(|before| before == tables) {
                    let transaction = store::transaction(&mut tx).await?;
                    written = Some(Written { scopes: read_scopes(&tables), scores, transaction });
                }
            }
            store::set_chunk(&mut tx, &held, latest.revision).await?;
        }
        tx.commit().await?;
        Ok(Brought::Up { held, latest, written })
    }

    /// Pays a chunk's users what a result is worth to them in coins, if anything. A later result, or one that somebody else
    /// has paid them by, ends it.
    pub(super) async fn pay(&self, chunk: &Chunk, result: &StoredResult) -> Result<(), ScoreError> {
        let (Inner { db, payouts, .. }, revision) = (&*self.inner, result.revision);
        let rate = payouts.rate(db, chunk.event, result.has_points()).await?;
        let mut left =
            Some(Slice { event: chunk.event, revision, from_user: chunk.from_user, until_user: chunk.until_user });
        while let Some(slice) = left {
            let mut tx = db.begin().await?;
            // As long as this one holds the chunk, nobody else pays its users, and no later result is in their scores.
            if !store::hold_to_pay(&mut tx, chunk, revision).await? {
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

    /// Brings a chunk's users to their places on the leaderboards: also on those of an earlier result that counted for
    /// another month or week.
    async fn publish(&self, chunk: &Chunk, written: Option<Written>) -> Result<(), ScoreError> {
        let users = Users::WhoPredicted { event: chunk.event, from: chunk.from_user, until: chunk.until_user };
        if let Some(written) = written
            && self.inner.boards.publish_written(written, chunk).await?
        {
            return Ok(());
        }
        let scopes = store::scopes_of_match(&self.inner.db, chunk.event).await?;
        Ok(self.inner.boards.publish(&read_scopes(&scopes), users).await?)
    }

    /// Has results planned again that were not in all scores a while after they came: what a lost queue forgot. While there
    /// is no queue nothing can have been forgotten; it would only pile up.
    pub async fn plan_overdue(&self) -> Result<usize, ScoreError> {
        if !self.inner.streams.is_connected() {
            return Ok(0);
        }
        let mut tx = self.inner.db.begin().await?;
        let overdue = store::overdue(&mut tx).await?;
        let messages = overdue.iter().map(|&event| planned(event)).collect::<Result<Vec<_>, _>>()?;
        outbox::enqueue(&mut tx, &messages).await?;
        tx.commit().await?;
        if !overdue.is_empty() {
            self.inner.outbox_written.notify_one();
        }
        Ok(overdue.len())
    }

    /// The matches whose latest result is not in all scores yet, the oldest first.
    pub async fn in_progress(&self) -> Result<Vec<Progress>, ScoreError> {
        Ok(store::in_progress(&self.inner.db).await?)
    }

    /// Brings all chunks of a match up to its latest result here and now, those that have it already included: what they
    /// show is shown again. `progress` is called with how many of how many are done. Leaderboards that could not be set
    /// keep no chunk from its scores; they are the error at the end.
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

    /// Works every score out anew from predictions and results, hands in where it is not what is stored, puts it right, and
    /// sets the leaderboards again; those that could not be set are the error at the end. Results that are not in the
    /// scores yet are no difference: they are still on their way. `progress` is called with how many of how many users
    /// are dealt with.
    pub async fn rebuild(
        &self,
        mode: Rebuild,
        progress: impl Fn(i64, i64),
        mut differs: impl FnMut(Difference),
    ) -> Result<(), ScoreError> {
        let last = store::last_user(&self.inner.db).await?;
        let (mut from, mut boards) = (0, Ok(()));
        while from <= last {
            let until = from.saturating_add(REBUILT_AT_ONCE);
            match self.rebuild_some(mode, from, until).await {
                Ok(differences) => differences.into_iter().for_each(&mut differs),
                // A chunk came between; then these users are looked at again.
                Err(error) if database::is_conflict(&error) => continue,
                Err(error) => return Err(error.into()),
            }
            // Also where nothing differed: a board may have come off the scores by itself.
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
        let mut tx = store::begin_at_one_moment(&self.inner.db).await?;
        let differences = store::differences(&mut tx, from, until).await?;
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

/// Tables as they are stored. What cannot be read is no table that anybody could ask for.
fn read_scopes(scopes: &[String]) -> Vec<Scope> {
    scopes.iter().filter_map(|scope| scope.parse().ok()).collect()
}
