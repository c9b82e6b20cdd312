//! Listing, joining and leaving rooms, and inviting to them. How they are made is in `making.rs`, what workers do about
//! them in `work.rs`.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use matrix_appservice::{Error as MatrixError, Homeserver, Invited, OwnedRoomId, RoomId as MatrixRoomId};
use platform::{
    Core,
    clock::Clock,
    random::Random,
    rate_limit::{Decision, Limit, RateLimiter},
};
use serde::Deserialize;
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::{Notify, OnceCell, Semaphore};
use web::{
    fields::Search,
    ids::{MatchId, RoomId, UserId},
    paging::Paging,
};

use super::{
    line::{Busy, Line},
    rules::{RoomAddress, RoomName, Topic},
    settings::Settings,
    store,
};
use crate::{
    catalogue::matches::service::Matches,
    chat::{
        accounts::service::{Chat, ChatError},
        blocks,
        membership_sync::{
            Membership,
            service::{ConfirmedMembership, MembershipSync},
        },
    },
    identity::{
        accounts::service::{Account, Accounts},
        sessions::service::SessionError,
        usernames::Username,
    },
};

/// How many joins this process sends to the homeserver at once. It takes ten membership changes at a time; more would
/// only wait there, longer than anybody here waits for them, and look as if it were away.
const JOINS_AT_ONCE: usize = 10;

/// Rooms share that many lines.
const LINES: usize = 64;

/// Who did something in this time is active.
const ACTIVE_FOR: time::Duration = time::Duration::days(7);

/// The chat rooms.
#[derive(Clone)]
pub struct Rooms {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) capacity: i64,
    pub(super) chat: Chat,
    pub(super) mirror: MembershipSync,
    pub(super) accounts: Accounts,
    pub(super) events: Arc<Matches>,
    pub(super) limiter: RateLimiter,
    pub(super) leniency: u32,
    pub(super) patience: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) outbox_written: Arc<Notify>,
    pub(super) joins: Semaphore,
    pub(super) lines: [Line; LINES],
    /// Whether the homeserver knows the bot.
    pub(super) bot: OnceCell<()>,
}

/// A room.
#[derive(Clone, Debug)]
pub struct Room {
    /// Here.
    pub id: RoomId,
    /// On the homeserver, once it is there.
    pub matrix_id: Option<String>,
    /// What it is asked for under.
    pub alias: String,
    /// For people.
    pub name: String,
    /// What it is about.
    pub topic: String,
    /// Its match.
    pub event_id: Option<MatchId>,
    /// Which of the match's own rooms it is.
    pub stand: Option<i32>,
    /// Who opened it; nobody opens a match's own.
    pub creator_id: Option<UserId>,
    /// Whether only those who are asked may come. Then it is also encrypted.
    pub is_private: bool,
    /// When it was asked for.
    pub created_at: OffsetDateTime,
    /// When it was there for everybody.
    pub opened_at: Option<OffsetDateTime>,
    /// Since when the homeserver has its alias and no more.
    pub half_made_at: Option<OffsetDateTime>,
}

/// What somebody wants a room to be.
#[derive(Clone, Debug)]
pub struct Wish {
    pub(super) name: RoomName,
    pub(super) topic: Topic,
    pub(super) event_id: Option<MatchId>,
    pub(super) is_private: bool,
}

/// Which rooms are wanted.
#[derive(Clone, Debug, Default)]
pub struct RoomFilter {
    /// Only those that the caller has joined.
    pub joined: bool,
    /// Only those of this match.
    pub event_id: Option<MatchId>,
    /// Only those with this in their name.
    pub search: Option<Search>,
}

/// A room as lists show it.
#[derive(Clone, Debug)]
pub struct ListedRoom {
    /// On the homeserver.
    pub matrix_id: String,
    /// For people.
    pub name: String,
    /// What it is about.
    pub topic: String,
    /// Its match: id, home team, away team, start.
    pub event: Option<(MatchId, String, String, OffsetDateTime)>,
    /// Which of the match's own rooms it is.
    pub stand: Option<i32>,
    /// How many have joined.
    pub member_count: i64,
    /// Whether the caller has.
    pub is_joined: bool,
    /// Whether only those who are asked may come.
    pub is_private: bool,
    /// When somebody last spoke.
    pub last_activity: OffsetDateTime,
}

