//! Making, listing, joining and leaving rooms.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use matrix_appservice::{
    Error as MatrixError, HalfMade, Homeserver, Invited, NewRoom, OwnedRoomId, RoomId as MatrixRoomId,
};
use serde::{Deserialize, Serialize};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use tokio::sync::{Notify, OnceCell, Semaphore};

use super::{
    rules::{MatchWords, RoomAddress, RoomName, Topic},
    store::{self, MatchRow, NewRow},
};
use crate::{
    accounts::{
        self,
        service::{Account, Accounts},
    },
    chat::service::{Chat, ChatError},
    events::{rules::Status, service::Events},
    http::{fields::Search, paging::Paging},
    ids::{EventId, RoomId, TeamId, TournamentId, UserId},
    mirror::{
        Membership,
        service::{Mirror, Told, UNWANTED, Unwanted},
    },
    platform::{
        clock::Clock,
        config::Config,
        outbox::{self, Message},
        random::{self, Random},
        rate_limit::{Decision, Limit, RateLimiter},
        stream::{Delivery, Failure, Stream, WorkSpec},
        telemetry,
    },
    sessions::service::SessionError,
    usernames::Username,
};

/// The subject on which a room is told that is to be made.
pub const PLANNED: &str = "work.room.planned";
/// The subject on which a room is told whose match is called something else, or is at another time.
pub const MOVED: &str = "work.room.moved";
/// The subject on which a match is told that has its room now.
pub const OPENED: &str = "fact.event.room_opened";

/// How long the making of a room may take. Afterwards somebody else tries.
const MAKING: time::Duration = time::Duration::seconds(30);

/// How long an alias may stand for a room without the bot before the homeserver is certainly not at work on it any more.
const CERTAINLY_OVER: time::Duration = time::Duration::minutes(2);

/// How long the same wish of the same user is the same room: for a tap too many, and for an answer that got lost.
const SAME_WISH_FOR: time::Duration = time::Duration::minutes(1);

/// How long somebody who asked for a room in vain may ask again for the same one.
const KEPT_FOR_ANOTHER_TRY: time::Duration = time::Duration::minutes(10);

/// How many joins this process sends to the homeserver at once. It takes ten membership changes at a time; more would
/// only wait there, longer than anybody here waits for them, and look as if it were away.
const JOINS_AT_ONCE: usize = 10;

/// How many of them into one room, where the homeserver takes one at a time, also from other processes of ours.
const JOINS_AT_ONCE_IN_A_ROOM: usize = 3;

/// Rooms share that many gates.
const GATES: usize = 64;

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
    chat: Chat,
    mirror: Mirror,
    accounts: Accounts,
    events: Arc<Events>,
    limiter: RateLimiter,
    leniency: u32,
    patience: Duration,
    pub(super) clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    outbox_written: Arc<Notify>,
    joins: Semaphore,
    gates: [Semaphore; GATES],
    /// Whether the homeserver knows the bot.
    bot: OnceCell<()>,
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
    pub event_id: Option<EventId>,
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
    pub(super) event_id: Option<EventId>,
    pub(super) is_private: bool,
}

