//! Passes chat messages between processes, and from a room to its spectators in this process.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use bytes::Bytes;
use platform::{Core, clock::Clock, random::Random, stream::Streams};
use sqlx::PgPool;
use tokio::{
    sync::{Semaphore, broadcast},
    time::Instant,
};
use web::ids::UserId;

pub use super::room::Spectated;
use super::{
    offers::Offers,
    readers::{Reader, Readers},
    room::{Entered, Followed, OpenRooms, Update, lock, subject},
    rules::{Shown, ViewEvent},
    settings::Settings,
    speakers::Speakers,
};
use crate::{
    chat::{
        accounts::{service::Chat, settings::Matrix},
        messages::Ignored,
    },
    identity::{
        accounts::restrictions::{Restriction, RestrictionFact},
        avatars::AvatarUrls,
    },
};

/// How long a new spectator waits for the recent messages of a room.
const PATIENCE: Duration = Duration::from_secs(2);

/// How long pushed events wait for NATS. The homeserver waits for the response meanwhile.
const OFFERED_FOR: Duration = Duration::from_millis(500);

/// Interval at which missed events are reported to other processes, until NATS accepts the report.
const REPORTED_EVERY: Duration = Duration::from_secs(1);

/// Pause before a failed query is repeated.
pub(super) const RETRY_PAUSE: Duration = Duration::from_millis(500);

/// Number of rooms whose recent messages this process requests from the homeserver concurrently.
const LOADS_AT_ONCE: usize = 4;

/// The spectator view of this process. Cheap to clone.
#[derive(Clone)]
pub struct ChatView {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) random: Arc<dyn Random>,
    pub(super) chat: Chat,
    pub(super) streams: Streams,
    pub(super) speakers: Speakers,
    pub(super) settings: Settings,
    pub(super) rooms: Arc<OpenRooms>,
    pub(super) loads: Semaphore,
    readers: Readers,
    offers: Mutex<Offers>,
}

/// The chat items of one stream.
pub struct Spectator {
    entered: Entered,
    reader: Arc<Reader>,
    updates: broadcast::Receiver<Update>,
    first: Option<Bytes>,
}

impl ChatView {
    pub fn new(
        core: &Core,
        streams: Streams,
        chat: Chat,
        avatars: AvatarUrls,
        matrix: &Matrix,
        settings: &Settings,
    ) -> Self {
        Self {
            inner: Arc::new(Inner {
                db: core.db.clone(),
                clock: core.clock.clone(),
                random: core.random.clone(),
                chat,
                streams,
                speakers: Speakers::new(core, matrix, avatars),
                settings: settings.clone(),
                rooms: Arc::default(),
                loads: Semaphore::new(LOADS_AT_ONCE),
                readers: Readers::new(core.db.clone()),
                offers: Mutex::new(Offers::new(Instant::now())),
            }),
        }
    }

    /// Passes pushed events to all processes with spectators of their rooms. Waits at most half a second. Events that
    /// cannot be passed on reach the spectators of this process; the other processes reload the rooms later.
    pub(crate) async fn offer(&self, events: Vec<(String, ViewEvent)>) {
        let until = Instant::now() + OFFERED_FOR;
        for (room, event) in events {
            if !self.publish(&room, &event, until).await
                && let Some(room) = self.inner.rooms.get(&room)
            {
                room.offer(event);
            }
        }
    }

    /// Publishes an event of a room. If that fails, notes it and returns false.
    async fn publish(&self, room: &str, event: &ViewEvent, until: Instant) -> bool {
        let inner = &*self.inner;
        let sent = async {
            let Ok(payload) = serde_json::to_vec(event) else { return false };
            match tokio::time::timeout_at(until, inner.streams.publish(&subject(room), payload.into())).await {
                Ok(Ok(())) => true,
                Ok(Err(error)) => {
                    tracing::debug!(%error, "chat message not passed to spectators");
                    false
                }
                Err(_) => {
                    tracing::debug!("chat message not passed to spectators in time");
                    false
                }
            }
        };
        // Without a connection, the client would keep the event and send it much later.
        let is_published = inner.streams.is_connected() && sent.await;
        let must_report = {
            let mut offers = lock(&inner.offers);
            if is_published {
                offers.note_published(room, Instant::now());
            }
            !is_published && offers.note_missed(room)
        };
        if must_report {
            self.start_reporting();
        }
        is_published
    }

    fn start_reporting(&self) {
        tokio::spawn(self.clone().report_missed());
    }

