//! Accounts: who a person is to the service. One is made by the first login with a phone; a username that the service
//! made up can be replaced once.

mod handlers;
mod rules;
pub mod service;
pub mod settings;
pub(crate) mod store;
#[cfg(test)]
mod tests;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

pub(crate) use self::handlers::UserItem;
pub use self::rules::PersonName;
use self::service::Accounts;
use crate::{
    chat::service::Chat, coins::service::Coins, scores::leaderboard::Leaderboards, sessions::Authenticates,
    teams::service::Teams,
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
