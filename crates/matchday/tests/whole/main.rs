//! End-to-end tests: the real binary over the network, with all real dependencies.

use std::io::Write as _;

#[path = "../stage/mod.rs"]
mod stage;

mod account_deletion;
mod announcements;
mod avatars;
mod catalogue;
mod coins;
mod commands;
mod facts;
mod feeds;
mod filters;
mod leases;
mod limits;
mod login;
mod membership_sync;
mod mentions;
mod moderation;
mod notifications;
mod phones;
mod relay;
mod revocation;
mod rooms;
mod scores;
mod secrets;
mod server_api;
mod serving;
mod spectators;
mod tracing;
mod webhooks;

pub(crate) use stage::{client, process, synapse};

/// Prints measurements for manual runs.
pub(crate) fn report(text: &str) {
    let _ = writeln!(std::io::stderr(), "{text}");
}
