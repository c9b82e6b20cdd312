//! Joining a room: admission by the queue of the room and by the budget of homeserver calls, and a response within a
//! second.
//!
//! A join runs in a task that outlives its request. A caller whose join is not done soon is asked to retry, at any
//! process, and then gets its outcome, or the next delay. The join keeps its place in the queue meanwhile, unless its
//! caller does not come back.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use platform::{
    claims::{Claim, Claims},
    telemetry,
};
use serde::{Deserialize, Serialize};
use tokio::{
    sync::{Semaphore, SemaphorePermit, oneshot},
    time::Instant,
};
use web::ids::{MatchId, RoomId, UserId};

use super::{
    line::{Busy, Place},
    rules::RoomAddress,
    service::{Joined, Room, RoomError, Rooms, address_of},
    store,
};
use crate::chat::membership_sync::Membership;

/// How long a join whose turn has come waits until the homeserver has handled other calls.
pub(super) const CALL_PATIENCE: Duration = Duration::from_secs(30);

/// How long a join waits in its room's queue at most.
const QUEUE_PATIENCE: Duration = Duration::from_mins(10);

/// Time after which the caller gets a response. Leaves time for the rest of the request, which must not take longer than a
/// second.
const ANSWERED_WITHIN: Duration = Duration::from_millis(500);

/// Number of requests to join that are checked at the same time: whether the room exists, and who is in it.
const CHECKS_AT_ONCE: usize = 4;

/// How long a request waits to be checked. Afterwards the caller has to return.
const CHECK_PATIENCE: Duration = Duration::from_millis(250);

/// Expected wait beyond which the caller gets a response at once.
const WORTH_WAITING: Duration = Duration::from_secs(2);

/// Time after which a waiting join is dropped if its caller does not come back. More than twice the longest delay.
const KEPT_FOR: Duration = Duration::from_secs(30);

/// Joins in progress in this process. Other processes know them by their claims.
pub(super) struct Joins {
    running: Mutex<HashMap<(UserId, Target), Running>>,
    claims: Claims,
    /// Limits the requests that are checked at the same time.
    checks: Semaphore,
}

/// A join in progress.
struct Running {
    /// Number in the queue.
    number: u64,
    /// Callers who are waiting. The first one gets the outcome.
    callers: Vec<oneshot::Sender<Result<Joined, RoomError>>>,
}

impl Running {
    fn listen(&mut self) -> Begun {
        let (caller, outcome) = oneshot::channel();
        self.callers.retain(|caller| !caller.is_closed());
        self.callers.push(caller);
        Begun::Waits { number: self.number, outcome }
    }
}

/// A join of a caller.
enum Begun {
    Waits {
        /// Number in the queue.
        number: u64,
        outcome: oneshot::Receiver<Result<Joined, RoomError>>,
    },
    /// It ended since the caller's last request.
    Ended(Joined),
}

/// A user's memberships in a room and in the stands of its match.
pub(super) struct Standing {
    /// In the room.
    pub(super) membership: Option<Membership>,
    /// Homeserver id of the stand that the user has joined.
    pub(super) own_stand: Option<String>,
}

impl Standing {
    /// Whether the user is a member of the room, or of another stand of its match.
    fn is_member(&self) -> bool {
        self.own_stand.is_some() || self.membership == Some(Membership::Join)
    }
}

/// Outcome of a join for a caller who asks again. After other failures, the caller joins again.
#[derive(Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Ended {
    Joined(Joined),
    NotAllowed,
    Muted,
}

impl Ended {
    fn of(outcome: &Result<Joined, RoomError>) -> Option<Self> {
        match outcome {
            Ok(joined) => Some(Self::Joined(joined.clone())),
            Err(RoomError::NotAllowed) => Some(Self::NotAllowed),
            Err(RoomError::Muted) => Some(Self::Muted),
            Err(_) => None,
        }
    }
}

/// A match, whose stands count as one, or another room. Each has its own queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Target {
    Match(MatchId),
    Room(RoomId),
}

impl Target {
    pub(super) fn of(room: &Room) -> Self {
        room.stand_of().map_or(Self::Room(room.id), Self::Match)
    }
}

