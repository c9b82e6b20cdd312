//! Selection of the messages that spectators see; no I/O.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    fmt,
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use tokio::time::Instant;
use web::ids::UserId;

use super::payloads::{ChatSender, StreamChat};

/// Number of messages that a new spectator receives.
pub(super) const REPLAYED: usize = 100;

/// Number of characters shown of a message.
const BODY_LENGTH: usize = 2_000;

/// Limit for Matrix ids, in bytes.
const ID_BYTES: usize = 255;

/// Number of removed messages that are remembered, in case a message arrives after its redaction.
const REMEMBERED: usize = 1_024;

/// Number of senders who may wait for their turn in a busy room.
const MOST_WAITING: usize = 200;

/// Time after which a waiting message is left out. It would no longer be a live message.
const LONGEST_WAIT: Duration = Duration::from_millis(1_500);

/// Number of senders whose last turn is remembered.
const MOST_SENDERS: usize = 1_000;

/// A room event that concerns spectators, as processes send it to each other.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "snake_case")]
pub(crate) enum ViewEvent {
    Message {
        event_id: String,
        /// Matrix user id.
        sender: String,
        body: String,
        /// Time on the homeserver, in milliseconds since 1970.
        sent_at: i64,
    },
    /// The message was redacted.
    Removal { event_id: String },
    /// The user was banned from the room.
    Ban {
        /// Matrix user id.
        user: String,
    },
    /// Earlier events may not have reached all processes.
    Missed,
}

impl fmt::Debug for ViewEvent {
    // Not derived, so that no log line contains the text of a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Message { event_id, .. } => {
                f.debug_struct("Message").field("event_id", event_id).finish_non_exhaustive()
            }
            Self::Removal { event_id } => f.debug_struct("Removal").field("event_id", event_id).finish(),
            Self::Ban { user } => f.debug_struct("Ban").field("user", user).finish(),
            Self::Missed => f.write_str("Missed"),
        }
    }
}

/// The fields of a pushed event that matter here.
#[derive(Deserialize)]
struct Raw {
    event_id: String,
    room_id: String,
    #[serde(rename = "type")]
    kind: String,
    sender: String,
    state_key: Option<String>,
    origin_server_ts: i64,
    redacts: Option<String>,
    #[serde(default)]
    content: Value,
}

impl ViewEvent {
    /// Parses a pushed event. Returns its room too, or `None` if the event does not concern spectators.
    pub(crate) fn read(raw: &str) -> Option<(String, Self)> {
        // Most other events are not parsed at all.
        if !["m.room.message", "m.room.redaction", "m.room.member"].iter().any(|kind| raw.contains(kind)) {
            return None;
        }
        let Raw { event_id, room_id, kind, sender, state_key, origin_server_ts, redacts, content } =
            serde_json::from_str(raw).ok()?;
        let event = match (kind.as_str(), state_key) {
            ("m.room.message", None) => Self::message(event_id, sender, origin_server_ts, &content)?,
            ("m.room.redaction", None) => {
                // Room version 11 moved the id into the content.
                let event_id = content.get("redacts").and_then(Value::as_str).map(str::to_owned).or(redacts)?;
                if event_id.len() > ID_BYTES {
                    return None;
                }
                Self::Removal { event_id }
            }
            ("m.room.member", Some(user)) if content.get("membership").and_then(Value::as_str) == Some("ban") => {
                Self::Ban { user }
            }
            _ => return None,
        };
        Some((room_id, event))
    }

    /// Returns a message of this content. `None` for edits, other kinds of messages, and redacted ones.
    pub(super) fn message(event_id: String, sender: String, sent_at: i64, content: &Value) -> Option<Self> {
        let text = |field: &str| content.get(field).and_then(Value::as_str);
        if !matches!(text("msgtype")?, "m.text" | "m.emote" | "m.notice") {
            return None;
        }
        let relation = content.get("m.relates_to").and_then(|relation| relation.get("rel_type"));
        if relation.and_then(Value::as_str) == Some("m.replace") {
            return None;
        }
        let body: String = text("body")?.chars().take(BODY_LENGTH).collect();
        let fits = !body.trim().is_empty() && event_id.len() <= ID_BYTES && sender.len() <= ID_BYTES;
        fits.then_some(Self::Message { event_id, sender, body, sent_at })
    }
}

