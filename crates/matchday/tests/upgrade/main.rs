//! Upgrades without failed requests: processes are stopped and started, old and new versions run at the same time, and
//! the schema changes, all under load.
//!
//! Fast tests run with all other tests. The rest is marked as ignored: `just upgrade` and `just soak`.

#[path = "../stage/mod.rs"]
mod stage;

mod balancer;
mod connection;
mod load;
mod migrations;
mod rolling;
mod soak;
mod versions;
