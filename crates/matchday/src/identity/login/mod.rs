//! Login: exchanges a phone and a code for a session and a chat device. The first login with a phone creates the
//! account.

mod credentials;
mod handlers;
pub mod hooks;
pub mod service;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};
use web::WebState;

pub(crate) use self::credentials::CredentialsItem;
use self::service::Login;
use crate::identity::{avatars::AvatarUrls, codes::service::Codes};

pub(crate) fn routes<S: WebState>() -> OpenApiRouter<S>
where
    AvatarUrls: FromRef<S>,
    Codes: FromRef<S>,
    Login: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::verify_code)).routes(routes!(handlers::log_in))
}
