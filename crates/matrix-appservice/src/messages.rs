//! What the bot says in rooms.

use ruma::{OwnedEventId, RoomId, UserId, api::client::message::send_message_event};
use serde_json::Value;

use crate::{
    Error, Homeserver,
    homeserver::{Acting, BOT_DEVICE},
    ids,
    rooms::{in_room, raw},
};

impl Homeserver {
    /// Says something in a room, as the bot. The same transaction in the same room again says nothing more, and answers
    /// with the event of the first time; Synapse remembers that for a day, also when it was restarted in between. That is
    /// because the bot speaks from a device: what an application service says without one is remembered by the process only.
    pub async fn say(&self, room: &RoomId, transaction: &str, content: &Value) -> Result<OwnedEventId, Error> {
        match self.try_to_say(room, transaction, content).await {
            Err(Error::Refused { errcode, .. }) if errcode == "M_UNKNOWN_DEVICE" => {
                // Made once; its token is nobody's. Two who do this at once make one device.
                self.ensure_bot().await?;
                self.log_in(&self.inner.settings.bot, BOT_DEVICE, "What the bot says in rooms").await?;
                self.try_to_say(room, transaction, content).await
            }
            outcome => outcome,
        }
    }

    /// Says something in a room as a user of ours. The same transaction again says nothing more, as long as the homeserver's
    /// process remembers it.
    pub async fn say_as(
        &self,
        localpart: &str,
        room: &RoomId,
        transaction: &str,
        content: &Value,
    ) -> Result<OwnedEventId, Error> {
        let user_id = self.user_id(localpart)?;
        self.send(room, transaction, content, &user_id, Acting::AsTheUser).await
    }

    async fn try_to_say(&self, room: &RoomId, transaction: &str, content: &Value) -> Result<OwnedEventId, Error> {
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
        let answer = self.call(request, user_id, acting).await.map_err(|error| in_room(error, room))?;
        Ok(answer.event_id)
    }
}
