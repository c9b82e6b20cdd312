//! A room with spectators in this process.

use std::{
    collections::{HashMap, HashSet},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use sha2::{Digest as _, Sha256};
use tokio::{
    sync::{Notify, broadcast, mpsc, watch},
    time::Instant,
};
use web::ids::{RoomId, UserId};

use super::{
    payloads::StreamChat,
    rules::{Author, Recent, Shown, ViewEvent},
    speakers::Speaker,
};

/// Time for which the messages of a room stay in memory after its last spectator has left.
const KEPT_FOR: Duration = Duration::from_mins(10);

/// Time for which no message of a banned user is shown that another task may still have. Afterwards, its account is read
/// again.
const HIDDEN_FOR: Duration = Duration::from_secs(10);

/// Time after which a ban that the homeserver pushed is in the tables.
const APPLIED_AFTER: Duration = Duration::from_secs(10);

/// Number of updates that a spectator may lag behind before it is disconnected.
const BEHIND: usize = 256;

/// Number of events that wait in a process without NATS.
const LOCAL_QUEUE: usize = 1_024;

/// A room that spectators may read.
#[derive(Clone, Debug)]
pub struct Spectated {
    pub id: RoomId,
    pub matrix_id: String,
    pub creator: Option<UserId>,
    /// Seconds between two messages of a member. Zero if the room is not in slow mode.
    pub slow_mode: i32,
}

/// Rooms with spectators, by Matrix room id.
#[derive(Default)]
pub(super) struct OpenRooms {
    rooms: Mutex<HashMap<String, Arc<Room>>>,
}

pub(super) struct Room {
    pub(super) of: Spectated,
    /// NATS subject of its events.
    pub(super) subject: String,
    /// Whether the recent messages have been requested from the homeserver.
    pub(super) loaded: watch::Sender<bool>,
    /// Notified if events may have been missed.
    pub(super) missed: Notify,
    /// Events that this process could not publish.
    local: mpsc::Sender<ViewEvent>,
    state: Mutex<State>,
    updates: broadcast::Sender<Update>,
}

struct State {
    recent: Recent,
    /// Replay for spectators without blocks, and its slow mode, until the messages change.
    replay: Option<(i32, Bytes)>,
    banned: Banned,
    /// Bans that may not be in the tables yet.
    pushed_bans: Vec<PushedBan>,
    /// Users whose messages were just removed. Their messages may still be on the way from the homeserver.
    hidden: HashMap<Author, Instant>,
    is_public: bool,
    /// Whether no task follows the room any more.
    has_ended: bool,
    spectators: usize,
    /// Time at which the last spectator left.
    left_at: Instant,
}

/// Users who are banned from a room.
#[derive(Clone, Debug, Default)]
pub(super) struct Banned {
    pub(super) users: HashSet<UserId>,
    /// Matrix ids of users without an account here, and of those whose ban was just pushed.
    pub(super) ids: HashSet<String>,
}

struct PushedBan {
    id: String,
    user: Option<UserId>,
    at: Instant,
}

/// Message to all spectators of a room in this process.
#[derive(Clone)]
pub(super) enum Update {
    Message(Arc<Shown>),
    /// Messages that were sent earlier.
    Missed(Arc<[Arc<Shown>]>),
    /// Removals of one or more messages, rendered.
    Removals(Bytes),
    Banned(Arc<[UserId]>),
    /// No further messages will follow.
    Ended,
}

impl OpenRooms {
    /// Counts a spectator. Calls `follow` for a room without spectators so far.
    pub(super) fn enter(&self, of: &Spectated, follow: impl FnOnce(Arc<Room>, mpsc::Receiver<ViewEvent>)) -> Entered {
        let mut rooms = lock(&self.rooms);
        if let Some(room) = rooms.get(&of.matrix_id) {
            lock(&room.state).spectators += 1;
            return Entered(Arc::clone(room));
        }
        let (local, events) = mpsc::channel(LOCAL_QUEUE);
        let room = Arc::new(Room::new(of.clone(), local));
        lock(&room.state).spectators += 1;
        rooms.insert(of.matrix_id.clone(), Arc::clone(&room));
        follow(Arc::clone(&room), events);
        Entered(room)
    }

    pub(super) fn get(&self, matrix_id: &str) -> Option<Arc<Room>> {
        lock(&self.rooms).get(matrix_id).map(Arc::clone)
    }

    pub(super) fn all(&self) -> Vec<Arc<Room>> {
        lock(&self.rooms).values().map(Arc::clone).collect()
    }

    /// Forgets a room that has had no spectators for a while. Returns whether it did.
    pub(super) fn retire(&self, room: &Room) -> bool {
        // Spectators enter under this lock.
        let mut rooms = lock(&self.rooms);
        let is_idle = {
            let state = lock(&room.state);
            state.spectators == 0 && state.left_at.elapsed() >= KEPT_FOR
        };
        if is_idle {
            rooms.remove(&room.of.matrix_id);
        }
        is_idle
    }

    /// Forgets a room that no task follows any more, and ends the streams of its spectators.
    fn end(&self, room: &Arc<Room>) {
        let mut rooms = lock(&self.rooms);
        if rooms.get(&room.of.matrix_id).is_some_and(|current| Arc::ptr_eq(current, room)) {
            rooms.remove(&room.of.matrix_id);
        }
        drop(rooms);
        lock(&room.state).has_ended = true;
        let _ = room.updates.send(Update::Ended);
    }
}

/// Held by the task that follows a room. If the task ends for any reason, a panic included, the room is forgotten, and the
/// next spectator starts another task.
pub(super) struct Followed {
    rooms: Arc<OpenRooms>,
    pub(super) room: Arc<Room>,
}

impl Followed {
    pub(super) fn new(rooms: Arc<OpenRooms>, room: Arc<Room>) -> Self {
        Self { rooms, room }
    }
}

impl Drop for Followed {
    fn drop(&mut self) {
        self.rooms.end(&self.room);
    }
}

/// A counted spectator of a room; uncounted on drop.
pub(super) struct Entered(Arc<Room>);

impl Entered {
    pub(super) fn room(&self) -> &Room {
        &self.0
    }
}

impl Drop for Entered {
    fn drop(&mut self) {
        let mut state = lock(&self.0.state);
        state.spectators -= 1;
        state.left_at = Instant::now();
    }
}

impl Banned {
    fn contains(&self, message: &Shown) -> bool {
        self.contains_user(message.user) || self.ids.contains(&message.sender)
    }

    fn contains_user(&self, user: Option<UserId>) -> bool {
        user.is_some_and(|user| self.users.contains(&user))
    }
}

impl State {
    fn is_hidden(&self, message: &Shown) -> bool {
        self.hidden.iter().any(|(author, since)| message.is_by(author) && since.elapsed() < HIDDEN_FOR)
    }

    /// Removes the messages of a user. Returns their ids.
    fn hide(&mut self, author: Author) -> Vec<String> {
        let removed = self.recent.remove_where(|message| message.is_by(&author));
        self.hidden.retain(|_, since| since.elapsed() < HIDDEN_FOR);
        self.hidden.insert(author, Instant::now());
        self.replay = None;
        removed
    }
}

impl Room {
    fn new(of: Spectated, local: mpsc::Sender<ViewEvent>) -> Self {
        Self {
            subject: subject(&of.matrix_id),
            of,
            loaded: watch::Sender::new(false),
            missed: Notify::new(),
            local,
            state: Mutex::new(State {
                recent: Recent::default(),
                replay: None,
                banned: Banned::default(),
                pushed_bans: Vec::new(),
                hidden: HashMap::new(),
                is_public: true,
                has_ended: false,
                spectators: 0,
                left_at: Instant::now(),
            }),
            updates: broadcast::Sender::new(BEHIND),
        }
    }

    /// Passes an event to the spectators of this process only. A full queue loses it, until the room is reloaded.
    pub(super) fn offer(&self, event: ViewEvent) {
        let _ = self.local.try_send(event);
    }

    /// Whether new messages of this user are shown.
    pub(super) fn shows(&self, matrix_id: &str, speaker: &Speaker) -> bool {
        let state = lock(&self.state);
        let is_banned = state.banned.contains_user(speaker.sender.user_id) || state.banned.ids.contains(matrix_id);
        !speaker.is_banned && !speaker.is_muted && !is_banned
    }

    /// Adds a live message to the recent ones. Returns false if it is known or was removed.
    pub(super) fn keep(&self, message: &Arc<Shown>, now: i64) -> bool {
        let mut state = lock(&self.state);
        let is_new = !state.is_hidden(message) && state.recent.add(message, now);
        if is_new {
            state.replay = None;
        }
        is_new
    }

    /// Sends a live message to the spectators, unless it was removed while it waited.
    pub(super) fn send(&self, message: Arc<Shown>) {
        let state = lock(&self.state);
        if !state.is_hidden(&message) && !state.recent.is_removed(&message.event_id) {
            metrics::counter!("matchday_chat_view_messages_total", "outcome" => "shown").increment(1);
            // Sending fails only without spectators.
            let _ = self.updates.send(Update::Message(message));
        }
    }

    /// Applies the history of the room: messages that this process does not have, and messages that were redacted.
    pub(super) fn apply_history(&self, mut messages: Vec<Arc<Shown>>, mut redacted: Vec<String>, now: i64) {
        let mut state = lock(&self.state);
        messages.retain(|message| !state.is_hidden(message) && state.recent.add_missed(message, now));
        // A redacted message that was never shown is not worth an item.
        redacted.retain(|event_id| state.recent.remove(event_id));
        state.replay = None;
        if !messages.is_empty() {
            metrics::counter!("matchday_chat_view_messages_total", "outcome" => "shown")
                .increment(messages.len() as u64);
            let _ = self.updates.send(Update::Missed(messages.into()));
        }
        self.send_removals(&redacted);
    }

    /// Removes a message. The caller sends the removal.
    pub(super) fn remove(&self, event_id: &str) {
        let mut state = lock(&self.state);
        state.recent.remove(event_id);
        state.replay = None;
    }

    /// Removes the messages of a user who was banned from the service.
    pub(super) fn hide(&self, user: UserId) {
        let removed = lock(&self.state).hide(Author::User(user));
        self.send_removals(&removed);
    }

    /// Shows new messages of a user again.
    pub(super) fn unhide(&self, user: UserId) {
        lock(&self.state).hidden.remove(&Author::User(user));
    }

    /// Removes the messages of a user who was banned from the room. Returns their ids; the caller sends the removals.
    pub(super) fn ban(&self, matrix_id: String, user: Option<UserId>) -> Vec<String> {
        let mut state = lock(&self.state);
        let mut removed = state.hide(Author::Matrix(matrix_id.clone()));
        if let Some(user) = user {
            removed.extend(state.hide(Author::User(user)));
            state.banned.users.insert(user);
        }
        state.banned.ids.insert(matrix_id.clone());
        state.pushed_bans.push(PushedBan { id: matrix_id, user, at: Instant::now() });
        removed
    }

    /// Replaces what the tables say about access. Removes messages of users whose ban was not pushed to this process.
    pub(super) fn set_access(&self, is_public: bool, mut banned: Banned) {
        let mut state = lock(&self.state);
        state.pushed_bans.retain(|ban| ban.at.elapsed() < APPLIED_AFTER);
        for ban in &state.pushed_bans {
            banned.users.extend(ban.user);
            banned.ids.insert(ban.id.clone());
        }
        let removed = state.recent.remove_where(|message| banned.contains(message));
        if !removed.is_empty() {
            state.replay = None;
        }
        (state.is_public, state.banned) = (is_public, banned);
        drop(state);
        self.send_removals(&removed);
    }

    /// Sends removals as one update: a moderator may remove more messages at once than a spectator may lag behind.
    pub(super) fn send_removals(&self, event_ids: &[String]) {
        let frame = |event_id: &String| {
            StreamChat::Removal { room_id: self.of.matrix_id.clone(), event_id: event_id.clone() }.frame()
        };
        let frames: String = event_ids.iter().map(frame).collect();
        if !frames.is_empty() {
            let _ = self.updates.send(Update::Removals(frames.into()));
        }
    }

    /// Ends the streams of users who were banned from the room.
    pub(super) fn end_streams_of(&self, users: Vec<UserId>) {
        if !users.is_empty() {
            let _ = self.updates.send(Update::Banned(users.into()));
        }
    }

    /// Whether the user may still read the room here.
    pub(super) fn may_read(&self, user: UserId) -> bool {
        let state = lock(&self.state);
        state.is_public && !state.has_ended && !state.banned.users.contains(&user)
    }

    /// Returns the replay, and the updates that follow it without a gap.
    pub(super) fn subscribe(&self, slow_mode: i32, blocked: &HashSet<i64>) -> (Bytes, broadcast::Receiver<Update>) {
        let mut state = lock(&self.state);
        let updates = self.updates.subscribe();
        let matrix_id = &self.of.matrix_id;
        if !blocked.is_empty() {
            return (state.recent.replay(matrix_id, slow_mode, blocked), updates);
        }
        let State { recent, replay, .. } = &mut *state;
        if replay.as_ref().is_some_and(|(of, _)| *of != slow_mode) {
            *replay = None;
        }
        let (_, frames) = replay.get_or_insert_with(|| (slow_mode, recent.replay(matrix_id, slow_mode, blocked)));
        (frames.clone(), updates)
    }
}

/// Subject of a room's events. It belongs to no stream, so NATS stores nothing.
pub(super) fn subject(matrix_id: &str) -> String {
    format!("chat.{}", hex::encode(&Sha256::digest(matrix_id)[..16]))
}

pub(super) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::chat::view::payloads::ChatSender;

    fn room() -> Arc<Room> {
        let of = Spectated { id: RoomId(1), matrix_id: "!r:s".to_owned(), creator: None, slow_mode: 0 };
        Arc::new(Room::new(of, mpsc::channel(1).0))
    }

    fn message(id: &str, from: &str, user: Option<i64>) -> Arc<Shown> {
        let user_id = user.map(UserId);
        let sender = ChatSender { user_id, username: "fan".to_owned(), name: None, avatar_url: None };
        Arc::new(Shown::new("!r:s", id.to_owned(), (from, &sender), "Hello".to_owned(), 0))
    }

    /// Texts of the waiting removals.
    fn removals(updates: &mut broadcast::Receiver<Update>) -> Vec<String> {
        let mut removals = Vec::new();
        while let Ok(update) = updates.try_recv() {
            if let Update::Removals(frames) = update {
                removals.push(String::from_utf8(frames.to_vec()).expect("UTF-8"));
            }
        }
        removals
    }

    #[tokio::test]
    async fn bans_in_tables_remove_messages() {
        let room = room();
        let (_, mut updates) = room.subscribe(0, &HashSet::new());
        for (id, from, user) in [("$1", "@a:s", Some(1)), ("$2", "@b:elsewhere", None), ("$3", "@c:elsewhere", None)] {
            assert!(room.keep(&message(id, from, user), 0));
        }
        let banned = Banned { users: HashSet::from([UserId(1)]), ids: HashSet::from(["@b:elsewhere".to_owned()]) };
        room.set_access(true, banned);
        let removed = removals(&mut updates).concat();
        assert!(removed.contains("$1") && removed.contains("$2") && !removed.contains("$3"), "{removed}");
        assert!(!room.may_read(UserId(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn pushed_ban_holds_until_tables_have_it() {
        let room = room();
        room.ban("@a:s".to_owned(), Some(UserId(1)));
        room.set_access(true, Banned::default());
        assert!(!room.may_read(UserId(1)), "the table is not up to date");
        tokio::time::advance(APPLIED_AFTER).await;
        room.set_access(true, Banned::default());
        assert!(room.may_read(UserId(1)), "the ban was lifted");
    }

    #[tokio::test]
    async fn many_removals_do_not_disconnect_spectators() {
        let room = room();
        let (_, mut updates) = room.subscribe(0, &HashSet::new());
        let ids: Vec<String> = (0..300).map(|number| format!("${number}")).collect();
        room.send_removals(&ids);
        let removed = removals(&mut updates);
        assert_eq!((removed.len(), removed[0].matches("event: chat").count()), (1, 300));
    }

    #[tokio::test]
    async fn room_is_forgotten_when_its_task_panics() {
        let rooms = Arc::new(OpenRooms::default());
        let of = Spectated { id: RoomId(1), matrix_id: "!r:s".to_owned(), creator: None, slow_mode: 0 };
        let enter = || {
            rooms.enter(&of, |room, _| {
                let followed = Followed::new(Arc::clone(&rooms), room);
                tokio::spawn(async move {
                    std::future::pending::<()>().await;
                    drop(followed);
                });
            })
        };
        let entered = enter();
        let (_, mut updates) = entered.room().subscribe(0, &HashSet::new());
        assert!(entered.room().may_read(UserId(1)));
        // A task drops its guard when it panics.
        let room = rooms.get("!r:s").expect("open");
        drop(Followed::new(Arc::clone(&rooms), Arc::clone(&room)));
        assert!(rooms.get("!r:s").is_none());
        assert!(matches!(updates.try_recv(), Ok(Update::Ended)));
        assert!(!entered.room().may_read(UserId(1)), "for spectators who had not subscribed yet");
        // The end of an earlier task does not affect the next one.
        let _again = enter();
        drop(Followed::new(Arc::clone(&rooms), room));
        assert!(rooms.get("!r:s").is_some());
    }
}
