//! Scores: what predictions have earned their users, by table. They follow results through a queue of lanes, each applied
//! exactly once, and leaderboards follow them.

pub mod boards;
mod handlers;
pub mod leaderboard;
#[cfg(test)]
mod leaderboard_tests;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::leaderboard::Leaderboards;
use crate::{rooms::service::Rooms, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Leaderboards: FromRef<S>,
    Rooms: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_leaderboard))
}
