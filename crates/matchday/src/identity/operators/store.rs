//! SQL queries for the audit log.

use serde_json::Value;
use sqlx::PgExecutor;
use time::OffsetDateTime;

use super::{
    Operator,
    service::{Action, Outcome},
};

/// An entry of the audit log.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub id: i64,
    pub operator: String,
    /// Name of the action, for example `user.ban`.
    pub action: String,
    /// Object of the action, for example `user:12`.
    pub target: String,
    pub reason: String,
    /// Parameters and result of the action.
    pub details: Value,
    /// One of `done`, `begun` or `failed`.
    pub outcome: String,
    /// Id of the console's request; `None` on the command line.
    pub request_id: Option<String>,
    pub created_at: OffsetDateTime,
}

/// Selects entries of the audit log. An absent field matches all entries.
#[derive(Clone, Debug, Default)]
pub struct ActionFilter {
    pub operator: Option<String>,
    pub target: Option<String>,
    /// Only entries older than this id.
    pub before: Option<i64>,
}

pub(super) async fn insert(
    executor: impl PgExecutor<'_>,
    operator: &Operator,
    action: &Action,
    outcome: Outcome,
    begun: Option<i64>,
    request_id: Option<&str>,
    now: OffsetDateTime,
) -> sqlx::Result<i64> {
    sqlx::query_scalar!(
        "insert into operator_actions (begun_id, operator, action, target, reason, details, outcome, request_id, created_at)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9) returning id",
        begun,
        operator.name,
        action.action,
        action.target,
        operator.reason,
        action.details,
        outcome.name(),
        request_id,
        now,
    )
    .fetch_one(executor)
    .await
}

pub(super) async fn recorded(
    executor: impl PgExecutor<'_>,
    filter: &ActionFilter,
    most: i64,
) -> sqlx::Result<Vec<Recorded>> {
    sqlx::query_as!(
        Recorded,
        "select id, operator, action, target, reason, details, outcome, request_id, created_at
         from operator_actions a
         where ($1::text is null or operator = $1) and ($2::text is null or target = $2)
           and ($3::bigint is null or id < $3)
           and not (outcome = 'begun' and exists (select 1 from operator_actions e where e.begun_id = a.id))
         order by id desc limit $4",
        filter.operator,
        filter.target,
        filter.before,
        most,
    )
    .fetch_all(executor)
    .await
}
