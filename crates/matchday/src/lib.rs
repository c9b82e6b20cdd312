//! Matchday: the open backend for sports-match social apps.
//!
//! One folder per feature; in each, `handlers` speak HTTP, `service` holds the use cases and their transactions,
//! `rules` are pure, and `store` has the SQL. `http` and `platform` are what the features stand on.

pub mod accounts;
pub mod announcements;
pub mod app;
pub mod backlog;
pub mod chat;
pub mod codes;
pub mod coins;
pub mod config;
pub mod console;
pub mod demo;
pub mod events;
pub mod feeds;
pub mod fixtures;
pub mod idempotency;
pub mod leaving;
pub mod live;
pub mod login;
pub mod mirror;
pub mod notifications;
pub mod operators;
pub mod phone;
pub mod phones;
pub mod predictions;
pub mod rooms;
pub mod router;
pub mod safety;
pub mod scores;
pub mod sessions;
pub mod sms;
pub mod tasks;
pub mod teams;
#[cfg(any(test, feature = "testing"))]
pub mod testing;
pub mod usernames;
pub mod webhooks;
