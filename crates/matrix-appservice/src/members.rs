//! Room membership: joining, leaving, inviting, removing and listing members.

use ruma::{
    OwnedEventId, OwnedRoomId, OwnedUserId, RoomId, UserId,
    api::client::membership::{get_member_events, joined_rooms, kick_user},
    events::room::member::MembershipState,
    serde::Raw,
};
use serde_json::{Value, json};

use crate::{
    Error, Homeserver,
    homeserver::{Acting, LONG_RESPONSE_BYTES},
    ids,
    rooms::{field, in_room, no_view, unreadable},
};

/// Membership state of a user in a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// The user is in the room.
    Join,
    /// The user may join.
    Invite,
    /// The user may not join until a moderator lifts the ban.
    Ban,
    /// The user requested to join.
    Knock,
    /// The user left, was removed, or declined an invitation.
    Leave,
}

impl Membership {
    /// Parses the Matrix name of a membership state.
    pub(crate) fn parse(name: &str) -> Option<Self> {
        match name {
            "join" => Some(Self::Join),
            "invite" => Some(Self::Invite),
            "ban" => Some(Self::Ban),
            "knock" => Some(Self::Knock),
            "leave" => Some(Self::Leave),
            _ => None,
        }
    }
}

/// A user and their membership state in a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The user may be on any server.
    pub user_id: OwnedUserId,
    pub membership: Membership,
    /// Member event that set this state.
    pub event_id: OwnedEventId,
}

/// Result of an invitation, with the id of the member event.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invited {
    /// The user is invited, by this call or an earlier one.
    Invited(OwnedEventId),
    /// The user is already in the room.
    AlreadyIn(OwnedEventId),
}

// Membership is set by sending the member event directly, because that response contains the event id. Synapse handles
// it like `/join` and similar endpoints: it fills in the profile, and returns the existing event if nothing would
// change.
impl Homeserver {
    /// Joins a user to the room, acting as that user. The room must be public or the user invited. Returns the id of
    /// their member event, also if they were in the room already.
    ///
    /// Synapse does this for deactivated users too: do not call it after [`Self::deactivate`].
    pub async fn join(&self, room: &RoomId, localpart: &str) -> Result<OwnedEventId, Error> {
        let user_id = self.user_id(localpart)?;
        self.set_membership(room, &user_id, "join", &user_id, Acting::AsTheUser).await
    }

