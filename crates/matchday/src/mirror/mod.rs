//! The mirror: who is in which room, and when somebody last spoke there, whichever client they used. The homeserver
//! pushes what happens; it is kept in an inbox, applied in order, and compared with the homeserver after a gap and every
//! night.

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
use self::service::Mirror;

/// What the homeserver calls, on the listener that the internet does not reach. It is no part of the description:
/// nobody else may call it.
pub(crate) fn private_routes<S: WebState>(mirror: Mirror) -> Router<S> {
    Router::new()
        .route("/_matrix/app/v1/transactions/{id}", put(handlers::take_transaction))
        .route("/_matrix/app/v1/ping", post(handlers::answer_ping))
        .route("/_matrix/app/v1/users/{id}", get(handlers::look_nothing_up))
        .route("/_matrix/app/v1/rooms/{alias}", get(handlers::look_nothing_up))
        .with_state(mirror)
}

/// Their paths, for metrics.
pub(crate) const PRIVATE_PATHS: [&str; 4] = [
    "/_matrix/app/v1/transactions/{id}",
    "/_matrix/app/v1/ping",
    "/_matrix/app/v1/users/{id}",
    "/_matrix/app/v1/rooms/{alias}",
];