/// What the members of a room are and do.
#[derive(Clone, Debug)]
pub struct MemberStats {
    /// How many there are.
    pub total_members: i64,
    /// How many spoke, predicted or joined in the last week.
    pub active_members: i64,
    /// How many predictions they made on the room's match.
    pub predictions_made: i64,
    /// How many are for which team, by slug; `neutral` for the rest.
    pub team_distribution: BTreeMap<String, i64>,
    /// Who is right most often.
    pub top_predictors: Vec<TopPredictor>,
}

/// A member who is right often.
#[derive(Clone, Debug, Deserialize)]
pub struct TopPredictor {
    /// Who.
    pub user_id: UserId,
    /// What they are called.
    pub username: String,
    /// How often they were right.
    pub correct_predictions: i64,
    /// Of all predictions on matches that are over, from 0 to 1.
    pub accuracy: f64,
}

/// Where somebody is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Joined {
    /// The room on the homeserver. For a match it may be another stand than the one asked for.
    pub matrix_id: String,
    /// Which stand, if it is another one than the one asked for.
    pub other_stand: Option<i32>,
}

/// Whom an invitation is for.
#[derive(Clone, Debug)]
pub enum Invitee {
    /// By id.
    Id(UserId),
    /// By name.
    Name(Username),
}

/// What is limited by user.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    /// Opening a room.
    Create,
    /// Joining or leaving one.
    Move,
    /// Asking somebody to come.
    Invite,
}

/// Why something was not done.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    /// There is no such room.
    #[error("there is no such room")]
    NotFound,
    /// There is no such match.
    #[error("there is no such match")]
    NoSuchMatch,
    /// There is nobody of that id or name.
    #[error("there is no such user")]
    NoSuchUser,
    /// Not for the caller: a private room, or one that they were banned from.
    #[error("the room is not open to the caller")]
    NotAllowed,
    /// The caller is not in it.
    #[error("the caller is not a member")]
    NotAMember,
    /// The caller, or whom they invite, is in it already.
    #[error("already a member")]
    AlreadyMember,
    /// Whom they invite does not want to hear of the caller.
    #[error("the invitation is not wanted")]
    Refused,
    /// An operator muted the caller.
    #[error("the caller is muted")]
    Muted,
    /// Too many are joining the room at this moment.
    #[error("too many are joining the room")]
    Busy {
        /// When to come back.
        retry_after: Duration,
    },
    /// Chat does not answer.
    #[error("chat is not available: {0}")]
    Chat(String),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A message could not be written.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl From<MatrixError> for RoomError {
    fn from(error: MatrixError) -> Self {
        match error {
            MatrixError::Suspended(_) => Self::Muted,
            MatrixError::ForbiddenInRoom { .. } => Self::NotAllowed,
            MatrixError::NoSuchRoom(_) => Self::NotFound,
            other => Self::Chat(other.to_string()),
        }
    }
}

impl From<ChatError> for RoomError {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Homeserver(error) => error.into(),
            ChatError::Muted => Self::Muted,
            ChatError::Session(SessionError::Database(error)) => Self::Database(error),
            other => Self::Chat(other.to_string()),
        }
    }
}

