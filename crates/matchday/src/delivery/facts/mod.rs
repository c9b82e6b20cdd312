//! The log of facts: what happened to matches, scores and users, in one total order, for app backends that follow the
//! service without a webhook.
//!
//! A fact is written to `new_facts` in the transaction of its change. One process moves new facts to `facts` and numbers
//! them, under the lock of the row in `fact_log`. Positions therefore become visible in their order, and nothing appears
//! behind a position that a reader has seen, even if a slow transaction commits late. NATS takes no part in it.

pub mod handlers;
pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
