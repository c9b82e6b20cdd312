//! Notifications on phones and in browsers, and reminders.
//!
//! Devices (`devices/`) get every kind of notification (`kinds.rs`) in their language. `alerts.rs` finds the users to
//! notify, and `sending.rs` sends to their devices.
//!
//! Reminders: one hour before a match of their team, fans who have not predicted it are notified in their browsers or
//! through the app's own push hook. A fan gets at most one reminder for each match, and none in their quiet hours. After a
//! round, members of leagues who lost places by it are notified in the same way.

#[cfg(test)]
mod alert_tests;
pub mod alerts;
mod batches;
mod current;
pub mod devices;
mod handlers;
mod hook;
pub mod kinds;
pub mod notifier;
pub mod places_lost;
pub mod push;
pub mod rules;
mod sending;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
pub mod work;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Notifications;
use crate::identity::sessions::Authenticates;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Notifications: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_notifications, handlers::save_notifications))
        .routes(routes!(handlers::add_push_subscription))
        .routes(routes!(handlers::remove_push_subscription))
        .routes(routes!(devices::handlers::list_devices))
        .routes(routes!(
            devices::handlers::get_device,
            devices::handlers::save_device,
            devices::handlers::remove_device
        ))
}
