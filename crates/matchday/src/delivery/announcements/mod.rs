//! Announcements: the bot posts kick-offs, goals, full time and corrected results to the rooms of a match, and the best
//! predictors of each room. Each announcement is posted exactly once, even if processes are killed.

pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
