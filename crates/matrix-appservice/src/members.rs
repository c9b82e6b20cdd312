//! Who is in a room, and who comes and goes.

use ruma::{
    OwnedEventId, OwnedRoomId, OwnedUserId, RoomId, UserId,
    api::client::membership::{get_member_events, joined_rooms, kick_user},
    events::room::member::MembershipState,
    serde::Raw,
};
use serde_json::{Value, json};

use crate::{
    Error, Homeserver,
    homeserver::{Acting, LONG_ANSWER_BYTES},
    ids,
    rooms::{field, in_room, no_view, unreadable},
};

/// How a user stands to a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Membership {
    /// They are in it.
    Join,
    /// They may come in.
    Invite,
    /// They may not come in until somebody lifts it.
    Ban,
    /// They asked to be let in.
    Knock,
    /// They left, were removed, or declined.
    Leave,
}

impl Membership {
    /// By the name that Matrix has for it.
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

/// A user and how they stand to a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The user; of whatever server.
    pub user_id: OwnedUserId,
    /// How they stand to it.
    pub membership: Membership,
    /// The event that says so.
    pub event_id: OwnedEventId,
}

/// What became of an invitation.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Invited {
    /// They are invited, now or since before.
    Invited(OwnedEventId),
    /// They are in the room already, by this event.
    AlreadyIn(OwnedEventId),
}

// A membership is set as the state that it is, because the answer to that names the event. Synapse handles it as it does
// `/join` and the like: it fills in the profile, and answers with the event of before if nothing would change.
impl Homeserver {
    /// Lets a user come in, acting as them: the room must be public, or they must have been invited. The id is that of
    /// their member event, also when they were in already. Synapse does this for deactivated users too: nobody may be
    /// let in after [`Self::deactivate`].
    pub async fn join(&self, room: &RoomId, localpart: &str) -> Result<OwnedEventId, Error> {
        let user_id = self.user_id(localpart)?;
        self.set_membership(room, &user_id, "join", &user_id, Acting::AsTheUser).await
    }

    /// Lets a user leave, or decline an invitation, acting as them. The id is that of their member event, also when
    /// they were out already: by themselves, removed or banned. None if they were never there, or if that is a room
    /// that the bot does not know.
    pub async fn leave(&self, room: &RoomId, localpart: &str) -> Result<Option<OwnedEventId>, Error> {
        let user_id = self.user_id(localpart)?;
        let refusal = match self.set_membership(room, &user_id, "leave", &user_id, Acting::AsTheUser).await {
            Ok(event_id) => return Ok(Some(event_id)),
            Err(Error::NoSuchRoom(_)) => return Ok(None),
            Err(refusal @ Error::ForbiddenInRoom { .. }) => refusal,
            Err(error) => return Err(error),
        };
        // It is refused to whoever is not in the room.
        match self.member(room, &user_id).await {
            Ok(Some(member)) if matches!(member.membership, Membership::Leave | Membership::Ban) => {
                Ok(Some(member.event_id))
            }
            Ok(Some(_)) => Err(refusal),
            Ok(None) | Err(Error::NoSuchRoom(_)) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// Invites a user; by this user, or else by the bot. The id is that of the invited user's member event, also when
    /// they were invited already. If they are in the room already, that is fine, and the id is that of their joining.
    /// A ban is not lifted. Synapse does not ask whether there is such a user.
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

    /// Removes a user of whatever server, or takes an invitation back, as the bot. The id is that of the member event
    /// that says so; none if they were not there. A ban stays. Two requests, because the one that could name the event
    /// would also lift a ban.
    pub async fn kick(&self, room: &RoomId, user_id: &UserId, reason: &str) -> Result<Option<OwnedEventId>, Error> {
        if !self.remove(room, user_id, reason, &self.bot()?).await? {
            return Ok(None);
        }
        match self.member(room, user_id).await? {
            Some(Member { membership: Membership::Leave, event_id, .. }) => Ok(Some(event_id)),
            _ => Err(Error::Overtaken(room.to_owned())),
        }
    }

    /// The rooms that a user is in.
    pub async fn joined_rooms(&self, localpart: &str) -> Result<Vec<OwnedRoomId>, Error> {
        let user_id = self.user_id(localpart)?;
        let answer = self.call(joined_rooms::v3::Request::new(), &user_id, Acting::AsTheUser).await?;
        Ok(answer.joined_rooms)
    }

    /// Everybody's membership except those who left, as the bot sees it now; or as it saw it last, if it left. What cannot
    /// be read is left out.
    pub async fn members(&self, room: &RoomId) -> Result<Vec<Member>, Error> {
        let bot = self.bot()?;
        let mut request = get_member_events::v3::Request::new(ids::room_in_path(room)?);
        request.not_membership = Some(MembershipState::Leave);
        let answer = self
            .call_up_to(LONG_ANSWER_BYTES, request, &bot, Acting::AsTheService)
            .await
            .map_err(|error| no_view(error, room))?;
        // One that makes no sense must not hide all the others.
        Ok(answer.chunk.iter().filter_map(|event| read(event).ok()).collect())
    }

    /// How one user stands to the room. None if they never had anything to do with it.
    pub(crate) async fn member(&self, room: &RoomId, user_id: &UserId) -> Result<Option<Member>, Error> {
        let event = self.state_event(room, "m.room.member", user_id.as_str()).await?;
        let member = event.as_ref().map(read).transpose()?;
        match member {
            Some(member) if member.user_id != user_id => Err(unreadable("it is about another user")),
            member => Ok(member),
        }
    }

    /// Removes a user, as the bot. Says whether they were there.
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
        // Synapse refuses alike to remove who is not there and who is too mighty.
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

/// By hand, and only what is needed: the rest is of other people's making, and need not be what the specification says.
fn read<E>(event: &Raw<E>) -> Result<Member, Error> {
    let member = (|| {
        let content: Value = field(event, "content")?;
        Some(Member {
            user_id: field(event, "state_key")?,
            membership: Membership::parse(content.get("membership")?.as_str()?)?,
            event_id: field(event, "event_id")?,
        })
    })();
    member.ok_or_else(|| unreadable("it has something else than member events"))
}
