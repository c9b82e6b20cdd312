//! The caller's profile: account, coins, favourite teams and points in one response. It is separate from the accounts
//! module because it combines data of accounts, the game and chat.

mod handlers;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use crate::{
    catalogue::teams::service::Teams,
    chat::accounts::service::Chat,
    game::{coins::service::Coins, scores::leaderboard::Leaderboards},
    identity::{accounts::service::Accounts, sessions::Authenticates},
};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Accounts: FromRef<S>,
    Chat: FromRef<S>,
    Coins: FromRef<S>,
    Leaderboards: FromRef<S>,
    Teams: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::get_me)).routes(routes!(handlers::update_user_info))
}
