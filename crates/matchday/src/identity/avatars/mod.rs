//! Avatars of users: upload, reading without a token, removal, and their URLs. The crate `avatars` converts the images;
//! an object store keeps them.

mod handlers;
mod objects;
mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod urls;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Avatars;
pub use self::{
    rules::Size,
    urls::{AvatarKey, AvatarUrls},
};
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Avatars: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::save_avatar, handlers::delete_avatar))
}

/// Routes without compression, because JPEGs are compressed already.
pub(crate) fn image_routes<S: Clone + Send + Sync + 'static>() -> OpenApiRouter<S>
where
    Avatars: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_avatar))
}
