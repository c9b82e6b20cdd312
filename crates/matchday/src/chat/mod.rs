//! Chat: the accounts and devices that users have on the Matrix homeserver. Chat itself is the homeserver's; here is
//! only how people get in, and that their devices end with their sessions.

mod handlers;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
pub mod work;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::CredentialsItem;
use self::service::Chat;
use crate::{accounts::service::Accounts, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Accounts: FromRef<S>,
    Chat: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_matrix_credentials))
        .routes(routes!(handlers::get_client_discovery))
}