/// Work of the claims.
fn work(user: UserId, target: Target) -> String {
    match target {
        Target::Match(event) => format!("{}:match:{}", user.0, event.0),
        Target::Room(room) => format!("{}:room:{}", user.0, room.0),
    }
}

impl Joins {
    pub(super) fn new(claims: Claims) -> Self {
        Self { running: Mutex::default(), claims, checks: Semaphore::new(CHECKS_AT_ONCE) }
    }

    /// Takes the outcome of a join that ended since the user's last request, if it succeeded.
    pub(super) async fn take_joined(&self, user: UserId, room: &Room) -> Option<Joined> {
        match self.claims.find(&work(user, Target::of(room)), KEPT_FOR).await? {
            Claim::Ended(outcome) => match serde_json::from_str(&outcome).ok()? {
                Ended::Joined(joined) => Some(joined),
                Ended::NotAllowed | Ended::Muted => None,
            },
            Claim::Ours | Claim::Others => None,
        }
    }

    /// Stores the outcome of a join again, because its request failed for another reason and will be repeated.
    pub(super) async fn put_back(&self, user: UserId, room: &Room, joined: Joined) {
        let work = work(user, Target::of(room));
        if let Ok(ended) = serde_json::to_string(&Ended::Joined(joined))
            && self.claims.claim(&work, KEPT_FOR).await == Claim::Ours
        {
            self.claims.end(&work, Some(&ended)).await;
        }
    }

    /// Registers a caller for the outcome of the user's join, if one is in progress in this process.
    fn listen(&self, user: UserId, target: Target) -> Option<Begun> {
        lock(&self.running).get_mut(&(user, target)).map(Running::listen)
    }
}

impl Rooms {
    /// Joins a room. If the requested stand of a match is full, joins another one.
    pub async fn join(&self, user: UserId, address: &RoomAddress) -> Result<Joined, RoomError> {
        let (room, begun) = {
            let _turn = self.check_turn().await?;
            let room = self.find(address).await?;
            // In a crowd, most requests are about a join that waits. They need no further query.
            let begun = match self.join_in_progress(user, &room).await? {
                Some(begun) => begun,
                None => self.begin_join(user, &room, &self.standing(user, &room).await?).await?,
            };
            (room, begun)
        };
        self.await_join(&room, begun).await
    }

    /// Joins a user whose memberships are known, as [`Rooms::join`] does.
    pub(super) async fn join_as(&self, user: UserId, room: &Room, standing: &Standing) -> Result<Joined, RoomError> {
        let begun = {
            let _turn = self.check_turn().await?;
            match self.join_in_progress(user, room).await? {
                Some(begun) => begun,
                None => self.begin_join(user, room, standing).await?,
            }
        };
        self.await_join(room, begun).await
    }

