//! Following the facts, and handing them to whoever listens.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use futures_util::{StreamExt as _, future::join_all};
use platform::stream::{Extent, StoredMessage, Stream, Streams, TransportError};
use secrecy::{ExposeSecret as _, SecretString};
use tokio::{
    sync::{Semaphore, broadcast, watch},
    time::{Instant, Interval, MissedTickBehavior},
};
use tokio_util::sync::CancellationToken;
use web::ids::{MatchId, UserId};

pub use super::rules::{Filter, Position};
use super::{
    payloads::{Data as _, StreamPoints, StreamRank},
    rules::{self, Fact, Item, Personal, SUBJECTS},
    settings::Settings,
};
use crate::{
    game::{predictions::service::Predictions, scores::leaderboard::Leaderboards},
    identity::sessions::service::Sessions,
};

/// How many facts are kept at hand for those who come back.
const AT_HAND: usize = 2_048;
/// How many facts somebody is told who comes back; who missed more had better read the lists.
const MOST_MISSED: u64 = 10_000;
/// How many who come back read from NATS at once, because what they missed is not at hand.
const READERS: usize = 8;
/// How long a listener waits for this process to have found its own place.
const PATIENCE: Duration = Duration::from_secs(3);
/// How many places on the leaderboard are looked up at once.
const LOOKS_AT_ONCE: usize = 32;

/// The live stream of this process.
#[derive(Clone)]
pub struct Live {
    inner: Arc<Inner>,
}

struct Inner {
    streams: Streams,
    predictions: Predictions,
    leaderboards: Leaderboards,
    sessions: Sessions,
    config: Settings,
    /// Where this process is; `None` before it has found its place.
    head: watch::Sender<Option<Position>>,
    shared: Mutex<Shared>,
    tell: broadcast::Sender<Heard>,
    listening: AtomicUsize,
    readers: Semaphore,
}

#[derive(Default)]
struct Shared {
    /// The latest facts, without a gap from `complete_from` on.
    at_hand: VecDeque<Arc<Item>>,
    complete_from: u64,
    /// Who listens, on how many connections, and where they were last seen to be on the leaderboard.
    listeners: HashMap<UserId, Listening>,
}

#[derive(Default)]
struct Listening {
    connections: usize,
    /// How many of them want to hear of predicted matches only.
    mine: usize,
    rank: Option<i64>,
}

/// What listeners read along in.
#[derive(Clone)]
enum Heard {
    Item(Arc<Item>),
    /// The stream was lost; nobody knows what was in it.
    Lost,
}

/// Why somebody cannot listen.
#[derive(Debug, thiserror::Error)]
pub enum ListenError {
    /// As many listen as this process takes.
    #[error("too many listen")]
    TooMany,
    /// The user has as many connections as one needs.
    #[error("the user listens too often")]
    TooManyOfUser,
    /// This process does not hear anything itself.
    #[error("nothing is heard at the moment")]
    Deaf,
}

impl Live {
    /// The live stream of these facts.
    pub fn new(
        streams: Streams,
        predictions: Predictions,
        leaderboards: Leaderboards,
        sessions: Sessions,
        config: &Settings,
    ) -> Self {
        let inner = Inner {
            streams,
            predictions,
            leaderboards,
            sessions,
            config: config.clone(),
            head: watch::Sender::new(None),
            shared: Mutex::default(),
            tell: broadcast::Sender::new(config.behind.max(1)),
            listening: AtomicUsize::new(0),
            readers: Semaphore::new(READERS),
        };
        Self { inner: Arc::new(inner) }
    }

    /// How many listen to this process.
    pub fn listeners(&self) -> usize {
        self.inner.listening.load(Ordering::Relaxed)
    }

    /// Follows the facts until the process closes.
    pub async fn run(&self, closing: CancellationToken) {
        let mut pause = Duration::from_millis(100);
        while !closing.is_cancelled() {
            let followed = tokio::select! {
                () = closing.cancelled() => return,
                followed = self.follow() => followed,
            };
            // The stream may simply not be there yet.
            if let Err(error) = followed {
                tracing::debug!(%error, "the live stream waits for NATS");
            }
            tokio::select! {
                () = closing.cancelled() => {}
                () = tokio::time::sleep(pause) => {}
            }
            pause = (pause * 2).min(Duration::from_secs(1));
        }
    }

