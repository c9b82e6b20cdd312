//! Keeping what the homeserver pushes, applying it, and comparing the result with the homeserver.

use std::{
    collections::HashMap,
    sync::Arc,
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
use tokio::sync::Notify;
use web::ids::{RoomId, UserId};

use super::{
    rules::{self, Meaning, Membership, Pushed},
    store::{self, Change, Known, Settled, Uncompared, Waiting},
};
use crate::{
    chat::{
        accounts::{service::Chat, settings::Matrix},
        blocks,
        messages::{UNWANTED, Unwanted},
    },
    identity::{
        account_deletion::hooks::Memberships,
        accounts::{self, Behind},
        operators::{self, Operator, service::Deed},
    },
};

/// How many events are applied in one transaction.
const AT_ONCE: i64 = 500;

/// How long what the service was told by an answer outweighs what is pushed. By then the push of it has come, or was lost.
const AWAITED_FOR: time::Duration = time::Duration::seconds(60);

/// How many rooms are compared at once. The homeserver has other things to do.
const COMPARED_AT_ONCE: usize = 4;

/// How many in a row, before it is asked again who is to do it.
const COMPARED_IN_A_ROW: i64 = 16;

/// How often the homeserver is looked at. Often enough to see it away during the quickest restart, which takes it more
/// than a second.
const LOOKED_AT_EVERY: Duration = Duration::from_millis(400);

/// How often in a row it must not answer to have been away.
const MISSED: u32 = 2;

/// Longer than that without a look at the homeserver, and nobody knows what it went through: it may have been restarted.
const GAP: time::Duration = time::Duration::seconds(15);

/// How often a look at it is noted.
const NOTED_EVERY: Duration = Duration::from_secs(5);

/// When rooms are compared every day, by UTC.
const NIGHTLY_AT: time::Time = time::macros::time!(03:30);

/// The mark under which a comparison is asked for.
const COMPARE: &str = "compare";
/// The mark under which the homeserver was last seen.
const SEEN: &str = "seen";

/// What is known of the rooms.
#[derive(Clone)]
pub struct MembershipSync {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    chat: Chat,
    config: Matrix,
    /// The service's own chat user, who is no member.
    bot: String,
    clock: Arc<dyn Clock>,
    outbox_written: Arc<Notify>,
    /// Notified when something came in here.
    arrived: Notify,
}

/// A membership that the service was told of by the homeserver's answer.
#[derive(Clone, Copy, Debug)]
pub struct ConfirmedMembership<'a> {
    /// Where.
    pub room: RoomId,
    /// Who.
    pub user: UserId,
    /// What they are to it.
    pub membership: Membership,
    /// The event that says so; none where there was nothing to say.
    pub event_id: Option<&'a str>,
    /// Whose invitation it is.
    pub invited_by: Option<UserId>,
}

/// How the mirror stands.
#[derive(Clone, Debug)]
pub struct Status {
    /// How many events wait.
    pub waiting: i64,
    /// Since when the oldest does.
    pub waiting_since: Option<OffsetDateTime>,
    /// How many were set aside.
    pub set_aside: i64,
    /// When the homeserver last pushed something.
    pub last_received: Option<OffsetDateTime>,
    /// All rooms were compared since then.
    pub compared_since: Option<OffsetDateTime>,
}

/// An event that nobody could do anything with.
#[derive(Clone, Debug)]
pub struct SetAside {
    /// Its name.
    pub event_id: String,
    /// Where it happened.
    pub matrix_room: String,
    /// What kind it is.
    pub kind: String,
    /// Who sent it.
    pub sender: String,
    /// What is kept of it.
    pub content: Option<String>,
    /// What is wrong with it.
    pub fault: String,
    /// When it came.
    pub received_at: OffsetDateTime,
}

/// Why a comparison was not made.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    /// The homeserver.
    #[error(transparent)]
    Homeserver(#[from] matrix_appservice::Error),
    /// The database.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The stored id of the room is none.
    #[error("`{0}` is no room")]
    NoRoom(String),
}

impl CompareError {
    /// Whether the next room would fare no better.
    fn concerns_all_rooms(&self) -> bool {
        use matrix_appservice::Error;
        match self {
            Self::Homeserver(error) => matches!(
                error,
                Error::Unreachable(_)
                    | Error::Failing { .. }
                    | Error::Busy { .. }
                    | Error::Resting { .. }
                    | Error::WrongToken(_)
            ),
            Self::Database(_) => true,
            Self::NoRoom(_) => false,
        }
    }
}

