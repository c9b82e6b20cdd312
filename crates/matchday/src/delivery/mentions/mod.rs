//! Mentions: a message that highlights a user notifies their devices.
//!
//! The service sets a pusher on the homeserver for each user who has a device and wants this kind of notification. The
//! homeserver then reports events to the private listener (Push Gateway API). Its requests carry no token, so the key of
//! the pusher, which only the service, the homeserver and the user know, authenticates them.

mod handlers;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
pub mod work;

use axum::{Router, routing::post};
use web::WebState;

use self::service::Mentions;

/// Endpoint for the homeserver, on the listener that is not reachable from the internet.
pub(crate) fn private_routes<S: WebState>(mentions: Mentions) -> Router<S> {
    Router::new().route(NOTIFY, post(handlers::take_notification)).with_state(mentions)
}

/// Path of a push gateway, which Synapse requires.
pub(crate) const NOTIFY: &str = "/_matrix/push/v1/notify";
