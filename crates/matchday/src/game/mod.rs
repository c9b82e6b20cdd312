//! Predictions, points, leaderboards and coins.

pub mod coins;
pub mod predictions;
pub mod profile;
pub mod scores;
