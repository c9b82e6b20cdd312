//! Speaks to a Matrix homeserver as an application service: makes users, hands out their devices and takes them back,
//! makes rooms and says who is in them.
//!
//! [`Homeserver`] is a cheap handle to clone. Every request is bounded by a deadline and is made once: whether to try
//! again is the caller's business, and [`Error::is_worth_retrying`] says whether it makes sense. All calls but
//! [`Homeserver::log_in`] may be repeated without harm.

mod error;
mod homeserver;
mod ids;
mod members;
mod messages;
mod rooms;
mod service;

pub use error::Error;
pub use homeserver::{Credentials, Homeserver, Registered, Settings};
pub use members::{Invited, Member, Membership};
pub use rooms::{HalfMade, NewRoom, SeenEvent};
pub use ruma::{
    EventId, OwnedDeviceId, OwnedEventId, OwnedRoomAliasId, OwnedRoomId, OwnedServerName, OwnedUserId, RoomId, UserId,
};
pub use service::Redaction;
