//! Server keys: backends call the server API with them. A key has scopes, and optionally an expiry and a list of
//! networks. An operator creates, rotates and revokes keys; the text of a key is shown once and stored as a hash.
//!
//! A handler of the server API takes an `Authorized` with the scope it needs as its first argument. The type is also the
//! source of the `security` entry in the description of the API, so the two cannot disagree.

mod extract;
pub mod rules;
pub mod scopes;
pub mod service;
pub mod settings;
mod store;

pub(crate) use self::extract::{Authorized, AuthorizesKeys, StatesScope};
pub(crate) use self::rules::read_text as id_in;
