//! Writes and reads the audit log.

use std::{fmt::Display, sync::Arc};

use platform::{Core, clock::Clock, telemetry::CURRENT_REQUEST};
use serde_json::{Value, json};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;

pub use super::store::{ActionFilter, Recorded};
use super::{Operator, store};

/// Audit log of operator actions.
#[derive(Clone)]
pub struct Operators {
    db: PgPool,
    clock: Arc<dyn Clock>,
}

/// An operator action to record.
#[derive(Clone, Debug)]
pub struct Action {
    /// Name of the action, for example `user.ban`.
    pub action: &'static str,
    /// Object of the action, for example `user:12`.
    pub target: String,
    /// Parameters of the action. Must not contain personal data.
    pub details: Value,
}

impl Action {
    /// Creates an action without details.
    pub fn new(action: &'static str, target: impl Into<String>) -> Self {
        Self { action, target: target.into(), details: json!({}) }
    }

    #[must_use]
    pub fn with(mut self, details: Value) -> Self {
        self.details = details;
        self
    }
}

/// State of a recorded action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    Done,
    /// The action was about to start. Without a later entry, it is unknown whether it completed.
    Begun,
    /// The action failed, or was only partly completed.
    Failed,
}

impl Outcome {
    /// Value of the `outcome` column.
    pub fn name(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Begun => "begun",
            Self::Failed => "failed",
        }
    }
}

/// Records an action in the caller's transaction, which also makes the change.
pub async fn record(
    connection: &mut PgConnection,
    operator: &Operator,
    action: &Action,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let request = request_id();
    store::insert(connection, operator, action, Outcome::Done, None, request.as_deref(), now).await?;
    tracing::info!(
        operator = operator.name,
        action = action.action,
        target = action.target,
        "operator action recorded"
    );
    Ok(())
}

/// An action of a batch, which another task than that of its request records.
#[derive(Clone, Debug)]
pub struct CompletedAction {
    pub operator: Operator,
    pub action: Action,
    pub request_id: Option<String>,
}

/// Records the actions of a batch in the caller's transaction, which also makes the changes. They are not logged: a batch
/// may contain hundreds.
pub(crate) async fn record_all(
    connection: &mut PgConnection,
    actions: &[CompletedAction],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    if actions.is_empty() { Ok(()) } else { store::insert_all(connection, actions, now).await }
}

/// Id of the current HTTP request; `None` on the command line.
pub(crate) fn request_id() -> Option<String> {
    CURRENT_REQUEST.try_with(|current| current.id.as_str().to_owned()).ok()
}

impl Operators {
    pub fn new(core: &Core) -> Self {
        Self { db: core.db.clone(), clock: core.clock.clone() }
    }

    /// Runs an action that is not a single transaction, with one log entry before it and one after it. If the first
    /// entry cannot be written, the action does not run. If only the first entry exists, the action may or may not have
    /// completed. `details` describes the result for the second entry.
    pub async fn record_around<T, E: Display + From<sqlx::Error>>(
        &self,
        operator: &Operator,
        action: Action,
        work: impl Future<Output = Result<T, E>>,
        details: impl FnOnce(&T) -> Value,
    ) -> Result<T, E> {
        let (request, now) = (request_id(), self.clock.now());
        let begun = store::insert(&self.db, operator, &action, Outcome::Begun, None, request.as_deref(), now).await?;
        let outcome = work.await;
        let (ending, details) = match &outcome {
            Ok(done) => (Outcome::Done, details(done)),
            Err(error) => (Outcome::Failed, json!({"error": error.to_string()})),
        };
        let ended = Action { details: merged(action.details, details), ..action };
        let now = self.clock.now();
        let ended = store::insert(&self.db, operator, &ended, ending, Some(begun), request.as_deref(), now).await;
        // The action succeeded and its start is recorded, so returning an error would be misleading.
        if let Err(error) = ended {
            tracing::error!(%error, begun, "outcome of an operator action was not recorded");
        }
        outcome
    }

    /// Returns recorded actions, newest first. The start entry of a finished action is left out.
    pub async fn recorded(&self, filter: &ActionFilter, most: i64) -> sqlx::Result<Vec<Recorded>> {
        // The index on operators also finds the actions of a key.
        let operator = filter.operator.clone().or_else(|| filter.key.map(|key| format!("key:{key}")));
        store::recorded(&self.db, &ActionFilter { operator, ..filter.clone() }, most).await
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
