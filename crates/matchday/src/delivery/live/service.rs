//! Reads the facts and passes them to listeners.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    pin::Pin,
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::StreamExt as _;
use platform::{
    random::{self, Random},
    stream::{Extent, StoredMessage, Stream, Streams, TransportError},
};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    sync::{Semaphore, broadcast, watch},
    time::{Instant, Sleep},
};
use tokio_util::sync::CancellationToken;
use web::ids::{LeagueId, MatchId, UserId};

pub use super::rules::{Filter, Position};
use super::{
    league_ranks::{LeagueFrame, LeagueRanks},
    lookups::{Lookups, Predicted},
    payloads::{Data as _, StreamPoints, StreamRank},
    rules::{self, Fact, Item, Personal, SUBJECTS},
    settings::Settings,
};
use crate::{
    chat::view::service::{ChatView, Spectated, Spectator},
    game::{
        leagues::{ranks::LeagueRank, service::Leagues},
        predictions::service::{Prediction, Predictions},
        scores::{
            leaderboard::Leaderboards,
            service::{ANSWERED, AnswersFact},
        },
    },
    identity::sessions::{service::Sessions, watch::SessionWatch},
};

/// Number of recent facts buffered for listeners who reconnect.
const BUFFERED_FACTS: usize = 2_048;
/// Maximum number of facts replayed to a listener who reconnects. Listeners who missed more must reload the lists.
const MOST_MISSED: u64 = 10_000;
/// Number of listeners that may read missed facts from NATS concurrently, and of concurrent queries for all listeners who
/// missed facts.
const READERS: usize = 8;
/// Missed events are sent together, up to about this number of bytes.
const BYTES_AT_ONCE: usize = 16 * 1024;
/// How long a new listener waits for this process to find its position in the stream.
const PATIENCE: Duration = Duration::from_secs(3);
/// Number of attempts to read the predictions of all listeners.
const ATTEMPTS: u32 = 5;
/// Number of users whose ranks are looked up together.
const RANKS_AT_ONCE: usize = 500;

/// The live stream of this process. Cheap to clone.
#[derive(Clone)]
pub struct Live {
    inner: Arc<Inner>,
}

struct Inner {
    streams: Streams,
    predictions: Predictions,
    leaderboards: Leaderboards,
    sessions: Sessions,
    chat_view: ChatView,
    random: Arc<dyn Random>,
    config: Settings,
    /// Position of this process in the stream; `None` until it is known.
    head: watch::Sender<Option<Position>>,
    shared: Mutex<Shared>,
    updates: broadcast::Sender<Update>,
    listening: AtomicUsize,
    /// Whether a task waits for shutdown, to disconnect all listeners.
    ends_listeners: AtomicBool,
    readers: Semaphore,
    lookups: Lookups,
    league_ranks: LeagueRanks,
}

#[derive(Default)]
struct Shared {
    /// The latest facts, without a gap from `complete_from` on.
    recent: VecDeque<Arc<Item>>,
    complete_from: u64,
    /// Connections and last sent rank of each listening user.
    listeners: HashMap<UserId, Listening>,
}

#[derive(Default)]
struct Listening {
    connections: usize,
    /// Number of connections that receive only predicted matches.
    mine: usize,
    rank: Option<i64>,
    /// Last known rank in each league.
    league_ranks: HashMap<LeagueId, i64>,
}

/// Message broadcast to all listeners of this process.
#[derive(Clone)]
enum Update {
    Item(Arc<Item>),
    /// New ranks of some users, after the scores of a match were applied. They are looked up after the fact was sent.
    Ranks {
        event: MatchId,
        frames: Arc<HashMap<UserId, Bytes>>,
    },
    /// New ranks of some users in their leagues.
    LeagueRanks(Arc<HashMap<UserId, Vec<LeagueFrame>>>),
    /// The stream was recreated, so earlier positions are no longer valid.
    Lost,
    /// The process stops.
    Closing,
}

/// Reason why a listener is refused.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// The process has the maximum number of listeners.
    #[error("too many listeners")]
    TooMany,
    /// The user has the maximum number of connections.
    #[error("the user has too many streams")]
    TooManyOfUser,
    /// This process is not connected to the fact stream.
    #[error("the live stream is unavailable")]
    Unavailable,
}

