//! Appoints moderators, sets slow mode, and mutes members of a room.

use std::sync::Arc;

use platform::{Core, clock::Clock, database};
use serde_json::json;
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::Notify;
use web::ids::UserId;

use super::rules::{MuteSeconds, SlowMode, UserName};
use crate::{
    chat::{
        membership_sync::Membership,
        roles::{self, RoomMute},
        rooms::{
            RoomAddress,
            service::{Room, RoomError, Rooms},
        },
    },
    identity::{
        accounts::{
            self,
            service::{Account, Accounts},
        },
        operators::{self, Operator, service::Action},
    },
};

/// Number of moderators of a room, without its creator.
const MOST_MODERATORS: i64 = 20;

/// Number of mutes that one run of the worker ends.
const LIFTED_AT_ONCE: i64 = 100;

/// Moderation of rooms. Cheap to clone.
#[derive(Clone)]
pub struct RoomModeration {
    db: PgPool,
    rooms: Rooms,
    accounts: Accounts,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
}

/// A moderator of a room.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Moderator {
    pub id: UserId,
    pub username: String,
}

/// Reason why an act of moderation failed.
#[derive(Debug, thiserror::Error)]
pub enum RoleError {
    #[error(transparent)]
    Room(#[from] RoomError),
    /// Only the creator of the room may do this.
    #[error("the caller did not create the room")]
    NotTheCreator,
    /// Only moderators of the room and its creator may do this.
    #[error("the caller does not moderate the room")]
    NotAModerator,
    #[error("the user is not a member of the room")]
    NoSuchMember,
    #[error("the creator of a room cannot be dismissed")]
    IsCreator,
    #[error("moderators of a room cannot be muted there")]
    IsModerator,
    #[error("the room has too many moderators")]
    TooMany,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl RoomModeration {
    pub fn new(core: &Core, rooms: Rooms, accounts: Accounts) -> Self {
        let Core { db, clock, outbox_written, .. } = core.clone();
        Self { db, rooms, accounts, clock, outbox_written }
    }

    /// Returns the open room with this homeserver id, for an operator.
    pub async fn room(&self, address: &RoomAddress) -> Result<Room, RoomError> {
        self.rooms.find(address).await
    }

    /// The creator of a room, if a user created it, and its moderators in the order of their appointment.
    pub async fn moderators(&self, room: &Room) -> sqlx::Result<Vec<Moderator>> {
        let mut connection = self.db.acquire().await?;
        let appointed = roles::moderators(&mut *connection, room.id).await?;
        let users: Vec<UserId> = room.creator_id.into_iter().chain(appointed).collect();
        let ids: Vec<i64> = users.iter().map(|user| user.0).collect();
        let mut names = accounts::usernames(&mut connection, &ids).await?;
        Ok(users.into_iter().filter_map(|id| Some(Moderator { id, username: names.remove(&id)? })).collect())
    }

    /// Makes a member a moderator, as the creator of the room.
    pub async fn appoint(&self, caller: UserId, room: &Room, user: &UserName) -> Result<(), RoleError> {
        check_creator(caller, room)?;
        self.appoint_by(&as_operator(caller, ""), room, user).await
    }

    /// Makes a member a moderator. Does nothing if the user is one.
    pub async fn appoint_by(&self, operator: &Operator, room: &Room, user: &UserName) -> Result<(), RoleError> {
        let user = self.member(room, user).await?.id;
        if room.creator_id == Some(user) {
            return Ok(());
        }
        let now = self.clock.now();
        let mut tx = database::begin(&self.db).await?;
        roles::lock_room(&mut tx, room.id).await?;
        if !roles::appoint(&mut tx, room.id, user, now).await? {
            return Ok(());
        }
        if roles::count_moderators(&mut *tx, room.id).await? > MOST_MODERATORS {
            return Err(RoleError::TooMany);
        }
        // A moderator must be able to write.
        roles::unmute(&mut tx, room.id, user, None).await?;
        roles::change_powers_in(&mut tx, room.id).await?;
        record(&mut tx, operator, "room.moderator.add", room, user, now).await?;
        self.commit(tx).await?;
        self.apply_powers(room).await;
        Ok(())
    }

    /// Dismisses a moderator, as the creator of the room or as that moderator.
    pub async fn dismiss(&self, caller: UserId, room: &Room, user: &UserName) -> Result<(), RoleError> {
        let is_self = self.account(user).await?.is_some_and(|account| account.id == caller);
        if !is_self || room.creator_id == Some(caller) {
            check_creator(caller, room)?;
        }
        self.dismiss_by(&as_operator(caller, ""), room, user).await
    }

    /// Dismisses a moderator. Does nothing if the user is not one.
    pub async fn dismiss_by(&self, operator: &Operator, room: &Room, user: &UserName) -> Result<(), RoleError> {
        let user = self.account(user).await?.ok_or(RoleError::NoSuchMember)?.id;
        if room.creator_id == Some(user) {
            return Err(RoleError::IsCreator);
        }
        let now = self.clock.now();
        let mut tx = database::begin(&self.db).await?;
        roles::lock_room(&mut tx, room.id).await?;
        if !roles::dismiss_in(&mut tx, room.id, user).await? {
            return Ok(());
        }
        record(&mut tx, operator, "room.moderator.remove", room, user, now).await?;
        self.commit(tx).await?;
        self.apply_powers(room).await;
        Ok(())
    }

    /// Sets the shortest time between two messages of a member, as a moderator.
    pub async fn set_slow_mode(&self, caller: UserId, room: &Room, period: SlowMode) -> Result<(), RoleError> {
        self.check_moderator(caller, room).await?;
        self.set_slow_mode_by(&as_operator(caller, ""), room, period).await
    }

    /// Sets the shortest time between two messages of a member.
    pub async fn set_slow_mode_by(
        &self,
        operator: &Operator,
        room: &Room,
        SlowMode(seconds): SlowMode,
    ) -> Result<(), RoleError> {
        let now = self.clock.now();
        let mut tx = database::begin(&self.db).await?;
        roles::lock_room(&mut tx, room.id).await?;
        if roles::set_slow_mode(&mut tx, room.id, seconds).await? == seconds {
            return Ok(());
        }
        let action = Action::new("room.slow_mode", target(room)).with(json!({"seconds": seconds}));
        operators::service::record(&mut tx, operator, &action, now).await?;
        self.commit(tx).await
    }

    /// Mutes a member in a room. Returns the user and the end of the mute.
    pub async fn mute(
        &self,
        caller: UserId,
        room: &Room,
        user: &UserName,
        MuteSeconds(seconds): MuteSeconds,
        reason: &str,
    ) -> Result<RoomMute, RoleError> {
        self.check_moderator(caller, room).await?;
        let user_id = self.member(room, user).await?.id;
        let now = self.clock.now();
        let until = now + time::Duration::seconds(seconds);
        let mute = RoomMute { user_id, until: until.replace_nanosecond(0).unwrap_or(until) };
        let operator = as_operator(caller, reason);
        let mut tx = database::begin(&self.db).await?;
        roles::lock_room(&mut tx, room.id).await?;
        if room.creator_id == Some(user_id) || roles::is_moderator(&mut *tx, room.id, user_id).await? {
            return Err(RoleError::IsModerator);
        }
        roles::mute(&mut tx, room.id, &mute, reason, &operator.name, now).await?;
        roles::change_powers_in(&mut tx, room.id).await?;
        let action = Action::new("room.mute", target(room)).with(json!({"user_id": user_id, "seconds": seconds}));
        operators::service::record(&mut tx, &operator, &action, now).await?;
        self.commit(tx).await?;
        self.apply_powers(room).await;
        Ok(mute)
    }

    /// Ends the mute of a user in a room. Does nothing if the user is not muted there.
    pub async fn unmute(&self, caller: UserId, room: &Room, user: &UserName) -> Result<(), RoleError> {
        self.check_moderator(caller, room).await?;
        let user = self.account(user).await?.ok_or(RoleError::NoSuchMember)?.id;
        let now = self.clock.now();
        let mut tx = database::begin(&self.db).await?;
        roles::lock_room(&mut tx, room.id).await?;
        if !roles::unmute(&mut tx, room.id, user, None).await? {
            return Ok(());
        }
        roles::change_powers_in(&mut tx, room.id).await?;
        record(&mut tx, &as_operator(caller, ""), "room.unmute", room, user, now).await?;
        self.commit(tx).await?;
        self.apply_powers(room).await;
        Ok(())
    }

    /// Ends the mutes whose time is over, so that the homeserver accepts messages again. Returns their number. Sending
    /// through the service does not depend on this: it checks the end of a mute itself.
    pub async fn lift_ended(&self) -> sqlx::Result<usize> {
        let mut lifted = 0;
        for (room, user) in roles::ended_mutes(&self.db, self.clock.now(), LIFTED_AT_ONCE).await? {
            let mut tx = database::begin(&self.db).await?;
            roles::lock_room(&mut tx, room).await?;
            // A moderator may have prolonged it, or another worker has ended it.
            if roles::unmute(&mut tx, room, user, Some(self.clock.now())).await? {
                roles::change_powers_in(&mut tx, room).await?;
                tx.commit().await?;
                self.outbox_written.notify_one();
                lifted += 1;
            }
        }
        Ok(lifted)
    }

    /// Deletes turns in slow mode that no longer delay a message. Returns their number.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let before = self.clock.now() - time::Duration::hours(2);
        database::sweep(|most| roles::sweep_turns(&self.db, before, most)).await
    }

    /// Refuses callers who neither created nor moderate the room.
    pub async fn check_moderator(&self, caller: UserId, room: &Room) -> Result<(), RoleError> {
        if self.rooms.moderates(caller, room).await? { Ok(()) } else { Err(RoleError::NotAModerator) }
    }

    /// Gives the homeserver the new power levels at once, so that the caller finds them there. If that fails, a worker does it.
    async fn apply_powers(&self, room: &Room) {
        if let Err(error) = self.rooms.apply_powers(room.id).await {
            tracing::debug!(%error, room = room.id.0, "power levels of a room not set yet; a worker sets them");
        }
    }

    async fn account(&self, user: &UserName) -> sqlx::Result<Option<Account>> {
        match user {
            UserName::Id(id) => self.accounts.find(*id).await,
            UserName::Name(name) => self.accounts.named(name.as_str()).await,
        }
    }

    /// A user who is in the room.
    async fn member(&self, room: &Room, user: &UserName) -> Result<Account, RoleError> {
        let account = self.account(user).await?.ok_or(RoleError::NoSuchMember)?;
        match self.rooms.membership(account.id, room.id).await? {
            Some(Membership::Join) => Ok(account),
            _ => Err(RoleError::NoSuchMember),
        }
    }

    async fn commit(&self, tx: sqlx::Transaction<'_, sqlx::Postgres>) -> Result<(), RoleError> {
        tx.commit().await?;
        self.outbox_written.notify_one();
        Ok(())
    }
}

fn check_creator(caller: UserId, room: &Room) -> Result<(), RoleError> {
    if room.creator_id == Some(caller) { Ok(()) } else { Err(RoleError::NotTheCreator) }
}

/// A moderator in the audit record.
pub(crate) fn as_operator(user: UserId, reason: &str) -> Operator {
    Operator::new(format!("user:{user}"), reason)
}

fn target(room: &Room) -> String {
    format!("room:{}", room.matrix_id.as_deref().unwrap_or_default())
}

async fn record(
    connection: &mut PgConnection,
    operator: &Operator,
    action: &'static str,
    room: &Room,
    user: UserId,
    now: OffsetDateTime,
) -> sqlx::Result<()> {
    let action = Action::new(action, target(room)).with(json!({"user_id": user}));
    operators::service::record(connection, operator, &action, now).await
}
