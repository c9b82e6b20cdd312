//! Accounts: who a person is to the service. One is made by the first login with a phone; a username that the service
//! made up can be replaced once.

mod handlers;
mod rules;
pub mod service;
pub(crate) mod store;
#[cfg(test)]
mod tests;

pub use self::rules::PersonName;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::UserItem;
use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(handlers::get_me)).routes(routes!(handlers::update_user_info))
}
