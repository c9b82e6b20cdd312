//! Sealed predictions: when a match closes, a worker publishes one hash over all predictions that count. Users can prove
//! afterwards that their prediction was among them, and anyone can check that no seal was changed. See docs/seals.md.

pub mod bundle;
mod handlers;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
pub mod timestamps;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Seals;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Seals: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_proof)).routes(routes!(handlers::get_seal))
}

/// Routes of cached pages, which are served without further compression.
pub(crate) fn cached_routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Seals: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::list_seals))
}
