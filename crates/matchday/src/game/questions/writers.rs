//! Batch writer for answers: writes many answers in one transaction, because most users answer just before the lock.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
};

use platform::{
    Core,
    batches::{Attempt, Write},
    random,
    shards::{Ranges, Shards},
};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::{MatchId, QuestionId, UserId};

use super::{
    rules::{Answer, Status},
    service::{AnswerError, Saved},
    store::{
        self,
        answers::{self, Current, NewAnswer},
    },
};
use crate::game::predictions::rules::MOST_REVISIONS;

/// Number of slots that the tally of a question is spread over.
const SLOTS: u8 = 64;
/// Number of questions whose match is known.
const KNOWN: usize = 10_000;

/// Matches of questions, which never change.
pub(super) type KnownMatches = quick_cache::sync::Cache<QuestionId, Option<MatchId>>;

/// Writes the answers of a part of the users.
pub(super) struct Writer {
    shards: Shards,
    matches: Arc<KnownMatches>,
    /// Slot of the tallies that this writer updates.
    slot: i16,
}

/// An answer as requested.
#[derive(Clone, Debug)]
pub(super) struct Entry {
    pub(super) user: UserId,
    pub(super) question: QuestionId,
    pub(super) answer: Answer,
}

impl Writer {
    /// Creates the writers of this process.
    pub(super) fn for_users(number: usize, core: &Core) -> Vec<Self> {
        let [first]: [u8; 1] = random::bytes(&*core.random);
        let matches = Arc::new(KnownMatches::new(KNOWN));
        // Writers of other processes may have the same slot. They then only wait for each other's locks.
        let slot =
            |writer: usize| i16::from(first.wrapping_add(u8::try_from(writer % 256).unwrap_or_default()) % SLOTS);
        let writer = |number| Self { shards: core.shards.clone(), matches: Arc::clone(&matches), slot: slot(number) };
        (0..number).map(writer).collect()
    }

    /// Returns the matches of these questions, whose gates must be held.
    async fn matches_of(&self, connection: &mut PgConnection, questions: &[i64]) -> sqlx::Result<Vec<MatchId>> {
        let (mut matches, mut unknown) = (Vec::new(), Vec::new());
        for &question in questions {
            match self.matches.get(&QuestionId(question)) {
                Some(found) => matches.extend(found),
                None => unknown.push(question),
            }
        }
        if !unknown.is_empty() {
            for (question, event) in store::events_of(connection, &unknown).await? {
                self.matches.insert(question, event);
                matches.extend(event);
            }
        }
        Ok(matches)
    }
}

type Outcome = Result<Saved, AnswerError>;

/// Answers written in one transaction.
struct Batch {
    /// Time of the batch.
    now: OffsetDateTime,
    questions: HashMap<QuestionId, Current>,
    /// Times of the first answers, and whether they are new.
    saved: HashMap<(UserId, QuestionId), (OffsetDateTime, OffsetDateTime, bool)>,
    /// Answers that cannot be replaced any more.
    full: HashSet<(UserId, QuestionId)>,
    /// Changes of the tally, by choice.
    tally: HashMap<(QuestionId, i64), i64>,
}

impl Batch {
    /// Judges an answer by the state of its question.
    fn judge(&self, entry: &Entry) -> Result<NewAnswer, AnswerError> {
        let current = self.questions.get(&entry.question).ok_or(AnswerError::NoSuchQuestion)?;
        let value = current.shape.value(&entry.answer, &current.teams).ok_or(AnswerError::Invalid)?;
        match current.status {
            Status::Open => Ok(NewAnswer { user: entry.user, question: entry.question, value }),
            closed => Err(AnswerError::Closed(closed)),
        }
    }

    fn count(&mut self, answer: NewAnswer, by: i64) {
        let Some(current) = self.questions.get(&answer.question) else { return };
        for choice in current.shape.choices(answer.value) {
            *self.tally.entry((answer.question, choice)).or_default() += by;
        }
    }

    async fn save(
        &mut self,
        connection: &mut PgConnection,
        shards: &Ranges,
        answers: &[NewAnswer],
    ) -> sqlx::Result<()> {
        let new = answers::insert(connection, answers, self.now).await?;
        let (first, rest): (Vec<NewAnswer>, Vec<NewAnswer>) =
            answers.iter().copied().partition(|answer| new.contains(&answer.key()));
        for answer in first {
            self.saved.insert(answer.key(), (self.now, self.now, true));
            self.count(answer, 1);
        }
        if rest.is_empty() {
            return Ok(());
        }
        let earlier = answers::lock_earlier(connection, shards, &rest).await?;
        let mut replacing = Vec::new();
        for answer in rest {
            let Some((before, revision)) = earlier.get(&answer.key()) else { continue };
            // An unchanged answer makes no new revision.
            if before.value == answer.value {
                self.saved.insert(answer.key(), (before.created_at, before.updated_at, false));
                continue;
            }
            if *revision >= MOST_REVISIONS {
                self.full.insert(answer.key());
                continue;
            }
            self.saved.insert(answer.key(), (before.created_at, self.now, false));
            self.count(NewAnswer { value: before.value, ..answer }, -1);
            self.count(answer, 1);
            replacing.push(answer);
        }
        answers::replace(connection, shards, &replacing, self.now).await
    }

    fn outcome(&self, entry: &Entry) -> Outcome {
        let answer = self.judge(entry)?;
        if self.full.contains(&answer.key()) {
            return Err(AnswerError::TooManyRevisions);
        }
        let current = self.questions.get(&entry.question).ok_or(AnswerError::NoSuchQuestion)?;
        let (created_at, updated_at, is_new) = *self.saved.get(&answer.key()).ok_or(AnswerError::NoSuchQuestion)?;
        Ok(Saved { answer: current.shape.answer(answer.value), created_at, updated_at, is_new })
    }
}

impl Write for Writer {
    type Entry = Entry;
    /// A second answer of a user to a question waits for the next batch, so that every revision is kept and the last one
    /// counts.
    type Key = (UserId, QuestionId);
    type Outcome = Outcome;

    const BATCHES: &'static str = "matchday_answers_batches_total";

    fn key(entry: &Entry) -> Option<Self::Key> {
        Some((entry.user, entry.question))
    }

    /// A second attempt may find answers that the first attempt wrote, and leaves them unchanged.
    async fn write(&self, connection: &mut PgConnection, entries: &[Entry], _: Attempt) -> sqlx::Result<Vec<Outcome>> {
        let questions: HashSet<i64> = entries.iter().map(|entry| entry.question.0).collect();
        let questions: Vec<i64> = questions.into_iter().collect();
        let events = self.matches_of(connection, &questions).await?;
        let mut tx = answers::begin_at_gates(connection, &events, &questions).await?;
        let Some((now, current)) = answers::current(&mut tx, &questions).await? else {
            tx.rollback().await?;
            return Ok(entries.iter().map(|_| Err(AnswerError::NoSuchQuestion)).collect());
        };
        let mut batch =
            Batch { now, questions: current, saved: HashMap::new(), full: HashSet::new(), tally: HashMap::new() };
        let answers: Vec<NewAnswer> = entries.iter().filter_map(|entry| batch.judge(entry).ok()).collect();
        if !answers.is_empty() {
            let shards = self.shards.get(&mut tx).await?;
            batch.save(&mut tx, shards, &answers).await?;
            // Last, because writers of other processes may wait for this writer's slot.
            answers::add_to_tallies(&mut tx, self.slot, &batch.tally).await?;
        }
        tx.commit().await?;
        Ok(entries.iter().map(|entry| batch.outcome(entry)).collect())
    }
}
