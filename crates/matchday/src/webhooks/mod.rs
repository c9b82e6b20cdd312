//! What app backends are told as it happens: matches that change and end, scores that are done, people who register. An
//! endpoint is an address with a secret; each message to it is signed, sent until it is taken or a day is over, and
//! always has the same id.

pub mod rules;
pub mod service;
pub mod settings;
mod store;
#[cfg(test)]
mod tests;
mod work;
