//! Matchday: the open backend for sports-match social apps.
//!
//! There are seven domains, each a folder of features. `identity` and `catalogue` are below `chat`, `chat` is below
//! `game`, and `delivery`, `admin` and `server` are above them. In a feature, `handlers` implement HTTP, `service` holds the use
//! cases and their transactions, `rules` are pure, and `store` has the SQL. `app`, `router`, `tasks` and `commands`
//! assemble the features. `tests/architecture.rs` enforces these rules.

pub mod admin;
pub mod app;
pub mod backlog;
pub mod catalogue;
pub mod chat;
pub mod config;
pub mod delivery;
pub mod demo;
pub mod game;
pub mod identity;
pub mod router;
pub mod server;
pub mod tasks;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