/// Somebody, as a room sees them.
#[derive(Clone, Copy, Debug)]
enum Who<'a> {
    /// With an account here.
    User(UserId),
    /// Without: of another server, or by a name that is nobody's any more.
    Remote(&'a str),
}

impl Memberships for MembershipSync {
    fn forget(&self, user: UserId) -> BoxFuture<'_, sqlx::Result<()>> {
        Box::pin(self.forget_user(user))
    }
}

impl MembershipSync {
    /// Whether a caller shows the homeserver's token. How long the comparison takes says nothing about the token.
    pub(super) fn is_homeserver(&self, shown: &str) -> bool {
        let token = self.inner.config.hs_token.as_ref();
        token.is_some_and(|token| token.inner().expose_secret().as_bytes().ct_eq(shown.as_bytes()).into())
    }

    /// The mirror in this database.
    pub fn new(core: &Core, chat: Chat, config: &Matrix) -> Self {
        let Core { db, clock, outbox_written, .. } = core.clone();
        let config = config.clone();
        let bot = format!("@{}:{}", config.bot, config.server_name.as_deref().unwrap_or_default());
        Self { inner: Arc::new(Inner { db, chat, config, bot, clock, outbox_written, arrived: Notify::new() }) }
    }

    /// Keeps what was pushed. What is known already is not kept twice.
    pub(super) async fn receive(&self, events: &[Pushed]) -> sqlx::Result<()> {
        if events.is_empty() {
            return Ok(());
        }
        let inner = &*self.inner;
        let kept = store::receive(&inner.db, events, inner.clock.now()).await?;
        let faulty = events.iter().filter(|event| event.fault.is_some()).count() as u64;
        metrics::counter!("matchday_mirror_events_total", "outcome" => "received").increment(kept);
        if faulty > 0 {
            tracing::error!(faulty, "the homeserver pushed events that cannot be read; they are set aside");
            metrics::counter!("matchday_mirror_events_total", "outcome" => "set_aside").increment(faulty);
        }
        inner.arrived.notify_one();
        Ok(())
    }

    /// Waits until something was received here.
    pub async fn arrived(&self) {
        self.inner.arrived.notified().await;
    }

    /// Applies what waits, in the order in which it came; returns how many events that were.
    pub async fn apply_waiting(&self) -> sqlx::Result<usize> {
        let mut total = 0;
        loop {
            let applied = match self.apply(AT_ONCE).await {
                Err(error) if !database::is_passing(&error) => {
                    tracing::warn!(%error, "a batch of pushed events could not be applied; they are tried one by one");
                    self.apply_singly(AT_ONCE).await?
                }
                outcome => outcome?,
            };
            if applied == 0 {
                return Ok(total);
            }
            total += applied;
        }
    }

    /// One at a time, so that one that cannot be applied harms no other: it is set aside.
    async fn apply_singly(&self, most: i64) -> sqlx::Result<usize> {
        let mut done = 0;
        while i64::try_from(done).unwrap_or(i64::MAX) < most && self.apply_next().await? {
            done += 1;
        }
        Ok(done)
    }

    /// Applies the next event, or sets that very one aside; returns whether there was one.
    async fn apply_next(&self) -> sqlx::Result<bool> {
        let mut tx = self.inner.db.begin().await?;
        store::lock(&mut tx).await?;
        let waiting = store::waiting(&mut tx, 1).await?;
        let Some(event) = waiting.first() else { return Ok(false) };
        let mut attempt = sqlx::Connection::begin(&mut *tx).await?;
        let applied = match self.apply_in(&mut attempt, &waiting).await {
            Ok(applied) => {
                attempt.commit().await?;
                applied
            }
            Err(error) if database::is_passing(&error) => return Err(error),
            Err(error) => {
                attempt.rollback().await?;
                let fault = set_aside(event, format!("it cannot be applied: {error}"));
                store::settle(&mut tx, std::slice::from_ref(&fault)).await?;
                Applied { settled: vec![fault], told: false }
            }
        };
        tx.commit().await?;
        self.conclude(&applied);
        Ok(true)
    }

    async fn apply(&self, most: i64) -> sqlx::Result<usize> {
        let inner = &*self.inner;
        let mut tx = inner.db.begin().await?;
        store::lock(&mut tx).await?;
        let waiting = store::waiting(&mut tx, most).await?;
        if waiting.is_empty() {
            return Ok(0);
        }
        let applied = self.apply_in(&mut tx, &waiting).await?;
        tx.commit().await?;
        self.conclude(&applied);
        Ok(waiting.len())
    }

