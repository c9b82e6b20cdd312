//! What tests over the network share: processes of the real binary, apps that use them, a homeserver of their own, and
//! the words in which a test tells what held.

#![allow(dead_code, reason = "every test binary uses its part of it")]

pub(crate) mod client;
pub(crate) mod process;
pub(crate) mod proof;
pub(crate) mod synapse;
