//! Usernames: what one looks like, which are free, and suggestions that a person would like. A username is for ever:
//! it is also the name of a chat account, and nobody else is ever given it again.

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
