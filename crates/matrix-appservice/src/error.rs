//! What can go wrong between us and a homeserver.

use std::time::Duration;

use ruma::{OwnedRoomAliasId, OwnedRoomId, OwnedUserId};

/// Why a call did not do what was asked. No variant holds a token, and none shows the text of an answer that might.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No connection, or it broke.
    #[error("the homeserver cannot be reached")]
    Unreachable(#[source] reqwest::Error),
    /// No complete answer within the deadline. The homeserver may have done what was asked all the same.
    #[error("the homeserver did not answer within {0:?}")]
    TooSlow(Duration),
    /// The homeserver, or what stands before it, answered 5xx.
    #[error("the homeserver is failing: it answered {status}")]
    Failing {
        /// The HTTP status.
        status: u16,
    },
    /// We are asked to slow down. Seen with `rate_limited: true` in the registration of the application service.
    #[error("the homeserver asks to slow down")]
    Busy {
        /// How long, where it says so.
        retry_after: Option<Duration>,
    },
    /// It was away a few times in a row; until the pause is over it is not asked.
    #[error("the homeserver was away just now and is not asked for another {remaining:?}")]
    Resting {
        /// What is left of the pause.
        remaining: Duration,
    },
    /// The homeserver does not take our token for that of an application service.
    #[error(
        "the homeserver does not know our as_token ({0}): is it that of the registration file it was started with?"
    )]
    WrongToken(String),
    /// The answer is not what the specification says. It is a proxy's page, or the URL or the server name is
    /// wrong.
    #[error("the answer with status {status} cannot be understood: {reason}")]
    Unreadable {
        /// The HTTP status.
        status: u16,
        /// What is wrong with it.
        reason: String,
    },
    /// The URL of the settings cannot carry a request.
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// The homeserver does not let this application service act for this user.
    #[error("not allowed to act for {user_id} ({message}): does the registration's users namespace cover it?")]
    NotAllowed {
        /// The user.
        user_id: OwnedUserId,
        /// What the homeserver says.
        message: String,
    },
    /// The user was never registered.
    #[error("{0} is not registered")]
    NoSuchUser(OwnedUserId),
    /// The user was deactivated, for good.
    #[error("{0} is deactivated")]
    Deactivated(OwnedUserId),
    /// The user was suspended, and the homeserver lets them read and leave but nothing else.
    #[error("{0} is suspended")]
    Suspended(OwnedUserId),
    /// The homeserver knows no such room, or whoever asks is not in it: it does not always say which.
    #[error("there is no room {0}, or none that can be seen")]
    NoSuchRoom(OwnedRoomId),
    /// The rules of the room forbid it to whoever acts: they are not in it, not invited, banned or not mighty enough.
    #[error("the room forbids it: {message}")]
    ForbiddenInRoom {
        /// What the homeserver says.
        message: String,
    },
    /// The alias exists, but the room behind it has nobody in it who could complete it: another call is at work on it
    /// at this moment, or died at it.
    #[error("the room with the alias {0} is half made")]
    HalfMade(OwnedRoomAliasId),
    /// The room changed between the two requests of one call.
    #[error("the room {0} changed meanwhile")]
    Overtaken(OwnedRoomId),
    /// The homeserver is there, but does not reach us when it wants to push events.
    #[error("the homeserver cannot reach us: {reason}")]
    CannotReachUs {
        /// Matrix's name for the reason, such as `M_CONNECTION_FAILED`, and what the homeserver says.
        reason: String,
    },
    /// The call needs a server admin, and the settings name none. Nothing was sent.
    #[error("there is no token of a server admin in the settings")]
    NoAdmin,
    /// The homeserver does not take the token of the settings for that of a server admin.
    #[error("the homeserver does not take our admin token for a server admin's ({0})")]
    NotAdmin(String),
    /// The homeserver refused for another reason.
    #[error("the homeserver refused with {status} {errcode}: {message}")]
    Refused {
        /// The HTTP status, 4xx.
        status: u16,
        /// Matrix's name for the reason, such as `M_TOO_LARGE`.
        errcode: String,
        /// What the homeserver says.
        message: String,
    },
    /// The localpart breaks the grammar. Nothing was sent.
    #[error("not a localpart of a Matrix user: {0}")]
    InvalidLocalpart(&'static str),
    /// The localpart cannot be that of a room's alias. Nothing was sent.
    #[error("not a localpart of a room alias: {0}")]
    InvalidAlias(&'static str),
    /// The device id cannot be sent. Nothing was.
    #[error("not a device id: {0}")]
    InvalidDeviceId(&'static str),
}

impl Error {
    /// Whether the same call may succeed later, because the fault lies with the server, the way to it or the set-up,
    /// and not with what was asked. A wrong token or namespace counts: an operator will mend it, and work in a queue
    /// must outlive that.
    pub fn is_worth_retrying(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::TooSlow(_)
            | Self::Failing { .. }
            | Self::Busy { .. }
            | Self::Resting { .. }
            | Self::WrongToken(_)
            | Self::NotAllowed { .. }
            | Self::HalfMade(_)
            | Self::Overtaken(_)
            | Self::CannotReachUs { .. }
            | Self::NoAdmin
            | Self::NotAdmin(_)
            | Self::Unreadable { .. }
            | Self::Unsendable(_) => true,
            Self::NoSuchUser(_)
            | Self::Deactivated(_)
            | Self::Suspended(_)
            | Self::NoSuchRoom(_)
            | Self::ForbiddenInRoom { .. }
            | Self::Refused { .. }
            | Self::InvalidLocalpart(_)
            | Self::InvalidAlias(_)
            | Self::InvalidDeviceId(_) => false,
        }
    }

    /// How long to wait at least before trying again, where that is known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } => *retry_after,
            Self::Resting { remaining } => Some(*remaining),
            _ => None,
        }
    }

    /// Whether it speaks of the server being away, rather than of a server that answers with a no.
    pub(crate) fn speaks_of_an_absent_server(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::TooSlow(_) | Self::Failing { .. })
    }
}
