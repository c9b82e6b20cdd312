//! Usernames: validation, availability and suggestions. A username is never reassigned, because it also names a chat
//! account.

mod handlers;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
mod words;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};
use web::WebState;

pub use self::rules::Username;
use self::service::Usernames;

pub(crate) fn routes<S: WebState>() -> OpenApiRouter<S>
where
    Usernames: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::check_username)).routes(routes!(handlers::generate_usernames))
}
