//! Rule sets: the values by which points are computed. A fixture document creates them, and they never change. A match
//! keeps the rule set that it was created with.

pub mod columns;
mod handlers;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::RuleSetItem;
use self::service::RuleSets;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    RuleSets: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_rule_set))
}
