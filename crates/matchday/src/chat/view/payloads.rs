//! Payloads of the stream event `chat`.

use serde::Serialize;
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::UserId;

/// Chat item of a spectator. `type` determines the other fields.
#[derive(Serialize, ToSchema)]
#[serde(tag = "type", rename_all = "snake_case")]
pub enum StreamChat {
    /// A message in the room.
    Message {
        #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
        room_id: String,
        /// The homeserver's id of the message. Ignore a message whose id you have already.
        #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
        event_id: String,
        sender: ChatSender,
        /// Text, cut to 2,000 characters.
        #[schema(example = "Come on!")]
        body: String,
        /// Time at which the homeserver accepted the message.
        #[serde(with = "platform::timestamp")]
        #[schema(example = "2026-11-20T15:21:07.000Z")]
        sent_at: OffsetDateTime,
        /// Whether the message was sent before the stream opened, or arrives late. Live messages have `false`.
        replay: bool,
    },
    /// The replay is complete. Messages from now on arrive live.
    Ready {
        #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
        room_id: String,
        /// Number of replayed messages.
        #[schema(example = 100)]
        replayed: usize,
        /// Seconds that a member must wait between two messages; 0 if the room is not in slow mode.
        #[schema(example = 0)]
        slow_mode: i32,
    },
    /// Remove this message from view.
    Removal {
        #[schema(example = "!auQboWavgiRMaylzYl:example.org")]
        room_id: String,
        #[schema(example = "$Rqnc-F-dvnEYJTyHq_iKxU2bZ1CI92-kuZq3a5lr5Zg")]
        event_id: String,
    },
}

/// Sender of a chat message.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, ToSchema)]
pub struct ChatSender {
    /// Null for the service's bot and for accounts that this service does not know.
    #[schema(required)]
    pub user_id: Option<UserId>,
    /// Part of the Matrix user id before the colon.
    #[schema(example = "swift_winger")]
    pub username: String,
    #[schema(required, example = "Ada Obi")]
    pub name: Option<String>,
    #[schema(required)]
    pub avatar_url: Option<String>,
}

impl StreamChat {
    /// Renders the stream event. It has no id, so it does not move the position of the stream.
    pub(super) fn frame(&self) -> String {
        // JSON has no line breaks, so one line is enough.
        let data = serde_json::to_string(self).unwrap_or_default();
        format!("event: chat\ndata: {data}\n\n")
    }
}
