//! Logging in: a phone and a code become an account, a session and a chat device. The first login with a phone makes
//! the account.

mod handlers;
pub mod service;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};
use web::WebState;

use self::service::Login;
use crate::codes::service::Codes;

pub(crate) fn routes<S: WebState>() -> OpenApiRouter<S>
where
    Codes: FromRef<S>,
    Login: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::verify_code)).routes(routes!(handlers::log_in))
}