    /// Follows until something fails. What was told is not told again.
    async fn follow(&self) -> Result<(), TransportError> {
        let inner = &*self.inner;
        let extent = inner.streams.extent(Stream::Facts).await?;
        let head = *inner.head.borrow();
        let begins = match head {
            Some(head) if is_within(head, extent) => head.sequence + 1,
            Some(_) => {
                tracing::warn!("the stream of facts is another one than before; listeners are told to begin anew");
                self.lose();
                extent.first
            }
            None => extent.first.max((extent.last + 1).saturating_sub(AT_HAND as u64)),
        };
        let (waiting, mut facts) = inner.streams.follow(Stream::Facts, &SUBJECTS, begins).await?;
        if inner.head.borrow().is_none() {
            self.lock().complete_from = begins;
            // What was there before this process: for those who come back to it, not for those who listen.
            for _ in 0..waiting {
                let Some(told) = facts.next().await.transpose()? else { return Ok(()) };
                self.keep(extent.made, &told, Personal::default());
            }
            let kept = self.lock().at_hand.back().map_or(0, |item| item.position.sequence);
            inner.head.send_replace(Some(Position { made: extent.made, sequence: kept.max(extent.last) }));
        }
        while let Some(told) = facts.next().await.transpose()? {
            let position = Position { made: extent.made, sequence: told.sequence };
            if inner.head.borrow().is_some_and(|head| head.sequence >= told.sequence) {
                continue;
            }
            let personal = match Fact::read(&told) {
                Some(fact) => self.personal_of_listeners(&fact).await,
                None => Personal::default(),
            };
            let mut shared = self.lock();
            if let Some(item) = keep(&mut shared, extent.made, &told, personal) {
                // Nobody listens, most likely.
                let _ = inner.tell.send(Heard::Item(item));
            }
            inner.head.send_replace(Some(position));
        }
        Ok(())
    }

    fn keep(&self, made: i64, told: &StoredMessage, personal: Personal) {
        keep(&mut self.lock(), made, told, personal);
    }

    /// Begins anew: nothing is at hand, and nothing that was heard before has a place any more.
    fn lose(&self) {
        let mut shared = self.lock();
        shared.at_hand.clear();
        self.inner.head.send_replace(None);
        let _ = self.inner.tell.send(Heard::Lost);
    }

