//! SQL queries for the audit log.

use serde_json::Value;
use sqlx::PgExecutor;
use time::OffsetDateTime;
use web::ids::ServerKeyId;

use super::{
    Operator,
    service::{Action, CompletedAction, Outcome},
};

/// An entry of the audit log.
#[derive(Clone, Debug)]
pub struct Recorded {
    pub id: i64,
    /// Name of the operator, or `key:` with the id of a server key.
    pub operator: String,
    /// Server key of a backend, and the scope that allowed the action; `None` for operators.
    pub key_id: Option<ServerKeyId>,
    pub scope: Option<String>,
    /// Name of the action, for example `user.ban`.
    pub action: String,
    /// Object of the action, for example `user:12`.
    pub target: String,
    pub reason: String,
    /// Parameters and result of the action.
    pub details: Value,
    /// One of `done`, `begun` or `failed`.
    pub outcome: String,
    /// Id of the request to the console or the server API; `None` on the command line.
    pub request_id: Option<String>,
    pub created_at: OffsetDateTime,
}

/// Selects entries of the audit log. An absent field matches all entries.
#[derive(Clone, Debug, Default)]
pub struct ActionFilter {
    pub operator: Option<String>,
    pub target: Option<String>,
    pub key: Option<ServerKeyId>,
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
        "insert into operator_actions
             (begun_id, operator, action, target, reason, details, outcome, request_id, created_at, key_id, scope)
         values ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11) returning id",
        begun,
        operator.name,
        action.action,
        action.target,
        operator.reason,
        action.details,
        outcome.name(),
        request_id,
        now,
        operator.key.map(|key| key.id.0),
        operator.key.map(|key| key.scope),
    )
    .fetch_one(executor)
    .await
}

/// Inserts completed actions in their order.
pub(super) async fn insert_all(
    executor: impl PgExecutor<'_>,
    actions: &[CompletedAction],
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let operators: Vec<&str> = actions.iter().map(|done| done.operator.name.as_str()).collect();
    let names: Vec<&str> = actions.iter().map(|done| done.action.action).collect();
    let targets: Vec<&str> = actions.iter().map(|done| done.action.target.as_str()).collect();
    let reasons: Vec<&str> = actions.iter().map(|done| done.operator.reason.as_str()).collect();
    let details: Vec<&Value> = actions.iter().map(|done| &done.action.details).collect();
    let requests: Vec<Option<&str>> = actions.iter().map(|done| done.request_id.as_deref()).collect();
    let keys: Vec<Option<i64>> = actions.iter().map(|done| done.operator.key.map(|key| key.id.0)).collect();
    let scopes: Vec<Option<&str>> = actions.iter().map(|done| done.operator.key.map(|key| key.scope)).collect();
    sqlx::query!(
        "insert into operator_actions
             (operator, action, target, reason, details, outcome, request_id, created_at, key_id, scope)
         select operator, action, target, reason, details, 'done', request_id, $9, key_id, scope
         from unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::jsonb[], $6::text[], $7::bigint[], $8::text[])
           as n (operator, action, target, reason, details, request_id, key_id, scope)",
        &operators as &[&str],
        &names as &[&str],
        &targets as &[&str],
        &reasons as &[&str],
        &details as &[&Value],
        &requests as &[Option<&str>],
        &keys as &[Option<i64>],
        &scopes as &[Option<&str>],
        now,
    )
    .execute(executor)
    .await?;
    Ok(())
}

pub(super) async fn recorded(
    executor: impl PgExecutor<'_>,
    filter: &ActionFilter,
    most: i64,
) -> sqlx::Result<Vec<Recorded>> {
    sqlx::query_as!(
        Recorded,
        r#"select id, operator, key_id as "key_id: ServerKeyId", scope, action, target, reason, details, outcome,
                  request_id, created_at
           from operator_actions a
           where ($1::text is null or operator = $1) and ($2::text is null or target = $2)
             and ($3::bigint is null or id < $3) and ($5::bigint is null or key_id = $5)
             and not (outcome = 'begun' and exists (select 1 from operator_actions e where e.begun_id = a.id))
           order by id desc limit $4"#,
        filter.operator,
        filter.target,
        filter.before,
        most,
        filter.key.map(|key| key.0),
    )
    .fetch_all(executor)
    .await
}