/// Author of messages. Users of other servers have no id here, and a user with an account may have had several Matrix ids.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum Author {
    User(UserId),
    Matrix(String),
}

/// A message as spectators receive it.
pub(super) struct Shown {
    pub(super) event_id: String,
    /// Matrix user id.
    pub(super) sender: String,
    pub(super) user: Option<UserId>,
    /// Time according to the sender's server, which may be wrong.
    sent_at: i64,
    /// Stream event for spectators who are listening.
    pub(super) live: Bytes,
    /// Stream event for spectators who connect later.
    pub(super) replayed: Bytes,
}

impl Shown {
    pub(super) fn new(room: &str, event_id: String, from: (&str, &ChatSender), body: String, sent_at: i64) -> Self {
        let (matrix_id, sender) = from;
        let time = OffsetDateTime::UNIX_EPOCH.checked_add(time::Duration::milliseconds(sent_at.max(0)));
        let mut item = StreamChat::Message {
            room_id: room.to_owned(),
            event_id: event_id.clone(),
            sender: sender.clone(),
            body,
            sent_at: time.unwrap_or(OffsetDateTime::UNIX_EPOCH),
            replay: false,
        };
        let live = item.frame().into();
        if let StreamChat::Message { replay, .. } = &mut item {
            *replay = true;
        }
        let (replayed, sender, user) = (item.frame().into(), matrix_id.to_owned(), sender.user_id);
        Self { event_id, sender, user, sent_at, live, replayed }
    }

    pub(super) fn is_by(&self, author: &Author) -> bool {
        match author {
            Author::User(user) => self.user == Some(*user),
            Author::Matrix(id) => self.sender == *id,
        }
    }
}

/// The last messages of a room, in the order of their arrival.
///
/// Servers set the times of their messages freely, so a time decides nothing about a live message. It only places
/// messages that this process missed, and counts as now if it is in the future.
#[derive(Default)]
pub(super) struct Recent {
    /// Oldest first.
    messages: VecDeque<Kept>,
    /// Messages that were removed last.
    removed: VecDeque<String>,
}

struct Kept {
    message: Arc<Shown>,
    /// Position in time, in milliseconds. Never less than the position of the message before.
    at: i64,
}

impl Recent {
    /// Adds a message that was just sent. Returns false if it is known or was removed.
    pub(super) fn add(&mut self, message: &Arc<Shown>, now: i64) -> bool {
        if self.is_known(&message.event_id) || self.is_removed(&message.event_id) {
            return false;
        }
        let last = self.messages.back().map_or(i64::MIN, |last| last.at);
        let at = message.sent_at.min(now).max(last);
        self.insert(self.messages.len(), message, at);
        true
    }

    /// Adds a message of the room's history in its place. Returns false if it is known, was removed, or is older than all
    /// of a full list.
    pub(super) fn add_missed(&mut self, message: &Arc<Shown>, now: i64) -> bool {
        let at = message.sent_at.min(now);
        let place = self.messages.partition_point(|kept| kept.at <= at);
        let is_too_old = place == 0 && self.messages.len() == REPLAYED;
        if is_too_old || self.is_known(&message.event_id) || self.is_removed(&message.event_id) {
            return false;
        }
        self.insert(place, message, at);
        true
    }

    fn insert(&mut self, place: usize, message: &Arc<Shown>, at: i64) {
        self.messages.insert(place, Kept { message: Arc::clone(message), at });
        if self.messages.len() > REPLAYED {
            self.messages.pop_front();
        }
    }

    fn is_known(&self, event_id: &str) -> bool {
        self.messages.iter().any(|kept| kept.message.event_id == event_id)
    }

