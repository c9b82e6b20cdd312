//! The live stream: match events, and their effect on the listener, in real time. Clients receive server-sent events
//! over one connection and resume after the last event when they reconnect.
//!
//! Each process reads the facts once, however many listeners it has. Listeners have no queue; they read from one shared
//! buffer. Slow listeners are disconnected and resume from `Last-Event-ID`.

mod handlers;
mod league_ranks;
mod lookups;
pub(crate) mod payloads;
mod rules;
pub mod service;
pub mod settings;
mod store;
pub mod tallies;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use platform::shutdown::Shutdown;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Live;
use crate::{chat::rooms::service::Rooms, identity::sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Live: FromRef<S>,
    Rooms: FromRef<S>,
    Shutdown: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::listen))
}