    /// Applies events in a transaction of the caller's.
    async fn apply_in(&self, connection: &mut PgConnection, waiting: &[Waiting]) -> sqlx::Result<Applied> {
        let rooms: Vec<&str> = waiting.iter().map(|event| event.matrix_room.as_str()).collect();
        let rooms = store::rooms(connection, &rooms).await?;
        let names = self.names_in(waiting);
        let Behind { users, departed } = accounts::behind(connection, &names).await?;
        let mut batch = Batch { users, ..Batch::default() };
        let (mut settled, mut forgotten) = (Vec::with_capacity(waiting.len()), Vec::new());
        for event in waiting {
            // Whoever is gone for good leaves no trace, not even of how they left.
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
        store::settle(connection, &settled).await?;
        store::forget_events(connection, &forgotten).await?;
        Ok(Applied { settled, told: !batch.messages.is_empty() })
    }

    /// Takes note of what was applied and is committed now.
    fn conclude(&self, applied: &Applied) {
        if applied.told {
            self.inner.outbox_written.notify_one();
        }
        for outcome in ["applied", "ignored", "set_aside"] {
            let count = applied.settled.iter().filter(|row| row.outcome == outcome).count() as u64;
            metrics::counter!("matchday_mirror_events_total", "outcome" => outcome).increment(count);
        }
    }

    /// Those whom the events speak of, by their usernames.
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
        room: RoomId,
        event: &Waiting,
        meaning: Meaning,
    ) -> sqlx::Result<()> {
        // Clocks of other servers may be ahead; nothing happened after now.
        let at = event.sent_at.min(self.inner.clock.now());
        let account = |id: &str| self.username(id).and_then(|name| batch.users.get(name).copied());
        match meaning {
            Meaning::Member { who, .. } if who == self.inner.bot => {}
            Meaning::Member { who, membership } => {
                let invited_by = account(&event.sender).filter(|_| membership == Membership::Invite);
                let user = account(&who);
                let who = user.map_or(Who::Remote(&who), Who::User);
                let by_bot = event.sender == self.inner.bot;
                let told = Source::Pushed { event_id: &event.event_id, at, invited_by, by_bot };
                let learnt = self.learn(connection, room, who, membership, told).await?;
                if let (true, Some(user), Some(sender)) = (learnt, user, invited_by)
                    && blocks::has_blocked(&mut *connection, user, sender).await?
                {
                    let unwanted = Unwanted { room_id: room, user_id: user };
                    let message = Message::new(UNWANTED, format!("user:{user}"), &unwanted);
                    batch.messages.push(message.map_err(|error| sqlx::Error::Encode(error.into()))?);
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
                }
            }
            Meaning::Nothing => {}
        }
        Ok(())
    }

    /// Calls a room what its moderators call it. What changes with its members is locked first, by everybody.
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

