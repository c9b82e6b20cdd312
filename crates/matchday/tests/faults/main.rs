//! What holds when a part fails: the real binary, the real parts, each test with parts of its own that it may break.
//!
//! The quick half runs with all other tests. The rest is marked as ignored and runs every night: `just faults`.

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
mod postgres;
mod redis;
mod sms;
mod webhooks;
