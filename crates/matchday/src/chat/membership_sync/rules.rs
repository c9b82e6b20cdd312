//! Parsing of pushed Matrix events.

use std::{fmt, str::FromStr};

use serde_json::{Map, Value, json};
use sha2::{Digest as _, Sha256};
use time::{Duration, OffsetDateTime};

/// Limit for ids and type names; the specification allows 255 bytes.
const NAME_BYTES: usize = 255;

/// Number of characters kept of an unreadable event, for investigation.
const EVIDENCE_LENGTH: usize = 2_000;

/// Longest time for which comparisons wait for an overloaded homeserver.
const POSTPONED_FOR: Duration = Duration::minutes(15);

/// Comparisons of rooms that wait while the homeserver is overloaded.
#[derive(Debug, Default)]
pub(super) struct Postponement {
    /// Time at which rooms that are due waited first.
    since: Option<OffsetDateTime>,
}

impl Postponement {
    /// Whether comparisons must wait now. Once they have waited for long, they run until no room is due.
    pub(super) fn must_wait(&mut self, are_due: bool, is_overloaded: bool, now: OffsetDateTime) -> bool {
        if !are_due {
            self.since = None;
        }
        if !are_due || !is_overloaded {
            return false;
        }
        now - *self.since.get_or_insert(now) < POSTPONED_FOR
    }
}

/// Membership of a user in a room.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Membership {
    /// The user is in the room.
    Join,
    /// The user is invited.
    Invite,
    /// The user is not, or no longer, in the room.
    Leave,
    /// The user may not join.
    Ban,
}

impl Membership {
    /// Name in the database and in Matrix.
    pub fn name(self) -> &'static str {
        match self {
            Self::Join => "join",
            Self::Invite => "invite",
            Self::Leave => "leave",
            Self::Ban => "ban",
        }
    }
}

impl fmt::Display for Membership {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

#[derive(Debug, thiserror::Error)]
#[error("`{0}` is not a membership")]
pub struct UnknownMembership(String);

impl FromStr for Membership {
    type Err = UnknownMembership;

    fn from_str(name: &str) -> Result<Self, UnknownMembership> {
        match name {
            "join" => Ok(Self::Join),
            "invite" => Ok(Self::Invite),
            // A user who knocks is not in the room.
            "leave" | "knock" => Ok(Self::Leave),
            "ban" => Ok(Self::Ban),
            other => Err(UnknownMembership(other.chars().take(40).collect())),
        }
    }
}

impl TryFrom<String> for Membership {
    type Error = UnknownMembership;

    fn try_from(name: String) -> Result<Self, UnknownMembership> {
        name.parse()
    }
}

/// An event to store in the inbox.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Pushed {
    pub(super) event_id: String,
    pub(super) matrix_room: String,
    pub(super) kind: String,
    pub(super) sender: String,
    pub(super) state_key: Option<String>,
    pub(super) sent_at: OffsetDateTime,
    /// Only the content fields that the membership sync uses.
    pub(super) content: Option<String>,
    /// Reason why the event is unreadable.
    pub(super) fault: Option<String>,
}

impl Pushed {
    /// Parses a pushed event. Never fails: an unreadable event gets a fault, and an id derived from its bytes, so that
    /// it is recognised when it is pushed again.
    pub(super) fn read(raw: &str) -> Self {
        let value: Value = serde_json::from_str(raw).unwrap_or_default();
        match read(&value) {
            Ok(pushed) => pushed,
            Err(fault) => Self {
                event_id: text(&value, "event_id").unwrap_or_else(|_| unnamed(raw)),
                matrix_room: text(&value, "room_id").unwrap_or_default(),
                kind: text(&value, "type").unwrap_or_default(),
                sender: text(&value, "sender").unwrap_or_default(),
                state_key: None,
                sent_at: OffsetDateTime::UNIX_EPOCH,
                content: Some(evidence(value)),
                fault: Some(fault),
            },
        }
    }

    /// An event whose reading failed unexpectedly.
    pub(super) fn unreadable(raw: &str) -> Self {
        Self {
            event_id: unnamed(raw),
            matrix_room: String::new(),
            kind: String::new(),
            sender: String::new(),
            state_key: None,
            sent_at: OffsetDateTime::UNIX_EPOCH,
            content: None,
            fault: Some("reading it failed".to_owned()),
        }
    }
}

fn read(value: &Value) -> Result<Pushed, String> {
    let kind = text(value, "type")?;
    let state_key = match value.get("state_key") {
        None => None,
        Some(_) => Some(text(value, "state_key")?),
    };
    // The clock of another server may be arbitrarily wrong.
    let millis = value.get("origin_server_ts").and_then(Value::as_i64).ok_or("origin_server_ts is not a number")?;
    let sent_at = OffsetDateTime::UNIX_EPOCH
        .checked_add(Duration::milliseconds(millis.max(0)))
        .unwrap_or(OffsetDateTime::UNIX_EPOCH);
    Ok(Pushed {
        event_id: text(value, "event_id")?,
        matrix_room: text(value, "room_id")?,
        content: excerpt(&kind, value.get("content").unwrap_or(&Value::Null)),
        kind,
        sender: text(value, "sender")?,
        state_key,
        sent_at,
        fault: None,
    })
}

