//! Stores pushed events, applies them, and compares the result with the homeserver.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use futures_util::future::BoxFuture;
use matrix_appservice::RoomId as MatrixRoomId;
use platform::{
    Core,
    clock::Clock,
    database,
    outbox::{self, Message},
};
use secrecy::ExposeSecret as _;
use sqlx::{PgConnection, PgPool};
use subtle::ConstantTimeEq as _;
use time::OffsetDateTime;
use tokio::sync::{Notify, mpsc};
use web::ids::{RoomId, UserId};

use super::{
    rules::{self, Meaning, Membership, Postponement, Pushed},
    store::{self, Change, Known, OurRoom, Settled, Uncompared, Waiting},
};
use crate::{
    chat::{
        accounts::{service::Chat, settings::Matrix},
        blocks,
        filters::{ChatMessage, service::Filters},
        messages::{INVITED, Invited, UNWANTED, Unwanted},
        planned_removals::{self, PlanError, PlannedRemoval, Removal},
        roles,
        view::{ViewEvent, service::ChatView},
    },
    identity::{
        account_deletion::hooks::Memberships,
        accounts::{self, UsernameOwners},
        operators::{self, Operator, service::Action},
        sessions,
    },
};

/// Number of removals that wait until this process carries them out.
const PLANNED_QUEUE: usize = 1_000;

/// Number of events applied in one transaction.
const AT_ONCE: i64 = 500;

/// Time for which a membership confirmed by a response takes precedence over pushes. By then, its own push has arrived
/// or was lost.
const AWAITED_FOR: time::Duration = time::Duration::seconds(60);

/// Number of rooms compared concurrently, which limits the load on the homeserver.
const COMPARED_AT_ONCE: usize = 4;

/// Number of rooms compared in one call, before the lease of the worker is checked again.
const COMPARED_IN_A_ROW: i64 = 16;

/// Interval between checks of the homeserver. Short enough to detect the fastest restart, which takes more than a
/// second.
const CHECKED_EVERY: Duration = Duration::from_millis(400);

/// Number of failed checks in a row that count as an outage.
const MISSED: u32 = 2;

/// Longest normal time between recorded checks. After a longer gap, the homeserver may have restarted unnoticed.
const GAP: time::Duration = time::Duration::seconds(15);

/// Interval at which a successful check is recorded.
const RECORDED_EVERY: Duration = Duration::from_secs(5);

/// Time of the daily comparison, in UTC.
const NIGHTLY_AT: time::Time = time::macros::time!(03:30);

/// Name of the mark with the time of the latest requested comparison.
const COMPARE: &str = "compare";
/// Name of the mark with the time of the latest successful check.
const SEEN: &str = "seen";

/// Service that keeps memberships equal to the homeserver's state.
#[derive(Clone)]
pub struct MembershipSync {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    chat: Chat,
    view: ChatView,
    filters: Filters,
    config: Matrix,
    /// Matrix id of the bot, which does not count as a member.
    bot: String,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
    /// Notified when this process has stored events.
    arrived: Notify,
    /// Removals that this process planned.
    planned: mpsc::Sender<PlannedRemoval>,
    next_planned: tokio::sync::Mutex<mpsc::Receiver<PlannedRemoval>>,
    postponement: Mutex<Postponement>,
}

impl Inner {
    fn postponement(&self) -> MutexGuard<'_, Postponement> {
        self.postponement.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A membership that the homeserver confirmed in a response.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmedMembership<'a> {
    pub room: RoomId,
    pub user: UserId,
    pub membership: Membership,
    /// Member event of the change; `None` if the user was not in the room.
    pub event_id: Option<&'a str>,
    /// Sender of the invitation.
    pub invited_by: Option<UserId>,
}

/// State of the membership sync.
#[derive(Clone, Debug)]
pub struct Status {
    /// Number of events that are not applied yet.
    pub waiting: i64,
    /// Arrival time of the oldest event that is not applied yet.
    pub waiting_since: Option<OffsetDateTime>,
    /// Number of events that were set aside.
    pub set_aside: i64,
    /// Arrival time of the latest event.
    pub last_received: Option<OffsetDateTime>,
    /// All rooms were compared at or after this time.
    pub compared_since: Option<OffsetDateTime>,
}

/// An event that could not be read or applied.
#[derive(Clone, Debug)]
pub struct SetAside {
    pub event_id: String,
    /// The homeserver's id of the room.
    pub matrix_room: String,
    /// Matrix event type, for example `m.room.member`.
    pub kind: String,
    pub sender: String,
    /// Stored part of the content.
    pub content: Option<String>,
    /// Reason why it was set aside.
    pub fault: String,
    pub received_at: OffsetDateTime,
}

