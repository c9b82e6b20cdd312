//! Read access to matches, tournaments and sports. Lists are the same for all users and served from a page cache. The
//! [`fixtures`](crate::catalogue::fixtures) module writes the data.

pub mod columns;
pub mod facts;
pub mod gates;
mod handlers;
pub mod partitions;
pub mod results;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use std::{collections::HashMap, sync::Arc};

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};
use web::Shortcut;

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

/// Answers from memory for some of the [`cached_routes`], by path.
pub(crate) fn shortcuts<S: Authenticates>(state: &S) -> HashMap<&'static str, Shortcut>
where
    Arc<Matches>: FromRef<S>,
{
    let state = state.clone();
    let list: Shortcut = Box::new(move |request| handlers::list_events_from_memory(&state, request));
    HashMap::from([("/api/auth/events", list)])
}
