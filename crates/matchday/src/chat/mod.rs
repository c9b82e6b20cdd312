//! Chat on a Matrix homeserver: accounts, keys, rooms, membership sync, moderation and the view for spectators.

pub mod accounts;
mod blocks;
pub mod keys;
pub(crate) mod members;
pub mod membership_sync;
pub mod messages;
pub mod moderation;
pub mod rooms;
pub mod view;
