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

use std::sync::Arc;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Events;
use crate::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Arc<Events>: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_event))
        .routes(routes!(handlers::list_tournaments))
        .routes(routes!(handlers::list_sports))
}

pub(crate) fn cached_routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Arc<Events>: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::list_events))
}
