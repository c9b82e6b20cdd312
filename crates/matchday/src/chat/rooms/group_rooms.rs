//! Rooms whose members follow a group of another feature, such as a league.

use matrix_appservice::Invited;
use serde_json::json;
use web::{fields::FromJson as _, ids::UserId};

use super::{
    rules::{RoomAddress, RoomName, Topic},
    service::{Room, RoomError, RoomRequest, Rooms, address_of},
};
use crate::chat::membership_sync::{Membership, service::ConfirmedMembership};

impl Rooms {
    /// Creates a private room and joins its creator. An identical request within a short time returns the same room.
    pub async fn create_private(&self, creator: UserId, name: &str, topic: &str) -> Result<Room, RoomError> {
        let invalid = || RoomError::Chat("the name of a room is invalid".to_owned());
        let request = RoomRequest {
            name: RoomName::from_json(&json!(name)).ok_or_else(invalid)?,
            topic: Topic::from_json(&json!(topic)).ok_or_else(invalid)?,
            event_id: None,
            is_private: true,
        };
        self.create(creator, &request).await
    }

    /// Lets a user join a private room: the bot invites them, and they accept.
    pub async fn admit(&self, user: UserId, address: &RoomAddress) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let room = self.find(address).await?;
        match self.membership(user, room.id).await? {
            Some(Membership::Join) => return Ok(()),
            Some(Membership::Ban) => return Err(RoomError::NotAllowed),
            _ => {}
        }
        let account = inner.chat.account(user).await?;
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        let outcome = self.homeserver()?.invite(&matrix_id, None, account.username.as_str()).await?;
        let (membership, event_id) = match &outcome {
            Invited::Invited(event_id) => (Membership::Invite, event_id),
            Invited::AlreadyIn(event_id) => (Membership::Join, event_id),
        };
        let confirmed = ConfirmedMembership {
            room: room.id,
            user,
            membership,
            event_id: Some(event_id.as_str()),
            invited_by: None,
        };
        inner.sync.note(confirmed).await?;
        if membership == Membership::Invite {
            self.join(user, address).await?;
        }
        Ok(())
    }

    /// Takes a user out of a room, if they are in it.
    pub async fn dismiss(&self, user: UserId, address: &RoomAddress) -> Result<(), RoomError> {
        let room = self.find(address).await?;
        match self.membership(user, room.id).await? {
            Some(Membership::Join | Membership::Invite) => {}
            _ => return Ok(()),
        }
        let account = self.inner.chat.account(user).await?;
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        self.take_out(&account, room.id, &matrix_id).await
    }
}
