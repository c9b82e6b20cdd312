//! Safety: operators ban and mute users, users block each other and report what was said to them.

mod handlers;
pub mod phones;
pub mod rules;
pub mod service;
pub(crate) mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Safety;
use crate::{rooms::service::Rooms, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Rooms: FromRef<S>,
    Safety: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_blocks))
        .routes(routes!(handlers::block_user, handlers::unblock_user))
        .routes(routes!(handlers::report_message))
}