/// Which rooms are wanted.
#[derive(Clone, Debug, Default)]
pub struct RoomFilter {
    /// Only those that the caller has joined.
    pub joined: bool,
    /// Only those of this match.
    pub event_id: Option<EventId>,
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
    pub event: Option<(EventId, String, String, OffsetDateTime)>,
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
    NoSuchEvent,
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
    /// Chat does not answer, or is too busy.
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

#[derive(Serialize, Deserialize)]
struct RoomWork {
    room_id: RoomId,
}

#[derive(Serialize)]
struct RoomOpened {
    event_id: EventId,
}

impl Rooms {
    /// Rooms in this database, on this homeserver.
    #[expect(clippy::too_many_arguments, reason = "rooms stand on many parts; they are named where they are handed in")]
    pub fn new(
        db: PgPool,
        config: &Config,
        chat: Chat,
        mirror: Mirror,
        accounts: Accounts,
        events: Arc<Events>,
        limiter: RateLimiter,
        clock: Arc<dyn Clock>,
        random: Arc<dyn Random>,
        outbox_written: Arc<Notify>,
    ) -> Self {
        let inner = Inner {
            db,
            capacity: config.rooms.match_capacity.into(),
            chat,
            mirror,
            accounts,
            events,
            limiter,
            leniency: config.env.leniency(),
            patience: config.matrix.timeout,
            clock,
            random,
            outbox_written,
            joins: Semaphore::new(JOINS_AT_ONCE),
            gates: std::array::from_fn(|_| Semaphore::new(JOINS_AT_ONCE_IN_A_ROOM)),
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

    /// What the members of a room are and do.
    pub async fn member_stats(&self, room: &Room) -> sqlx::Result<MemberStats> {
        store::member_stats(&self.inner.db, room, self.inner.clock.now() - ACTIVE_FOR).await
    }

    /// Opens a room; its creator has joined it afterwards. The same wish again, while it is being granted, after it failed
    /// or just after it was granted, is the same room.
    pub async fn create(&self, user: UserId, wish: &Wish) -> Result<Room, RoomError> {
        let inner = &*self.inner;
        if let Some(event) = wish.event_id
            && !store::event_exists(&inner.db, event).await?
        {
            return Err(RoomError::NoSuchEvent);
        }
        self.speaker(user).await?;
        let alias = self.fresh_alias("room");
        let row = NewRow {
            alias: &alias,
            name: wish.name.as_str(),
            topic: wish.topic.as_str(),
            event_id: wish.event_id,
            stand: None,
            creator_id: Some(user),
            is_private: wish.is_private,
        };
        let now = inner.clock.now();
        let mut tx = inner.db.begin().await?;
        // One user's wishes take turns, so that of two at once the second finds the first.
        accounts::store::lock(&mut tx, user).await?;
        let room = if let Some(begun) = store::same_wish(&mut tx, &row, now - SAME_WISH_FOR).await? {
            begun
        } else {
            let mut made = store::insert(&mut tx, &[row], now, now).await?;
            made.pop().ok_or(sqlx::Error::RowNotFound)?.id
        };
        tx.commit().await?;
        // In a task, which outlives whoever asked: one who hangs up leaves a room that is made, not half of one.
        let making = self.clone();
        let making = async move { making.made(room).await };
        tokio::spawn(telemetry::in_this_request(making))
            .await
            .map_err(|_| RoomError::Chat("the making broke off".to_owned()))??;
        store::get(&inner.db, room).await?.ok_or(RoomError::NotFound)
    }

    /// Makes a room whose making was claimed until then, and gives the claim back if that fails.
    async fn make_claimed(&self, room: &Room, claimed_until: OffsetDateTime) -> Result<String, RoomError> {
        let outcome = self.make(room).await;
        if outcome.is_err() {
            let inner = &*self.inner;
            if let Err(error) = store::release(&inner.db, room.id, claimed_until, inner.clock.now()).await {
                tracing::warn!(%error, room = room.id.0, "the claim to a room was not given back; it runs out");
            }
        }
        outcome
    }

    /// Makes a room on the homeserver and opens it. All of it may be done again.
    async fn make(&self, room: &Room) -> Result<String, RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        inner.bot.get_or_try_init(|| homeserver.ensure_bot()).await?;
        let creator = match room.creator_id {
            Some(user) => Some(inner.chat.account(user).await?),
            None => None,
        };
        let moderator = creator.as_ref().map(|account| account.username.as_str());
        let wanted =
            NewRoom { alias: &room.alias, name: &room.name, topic: &room.topic, private: room.is_private, moderator };
        let now = inner.clock.now();
        let over = room.half_made_at.is_some_and(|since| now - since > CERTAINLY_OVER);
        let half_made = if over { HalfMade::Discard } else { HalfMade::Wait };
        let matrix_id = match homeserver.ensure_room(&wanted, half_made).await {
            Err(error @ MatrixError::HalfMade(_)) => {
                store::note_half_made(&inner.db, room.id, now).await?;
                return Err(error.into());
            }
            outcome => outcome?,
        };
        store::set_matrix_id(&inner.db, room.id, matrix_id.as_str()).await?;
        if let Some(creator) = &creator {
            if room.is_private {
                homeserver.invite(&matrix_id, None, creator.username.as_str()).await?;
            }
            self.enter(creator, room.id, &matrix_id).await?;
        }
        let mut tx = inner.db.begin().await?;
        let opened = store::open(&mut tx, room.id, inner.clock.now()).await?;
        // The match shows its first room, and that one alone.
        if let (true, Some(event_id), Some(1)) = (opened, room.event_id, room.stand) {
            let told = Message::new(OPENED, format!("event:{event_id}"), &RoomOpened { event_id })?;
            outbox::enqueue(&mut tx, &[told]).await?;
        }
        tx.commit().await?;
        inner.events.mark_stale();
        inner.outbox_written.notify_one();
        metrics::counter!("matchday_rooms_opened_total").increment(u64::from(opened));
        // The match may have moved while its room was made by the old name; whoever was to tell the homeserver found no
        // room yet.
        let now_called = store::get(&inner.db, room.id).await?.ok_or(RoomError::NotFound)?;
        if room.stand.is_some() && (&now_called.name, &now_called.topic) != (&room.name, &room.topic) {
            self.describe(room.id).await?;
        }
        Ok(matrix_id.to_string())
    }

    /// What the homeserver calls a room, making it first where that is still to be done.
    pub(super) async fn made(&self, room: RoomId) -> Result<String, RoomError> {
        let inner = &*self.inner;
        let began = std::time::Instant::now();
        loop {
            let current = store::get(&inner.db, room).await?.ok_or(RoomError::NotFound)?;
            if let (Some(matrix_id), Some(_)) = (&current.matrix_id, current.opened_at) {
                return Ok(matrix_id.clone());
            }
            let now = inner.clock.now();
            if store::claim(&inner.db, room, now, now + MAKING).await? {
                return self.make_claimed(&current, now + MAKING).await;
            }
            // Somebody else is at it.
            if began.elapsed() > inner.patience {
                return Err(RoomError::Chat("the room is not made yet".to_owned()));
            }
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
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
        let account = self.speaker(user).await?;
        if let (Some(event), Some(_)) = (room.event_id, room.stand) {
            return self.join_match(&account, event, &room).await;
        }
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        self.enter(&account, room.id, &matrix_id).await?;
        Ok(Joined { matrix_id: matrix_id.to_string(), other_stand: None })
    }

    /// Puts somebody into a room of the homeserver, and takes note of it.
    pub(super) async fn enter(
        &self,
        account: &Account,
        room: RoomId,
        matrix_id: &MatrixRoomId,
    ) -> Result<(), RoomError> {
        let inner = &*self.inner;
        // Who cannot be sent soon is told so, instead of being sent when nobody waits for the answer any more.
        let gate = &inner.gates[usize::try_from(room.0.unsigned_abs()).unwrap_or_default() % GATES];
        let places = async { Some((gate.acquire().await.ok()?, inner.joins.acquire().await.ok()?)) };
        let places = tokio::time::timeout(inner.patience, places).await;
        let Ok(Some(_places)) = places else { return Err(RoomError::Chat("too many are joining".to_owned())) };
        let homeserver = self.homeserver()?;
        let event_id = homeserver.join(matrix_id, account.username.as_str()).await?;
        let told = Told {
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

    async fn take_out(&self, account: &Account, room: RoomId, matrix_id: &MatrixRoomId) -> Result<(), RoomError> {
        let event_id = self.homeserver()?.leave(matrix_id, account.username.as_str()).await?;
        let told = Told {
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
        if store::blocks(&inner.db, guest.id, user).await? {
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
        let told = Told { room: room.id, user: guest.id, membership, event_id: Some(event_id.as_str()), invited_by };
        inner.mirror.note(told).await?;
        if membership == Membership::Join { Err(RoomError::AlreadyMember) } else { Ok(()) }
    }

    /// Plans rooms for matches that have none, and names anew those whose match is called something else; in the caller's
    /// transaction. Returns how many rooms are to be made. Without chat there are none.
    /// `teams` have another name than before, wherever they play.
    pub async fn plan_in(
        &self,
        connection: &mut PgConnection,
        tournament: TournamentId,
        teams: &[TeamId],
    ) -> Result<usize, RoomError> {
        if self.inner.chat.homeserver().is_none() {
            return Ok(0);
        }
        let planned = self.plan_missing_in(connection, Some(tournament)).await?;
        let mut messages = Vec::new();
        let teams: Vec<i64> = teams.iter().map(|team| team.0).collect();
        for stand in store::stands_of(connection, tournament, &teams).await? {
            let (name, topic) = (words(&stand.of)?.name(stand.stand), words(&stand.of)?.topic());
            if (&name, &topic) != (&stand.name, &stand.topic) {
                store::rename(connection, stand.id, &name, &topic).await?;
                messages.push(room_message(MOVED, stand.id)?);
            }
        }
        outbox::enqueue(connection, &messages).await?;
        Ok(planned)
    }

    /// Plans rooms for all matches that have none, as after chat was added to a service that had none.
    pub async fn plan_missing(&self) -> Result<usize, RoomError> {
        let inner = &*self.inner;
        if inner.chat.homeserver().is_none() {
            return Ok(0);
        }
        let mut tx = inner.db.begin().await?;
        let planned = self.plan_missing_in(&mut tx, None).await?;
        tx.commit().await?;
        inner.outbox_written.notify_one();
        Ok(planned)
    }

    async fn plan_missing_in(
        &self,
        connection: &mut PgConnection,
        tournament: Option<TournamentId>,
    ) -> Result<usize, RoomError> {
        const AT_ONCE: i64 = 1_000;
        let mut planned = 0;
        loop {
            let matches = store::roomless_matches(connection, tournament, AT_ONCE).await?;
            if matches.is_empty() {
                return Ok(planned);
            }
            let mut drafts = Vec::with_capacity(matches.len());
            for of in &matches {
                let words = words(of)?;
                drafts.push((self.fresh_alias("match"), words.name(1), words.topic(), of.event_id));
            }
            let rows: Vec<NewRow<'_>> = drafts
                .iter()
                .map(|(alias, name, topic, event)| NewRow {
                    alias,
                    name,
                    topic,
                    event_id: Some(*event),
                    stand: Some(1),
                    creator_id: None,
                    is_private: false,
                })
                .collect();
            let now = self.inner.clock.now();
            let rooms = store::insert(connection, &rows, now, now).await?;
            let messages = rooms.iter().map(|room| room_message(PLANNED, room.id)).collect::<Result<Vec<_>, _>>()?;
            outbox::enqueue(connection, &messages).await?;
            // Rooms that somebody else planned meanwhile are not ours; without any there would be no end.
            if rooms.is_empty() {
                return Ok(planned);
            }
            planned += rooms.len();
        }
    }

    /// Plans a further stand of a match.
    pub(super) async fn plan_stand_in(
        &self,
        connection: &mut PgConnection,
        event: EventId,
        stand: i32,
    ) -> Result<Room, RoomError> {
        let of = store::a_match(connection, event).await?.ok_or(RoomError::NoSuchEvent)?;
        let (alias, name, topic) = (self.fresh_alias("match"), words(&of)?.name(stand), words(&of)?.topic());
        let row = NewRow {
            alias: &alias,
            name: &name,
            topic: &topic,
            event_id: Some(event),
            stand: Some(stand),
            creator_id: None,
            is_private: false,
        };
        let now = self.inner.clock.now();
        let mut rooms = store::insert(connection, &[row], now, now).await?;
        let room = rooms.pop().ok_or(sqlx::Error::RowNotFound)?;
        // Whoever asks for it makes it; should they fail, a worker does.
        outbox::enqueue(connection, &[room_message(PLANNED, room.id)?]).await?;
        Ok(room)
    }

    /// How many rooms of a tournament's matches are planned, and how many of them are open.
    pub async fn progress(&self, tournament: TournamentId) -> sqlx::Result<(i64, i64)> {
        store::progress(&self.inner.db, tournament).await
    }

    /// Removes rooms that somebody asked for and whose making came to nothing, also from the homeserver: nobody ever saw
    /// them, and whoever asked was told that it failed. Returns how many.
    pub async fn tidy(&self) -> Result<u64, RoomError> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let mut removed = 0;
        for room in store::abandoned(&inner.db, now - KEPT_FOR_ANOTHER_TRY, now).await? {
            match self.discard(room).await {
                Ok(discarded) => removed += u64::from(discarded),
                // It comes again; the others need not wait for it.
                Err(error) => tracing::warn!(%error, room = room.0, "a room that came to nothing was not removed"),
            }
        }
        Ok(removed)
    }

    async fn discard(&self, room: RoomId) -> Result<bool, RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        // First it is decided, so that nobody goes on with it meanwhile.
        let Some(room) = store::discard(&inner.db, room, inner.clock.now()).await? else { return Ok(false) };
        let matrix_id = room.matrix_id.as_deref().map(address_of).transpose()?;
        homeserver.discard_room(&room.alias, matrix_id.as_deref()).await?;
        let mut tx = inner.db.begin().await?;
        store::delete_discarded(&mut tx, room.id).await?;
        tx.commit().await?;
        Ok(true)
    }

    /// Makes the new chat account of a user who has another name now what the old one was: a member of the same rooms.
    pub async fn follow(&self, user: UserId, from: &Username) -> Result<(), RoomError> {
        let inner = &*self.inner;
        let homeserver = self.homeserver()?;
        let account = inner.chat.account(user).await?;
        let joined = match homeserver.joined_rooms(from.as_str()).await {
            Err(MatrixError::NoSuchUser(_) | MatrixError::Deactivated(_)) => Vec::new(),
            outcome => outcome?,
        };
        for matrix_id in joined {
            // Not one of ours, such as a conversation of two.
            let Some(room) = store::find(&inner.db, matrix_id.as_str()).await? else { continue };
            let followed = async {
                if room.is_private {
                    homeserver.invite(&matrix_id, None, account.username.as_str()).await?;
                }
                if room.creator_id == Some(user) {
                    homeserver.set_power_level(&matrix_id, account.username.as_str(), 50).await?;
                }
                self.enter(&account, room.id, &matrix_id).await
            };
            Self::pass_over_refusals(room.id, followed.await)?;
        }
        for (room, membership) in store::of_user(&inner.db, user).await? {
            if membership == Membership::Invite
                && let Some(matrix_id) = &room.matrix_id
            {
                let invited = homeserver.invite(&address_of(matrix_id)?, None, account.username.as_str()).await;
                Self::pass_over_refusals(room.id, invited.map(|_| ()).map_err(RoomError::from))?;
            }
        }
        Ok(())
    }

    /// Takes somebody out of all rooms.
    pub async fn expel(&self, user: UserId, reason: &str) -> Result<(), RoomError> {
        let homeserver = self.homeserver()?;
        let Some(account) = self.inner.accounts.find(user).await? else { return Ok(()) };
        let matrix_user = homeserver.user_id(account.username.as_str())?;
        let known = store::of_user(&self.inner.db, user).await?;
        let mut rooms: Vec<Room> = known.into_iter().map(|(room, _)| room).collect();
        // Also those that they joined by a chat client so lately that nobody here has heard of it.
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
                let told = Told {
                    room: room.id,
                    user,
                    membership: Membership::Leave,
                    event_id: event_id.as_ref().map(|id| id.as_str()),
                    invited_by: None,
                };
                Ok(self.inner.mirror.note(told).await?)
            };
            Self::pass_over_refusals(room.id, expelled.await)?;
        }
        Ok(())
    }

    /// One room that refuses keeps nobody from being dealt with in the others.
    fn pass_over_refusals(room: RoomId, outcome: Result<(), RoomError>) -> Result<(), RoomError> {
        match outcome {
            Err(error @ (RoomError::NotAllowed | RoomError::NotFound)) => {
                tracing::error!(%error, room = room.0, "a room was passed over");
                Ok(())
            }
            outcome => outcome,
        }
    }

    /// The work that is left for workers.
    pub fn work() -> WorkSpec {
        WorkSpec {
            // A homeserver may be away for a day, and all of this must be done when it is back.
            attempts: 10_000,
            longest_pause: Duration::from_secs(30),
            at_once: 2,
            ..WorkSpec::new("rooms", Stream::Work, "work.room.>")
        }
    }

    /// Does a piece of that work. Doing it twice changes nothing.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        if self.inner.chat.homeserver().is_none() {
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
            other => return Err(Failure::GiveUp(anyhow::anyhow!("nobody knows how to do {other}"))),
        };
        match outcome {
            // Gone meanwhile.
            Ok(()) | Err(RoomError::NotFound) => Ok(()),
            // An operator has to see to it.
            Err(error @ (RoomError::NotAllowed | RoomError::Muted)) => Err(Failure::GiveUp(error.into())),
            Err(error) => Err(Failure::retry(error)),
        }
    }

