//! Idempotency keys: a client that did not receive the response to a POST request with an `Idempotency-Key` can send
//! the request again and receives the stored response.
//!
//! A key belongs to a user, or to a server key, and to a path. A request without a valid token has no user, so the header
//! has no effect. Routes of the server API require it.
//!
//! A feature declares with its routes how it is idempotent. Behind `IdempotencyLayer::storing_responses`, which works
//! for every feature, a request claims its key in one transaction and stores its response in another. A feature that
//! writes in batches cannot afford these two: behind `IdempotencyLayer::storing_with_effect`, it stores the key in
//! the transaction of the effect, and finds the effect again when the request is repeated. A feature that may process a
//! request twice, with one effect, needs no claim: `IdempotencyLayer::without_claims`.

mod layer;
mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use self::layer::{Backends, IdempotencyLayer, KeyOutcome, REPLAYED, in_progress, key_used};
pub use self::rules::{KeyOwner, KeyedRequest, RequestKey};
pub(crate) use self::service::{Effect, KEPT_FOR, Prior, UsedKeys, find_used_keys, is_key_conflict, store_effects};