    /// Removes a message. Returns whether it was there.
    pub(super) fn remove(&mut self, event_id: &str) -> bool {
        if !self.is_removed(event_id) {
            if self.removed.len() == REMEMBERED {
                self.removed.pop_front();
            }
            self.removed.push_back(event_id.to_owned());
        }
        let before = self.messages.len();
        self.messages.retain(|kept| kept.message.event_id != event_id);
        self.messages.len() < before
    }

    /// Removes the messages that match and returns their ids.
    pub(super) fn remove_where(&mut self, matches: impl Fn(&Shown) -> bool) -> Vec<String> {
        let matching = self.messages.iter().filter(|kept| matches(&kept.message));
        let ids: Vec<String> = matching.map(|kept| kept.message.event_id.clone()).collect();
        for id in &ids {
            self.remove(id);
        }
        ids
    }

    pub(super) fn is_removed(&self, event_id: &str) -> bool {
        self.removed.iter().any(|removed| removed == event_id)
    }

    /// The stream events of all messages whose senders are not blocked, and of the end of the replay.
    pub(super) fn replay(&self, room: &str, slow_mode: i32, blocked: &HashSet<i64>) -> Bytes {
        let is_visible = |message: &&Arc<Shown>| message.user.is_none_or(|user| !blocked.contains(&user.0));
        let (mut frames, mut replayed) = (Vec::new(), 0);
        for message in self.messages.iter().map(|kept| &kept.message).filter(is_visible) {
            frames.extend_from_slice(&message.replayed);
            replayed += 1;
        }
        let ready = StreamChat::Ready { room_id: room.to_owned(), replayed, slow_mode };
        frames.extend_from_slice(ready.frame().as_bytes());
        frames.into()
    }
}

/// Selects messages of a busy room, at a readable rate and fairly over their senders.
///
/// Up to a burst, messages pass at once. Beyond it they wait for their turn, one for each sender: a newer message of the
/// same sender replaces the waiting one. The turn goes to the sender whose last turn was longest ago, so a fan who
/// writes a hundred messages is not seen more often than a fan who writes one.
pub(super) struct Sampler<T> {
    rate: f64,
    burst: f64,
    /// Number of messages that may pass now.
    turns: f64,
    refilled: Instant,
    waiting: VecDeque<Waiting<T>>,
    last_turns: HashMap<String, Instant>,
    /// Number of messages that were left out since the last call of [`Self::take_left_out`].
    left_out: u64,
}

struct Waiting<T> {
    sender: String,
    item: T,
    since: Instant,
}

impl<T> Sampler<T> {
    pub(super) fn new(rate: u32, burst: u32, now: Instant) -> Self {
        let (rate, burst) = (f64::from(rate.max(1)), f64::from(burst.max(1)));
        Self {
            rate,
            burst,
            turns: burst,
            refilled: now,
            waiting: VecDeque::new(),
            last_turns: HashMap::new(),
            left_out: 0,
        }
    }

    /// Offers a message. Returns it if it passes at once.
    pub(super) fn offer(&mut self, now: Instant, sender: &str, item: T) -> Option<T> {
        self.refill(now);
        if self.waiting.is_empty() && self.turns >= 1.0 {
            self.take_turn(now, sender);
            return Some(item);
        }
        if let Some(waiting) = self.waiting.iter_mut().find(|waiting| waiting.sender == sender) {
            (waiting.item, waiting.since) = (item, now);
            self.left_out += 1;
        } else if self.waiting.len() < MOST_WAITING {
            self.waiting.push_back(Waiting { sender: sender.to_owned(), item, since: now });
        } else {
            self.left_out += 1;
        }
        None
    }