    /// Waits for the turn of a request to be checked. A crowd that arrives at once would otherwise keep the database busy
    /// for longer than a second, also for other requests.
    async fn check_turn(&self) -> Result<SemaphorePermit<'_>, RoomError> {
        let turn = tokio::time::timeout(CHECK_PATIENCE, self.inner.joins.checks.acquire()).await;
        turn.ok().and_then(Result::ok).ok_or_else(|| RoomError::Busy { retry_after: self.spread_delay() })
    }

    /// Reads the user's memberships in a room and in the stands of its match.
    pub(super) async fn standing(&self, user: UserId, room: &Room) -> sqlx::Result<Standing> {
        let memberships = store::memberships(&self.inner.db, user, room.id, room.stand_of()).await?;
        let own_stand =
            memberships.iter().find(|member| member.stand.is_some() && member.membership == Membership::Join);
        Ok(Standing {
            own_stand: own_stand.and_then(|member| member.matrix_id.clone()),
            membership: memberships.iter().find(|member| member.room == room.id).map(|member| member.membership),
        })
    }

    /// The user's join that waits in any process, or has ended since the last request. `None` if there is none.
    async fn join_in_progress(&self, user: UserId, room: &Room) -> Result<Option<Begun>, RoomError> {
        let joins = &self.inner.joins;
        match joins.claims.find(&work(user, Target::of(room)), KEPT_FOR).await {
            Some(Claim::Others) => Err(self.waits_elsewhere(room)),
            Some(Claim::Ended(outcome)) => self.ended_join(user, room, &outcome).await,
            Some(Claim::Ours) | None => Ok(joins.listen(user, Target::of(room))),
        }
    }

    /// A join with this stored outcome. `None` if the user has left since.
    async fn ended_join(&self, user: UserId, room: &Room, outcome: &str) -> Result<Option<Begun>, RoomError> {
        match serde_json::from_str(outcome) {
            Ok(Ended::Joined(joined)) => {
                Ok(self.standing(user, room).await?.is_member().then_some(Begun::Ended(joined)))
            }
            Ok(Ended::NotAllowed) => Err(RoomError::NotAllowed),
            Ok(Ended::Muted) => Err(RoomError::Muted),
            Err(_) => Ok(None),
        }
    }

    /// Begins a join, unless the user is a member or must not join.
    async fn begin_join(&self, user: UserId, room: &Room, standing: &Standing) -> Result<Begun, RoomError> {
        // Members of another stand must not wait in the queue.
        if standing.is_member() {
            // A join that ended after its claim was read has an outcome for this caller.
            let joined = self.inner.joins.take_joined(user, room).await;
            return joined.map(Begun::Ended).ok_or(RoomError::AlreadyMember);
        }
        match standing.membership {
            Some(Membership::Ban) => return Err(RoomError::NotAllowed),
            Some(Membership::Invite) => {}
            // The homeserver would refuse too; this saves the call.
            _ if room.is_private => return Err(RoomError::NotAllowed),
            _ => {}
        }
        // An invitation may be older than the end of the user's membership in the league.
        if let Some(league) = room.league_id
            && !store::is_in_league(&self.inner.db, league, user).await?
        {
            return Err(RoomError::NotAllowed);
        }
        let account = self.inner.accounts.find(user).await?;
        if account.is_some_and(|account| account.muted_at.is_some()) {
            return Err(RoomError::Muted);
        }
        // Checked before the queue, so that callers get `chat_unavailable` and not `room_busy` while the homeserver is
        // down. The queue comes before any expensive step, because it delays most callers of a crowd.
        self.homeserver()?;
        let target = Target::of(room);
        // A concurrent request of the same user may have reached another process.
        match self.inner.joins.claims.claim(&work(user, target), KEPT_FOR).await {
            Claim::Others => return Err(self.waits_elsewhere(room)),
            Claim::Ended(outcome) => {
                if let Some(ended) = self.ended_join(user, room, &outcome).await? {
                    return Ok(ended);
                }
            }
            Claim::Ours => {}
        }
        self.start_join(user, room)
    }

    /// Waits for a join in progress, if it is probably done soon.
    async fn await_join(&self, room: &Room, begun: Begun) -> Result<Joined, RoomError> {
        let (number, mut outcome) = match begun {
            Begun::Ended(joined) => return Ok(joined),
            Begun::Waits { number, outcome } => (number, outcome),
        };
        let (line, since) = (self.line(room), Instant::now());
        while line.wait(number) <= WORTH_WAITING {
            match tokio::time::timeout(ANSWERED_WITHIN, &mut outcome).await {
                Ok(Ok(outcome)) => return outcome,
                // Alone, the caller gains nothing by asking again: another stand opens, or the homeserver is slow.
                Err(_) if line.has_one() && since.elapsed() < self.inner.patience => {}
                Ok(Err(_)) | Err(_) => break,
            }
        }
        // The outcome may have arrived at the last moment. From now on, it is stored for the next request.
        outcome.close();
        if let Ok(outcome) = outcome.try_recv() {
            return outcome;
        }
        Err(RoomError::Busy { retry_after: line.delay(number, &*self.inner.random) })
    }

    /// The queue of another process is about as long as the one of this process.
    fn waits_elsewhere(&self, room: &Room) -> RoomError {
        RoomError::Busy { retry_after: self.line(room).delay_elsewhere(&*self.inner.random) }
    }

    /// Starts a join, unless one is in progress or the queue is too long.
    fn start_join(&self, user: UserId, room: &Room) -> Result<Begun, RoomError> {
        let (target, line) = (Target::of(room), self.line(room));
        let mut running = lock(&self.inner.joins.running);
        if let Some(join) = running.get_mut(&(user, target)) {
            return Ok(join.listen());
        }
        let place = line.enter(&*self.inner.random).map_err(|Busy { retry_after }| {
            self.end_claim(user, target, None);
            RoomError::Busy { retry_after }
        })?;
        let mut join = Running { number: place.number(), callers: Vec::new() };
        let begun = join.listen();
        running.insert((user, target), join);
        drop(running);
        let join = JoinTask { rooms: self.clone(), user, target, is_done: false };
        tokio::spawn(telemetry::in_this_request(run_join(join, place, room.clone())));
        Ok(begun)
    }

    /// Ends the claim of a join in the background.
    fn end_claim(&self, user: UserId, target: Target, ended: Option<&Ended>) {
        let (rooms, ended) = (self.clone(), ended.and_then(|ended| serde_json::to_string(ended).ok()));
        tokio::spawn(async move { rooms.inner.joins.claims.end(&work(user, target), ended.as_deref()).await });
    }

    /// Joins a user who holds a slot in the queue.
    async fn join_admitted(&self, user: UserId, room: &Room) -> Result<Joined, RoomError> {
        let account = self.speaker(user).await?;
        if let (Some(event), Some(_)) = (room.event_id, room.stand) {
            return self.join_match(&account, event, room).await;
        }
        let matrix_id = address_of(room.matrix_id.as_deref().unwrap_or_default())?;
        self.enter(&account, room.id, &matrix_id, CALL_PATIENCE).await?;
        Ok(Joined { matrix_id: matrix_id.to_string(), other_stand: None })
    }
}

