//! The few whole flows: the real binary, over the network, with every real part.

#![expect(clippy::expect_used, clippy::unwrap_used, reason = "a test that cannot have what it needs fails")]

mod catalogue;
mod commands;
mod process;
mod relay;
mod revocation;
mod serving;
mod tracing;
