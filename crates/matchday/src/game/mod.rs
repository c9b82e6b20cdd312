//! Predictions, questions, points, leaderboards, leagues and coins.

pub mod coins;
pub mod leagues;
pub mod predictions;
pub mod profile;
pub mod questions;
pub mod scores;
pub mod seals;
