//! Phone moves: proving that a phone is the user's, moving an account to another one, and undoing a move.
//!
//! A token alone must not be enough to take an account over. So a move needs a recent proof of the current phone: a
//! session that began less than ten minutes ago, or a code that was just sent to the current phone. The phone that the
//! account left gets a text with a code that undoes the move for 72 hours, and the account cannot be deleted until then.

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
