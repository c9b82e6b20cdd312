//! Scores: the points that users have earned, per scope (all time, tournament, month, week). A queue of chunks adds
//! results to the scores, each exactly once; leaderboards are built from the scores.

mod among;
pub mod copied_sets;
mod handlers;
pub mod leaderboard;
pub mod leaderboard_cache;
#[cfg(test)]
mod leaderboard_tests;
mod players;
mod retention;
pub mod room_leaderboards;
pub mod rounds;
pub mod rules;
#[cfg(test)]
mod season_tests;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::leaderboard::Leaderboards;
use crate::{
    chat::rooms::service::Rooms,
    game::follows::service::Follows,
    identity::{avatars::AvatarUrls, sessions::Authenticates},
};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    AvatarUrls: FromRef<S>,
    Follows: FromRef<S>,
    Leaderboards: FromRef<S>,
    Rooms: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_leaderboard))
}