/// Reason why a comparison failed.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Homeserver(#[from] matrix_appservice::Error),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The stored room id is invalid.
    #[error("`{0}` is not a room id")]
    NoRoom(String),
}

impl CompareError {
    /// Whether the cause would make the comparison of other rooms fail too.
    fn concerns_all_rooms(&self) -> bool {
        use matrix_appservice::Error;
        match self {
            Self::Homeserver(error) => matches!(
                error,
                Error::Unreachable(_)
                    | Error::Failing { .. }
                    | Error::Busy { .. }
                    | Error::BreakerOpen { .. }
                    | Error::WrongToken(_)
            ),
            Self::Database(_) => true,
            Self::NoRoom(_) => false,
        }
    }
}

/// A member of a room.
#[derive(Clone, Copy, Debug)]
enum Who<'a> {
    /// A user with an account here.
    User(UserId),
    /// A user without an account: on another server, or with a username that is no longer in use.
    Remote(&'a str),
}

impl Memberships for MembershipSync {
    fn forget(&self, user: UserId) -> BoxFuture<'_, sqlx::Result<()>> {
        Box::pin(self.forget_user(user))
    }
}

impl MembershipSync {
    /// Checks the homeserver's token in constant time.
    pub(super) fn is_homeserver(&self, presented: &str) -> bool {
        let token = self.inner.config.hs_token.as_ref();
        token.is_some_and(|token| token.inner().expose_secret().as_bytes().ct_eq(presented.as_bytes()).into())
    }

