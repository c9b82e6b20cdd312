//! Users' accounts and devices on the Matrix homeserver. The homeserver provides chat; this module issues its
//! credentials and deletes a user's devices when their sessions end.

mod handlers;
#[cfg(test)]
mod issuer_tests;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
pub mod work;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Chat;
use crate::identity::{accounts::service::Accounts, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Accounts: FromRef<S>,
    Chat: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_matrix_credentials))
        .routes(routes!(handlers::get_client_discovery))
}
