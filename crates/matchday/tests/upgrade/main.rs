//! What users notice of an upgrade, which is nothing: processes are ended and started, old and new ones stand side by
//! side, and the schema changes, while apps go on asking.
//!
//! The quick half runs with all other tests. The rest is marked as ignored: `just upgrade` and `just soak`.

#[path = "../stage/mod.rs"]
mod stage;

mod balancer;
mod connection;
mod load;
mod migrations;
mod rolling;
mod soak;
mod versions;