impl Rooms {
    /// Rooms in this database, on this homeserver.
    pub fn new(
        core: &Core,
        settings: &Settings,
        patience: Duration,
        chat: Chat,
        mirror: MembershipSync,
        accounts: Accounts,
        events: Arc<Matches>,
    ) -> Self {
        let Core { db, clock, random, limits: limiter, outbox_written, .. } = core.clone();
        let inner = Inner {
            db,
            capacity: settings.match_capacity.into(),
            chat,
            mirror,
            accounts,
            events,
            limiter,
            leniency: core.env.leniency(),
            patience,
            clock,
            random,
            outbox_written,
            joins: Semaphore::new(JOINS_AT_ONCE),
            lines: std::array::from_fn(|_| Line::new()),
            bot: OnceCell::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Takes from how often a user may do something.
    pub async fn permit(&self, action: Action, user: UserId) -> Decision {
        self.inner.limiter.take(self.limit(action), &user.to_string()).await
    }

    fn limit(&self, action: Action) -> Limit {
        let (name, burst, every) = match action {
            Action::Create => ("room_create", 10, Duration::from_mins(1)),
            Action::Move => ("room_move", 60, Duration::from_secs(2)),
            Action::Invite => ("room_invite", 30, Duration::from_secs(10)),
        };
        Limit { name, burst: burst * self.inner.leniency, every: every / self.inner.leniency }
    }

    /// Gives back what was taken for something that chat did not do.
    pub async fn give_back(&self, action: Action, user: UserId) {
        self.inner.limiter.untake(self.limit(action), &user.to_string()).await;
    }

    /// The room that the homeserver calls so.
    pub async fn find(&self, address: &RoomAddress) -> Result<Room, RoomError> {
        store::find(&self.inner.db, address.as_str()).await?.ok_or(RoomError::NotFound)
    }

    /// The same, if a user may look into it: any public room, or a private one they are a member of.
    pub async fn find_readable(&self, user: UserId, address: &RoomAddress) -> Result<Room, RoomError> {
        let room = self.find(address).await?;
        if room.is_private && self.membership(user, room.id).await? != Some(Membership::Join) {
            return Err(RoomError::NotAllowed);
        }
        Ok(room)
    }

    /// What a user is to a room.
    pub async fn membership(&self, user: UserId, room: RoomId) -> sqlx::Result<Option<Membership>> {
        store::membership(&self.inner.db, user, room).await
    }

    /// The rooms that a user has joined or is asked to join.
    pub async fn of_user(&self, user: UserId) -> sqlx::Result<Vec<(Room, Membership)>> {
        store::of_user(&self.inner.db, user).await
    }

    /// A page of the rooms that a user may see, the liveliest first, and how many there are.
    pub async fn list(
        &self,
        user: UserId,
        filter: &RoomFilter,
        paging: Paging,
    ) -> sqlx::Result<(Vec<ListedRoom>, i64)> {
        store::list(&self.inner.db, user, filter, paging).await
    }

    /// What the members of a room are and do, without the names of members whom this user blocked.
    pub async fn member_stats(&self, user: UserId, room: &Room) -> sqlx::Result<MemberStats> {
        store::member_stats(&self.inner.db, user, room, self.inner.clock.now() - ACTIVE_FOR).await
    }

    /// Joins a room. For a match it may be another stand than the one asked for, when that is full.
    pub async fn join(&self, user: UserId, address: &RoomAddress) -> Result<Joined, RoomError> {
        let room = self.find(address).await?;
        let standing = self.membership(user, room.id).await?;
        match standing {
            Some(Membership::Join) => return Err(RoomError::AlreadyMember),
            Some(Membership::Ban) => return Err(RoomError::NotAllowed),
            Some(Membership::Invite) => {}
            // The homeserver would refuse as well; it need not be asked.
            _ if room.is_private => return Err(RoomError::NotAllowed),
            _ => {}
        }
        // Before anything that costs: most of a crowd is refused here. A homeserver that is down refuses nobody for that.
        self.homeserver()?;
        let (line, now) = (self.line(&room), self.inner.clock.now());
        let entered = line.enter(&*self.inner.random, now, self.inner.patience).await;
        let _place = entered.map_err(|Busy { retry_after }| RoomError::Busy { retry_after })?;
        let account = self.speaker(user).await?;
        if let (Some(event), Some(_)) = (room.event_id, room.stand) {
            return self.join_match(&account, event, &room).await;
        }
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        self.enter(&account, room.id, &matrix_id).await?;
        Ok(Joined { matrix_id: matrix_id.to_string(), other_stand: None })
    }

    /// The line in front of a room. The stands of a match share one: at any moment nearly everybody goes to the same stand.
    fn line(&self, room: &Room) -> &Line {
        let key = room.event_id.filter(|_| room.stand.is_some()).map_or(room.id.0, |event| event.0);
        &self.inner.lines[usize::try_from(key.unsigned_abs()).unwrap_or_default() % LINES]
    }

    /// The same as [`Self::enter`] for work that would fail as a whole if it were refused: it waits in line.
    pub(super) async fn enter_patiently(
        &self,
        account: &Account,
        room: &Room,
        matrix_id: &MatrixRoomId,
    ) -> Result<(), RoomError> {
        let (line, patience) = (self.line(room), self.inner.patience);
        let place = line.enter_patiently(patience).await;
        let _place = place.ok_or(RoomError::Busy { retry_after: patience })?;
        self.enter(account, room.id, matrix_id).await
    }

    /// Puts somebody who has a place in the line into a room of the homeserver, and takes note of it.
    pub(super) async fn enter(
        &self,
        account: &Account,
        room: RoomId,
        matrix_id: &MatrixRoomId,
    ) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        let sending = tokio::time::timeout(inner.patience, inner.joins.acquire()).await;
        let Ok(Ok(_sending)) = sending else { return Err(RoomError::Busy { retry_after: inner.patience }) };
        let event_id = homeserver.join(matrix_id, account.username.as_str()).await?;
        let told = ConfirmedMembership {
            room,
            user: account.id,
            membership: Membership::Join,
            event_id: Some(event_id.as_str()),
            invited_by: None,
        };
        inner.mirror.note(told).await?;
        // Whoever was banned meanwhile was taken out of all rooms, but maybe before they were in this one.
        if inner.accounts.find(account.id).await?.is_some_and(|now| now.banned_at.is_some()) {
            self.take_out(account, room, matrix_id).await?;
            return Err(RoomError::NotAllowed);
        }
        Ok(())
    }

    /// Leaves a room, or declines an invitation to it.
    pub async fn leave(&self, user: UserId, address: &RoomAddress) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let room = self.find(address).await?;
        match self.membership(user, room.id).await? {
            Some(Membership::Join | Membership::Invite) => {}
            _ if room.is_private => return Err(RoomError::NotAllowed),
            _ => return Err(RoomError::NotAMember),
        }
        let account = inner.chat.account(user).await?;
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        self.take_out(&account, room.id, &matrix_id).await
    }

