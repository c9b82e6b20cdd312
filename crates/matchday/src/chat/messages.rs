//! Messages from chat features to the chat workers.

use platform::outbox::Message;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use web::ids::{RoomId, UserId};

use crate::identity::sms::templates::Language;

/// Subject of messages about a block that was created or lifted.
pub const IGNORED: &str = "work.chat.ignored";
/// Subject of invitations to decline, because the invited user has blocked the sender.
pub const UNWANTED: &str = "work.room.unwanted_invitation";

/// Subject of invitations of which the invited user is notified.
pub const INVITED: &str = "work.notify.invitation";

/// Subject of users whose devices, preferences or chat account changed, so that their pusher may have to change.
pub const REACH_CHANGED: &str = "work.mention.reach_changed";

/// Subject of mutes by filters.
pub const MUTE: &str = "work.chat_security.mute";
/// Subject of messages about chat keys that were replaced.
pub const KEYS_REPLACED: &str = "work.chat.keys_replaced";

/// A user blocked another user or lifted the block.
#[derive(Debug, Serialize, Deserialize)]
pub struct Ignored {
    /// User who owns the block.
    pub user_id: UserId,
    /// User who is or was blocked.
    pub other_id: UserId,
}

/// An invitation that the worker declines for the user.
#[derive(Debug, Serialize, Deserialize)]
pub struct Unwanted {
    pub room_id: RoomId,
    /// Invited user who has blocked the sender.
    pub user_id: UserId,
}

/// An invitation of a user with a device.
#[derive(Debug, Serialize, Deserialize)]
pub struct Invited {
    pub room_id: RoomId,
    pub user_id: UserId,
    /// Sender of the invitation, if they have an account here.
    pub sender_id: Option<UserId>,
    /// Matrix id of the sender.
    pub sender: String,
    /// Matrix event of the invitation.
    pub event_id: String,
    #[serde(with = "time::serde::rfc3339")]
    pub sent_at: OffsetDateTime,
}

/// The devices, preferences or chat account of a user changed.
#[derive(Debug, Serialize, Deserialize)]
pub struct ReachChanged {
    pub user_id: UserId,
}

impl ReachChanged {
    pub fn message(self) -> serde_json::Result<Message> {
        Message::new(REACH_CHANGED, format!("user:{}", self.user_id), &self)
    }
}

/// A filter mutes a user in the whole service.
#[derive(Debug, Serialize, Deserialize)]
pub struct Mute {
    pub user_id: UserId,
    /// Fixed when the message matched, so that a late worker does not extend the mute.
    #[serde(with = "time::serde::rfc3339")]
    pub until: OffsetDateTime,
    /// Filter that matched.
    pub reason: String,
}

/// The chat keys of a user were replaced. The worker notifies the user by text message.
#[derive(Debug, Serialize, Deserialize)]
pub struct KeysReplaced {
    pub user_id: UserId,
    pub language: Language,
}