    /// Writes down what somebody is to a room; returns whether that is news.
    async fn learn(
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
        if known.as_ref().is_some_and(|known| source.is_old_news(known, membership, now)) {
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
        Ok(before != Some(membership))
    }

    /// Takes note of a membership that the homeserver's answer told of, so that it shows at once and not when the push
    /// of it comes. What is pushed until then is older.
    pub async fn note(&self, told: ConfirmedMembership<'_>) -> sqlx::Result<()> {
        let mut tx = self.inner.db.begin().await?;
        store::lock_room(&mut tx, told.room).await?;
        let came = match told.event_id {
            Some(event_id) => store::outcome(&mut tx, event_id).await?,
            None => None,
        };
        let awaits = match came {
            // The push was faster, and newer ones may have followed it.
            Some(Some(outcome)) if outcome == "applied" => return Ok(()),
            // It came before the room was known, and will not come again.
            Some(Some(_)) => None,
            Some(None) | None => told.event_id,
        };
        let source = Source::ConfirmedMembership { awaits, invited_by: told.invited_by };
        self.learn(&mut tx, told.room, Who::User(told.user), told.membership, source).await?;
        tx.commit().await
    }

    /// Forgets where a user was who is gone for good, room by room.
    async fn forget_user(&self, user: UserId) -> sqlx::Result<()> {
        for room in store::rooms_of(&self.inner.db, user).await? {
            let mut tx = self.inner.db.begin().await?;
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

    /// Asks that all rooms be compared with the homeserver, soon.
    pub async fn ask_for_comparison(&self) -> sqlx::Result<()> {
        store::set_mark(&self.inner.db, COMPARE, self.inner.clock.now()).await
    }

    /// The same for an operator.
    pub async fn ask_for_comparison_by(&self, operator: &Operator) -> sqlx::Result<()> {
        let now = self.inner.clock.now();
        let mut tx = self.inner.db.begin().await?;
        store::set_mark(&mut *tx, COMPARE, now).await?;
        operators::service::record(&mut tx, operator, &Deed::new("mirror.compare", "rooms"), now).await?;
        tx.commit().await
    }

    /// Notes that the homeserver is there. After it was away, or nobody looked for a while, pushes may have been lost with
    /// it: then a comparison is asked for.
    pub async fn saw_homeserver(&self, was_away: bool) -> sqlx::Result<()> {
        let inner = &*self.inner;
        let now = inner.clock.now();
        let before = store::mark(&inner.db, SEEN).await?;
        if was_away || before.is_some_and(|before| now - before > GAP) {
            tracing::info!("the homeserver was out of sight: rooms are compared with it");
            store::set_mark(&inner.db, COMPARE, now).await?;
        }
        store::set_mark(&inner.db, SEEN, now).await
    }

    /// Compares some rooms that are due, the liveliest first; returns how many. None are due any more at 0.
    pub async fn compare_some(&self) -> sqlx::Result<usize> {
        let inner = &*self.inner;
        let Some(homeserver) = inner.chat.homeserver().filter(|homeserver| !homeserver.is_resting()) else {
            return Ok(0);
        };
        let now = inner.clock.now();
        let nightly = if now.time() < NIGHTLY_AT { now - time::Duration::DAY } else { now }.replace_time(NIGHTLY_AT);
        let asked = store::mark(&inner.db, COMPARE).await?;
        let due = asked.map_or(nightly, |asked| asked.max(nightly));
        let rooms = store::uncompared(&inner.db, due, COMPARED_IN_A_ROW).await?;
        let mut compared = 0;
        for some in rooms.chunks(COMPARED_AT_ONCE) {
            let outcomes = futures_util::future::join_all(some.iter().map(|room| self.compare(homeserver, room))).await;
            for (outcome, Uncompared { room, .. }) in outcomes.into_iter().zip(some) {
                match outcome {
                    Ok(true) => compared += 1,
                    // Later, when what waits has been applied.
                    Ok(false) => {}
                    Err(CompareError::Database(error)) => return Err(error),
                    Err(error) => {
                        tracing::warn!(%error, room = room.0, "a room was not compared with the homeserver");
                        if error.concerns_all_rooms() {
                            return Ok(compared);
                        }
                        // It must not keep the others from their turn; its own comes again tomorrow.
                        store::note_compared(&inner.db, *room, now).await?;
                        compared += 1;
                    }
                }
            }
        }
        Ok(compared)
    }

    /// Brings what is known of a room in line with the homeserver; returns whether that could be done now.
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
        // A stand is called what the service calls it.
        let (name, topic) =
            if is_stand { (None, None) } else { (homeserver.room_name(&id).await?, homeserver.room_topic(&id).await?) };
        let mut tx = inner.db.begin().await?;
        if !store::lock_room(&mut tx, room).await? {
            return Ok(true);
        }
        if store::is_waiting(&mut tx, matrix_id).await? {
            return Ok(false);
        }
        let names: Vec<&str> = members.iter().filter_map(|member| self.username(member.user_id.as_str())).collect();
        let Behind { users, departed } = accounts::behind(&mut tx, &names).await?;
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
                corrected += u64::from(self.learn(&mut tx, room, who, membership, source).await?);
            }
        }
        let gone = known_users.into_keys().map(Who::User);
        let remotes: Vec<String> = known_remotes.into_keys().collect();
        for who in gone.chain(remotes.iter().map(|id| Who::Remote(id))) {
            let source = Source::Compared { began };
            corrected += u64::from(self.learn(&mut tx, room, who, Membership::Leave, source).await?);
        }
        store::rename(&mut tx, room, name.as_deref(), topic.as_deref()).await?;
        store::recount(&mut tx, room, began).await?;
        tx.commit().await?;
        if corrected > 0 {
            tracing::info!(room = room.0, corrected, "memberships were other ones on the homeserver");
        }
        metrics::counter!("matchday_mirror_corrections_total").increment(corrected);
        metrics::counter!("matchday_mirror_comparisons_total").increment(1);
        Ok(true)
    }

