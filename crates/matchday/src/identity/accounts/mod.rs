//! User accounts. The first login with a phone creates one. A username that the service generated can be replaced once.

pub mod hooks;
mod people;
mod responses;
pub mod restrictions;
mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

pub use self::people::{Person, UserSegment};
pub(crate) use self::responses::{ListedPersonItem, PersonItem, UserItem};
pub use self::rules::{Email, PersonName};
pub(crate) use self::store::{
    ChatProfile, Noted, UsernameOwners, chat_profiles, claim_phone, clear_phone, find, lock, note_restriction, people,
    phone_owner, release_phone, set_phone, username_owners, usernames,
};