    pub fn new(core: &Core, chat: Chat, view: ChatView, filters: Filters, config: &Matrix) -> Self {
        let Core { db, clock, outbox_written, .. } = core.clone();
        let config = config.clone();
        let bot = format!("@{}:{}", config.bot, config.server_name.as_deref().unwrap_or_default());
        let (arrived, postponement) = (Notify::new(), Mutex::default());
        let (planned, next_planned) = mpsc::channel(PLANNED_QUEUE);
        let next_planned = tokio::sync::Mutex::new(next_planned);
        let inner = Inner {
            db,
            chat,
            view,
            filters,
            config,
            bot,
            clock,
            outbox_written,
            arrived,
            planned,
            next_planned,
            postponement,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Stores pushed events, and plans the removal of messages that a filter matches in the same transaction: if this
    /// process dies before the commit, the homeserver pushes them again. Events with a known id are skipped.
    pub(super) async fn receive(&self, events: &[Pushed], messages: Vec<ChatMessage>) -> Result<(), PlanError> {
        if events.is_empty() {
            return Ok(());
        }
        let inner = &*self.inner;
        let judged = inner.filters.judge(messages).await?;
        let kept = if judged.is_empty() {
            store::receive(&inner.db, events, inner.clock.now()).await?
        } else {
            let mut tx = database::begin(&inner.db).await?;
            let kept = store::receive(&mut *tx, events, inner.clock.now()).await?;
            let planned = inner.filters.plan_in(&mut tx, &judged).await?;
            tx.commit().await?;
            inner.outbox_written.notify_one();
            self.pass_on(planned);
            kept
        };
        let faulty = events.iter().filter(|event| event.fault.is_some()).count() as u64;
        metrics::counter!("matchday_mirror_events_total", "outcome" => "received").increment(kept);
        if faulty > 0 {
            tracing::error!(faulty, "unreadable events from the homeserver were set aside");
            metrics::counter!("matchday_mirror_events_total", "outcome" => "set_aside").increment(faulty);
        }
        inner.arrived.notify_one();
        Ok(())
    }

    /// Passes pushed events to the spectators of their rooms.
    pub(super) async fn show(&self, events: Vec<(String, ViewEvent)>) {
        self.inner.view.offer(events).await;
    }

    /// Passes planned removals to [`Self::next_planned`]. If too many wait, a worker carries them out.
    fn pass_on(&self, planned: impl IntoIterator<Item = PlannedRemoval>) {
        for removal in planned {
            if self.inner.planned.try_send(removal).is_err() {
                break;
            }
        }
    }

    /// Waits for a removal that this process planned.
    pub async fn next_planned(&self) -> Option<PlannedRemoval> {
        self.inner.next_planned.lock().await.recv().await
    }

    /// Waits until this process has stored events.
    pub async fn arrived(&self) {
        self.inner.arrived.notified().await;
    }

    /// Applies all waiting events, except those of groups of rooms that another process is handling. Groups are handled in
    /// parallel; the events of a room are applied in the order of their arrival. Returns the number of events.
    pub async fn apply_waiting(&self) -> sqlx::Result<usize> {
        let groups = store::waiting_groups(&self.inner.db).await?;
        let applied = futures_util::future::join_all(groups.into_iter().map(|group| self.apply_group(group))).await;
        applied.into_iter().sum()
    }

    /// Applies the events of a group until none is left or another process handles the group.
    ///
    /// No event is left behind: a process that gives up has found the lock taken. Its holder looks for events after it has
    /// released the lock, and thus finds those of the process that gave up. If the holder dies, the worker that polls
    /// finds them.
    async fn apply_group(&self, group: i32) -> sqlx::Result<usize> {
        let mut total = 0;
        loop {
            let applied = match self.apply(group, AT_ONCE).await {
                Err(error) if !database::is_transient(&error) => {
                    tracing::warn!(%error, "batch of pushed events failed; applying them one by one");
                    self.apply_singly(group, AT_ONCE).await?
                }
                outcome => outcome?,
            };
            match applied {
                Turn::Taken => return Ok(total),
                Turn::Ours(applied) => total += applied,
            }
            if !store::has_waiting(&self.inner.db, group).await? {
                return Ok(total);
            }
        }
    }

    /// Applies events one at a time, so that an event that cannot be applied is set aside without affecting others.
    async fn apply_singly(&self, group: i32, most: i64) -> sqlx::Result<Turn> {
        let mut done = 0;
        while i64::try_from(done).unwrap_or(i64::MAX) < most {
            match self.apply_next(group).await? {
                Turn::Taken if done == 0 => return Ok(Turn::Taken),
                // The caller continues, and finds out whether the group is still taken.
                Turn::Taken | Turn::Ours(0) => break,
                Turn::Ours(applied) => done += applied,
            }
        }
        Ok(Turn::Ours(done))
    }

    /// Applies the next event or sets it aside.
    async fn apply_next(&self, group: i32) -> sqlx::Result<Turn> {
        let mut tx = platform::database::begin(&self.inner.db).await?;
        if !store::try_lock(&mut tx, group).await? {
            return Ok(Turn::Taken);
        }
        let waiting = store::waiting(&mut tx, group, 1).await?;
        let Some(event) = waiting.first() else {
            tx.rollback().await?;
            return Ok(Turn::Ours(0));
        };
        let mut attempt = sqlx::Connection::begin(&mut *tx).await?;
        let applied = match self.apply_in(&mut attempt, &waiting).await {
            Ok(applied) => {
                attempt.commit().await?;
                applied
            }
            Err(error) if database::is_transient(&error) => return Err(error),
            Err(error) => {
                attempt.rollback().await?;
                let fault = set_aside(event, format!("applying it failed: {error}"));
                store::settle(&mut tx, std::slice::from_ref(&fault)).await?;
                Applied { settled: vec![fault], has_messages: false, planned: Vec::new() }
            }
        };
        tx.commit().await?;
        self.conclude(applied);
        Ok(Turn::Ours(1))
    }

    async fn apply(&self, group: i32, most: i64) -> sqlx::Result<Turn> {
        let inner = &*self.inner;
        let mut tx = platform::database::begin(&inner.db).await?;
        if !store::try_lock(&mut tx, group).await? {
            return Ok(Turn::Taken);
        }
        let waiting = store::waiting(&mut tx, group, most).await?;
        if waiting.is_empty() {
            // Released before the caller looks for events again.
            tx.rollback().await?;
            return Ok(Turn::Ours(0));
        }
        let applied = match self.apply_in(&mut tx, &waiting).await {
            Ok(applied) => applied,
            Err(error) => {
                // Dropping the transaction would release the lock only later, and the next attempt would find it taken.
                tx.rollback().await?;
                return Err(error);
            }
        };
        tx.commit().await?;
        self.conclude(applied);
        Ok(Turn::Ours(waiting.len()))
    }

    /// Applies events in the caller's transaction.
    async fn apply_in(&self, connection: &mut PgConnection, waiting: &[Waiting]) -> sqlx::Result<Applied> {
        let rooms: Vec<&str> = waiting.iter().map(|event| event.matrix_room.as_str()).collect();
        let rooms = store::rooms(connection, &rooms).await?;
        let names = self.names_in(waiting);
        let UsernameOwners { users, departed } = accounts::username_owners(connection, &names).await?;
        let mut batch = Batch { users, ..Batch::default() };
        let (mut settled, mut forgotten) = (Vec::with_capacity(waiting.len()), Vec::new());
        for event in waiting {
            // No event of a deleted account is kept, not even the event of the user leaving the room.
            let ids = [Some(event.sender.as_str()), event.state_key.as_deref()];
            if ids.into_iter().flatten().filter_map(|id| self.username(id)).any(|name| departed.contains(name)) {
                forgotten.push(event.id);
                continue;
            }
            let Some(&room) = rooms.get(&event.matrix_room) else {
                settled.push(Settled { id: event.id, outcome: "ignored", fault: None });
                continue;
            };
            settled.push(match Meaning::of(&event.kind, event.state_key.as_deref(), event.content.as_deref()) {
                Ok(meaning) => {
                    self.apply_one(connection, &mut batch, room, event, meaning).await?;
                    Settled { id: event.id, outcome: "applied", fault: None }
                }
                Err(fault) => set_aside(event, fault),
            });
        }
        let spoken: Vec<_> = batch.spoken.into_iter().collect();
        store::note_activity(connection, &spoken).await?;
        let speakers: Vec<_> = batch.speakers.into_iter().map(|((user, room), at)| (user, room, at)).collect();
        store::note_speakers(connection, &speakers).await?;
        outbox::enqueue(connection, &batch.messages).await?;
        let planned = planned_removals::plan_in(connection, &batch.removals, self.inner.clock.now()).await;
        let planned = planned.map_err(|error| match error {
            PlanError::Database(error) => error,
            PlanError::Message(error) => sqlx::Error::Encode(error.into()),
        })?;
        store::settle(connection, &settled).await?;
        store::forget_events(connection, &forgotten).await?;
        Ok(Applied { settled, has_messages: !planned.is_empty() || !batch.messages.is_empty(), planned })
    }

    /// Notifies the outbox and counts the outcomes, after the commit.
    fn conclude(&self, applied: Applied) {
        if applied.has_messages {
            self.inner.outbox_written.notify_one();
        }
        for outcome in ["applied", "ignored", "set_aside"] {
            let count = applied.settled.iter().filter(|row| row.outcome == outcome).count() as u64;
            metrics::counter!("matchday_mirror_events_total", "outcome" => outcome).increment(count);
        }
        self.pass_on(applied.planned);
    }

    /// Usernames of the users that the events refer to.
    fn names_in<'a>(&self, events: &'a [Waiting]) -> Vec<&'a str> {
        let mut names: Vec<&str> = events
            .iter()
            .flat_map(|event| [Some(event.sender.as_str()), event.state_key.as_deref()])
            .filter_map(|id| self.username(id?))
            .collect();
        names.sort_unstable();
        names.dedup();
        names
    }

