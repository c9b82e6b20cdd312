//! Listing, joining and leaving rooms, and inviting to them. `making.rs` creates rooms, `work.rs` handles background
//! work, `statistics.rs` counts members.

use std::{
    collections::HashMap,
    convert::Infallible,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use matrix_appservice::{Error as MatrixError, Homeserver, Invited, OwnedRoomId, RoomId as MatrixRoomId};
use platform::{
    Core,
    batches::{BatchError, Batches},
    claims::Claims,
    clock::Clock,
    random::{self, Random},
    rate_limit::{Decision, Limit, RateLimiter},
    reads::Reader,
    shards::Shards,
    single_flight::SingleFlight,
};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::{Notify, OnceCell, Semaphore};
use web::{
    fields::Search,
    ids::{LeagueId, MatchId, RoomId, UserId},
    paging::Paging,
};

use super::{
    joining::{Joins, Target},
    line::Line,
    rules::{RoomAddress, RoomName, Topic},
    seats::{self, SeatWriter},
    settings::Settings,
    store,
};
use crate::{
    catalogue::matches::service::Matches,
    chat::{
        accounts::service::{Chat, ChatError},
        blocks,
        filters::service::{FilterError, Filters},
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

/// Number of join queues above which empty ones are forgotten, with the pace that they measured.
const MANY_LINES: usize = 1_000;

/// Number of concurrent computations of statistics in this process.
const COMPUTATIONS_AT_ONCE: usize = 2;

/// Number of searches whose number of rooms is kept.
const COUNTS: usize = 1_000;

/// Time for which the number of rooms of a search is kept, because rooms can be renamed.
const SEARCH_KEPT_FOR: Duration = Duration::from_secs(1);
/// Time for which the number of all rooms is kept. It does not change: rooms that opened stay.
const COUNT_KEPT_FOR: Duration = Duration::from_mins(1);

/// Time after which a room that opened is certainly committed. Newer rooms are counted at each request, so that callers find
/// their own.
const OPENING: time::Duration = time::Duration::minutes(1);

/// Number of public rooms that opened until a time.
#[derive(Clone, Copy)]
pub(super) struct Counted {
    pub(super) until: OffsetDateTime,
    pub(super) public: i64,
    pub(super) at: Instant,
}

/// Service for chat rooms.
#[derive(Clone)]
pub struct Rooms {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) chat: Chat,
    pub(super) sync: MembershipSync,
    pub(super) accounts: Accounts,
    pub(super) filters: Filters,
    pub(super) events: Arc<Matches>,
    pub(super) limiter: RateLimiter,
    pub(super) leniency: u32,
    pub(super) patience: Duration,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) outbox_written: Arc<Notify>,
    pub(super) seats: Batches<SeatWriter>,
    pub(super) parallel_stands: u32,
    pub(super) joins: Joins,
    pub(super) lines: Mutex<HashMap<Target, Arc<Line>>>,
    /// Computations of the statistics of large rooms.
    pub(super) computing: SingleFlight<RoomId>,
    pub(super) computing_slots: Semaphore,
    /// Numbers of older public rooms, by the pattern of a search.
    pub(super) counts: quick_cache::sync::Cache<Option<String>, Arc<tokio::sync::Mutex<Option<Counted>>>>,
    /// Set once the bot is registered on the homeserver.
    pub(super) bot: OnceCell<()>,
}

#[derive(Clone, Debug)]
pub struct Room {
    pub id: RoomId,
    /// Id on the homeserver, once the room exists there.
    pub matrix_id: Option<String>,
    /// Localpart of the alias on the homeserver.
    pub alias: String,
    pub name: String,
    pub topic: String,
    pub event_id: Option<MatchId>,
    /// Number of the stand, for a match's own rooms.
    pub stand: Option<i32>,
    /// `None` for a match's own rooms.
    pub creator_id: Option<UserId>,
    /// A private room is invite-only and encrypted.
    pub is_private: bool,
    /// Time of the request or the planning.
    pub created_at: OffsetDateTime,
    /// Time since which users can see the room.
    pub opened_at: Option<OffsetDateTime>,
    /// Time since which the homeserver has only the alias of the room.
    pub half_made_at: Option<OffsetDateTime>,
    /// Shortest time between two messages of a member. Zero if the room is not in slow mode.
    pub slow_mode_seconds: i32,
    /// League whose members may be in the room. Only the bot invites them.
    pub league_id: Option<LeagueId>,
}

/// Request for a new room.
#[derive(Clone, Debug)]
pub struct RoomRequest {
    pub(super) name: RoomName,
    pub(super) topic: Topic,
    pub(super) event_id: Option<MatchId>,
    pub(super) is_private: bool,
}

/// Filter for the list of rooms.
#[derive(Clone, Debug, Default)]
pub struct RoomFilter {
    /// Only rooms that the caller has joined.
    pub joined: bool,
    /// Only rooms of this match.
    pub event_id: Option<MatchId>,
    /// Only rooms whose name contains this text.
    pub search: Option<Search>,
}

/// A room as shown in a list.
#[derive(Clone, Debug)]
pub struct ListedRoom {
    /// Room id on the homeserver.
    pub matrix_id: String,
    pub name: String,
    pub topic: String,
    /// The match: id, home team, away team, start time.
    pub event: Option<(MatchId, String, String, OffsetDateTime)>,
    /// Number of the stand, for a match's own rooms.
    pub stand: Option<i32>,
    pub member_count: i64,
    /// Whether the caller is a member.
    pub is_joined: bool,
    pub is_private: bool,
    /// Time of the latest message.
    pub last_activity: OffsetDateTime,
    /// Shortest time between two messages of a member. Zero if the room is not in slow mode.
    pub slow_mode_seconds: i32,
}

/// A room as operators and backends see it.
#[derive(Clone, Debug)]
pub struct RoomSummary {
    /// Room id on the homeserver.
    pub matrix_id: String,
    pub name: String,
    pub topic: String,
    pub event_id: Option<MatchId>,
    /// A private room is invite-only and encrypted.
    pub is_private: bool,
    pub member_count: i64,
    pub created_at: OffsetDateTime,
}

/// Result of joining a room.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Joined {
    /// The room on the homeserver. For a match, it may be another stand than requested.
    pub matrix_id: String,
    /// Number of the stand, if it is another one than requested.
    pub other_stand: Option<i32>,
}

