//! Keeping the record.

use std::{fmt::Display, sync::Arc};

use platform::{Core, clock::Clock, telemetry::CURRENT_REQUEST};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;

pub use super::store::{ActionFilter, Recorded};
use super::{Operator, store};

/// The record of what operators did.
#[derive(Clone)]
pub struct Operators {
    db: PgPool,
    clock: Arc<dyn Clock>,
}

/// What is done.
#[derive(Clone, Debug)]
pub struct Deed {
    /// As in `user.ban`.
    pub action: &'static str,
    /// To what, as in `user:12`.
    pub target: String,
    /// What exactly, where the action alone does not tell. Nothing of a person.
    pub details: Value,
}

impl Deed {
    /// A deed that its action and its target tell all of.
    pub fn new(action: &'static str, target: impl Into<String>) -> Self {
        Self { action, target: target.into(), details: json!({}) }
    }

    /// The same, with more to tell.
    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}

/// How something stands that was recorded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// It was done.
    Done,
    /// It was about to be done.
    Begun,
    /// It was not done, or not all of it.
    Failed,
}

impl Outcome {
    /// As it is stored.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Begun => "begun",
            Self::Failed => "failed",
        }
    }
}

/// Records in the caller's transaction that something is done by it.
pub async fn record(
    connection: &mut PgConnection,
    operator: &Operator,
    deed: &Deed,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let request = request_id();
    store::insert(connection, operator, deed, Outcome::Done, None, request.as_deref(), now).await?;
    tracing::info!(operator = operator.name, action = deed.action, target = deed.target, "an operator did something");
    Ok(())
}

/// The request that is being answered; none on the command line.
fn request_id() -> Option<String> {
    CURRENT_REQUEST.try_with(|current| current.id.as_str().to_owned()).ok()
}

impl Operators {
    /// The record in this database.
    pub fn new(core: &Core) -> Self {
        Self { db: core.db.clone(), clock: core.clock.clone() }
    }

    /// Does something that is no transaction, with a record before it and one of how it ended. What cannot be recorded is not
    /// begun; a record of which only the beginning is there may have been done or not. `tell` says what came of it.
    pub async fn witness<T, E: Display + From<sqlx::Error>>(
        &self,
        operator: &Operator,
        deed: Deed,
        work: impl Future<Output = Result<T, E>>,
        tell: impl FnOnce(&T) -> Value,
    ) -> Result<T, E> {
        let (request, now) = (request_id(), self.clock.now());
        let begun = store::insert(&self.db, operator, &deed, Outcome::Begun, None, request.as_deref(), now).await?;
        let outcome = work.await;
        let (ending, details) = match &outcome {
            Ok(done) => (Outcome::Done, tell(done)),
            Err(error) => (Outcome::Failed, json!({"error": error.to_string()})),
        };
        let ended = Deed { details: merged(deed.details, details), ..deed };
        let now = self.clock.now();
        let ended = store::insert(&self.db, operator, &ended, ending, Some(begun), request.as_deref(), now).await;
        // It was done, and that it was begun is recorded: saying that it failed would be worse.
        if let Err(error) = ended {
            tracing::error!(%error, begun, "how something ended that an operator did was not recorded");
        }
        outcome
    }

    /// What was done, the newest first. Where a deed has ended, its beginning is left out.
    pub async fn recorded(&self, filter: &ActionFilter, most: i64) -> sqlx::Result<Vec<Recorded>> {
        store::recorded(&self.db, filter, most).await
    }
}

fn merged(before: Value, more: Value) -> Value {
    match (before, more) {
        (Value::Object(mut before), Value::Object(more)) => {
            before.extend(more);
            Value::Object(before)
        }
        (before, _) => before,
    }
}