    fn username<'a>(&self, matrix_user: &'a str) -> Option<&'a str> {
        rules::localpart(matrix_user, self.inner.config.server_name.as_deref()?)
    }

    async fn apply_one(
        &self,
        connection: &mut PgConnection,
        batch: &mut Batch,
        OurRoom { id: room, creator_id, slow_mode_seconds }: OurRoom,
        event: &Waiting,
        meaning: Meaning,
    ) -> sqlx::Result<()> {
        // Clocks of other servers may be ahead, so times in the future are capped.
        let at = event.sent_at.min(self.inner.clock.now());
        let account = |id: &str| self.username(id).and_then(|name| batch.users.get(name).copied());
        match meaning {
            Meaning::Member { who, .. } if who == self.inner.bot => {}
            Meaning::Member { who, membership } => {
                let invited_by = account(&event.sender).filter(|_| membership == Membership::Invite);
                let user = account(&who);
                let who = user.map_or(Who::Remote(&who), Who::User);
                let by_bot = event.sender == self.inner.bot;
                let source = Source::Pushed { event_id: &event.event_id, at, invited_by, by_bot };
                let changed = self.record(connection, room, who, membership, source).await?;
                if let (true, Some(user), Membership::Invite, false) = (changed, user, membership, by_bot) {
                    let message = self.invitation(connection, room, user, invited_by, (event, at)).await?;
                    batch.messages.extend(message);
                }
            }
            Meaning::Name(name) => self.rename(connection, room, Some(&name), None).await?,
            Meaning::Topic(topic) => self.rename(connection, room, None, Some(&topic)).await?,
            Meaning::Spoken if event.sender == self.inner.bot => {}
            Meaning::Spoken => {
                let latest = batch.spoken.entry(room).or_insert(at);
                *latest = at.max(*latest);
                if let Some(user) = account(&event.sender) {
                    let latest = batch.speakers.entry((user, room)).or_insert(at);
                    *latest = at.max(*latest);
                    let period = Duration::from_secs(u64::try_from(slow_mode_seconds).unwrap_or_default());
                    if !period.is_zero()
                        && creator_id != Some(user)
                        && !roles::is_moderator(&mut *connection, room, user).await?
                        && !roles::take_pushed_turn(connection, room, user, period, &event.event_id, at).await?
                    {
                        batch.removals.push(too_soon(event));
                    }
                }
            }
            Meaning::Nothing => {}
        }
        Ok(())
    }

    /// Returns the message about an invitation: to decline it if the user has blocked the sender, else to notify the user's
    /// devices, if there are any.
    async fn invitation(
        &self,
        connection: &mut PgConnection,
        room_id: RoomId,
        user_id: UserId,
        sender_id: Option<UserId>,
        (event, sent_at): (&Waiting, OffsetDateTime),
    ) -> sqlx::Result<Option<Message>> {
        let key = format!("user:{user_id}");
        let is_unwanted = match sender_id {
            Some(sender) => blocks::has_blocked(&mut *connection, user_id, sender).await?,
            None => false,
        };
        let message = if is_unwanted {
            Message::new(UNWANTED, key, &Unwanted { room_id, user_id })
        } else if sessions::has_push_devices(&mut *connection, user_id).await? {
            let (sender, event_id) = (event.sender.clone(), event.event_id.clone());
            Message::new(INVITED, key, &Invited { room_id, user_id, sender_id, sender, event_id, sent_at })
        } else {
            return Ok(None);
        };
        message.map(Some).map_err(|error| sqlx::Error::Encode(error.into()))
    }

    /// Applies a moderator's change of name or topic. The activity row is locked before the room's row, as everywhere.
    async fn rename(
        &self,
        connection: &mut PgConnection,
        room: RoomId,
        name: Option<&str>,
        topic: Option<&str>,
    ) -> sqlx::Result<()> {
        store::lock_room(connection, room).await?;
        store::rename(connection, room, name, topic).await
    }

    /// Records a membership. Returns whether it changed, or whether this push is of a change that a response confirmed
    /// before.
    async fn record(
        &self,
        connection: &mut PgConnection,
        room: RoomId,
        who: Who<'_>,
        membership: Membership,
        source: Source<'_>,
    ) -> sqlx::Result<bool> {
        if !store::lock_room(connection, room).await? {
            return Ok(false);
        }
        let known = match who {
            Who::User(user) => store::member(connection, room, user).await?,
            Who::Remote(id) => store::remote_member(connection, room, id).await?,
        };
        let now = self.inner.clock.now();
        if known.as_ref().is_some_and(|known| source.is_outdated(known, membership, now)) {
            return Ok(false);
        }
        let before = known.as_ref().map(|known| known.membership);
        let (awaits, invited_by, joined_at) = match source {
            Source::Pushed { at, invited_by, .. } => (None, invited_by, at),
            Source::ConfirmedMembership { awaits, invited_by } => (awaits, invited_by, now),
            Source::Compared { .. } => (None, None, now),
        };
        let active_at = (membership == Membership::Join && before != Some(Membership::Join)).then_some(joined_at);
        let change = Change { membership, invited_by, active_at, changed_at: now, awaits };
        match who {
            Who::User(user) => store::save_member(connection, room, user, change).await?,
            Who::Remote(id) => store::save_remote_member(connection, room, id, change).await?,
        }
        let joined = |membership: Option<Membership>| i64::from(membership == Some(Membership::Join));
        let step = joined(Some(membership)) - joined(before);
        if step != 0 {
            store::add_to_count(connection, room, step).await?;
        }
        if let (Who::User(user), Membership::Join) = (who, membership) {
            store::free_seat(connection, room, user).await?;
        }
        if let (Who::User(user), Membership::Leave | Membership::Ban, Some(Membership::Join)) =
            (who, membership, before)
        {
            roles::dismiss_in(connection, room, user).await?;
        }
        let is_expected = known.is_some_and(|known| source.is_expected(&known));
        Ok(before != Some(membership) || is_expected)
    }

    /// Records a membership that the homeserver confirmed in a response, so that it is visible before its push arrives.
    /// Until that push arrives, pushes of earlier events are ignored.
    pub async fn note(&self, confirmed: ConfirmedMembership<'_>) -> sqlx::Result<()> {
        let mut tx = platform::database::begin(&self.inner.db).await?;
        store::lock_room(&mut tx, confirmed.room).await?;
        let outcome = match confirmed.event_id {
            Some(event_id) => store::outcome(&mut tx, event_id).await?,
            None => None,
        };
        let awaits = match outcome {
            // The push arrived before the response, and newer pushes may have followed it.
            Some(Some(outcome)) if outcome == "applied" => return Ok(()),
            // The push arrived before the room's id was stored, and will not be repeated.
            Some(Some(_)) => None,
            Some(None) | None => confirmed.event_id,
        };
        let source = Source::ConfirmedMembership { awaits, invited_by: confirmed.invited_by };
        self.record(&mut tx, confirmed.room, Who::User(confirmed.user), confirmed.membership, source).await?;
        tx.commit().await
    }

    /// Deletes the memberships of a user whose account was deleted, one room per transaction.
    async fn forget_user(&self, user: UserId) -> sqlx::Result<()> {
        for room in store::rooms_of(&self.inner.db, user).await? {
            let mut tx = platform::database::begin(&self.inner.db).await?;
            store::lock_room(&mut tx, room).await?;
            let known = store::member(&mut tx, room, user).await?;
            if known.is_some_and(|known| known.membership == Membership::Join) {
                store::add_to_count(&mut tx, room, -1).await?;
            }
            store::forget_member(&mut tx, room, user).await?;
            tx.commit().await?;
        }
        Ok(())
    }

    /// Requests a comparison of all rooms with the homeserver.
    pub async fn request_comparison(&self) -> sqlx::Result<()> {
        store::set_mark(&self.inner.db, COMPARE, self.inner.clock.now()).await
    }

    /// Like [`Self::request_comparison`], and records the operator's action.
    pub async fn request_comparison_by(&self, operator: &Operator) -> sqlx::Result<()> {
        let now = self.inner.clock.now();
        let mut tx = platform::database::begin(&self.inner.db).await?;
        store::set_mark(&mut *tx, COMPARE, now).await?;
        operators::service::record(&mut tx, operator, &Action::new("memberships.compare", "rooms"), now).await?;
        tx.commit().await
    }

    /// Records a successful check of the homeserver. After an outage or a gap between checks, pushes may have been
    /// lost, so it requests a comparison.
    pub async fn record_check(&self, was_down: bool) -> sqlx::Result<()> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let before = store::mark(&inner.db, SEEN).await?;
        if was_down || before.is_some_and(|before| now - before > GAP) {
            tracing::info!("comparison of all rooms requested after a gap in homeserver checks");
            store::set_mark(&inner.db, COMPARE, now).await?;
        }
        store::set_mark(&inner.db, SEEN, now).await
    }

    /// Compares some rooms that are due, most recently active first. Returns their number, which is 0 when none are
    /// due, or when they wait because the homeserver is overloaded.
    pub async fn compare_some(&self) -> sqlx::Result<usize> {
        let inner = &*self.inner;
        let Some(homeserver) = inner.chat.homeserver().filter(|homeserver| !homeserver.is_breaker_open()) else {
            return Ok(0);
        };
        let now = inner.clock.now();
        let nightly = if now.time() < NIGHTLY_AT { now - time::Duration::DAY } else { now }.replace_time(NIGHTLY_AT);
        let requested = store::mark(&inner.db, COMPARE).await?;
        let due = requested.map_or(nightly, |requested| requested.max(nightly));
        let rooms = store::uncompared(&inner.db, due, COMPARED_IN_A_ROW).await?;
        // A comparison reads all members of a room. Users come first, but not for ever.
        let is_overloaded = !rooms.is_empty() && inner.chat.is_overloaded().await;
        if inner.postponement().must_wait(!rooms.is_empty(), is_overloaded, now) {
            return Ok(0);
        }
        let mut compared = 0;
        for some in rooms.chunks(COMPARED_AT_ONCE) {
            let outcomes = futures_util::future::join_all(some.iter().map(|room| self.compare(homeserver, room))).await;
            for (outcome, Uncompared { room, .. }) in outcomes.into_iter().zip(some) {
                match outcome {
                    Ok(true) => compared += 1,
                    // Retried after the waiting events of the room have been applied.
                    Ok(false) => {}
                    Err(CompareError::Database(error)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(%error, room = room.0, "comparison of a room with the homeserver failed");
                        if error.concerns_all_rooms() {
                            return Ok(compared);
                        }
                        // Mark it as compared, so that it does not delay other rooms. It is due again tomorrow.
                        store::note_compared(&inner.db, *room, now).await?;
                        compared += 1;
                    }
                }
            }
        }
        Ok(compared)
    }

    /// Corrects the stored state of a room according to the homeserver. Returns false if events of the room are still
    /// waiting.
    async fn compare(
        &self,
        homeserver: &matrix_appservice::Homeserver,
        &Uncompared { room, ref matrix_id, is_stand }: &Uncompared,
    ) -> Result<bool, CompareError> {
        let inner = &*self.inner;
        let began = inner.clock.now();
        if store::is_waiting(&mut *inner.db.acquire().await?, matrix_id).await? {
            return Ok(false);
        }
        let id = MatrixRoomId::parse(matrix_id.as_str()).map_err(|_| CompareError::NoRoom(matrix_id.clone()))?;
        let members = homeserver.members(&id).await?;
        // The service sets the name and topic of a stand.
        let (name, topic) =
            if is_stand { (None, None) } else { (homeserver.room_name(&id).await?, homeserver.room_topic(&id).await?) };
        let mut tx = platform::database::begin(&inner.db).await?;
        if !store::lock_room(&mut tx, room).await? {
            return Ok(true);
        }
        if store::is_waiting(&mut tx, matrix_id).await? {
            return Ok(false);
        }
        let names: Vec<&str> = members.iter().filter_map(|member| self.username(member.user_id.as_str())).collect();
        let UsernameOwners { users, departed } = accounts::username_owners(&mut tx, &names).await?;
        let (mut known_users, mut known_remotes) = store::members(&mut tx, room).await?;
        let mut corrected = 0_u64;
        for member in &members {
            let matrix_user = member.user_id.as_str();
            let membership = Membership::from(member.membership);
            let name = self.username(matrix_user);
            if matrix_user == inner.bot || name.is_some_and(|name| departed.contains(name)) {
                continue;
            }
            let user = name.and_then(|name| users.get(name).copied());
            let (who, known) = match user {
                Some(user) => (Who::User(user), known_users.remove(&user)),
                None => (Who::Remote(matrix_user), known_remotes.remove(matrix_user)),
            };
            if known.is_none_or(|known| known.membership != membership) {
                let source = Source::Compared { began };
                corrected += u64::from(self.record(&mut tx, room, who, membership, source).await?);
            }
        }
        let gone = known_users.into_keys().map(Who::User);
        let remotes: Vec<String> = known_remotes.into_keys().collect();
        for who in gone.chain(remotes.iter().map(|id| Who::Remote(id))) {
            let source = Source::Compared { began };
            corrected += u64::from(self.record(&mut tx, room, who, Membership::Leave, source).await?);
        }
        store::rename(&mut tx, room, name.as_deref(), topic.as_deref()).await?;
        store::recount(&mut tx, room, began).await?;
        tx.commit().await?;
        if corrected > 0 {
            tracing::info!(room = room.0, corrected, "memberships corrected after comparison with the homeserver");
        }
        metrics::counter!("matchday_mirror_corrections_total").increment(corrected);
        metrics::counter!("matchday_mirror_comparisons_total").increment(1);
        Ok(true)
    }

    /// Makes the homeserver push its queued events. Returns whether the ping succeeded.
    pub async fn request_pushes(&self) -> bool {
        let inner = &*self.inner;
        let (Some(homeserver), Some(token)) = (inner.chat.homeserver(), &inner.config.push_token) else { return true };
        let transaction = format!("matchday-{}", inner.clock.now().unix_timestamp());
        match homeserver.ping(&inner.config.push_id, token.inner(), &transaction).await {
            Ok(took) => {
                tracing::debug!(took = ?took, "homeserver ping succeeded");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "homeserver ping failed");
                false
            }
        }
    }

    /// Checks the homeserver continuously. Requests pushes at the start, after failed checks, and once a minute:
    /// Synapse retries failed pushes at growing intervals, and after a restart it does not retry them until a new event
    /// occurs.
    pub async fn watch(&self, closing: tokio_util::sync::CancellationToken) {
        let Some(homeserver) = self.inner.chat.homeserver() else { return };
        let (mut missed, mut pinged, mut recorded) = (0_u32, None::<Instant>, None::<Instant>);
        let since = |then: Option<Instant>, pause: Duration| then.is_none_or(|then| then.elapsed() > pause);
        loop {
            if homeserver.is_available().await {
                let was_down = missed >= MISSED;
                if was_down || since(recorded, RECORDED_EVERY) {
                    match self.record_check(was_down).await {
                        Ok(()) => recorded = Some(Instant::now()),
                        Err(error) => tracing::warn!(%error, "homeserver check was not recorded"),
                    }
                }
                if missed > 0 || since(pinged, Duration::from_mins(1)) {
                    pinged = self.request_pushes().await.then(Instant::now);
                }
                missed = 0;
            } else {
                missed = missed.saturating_add(1);
            }
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(CHECKED_EVERY) => {}
            }
        }
    }

    pub async fn status(&self) -> sqlx::Result<Status> {
        store::status(&self.inner.db).await
    }

    /// Events that were set aside, newest first.
    pub async fn set_aside(&self, most: i64) -> sqlx::Result<Vec<SetAside>> {
        store::set_aside(&self.inner.db, most).await
    }

    /// Deletes message events after an hour, other events after a week, and events that were set aside after a month.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let now = self.inner.clock.now();
        let ago = |time: time::Duration| now - time;
        let (said, others, aside) =
            (ago(time::Duration::hours(1)), ago(time::Duration::days(7)), ago(time::Duration::days(30)));
        database::sweep(|most| store::sweep(&self.inner.db, said, others, aside, most)).await
    }
}

