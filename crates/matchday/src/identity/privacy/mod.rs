//! Privacy settings: which parts of a profile other users see.

mod handlers;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::PrivacySettings;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    PrivacySettings: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_privacy, handlers::change_privacy))
}
