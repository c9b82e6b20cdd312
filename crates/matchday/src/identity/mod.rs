//! Users and operators: phones, login codes, accounts, sessions. Imports no other domain.

pub mod account_deletion;
pub mod accounts;
pub mod codes;
pub mod idempotency;
pub mod login;
pub mod operators;
pub mod phone;
pub mod phone_moves;
pub mod sessions;
pub mod sms;
pub mod usernames;
