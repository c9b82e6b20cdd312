//! Users and operators: phones, login codes, accounts, sessions. Imports no other domain.

pub mod account_deletion;
pub mod accounts;
pub mod avatars;
pub mod callers;
pub mod codes;
pub mod idempotency;
pub mod login;
pub mod operators;
pub mod phone;
pub mod phone_moves;
pub mod privacy;
pub mod server_keys;
pub mod sessions;
pub mod sms;
mod token_text;
pub mod usernames;
