//! Webhooks notify app backends of changed and finished matches, updated scores, and registered or deleted users. An
//! endpoint is a URL with a secret. Each message is signed, and retried with the same id until it is accepted or about
//! a day has passed.

pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod work;
