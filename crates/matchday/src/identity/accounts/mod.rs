//! Accounts: who a person is to the service. One is made by the first login with a phone; a username that the service
//! made up can be replaced once.

pub mod hooks;
mod responses;
pub mod restrictions;
mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;

pub(crate) use self::responses::UserItem;
pub use self::rules::{Email, PersonName};
pub(crate) use self::store::{
    Behind, Noted, behind, claim_phone, clear_phone, find, lock, note_restriction, phone_owner, release_phone,
    set_phone, usernames,
};
