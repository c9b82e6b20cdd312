//! Matches, their tournaments and sports, as everybody reads them. Lists are the same for all and served from a cache
//! of pages; writing is the business of [`fixtures`](crate::catalogue::fixtures).

pub mod facts;
pub mod gates;
mod handlers;
pub mod results;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use std::sync::Arc;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Matches;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Arc<Matches>: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_event))
        .routes(routes!(handlers::list_tournaments))
        .routes(routes!(handlers::list_sports))
}

pub(crate) fn cached_routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Arc<Matches>: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::list_events))
}
