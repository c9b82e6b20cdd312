//! Chat on a Matrix homeserver: accounts, keys, rooms, membership sync, moderation, reports, filters and the view for
//! spectators.

pub mod accounts;
pub(crate) mod blocks;
pub mod filters;
pub mod keys;
pub(crate) mod members;
pub mod membership_sync;
pub mod messages;
pub mod moderation;
pub mod planned_removals;
pub mod removals;
pub mod reports;
pub mod roles;
pub mod room_moderation;
pub mod rooms;
pub mod view;
pub(crate) mod visibility;
