//! Removal of messages by their senders, by moderators and operators, and for filters. The removal of a message is planned
//! in the transaction that decides on it, and carried out on the homeserver afterwards.

mod handlers;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod work;

use axum::extract::FromRef;
use utoipa_axum::{router::OpenApiRouter, routes};

use self::service::Removals;
use crate::{chat::rooms::service::Rooms, identity::sessions::Authenticates};

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Rooms: FromRef<S>,
    Removals: FromRef<S>,
{
    OpenApiRouter::new().routes(routes!(handlers::remove_message)).routes(routes!(handlers::list_removed_messages))
}
