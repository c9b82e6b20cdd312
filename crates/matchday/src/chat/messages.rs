//! Messages that features of chat leave for its workers.

use serde::{Deserialize, Serialize};
use web::ids::{RoomId, UserId};

/// The subject on which a block is told, made or lifted.
pub const IGNORED: &str = "work.chat.ignored";
/// The subject on which invitations are told that are to be refused, because whom they are for has blocked their sender.
pub const UNWANTED: &str = "work.room.unwanted_invitation";

/// Somebody does not want to meet somebody else, or does again.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ignored {
    /// Who.
    pub user_id: UserId,
    /// Whom.
    pub other_id: UserId,
}

/// An invitation that is to be refused.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unwanted {
    /// Where to.
    pub room_id: RoomId,
    /// Whose.
    pub user_id: UserId,
}