/// User to invite, by id or by username.
#[derive(Clone, Debug)]
pub enum Invitee {
    Id(UserId),
    Name(Username),
}

/// Actions with a rate limit per user.
#[derive(Clone, Copy, Debug)]
pub enum Action {
    Create,
    /// Joining or leaving a room.
    Move,
    Invite,
    /// Sending a message.
    Send,
}

/// Reason why a room action failed.
#[derive(Debug, thiserror::Error)]
pub enum RoomError {
    #[error("the room does not exist")]
    NotFound,
    #[error("the match does not exist")]
    NoSuchMatch,
    /// No user has this id or name.
    #[error("the user does not exist")]
    NoSuchUser,
    /// The caller may not read or join the room, or invite to it: it is private, or the caller or the invited user is
    /// banned from it.
    #[error("the caller is not allowed to do this in the room")]
    NotAllowed,
    #[error("the caller is not a member")]
    NotAMember,
    /// The caller, or the invited user, is already a member.
    #[error("already a member")]
    AlreadyMember,
    /// The invited user has blocked the caller.
    #[error("the invited user has blocked the caller")]
    Refused,
    #[error("the caller has created too many rooms")]
    TooMany,
    /// An operator muted the caller, or a moderator muted them in this room.
    #[error("the caller is muted")]
    Muted,
    /// The room is in slow mode, and the caller wrote a short time ago.
    #[error("the caller must wait before the next message")]
    SlowMode { retry_after: Duration },
    /// A filter matches the message.
    #[error("a filter matches the message")]
    Filtered,
    /// Only chat clients of members can read and write in an encrypted room.
    #[error("the room is encrypted")]
    Encrypted,
    /// Too many users are joining the room at the same time.
    #[error("too many users are joining the room")]
    Busy { retry_after: Duration },
    /// The statistics of a large room are being computed for the first time.
    #[error("the statistics of the room are being computed")]
    StatisticsPending,
    /// A seat could not be reserved.
    #[error(transparent)]
    Seat(#[from] BatchError),
    /// The homeserver took too long, but works. The action may still happen.
    #[error("the homeserver is slow")]
    Slow,
    /// The homeserver's account with the name of the user was not created by this service.
    #[error("the chat account was not created by this service")]
    ForeignAccount,
    /// Chat is unavailable, for this reason.
    #[error("chat is unavailable: {0}")]
    Chat(String),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// An outbox message could not be serialised.
    #[error(transparent)]
    Message(#[from] serde_json::Error),
}

impl RoomError {
    /// Whether a retry by a worker cannot succeed.
    pub fn is_final(&self) -> bool {
        matches!(self, Self::NotAllowed | Self::Muted | Self::NoSuchUser | Self::ForeignAccount)
    }
}

impl From<MatrixError> for RoomError {
    fn from(error: MatrixError) -> Self {
        match error {
            MatrixError::Suspended(_) => Self::Muted,
            MatrixError::ForbiddenInRoom { .. } => Self::NotAllowed,
            MatrixError::NoSuchRoom(_) => Self::NotFound,
            MatrixError::TooSlow(_) | MatrixError::Busy { .. } => Self::Slow,
            other => Self::Chat(other.to_string()),
        }
    }
}

impl From<FilterError> for RoomError {
    fn from(error: FilterError) -> Self {
        match error {
            FilterError::Database(error) => Self::Database(error),
            FilterError::Message(error) => Self::Message(error),
            other => Self::Chat(other.to_string()),
        }
    }
}

impl From<ChatError> for RoomError {
    fn from(error: ChatError) -> Self {
        match error {
            ChatError::Homeserver(error) => error.into(),
            ChatError::Muted => Self::Muted,
            ChatError::Busy => Self::Slow,
            ChatError::ForeignAccount => Self::ForeignAccount,
            // The account of the user was deleted.
            ChatError::SessionEnded => Self::NoSuchUser,
            ChatError::Session(SessionError::Database(error)) => Self::Database(error),
            other => Self::Chat(other.to_string()),
        }
    }
}

impl Rooms {
    #[expect(clippy::too_many_arguments, reason = "takes the services that it calls")]
    pub fn new(
        core: &Core,
        settings: &Settings,
        chat: Chat,
        sync: MembershipSync,
        accounts: Accounts,
        filters: Filters,
        events: Arc<Matches>,
        claims: Claims,
    ) -> Self {
        let Core { db, clock, random, limits: limiter, outbox_written, .. } = core.clone();
        let capacity = i64::from(settings.match_capacity);
        let seats = (0..seats::WRITERS)
            .map(|_| SeatWriter { capacity, clock: clock.clone(), random: random.clone() })
            .collect();
        let inner = Inner {
            // The users of a match are in all shards, and only one transaction may seat them.
            seats: Batches::start(&db, &Shards::one(), core.writer_settings, seats::WAITING, seats),
            parallel_stands: settings.parallel_stands,
            joins: Joins::new(claims),
            patience: chat.patience(),
            db,
            chat,
            sync,
            accounts,
            filters,
            events,
            limiter,
            leniency: core.env.leniency(),
            clock,
            random,
            outbox_written,
            lines: Mutex::default(),
            computing: SingleFlight::default(),
            computing_slots: Semaphore::new(COMPUTATIONS_AT_ONCE),
            counts: quick_cache::sync::Cache::new(COUNTS),
            bot: OnceCell::new(),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Charges one action to the user's rate limit.
    pub async fn permit(&self, action: Action, user: UserId) -> Decision {
        self.inner.limiter.take(self.limit(action), &user.to_string()).await
    }

    fn limit(&self, action: Action) -> Limit {
        let (name, burst, every) = match action {
            Action::Create => ("room_create", 10, Duration::from_mins(1)),
            Action::Move => ("room_move", 60, Duration::from_secs(2)),
            Action::Invite => ("room_invite", 30, Duration::from_secs(10)),
            Action::Send => ("message", 10, Duration::from_secs(2)),
        };
        Limit { name, burst: burst * self.inner.leniency, every: every / self.inner.leniency }
    }

    /// Refunds an action that failed because of chat.
    pub async fn give_back(&self, action: Action, user: UserId) {
        self.inner.limiter.untake(self.limit(action), &user.to_string()).await;
    }

    /// Returns the open room with this homeserver id.
    pub async fn find(&self, address: &RoomAddress) -> Result<Room, RoomError> {
        store::find(&self.inner.db, address.as_str()).await?.ok_or(RoomError::NotFound)
    }

    /// Like [`Self::find`], if the user may read the room: any public room, or a private room of which they are a
    /// member.
    pub async fn find_readable(&self, user: UserId, address: &RoomAddress) -> Result<Room, RoomError> {
        let room = self.find(address).await?;
        if room.is_private && self.membership(user, room.id).await? != Some(Membership::Join) {
            return Err(RoomError::NotAllowed);
        }
        Ok(room)
    }

    /// Like [`Self::find`], if the user may read the room's chat as a spectator: any public room that they are not banned
    /// from.
    pub async fn find_viewable(&self, user: UserId, address: &RoomAddress) -> Result<Room, RoomError> {
        let room = self.find(address).await?;
        match self.membership(user, room.id).await? {
            Some(Membership::Ban) => Err(RoomError::NotAllowed),
            Some(Membership::Join) if room.is_private => Err(RoomError::Encrypted),
            _ if room.is_private => Err(RoomError::NotAMember),
            _ => Ok(room),
        }
    }

    /// The user's membership in a room.
    pub async fn membership(&self, user: UserId, room: RoomId) -> sqlx::Result<Option<Membership>> {
        store::membership(&self.inner.db, user, room).await
    }

    /// The rooms that a user has joined or is invited to.
    pub async fn of_user(&self, user: UserId) -> sqlx::Result<Vec<(Room, Membership)>> {
        store::of_user(&self.inner.db, user).await
    }

    /// A page of the rooms that a user may see, most recently active first, and the total.
    pub async fn list(
        &self,
        reader: &Reader,
        user: UserId,
        filter: &RoomFilter,
        paging: Paging,
    ) -> sqlx::Result<(Vec<ListedRoom>, i64)> {
        let read = async |db: PgPool| {
            let (rooms, total) = store::list(&db, user, filter, paging).await?;
            match total {
                Some(total) => Ok((rooms, total)),
                None => Ok((rooms, self.count(&db, user, filter.search.as_ref()).await?)),
            }
        };
        reader.read(read).await
    }

    /// Number of rooms that a user may see. The number of older public rooms is the same for all users, and kept; requests
    /// that find none wait for the first one.
    async fn count(&self, db: &PgPool, user: UserId, search: Option<&Search>) -> sqlx::Result<i64> {
        let (inner, pattern) = (&*self.inner, search.map(Search::pattern));
        let slot = inner.counts.get_or_insert_with(&pattern, || Ok::<_, Infallible>(Arc::default()));
        let slot = match slot {
            Ok(slot) => slot,
            Err(never) => match never {},
        };
        let kept_for = if pattern.is_some() { SEARCH_KEPT_FOR } else { COUNT_KEPT_FOR };
        let mut counted = slot.lock().await;
        let (until, public) = match *counted {
            Some(Counted { until, public, at }) if at.elapsed() < kept_for => (until, public),
            _ => {
                let (at, until) = (Instant::now(), inner.clock.now() - OPENING);
                let public = store::count_public(db, pattern.as_deref(), until).await?;
                *counted = Some(Counted { until, public, at });
                (until, public)
            }
        };
        drop(counted);
        Ok(public + store::count_difference(db, user, pattern.as_deref(), until).await?)
    }

    /// A page of all open rooms, or those of a match, latest first, and the total; for operators and backends.
    pub async fn list_all(
        &self,
        reader: &Reader,
        event: Option<MatchId>,
        paging: Paging,
    ) -> sqlx::Result<(Vec<RoomSummary>, i64)> {
        let read = async |db: PgPool| {
            let mut connection = db.acquire().await?;
            let total = store::count_open(&mut connection, event).await?;
            Ok((store::list_open(&mut *connection, event, paging).await?, total))
        };
        reader.read(read).await
    }

    /// Returns an open room with its number of members.
    pub async fn summary(&self, address: &RoomAddress) -> Result<RoomSummary, RoomError> {
        store::summary(&self.inner.db, address.as_str()).await?.ok_or(RoomError::NotFound)
    }

    /// Join queue of a room. The stands of a match share one, because at any time nearly all callers join the same
    /// stand.
    pub(super) fn line(&self, room: &Room) -> Arc<Line> {
        let mut lines = self.inner.lines.lock().unwrap_or_else(PoisonError::into_inner);
        if lines.len() >= MANY_LINES {
            // Joins in the queue hold it.
            lines.retain(|_, line| Arc::strong_count(line) > 1);
        }
        Arc::clone(lines.entry(Target::of(room)).or_insert_with(|| Arc::new(Line::new())))
    }

    /// Like [`Self::enter`], but waits in the queue instead of being refused. For work that would fail as a whole if
    /// one join were refused.
    pub(super) async fn enter_patiently(
        &self,
        account: &Account,
        room: &Room,
        matrix_id: &MatrixRoomId,
    ) -> Result<(), RoomError> {
        let slot = self.line(room).enter_anyway().admitted_within(self.inner.patience).await.ok_or(RoomError::Slow)?;
        self.enter(account, room.id, matrix_id, self.inner.patience).await?;
        slot.joined();
        Ok(())
    }

    /// Joins a user who holds a slot in the queue to a room on the homeserver, and records the membership. Waits up to
    /// `patience` until the budget allows the call.
    pub(super) async fn enter(
        &self,
        account: &Account,
        room: RoomId,
        matrix_id: &MatrixRoomId,
        patience: Duration,
    ) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let call = inner.chat.take_join_call(patience).await.ok_or(RoomError::Slow)?;
        self.homeserver()?;
        let homeserver = inner.chat.homeserver_for_joins().ok_or(ChatError::None)?;
        let joined = homeserver.join(matrix_id, account.username.as_str()).await;
        call.finish(!joined.as_ref().is_err_and(MatrixError::means_server_unavailable)).await;
        let event_id = joined?;
        let confirmed = ConfirmedMembership {
            room,
            user: account.id,
            membership: Membership::Join,
            event_id: Some(event_id.as_str()),
            invited_by: None,
        };
        inner.sync.note(confirmed).await?;
        // A ban during the join removed the user from all rooms, possibly before they were in this one.
        if inner.accounts.find(account.id).await?.is_some_and(|now| now.banned_at.is_some()) {
            self.take_out(account, room, matrix_id).await?;
            return Err(RoomError::NotAllowed);
        }
        Ok(())
    }

    /// Leaves a room or declines an invitation to it.
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
        let confirmed = ConfirmedMembership {
            room,
            user: account.id,
            membership: Membership::Leave,
            event_id: event_id.as_ref().map(|id| id.as_str()),
            invited_by: None,
        };
        Ok(self.inner.sync.note(confirmed).await?)
    }

    /// Invites a user to a room.
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
            // A repeated invitation changes nothing.
            Some(Membership::Invite) => return Ok(()),
            _ => {}
        }
        if blocks::has_blocked(&inner.db, guest.id, user).await? {
            return Err(RoomError::Refused);
        }
        if let Some(league) = room.league_id {
            if !store::is_in_league(&inner.db, league, guest.id).await? {
                return Err(RoomError::NotAllowed);
            }
            let membership = self.invite_by_bot(guest.id, &room).await?;
            // A guest may have left the league in the meantime, when there was no invitation to withdraw yet.
            if !store::is_in_league(&inner.db, league, guest.id).await? {
                self.dismiss(guest.id, address).await?;
                return Err(RoomError::NotAllowed);
            }
            return if membership == Membership::Join { Err(RoomError::AlreadyMember) } else { Ok(()) };
        }
        inner.chat.account(guest.id).await?;
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        let by = Some(account.username.as_str());
        let outcome = self.homeserver()?.invite(&matrix_id, by, guest.username.as_str()).await?;
        // The user may have joined with a chat client, and the membership sync has not recorded it yet.
        let (membership, event_id, invited_by) = match &outcome {
            Invited::Invited(event_id) => (Membership::Invite, event_id, Some(user)),
            Invited::AlreadyIn(event_id) => (Membership::Join, event_id, None),
        };
        let confirmed = ConfirmedMembership {
            room: room.id,
            user: guest.id,
            membership,
            event_id: Some(event_id.as_str()),
            invited_by,
        };
        inner.sync.note(confirmed).await?;
        if membership == Membership::Join { Err(RoomError::AlreadyMember) } else { Ok(()) }
    }

