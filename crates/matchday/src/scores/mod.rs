//! Scores: what predictions have earned their users, by table. They follow results through a queue of lanes, each applied
//! exactly once.

pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
