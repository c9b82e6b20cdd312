//! Moderation: operators ban and mute users; users block each other. The contact for complaints
//! is public.

mod handlers;
pub mod hooks;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Moderation;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Moderation: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_contact))
        .routes(routes!(handlers::list_blocks))
        .routes(routes!(handlers::block_user, handlers::unblock_user))
}