    pub(super) async fn take_out(
        &self,
        account: &Account,
        room: RoomId,
        matrix_id: &MatrixRoomId,
    ) -> Result<(), RoomError> {
        let event_id = self.homeserver()?.leave(matrix_id, account.username.as_str()).await?;
        let told = ConfirmedMembership {
            room,
            user: account.id,
            membership: Membership::Leave,
            event_id: event_id.as_ref().map(|id| id.as_str()),
            invited_by: None,
        };
        Ok(self.inner.mirror.note(told).await?)
    }

    /// Asks somebody to come.
    pub async fn invite(&self, user: UserId, address: &RoomAddress, invitee: &Invitee) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let room = self.find(address).await?;
        if self.membership(user, room.id).await? != Some(Membership::Join) {
            return Err(if room.is_private { RoomError::NotAllowed } else { RoomError::NotAMember });
        }
        let account = self.speaker(user).await?;
        let guest = match invitee {
            Invitee::Id(id) => inner.accounts.find(*id).await?,
            Invitee::Name(name) => inner.accounts.named(name.as_str()).await?,
        };
        let guest = guest.ok_or(RoomError::NoSuchUser)?;
        match self.membership(guest.id, room.id).await? {
            Some(Membership::Join) => return Err(RoomError::AlreadyMember),
            Some(Membership::Ban) => return Err(RoomError::NotAllowed),
            // Asking twice is asking once.
            Some(Membership::Invite) => return Ok(()),
            _ => {}
        }
        if blocks::has_blocked(&inner.db, guest.id, user).await? {
            return Err(RoomError::Refused);
        }
        inner.chat.account(guest.id).await?;
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        let by = Some(account.username.as_str());
        let outcome = self.homeserver()?.invite(&matrix_id, by, guest.username.as_str()).await?;
        // They may have come by a chat client so lately that nobody here has heard of it.
        let (membership, event_id, invited_by) = match &outcome {
            Invited::Invited(event_id) => (Membership::Invite, event_id, Some(user)),
            Invited::AlreadyIn(event_id) => (Membership::Join, event_id, None),
        };
        let told = ConfirmedMembership {
            room: room.id,
            user: guest.id,
            membership,
            event_id: Some(event_id.as_str()),
            invited_by,
        };
        inner.mirror.note(told).await?;
        if membership == Membership::Join { Err(RoomError::AlreadyMember) } else { Ok(()) }
    }

    /// Somebody who may speak, with a chat account.
    pub(super) async fn speaker(&self, user: UserId) -> Result<Account, RoomError> {
        let account = self.inner.chat.account(user).await?;
        if account.muted_at.is_some() { Err(RoomError::Muted) } else { Ok(account) }
    }

    pub(super) fn homeserver(&self) -> Result<&Homeserver, RoomError> {
        let homeserver = self.inner.chat.homeserver().ok_or(ChatError::None)?;
        // While it is away, nobody waits for it.
        if homeserver.is_resting() { Err(ChatError::Unavailable.into()) } else { Ok(homeserver) }
    }
}

pub(super) fn address_of(matrix_id: &str) -> Result<OwnedRoomId, RoomError> {
    MatrixRoomId::parse(matrix_id).map_err(|_| RoomError::NotFound)
}