    /// Tells the homeserver what a room is called now.
    async fn describe(&self, room: RoomId) -> Result<(), RoomError> {
        let room = store::get(&self.inner.db, room).await?.ok_or(RoomError::NotFound)?;
        // One that is not made yet is made with the right name.
        let Some(matrix_id) = &room.matrix_id else { return Ok(()) };
        let (homeserver, matrix_id) = (self.homeserver()?, address_of(matrix_id)?);
        homeserver.set_room_name(&matrix_id, &room.name).await?;
        homeserver.set_room_topic(&matrix_id, &room.topic).await?;
        Ok(())
    }

    /// Declines an invitation for whom it is for.
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

    /// Somebody who may speak, with a chat account.
    async fn speaker(&self, user: UserId) -> Result<Account, RoomError> {
        let account = self.inner.chat.account(user).await?;
        if account.muted_at.is_some() { Err(RoomError::Muted) } else { Ok(account) }
    }

    fn homeserver(&self) -> Result<&Homeserver, RoomError> {
        let homeserver = self.inner.chat.homeserver().ok_or(ChatError::None)?;
        // While it is away, nobody waits for it.
        if homeserver.is_resting() { Err(ChatError::Unavailable.into()) } else { Ok(homeserver) }
    }

    /// Not guessed, and never used before: on a homeserver that knew another database a counter would find its rooms.
    fn fresh_alias(&self, kind: &str) -> String {
        let id = random::uuid_v7(&*self.inner.random, &*self.inner.clock);
        format!("{kind}_{}", id.simple())
    }
}

fn words(of: &MatchRow) -> Result<MatchWords<'_>, RoomError> {
    let status = of.status.parse::<Status>().map_err(|error| sqlx::Error::Decode(error.into()))?;
    Ok(MatchWords {
        home: &of.home,
        away: &of.away,
        tournament: &of.tournament,
        start_time: of.start_time,
        status,
        venue: &of.venue,
    })
}

fn room_message(subject: &'static str, room_id: RoomId) -> serde_json::Result<Message> {
    Message::new(subject, format!("room:{room_id}"), &RoomWork { room_id })
}

pub(super) fn address_of(matrix_id: &str) -> Result<OwnedRoomId, RoomError> {
    MatrixRoomId::parse(matrix_id).map_err(|_| RoomError::NotFound)
}
