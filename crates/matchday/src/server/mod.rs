//! The server API: backends of the operator call it with server keys. Its handlers use the same services as the console
//! and the command line.
//!
//! Every handler takes [`Authorized`](crate::identity::server_keys) as its first argument. `routes` reads the scope
//! from the type of the handler, for the description of the API and for the layer of idempotency keys.

mod catalogue;
mod coins;
mod facts;
mod keys;
mod leagues;
mod messages;
mod rooms;
mod routes;
mod state;
#[cfg(test)]
mod tests;
mod users;
mod webhooks;

pub use self::routes::description;
pub(crate) use self::{
    routes::{paths, router},
    state::{ServerState, Services},
};
