//! Scores: what predictions have earned their users, by table. They follow results through a queue of chunks, each applied
//! exactly once, and leaderboards follow them.

mod handlers;
pub mod leaderboard;
pub mod leaderboard_cache;
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
use crate::{chat::rooms::service::Rooms, identity::sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Leaderboards: FromRef<S>,
    Rooms: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_leaderboard))
}
