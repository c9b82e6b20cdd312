//! Sports, tournaments, teams and matches, and their import.

pub mod feeds;
pub mod fixtures;
pub mod matches;
pub mod rule_sets;
pub mod teams;
