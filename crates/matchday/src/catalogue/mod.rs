//! Sports, tournaments, teams and matches, and how they come in.

pub mod feeds;
pub mod fixtures;
pub mod matches;
pub mod teams;
