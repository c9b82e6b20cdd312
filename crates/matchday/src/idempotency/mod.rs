//! Requests that happen once: a POST with an `Idempotency-Key` may be sent again by whoever did not hear the answer, and
//! gets the answer of the first time.
//!
//! Keys belong to a user and a path. Without a good token there is nobody to whom one could belong, and the header does
//! nothing.

mod layer;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use self::layer::{OnceLayer, REPLAYED};
pub use self::rules::RequestKey;
pub(crate) use self::service::KEPT_FOR;
