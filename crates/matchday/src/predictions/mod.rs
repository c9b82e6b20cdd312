//! Predictions: what users say of matches before they start, and what it earns them once they are over.

mod handlers;
mod lanes;
#[cfg(test)]
mod lifecycle;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
mod writers;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(handlers::save_prediction))
        .routes(routes!(handlers::list_event_predictions))
        .routes(routes!(handlers::list_room_predictions))
}
