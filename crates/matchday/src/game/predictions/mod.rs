//! Predictions: forecasts that users make before a match starts, and the points that they earn after it.

pub mod changes;
mod handlers;
#[cfg(test)]
mod lifecycle;
pub mod receipts;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod writers;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::Distribution;
use self::service::Predictions;
use crate::{
    chat::rooms::service::Rooms,
    identity::{avatars::AvatarUrls, sessions::Authenticates},
};

/// Routes that store idempotency keys with their effect.
pub(crate) fn batched_routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Predictions: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::save_prediction, handlers::list_own_predictions))
}

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    AvatarUrls: FromRef<S>,
    Predictions: FromRef<S>,
    Rooms: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::explain_prediction))
        .routes(routes!(handlers::get_receipt))
        .routes(routes!(handlers::preview_points))
        .routes(routes!(handlers::get_calibration))
        .routes(routes!(handlers::list_event_predictions))
        .routes(routes!(handlers::list_room_predictions))
}
