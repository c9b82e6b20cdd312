//! Sessions and their tokens, which apps send with each request. A login issues a session, and use extends it. It ends
//! at logout, when another session revokes it, when it expires, or when newer sessions replace it. Phone moves and
//! account deletions also end sessions.

mod extract;
mod handlers;
mod lookups;
mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod trust;
pub mod user_limit;
pub mod watch;

use axum::extract::FromRef;
use sqlx::{PgConnection, PgExecutor};
use utoipa_axum::{router::OpenApiRouter, routes};
use web::ids::UserId;

pub use self::extract::{Authenticates, CurrentUser, MaybeUser, StreamUser};
pub(crate) use self::extract::{Counted, token_of};
#[cfg(test)]
pub(crate) use self::rules::make_token;
pub(crate) use self::rules::read_token as user_in;
use self::service::Sessions;

pub(crate) fn routes<S: Authenticates>() -> OpenApiRouter<S>
where
    Sessions: FromRef<S>,
{
    OpenApiRouter::new()
        .routes(routes!(handlers::log_out))
        .routes(routes!(handlers::list_sessions))
        .routes(routes!(handlers::end_session))
}

/// Removes the devices that a user's sessions have registered for notifications, because the user is suspended. The end of
/// a session removes its devices by a foreign key.
pub(crate) async fn remove_push_devices_in(connection: &mut PgConnection, user: UserId) -> sqlx::Result<()> {
    store::delete_push_devices(connection, user).await
}

/// Whether a session of the user has registered a device for notifications.
pub(crate) async fn has_push_devices(executor: impl PgExecutor<'_>, user: UserId) -> sqlx::Result<bool> {
    store::has_push_devices(executor, user).await
}
