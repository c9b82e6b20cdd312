//! Speaks to a Matrix homeserver as an application service: makes users, hands out their devices and takes them back.
//!
//! [`Homeserver`] is a cheap handle to clone. Every call is bounded by a deadline and is made once: whether to try
//! again is the caller's business, and [`Error::is_worth_retrying`] says whether it makes sense. All calls but
//! [`Homeserver::log_in`] may be repeated without harm.

mod breaker;
mod error;
mod homeserver;
mod ids;

pub use error::Error;
pub use homeserver::{Credentials, Homeserver, Registered, Settings};
pub use ruma::{OwnedDeviceId, OwnedServerName, OwnedUserId};
