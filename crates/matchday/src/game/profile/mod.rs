//! Profiles: the caller's account, coins, favourite teams and points in one response, and what other users see of an
//! account. They are separate from the accounts module because they combine data of accounts, the game and chat.

mod handlers;
pub mod service;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Profiles;
use crate::{
    catalogue::teams::service::Teams,
    chat::accounts::service::Chat,
    game::{coins::service::Coins, scores::leaderboard::Leaderboards},
    identity::{accounts::service::Accounts, avatars::AvatarUrls, sessions::Authenticates},
};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Accounts: FromRef<S>,
    AvatarUrls: FromRef<S>,
    Chat: FromRef<S>,
    Coins: FromRef<S>,
    Leaderboards: FromRef<S>,
    Profiles: FromRef<S>,
    Teams: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::get_me))
        .routes(routes!(handlers::update_user_info))
        .routes(routes!(handlers::get_profile))
}
