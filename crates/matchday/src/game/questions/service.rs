//! Reads questions and saves answers.

use std::sync::Arc;

use platform::{
    Core,
    batches::{BatchError, Batches},
    clock::Clock,
    database,
    reads::Reader,
};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::Notify;
use web::{
    ids::{QuestionId, UserId},
    paging::{Cursor, CursorPaging, Paging, part},
};

pub use super::{
    rules::{Answer, Question, Resolution, Status},
    store::{Filter, Listed, StoredAnswer},
};
use super::{
    settings::Settings,
    store,
    writers::{Entry, Writer},
};

/// Bonus questions. Cheap to clone.
#[derive(Clone)]
pub struct Questions {
    pub(super) db: PgPool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) outbox_written: Arc<Notify>,
    writers: Batches<Writer>,
}

/// A saved answer.
#[derive(Clone, Debug)]
pub struct Saved {
    /// The answer as shown.
    pub answer: Answer,
    /// Time of the user's first answer to the question.
    pub created_at: OffsetDateTime,
    pub updated_at: OffsetDateTime,
    /// Whether this is the user's first answer to the question.
    pub is_new: bool,
}

/// Reason why an answer was not saved.
#[derive(Clone, Debug, thiserror::Error)]
pub enum AnswerError {
    #[error("the question does not exist")]
    NoSuchQuestion,
    #[error("the question does not allow this answer")]
    Invalid,
    /// The question takes no answers.
    #[error("the question is {}", .0.name())]
    Closed(Status),
    /// The answer has [`MOST_REVISIONS`](crate::game::predictions::rules::MOST_REVISIONS) revisions.
    #[error("the answer cannot be replaced any more")]
    TooManyRevisions,
    #[error("the answer queue is full")]
    Overloaded,
    #[error(transparent)]
    Database(Arc<sqlx::Error>),
}

impl From<BatchError> for AnswerError {
    fn from(error: BatchError) -> Self {
        match error {
            BatchError::Overloaded => Self::Overloaded,
            BatchError::Database(error) => Self::Database(error),
        }
    }
}

/// Answers of all users to a question, in pages.
#[derive(Clone, Debug)]
pub struct AnswerPage {
    pub question: Question,
    pub answers: Vec<Listed>,
    pub next: Option<Cursor>,
    /// Number of all answers by choice; `None` for numbers.
    pub distribution: Option<Vec<(String, i64)>>,
}

impl Questions {
    /// Starts the batch writers.
    pub fn new(core: &Core, settings: &Settings) -> Self {
        let writers = Writer::for_users(settings.writers, core);
        let writers = Batches::start(&core.db, &core.shards, core.writer_settings, settings.queue, writers);
        let Core { db, clock, outbox_written, .. } = core.clone();
        Self { db, clock, outbox_written, writers }
    }

    /// Returns a page of questions with the caller's answers, and the number of all.
    pub async fn list(
        &self,
        reader: &Reader,
        user: UserId,
        filter: &Filter,
        paging: Paging,
    ) -> sqlx::Result<(Vec<(Question, Option<StoredAnswer>)>, i64)> {
        let read = async |db: PgPool| {
            let mut connection = db.acquire().await?;
            let now = database::now(&mut *connection).await?;
            let answered =
                if filter.answered.is_some() { store::answered(&mut *connection, user).await? } else { Vec::new() };
            let (questions, total) = store::list(&mut connection, now, filter, &answered, paging).await?;
            let ids: Vec<i64> = questions.iter().map(|question| question.id.0).collect();
            let answers = store::answers_of(&mut *connection, user, &ids).await?;
            Ok((questions, total, answers))
        };
        let (questions, total, answers) = reader.read(read).await?;
        let with_answer = |question: Question| {
            let answer = answers.get(&question.id).copied();
            (question, answer)
        };
        Ok((questions.into_iter().map(with_answer).collect(), total))
    }

    /// Returns a question with the caller's answer; `None` if it does not exist or is not visible yet.
    pub async fn get(&self, user: UserId, id: QuestionId) -> sqlx::Result<Option<(Question, Option<StoredAnswer>)>> {
        let mut connection = self.db.acquire().await?;
        let now = database::now(&mut *connection).await?;
        let Some(question) = store::find(&mut connection, now, id).await? else { return Ok(None) };
        let answer = store::answers_of(&mut *connection, user, &[id.0]).await?.remove(&id);
        Ok(Some((question, answer)))
    }

    /// Saves a user's answer and replaces their earlier one. The batch writer prevents a resolution or a start of the
    /// match from being recorded until it has committed, so no answer is saved after them.
    pub async fn answer(&self, user: UserId, question: QuestionId, answer: Answer) -> Result<Saved, AnswerError> {
        let written = self.writers.write(user.0, Entry { user, question, answer }).await;
        let written = written.unwrap_or_else(|error| Err(error.into()));
        let label = match &written {
            Ok(Saved { is_new: true, .. }) => "new",
            Ok(_) => "replaced",
            Err(
                AnswerError::NoSuchQuestion
                | AnswerError::Invalid
                | AnswerError::Closed(_)
                | AnswerError::TooManyRevisions,
            ) => "refused",
            Err(AnswerError::Overloaded | AnswerError::Database(_)) => "failed",
        };
        metrics::counter!("matchday_answers_total", "outcome" => label).increment(1);
        written
    }

    /// Returns a page of all answers to a question, sorted by user; `None` if the question does not exist. While the
    /// question is open, the page is empty.
    pub async fn answers(
        &self,
        user: UserId,
        id: QuestionId,
        paging: CursorPaging,
    ) -> sqlx::Result<Option<AnswerPage>> {
        let mut connection = self.db.acquire().await?;
        let now = database::now(&mut *connection).await?;
        let Some(question) = store::find(&mut connection, now, id).await? else { return Ok(None) };
        if question.status == Status::Open {
            return Ok(Some(AnswerPage { question, answers: Vec::new(), next: None, distribution: None }));
        }
        let blocked = store::blocked(&mut *connection, user).await?;
        // Reads one row more than the page, to learn whether there is a next page.
        let listed = store::list_answers(&mut *connection, id, &blocked, paging.after, paging.limit + 1).await?;
        let (answers, next) = part(listed, paging.limit, |listed| listed.person.id.0);
        let shown = |listed: Listed| Listed { person: listed.person.shown_to(user), ..listed };
        let answers = answers.into_iter().map(shown).collect();
        let tally = store::tally(&mut *connection, id).await?;
        let named = |(choice, answers)| Some((question.shape.choice_name(choice)?, answers));
        let has_choices = question.shape.kind != super::rules::QuestionKind::Number;
        let distribution = has_choices.then(|| tally.into_iter().filter_map(named).collect());
        Ok(Some(AnswerPage { question, answers, next, distribution }))
    }
}
