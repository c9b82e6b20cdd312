//! Announcements: the bot tells a match's rooms of kick-off, goals, full time and corrected results, and who of the room
//! predicted best. Each of them once, whatever is killed meanwhile.

pub mod rules;
pub mod service;
mod store;
#[cfg(test)]
mod tests;
