//! Reminders: an hour before a match of theirs begins, fans who have said nothing of it are notified, in their browsers or
//! through the app's own push. Each at most once a match, none in their quiet hours.

mod handlers;
mod hook;
pub mod notifier;
pub mod push;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
pub mod work;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Notifications;
use crate::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Notifications: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_notifications, handlers::save_notifications))
        .routes(routes!(handlers::add_push_subscription))
        .routes(routes!(handlers::remove_push_subscription))
}