fn text(value: &Value, field: &str) -> Result<String, String> {
    let text = value.get(field).and_then(Value::as_str).ok_or_else(|| format!("{field} is not a string"))?;
    if text.len() > NAME_BYTES || text.contains('\0') || (text.is_empty() && field != "state_key") {
        return Err(format!("{field} is empty, too long or contains invalid characters"));
    }
    Ok(text.to_owned())
}

/// Content fields that the membership sync uses. Message text is not among them.
fn excerpt(kind: &str, content: &Value) -> Option<String> {
    let field = match kind {
        "m.room.member" => "membership",
        "m.room.name" => "name",
        "m.room.topic" => "topic",
        _ => return None,
    };
    let mut kept = Map::new();
    if let Some(value) = content.get(field) {
        kept.insert(field.to_owned(), value.clone());
    }
    Some(Value::Object(kept).to_string())
}

/// An unreadable event, without fields that may contain message text.
fn evidence(mut value: Value) -> String {
    if let Some(event) = value.as_object_mut() {
        for field in ["content", "unsigned", "prev_content"] {
            if event.contains_key(field) {
                event.insert(field.to_owned(), json!("…"));
            }
        }
    }
    value.to_string().chars().take(EVIDENCE_LENGTH).collect()
}

fn unnamed(raw: &str) -> String {
    format!("unnamed:{}", hex::encode(Sha256::digest(raw)))
}

/// Effect of an event on the membership sync.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    /// A user's membership in the room.
    Member { who: String, membership: Membership },
    /// A new room name.
    Name(String),
    /// A new room topic.
    Topic(String),
    /// A message, sticker or reaction.
    Spoken,
    /// The event has no effect.
    Nothing,
}

impl Meaning {
    /// Returns the effect of an event with this type and content, or the reason why the event is invalid.
    pub(super) fn of(kind: &str, state_key: Option<&str>, content: Option<&str>) -> Result<Self, String> {
        let content: Value =
            content.map_or(Ok(Value::Null), serde_json::from_str).map_err(|_| "the content is not JSON".to_owned())?;
        let field_text = |field: &str, most: usize| -> Result<String, String> {
            match content.get(field) {
                // A name may be removed.
                None | Some(Value::Null) => Ok(String::new()),
                Some(Value::String(text)) => Ok(text.chars().filter(|c| !c.is_control()).take(most).collect()),
                Some(_) => Err(format!("{field} is not a string")),
            }
        };
        match (kind, state_key) {
            ("m.room.member", Some(who)) => {
                let membership =
                    content.get("membership").and_then(Value::as_str).ok_or("membership is not a string")?;
                if !is_user_id(who) {
                    return Err("the state key is not a user id".to_owned());
                }
                let membership = membership.parse().map_err(|error: UnknownMembership| error.to_string())?;
                Ok(Self::Member { who: who.to_owned(), membership })
            }
            ("m.room.member", None) => Err("a member event without a state key".to_owned()),
            ("m.room.name", Some("")) => field_text("name", 255).map(Self::Name),
            ("m.room.topic", Some("")) => field_text("topic", 1_000).map(Self::Topic),
            ("m.room.message" | "m.room.encrypted" | "m.sticker" | "m.reaction", None) => Ok(Self::Spoken),
            _ => Ok(Self::Nothing),
        }
    }
}

fn is_user_id(text: &str) -> bool {
    text.strip_prefix('@').and_then(|rest| rest.split_once(':')).is_some_and(|(_, server)| !server.is_empty())
}

