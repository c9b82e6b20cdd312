//! Client for a Matrix homeserver, acting as an application service. It registers users, creates and deletes their
//! devices, replaces cross-signing keys, creates rooms, and manages and lists room members.
//!
//! [`Homeserver`] is cheap to clone. Every request has a deadline and is sent once. The caller decides whether to
//! retry; [`Error::is_worth_retrying`] reports whether a retry can succeed. All calls except [`Homeserver::log_in`] are
//! idempotent.

mod avatars;
mod credentials;
mod error;
mod homeserver;
mod ids;
mod keys;
mod members;
mod messages;
mod pushers;
mod rooms;
mod service;

pub use credentials::{ChatServer, CredentialIssuer, Issuing};
pub use error::Error;
pub use homeserver::{Credentials, Homeserver, Purpose, Registered, Settings};
pub use keys::SigningKeys;
pub use members::{Invited, Member, Membership};
pub use messages::MessagePage;
pub use rooms::{IncompleteRoom, NewRoom, SeenEvent};
pub use ruma::{
    EventId, OwnedDeviceId, OwnedEventId, OwnedRoomAliasId, OwnedRoomId, OwnedServerName, OwnedUserId, RoomId, UserId,
};
pub use service::Redaction;
