//! Login codes: six digits sent to a phone to prove its ownership.
//!
//! Two attacks target this module: SMS pumping, in which a fraudster earns a share of each message we pay for, and
//! guessing codes to take over accounts. All limits on the cost of a code and on the number of guesses are therefore
//! enforced here and nowhere else.

mod handlers;
mod limits;
mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::PhoneBody;
pub use self::rules::{Code, CodeId, Subject};
use self::service::Codes;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Codes: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::request_code)).routes(routes!(handlers::resend_code))
}
