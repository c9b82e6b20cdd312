//! Phone moves: verifying a user's phone, moving an account to another phone, and undoing a move.
//!
//! A stolen token must not be enough to take over an account. So a move requires a recent proof of the current phone: a
//! session that started less than ten minutes ago, or a code that was just sent to the current phone. The old phone
//! receives a text message with a code that undoes the move for 72 hours. Until then, the account cannot be deleted.

mod handlers;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::PhoneMoves;
use crate::identity::{codes::service::Codes, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Codes: FromRef<S>,
    PhoneMoves: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::initiate_verification))
        .routes(routes!(handlers::verify_phone))
        .routes(routes!(handlers::undo_phone_move))
}