    /// Returns the waiting message whose turn it is.
    pub(super) fn next(&mut self, now: Instant) -> Option<T> {
        self.refill(now);
        let before = self.waiting.len();
        self.waiting.retain(|waiting| now.duration_since(waiting.since) < LONGEST_WAIT);
        self.left_out += (before - self.waiting.len()) as u64;
        if self.turns < 1.0 {
            return None;
        }
        let turns = self.waiting.iter().map(|waiting| self.last_turns.get(&waiting.sender)).enumerate();
        let (position, _) = turns.min_by_key(|(_, last)| *last)?;
        let Waiting { sender, item, .. } = self.waiting.remove(position)?;
        self.take_turn(now, &sender);
        Some(item)
    }

    /// Time of the next turn, if messages wait.
    pub(super) fn due(&self) -> Option<Instant> {
        let missing = (1.0 - self.turns).max(0.0) / self.rate;
        (!self.waiting.is_empty()).then(|| self.refilled + Duration::from_secs_f64(missing))
    }

    /// Number of messages that were left out since the last call.
    pub(super) fn take_left_out(&mut self) -> u64 {
        std::mem::take(&mut self.left_out)
    }

    fn refill(&mut self, now: Instant) {
        let elapsed = now.saturating_duration_since(self.refilled).as_secs_f64();
        self.turns = (self.turns + elapsed * self.rate).min(self.burst);
        self.refilled = now;
    }

