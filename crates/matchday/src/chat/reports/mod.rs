//! Reports of messages: users report a message and read the answer; operators claim and close reports in a queue.
//!
//! A claim keeps two operators from handling the same report. It expires, so that an operator who leaves blocks no
//! report. The messages around a reported one are read from the homeserver when an operator opens the report, and are
//! never stored.

mod handlers;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Reports;
use crate::{chat::rooms::service::Rooms, identity::sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Rooms: FromRef<S>,
    Reports: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::report_message)).routes(routes!(handlers::list_own_reports))
}
