//! Account deletion and data export.
//!
//! A deletion has two steps:
//!
//! 1. The request deletes all personal data from the database and ends the sessions. Predictions and coins stay under
//!    the user id, which no longer identifies a person.
//! 2. About a minute later, when the user's running requests have ended, a worker redacts the user's chat messages and
//!    deactivates the chat account.

mod handlers;
pub mod hooks;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::AccountDeletion;
use crate::identity::{codes::service::Codes, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Codes: FromRef<S>,
    AccountDeletion: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::export_me))
        .routes(routes!(handlers::request_deletion))
        .routes(routes!(handlers::delete_me))
}