impl Live {
    pub fn new(
        streams: Streams,
        predictions: Predictions,
        (leaderboards, leagues): (Leaderboards, Leagues),
        sessions: Sessions,
        chat_view: ChatView,
        random: Arc<dyn Random>,
        config: &Settings,
    ) -> Self {
        let inner = Inner {
            streams,
            predictions,
            leaderboards,
            sessions,
            chat_view,
            random,
            config: config.clone(),
            head: watch::Sender::new(None),
            shared: Mutex::default(),
            updates: broadcast::Sender::new(config.behind.max(1)),
            listening: AtomicUsize::new(0),
            ends_listeners: AtomicBool::new(false),
            readers: Semaphore::new(READERS),
            lookups: Lookups::new(READERS),
            league_ranks: LeagueRanks::new(leagues),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Number of listeners connected to this process.
    pub fn listeners(&self) -> usize {
        self.inner.listening.load(Ordering::Relaxed)
    }

    /// Follows the fact stream until shutdown.
    pub async fn run(&self, closing: CancellationToken) {
        tokio::join!(self.follow_facts(&closing), self.follow_league_ranks(&closing));
    }

    async fn follow_facts(&self, closing: &CancellationToken) {
        let mut pause = Duration::from_millis(100);
        while !closing.is_cancelled() {
            let followed = tokio::select! {
                () = closing.cancelled() => return,
                followed = self.follow() => followed,
            };
            // The stream may not have been created yet.
            if let Err(error) = followed {
                tracing::debug!(%error, "live stream waits for NATS");
            }
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Follows the stream until an error occurs. Facts that were already sent are not sent again.
    async fn follow(&self) -> Result<(), TransportError> {
        let inner = &*self.inner;
        let extent = inner.streams.extent(Stream::Facts).await?;
        let head = *inner.head.borrow();
        let begins = match head {
            Some(head) if is_within(head, extent) => head.sequence + 1,
            Some(_) => {
                tracing::warn!("fact stream was recreated; all listeners are disconnected");
                self.lose();
                extent.first
            }
            None => extent.first.max((extent.last + 1).saturating_sub(BUFFERED_FACTS as u64)),
        };
        let (waiting, mut facts) = inner.streams.follow(Stream::Facts, &SUBJECTS, begins).await?;
        if inner.head.borrow().is_none() {
            self.lock().complete_from = begins;
            // Earlier facts are only buffered, for listeners who reconnect.
            for _ in 0..waiting {
                let Some(message) = facts.next().await.transpose()? else { return Ok(()) };
                self.keep(extent.made, &message, Personal::default());
            }
            let kept = self.lock().recent.back().map_or(0, |item| item.position.sequence);
            inner.head.send_replace(Some(Position { made: extent.made, sequence: kept.max(extent.last) }));
        }
        while let Some(message) = facts.next().await.transpose()? {
            let position = Position { made: extent.made, sequence: message.sequence };
            if inner.head.borrow().is_some_and(|head| head.sequence >= message.sequence) {
                continue;
            }
            // Answers have no event of their own, but change ranks in leagues.
            if message.subject == ANSWERED
                && let Ok(AnswersFact { tournament_id, .. }) = serde_json::from_slice(&message.payload)
            {
                inner.league_ranks.add_tournament(tournament_id);
            }
            let personal = match Fact::read(&message) {
                Some(fact) => self.personal_of_listeners(&fact).await,
                None => Personal::default(),
            };
            let mut shared = self.lock();
            if let Some(item) = keep(&mut shared, extent.made, &message, personal) {
                if let Fact::Scores(fact) = &item.fact {
                    let (live, event) = (self.clone(), fact.event_id);
                    let users = item.personal.predicted.iter().copied().collect();
                    // Looking up thousands of ranks must not delay the facts that follow.
                    tokio::spawn(async move { live.send_ranks(event, users).await });
                    inner.league_ranks.add_scores(event);
                }
                // Sending fails only without listeners.
                let _ = inner.updates.send(Update::Item(item));
            }
            inner.head.send_replace(Some(position));
        }
        Ok(())
    }

    fn keep(&self, made: i64, message: &StoredMessage, personal: Personal) {
        keep(&mut self.lock(), made, message, personal);
    }

    /// Clears the buffer and invalidates all positions, after the stream was recreated.
    fn lose(&self) {
        let mut shared = self.lock();
        shared.recent.clear();
        self.inner.head.send_replace(None);
        let _ = self.inner.updates.send(Update::Lost);
    }

    /// Determines the effect of a fact on all current listeners together. Gives up after some attempts, because later
    /// facts wait meanwhile. Listeners who are concerned then look up their own effect, and are disconnected if that fails.
    async fn personal_of_listeners(&self, fact: &Fact) -> Personal {
        let concerns_all = matches!(fact, Fact::Result(_) | Fact::Scores(_));
        let mut attempts = 1;
        loop {
            let users: Vec<UserId> = {
                let shared = self.lock();
                let concerned = shared.listeners.iter().filter(|(_, listening)| concerns_all || listening.mine > 0);
                concerned.map(|(&user, _)| user).collect()
            };
            match self.personal_without_ranks(fact, &users).await {
                Ok(personal) => return personal,
                Err(error) if attempts == ATTEMPTS => {
                    metrics::counter!("matchday_stream_unresolved_total").increment(1);
                    let event = fact.event().0;
                    tracing::error!(%error, event, "predictions of listeners could not be read; fact sent without them");
                    return Personal::default();
                }
                Err(error) => tracing::warn!(%error, "predictions of listeners could not be read; retrying"),
            }
            attempts += 1;
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// Determines the effect of a fact on some users.
    async fn personal(&self, fact: &Fact, users: &[UserId]) -> sqlx::Result<Personal> {
        let mut personal = self.personal_without_ranks(fact, users).await?;
        if let Fact::Scores(fact) = fact {
            let users: Vec<UserId> = personal.predicted.iter().copied().collect();
            let frames = self.ranks(fact.event_id, &users).await;
            personal.frames.extend(frames.into_iter().map(|(user, frame)| (user, vec![frame])));
        }
        Ok(personal)
    }

    /// Like [`Self::personal`], without the ranks that follow from new scores.
    async fn personal_without_ranks(&self, fact: &Fact, users: &[UserId]) -> sqlx::Result<Personal> {
        let mut personal = Personal { known: users.iter().copied().collect(), ..Personal::default() };
        if users.is_empty() {
            return Ok(personal);
        }
        let event = fact.event();
        let predictions = self.inner.predictions.of_users(event, users).await?;
        personal.predicted = predictions.iter().map(|prediction| prediction.user_id).collect();
        match fact {
            Fact::Result(_) => {
                for prediction in predictions {
                    let frame = StreamPoints { event_id: event, points_earned: prediction.points() }.frame();
                    personal.frames.insert(prediction.user_id, vec![frame]);
                }
            }
            Fact::Scores(_) | Fact::Event(_) | Fact::Tally(_) | Fact::Round(_) | Fact::Sealed(_) => {}
        }
        Ok(personal)
    }

    /// Looks up the ranks of listeners and sends changed ranks.
    async fn send_ranks(&self, event: MatchId, users: Vec<UserId>) {
        for some in users.chunks(RANKS_AT_ONCE) {
            let frames = self.ranks(event, some).await.into_iter().map(|(user, frame)| (user, frame.into())).collect();
            let _ = self.inner.updates.send(Update::Ranks { event, frames: Arc::new(frames) });
        }
    }

    /// Returns rank events for users whose rank differs from the last one sent. Ranks that cannot be read are left out,
    /// because clients can request them at any time.
    async fn ranks(&self, event: MatchId, users: &[UserId]) -> Vec<(UserId, String)> {
        let (places, total) = match self.inner.leaderboards.places(users).await {
            Ok(places) => places,
            Err(error) => {
                tracing::debug!(%error, "ranks of listeners could not be read");
                return Vec::new();
            }
        };
        let mut shared = self.lock();
        let mut frames = Vec::new();
        for place in places {
            let listening = shared.listeners.get_mut(&place.user);
            if listening.and_then(|listening| listening.rank.replace(place.rank)) != Some(place.rank) {
                let (rank, points) = (place.rank, place.standing.points);
                frames.push((place.user, StreamRank { event_id: event, rank, of: total, points }.frame()));
            }
        }
        frames
    }

    /// Looks up the ranks of listeners in their leagues, when they connect and after scores have changed.
    async fn follow_league_ranks(&self, closing: &CancellationToken) {
        let listeners = || self.lock().listeners.keys().copied().collect();
        let report = |ranks: Vec<LeagueRank>| self.report_league_ranks(ranks);
        tokio::select! {
            () = closing.cancelled() => {}
            () = self.inner.league_ranks.run(listeners, report) => {}
        }
    }

    /// Remembers ranks of listeners, and sends ranks that differ from the remembered ones.
    fn report_league_ranks(&self, ranks: Vec<LeagueRank>) {
        let mut frames: HashMap<UserId, Vec<LeagueFrame>> = HashMap::new();
        let mut shared = self.lock();
        for rank in ranks {
            let Some(listening) = shared.listeners.get_mut(&rank.user) else { continue };
            if let Some(previous) = listening.league_ranks.insert(rank.league, rank.rank)
                && previous != rank.rank
            {
                frames.entry(rank.user).or_default().push(LeagueFrame::new(rank, previous));
            }
        }
        drop(shared);
        if !frames.is_empty() {
            // Sending fails only without listeners.
            let _ = self.inner.updates.send(Update::LeagueRanks(Arc::new(frames)));
        }
    }

    /// Disconnects all listeners at shutdown. They do not wait for the token themselves, because thousands of tasks that
    /// wait for the same token contend for its lock at every event.
    fn end_listeners_on(&self, closing: &CancellationToken) {
        if self.inner.ends_listeners.swap(true, Ordering::Relaxed) {
            return;
        }
        let (updates, closing) = (self.inner.updates.clone(), closing.clone());
        tokio::spawn(async move {
            closing.cancelled().await;
            // Sending fails only without listeners.
            let _ = updates.send(Update::Closing);
        });
    }

    /// Starts listening after `after`, or from now on without it. `closing` is the token of the process's shutdown.
    pub async fn listen(
        &self,
        user: UserId,
        token: SecretString,
        filter: Filter,
        after: Option<Position>,
        closing: &CancellationToken,
    ) -> Result<Listener, ListenError> {
        let inner = &*self.inner;
        let place = Place::take(self, user, filter.mine)?;
        let mut head = inner.head.subscribe();
        let found = tokio::time::timeout(PATIENCE, head.wait_for(Option::is_some)).await;
        if !matches!(found, Ok(Ok(_))) {
            return Err(ListenError::Unavailable);
        }
        // Read the buffer and subscribe under one lock. Otherwise a fact in between would be missed.
        let (updates, position, mut missed) = {
            let shared = self.lock();
            let position = (*inner.head.borrow()).ok_or(ListenError::Unavailable)?;
            let missed = after.map(|after| missed(&shared, after, position));
            (inner.updates.subscribe(), position, missed)
        };
        self.end_listeners_on(closing);
        // The notification may already have been sent.
        if closing.is_cancelled() {
            return Err(ListenError::Unavailable);
        }
        let mut catch_up = None;
        if let Some(Missed::Recent(items)) = &mut missed
            && !items.is_empty()
        {
            catch_up = Some(Box::new(CatchUp::of(std::mem::take(items))));
        }
        let [of_life, of_beat, of_retry] = self.random_numbers();
        let now = Instant::now();
        let ends = now + rules::lifetime(inner.config.lifetime, of_life);
        // Listeners who connect together would otherwise send all their heartbeats together.
        let first_beat = now + inner.config.heartbeat.mul_f64(0.5 + 0.5 * f64::from(of_beat) / f64::from(u32::MAX));
        Ok(Listener {
            live: self.clone(),
            user,
            session: inner.sessions.watch(user, token.expose_secret()),
            filter,
            updates,
            position: match (&missed, after) {
                (Some(Missed::Recent(_) | Missed::InNats), Some(after)) => after,
                _ => position,
            },
            first: match missed {
                None | Some(Missed::Recent(_)) => First::Beat,
                Some(Missed::InNats) => First::Read { until: position },
                Some(Missed::Gone) => First::Reset,
            },
            retry: Some(of_retry),
            catch_up,
            chat: None,
            timer: Box::pin(tokio::time::sleep_until(first_beat.min(ends))),
            ends,
            _place: place,
        })
    }

    fn random_numbers(&self) -> [u32; 3] {
        std::array::from_fn(|_| u32::from_ne_bytes(random::bytes(&*self.inner.random)))
    }

    /// Returns a user's prediction of a match.
    async fn predicted(&self, event: MatchId, user: UserId) -> Result<Option<Predicted>, Arc<sqlx::Error>> {
        let read = async |users: Vec<UserId>| {
            let predictions = self.inner.predictions.of_users(event, &users).await?;
            let predicted = |prediction: Prediction| (prediction.user_id, Predicted { points: prediction.points() });
            Ok(predictions.into_iter().map(predicted).collect())
        };
        self.inner.lookups.find(event, user, read).await
    }

    /// Reads the facts between two positions from NATS; `None` if they are no longer available.
    async fn read(&self, after: Position, until: Position) -> Result<Option<VecDeque<Arc<Item>>>, TransportError> {
        let inner = &*self.inner;
        let _turn = inner.readers.acquire().await;
        let extent = inner.streams.extent(Stream::Facts).await?;
        if extent.made != after.made || extent.first > after.sequence + 1 {
            return Ok(None);
        }
        let (waiting, mut facts) = inner.streams.follow(Stream::Facts, &SUBJECTS, after.sequence + 1).await?;
        let mut read = VecDeque::new();
        for _ in 0..waiting {
            let Some(message) = facts.next().await.transpose()? else { break };
            if message.sequence > until.sequence {
                break;
            }
            if let Some(fact) = Fact::read(&message) {
                let position = Position { made: extent.made, sequence: message.sequence };
                read.push_back(Arc::new(Item::new(position, fact, Personal::default())));
            }
        }
        Ok(Some(read))
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.inner.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn missed(shared: &Shared, after: Position, head: Position) -> Missed {
    if after.made != head.made || after.sequence > head.sequence || head.sequence - after.sequence > MOST_MISSED {
        return Missed::Gone;
    }
    if after.sequence + 1 < shared.complete_from {
        return Missed::InNats;
    }
    let mut items = VecDeque::new();
    let mut tallied = HashSet::new();
    for item in shared.recent.iter().rev().take_while(|item| item.position.sequence > after.sequence) {
        // A later tally of the same match replaces an earlier one.
        if !matches!(item.fact, Fact::Tally(_)) || tallied.insert(item.fact.event()) {
            items.push_front(Arc::clone(item));
        }
    }
    Missed::Recent(items)
}

fn is_within(head: Position, extent: Extent) -> bool {
    head.made == extent.made && head.sequence <= extent.last
}

fn keep(shared: &mut Shared, made: i64, message: &StoredMessage, personal: Personal) -> Option<Arc<Item>> {
    let fact = Fact::read(message)?;
    let item = Arc::new(Item::new(Position { made, sequence: message.sequence }, fact, personal));
    if shared.recent.len() == BUFFERED_FACTS
        && let Some(oldest) = shared.recent.pop_front()
    {
        shared.complete_from = oldest.position.sequence + 1;
    }
    shared.recent.push_back(Arc::clone(&item));
    Some(item)
}

/// The facts that a reconnecting listener missed.
enum Missed {
    Recent(VecDeque<Arc<Item>>),
    InNats,
    Gone,
}

/// Counts one connection, until dropped.
struct Place {
    live: Live,
    user: UserId,
    mine: bool,
}

impl Place {
    fn take(live: &Live, user: UserId, mine: bool) -> Result<Self, ListenError> {
        let mut shared = live.lock();
        if live.inner.listening.load(Ordering::Relaxed) >= live.inner.config.max_listeners {
            return Err(ListenError::TooMany);
        }
        let listening = shared.listeners.entry(user).or_default();
        if listening.connections >= live.inner.config.max_per_user {
            return Err(ListenError::TooManyOfUser);
        }
        if listening.connections == 0 {
            live.inner.league_ranks.add_listener(user);
        }
        listening.connections += 1;
        listening.mine += usize::from(mine);
        let count = live.inner.listening.fetch_add(1, Ordering::Relaxed) + 1;
        drop(shared);
        #[expect(clippy::cast_precision_loss, reason = "the number of listeners is far below 2^52")]
        metrics::gauge!("matchday_stream_listeners").set(count as f64);
        Ok(Self { live: live.clone(), user, mine })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        let mut shared = self.live.lock();
        if let Some(listening) = shared.listeners.get_mut(&self.user) {
            listening.connections -= 1;
            listening.mine -= usize::from(self.mine);
            if listening.connections == 0 {
                shared.listeners.remove(&self.user);
            }
        }
        let count = self.live.inner.listening.fetch_sub(1, Ordering::Relaxed) - 1;
        #[expect(clippy::cast_precision_loss, reason = "the number of listeners is far below 2^52")]
        metrics::gauge!("matchday_stream_listeners").set(count as f64);
    }
}

/// The first thing that a listener receives.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// A heartbeat with the current position.
    Beat,
    /// Missed facts up to a position, which must be read from NATS.
    Read { until: Position },
    /// A reset, because the missed facts are no longer available.
    Reset,
    /// Nothing; it was already sent.
    Done,
}

/// Result of waiting for the next fact.
enum Waited {
    Item(Arc<Item>),
    /// The listener's new rank or ranks, if they have changed.
    Rank(Option<Bytes>),
    /// A chat item, for a spectator.
    Chat(Bytes),
    /// No fact arrived before the next heartbeat was due.
    Heartbeat,
}

/// The connection of a listener must end. The client can reconnect and resume.
struct MustEnd;

/// Facts that a listener missed and has not received yet.
struct CatchUp {
    waiting: VecDeque<Arc<Item>>,
    /// Predictions of the listener that were already looked up; `None` for a match without one.
    known: HashMap<MatchId, Option<Predicted>>,
}

impl CatchUp {
    fn of(waiting: VecDeque<Arc<Item>>) -> Self {
        Self { waiting, known: HashMap::new() }
    }
}

/// One connection to the live stream. A process has thousands of them, so parts that few listeners need are boxed, and so
/// are the futures of rare steps.
pub struct Listener {
    live: Live,
    user: UserId,
    session: SessionWatch,
    filter: Filter,
    updates: broadcast::Receiver<Update>,
    /// All matching facts up to this position have been sent.
    position: Position,
    first: First,
    /// Random number for the pause before the client reconnects, until it has been sent.
    retry: Option<u32>,
    catch_up: Option<Box<CatchUp>>,
    /// Chat of a room, for spectators.
    chat: Option<Box<Spectator>>,
    /// Next heartbeat, or the end of the connection.
    timer: Pin<Box<Sleep>>,
    ends: Instant,
    _place: Place,
}

impl Listener {
    /// Adds the chat of a room, which the user may read.
    pub async fn add_chat(&mut self, room: &Spectated) -> sqlx::Result<()> {
        self.chat = Some(Box::new(self.live.inner.chat_view.open(self.user, room).await?));
        Ok(())
    }

    /// Returns the next bytes, or `None` if the connection must end. The client can reconnect and resume.
    pub async fn next(&mut self) -> Option<Bytes> {
        if let Some(random) = self.retry.take() {
            return Some(self.greeting(random));
        }
        if self.first != First::Done || self.catch_up.is_some() {
            match Box::pin(self.next_missed()).await {
                Ok(None) => {}
                Ok(missed) => return missed,
                Err(MustEnd) => return None,
            }
        }
        if let Some(replay) = self.chat.as_mut().and_then(|chat| chat.take_first()) {
            return Some(replay);
        }
        loop {
            match self.wait().await? {
                Waited::Chat(frame) => return Some(frame),
                Waited::Heartbeat => return Some(rules::beat(self.position)),
                Waited::Rank(Some(frame)) => return Some(rules::frame_at(self.position, &frame)),
                Waited::Rank(None) => {}
                Waited::Item(item) => match self.frame_for(&item).await {
                    Ok(None) => {}
                    Ok(frame) => return frame,
                    Err(MustEnd) => return None,
                },
            }
        }
    }

    /// The pause before the client reconnects, with the first thing that can be sent without reading.
    fn greeting(&mut self, random: u32) -> Bytes {
        let first = match self.first {
            First::Beat => rules::beat(self.position),
            First::Reset => rules::reset(self.position),
            First::Read { .. } | First::Done => return rules::with_retry(b"", random),
        };
        self.first = First::Done;
        rules::with_retry(&first, random)
    }

    /// Returns the next missed events, several at once; `None` if there are no more.
    async fn next_missed(&mut self) -> Result<Option<Bytes>, MustEnd> {
        if let First::Read { until } = std::mem::replace(&mut self.first, First::Done) {
            match self.live.read(self.position, until).await {
                Ok(Some(read)) => self.catch_up = Some(Box::new(CatchUp::of(read))),
                Ok(None) => {
                    self.position = until;
                    return Ok(Some(rules::reset(until)));
                }
                Err(error) => {
                    tracing::debug!(%error, "missed facts could not be read; listener disconnected");
                    return Err(MustEnd);
                }
            }
        }
        let mut frames = Vec::new();
        while frames.len() < BYTES_AT_ONCE
            && let Some(item) = self.catch_up.as_mut().and_then(|catch_up| catch_up.waiting.pop_front())
        {
            frames.extend_from_slice(&self.frame_for(&item).await?.unwrap_or_default());
        }
        if frames.is_empty() {
            self.catch_up = None;
            return Ok(None);
        }
        Ok(Some(frames.into()))
    }

    /// Waits for a fact, a chat item or a heartbeat; `None` if the connection must end.
    async fn wait(&mut self) -> Option<Waited> {
        tokio::select! {
            // A session that has ended takes precedence over facts that are already waiting. The timer comes last, so that
            // a fact does not touch it.
            biased;
            () = self.session.evicted() => self.session.is_valid().await.then_some(Waited::Heartbeat),
            update = self.updates.recv() => match update {
                Ok(Update::Item(item)) => Some(Waited::Item(item)),
                Ok(Update::Ranks { event, frames }) => {
                    let wanted = self.filter.event.is_none_or(|only| only == event);
                    Some(Waited::Rank(frames.get(&self.user).filter(|_| wanted).cloned()))
                }
                Ok(Update::LeagueRanks(frames)) => {
                    let frames = frames.get(&self.user).map(Vec::as_slice).unwrap_or_default();
                    Some(Waited::Rank(LeagueFrame::for_listener(frames, &self.filter)))
                }
                // A client that reconnects after the stream was recreated gets a reset, because its position is no
                // longer valid.
                Ok(Update::Lost | Update::Closing) | Err(broadcast::error::RecvError::Closed) => None,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    metrics::counter!("matchday_stream_dropped_total").increment(1);
                    tracing::debug!(missed, "slow listener disconnected");
                    None
                }
            },
            item = next_chat(&mut self.chat) => item.map(Waited::Chat),
            () = &mut self.timer => {
                let now = Instant::now();
                if now >= self.ends {
                    return None;
                }
                let next = (now + self.live.inner.config.heartbeat).min(self.ends);
                self.timer.as_mut().reset(next);
                // A user who was banned from the room may no longer read its chat.
                if self.chat.as_ref().is_some_and(|chat| !chat.may_read()) {
                    return None;
                }
                Box::pin(self.session.is_valid()).await.then_some(Waited::Heartbeat)
            }
        }
    }

    /// Returns the events of an item for this listener, if there are any.
    async fn frame_for(&mut self, item: &Item) -> Result<Option<Bytes>, MustEnd> {
        if item.position.sequence <= self.position.sequence {
            return Ok(None);
        }
        let frame = if item.lacks(self.user, &self.filter) {
            match Box::pin(self.personal(item)).await {
                Ok(personal) => item.frame_for(self.user, &self.filter, &personal),
                Err(error) => {
                    tracing::debug!(%error, "prediction of a listener could not be read; listener disconnected");
                    return Err(MustEnd);
                }
            }
        } else {
            item.frame_for(self.user, &self.filter, &item.personal)
        };
        self.position = item.position;
        Ok(frame)
    }

    /// Determines the effect on this listener of a fact that was sent before it connected.
    async fn personal(&mut self, item: &Item) -> Result<Personal, Arc<sqlx::Error>> {
        let event = item.fact.event();
        let known = self.catch_up.as_ref().and_then(|catch_up| catch_up.known.get(&event).copied());
        let predicted = match known {
            Some(predicted) => predicted,
            None => self.live.predicted(event, self.user).await?,
        };
        if let Some(catch_up) = &mut self.catch_up {
            catch_up.known.insert(event, predicted);
        }
        if predicted.is_some() && matches!(item.fact, Fact::Scores(_)) {
            let _turn = self.live.inner.readers.acquire().await;
            return Ok(self.live.personal(&item.fact, &[self.user]).await?);
        }
        Ok(Personal::of_user(&item.fact, self.user, predicted))
    }
}

/// Waits for the next chat item; forever without a room. Returns `None` if the connection must end.
async fn next_chat(chat: &mut Option<Box<Spectator>>) -> Option<Bytes> {
    match chat {
        Some(chat) => chat.next().await,
        None => std::future::pending().await,
    }
}
