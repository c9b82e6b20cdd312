//! Names, topics and addresses of rooms.

use std::{fmt, str::FromStr};

use serde_json::Value;
use time::{OffsetDateTime, macros::format_description};
use web::fields::FromJson;

use crate::catalogue::matches::rules::Status;

/// Room name: 1 to 100 characters, without control characters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RoomName(String);

impl RoomName {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for RoomName {
    const EXPECTED: &'static str = "must be a string of 1 to 100 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let name = value.as_str()?.trim();
        let fits = (1..=100).contains(&name.chars().count()) && !name.contains(char::is_control);
        fits.then(|| Self(name.to_owned()))
    }
}

/// Room topic: up to 500 characters, with line breaks but without other control characters.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Topic(String);

impl Topic {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for Topic {
    const EXPECTED: &'static str = "must be a string of at most 500 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let topic = value.as_str()?.trim();
        let fits = topic.chars().count() <= 500 && !topic.contains(|c: char| c.is_control() && c != '\n');
        fits.then(|| Self(topic.to_owned()))
    }
}

/// Text of a message: 1 to 2,000 characters, with line breaks but without other control characters.
#[derive(Clone, PartialEq, Eq)]
pub(super) struct MessageBody(String);

impl fmt::Debug for MessageBody {
    // Not derived, so that no log line contains the text of a message.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("MessageBody(…)")
    }
}

impl MessageBody {
    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromJson for MessageBody {
    const EXPECTED: &'static str = "must be a string of 1 to 2000 characters";

    fn from_json(value: &Value) -> Option<Self> {
        let body = value.as_str()?.trim();
        let fits = (1..=2_000).contains(&body.chars().count()) && !body.contains(|c: char| c.is_control() && c != '\n');
        fits.then(|| Self(body.to_owned()))
    }
}

/// The homeserver's room id, as used in paths: `!local:server`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RoomAddress(String);

impl RoomAddress {
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for RoomAddress {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let (local, server) = text.strip_prefix('!').and_then(|rest| rest.split_once(':')).ok_or(())?;
        let fits = !local.is_empty() && !server.is_empty() && text.len() <= 255 && !text.contains(char::is_control);
        fits.then(|| Self(text.to_owned())).ok_or(())
    }
}

impl fmt::Display for RoomAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// Match data that appears in the name and topic of a match's room.
#[derive(Clone, Debug)]
pub(super) struct MatchLabel<'a> {
    pub(super) home: &'a str,
    pub(super) away: &'a str,
    pub(super) tournament: &'a str,
    pub(super) start_time: OffsetDateTime,
    pub(super) status: Status,
    pub(super) venue: &'a str,
}

impl MatchLabel<'_> {
    /// Room name. The first stand has the plain name of the match.
    pub(super) fn name(&self, stand: i32) -> String {
        let name = format!("{} – {}", self.home, self.away);
        if stand == 1 { name } else { format!("{name} · stand {stand}") }
    }

    /// Room topic: tournament, time and venue.
    pub(super) fn topic(&self) -> String {
        let format = format_description!("[day padding:none] [month repr:long] [year], [hour]:[minute] UTC");
        let when = match self.status {
            Status::Postponed | Status::Cancelled => self.status.name().to_owned(),
            _ => self.start_time.format(format).unwrap_or_default(),
        };
        let parts = [self.tournament, when.as_str(), self.venue];
        parts.into_iter().filter(|part| !part.is_empty()).collect::<Vec<_>>().join(" · ")
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    #[test]
    fn name_and_topic_lengths_are_limited() {
        for (name, valid) in [
            (json!("Derby talk"), true),
            (json!("é".repeat(100)), true),
            (json!("x".repeat(101)), false),
            (json!(""), false),
            (json!("   "), false),
            (json!("a\u{0}b"), false),
            (json!("two\nlines"), false),
            (json!(5), false),
        ] {
            assert_eq!(RoomName::from_json(&name).is_some(), valid, "{name}");
        }
        for (topic, valid) in [
            (json!(""), true),
            (json!("two\nlines"), true),
            (json!("x".repeat(500)), true),
            (json!("x".repeat(501)), false),
            (json!("a\u{0}b"), false),
            (json!([]), false),
        ] {
            assert_eq!(Topic::from_json(&topic).is_some(), valid, "{topic}");
        }
        assert_eq!(RoomName::from_json(&json!("  Derby ")).expect("a name").as_str(), "Derby");
    }

    #[test]
    fn message_length_and_characters_are_limited() {
        for (body, valid) in [
            (json!("Come on!"), true),
            (json!("two\nlines"), true),
            (json!("x".repeat(2_000)), true),
            (json!("x".repeat(2_001)), false),
            (json!(""), false),
            (json!("  \n "), false),
            (json!("bell\u{7}"), false),
            (json!("a\tb"), false),
            (json!(null), false),
            (json!(5), false),
        ] {
            assert_eq!(MessageBody::from_json(&body).is_some(), valid, "{body}");
        }
        let body = MessageBody::from_json(&json!("  a secret ")).expect("valid");
        assert_eq!((body.as_str(), format!("{body:?}").contains("secret")), ("a secret", false));
    }

    #[test]
    fn room_address_requires_localpart_and_server() {
        for (text, valid) in [
            ("!auQboWavgiRMaylzYl:example.org", true),
            ("!a:example.org:8448", true),
            ("garbage", false),
            ("!a", false),
            ("!:example.org", false),
            ("!a:", false),
            ("#a:example.org", false),
            ("", false),
            ("!a\u{0}:example.org", false),
        ] {
            assert_eq!(text.parse::<RoomAddress>().is_ok(), valid, "{text}");
        }
        assert!(format!("!{}:s", "a".repeat(253)).parse::<RoomAddress>().is_err());
    }

    fn words(status: Status, venue: &str) -> MatchLabel<'_> {
        MatchLabel {
            home: "Rovers",
            away: "City",
            tournament: "Cup 2026",
            start_time: datetime!(2026-11-05 15:00 UTC),
            status,
            venue,
        }
    }

    #[test]
    fn match_room_is_named_after_the_match() {
        let scheduled = words(Status::Scheduled, "Park");
        assert_eq!(scheduled.name(1), "Rovers – City");
        assert_eq!(scheduled.name(3), "Rovers – City · stand 3");
        assert_eq!(scheduled.topic(), "Cup 2026 · 5 November 2026, 15:00 UTC · Park");
        assert_eq!(words(Status::Postponed, "").topic(), "Cup 2026 · postponed");
        assert_eq!(words(Status::Cancelled, "Park").topic(), "Cup 2026 · cancelled · Park");
    }

    proptest! {
        #[test]
        fn room_address_is_kept_verbatim(text in any::<String>()) {
            if let Ok(address) = text.parse::<RoomAddress>() {
                prop_assert_eq!(address.as_str(), text);
            }
        }
    }
}
