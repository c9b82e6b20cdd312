//! Sending messages. The first message of a spectator joins the room.

use std::{borrow::Cow, time::Duration};

use matrix_appservice::Error as MatrixError;
use platform::random;
use serde_json::json;
use time::OffsetDateTime;
use web::ids::UserId;

use super::{
    joining::Standing,
    rules::{MessageBody, RoomAddress},
    service::{Joined, Room, RoomError, Rooms, address_of},
    store,
};
use crate::{
    chat::{
        membership_sync::Membership,
        roles::{self, Turn},
    },
    identity::idempotency::RequestKey,
};

/// How long a message waits until the homeserver has handled other calls.
const PATIENCE: Duration = Duration::from_millis(300);

/// A message that the homeserver accepted.
#[derive(Clone, Debug)]
pub(super) struct SentMessage {
    /// The homeserver's id of the message.
    pub(super) event_id: String,
    /// The room on the homeserver. For a match, it may be another stand than requested.
    pub(super) matrix_id: String,
    /// Whether the user joined the room with this message.
    pub(super) joined: bool,
    pub(super) sent_at: OffsetDateTime,
}

impl Rooms {
    /// Sends a text message as the user, who joins a public room first. A repeated request has the same key, and thus
    /// the same transaction id on the homeserver, which sends its message once even if this process died in between. The
    /// homeserver remembers the id for about half an hour, until it restarts.
    pub(super) async fn send(
        &self,
        user: UserId,
        address: &RoomAddress,
        body: &MessageBody,
        key: Option<RequestKey>,
    ) -> Result<SentMessage, RoomError> {
        let inner = &*self.inner;
        let room = self.find(address).await?;
        let standing = self.standing(user, &room).await?;
        match standing.membership {
            Some(Membership::Ban) => return Err(RoomError::NotAllowed),
            Some(Membership::Join) if room.is_private => return Err(RoomError::Encrypted),
            _ if room.is_private => return Err(RoomError::NotAllowed),
            _ => {}
        }
        self.check_mute(user, &room).await?;
        self.refuse_filtered(user, &room, body).await?;
        let (matrix_id, joined) = if standing.membership == Some(Membership::Join) {
            // The join of an earlier attempt may have ended since.
            (room.matrix_id.clone().unwrap_or_default(), inner.joins.take_joined(user, &room).await)
        } else {
            self.enter_to_send(user, &room, &standing).await?
        };
        let has_joined = joined.is_some();
        let sent = match self.stand_at(&room, &matrix_id).await {
            Ok(entered) => self.post_in_turn(user, &entered, &matrix_id, body, key).await,
            Err(error) => Err(error),
        };
        if let (Err(_), Some(joined)) = (&sent, joined) {
            inner.joins.put_back(user, &room, joined).await;
        }
        Ok(SentMessage { event_id: sent?, matrix_id, joined: has_joined, sent_at: inner.clock.now() })
    }

    async fn check_mute(&self, user: UserId, room: &Room) -> Result<(), RoomError> {
        let muted = roles::muted_until(&self.inner.db, room.id, user, self.inner.clock.now()).await?;
        if muted.is_some() { Err(RoomError::Muted) } else { Ok(()) }
    }