    /// What a fact means for those who listen here, found out once for all of them. Only a database that is away keeps it
    /// from being found out, and then there are no new facts either: it waits.
    async fn personal_of_listeners(&self, fact: &Fact) -> Personal {
        let concerns_all = matches!(fact, Fact::Result(_) | Fact::Scores(_));
        loop {
            let users: Vec<UserId> = {
                let shared = self.lock();
                let concerned = shared.listeners.iter().filter(|(_, listening)| concerns_all || listening.mine > 0);
                concerned.map(|(&user, _)| user).collect()
            };
            match self.personal(fact, &users).await {
                Ok(personal) => return personal,
                Err(error) => tracing::warn!(%error, "listeners wait to learn what a fact means for them"),
            }
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    /// What a fact means for some users.
    async fn personal(&self, fact: &Fact, users: &[UserId]) -> sqlx::Result<Personal> {
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
                    let told = StreamPoints { event_id: event, points_earned: prediction.points() }.frame();
                    personal.told.insert(prediction.user_id, vec![told]);
                }
            }
            Fact::Scores(_) => {
                for (user, told) in self.ranks(event, &personal.predicted).await {
                    personal.told.insert(user, vec![told]);
                }
            }
            Fact::Event(_) | Fact::Tally(_) => {}
        }
        Ok(personal)
    }

    /// Where some users are on the leaderboard, if it is somewhere else than when they were last told. What cannot be looked
    /// up is left out: anybody can ask for it at any time.
    async fn ranks(&self, event: MatchId, users: &HashSet<UserId>) -> Vec<(UserId, String)> {
        let (users, mut told): (Vec<UserId>, _) = (users.iter().copied().collect(), Vec::new());
        for some in users.chunks(LOOKS_AT_ONCE) {
            let places = join_all(some.iter().map(|&user| self.inner.leaderboards.place(user))).await;
            for (&user, place) in some.iter().zip(places) {
                match place {
                    Ok(Some((place, total))) => {
                        let mut shared = self.lock();
                        let listening = shared.listeners.get_mut(&user);
                        if listening.and_then(|listening| listening.rank.replace(place.rank)) != Some(place.rank) {
                            let (rank, points) = (place.rank, place.standing.points);
                            let told_now = StreamRank { event_id: event, rank, of: total, points };
                            told.push((user, told_now.frame()));
                        }
                    }
                    Ok(None) => {}
                    Err(error) => tracing::debug!(%error, "a listener was not told their rank"),
                }
            }
        }
        told
    }

    /// Begins to listen: from now on, or after a place where one was before.
    pub async fn listen(
        &self,
        user: UserId,
        token: SecretString,
        filter: Filter,
        after: Option<Position>,
        closing: CancellationToken,
    ) -> Result<Listener, ListenError> {
        let inner = &*self.inner;
        let place = Place::take(self, user, filter.mine)?;
        let mut head = inner.head.subscribe();
        let found = tokio::time::timeout(PATIENCE, head.wait_for(Option::is_some)).await;
        if !matches!(found, Ok(Ok(_))) {
            return Err(ListenError::Deaf);
        }
        // What is at hand and what comes next are taken at one moment: so nothing is missed in between.
        let (hears, position, mut missed) = {
            let shared = self.lock();
            let position = (*inner.head.borrow()).ok_or(ListenError::Deaf)?;
            let missed = after.map(|after| missed(&shared, after, position));
            (inner.tell.subscribe(), position, missed)
        };
        let mut waiting = VecDeque::new();
        if let Some(Missed::AtHand(items)) = &mut missed {
            waiting = std::mem::take(items);
        }
        let mut beats = tokio::time::interval_at(Instant::now() + inner.config.heartbeat, inner.config.heartbeat);
        beats.set_missed_tick_behavior(MissedTickBehavior::Delay);
        Ok(Listener {
            live: self.clone(),
            user,
            token,
            filter,
            heard: hears,
            position: match (&missed, after) {
                (Some(Missed::AtHand(_) | Missed::InNats), Some(after)) => after,
                _ => position,
            },
            reads_until: position,
            first: match missed {
                None | Some(Missed::AtHand(_)) => First::Beat,
                Some(Missed::InNats) => First::Read,
                Some(Missed::Gone) => First::Reset,
            },
            waiting,
            beats,
            ends: Box::pin(tokio::time::sleep(inner.config.lifetime)),
            closing,
            _place: place,
        })
    }

    /// Reads from NATS what somebody missed between two places; `None` if it is not there any more.
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
            let Some(told) = facts.next().await.transpose()? else { break };
            if told.sequence > until.sequence {
                break;
            }
            if let Some(fact) = Fact::read(&told) {
                let position = Position { made: extent.made, sequence: told.sequence };
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
    let items = shared.at_hand.iter().filter(|item| item.position.sequence > after.sequence);
    Missed::AtHand(items.cloned().collect())
}

fn is_within(head: Position, extent: Extent) -> bool {
    head.made == extent.made && head.sequence <= extent.last
}

fn keep(shared: &mut Shared, made: i64, told: &StoredMessage, personal: Personal) -> Option<Arc<Item>> {
    let fact = Fact::read(told)?;
    let item = Arc::new(Item::new(Position { made, sequence: told.sequence }, fact, personal));
    if shared.at_hand.len() == AT_HAND
        && let Some(oldest) = shared.at_hand.pop_front()
    {
        shared.complete_from = oldest.position.sequence + 1;
    }
    shared.at_hand.push_back(Arc::clone(&item));
    Some(item)
}

/// What somebody missed who comes back.
enum Missed {
    AtHand(VecDeque<Arc<Item>>),
    InNats,
    Gone,
}

