//! Leagues: named groups of users, joined by an invite code, with their own table. A league adds no work when a match ends:
//! its table is summed from the scores of its members when it is read, or copied from them in the background if the league
//! is large.

mod codes;
mod handlers;
mod large;
#[cfg(test)]
mod model_tests;
pub mod places_lost;
pub mod ranks;
mod recent;
mod rules;
pub mod service;
pub mod settings;
mod store;
mod sums;
#[cfg(test)]
mod sums_tests;
mod table;
#[cfg(test)]
mod tests;
pub mod work;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Leagues;
use crate::identity::{avatars::AvatarUrls, sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    AvatarUrls: FromRef<S>,
    Leagues: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::list_leagues, handlers::create_league))
        .routes(routes!(handlers::join_league))
        .routes(routes!(handlers::get_league, handlers::change_league))
        .routes(routes!(handlers::leave_league))
        .routes(routes!(handlers::remove_member))
        .routes(routes!(handlers::rotate_code))
        .routes(routes!(handlers::hand_over))
        .routes(routes!(handlers::get_league_table))
}
