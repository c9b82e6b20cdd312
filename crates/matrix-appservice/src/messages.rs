//! Messages that the bot and users send to rooms, the recent messages of a room, and the messages around one.

use ruma::{
    EventId, OwnedEventId, RoomId, UInt, UserId,
    api::client::{
        context::get_context,
        message::{get_message_events, send_message_event},
        redact::redact_event,
    },
};
use serde_json::Value;

use crate::{
    Error, Homeserver, SeenEvent,
    homeserver::{Acting, BOT_DEVICE, LONG_RESPONSE_BYTES},
    ids,
    rooms::{in_room, no_view, raw, read_event},
};

/// Some messages of a room, newest first.
#[derive(Clone, Debug, PartialEq)]
pub struct MessagePage {
    /// Includes edits, and redacted messages without their content.
    pub events: Vec<SeenEvent>,
    /// Token with which the next call continues with older messages. `None` at the start of the room.
    pub next: Option<String>,
}

impl Homeserver {
    /// Sends a message to a room as the bot. The transaction id is the idempotency key within the room: a repeated call
    /// sends nothing and returns the event of the first one.
    ///
    /// The bot sends from a device, because Synapse then stores transaction ids for a day, across restarts. Without a
    /// device, it keeps them only in memory.
    pub async fn say(&self, room: &RoomId, transaction: &str, content: &Value) -> Result<OwnedEventId, Error> {
        match self.send_from_device(room, transaction, content).await {
            Err(Error::Refused { errcode, .. }) if errcode == "M_UNKNOWN_DEVICE" => {
                // Creates the device once; its token is discarded. Concurrent calls end up with the same device.
                self.ensure_bot().await?;
                self.log_in(&self.inner.settings.bot, BOT_DEVICE, "Bot messages").await?;
                self.send_from_device(room, transaction, content).await
            }
            outcome => outcome,
        }
    }

    /// Sends a message to a room as one of our users. A repeated transaction id sends nothing as long as Synapse has it
    /// in memory, which ends with a restart at the latest.
    pub async fn send_message_as(
        &self,
        localpart: &str,
        room: &RoomId,
        transaction: &str,
        content: &Value,
    ) -> Result<OwnedEventId, Error> {
        let user_id = self.user_id(localpart)?;
        self.send(room, transaction, content, &user_id, Acting::AsTheUser).await
    }

    /// Returns up to `most` messages of a room as visible to the bot, newest first, or older ones after `from`.
    pub async fn message_page(&self, room: &RoomId, from: Option<String>, most: u16) -> Result<MessagePage, Error> {
        let bot = self.bot()?;
        let mut request = get_message_events::v3::Request::backward(ids::room_in_path(room)?).from(from);
        request.limit = UInt::from(most);
        request.filter.types = Some(vec!["m.room.message".to_owned()]);
        let response = self
            .call_up_to(LONG_RESPONSE_BYTES, request, &bot, Acting::AsTheService)
            .await
            .map_err(|error| no_view(error, room))?;
        // One malformed event must not hide the others.
        Ok(MessagePage { events: response.chunk.iter().filter_map(read_event).collect(), next: response.end })
    }

    /// Removes the content of an event, as the bot. A repeated call with the same transaction id has no effect as long as
    /// Synapse has the id in memory; another redaction of a redacted event changes nothing that users see.
    pub async fn redact(
        &self,
        room: &RoomId,
        event_id: &EventId,
        transaction: &str,
        reason: &str,
    ) -> Result<(), Error> {
        let bot = self.bot()?;
        let transaction = ids::in_path(transaction).into();
        let mut request =
            redact_event::v3::Request::new(ids::room_in_path(room)?, ids::event_in_path(event_id)?, transaction);
        request.reason = (!reason.is_empty()).then(|| reason.to_owned());
        self.call(request, &bot, Acting::AsTheService).await.map_err(|error| in_room(error, room)).map(|_| ())
    }

    /// Returns a message and up to `each` messages before and after it as visible to the bot, oldest first. Encrypted
    /// messages are included. Returns nothing if the room has no such message.
    pub async fn context(&self, room: &RoomId, event_id: &EventId, each: u16) -> Result<Vec<SeenEvent>, Error> {
        let bot = self.bot()?;
        let mut request = get_context::v3::Request::new(ids::room_in_path(room)?, ids::event_in_path(event_id)?);
        // The limit is split evenly between both directions.
        request.limit = UInt::from(each) * UInt::from(2_u16);
        request.filter.types = Some(vec!["m.room.message".to_owned(), "m.room.encrypted".to_owned()]);
        let response = self.call_up_to(LONG_RESPONSE_BYTES, request, &bot, Acting::AsTheService).await;
        let response = match response.map_err(|error| in_room(error, room)) {
            Ok(response) => response,
            Err(Error::NoSuchRoom(_)) => return Ok(Vec::new()),
            Err(error) => return Err(error),
        };
        // The homeserver lists the earlier messages newest first.
        let before = response.events_before.iter().rev();
        let events = before.chain(response.event.as_ref()).chain(&response.events_after);
        Ok(events.filter_map(read_event).collect())
    }

    async fn send_from_device(&self, room: &RoomId, transaction: &str, content: &Value) -> Result<OwnedEventId, Error> {
        let bot = self.bot()?;
        self.send(room, transaction, content, &bot, Acting::FromTheBotsDevice).await
    }

    async fn send(
        &self,
        room: &RoomId,
        transaction: &str,
        content: &Value,
        user_id: &UserId,
        acting: Acting<'_>,
    ) -> Result<OwnedEventId, Error> {
        let request = send_message_event::v3::Request::new_raw(
            ids::room_in_path(room)?,
            ids::in_path(transaction).into(),
            "m.room.message".into(),
            raw(content)?,
        );
        let response = self.call(request, user_id, acting).await.map_err(|error| in_room(error, room))?;
        Ok(response.event_id)
    }
}
