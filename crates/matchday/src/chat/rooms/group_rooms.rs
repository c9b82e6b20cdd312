//! Rooms of leagues: their members are the members of the league, and its owner moderates them.

use matrix_appservice::Invited;
use sqlx::PgConnection;
use web::ids::{LeagueId, RoomId, UserId};

use super::{
    rules::RoomAddress,
    service::{Room, RoomError, Rooms, address_of},
    store::{self, NewRow},
};
use crate::chat::{
    membership_sync::{Membership, service::ConfirmedMembership},
    roles,
};

impl Rooms {
    /// Plans the room of a league in the caller's transaction, which has locked the league. Returns the existing one, if
    /// any.
    pub async fn plan_league_in(
        &self,
        connection: &mut PgConnection,
        league: LeagueId,
        owner: UserId,
        name: &str,
    ) -> sqlx::Result<RoomId> {
        let (alias, now) = (self.fresh_alias("room"), self.inner.clock.now());
        let row = NewRow {
            alias: &alias,
            name,
            topic: "",
            event_id: None,
            stand: None,
            creator_id: Some(owner),
            is_private: true,
            league_id: Some(league),
        };
        if let Some(room) = store::insert(connection, &[row], now, now).await?.pop() {
            roles::change_powers_in(connection, room.id).await?;
            return Ok(room.id);
        }
        Ok(store::of_league(connection, league).await?.ok_or(sqlx::Error::RowNotFound)?.id)
    }

    /// Number of league rooms whose creator a user is, apart from the room of this league. Also of deleted leagues.
    pub async fn count_league_rooms(
        &self,
        connection: &mut PgConnection,
        creator: UserId,
        except: LeagueId,
    ) -> sqlx::Result<i64> {
        store::count_league_rooms(connection, creator, except).await
    }

    /// Creates a planned room on the homeserver, unless it exists there.
    pub async fn make_planned(&self, room: RoomId) -> Result<RoomAddress, RoomError> {
        self.made(room).await?.parse().map_err(|()| RoomError::NotFound)
    }

    /// Returns the open room of a league, also of a league that was deleted.
    pub async fn of_league(&self, league: LeagueId) -> sqlx::Result<Option<RoomAddress>> {
        let room = store::of_league(&self.inner.db, league).await?.filter(|room| room.opened_at.is_some());
        Ok(room.and_then(|room| room.matrix_id?.parse().ok()))
    }

    /// Lets a member of a league join its room: the bot invites them, and they accept.
    pub async fn admit(&self, user: UserId, address: &RoomAddress) -> Result<(), RoomError> {
        let room = self.find(address).await?;
        match self.membership(user, room.id).await? {
            Some(Membership::Join) => return Ok(()),
            Some(Membership::Ban) => return Err(RoomError::NotAllowed),
            _ => {}
        }
        if self.invite_by_bot(user, &room).await? == Membership::Invite {
            self.join(user, address).await?;
        }
        Ok(())
    }

    /// Invites a user as the bot. Returns the membership of the user.
    pub(super) async fn invite_by_bot(&self, user: UserId, room: &Room) -> Result<Membership, RoomError> {
        let account = self.inner.chat.account(user).await?;
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
        self.inner.sync.note(confirmed).await?;
        Ok(membership)
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

/// Makes the new owner of a league the creator of its room, in the transaction that changes the league. The previous one
/// keeps no role there.
pub async fn hand_over_in(connection: &mut PgConnection, league: LeagueId, owner: UserId) -> sqlx::Result<()> {
    let Some(room) = store::of_league(&mut *connection, league).await? else { return Ok(()) };
    roles::lock_room(connection, room.id).await?;
    store::set_creator(connection, room.id, owner).await?;
    roles::dismiss_in(connection, room.id, owner).await?;
    // A moderator must be able to write.
    roles::unmute(connection, room.id, owner, None).await?;
    roles::change_powers_in(connection, room.id).await
}

/// Ends the role of a user who leaves a league in its room, in the transaction that ends the membership.
pub async fn end_role_in(connection: &mut PgConnection, league: LeagueId, user: UserId) -> sqlx::Result<()> {
    let Some(room) = store::of_league(&mut *connection, league).await? else { return Ok(()) };
    if roles::is_moderator(&mut *connection, room.id, user).await? {
        roles::lock_room(connection, room.id).await?;
        roles::dismiss_in(connection, room.id, user).await?;
    }
    Ok(())
}