/// Username of a chat user of this homeserver. `None` for users of other servers.
pub(super) fn localpart<'a>(matrix_user: &'a str, server_name: &str) -> Option<&'a str> {
    let (localpart, server) = matrix_user.strip_prefix('@')?.split_once(':')?;
    (server == server_name).then_some(localpart)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn event(changes: &Value) -> String {
        let mut event = json!({"event_id": "$1", "room_id": "!r:s", "type": "m.room.member", "sender": "@a:s",
            "state_key": "@b:s", "origin_server_ts": 1_700_000_000_000_i64,
            "content": {"membership": "join", "displayname": "B"}});
        for (field, value) in changes.as_object().expect("an object") {
            event[field] = value.clone();
        }
        event.to_string()
    }

    #[test]
    fn overload_postpones_comparisons_for_limited_time() {
        let start = OffsetDateTime::UNIX_EPOCH;
        let (mut postponement, at) = (Postponement::default(), |minutes| start + Duration::minutes(minutes));
        assert!(!postponement.must_wait(false, false, at(0)), "nothing is due");
        assert!(postponement.must_wait(true, true, at(10)));
        // A short moment without overload does not begin another wait.
        assert!(!postponement.must_wait(true, false, at(20)));
        assert!(postponement.must_wait(true, true, at(24)));
        assert!(!postponement.must_wait(true, true, at(25)), "after a quarter of an hour");
        assert!(!postponement.must_wait(true, true, at(26)), "until all rooms are compared");
        assert!(!postponement.must_wait(false, false, at(27)));
        assert!(postponement.must_wait(true, true, at(28)), "the next comparison");
    }

    #[test]
    fn keeps_only_required_content() {
        let member = Pushed::read(&event(&json!({})));
        assert_eq!(member.content.as_deref(), Some(r#"{"membership":"join"}"#));
        assert_eq!(member.sent_at.unix_timestamp(), 1_700_000_000);
        let message = event(&json!({"type": "m.room.message", "content": {"body": "a secret"}}));
        assert_eq!(Pushed::read(&message).content, None);
        let broken = Pushed::read(&event(&json!({"sender": 5, "content": {"body": "a secret"}})));
        assert!(broken.fault.is_some());
        assert!(!format!("{broken:?}").contains("a secret"), "{broken:?}");
    }

    #[test]
    fn unreadable_event_has_fault_and_keeps_its_id() {
        for change in [
            json!({"room_id": null}),
            json!({"sender": ""}),
            json!({"type": 7}),
            json!({"state_key": 7}),
            json!({"origin_server_ts": "now"}),
            json!({"type": "a\u{0}b"}),
            json!({"room_id": "x".repeat(300)}),
        ] {
            let pushed = Pushed::read(&event(&change));
            assert!(pushed.fault.is_some(), "{change}");
            assert_eq!(pushed.event_id, "$1", "{change}");
        }
        for nameless in [event(&json!({"event_id": 5})), "[]".to_owned(), "5".to_owned(), "null".to_owned()] {
            let pushed = Pushed::read(&nameless);
            assert!(pushed.fault.is_some() && pushed.event_id.starts_with("unnamed:"), "{nameless}");
            assert_eq!(Pushed::read(&nameless).event_id, pushed.event_id, "stable across pushes");
        }
    }

    #[test]
    fn event_effect_depends_on_type_and_content() {
        let of = |kind, key, content: Value| Meaning::of(kind, key, Some(&content.to_string()));
        let member = |membership| of("m.room.member", Some("@b:s"), json!({"membership": membership}));
        let is = |membership| Ok(Meaning::Member { who: "@b:s".to_owned(), membership });
        assert_eq!(member("join"), is(Membership::Join));
        assert_eq!(member("invite"), is(Membership::Invite));
        assert_eq!(member("leave"), is(Membership::Leave));
        assert_eq!(member("knock"), is(Membership::Leave));
        assert_eq!(member("ban"), is(Membership::Ban));
        assert!(member("owner").is_err());
        assert!(of("m.room.member", Some("nobody"), json!({"membership": "join"})).is_err());
        assert!(of("m.room.member", None, json!({"membership": "join"})).is_err());
        assert!(of("m.room.member", Some("@b:s"), json!({"membership": 5})).is_err());
        assert_eq!(of("m.room.name", Some(""), json!({"name": "De\u{0}rby"})), Ok(Meaning::Name("Derby".to_owned())));
        assert_eq!(of("m.room.name", Some(""), json!({})), Ok(Meaning::Name(String::new())));
        assert!(of("m.room.topic", Some(""), json!({"topic": []})).is_err());
        assert_eq!(of("m.room.topic", Some("x"), json!({"topic": "t"})), Ok(Meaning::Nothing));
        for spoken in ["m.room.message", "m.room.encrypted", "m.sticker", "m.reaction"] {
            assert_eq!(Meaning::of(spoken, None, None), Ok(Meaning::Spoken));
        }
        assert_eq!(Meaning::of("org.example.custom", None, None), Ok(Meaning::Nothing));
    }

    #[test]
    fn localpart_requires_this_homeserver() {
        assert_eq!(localpart("@ada:example.org", "example.org"), Some("ada"));
        assert_eq!(localpart("@ada:example.org.evil", "example.org"), None);
        assert_eq!(localpart("@ada:example.org:8448", "example.org"), None);
        assert_eq!(localpart("ada", "example.org"), None);
    }

    proptest! {
        #[test]
        fn no_event_causes_panic(raw in ".*", kind in ".*", key in proptest::option::of(".*"), content in ".*") {
            let pushed = Pushed::read(&raw);
            prop_assert!(!pushed.event_id.is_empty());
            let _ = Meaning::of(&kind, key.as_deref(), Some(&content));
        }

        #[test]
        fn parsed_event_can_be_stored(event_id in any::<String>(), kind in any::<String>(), millis in any::<i64>()) {
            let raw = event(&json!({"event_id": event_id, "type": kind, "origin_server_ts": millis}));
            let pushed = Pushed::read(&raw);
            for text in [&pushed.event_id, &pushed.kind, &pushed.matrix_room, &pushed.sender] {
                prop_assert!(!text.contains('\0') && text.len() <= 300);
            }
        }
    }
}
