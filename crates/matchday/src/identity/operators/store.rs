//! The SQL of the record.

use serde_json::Value;
use sqlx::PgExecutor;
use time::OffsetDateTime;

use super::{
    Operator,
    service::{Deed, Outcome},
};

/// What an operator did.
#[derive(Clone, Debug)]
pub struct Recorded {
    /// Which.
    pub id: i64,
    /// Who.
    pub operator: String,
    /// As in `user.ban`.
    pub action: String,
    /// As in `user:12`.
    pub target: String,
    /// Why.
    pub reason: String,
    /// What exactly.
    pub details: Value,
    /// `done`, `begun` or `failed`.
    pub outcome: String,
    /// The console's request; none on the command line.
    pub request_id: Option<String>,
    /// When.
    pub created_at: OffsetDateTime,
}

/// Which of it is wanted.
#[derive(Clone, Debug, Default)]
pub struct ActionFilter {
    /// By this operator.
    pub operator: Option<String>,
    /// Done to this.
    pub target: Option<String>,
    /// Older than this one.
    pub before: Option<i64>,
}

pub(super) async fn insert(
    executor: impl PgExecutor<'_>,
    operator: &Operator,
    deed: &Deed,
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
        deed.action,
        deed.target,
        operator.reason,
        deed.details,
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
           and not (outcome = 'begun' and exists (select from operator_actions e where e.begun_id = a.id))
         order by id desc limit $4",
        filter.operator,
        filter.target,
        filter.before,
        most,
    )
    .fetch_all(executor)
    .await
}
