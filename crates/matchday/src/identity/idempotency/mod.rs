//! Idempotency keys: a client that did not receive the response to a POST request with an `Idempotency-Key` can send
//! the request again and receives the stored response.
//!
//! A key belongs to a user and a path. A request without a valid token has no user, so the header has no effect.

mod layer;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use self::layer::{IdempotencyLayer, REPLAYED};
pub use self::rules::RequestKey;
pub(crate) use self::service::KEPT_FOR;
