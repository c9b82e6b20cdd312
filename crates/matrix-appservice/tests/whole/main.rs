//! Tests of the crate's public API, against a real homeserver and against a fake server that misbehaves on purpose.

#![expect(clippy::unwrap_used, reason = "test helpers may panic")]

mod avatars;
mod fake_server;
mod faults;
mod hostile_rooms;
mod keys;
mod members;
mod messages;
mod pushers;
mod rooms;
mod service;
mod synapse;
