//! Moderation of a room by its creator and moderators: who moderates it, slow mode, and mutes that end.

mod handlers;
pub mod rules;
pub mod service;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::RoomModeration;
use crate::{chat::rooms::service::Rooms, identity::sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Rooms: FromRef<S>,
    RoomModeration: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_moderators))
        .routes(routes!(handlers::appoint_moderator, handlers::dismiss_moderator))
        .routes(routes!(handlers::set_slow_mode))
        .routes(routes!(handlers::mute_member, handlers::unmute_member))
}