/// A place among those who listen, given back when dropped.
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
        listening.connections += 1;
        listening.mine += usize::from(mine);
        let count = live.inner.listening.fetch_add(1, Ordering::Relaxed) + 1;
        drop(shared);
        #[expect(clippy::cast_precision_loss, reason = "nobody counts so many listeners")]
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
        #[expect(clippy::cast_precision_loss, reason = "nobody counts so many listeners")]
        metrics::gauge!("matchday_stream_listeners").set(count as f64);
    }
}

/// What a listener is given before anything else.
#[derive(Clone, Copy, PartialEq, Eq)]
enum First {
    /// Where they are.
    Beat,
    /// What they missed, which must be read.
    Read,
    /// That what they missed is gone.
    Reset,
    /// It was given.
    Done,
}

/// What came of waiting.
enum Waited {
    Heard(Arc<Item>),
    /// Nothing, for as long as a connection may be silent.
    InVain,
}

/// Somebody who listens.
pub struct Listener {
    live: Live,
    user: UserId,
    token: SecretString,
    filter: Filter,
    heard: broadcast::Receiver<Heard>,
    /// Up to where they have been told all they want to hear.
    position: Position,
    /// Up to where what they missed is read.
    reads_until: Position,
    first: First,
    waiting: VecDeque<Arc<Item>>,
    beats: Interval,
    ends: std::pin::Pin<Box<tokio::time::Sleep>>,
    closing: CancellationToken,
    _place: Place,
}

impl Listener {
    /// The next words, or `None` when it is time to go. Whoever goes can come back to where they were.
    pub async fn next(&mut self) -> Option<Bytes> {
        match std::mem::replace(&mut self.first, First::Done) {
            First::Done => {}
            First::Beat => return Some(rules::beat(self.position)),
            First::Reset => return Some(rules::reset(self.position)),
            First::Read => match self.live.read(self.position, self.reads_until).await {
                Ok(Some(read)) => self.waiting = read,
                Ok(None) => {
                    self.position = self.reads_until;
                    return Some(rules::reset(self.position));
                }
                Err(error) => {
                    tracing::debug!(%error, "what a listener missed could not be read");
                    return None;
                }
            },
        }
        loop {
            let item = match self.waiting.pop_front() {
                Some(item) => item,
                None => match self.wait().await? {
                    Waited::Heard(item) => item,
                    Waited::InVain => return Some(rules::beat(self.position)),
                },
            };
            match self.told(&item).await {
                Ok(Some(told)) => return Some(told),
                Ok(None) => {}
                Err(error) => {
                    tracing::debug!(%error, "a listener is sent away, to ask again what a fact means for them");
                    return None;
                }
            }
        }
    }

    /// Waits for something to happen, or for a heartbeat; `None` when it is time to go.
    async fn wait(&mut self) -> Option<Waited> {
        tokio::select! {
            () = self.closing.cancelled() => None,
            () = &mut self.ends => None,
            heard = self.heard.recv() => match heard {
                Ok(Heard::Item(item)) => Some(Waited::Heard(item)),
                // Whoever comes back learns that their place is none any more.
                Ok(Heard::Lost) | Err(broadcast::error::RecvError::Closed) => None,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    metrics::counter!("matchday_stream_dropped_total").increment(1);
                    tracing::debug!(missed, "a listener was too slow and is sent away");
                    None
                }
            },
            _ = self.beats.tick() => self.is_welcome().await.then_some(Waited::InVain),
        }
    }

    /// What is told of an item, if anything.
    async fn told(&mut self, item: &Item) -> sqlx::Result<Option<Bytes>> {
        if item.position.sequence <= self.position.sequence {
            return Ok(None);
        }
        let told = if item.lacks(self.user, &self.filter) {
            let _turn = self.live.inner.readers.acquire().await;
            let personal = self.live.personal(&item.fact, &[self.user]).await?;
            item.told(self.user, &self.filter, &personal)
        } else {
            item.told(self.user, &self.filter, &item.personal)
        };
        self.position = item.position;
        Ok(told)
    }

    /// Whether the token is still good. A database that is away is no reason to send anybody away.
    async fn is_welcome(&self) -> bool {
        match self.live.inner.sessions.check(self.token.expose_secret()).await {
            Ok(Some(session)) => session.ban.is_none(),
            Ok(None) => false,
            Err(_) => true,
        }
    }
}
