//! Background work for rooms.

use std::{collections::BTreeMap, time::Duration};

use matrix_appservice::Error as MatrixError;
use platform::stream::{Delivery, Failure, Stream, WorkSpec};
use web::ids::{RoomId, UserId};

use super::{
    making::{MOVED, PLANNED, RoomWork},
    service::{Room, RoomError, Rooms, address_of},
    store,
};
use crate::{
    chat::{
        membership_sync::{Membership, service::ConfirmedMembership},
        messages::{UNWANTED, Unwanted},
        roles::{self, MODERATOR_LEVEL, MUTED_LEVEL, POWERS, PowersChanged},
    },
    identity::{accounts, usernames::Username},
};

impl Rooms {
    /// Consumer settings for the `work.room.>` subjects.
    pub fn work() -> WorkSpec {
        WorkSpec {
            longest_pause: Duration::from_secs(30),
            at_once: 2,
            ..WorkSpec::new("rooms", Stream::Work, "work.room.>")
        }
    }

    /// Handles one message. Idempotent.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        if !self.has_homeserver() {
            return Ok(());
        }
        let unreadable = |error: serde_json::Error| Failure::GiveUp(error.into());
        let outcome = match delivery.subject.as_str() {
            PLANNED => {
                let RoomWork { room_id } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.made(room_id).await.map(|_| ())
            }
            MOVED => {
                let RoomWork { room_id } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.describe(room_id).await
            }
            UNWANTED => {
                let Unwanted { room_id, user_id } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.refuse(room_id, user_id).await
            }
            POWERS => {
                let PowersChanged { room_id } = serde_json::from_slice(&delivery.payload).map_err(unreadable)?;
                self.apply_powers(room_id).await
            }
            other => return Err(Failure::GiveUp(anyhow::anyhow!("unknown subject {other}"))),
        };
        match outcome {
            // The room or the account was deleted in the meantime.
            Ok(()) | Err(RoomError::NotFound | RoomError::NoSuchUser) => Ok(()),
            // An operator must resolve this.
            Err(error) if error.is_final() => Err(Failure::GiveUp(error.into())),
            Err(error) => Err(Failure::retry(error)),
        }
    }

    /// Gives the homeserver the current power levels of a room.
    ///
    /// Two workers may do this for one room at the same time, and the one with the older levels may write last. A worker
    /// that finds that another one has noted its levels in the meantime writes again.
    pub(crate) async fn apply_powers(&self, room: RoomId) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let mut was_overtaken = false;
        while let Some((version, applied)) = roles::powers_version(&inner.db, room).await?
            && (applied < version || was_overtaken)
        {
            // Read after the version: the creator may have changed.
            let current = store::get(&inner.db, room).await?.ok_or(RoomError::NotFound)?;
            self.write_powers(&current).await?;
            was_overtaken = !roles::note_powers(&inner.db, room, version, applied).await?;
        }
        Ok(())
    }

    /// Writes the power levels that follow from the roles of the members.
    async fn write_powers(&self, room: &Room) -> Result<(), RoomError> {
        let (inner, homeserver) = (&*self.inner, self.homeserver()?);
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        let mut levels: Vec<(UserId, i64)> = Vec::new();
        let mut connection = inner.db.acquire().await?;
        levels
            .extend(roles::mutes(&mut *connection, room.id).await?.into_iter().map(|mute| (mute.user_id, MUTED_LEVEL)));
        let moderators = roles::moderators(&mut *connection, room.id).await?;
        levels.extend(moderators.into_iter().chain(room.creator_id).map(|user| (user, MODERATOR_LEVEL)));
        let ids: Vec<i64> = levels.iter().map(|(user, _)| user.0).collect();
        let names = accounts::usernames(&mut connection, &ids).await?;
        drop(connection);
        let mut users = BTreeMap::new();
        for (user, level) in levels {
            // The account was deleted.
            let Some(name) = names.get(&user) else { continue };
            users.insert(homeserver.user_id(name)?, level);
        }
        Ok(homeserver.set_power_levels(&matrix_id, &users).await?)
    }

    /// Adds the new chat account of a renamed user to the rooms of the old one, with the same power.
    pub async fn follow(&self, user: UserId, from: &Username) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        let account = inner.chat.account(user).await?;
        let joined = match homeserver.joined_rooms(from.as_str()).await {
            Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => Vec::new(),
            outcome => outcome?,
        };
        for matrix_id in joined {
            // Not managed by this service, for example a direct conversation.
            let Some(room) = store::find(&inner.db, matrix_id.as_str()).await? else { continue };
            let followed = async {
                if room.is_private {
                    homeserver.invite(&matrix_id, None, account.username.as_str()).await?;
                }
                if room.creator_id == Some(user) || roles::moderated_or_muted(&inner.db, room.id, user).await? {
                    self.write_powers(&room).await?;
                }
                self.enter_patiently(&account, &room, &matrix_id).await
            };
            Self::skip_refusals(room.id, followed.await)?;
        }
        for (room, membership) in store::of_user(&inner.db, user).await? {
            if membership == Membership::Invite
                && let Some(matrix_id) = &room.matrix_id
            {
                let invited = homeserver.invite(&address_of(matrix_id)?, None, account.username.as_str()).await;
                Self::skip_refusals(room.id, invited.map(|_| ()).map_err(RoomError::from))?;
            }
        }
        Ok(())
    }

    /// Removes a user from all rooms.
    pub async fn expel(&self, user: UserId, reason: &str) -> Result<(), RoomError> {
        let homeserver = self.homeserver()?;
        let Some(account) = self.inner.accounts.find(user).await? else { return Ok(()) };
        let matrix_user = homeserver.user_id(account.username.as_str())?;
        let known = store::of_user(&self.inner.db, user).await?;
        let mut rooms: Vec<Room> = known.into_iter().map(|(room, _)| room).collect();
        // Include rooms that the user joined with a chat client and that the membership sync has not recorded yet.
        let joined = match homeserver.joined_rooms(account.username.as_str()).await {
            Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => Vec::new(),
            outcome => outcome?,
        };
        for matrix_id in joined {
            if let Some(room) = store::find(&self.inner.db, matrix_id.as_str()).await?
                && rooms.iter().all(|known| known.id != room.id)
            {
                rooms.push(room);
            }
        }
        for room in rooms {
            let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
            let expelled = async {
                let event_id = homeserver.kick(&matrix_id, &matrix_user, reason).await?;
                let confirmed = ConfirmedMembership {
                    room: room.id,
                    user,
                    membership: Membership::Leave,
                    event_id: event_id.as_ref().map(|id| id.as_str()),
                    invited_by: None,
                };
                Ok(self.inner.sync.note(confirmed).await?)
            };
            Self::skip_refusals(room.id, expelled.await)?;
        }
        Ok(())
    }

    /// Logs a refusal, so that one room does not prevent the work in the others.
    fn skip_refusals(room: RoomId, outcome: Result<(), RoomError>) -> Result<(), RoomError> {
        match outcome {
            Err(error @ (RoomError::NotAllowed | RoomError::NotFound)) => {
                tracing::error!(%error, room = room.0, "room skipped because it refused the change");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// Declines an invitation for the invited user.
    async fn refuse(&self, room: RoomId, user: UserId) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let room = store::get(&inner.db, room).await?.ok_or(RoomError::NotFound)?;
        if self.membership(user, room.id).await? != Some(Membership::Invite) {
            return Ok(());
        }
        let account = inner.chat.account(user).await?;
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        self.take_out(&account, room.id, &matrix_id).await
    }
}
