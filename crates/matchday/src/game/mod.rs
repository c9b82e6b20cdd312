//! Predictions, questions, points, leaderboards, leagues, coins, profiles and follows.

pub mod coins;
pub mod follows;
pub mod leagues;
pub mod predictions;
pub mod profile;
pub mod questions;
pub mod scores;
pub mod seals;
