//! Filters: check the text of chat messages against patterns of operators, built-in word lists and checks, and an
//! optional external classifier.
//!
//! A message of the app is refused before it is sent. A message of a chat client is planned for removal in the transaction
//! that stores its push, so that no crash loses the removal. Filters apply to unencrypted rooms. The text of a message is
//! never stored, except encrypted in `held_messages` while it waits for a moderator.

mod classifier;
#[cfg(test)]
mod cost_tests;
pub mod held;
mod message;
pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod text;
mod words;

pub(crate) use self::message::ChatMessage;