    /// One to three seconds, at random, so that refused callers do not return together.
    pub(super) fn spread_delay(&self) -> Duration {
        let share = u64::from(u16::from_be_bytes(random::bytes(&*self.inner.random)));
        Duration::from_millis(1_000 + 2_000 * share / u64::from(u16::MAX))
    }

    /// The user's account with a chat account, unless they are muted.
    pub(super) async fn speaker(&self, user: UserId) -> Result<Account, RoomError> {
        let account = self.inner.chat.account(user).await?;
        if account.muted_at.is_some() { Err(RoomError::Muted) } else { Ok(account) }
    }

    pub fn has_homeserver(&self) -> bool {
        self.inner.chat.homeserver().is_some()
    }

    pub(super) fn homeserver(&self) -> Result<&Homeserver, RoomError> {
        let homeserver = self.inner.chat.homeserver_for_rooms().ok_or(ChatError::None)?;
        // Fail immediately while the circuit breaker is open.
        if homeserver.is_breaker_open() { Err(ChatError::Unavailable.into()) } else { Ok(homeserver) }
    }
}

pub(super) fn address_of(matrix_id: &str) -> Result<OwnedRoomId, RoomError> {
    MatrixRoomId::parse(matrix_id).map_err(|_| RoomError::NotFound)
}
