//! Follows the events of a room with spectators.

use std::{collections::HashMap, sync::Arc, time::Duration};

use futures_util::{
    FutureExt as _, StreamExt as _,
    future::{self, BoxFuture},
    stream::{self, BoxStream},
};
use matrix_appservice::{Error as MatrixError, RoomId as MatrixRoomId};
use platform::random;
use tokio::{sync::mpsc, time::Instant};

use super::{
    room::{Banned, Followed, Room},
    rules::{REPLAYED, Sampler, Shown, ViewEvent},
    service::{ChatView, RETRY_PAUSE},
    speakers::Speaker,
};
use crate::chat::members;

/// Interval between checks of a room's bans, and of whether it still has spectators.
const CHECKED_EVERY: Duration = Duration::from_secs(10);

/// Shortest time between the starts of two reloads of a room.
const RELOAD_PAUSE: Duration = Duration::from_secs(5);

/// Processes that missed the same events reload at a random time within this one, so that the homeserver does not get all
/// requests at once.
const RELOAD_SPREAD: Duration = Duration::from_secs(1);

/// Number of pages of messages requested at most. Edits and redacted messages are not shown, so one page may have too
/// few.
const PAGES: usize = 3;

/// Number of events that are handled together.
const BATCH: usize = 256;

impl ChatView {
    /// Follows the events of a room until it has had no spectators for a while.
    pub(super) async fn follow(self, followed: Followed, local: mpsc::Receiver<ViewEvent>) {
        let (room, settings) = (&*followed.room, &self.inner.settings);
        let mut events = self.events(room, local).await.ready_chunks(BATCH);
        let mut sampler = Sampler::new(settings.rate, settings.burst, Instant::now());
        // Runs beside the events, which must not wait for a slow homeserver.
        let mut loading = Some(self.load(room).boxed());
        let (mut loaded_at, mut reload_at) = (Instant::now(), None);
        let (mut is_complete, mut check_at) = (false, Instant::now() + CHECKED_EVERY);
        loop {
            tokio::select! {
                Some(batch) = events.next() => self.apply(room, &mut sampler, batch).await,
                () = reached(sampler.due()) => {
                    if let Some(message) = sampler.next(Instant::now()) {
                        room.send(message);
                    }
                }
                complete = finished(&mut loading) => (loading, is_complete) = (None, complete),
                () = room.missed.notified(), if reload_at.is_none() => {
                    reload_at = Some((Instant::now() + self.spread()).max(loaded_at + RELOAD_PAUSE));
                }
                () = reached(reload_at), if loading.is_none() => {
                    (loading, loaded_at, reload_at) = (Some(self.load(room).boxed()), Instant::now(), None);
                }
                () = tokio::time::sleep_until(check_at) => {
                    if self.inner.rooms.retire(room) {
                        return;
                    }
                    if !is_complete && loading.is_none() {
                        (loading, loaded_at) = (Some(self.load(room).boxed()), Instant::now());
                    }
                    self.check_access(room).await;
                    check_at = Instant::now() + CHECKED_EVERY;
                }
            }
            let left_out = sampler.take_left_out();
            if left_out > 0 {
                metrics::counter!("matchday_chat_view_messages_total", "outcome" => "left_out").increment(left_out);
            }
        }
    }