    /// Makes a user leave or decline an invitation, acting as that user. Returns the id of their member event, also if
    /// they had already left or were removed or banned. Returns `None` if they were never in the room, or if the bot
    /// cannot see the room.
    pub async fn leave(&self, room: &RoomId, localpart: &str) -> Result<Option<OwnedEventId>, Error> {
        let user_id = self.user_id(localpart)?;
        let refusal = match self.set_membership(room, &user_id, "leave", &user_id, Acting::AsTheUser).await {
            Ok(event_id) => return Ok(Some(event_id)),
            Err(Error::NoSuchRoom(_)) => return Ok(None),
            Err(refusal @ Error::ForbiddenInRoom { .. }) => refusal,
            Err(error) => return Err(error),
        };
        // The homeserver refuses this call for users who are not in the room.
        match self.member(room, &user_id).await {
            Ok(Some(member)) if matches!(member.membership, Membership::Leave | Membership::Ban) => {
                Ok(Some(member.event_id))
            }
            Ok(Some(_)) => Err(refusal),
            Ok(None) | Err(Error::NoSuchRoom(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Invites a user, as the user `by` or else as the bot. Returns the id of the invited user's member event, also if
    /// they were invited already. Succeeds if they are in the room already; the id is then that of their join. Does not
    /// lift a ban. Synapse does not check that the invited user exists.
    pub async fn invite(&self, room: &RoomId, by: Option<&str>, localpart: &str) -> Result<Invited, Error> {
        let user_id = self.user_id(localpart)?;
        let invited = match by {
            Some(by) => {
                let by = self.user_id(by)?;
                self.set_membership(room, &user_id, "invite", &by, Acting::AsTheUser).await
            }
            None => self.set_membership(room, &user_id, "invite", &self.bot()?, Acting::AsTheService).await,
        };
        let refusal = match invited {
            Err(refusal @ Error::ForbiddenInRoom { .. }) => refusal,
            invited => return invited.map(Invited::Invited),
        };
        match self.member(room, &user_id).await {
            Ok(Some(Member { membership: Membership::Join, event_id, .. })) => Ok(Invited::AlreadyIn(event_id)),
            Ok(_) | Err(Error::NoSuchRoom(_)) => Err(refusal),
            Err(error) => Err(error),
        }
    }

    /// Removes a user of any server, or revokes an invitation, as the bot. Returns the id of the resulting member
    /// event, or `None` if the user was not in the room. A ban remains in force. This takes two requests, because the
    /// single request that returns the event id would also lift a ban.
    pub async fn kick(&self, room: &RoomId, user_id: &UserId, reason: &str) -> Result<Option<OwnedEventId>, Error> {
        if !self.remove(room, user_id, reason, &self.bot()?).await? {
            return Ok(None);
        }
        match self.member(room, user_id).await? {
            Some(Member { membership: Membership::Leave, event_id, .. }) => Ok(Some(event_id)),
            _ => Err(Error::RoomChanged(room.to_owned())),
        }
    }

    pub async fn joined_rooms(&self, localpart: &str) -> Result<Vec<OwnedRoomId>, Error> {
        let user_id = self.user_id(localpart)?;
        let response = self.call(joined_rooms::v3::Request::new(), &user_id, Acting::AsTheUser).await?;
        Ok(response.joined_rooms)
    }

    /// Lists the membership of all users who have not left, as visible to the bot now, or as last visible to it if it
    /// left. Unreadable member events are skipped.
    pub async fn members(&self, room: &RoomId) -> Result<Vec<Member>, Error> {
        let bot = self.bot()?;
        let mut request = get_member_events::v3::Request::new(ids::room_in_path(room)?);
        request.not_membership = Some(MembershipState::Leave);
        let response = self
            .call_up_to(LONG_RESPONSE_BYTES, request, &bot, Acting::AsTheService)
            .await
            .map_err(|error| no_view(error, room))?;
        // One malformed event must not hide the others.
        Ok(response.chunk.iter().filter_map(|event| read(event).ok()).collect())
    }

    /// Returns one user's membership, or `None` if the room has no member event for them.
    pub(crate) async fn member(&self, room: &RoomId, user_id: &UserId) -> Result<Option<Member>, Error> {
        let event = self.state_event(room, "m.room.member", user_id.as_str()).await?;
        let member = event.as_ref().map(read).transpose()?;
        match member {
            Some(member) if member.user_id != user_id => Err(unreadable("it describes another user")),
            member => Ok(member),
        }
    }

    /// Removes a user, as the bot. Returns whether they were in the room.
    pub(crate) async fn remove(
        &self,
        room: &RoomId,
        user_id: &UserId,
        reason: &str,
        bot: &UserId,
    ) -> Result<bool, Error> {
        let mut request = kick_user::v3::Request::new(ids::room_in_path(room)?, user_id.to_owned());
        request.reason = Some(reason.to_owned()).filter(|reason| !reason.is_empty());
        let refusal = match self.call(request, bot, Acting::AsTheService).await.map_err(|error| in_room(error, room)) {
            Ok(_) => return Ok(true),
            Err(refusal @ Error::ForbiddenInRoom { .. }) => refusal,
            Err(error) => return Err(error),
        };
        // Synapse returns the same refusal for a user who is not in the room and for one with too much power.
        match self.member(room, user_id).await? {
            None | Some(Member { membership: Membership::Leave | Membership::Ban, .. }) => Ok(false),
            Some(_) => Err(refusal),
        }
    }

    async fn set_membership(
        &self,
        room: &RoomId,
        user_id: &UserId,
        membership: &str,
        by: &UserId,
        acting: Acting<'_>,
    ) -> Result<OwnedEventId, Error> {
        let content = json!({"membership": membership});
        self.send_state(room, "m.room.member", user_id.as_str(), &content, by, acting).await
    }
}

/// Reads only the required fields by hand: users control the rest, and it may not follow the specification.
fn read<E>(event: &Raw<E>) -> Result<Member, Error> {
    let member = (|| {
        let content: Value = field(event, "content")?;
        Some(Member {
            user_id: field(event, "state_key")?,
            membership: Membership::parse(content.get("membership")?.as_str()?)?,
            event_id: field(event, "event_id")?,
        })
    })();
    member.ok_or_else(|| unreadable("it contains events that are not member events"))
}
