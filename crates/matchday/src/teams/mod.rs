//! Teams, and which of them a user calls their own: one primary team and up to five others.

mod handlers;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::FavouriteItem;
use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new()
        .routes(routes!(handlers::list_teams))
        .routes(routes!(handlers::save_primary_team))
        .routes(routes!(handlers::save_other_teams))
}
