//! The live stream: what happens in matches, and what it means for the listener, as it happens. Server-sent events over
//! one connection; whoever loses it goes on where they were.
//!
//! Every process follows the facts once, however many listen to it. A listener holds no queue of its own: it reads along
//! in one that all share, and who cannot keep up is sent away with the place where to go on.

mod handlers;
mod rules;
pub mod service;
pub mod settings;
mod store;
pub mod tallies;
#[cfg(test)]
mod tests;
pub(crate) mod told;

use axum::extract::FromRef;
use platform::shutdown::Shutdown;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Live;
use crate::{rooms::service::Rooms, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Live: FromRef<S>,
    Rooms: FromRef<S>,
    Shutdown: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::listen))
}
