//! The spectator view of a room's chat: fans read a public room over the live stream without joining it.
//!
//! The homeserver pushes each message to one process, which publishes it to the others on NATS, outside any stream. A
//! process with spectators of a room holds the room's last messages in memory, applies bans, mutes, blocks and
//! redactions, and shows a readable selection if the room is busy. No message is written to a table, a file or a log.
//!
//! Events may get lost between processes while NATS is unavailable. The process that received them remembers the rooms and
//! asks the others to load these rooms' messages from the homeserver again.

mod follower;
mod offers;
pub mod payloads;
mod readers;
mod room;
mod rules;
pub mod service;
pub mod settings;
mod speakers;
#[cfg(test)]
mod tests;

pub(crate) use self::rules::ViewEvent;