/// Result of an attempt to apply events of a group of rooms.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Turn {
    /// Another process applies events of the group.
    Taken,
    /// This process has applied this number of events.
    Ours(usize),
}

/// Result of applying a batch of events.
struct Applied {
    settled: Vec<Settled>,
    /// Whether outbox messages were written.
    has_messages: bool,
    planned: Vec<PlannedRemoval>,
}

/// Accumulated effects of a batch of events.
#[derive(Default)]
struct Batch {
    users: HashMap<String, UserId>,
    spoken: HashMap<RoomId, OffsetDateTime>,
    speakers: HashMap<(UserId, RoomId), OffsetDateTime>,
    messages: Vec<Message>,
    removals: Vec<Removal>,
}

/// Source of a membership change.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// A push from the homeserver.
    Pushed { event_id: &'a str, at: OffsetDateTime, invited_by: Option<UserId>, by_bot: bool },
    /// The response to a call of ours. Its push may still follow.
    ConfirmedMembership { awaits: Option<&'a str>, invited_by: Option<UserId> },
    /// A comparison; `began` is the time before the request.
    Compared { began: OffsetDateTime },
}

impl Source<'_> {
    /// Whether newer information is already stored.
    fn is_outdated(self, known: &Known, membership: Membership, now: OffsetDateTime) -> bool {
        match self {
            // The bot invites a member only to add their renamed chat account. That invitation must not replace the
            // membership.
            Self::Pushed { by_bot: true, .. }
                if (known.membership, membership) == (Membership::Join, Membership::Invite) =>
            {
                true
            }
            // While the push of a confirmed change is expected, pushes of earlier events are outdated. A later event
            // counts even if the expected push was lost.
            Self::Pushed { event_id, at, .. } => {
                known.awaits.as_deref().is_some_and(|awaited| awaited != event_id)
                    && at <= known.changed_at
                    && now - known.changed_at < AWAITED_FOR
            }
            Self::ConfirmedMembership { .. } => false,
            Self::Compared { began } => known.changed_at >= began,
        }
    }

    /// Whether this is the push of a change that a response confirmed before.
    fn is_expected(self, known: &Known) -> bool {
        matches!(self, Self::Pushed { event_id, .. } if known.awaits.as_deref() == Some(event_id))
    }
}

impl From<matrix_appservice::Membership> for Membership {
    fn from(membership: matrix_appservice::Membership) -> Self {
        match membership {
            matrix_appservice::Membership::Join => Self::Join,
            matrix_appservice::Membership::Invite => Self::Invite,
            matrix_appservice::Membership::Ban => Self::Ban,
            matrix_appservice::Membership::Knock | matrix_appservice::Membership::Leave => Self::Leave,
        }
    }
}

/// Removal of a message that slow mode does not allow.
fn too_soon(event: &Waiting) -> Removal {
    Removal {
        matrix_room: event.matrix_room.clone(),
        event_id: event.event_id.clone(),
        sender: event.sender.clone(),
        source: planned_removals::Source::SlowMode,
        removed_by: planned_removals::SERVICE.to_owned(),
        reason: "Slow mode".to_owned(),
        mute_seconds: None,
    }
}

fn set_aside(event: &Waiting, fault: String) -> Settled {
    tracing::error!(event = event.event_id, fault, "pushed event set aside");
    Settled { id: event.id, outcome: "set_aside", fault: Some(fault) }
}
