//! Sessions: the tokens that apps carry. A session is issued by a login, slides with use, and ends by logout, by
//! revocation from another session, by age, or because newer ones took its place.

mod handlers;
mod lookups;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(handlers::log_out))
        .routes(routes!(handlers::list_sessions))
        .routes(routes!(handlers::end_session))
}
