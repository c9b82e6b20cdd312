//! Follows: users follow other users, without their consent. Lists and counts are read when a user asks for them;
//! predictions and results never walk the followers of a user.

mod handlers;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Follows;
use crate::identity::{avatars::AvatarUrls, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    AvatarUrls: FromRef<S>,
    Follows: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_follows))
        .routes(routes!(handlers::list_followers))
        .routes(routes!(handlers::follow_user, handlers::unfollow_user))
}