    /// Asks all processes to reload the rooms with missed events, as soon as NATS is available.
    async fn report_missed(self) {
        loop {
            tokio::time::sleep(REPORTED_EVERY).await;
            if !self.inner.streams.is_connected() {
                continue;
            }
            let Some(rooms) = lock(&self.inner.offers).take_missed() else { return };
            for room in rooms {
                // A room that cannot be published is noted again.
                self.publish(&room, &ViewEvent::Missed, Instant::now() + OFFERED_FOR).await;
            }
        }
    }

    /// Opens the view of a room. The caller has checked that the user may read it.
    pub async fn open(&self, user: UserId, room: &Spectated) -> sqlx::Result<Spectator> {
        let reader = self.inner.readers.enter(user).await?;
        let entered = self.inner.rooms.enter(room, |room, local| {
            let followed = Followed::new(Arc::clone(&self.inner.rooms), room);
            tokio::spawn(self.clone().follow(followed, local));
        });
        let mut loaded = entered.room().loaded.subscribe();
        // Without the recent messages, the replay is empty. They are sent when they arrive.
        let _ = tokio::time::timeout(PATIENCE, loaded.wait_for(|loaded| *loaded)).await;
        let (first, updates) = entered.room().subscribe(room.slow_mode, &reader.blocked());
        Ok(Spectator { entered, reader, updates, first: Some(first) })
    }

    /// Handles a block that any process created or lifted.
    pub fn heard_block(&self, payload: &[u8]) {
        let Ok(Ignored { user_id, .. }) = serde_json::from_slice(payload) else { return };
        if let Some(reader) = self.inner.readers.find(user_id) {
            let view = self.clone();
            // The caller must not wait for the database.
            tokio::spawn(async move { view.read_blocks(&[reader]).await });
        }
    }

    /// Handles a changed restriction from any process. The messages of a banned user disappear.
    pub fn heard_restriction(&self, payload: &[u8]) {
        let Ok(RestrictionFact { user_id, action }) = serde_json::from_slice(payload) else {
            return self.inner.speakers.forget_all();
        };
        self.inner.speakers.forget(user_id);
        for room in self.inner.rooms.all() {
            if action == Restriction::Ban.name() {
                room.hide(user_id);
            } else {
                room.unhide(user_id);
            }
        }
    }

    /// Reloads everything that may have changed while messages from other processes were missed. Messages to them may be
    /// lost too, so they reload the rooms for which this process published events.
    pub async fn reconnected(&self) {
        let inner = &*self.inner;
        inner.speakers.forget_all();
        if lock(&inner.offers).doubt(Instant::now()) {
            self.start_reporting();
        }
        for room in inner.rooms.all() {
            room.missed.notify_one();
        }
        for readers in inner.readers.all() {
            self.read_blocks(&readers).await;
        }
    }

    /// Reads the blocks of some users. Retries until the database responds.
    async fn read_blocks(&self, readers: &[Arc<Reader>]) {
        while let Err(error) = self.inner.readers.read(readers).await {
            tracing::warn!(%error, "blocks of spectators could not be read; retrying");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Whether a user with open streams does not see the messages of another one.
    #[cfg(test)]
    pub(super) fn is_blocked(&self, user: UserId, other: UserId) -> bool {
        self.inner.readers.find(user).is_some_and(|reader| reader.blocked().contains(&other.0))
    }
}

impl Spectator {
    /// Takes the replay, which comes before the live items.
    pub fn take_first(&mut self) -> Option<Bytes> {
        self.first.take()
    }

    /// Returns the next items, or `None` if the stream must end. The client can reconnect.
    pub async fn next(&mut self) -> Option<Bytes> {
        loop {
            match self.updates.recv().await {
                Ok(Update::Message(message)) => {
                    if self.sees(&message) {
                        return Some(message.live.clone());
                    }
                }
                Ok(Update::Missed(messages)) => {
                    let seen = messages.iter().filter(|message| self.sees(message));
                    let frames: Vec<u8> = seen.flat_map(|message| &message.replayed).copied().collect();
                    if !frames.is_empty() {
                        return Some(frames.into());
                    }
                }
                Ok(Update::Removals(frames)) => return Some(frames),
                Ok(Update::Banned(users)) if users.contains(&self.reader.user) => return None,
                Ok(Update::Banned(_)) => {}
                Ok(Update::Ended) | Err(broadcast::error::RecvError::Closed) => return None,
                Err(broadcast::error::RecvError::Lagged(missed)) => {
                    metrics::counter!("matchday_stream_dropped_total").increment(1);
                    tracing::debug!(missed, "slow spectator disconnected");
                    return None;
                }
            }
        }
    }

    /// Whether the user has not blocked the sender.
    fn sees(&self, message: &Shown) -> bool {
        message.user.is_none_or(|user| !self.reader.blocks(user))
    }

    /// Whether the user may still read the room.
    pub fn may_read(&self) -> bool {
        self.entered.room().may_read(self.reader.user)
    }
}
