//! Codes: six digits, sent to a phone, that prove whose it is. This is where a service like ours loses money to those
//! who are paid for messages, and accounts to those who guess; so what a code may cost and how often it may be tried is
//! decided here and nowhere else.

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
pub use self::rules::{Code, Subject};
use self::service::Codes;
use crate::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Codes: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::request_code)).routes(routes!(handlers::resend_code))
}
