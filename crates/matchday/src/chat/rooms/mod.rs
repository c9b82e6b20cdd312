//! Chat rooms: one for every match, with additional stands when it is full, and rooms that fans create. The service's
//! bot creates them on the homeserver; this module decides who may see and join them.

mod census;
pub mod group_rooms;
mod handlers;
mod joining;
#[cfg(test)]
mod large_room_tests;
mod line;
pub mod making;
mod rules;
mod seats;
mod sending;
#[cfg(test)]
mod sending_tests;
pub mod service;
pub mod settings;
mod stands;
pub mod statistics;
mod store;
#[cfg(test)]
mod tests;
mod work;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::{ReadableRoom, RoomPath};
pub use self::rules::RoomAddress;
use self::service::Rooms;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Rooms: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::create_room))
        .routes(routes!(handlers::list_rooms))
        .routes(routes!(handlers::leave_room))
        .routes(routes!(handlers::invite_to_room))
        .routes(routes!(handlers::get_member_stats))
}

/// Routes that have the same effect if a request is processed twice: a user joins once, and the homeserver sends a message
/// with the same key once. In a crowd, most of these requests are refused for now, and must cost little.
pub(crate) fn repeatable_routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Rooms: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::join_room)).routes(routes!(handlers::send_message))
}