    fn take_turn(&mut self, now: Instant, sender: &str) {
        self.turns -= 1.0;
        if self.last_turns.len() >= MOST_SENDERS {
            // Earlier turns no longer matter.
            let minute = Duration::from_mins(1);
            self.last_turns.retain(|_, last| now.duration_since(*last) < minute);
            if self.last_turns.len() >= MOST_SENDERS {
                self.last_turns.clear();
            }
        }
        self.last_turns.insert(sender.to_owned(), now);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;

    use super::*;

    fn pushed(changes: &Value) -> Value {
        let mut event = json!({"event_id": "$1", "room_id": "!r:s", "type": "m.room.message", "sender": "@a:s",
            "origin_server_ts": 1_700_000_000_000_i64, "content": {"msgtype": "m.text", "body": "Come on!"}});
        for (field, value) in changes.as_object().expect("an object") {
            event[field] = value.clone();
        }
        event
    }

    fn read(changes: &Value) -> Option<ViewEvent> {
        ViewEvent::read(&pushed(changes).to_string()).map(|(room, event)| {
            assert_eq!(room, "!r:s");
            event
        })
    }

    fn content(content: &Value) -> Option<ViewEvent> {
        read(&json!({"content": content}))
    }

    #[test]
    fn only_text_messages_are_shown() {
        let expected = ViewEvent::Message {
            event_id: "$1".to_owned(),
            sender: "@a:s".to_owned(),
            body: "Come on!".to_owned(),
            sent_at: 1_700_000_000_000,
        };
        assert_eq!(read(&json!({})), Some(expected));
        for kind in ["m.emote", "m.notice"] {
            assert!(content(&json!({"msgtype": kind, "body": "x"})).is_some(), "{kind}");
        }
        for hidden in [
            json!({}),
            json!({"msgtype": "m.image", "body": "x"}),
            json!({"msgtype": "m.text"}),
            json!({"msgtype": "m.text", "body": 5}),
            json!({"msgtype": "m.text", "body": " \n"}),
            json!({"msgtype": "m.text", "body": "* x", "m.relates_to": {"rel_type": "m.replace", "event_id": "$0"}}),
        ] {
            assert_eq!(content(&hidden), None, "{hidden}");
        }
        assert_eq!(read(&json!({"type": "m.reaction"})), None);
        assert_eq!(read(&json!({"type": "m.room.encrypted"})), None);
        assert_eq!(read(&json!({"state_key": ""})), None);
    }

    #[test]
    fn long_text_is_cut_and_not_in_debug_output() {
        let Some(ViewEvent::Message { body, .. }) = content(&json!({"msgtype": "m.text", "body": "é".repeat(2_001)}))
        else {
            panic!("not shown")
        };
        assert_eq!(body.chars().count(), 2_000);
        let event = content(&json!({"msgtype": "m.text", "body": "a secret"})).expect("shown");
        assert!(!format!("{event:?}").contains("secret"));
    }

    #[test]
    fn redactions_and_bans_are_recognised() {
        let removal = Some(ViewEvent::Removal { event_id: "$9".to_owned() });
        assert_eq!(read(&json!({"type": "m.room.redaction", "content": {"redacts": "$9"}})), removal);
        assert_eq!(read(&json!({"type": "m.room.redaction", "redacts": "$9", "content": {}})), removal);
        assert_eq!(read(&json!({"type": "m.room.redaction", "content": {}})), None);
        let member = |membership: &str| {
            read(&json!({"type": "m.room.member", "state_key": "@b:s", "content": {"membership": membership}}))
        };
        assert_eq!(member("ban"), Some(ViewEvent::Ban { user: "@b:s".to_owned() }));
        assert_eq!(member("join"), None);
    }

    /// A time of arrival, in milliseconds.
    const NOW: i64 = 1_700_000_000_000;

    fn sender(id: i64) -> ChatSender {
        ChatSender { user_id: Some(UserId(id)), username: format!("fan{id}"), name: None, avatar_url: None }
    }

    fn shown(id: &str, user: i64, sent_at: i64) -> Arc<Shown> {
        let from = format!("@fan{user}:s");
        Arc::new(Shown::new("!r:s", id.to_owned(), (&from, &sender(user)), format!("text of {id}"), sent_at))
    }

    fn replayed(recent: &Recent, blocked: &[i64]) -> (Vec<String>, i64) {
        let frames = recent.replay("!r:s", 0, &blocked.iter().copied().collect());
        let text = String::from_utf8(frames.to_vec()).expect("UTF-8");
        let items = text.split_terminator("\n\n").map(|frame| {
            let data = frame.strip_prefix("event: chat\ndata: ").expect("a chat item without an id");
            serde_json::from_str::<Value>(data).expect("JSON")
        });
        let (mut ids, mut count) = (Vec::new(), -1);
        for item in items {
            match item["type"].as_str().expect("a type") {
                "message" => {
                    assert_eq!((count, &item["replay"]), (-1, &json!(true)), "messages precede the end");
                    ids.push(item["event_id"].as_str().expect("an id").to_owned());
                }
                _ => count = item["replayed"].as_i64().expect("a number"),
            }
        }
        (ids, count)
    }

    #[test]
    fn replay_holds_the_last_hundred_messages() {
        let mut recent = Recent::default();
        for number in 0..103 {
            assert!(recent.add(&shown(&format!("${number}"), 1, number), NOW));
        }
        let (ids, count) = replayed(&recent, &[]);
        assert_eq!((ids.len(), count), (100, 100));
        assert_eq!((ids[0].as_str(), ids[99].as_str()), ("$3", "$102"));
        assert!(!recent.add(&shown("$102", 1, 102), NOW), "a repeated push is not shown again");
        assert!(!recent.add_missed(&shown("$2", 1, 2), NOW), "older than the last hundred");
    }

    #[test]
    fn missed_message_takes_its_place() {
        let mut recent = Recent::default();
        for (id, at) in [("$1", 1), ("$3", 3)] {
            assert!(recent.add(&shown(id, 1, at), NOW));
        }
        assert!(recent.add_missed(&shown("$2", 1, 2), NOW));
        assert_eq!(replayed(&recent, &[]).0, ["$1", "$2", "$3"]);
    }

    /// Another server sets the times of its messages freely.
    #[test]
    fn wrong_times_do_not_displace_live_messages() {
        let mut recent = Recent::default();
        for number in 0..100 {
            let message = shown(&format!("$future{number}"), 1, NOW * 2);
            assert!(if number % 2 == 0 { recent.add(&message, NOW) } else { recent.add_missed(&message, NOW) });
        }
        for (number, sent_at) in [(1, NOW + 1), (2, 0), (3, i64::MIN), (4, i64::MAX), (5, NOW + 2)] {
            assert!(recent.add(&shown(&format!("${number}"), 2, sent_at), NOW + number), "{sent_at}");
        }
        let (ids, count) = replayed(&recent, &[]);
        assert_eq!((&ids[95..], count), (&["$1", "$2", "$3", "$4", "$5"].map(str::to_owned)[..], 100));
    }

    #[test]
    fn replay_leaves_out_removed_and_blocked() {
        let mut recent = Recent::default();
        for (id, user) in [("$1", 1), ("$2", 2), ("$3", 1), ("$4", 3)] {
            recent.add(&shown(id, user, 0), NOW);
        }
        assert!(recent.remove("$4"));
        assert!(!recent.add(&shown("$4", 3, 0), NOW), "a message after its redaction");
        assert_eq!(replayed(&recent, &[2]), (vec!["$1".to_owned(), "$3".to_owned()], 2));
        assert_eq!(recent.remove_where(|message| message.is_by(&Author::User(UserId(1)))), ["$1", "$3"]);
        assert_eq!(replayed(&recent, &[]).0, ["$2"]);
        assert_eq!(recent.remove_where(|message| message.is_by(&Author::Matrix("@fan2:s".to_owned()))), ["$2"]);
    }

    #[test]
    fn busy_room_is_shown_at_rate_and_fairly() {
        let start = Instant::now();
        let mut sampler = Sampler::new(5, 10, start);
        let mut shown: HashMap<String, u32> = HashMap::new();
        // For ten seconds, one fan writes fifty messages a second and five fans write two each.
        for step in 0..500_u32 {
            let now = start + Duration::from_millis(20) * step;
            let mut senders = vec!["noisy".to_owned()];
            if step % 25 == 0 {
                senders.extend((0..5).map(|fan| format!("fan{fan}")));
            }
            for sender in senders {
                if let Some(sender) = sampler.offer(now, &sender, sender.clone()) {
                    *shown.entry(sender).or_default() += 1;
                }
            }
            while let Some(sender) = sampler.next(now) {
                *shown.entry(sender).or_default() += 1;
            }
        }
        let total: u32 = shown.values().sum();
        assert!((55..=61).contains(&total), "ten at once and five a second: {shown:?}");
        assert!(sampler.take_left_out() > 400);
        for fan in 0..5 {
            assert!(shown[&format!("fan{fan}")] >= 6, "{shown:?}");
        }
        assert!(shown["noisy"] <= 20, "{shown:?}");
    }

    #[test]
    fn quiet_room_is_shown_completely() {
        let start = Instant::now();
        let mut sampler = Sampler::new(5, 10, start);
        for step in 0..200 {
            let now = start + Duration::from_millis(200) * step;
            assert_eq!(sampler.offer(now, "ada", step), Some(step));
        }
        assert_eq!((sampler.take_left_out(), sampler.due()), (0, None));
    }

    #[test]
    fn waiting_message_is_left_out_when_too_old() {
        let start = Instant::now();
        let mut sampler = Sampler::new(1, 1, start);
        assert_eq!(sampler.offer(start, "ada", 1), Some(1));
        assert_eq!(sampler.offer(start, "bob", 2), None);
        assert_eq!(sampler.due(), Some(start + Duration::from_secs(1)));
        assert_eq!(sampler.next(start + LONGEST_WAIT), None);
        assert_eq!(sampler.take_left_out(), 1);
    }

    proptest! {
        #[test]
        fn no_event_causes_panic(raw in ".*", body in ".*", at in any::<i64>()) {
            let _ = ViewEvent::read(&raw);
            let event = pushed(&json!({"content": {"msgtype": "m.text", "body": body}, "origin_server_ts": at}));
            if let Some((_, ViewEvent::Message { event_id, body, sent_at, .. })) = ViewEvent::read(&event.to_string()) {
                let frame = Shown::new("!r:s", event_id, ("@a:s", &sender(1)), body, sent_at).live;
                prop_assert_eq!(frame.split(|byte| *byte == b'\n').count(), 4, "one event");
            }
        }
    }
}