    /// Events of a room from all processes.
    async fn events(&self, room: &Room, local: mpsc::Receiver<ViewEvent>) -> BoxStream<'static, ViewEvent> {
        let streams = &self.inner.streams;
        let heard: BoxStream<'static, ViewEvent> = match streams.hear(&room.subject).await {
            Ok(messages) => {
                messages.filter_map(|message| future::ready(serde_json::from_slice(&message.payload).ok())).boxed()
            }
            Err(error) => {
                tracing::warn!(%error, "chat messages of other processes are not shown to spectators");
                stream::pending().boxed()
            }
        };
        if streams.is_connected() {
            // A message that is too new for the room's history must find the subscription in place.
            streams.settled().await;
        }
        let local = stream::unfold(local, async |mut local| local.recv().await.map(|event| (event, local)));
        stream::select(heard, local.boxed()).boxed()
    }

    fn spread(&self) -> Duration {
        let share = f64::from(u32::from_be_bytes(random::bytes(&*self.inner.random))) / f64::from(u32::MAX);
        RELOAD_SPREAD.mul_f64(share)
    }

    /// Time in milliseconds since 1970.
    fn now(&self) -> i64 {
        i64::try_from(self.inner.clock.now().unix_timestamp_nanos() / 1_000_000).unwrap_or(i64::MAX)
    }

    /// Applies events in their order. Removals follow the messages, in one update.
    async fn apply(&self, room: &Room, sampler: &mut Sampler<Arc<Shown>>, batch: Vec<ViewEvent>) {
        let speakers = self.speakers(&batch).await;
        let (now, mut removed, mut banned) = (self.now(), Vec::new(), Vec::new());
        for event in batch {
            match event {
                ViewEvent::Message { event_id, sender, body, sent_at } => {
                    let Some(speaker) = speakers.get(&sender) else { continue };
                    if !room.shows(&sender, speaker) {
                        metrics::counter!("matchday_chat_view_messages_total", "outcome" => "hidden").increment(1);
                        continue;
                    }
                    let from = (sender.as_str(), &speaker.sender);
                    let message = Arc::new(Shown::new(&room.of.matrix_id, event_id, from, body, sent_at));
                    if !room.keep(&message, now) {
                        continue;
                    }
                    if self.is_never_left_out(room, speaker) {
                        room.send(message);
                    } else if let Some(message) = sampler.offer(Instant::now(), &sender, message) {
                        room.send(message);
                    }
                }
                ViewEvent::Removal { event_id } => {
                    room.remove(&event_id);
                    removed.push(event_id);
                }
                ViewEvent::Ban { user } => {
                    let id = speakers.get(&user).and_then(|speaker| speaker.sender.user_id);
                    removed.extend(room.ban(user, id));
                    banned.extend(id);
                }
                ViewEvent::Missed => room.missed.notify_one(),
            }
        }
        room.send_removals(&removed);
        room.end_streams_of(banned);
    }

    fn is_never_left_out(&self, room: &Room, speaker: &Speaker) -> bool {
        let is_creator = speaker.sender.user_id.is_some() && speaker.sender.user_id == room.of.creator;
        let is_operator =
            speaker.sender.user_id.is_some() && self.inner.settings.always_shown.contains(&speaker.sender.username);
        speaker.is_bot || is_creator || is_operator
    }

    /// Reads the accounts of the events' users. Retries until the database responds: without it, bans and blocks could
    /// not be applied.
    async fn speakers(&self, events: &[ViewEvent]) -> HashMap<String, Arc<Speaker>> {
        let ids = events.iter().filter_map(|event| match event {
            ViewEvent::Message { sender: user, .. } | ViewEvent::Ban { user } => Some(user.as_str()),
            ViewEvent::Removal { .. } | ViewEvent::Missed => None,
        });
        let ids: Vec<&str> = ids.collect();
        loop {
            match self.inner.speakers.find(&ids).await {
                Ok(speakers) => return speakers,
                Err(error) => tracing::warn!(%error, "senders of chat messages could not be read; retrying"),
            }
            tokio::time::sleep(RETRY_PAUSE).await;
        }
    }

    /// Adds messages that this process does not have, from the homeserver. Returns whether that succeeded.
    async fn load(&self, room: &Room) -> bool {
        // Before the messages, so that none of a banned user is shown.
        let is_checked = self.check_access(room).await;
        let history = if is_checked { self.history(&room.of.matrix_id).await } else { Ok(Vec::new()) };
        if let Ok(history) = &history {
            let speakers = self.speakers(history).await;
            let (mut messages, mut redacted) = (Vec::new(), Vec::new());
            for event in history {
                match event {
                    ViewEvent::Message { event_id, sender, body, sent_at } => {
                        // The time of a mute is not known here. Messages from before it are left out too, unless this
                        // process has them.
                        if let Some(speaker) = speakers.get(sender).filter(|speaker| room.shows(sender, speaker)) {
                            let (id, from, body) = (event_id.clone(), (sender.as_str(), &speaker.sender), body.clone());
                            messages.push(Arc::new(Shown::new(&room.of.matrix_id, id, from, body, *sent_at)));
                        }
                    }
                    ViewEvent::Removal { event_id } => redacted.push(event_id.clone()),
                    ViewEvent::Ban { .. } | ViewEvent::Missed => {}
                }
            }
            room.apply_history(messages, redacted, self.now());
        }
        room.loaded.send_replace(true);
        match history {
            Ok(_) => is_checked,
            Err(error) => {
                tracing::debug!(%error, "recent messages of a room could not be loaded");
                false
            }
        }
    }

    /// Returns the last messages of a room, oldest first, and removals of redacted ones.
    async fn history(&self, matrix_id: &str) -> Result<Vec<ViewEvent>, MatrixError> {
        let Some(homeserver) = self.inner.chat.homeserver() else { return Ok(Vec::new()) };
        let Ok(room) = MatrixRoomId::parse(matrix_id) else { return Ok(Vec::new()) };
        let _turn = self.inner.loads.acquire().await;
        let (mut events, mut from, mut messages) = (Vec::new(), None, 0);
        for _ in 0..PAGES {
            let page = homeserver.message_page(&room, from, u16::try_from(REPLAYED).unwrap_or(u16::MAX)).await?;
            for event in page.events {
                let (id, sender) = (event.event_id.to_string(), event.sender.to_string());
                let sent_at = i64::try_from(event.timestamp_ms).unwrap_or(i64::MAX);
                if let Some(message) = ViewEvent::message(id.clone(), sender, sent_at, &event.content) {
                    messages += 1;
                    events.push(message);
                } else if event.content.as_object().is_some_and(serde_json::Map::is_empty) {
                    events.push(ViewEvent::Removal { event_id: id });
                }
                if messages == REPLAYED {
                    break;
                }
            }
            from = page.next;
            if messages == REPLAYED || from.is_none() {
                break;
            }
        }
        events.reverse();
        Ok(events)
    }

    /// Reads who may no longer read the room. Returns whether that succeeded.
    async fn check_access(&self, room: &Room) -> bool {
        let (db, id) = (&self.inner.db, room.of.id);
        let read = async {
            let is_public = members::is_public(db, id).await?;
            let users = members::banned_users(db, id).await?.into_iter().collect();
            let ids = members::banned_remotes(db, id).await?.into_iter().collect();
            Ok::<_, sqlx::Error>((is_public, Banned { users, ids }))
        };
        match read.await {
            Ok((is_public, banned)) => {
                room.set_access(is_public, banned);
                true
            }
            Err(error) => {
                tracing::debug!(%error, "bans of a room could not be read; retrying");
                false
            }
        }
    }
}

/// Waits until a time; forever without one.
async fn reached(time: Option<Instant>) {
    match time {
        Some(time) => tokio::time::sleep_until(time).await,
        None => future::pending().await,
    }
}

/// Waits until the messages are loaded; forever if they are not being loaded.
async fn finished(loading: &mut Option<BoxFuture<'_, bool>>) -> bool {
    match loading {
        Some(loading) => loading.await,
        None => future::pending().await,
    }
}
