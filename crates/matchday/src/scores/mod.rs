//! Scores: what predictions have earned their users, by table. They follow results through a queue of lanes, each applied
//! exactly once, and leaderboards follow them.

pub mod boards;
mod handlers;
pub mod leaderboard;
#[cfg(test)]
mod leaderboard_tests;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use utoipa_axum::{router::OpenApiRouter, routes};

use crate::app::App;

pub(crate) fn routes() -> OpenApiRouter<App> {
    OpenApiRouter::new().routes(routes!(handlers::get_leaderboard))
}