    /// The room that the user is in: the requested one, or another stand of its match.
    async fn stand_at<'a>(&self, room: &'a Room, matrix_id: &str) -> Result<Cow<'a, Room>, RoomError> {
        if room.matrix_id.as_deref() == Some(matrix_id) {
            return Ok(Cow::Borrowed(room));
        }
        let entered = store::find(&self.inner.db, matrix_id).await?.ok_or(RoomError::NotFound)?;
        Ok(Cow::Owned(entered))
    }

    /// Sends a message of a member, who in slow mode needs a turn. Moderators need none.
    async fn post_in_turn(
        &self,
        user: UserId,
        room: &Room,
        matrix_id: &str,
        body: &MessageBody,
        key: Option<RequestKey>,
    ) -> Result<String, RoomError> {
        let inner = &*self.inner;
        self.check_mute(user, room).await?;
        let request = match key {
            Some(RequestKey(digest)) => hex::encode(digest),
            None => random::uuid_v7(&*inner.random, &*inner.clock).to_string(),
        };
        let period = Duration::from_secs(u64::try_from(room.slow_mode_seconds).unwrap_or_default());
        if period.is_zero() || self.moderates(user, room).await? {
            return self.post(user, matrix_id, body, &request).await;
        }
        let turn = {
            let mut connection = inner.db.acquire().await?;
            roles::take_turn(&mut connection, room.id, user, period, request.as_bytes(), inner.clock.now()).await?
        };
        if let Turn::Wait(retry_after) = turn {
            return Err(RoomError::SlowMode { retry_after });
        }
        let sent = self.post(user, matrix_id, body, &request).await;
        match &sent {
            Ok(event_id) => roles::confirm_turn(&inner.db, room.id, user, request.as_bytes(), event_id).await?,
            Err(_) => roles::return_turn(&inner.db, room.id, user, request.as_bytes()).await?,
        }
        sent
    }

    /// Whether the user created the room or is one of its moderators.
    pub async fn moderates(&self, user: UserId, room: &Room) -> sqlx::Result<bool> {
        Ok(room.creator_id == Some(user) || roles::is_moderator(&self.inner.db, room.id, user).await?)
    }

    /// Refuses a message that a filter matches, before the user joins for it. The room may be another stand in the end;
    /// then its own filters apply when the message is pushed.
    async fn refuse_filtered(&self, user: UserId, room: &Room, body: &MessageBody) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let account = inner.accounts.find(user).await?.ok_or(RoomError::NoSuchUser)?;
        if account.muted_at.is_some() {
            return Err(RoomError::Muted);
        }
        let matrix_id = room.matrix_id.as_deref().unwrap_or_default();
        match inner.filters.check_before_sending(matrix_id, user, account.username.as_str(), body.as_str()).await? {
            Some(_) => Err(RoomError::Filtered),
            None => Ok(()),
        }
    }

    /// Sends a message of a member. Returns the homeserver's id of the message.
    async fn post(
        &self,
        user: UserId,
        matrix_id: &str,
        body: &MessageBody,
        request: &str,
    ) -> Result<String, RoomError> {
        let inner = &*self.inner;
        let account = self.speaker(user).await?;
        // Contains the user, because the homeserver compares the ids of all users, and keys are unique only per user.
        let transaction = format!("matchday-{}-{request}", user.0);
        let content = json!({"msgtype": "m.text", "body": body.as_str()});
        let (homeserver, to) = (self.homeserver()?, address_of(matrix_id)?);
        let call = inner.chat.take_message_call(PATIENCE).await;
        let call = call.ok_or_else(|| RoomError::Busy { retry_after: self.spread_delay() })?;
        let sent = homeserver.send_message_as(account.username.as_str(), &to, &transaction, &content).await;
        call.finish(!sent.as_ref().is_err_and(MatrixError::means_server_unavailable)).await;
        match sent.map_err(RoomError::from) {
            Ok(event_id) => Ok(event_id.to_string()),
            // A retry with the same key finds the message, if it was sent.
            Err(RoomError::Slow) => Err(RoomError::Busy { retry_after: self.spread_delay() }),
            Err(error) => Err(error),
        }
    }

    /// Joins a room in order to send a message. Returns the room on the homeserver, which may be another stand, and the
    /// join, unless the user is a member already.
    async fn enter_to_send(
        &self,
        user: UserId,
        room: &Room,
        standing: &Standing,
    ) -> Result<(String, Option<Joined>), RoomError> {
        match self.join_as(user, room, standing).await {
            Ok(joined) => Ok((joined.matrix_id.clone(), Some(joined))),
            // The user is in another stand, or a concurrent request has joined the room.
            Err(RoomError::AlreadyMember) => {
                let own = self.standing(user, room).await?.own_stand;
                Ok((own.or_else(|| room.matrix_id.clone()).unwrap_or_default(), None))
            }
            Err(error) => Err(error),
        }
    }
}
