//! The few whole flows: the real binary, over the network, with every real part.

mod catalogue;
mod commands;
mod process;
mod relay;
mod revocation;
mod serving;
mod tracing;
