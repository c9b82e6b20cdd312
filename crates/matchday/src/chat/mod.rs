//! Chat on a Matrix homeserver: accounts, rooms, membership sync and moderation.

pub mod accounts;
mod blocks;
pub(crate) mod members;
pub mod membership_sync;
pub mod messages;
pub mod moderation;
pub mod rooms;
