//! Guarantees that hold when a dependency fails. Tests run the real binary with real dependencies, which each test
//! starts for itself and may break.
//!
//! Fast tests run with all other tests. The rest is marked as ignored and runs every night: `just faults`.

#[path = "../stage/mod.rs"]
mod stage;

mod dependencies;
mod disk;
mod failover;
mod homeserver;
mod leaderboards;
mod load;
mod match_day;
mod nats;
mod pgbouncer;
mod postgres;
mod redis;
mod replica;
mod sms;
mod webhooks;
