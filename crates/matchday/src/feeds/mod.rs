//! Feeds: matches that come in by themselves. Providers are looked at as often as their matches make it worth; what
//! changed there is imported as a document of ours would be, and what did not is not even read.

mod football_data;
mod openfootball;
mod reading;
mod rules;
pub mod service;
pub mod settings;
pub mod source;
mod store;
#[cfg(test)]
mod tests;
pub mod zone;

/// What the one process that looks at feeds holds.
pub const LEASE: &str = "feeds";
