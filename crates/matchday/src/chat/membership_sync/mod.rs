//! Membership sync: keeps the membership tables and each room's last activity equal to the homeserver's state, for
//! changes from any client. The homeserver pushes Matrix events; the service stores them in an inbox and applies them
//! in order. It compares all rooms with the homeserver after a gap and every night.

mod handlers;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

use axum::{
    Router,
    routing::{get, post, put},
};
use web::WebState;

pub use self::rules::Membership;
use self::service::MembershipSync;

/// Endpoints for the homeserver, on the listener that is not reachable from the internet. They are not part of the
/// OpenAPI description, because only the homeserver may call them.
pub(crate) fn private_routes<S: WebState>(sync: MembershipSync) -> Router<S> {
    Router::new()
        .route("/_matrix/app/v1/transactions/{id}", put(handlers::take_transaction))
        .route("/_matrix/app/v1/ping", post(handlers::handle_ping))
        .route("/_matrix/app/v1/users/{id}", get(handlers::reject_query))
        .route("/_matrix/app/v1/rooms/{alias}", get(handlers::reject_query))
        .with_state(sync)
}

/// Paths of the private routes, for metrics.
pub(crate) const PRIVATE_PATHS: [&str; 4] = [
    "/_matrix/app/v1/transactions/{id}",
    "/_matrix/app/v1/ping",
    "/_matrix/app/v1/users/{id}",
    "/_matrix/app/v1/rooms/{alias}",
];
