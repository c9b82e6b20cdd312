//! Errors of calls to a homeserver.

use std::time::Duration;

use ruma::{OwnedRoomAliasId, OwnedRoomId, OwnedUserId};

/// Reason why a call failed. No variant contains a token or quotes a response that could contain one.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The connection failed or broke.
    #[error("the homeserver is unreachable")]
    Unreachable(#[source] reqwest::Error),
    /// No complete response within the deadline. The homeserver may still have processed the request.
    #[error("the homeserver did not respond within {0:?}")]
    TooSlow(Duration),
    /// The homeserver, or a proxy in front of it, responded with 5xx.
    #[error("the homeserver failed with status {status}")]
    Failing { status: u16 },
    /// The homeserver rate limits us. This happens with `rate_limited: true` in the registration of the application
    /// service.
    #[error("the homeserver rate limits our requests")]
    Busy {
        /// Delay that the homeserver requested, if any.
        retry_after: Option<Duration>,
    },
    /// The circuit breaker is open after several failures in a row. Nothing was sent.
    #[error("the homeserver was unavailable; the circuit breaker stays open for another {remaining:?}")]
    BreakerOpen {
        /// Time until the next attempt is allowed.
        remaining: Duration,
    },
    /// The homeserver does not accept our token as that of an application service.
    #[error("the homeserver rejects our as_token ({0}): is it the token in the homeserver's registration file?")]
    WrongToken(String),
    /// The response does not follow the specification. Typical causes are an error page from a proxy, a wrong URL or a
    /// wrong server name.
    #[error("the response with status {status} is invalid: {reason}")]
    Unreadable { status: u16, reason: String },
    /// The request cannot be built, usually because of the configured URL. Nothing was sent.
    #[error("the request cannot be sent: {0}")]
    Unsendable(String),
    /// The homeserver does not let this application service act for this user.
    #[error("not allowed to act for {user_id} ({message}): does the registration's users namespace cover it?")]
    NotAllowed {
        user_id: OwnedUserId,
        /// Message from the homeserver.
        message: String,
    },
    /// The user was never registered.
    #[error("{0} is not registered")]
    NoSuchUser(OwnedUserId),
    /// The user was deactivated. This is permanent.
    #[error("{0} is deactivated")]
    Deactivated(OwnedUserId),
    /// The user is suspended. The homeserver lets them read and leave, and refuses everything else.
    #[error("{0} is suspended")]
    Suspended(OwnedUserId),
    /// The homeserver performs this only after the user authenticates interactively. Users of this service cannot: they
    /// have no password.
    #[error("the homeserver requires {0} to authenticate interactively")]
    InteractiveAuthRequired(OwnedUserId),
    /// The room does not exist, or the acting user is not in it. The homeserver does not always distinguish the two.
    #[error("the room {0} does not exist or is not visible")]
    NoSuchRoom(OwnedRoomId),
    /// The room's rules forbid the action: the acting user is not a member, not invited, banned, or has too little
    /// power.
    #[error("the room's rules forbid the action: {message}")]
    ForbiddenInRoom {
        /// Message from the homeserver.
        message: String,
    },
    /// The alias exists, but the bot is not in its room, so the room cannot be completed. Either another call is
    /// creating it now, or a call was interrupted while creating it.
    #[error("the room with the alias {0} is incomplete")]
    IncompleteRoom(OwnedRoomAliasId),
    /// The room changed between the two requests of one call.
    #[error("the room {0} changed during the call")]
    RoomChanged(OwnedRoomId),
    /// The homeserver responds, but cannot connect to us to push events.
    #[error("the homeserver cannot reach us: {reason}")]
    CannotReachUs {
        /// Matrix error code, for example `M_CONNECTION_FAILED`, and the message from the homeserver.
        reason: String,
    },
    /// The call needs a server admin, and no admin token is configured. Nothing was sent.
    #[error("no token of a server admin is configured")]
    NoAdmin,
    /// The homeserver does not accept the configured admin token as that of a server admin.
    #[error("the homeserver rejects our admin token ({0})")]
    NotAdmin(String),
    /// The homeserver refused the request for another reason.
    #[error("the homeserver refused with {status} {errcode}: {message}")]
    Refused {
        /// HTTP status, always 4xx.
        status: u16,
        /// Matrix error code, for example `M_TOO_LARGE`.
        errcode: String,
        /// Message from the homeserver.
        message: String,
    },
    /// The localpart breaks the grammar of the specification. Nothing was sent.
    #[error("invalid localpart of a Matrix user: {0}")]
    InvalidLocalpart(&'static str),
    /// The localpart is not allowed in a room alias. Nothing was sent.
    #[error("invalid localpart of a room alias: {0}")]
    InvalidAlias(&'static str),
    /// The device id is not safe to send in a path. Nothing was sent.
    #[error("invalid device id: {0}")]
    InvalidDeviceId(&'static str),
}

impl Error {
    /// Whether the same call can succeed later, because the cause is the server, the connection or the configuration
    /// and not the request. A wrong token or namespace counts as retryable: an operator will correct it, and queued
    /// work must survive until then.
    pub fn is_worth_retrying(&self) -> bool {
        match self {
            Self::Unreachable(_)
            | Self::TooSlow(_)
            | Self::Failing { .. }
            | Self::Busy { .. }
            | Self::BreakerOpen { .. }
            | Self::WrongToken(_)
            | Self::NotAllowed { .. }
            | Self::InteractiveAuthRequired(_)
            | Self::IncompleteRoom(_)
            | Self::RoomChanged(_)
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

    /// Minimum delay before a retry, if known.
    pub fn retry_after(&self) -> Option<Duration> {
        match self {
            Self::Busy { retry_after } => *retry_after,
            Self::BreakerOpen { remaining } => Some(*remaining),
            _ => None,
        }
    }

    /// Whether the error means that the server is unavailable. A refusal comes from an available server.
    pub fn means_server_unavailable(&self) -> bool {
        matches!(self, Self::Unreachable(_) | Self::TooSlow(_) | Self::Failing { .. })
    }
}
