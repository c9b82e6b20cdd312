//! Feeds: matches imported automatically from providers. A feed is polled more often around and during its matches. A
//! changed document is imported like any fixture document; an unchanged one is not even parsed.

mod football_data;
mod openfootball;
mod reading;
mod rules;
pub mod service;
pub mod settings;
pub mod source;
mod stages;
mod store;
#[cfg(test)]
mod tests;
pub mod zone;

/// Lease held by the one process that polls feeds.
pub const LEASE: &str = "feeds";
