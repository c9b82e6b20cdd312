//! Resetting the cross-signing keys of a chat account, for users who lost their recovery key.
//!
//! The homeserver lets users replace their keys only after an authentication that users without a password cannot provide.
//! This service relays the upload instead, because the homeserver trusts an application service. A stolen token must not
//! be enough to impersonate a user in encrypted rooms, so a reset requires a code that was sent to the account's phone for
//! this purpose.

mod handlers;
mod rules;
pub mod service;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::ChatKeys;
use crate::identity::{codes::service::Codes, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    ChatKeys: FromRef<S>,
    Codes: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::initiate_key_reset)).routes(routes!(handlers::reset_matrix_keys))
}
