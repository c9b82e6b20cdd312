//! What operators do with questions outside of fixture documents: list, add, resolve and annul them.

use platform::database;
use serde_json::json;
use time::OffsetDateTime;
use web::ids::{QuestionId, TournamentId};

use super::{
    import,
    rules::QuestionKind,
    service::Questions,
    store::{
        self,
        definitions::{self, QuestionForOperator},
    },
};
pub use super::{
    rules::{Choice, Resolution, Shape, Status},
    store::definitions::QuestionSummary,
};
use crate::{
    catalogue::fixtures::{
        document::{Fault, QuestionEntry},
        hooks::QuestionError,
    },
    identity::operators::{self, Operator, service::Action},
};

/// What an operator decides about a question.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Decision {
    /// These answers are right.
    Resolve(Resolution),
    /// The question is not resolved, and not void.
    TakeBack,
    /// Nobody gets points.
    Void,
}

impl Decision {
    fn name(&self) -> &'static str {
        match self {
            Self::Resolve(_) => "question.resolve",
            Self::TakeBack => "question.take_back",
            Self::Void => "question.void",
        }
    }
}

/// A question as operators see it.
#[derive(Clone, Debug)]
pub struct QuestionDetails {
    pub id: QuestionId,
    pub key: String,
    pub tournament: String,
    pub text: String,
    pub shape: Shape,
    pub is_nearest: bool,
    pub points: i32,
    pub round: Option<i16>,
    pub event_id: Option<web::ids::MatchId>,
    pub opens_at: Option<OffsetDateTime>,
    pub locks_at: OffsetDateTime,
    pub status: Status,
    pub resolution: Option<Resolution>,
    /// Changes with every decision.
    pub revision: i64,
    /// Teams that can be answered, for a question for a team.
    pub teams: Vec<(i64, String)>,
    /// Number of answers by choice: numbers of options, ids of teams, or 0.
    pub tally: Vec<(i64, i64)>,
}

/// Error from an action of an operator. Nothing was written.
#[derive(Debug, thiserror::Error)]
pub enum DecisionError {
    #[error("the question does not exist")]
    NoSuchQuestion,
    /// The question changed after the operator saw it.
    #[error("the question has changed since it was shown")]
    Changed,
    #[error("the question already has this resolution")]
    Same,
    #[error("choose right answers that the question allows")]
    NotAllowed,
    #[error("the question is invalid")]
    Invalid(Vec<Fault>),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Other(crate::catalogue::fixtures::hooks::HookError),
}

impl From<QuestionError> for DecisionError {
    fn from(error: QuestionError) -> Self {
        match error {
            QuestionError::Conflict(faults) => Self::Invalid(faults),
            QuestionError::Other(error) => Self::Other(error),
        }
    }
}

impl Questions {
    /// Lists all questions, unresolved questions first.
    pub async fn summaries(&self, offset: i64, limit: i64) -> sqlx::Result<Vec<QuestionSummary>> {
        let mut connection = self.db.acquire().await?;
        let now = database::now(&mut *connection).await?;
        definitions::summaries(&mut *connection, now, offset, limit).await
    }

    /// Returns a question with its tally.
    pub async fn details(&self, id: QuestionId) -> sqlx::Result<Option<QuestionDetails>> {
        let mut connection = self.db.acquire().await?;
        let now = database::now(&mut *connection).await?;
        let Some(found) = definitions::for_operator(&mut connection, now, id).await? else { return Ok(None) };
        let definition = found.stored.definition;
        let teams = if definition.shape.kind == QuestionKind::Team {
            definitions::teams(&mut *connection, found.tournament, definition.event).await?
        } else {
            Vec::new()
        };
        Ok(Some(QuestionDetails {
            id,
            key: found.key,
            tournament: found.tournament_name,
            resolution: definition.resolution.as_deref().map(|values| definition.shape.resolution(values)),
            text: definition.text,
            shape: definition.shape,
            is_nearest: definition.scoring == Some(super::rules::NumberScoring::Nearest),
            points: definition.points,
            round: found.round,
            event_id: definition.event,
            opens_at: definition.opens_at,
            locks_at: found.locks_at,
            status: found.status,
            revision: found.revision,
            teams,
            tally: store::tally(&mut *connection, id).await?,
        }))
    }

    /// Adds a question to a tournament.
    pub async fn add(
        &self,
        operator: &Operator,
        tournament: TournamentId,
        entry: &QuestionEntry,
    ) -> Result<QuestionId, DecisionError> {
        let mut tx = database::begin(&self.db).await?;
        definitions::lock_imports(&mut tx).await?;
        let id = import::add(&mut tx, tournament, entry).await?;
        let action = Action::new("question.add", format!("question:{id}")).with(json!({"text": entry.text}));
        operators::service::record(&mut tx, operator, &action, self.clock.now()).await?;
        tx.commit().await?;
        Ok(id)
    }

    /// Resolves a question, corrects or takes back its resolution, or annuls it. `seen` is the revision that the operator
    /// saw.
    pub async fn decide(
        &self,
        operator: &Operator,
        id: QuestionId,
        seen: i64,
        decision: &Decision,
    ) -> Result<(), DecisionError> {
        let mut tx = database::begin(&self.db).await?;
        definitions::lock_imports(&mut tx).await?;
        let now = database::now(&mut *tx).await?;
        let found = definitions::for_operator(&mut tx, now, id).await?.ok_or(DecisionError::NoSuchQuestion)?;
        if found.revision != seen {
            return Err(DecisionError::Changed);
        }
        let (resolution, is_void) = match decision {
            Decision::Resolve(right) => (Some(values(&mut tx, &found, right).await?), false),
            Decision::TakeBack => (None, false),
            Decision::Void => (None, true),
        };
        let definition = &found.stored.definition;
        if (&definition.resolution, definition.is_void) == (&resolution, is_void) {
            return Err(DecisionError::Same);
        }
        import::settle(&mut tx, &found, resolution, is_void).await?;
        let details = match decision {
            Decision::Resolve(right) => json!({"resolution": right}),
            _ => json!({}),
        };
        let action = Action::new(decision.name(), format!("question:{id}")).with(details);
        operators::service::record(&mut tx, operator, &action, self.clock.now()).await?;
        tx.commit().await?;
        self.outbox_written.notify_one();
        Ok(())
    }
}

/// Returns right answers as stored.
async fn values(
    connection: &mut sqlx::PgConnection,
    found: &QuestionForOperator,
    right: &Resolution,
) -> Result<Vec<i64>, DecisionError> {
    let definition = &found.stored.definition;
    let shape = &definition.shape;
    let values = match (shape.kind, right) {
        (QuestionKind::Choice | QuestionKind::SeveralOf, Resolution::Keys(keys)) => {
            let is_known = |key: &String| shape.options.iter().any(|option| option.key == *key);
            let bits = shape.options.iter().filter(|option| keys.contains(&option.key)).map(Choice::bit);
            (!keys.is_empty() && keys.iter().all(is_known)).then(|| vec![bits.sum()])
        }
        (QuestionKind::Team, Resolution::Teams(ids)) => {
            let teams = definitions::teams(connection, found.tournament, definition.event).await?;
            let is_known = |id: &i64| teams.iter().any(|(team, _)| team == id);
            let mut ids = ids.clone();
            ids.sort_unstable();
            ids.dedup();
            (!ids.is_empty() && ids.iter().all(is_known)).then_some(ids)
        }
        (QuestionKind::Number, Resolution::Number(number)) if *number >= 0 => Some(vec![*number]),
        _ => None,
    };
    values.ok_or(DecisionError::NotAllowed)
}
