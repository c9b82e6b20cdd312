//! Account deletion and data export.
//!
//! Deleting happens in two steps. At once everything that says who the person is goes from the database, with the sessions:
//! predictions and coins stay, as those of a number that nobody is behind. A little later, when what was under way has
//! ended, a worker takes back what the person said in chat and ends the chat account.

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