/// A join in progress. If its task panics, callers may join again.
struct JoinTask {
    rooms: Rooms,
    user: UserId,
    target: Target,
    is_done: bool,
}

impl JoinTask {
    /// Passes the outcome to a waiting caller, or stores it for a caller who asks again.
    async fn end(mut self, outcome: Option<Result<Joined, RoomError>>) {
        let (joins, key) = (&self.rooms.inner.joins, (self.user, self.target));
        let callers = lock(&joins.running).get_mut(&key).map(|join| std::mem::take(&mut join.callers));
        let mut outcome = outcome;
        for caller in callers.unwrap_or_default() {
            let Some(for_caller) = outcome.take() else { break };
            // Fails if the caller has stopped waiting.
            outcome = caller.send(for_caller).err();
        }
        let ended = outcome.as_ref().and_then(Ended::of).and_then(|ended| serde_json::to_string(&ended).ok());
        joins.claims.end(&work(self.user, self.target), ended.as_deref()).await;
        // After the outcome is stored: until then, callers have to find a join in progress.
        lock(&joins.running).remove(&key);
        self.is_done = true;
    }
}

impl Drop for JoinTask {
    fn drop(&mut self) {
        if !self.is_done {
            lock(&self.rooms.inner.joins.running).remove(&(self.user, self.target));
            if tokio::runtime::Handle::try_current().is_ok() {
                self.rooms.end_claim(self.user, self.target, None);
            }
        }
    }
}

/// Waits for the turn of a join, and joins.
async fn run_join(join: JoinTask, place: Place, room: Room) {
    let Some(slot) = place.admitted_within(QUEUE_PATIENCE).await else { return join.end(None).await };
    if !join.rooms.inner.joins.claims.is_claimed(&work(join.user, join.target)).await {
        return join.end(None).await;
    }
    let outcome = join.rooms.join_admitted(join.user, &room).await;
    if outcome.is_ok() {
        slot.joined();
    } else {
        drop(slot);
    }
    match outcome {
        // The join may still happen. A retry finds it, or joins again.
        Err(RoomError::Slow | RoomError::Busy { .. }) => join.end(None).await,
        outcome => join.end(Some(outcome)).await,
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