    /// Asks the homeserver to push what it holds back for us. Returns whether it could.
    pub async fn ask_for_pushes(&self) -> bool {
        let inner = &*self.inner;
        let (Some(homeserver), Some(token)) = (inner.chat.homeserver(), &inner.config.push_token) else { return true };
        let transaction = format!("matchday-{}", inner.clock.now().unix_timestamp());
        match homeserver.ping(&inner.config.push_id, token.inner(), &transaction).await {
            Ok(took) => {
                tracing::debug!(took = ?took, "the homeserver reaches us");
                true
            }
            Err(error) => {
                tracing::warn!(%error, "the homeserver was not asked to push");
                false
            }
        }
    }

    /// Watches the homeserver: asks it to push at the beginning, whenever it comes back, and once a minute. Pushes that
    /// failed it tries again ever more rarely; and one that was restarted meanwhile does not begin to before something
    /// new happens.
    pub async fn watch(&self, closing: tokio_util::sync::CancellationToken) {
        let Some(homeserver) = self.inner.chat.homeserver() else { return };
        let (mut missed, mut asked, mut noted) = (0_u32, None::<Instant>, None::<Instant>);
        let since = |then: Option<Instant>, pause: Duration| then.is_none_or(|then| then.elapsed() > pause);
        loop {
            if homeserver.is_there().await {
                let was_away = missed >= MISSED;
                if was_away || since(noted, NOTED_EVERY) {
                    match self.saw_homeserver(was_away).await {
                        Ok(()) => noted = Some(Instant::now()),
                        Err(error) => tracing::warn!(%error, "nobody noted that the homeserver is there"),
                    }
                }
                if missed > 0 || since(asked, Duration::from_mins(1)) {
                    asked = self.ask_for_pushes().await.then(Instant::now);
                }
                missed = 0;
            } else {
                missed = missed.saturating_add(1);
            }
            tokio::select! {
                () = closing.cancelled() => return,
                () = tokio::time::sleep(LOOKED_AT_EVERY) => {}
            }
        }
    }

    /// How the mirror stands.
    pub async fn status(&self) -> sqlx::Result<Status> {
        store::status(&self.inner.db).await
    }

    /// The newest events that were set aside.
    pub async fn set_aside(&self, most: i64) -> sqlx::Result<Vec<SetAside>> {
        store::set_aside(&self.inner.db, most).await
    }

    /// Removes what was said more than an hour ago, other events after a week, and those that were set aside after a
    /// month.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let now = self.inner.clock.now();
        let ago = |time: time::Duration| now - time;
        let (said, others, aside) =
            (ago(time::Duration::hours(1)), ago(time::Duration::days(7)), ago(time::Duration::days(30)));
        database::sweep(|most| store::sweep(&self.inner.db, said, others, aside, most)).await
    }
}

/// What became of a batch of events.
struct Applied {
    settled: Vec<Settled>,
    /// Whether there are messages for others.
    told: bool,
}

/// What a batch of events adds up to.
#[derive(Default)]
struct Batch {
    users: HashMap<String, UserId>,
    spoken: HashMap<RoomId, OffsetDateTime>,
    speakers: HashMap<(UserId, RoomId), OffsetDateTime>,
    messages: Vec<Message>,
}

/// How the mirror learns of a membership.
#[derive(Clone, Copy)]
enum Source<'a> {
    /// By a push.
    Pushed { event_id: &'a str, at: OffsetDateTime, invited_by: Option<UserId>, by_bot: bool },
    /// By the answer to a call of ours; the push of it may be still to come.
    ConfirmedMembership { awaits: Option<&'a str>, invited_by: Option<UserId> },
    /// By asking who is there; `began` before asking.
    Compared { began: OffsetDateTime },
}

impl Source<'_> {
    /// Whether more is known already.
    fn is_old_news(self, known: &Known, membership: Membership, now: OffsetDateTime) -> bool {
        match self {
            // The bot invites nobody who is there, except to follow themselves under another name.
            Self::Pushed { by_bot: true, .. }
                if (known.membership, membership) == (Membership::Join, Membership::Invite) =>
            {
                true
            }
            // What happened after the service was told is newer, also if the push of that was lost.
            Self::Pushed { event_id, at, .. } => {
                known.awaits.as_deref().is_some_and(|awaited| awaited != event_id)
                    && at <= known.changed_at
                    && now - known.changed_at < AWAITED_FOR
            }
            Self::ConfirmedMembership { .. } => false,
            Self::Compared { began } => known.changed_at >= began,
        }
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

fn set_aside(event: &Waiting, fault: String) -> Settled {
    tracing::error!(event = event.event_id, fault, "a pushed event is set aside");
    Settled { id: event.id, outcome: "set_aside", fault: Some(fault) }
}
