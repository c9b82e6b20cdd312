//! Chat: the accounts and devices that users have on the Matrix homeserver. Chat itself is the homeserver's; here is
//! only how people get in, and that their devices end with their sessions.

mod handlers;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
pub mod work;

use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::CredentialsItem;
use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(handlers::get_matrix_credentials))
        .routes(routes!(handlers::get_client_discovery))
}
