//! The few whole flows: the real binary, over the network, with every real part.

mod catalogue;
mod client;
mod commands;
mod limits;
mod login;
mod process;
mod relay;
mod revocation;
mod secrets;
mod serving;
mod synapse;
mod tracing;
