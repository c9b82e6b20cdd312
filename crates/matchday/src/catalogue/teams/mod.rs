//! Teams and each user's favourites: one primary team and up to five others.

mod handlers;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::FavouriteItem;
use self::service::Teams;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Teams: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_teams))
        .routes(routes!(handlers::save_primary_team))
        .routes(routes!(handlers::save_other_teams))
}
