//! Logging in: a phone and a code become an account, a session and a chat device. The first login with a phone makes
//! the account.

mod handlers;
pub mod service;
#[cfg(test)]
mod tests;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(handlers::verify_code)).routes(routes!(handlers::log_in))
}
