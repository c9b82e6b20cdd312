//! Coins: a ledger of every movement into and out of wallets, the daily bonus, payouts for points, and the operator
//! commands for grants and reversals.

pub mod audit;
mod handlers;
pub mod ledger;
pub mod payouts;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod writers;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::{DeductionBody, HistoryMeta, TransactionItem};
use self::service::Coins;
use crate::identity::sessions::Authenticates;

/// Routes that store idempotency keys with their effect.
pub(crate) fn batched_routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Coins: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::deduct_coins))
}

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Coins: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::claim_daily_coins)).routes(routes!(handlers::get_coins))
}
