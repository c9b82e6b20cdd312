//! The demo: a fictional tournament, always relative to now, with fans, predictions, rooms, leaderboards and streaks,
//! and a simulation that plays it. For development only.

pub mod crests;
mod handlers;
pub mod play;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::{Router, routing::get};
use platform::Environment;
use web::WebState;

/// Route of the crests. It is not part of the API.
pub(crate) const CRESTS: &str = "/demo/crests/{team}";

pub(crate) fn routes<S: WebState>(env: Environment) -> Router<S> {
    Router::new().route(CRESTS, get(handlers::get_crest)).with_state(env)
}
