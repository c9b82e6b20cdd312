//! Moderation: operators ban and mute users; users block each other and report messages.

mod handlers;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Moderation;
use crate::{chat::rooms::service::Rooms, identity::sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Rooms: FromRef<S>,
    Moderation: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_blocks))
        .routes(routes!(handlers::block_user, handlers::unblock_user))
        .routes(routes!(handlers::report_message))
}
