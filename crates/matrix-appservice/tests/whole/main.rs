//! The crate from outside: against the real homeserver, and against a server that misbehaves on purpose.

#![expect(clippy::unwrap_used, reason = "what helps a test may panic as the test does")]

mod faults;
mod hostile_rooms;
mod members;
mod pretender;
mod rooms;
mod service;
mod synapse;
