//! Matches, their tournaments and sports, as everybody reads them. Lists are the same for all and served from a cache
//! of pages; writing is the business of [`fixtures`](crate::fixtures).

pub mod facts;
pub mod gates;
mod handlers;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(handlers::get_event))
        .routes(routes!(handlers::list_tournaments))
        .routes(routes!(handlers::list_sports))
}

pub(crate) fn cached_routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(handlers::list_events))
}
