//! Shared code of the tests that use the network: processes of the real binary, clients, a private homeserver, and the
//! report of measured results.

#![allow(dead_code, reason = "each test binary uses a different subset")]

pub(crate) mod client;
pub(crate) mod process;
pub(crate) mod proof;
pub(crate) mod synapse;
