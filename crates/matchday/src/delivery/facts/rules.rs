//! Positions in the log, and the facts as clients read them; no I/O.

use std::fmt;

use base64::{Engine as _, engine::general_purpose::URL_SAFE_NO_PAD};
use platform::outbox::{self, NewFact};
use serde::Serialize;
use serde_json::Value;
use time::OffsetDateTime;
use web::{fields::FromQuery, ids::UserId};

use crate::{
    catalogue::matches::service::{CHANGED, CREATED, RESULT},
    delivery::webhooks::rules::{self as webhooks, Kind as WebhookKind, MatchData},
    game::{scores::service::UPDATED, seals::service::SEALED},
    identity::{account_deletion::service::DELETED, accounts::service::REGISTERED},
};

/// A position in the log: directly after the fact with this number. 0 is before the first fact.
///
/// The text is opaque to clients. Its checksum detects positions that a client computed or shortened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Position(i64);

impl Position {
    /// Position after the fact with this number.
    pub fn after(number: i64) -> Self {
        Self(number)
    }

    /// Number of the fact before the position.
    pub fn number(self) -> i64 {
        self.0
    }

    /// Parses the text of a position.
    pub fn parse(text: &str) -> Option<Self> {
        let bytes = URL_SAFE_NO_PAD.decode(text).ok()?;
        let (number, checksum) = bytes.split_at_checked(8)?;
        let is_right = checksum == crc32fast::hash(number).to_be_bytes();
        let number = i64::from_be_bytes(number.try_into().ok()?);
        (is_right && number >= 0).then_some(Self(number))
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let number = self.0.to_be_bytes();
        let mut bytes = [0; 12];
        bytes[..8].copy_from_slice(&number);
        bytes[8..].copy_from_slice(&crc32fast::hash(&number).to_be_bytes());
        f.write_str(&URL_SAFE_NO_PAD.encode(bytes))
    }
}

/// Where to read on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum After {
    Position(Position),
    /// The end of the log.
    Latest,
}

impl FromQuery for After {
    const EXPECTED: &'static str = "must be `latest` or the `next_after` of an earlier response";

    fn from_query(text: &str) -> Option<Self> {
        if text == "latest" { Some(Self::Latest) } else { Position::parse(text).map(Self::Position) }
    }
}

/// Type of a fact.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
pub enum Kind {
    #[serde(rename = "event.created")]
    EventCreated,
    /// The status, start time or score of a match changed, or the team that advanced.
    #[serde(rename = "event.changed")]
    EventChanged,
    #[serde(rename = "event.result")]
    EventResult,
    /// The predictions of a match are sealed.
    #[serde(rename = "event.sealed")]
    EventSealed,
    #[serde(rename = "scores.updated")]
    ScoresUpdated,
    #[serde(rename = "user.registered")]
    UserRegistered,
    #[serde(rename = "user.deleted")]
    UserDeleted,
}

/// Subjects of the messages that are facts of the log.
pub const SUBJECTS: [&str; 7] = [CREATED, CHANGED, RESULT, SEALED, UPDATED, REGISTERED, DELETED];

/// A fact as clients read it.
#[derive(Debug, Serialize)]
struct Item<'a> {
    id: &'a str,
    #[serde(rename = "type")]
    kind: Kind,
    #[serde(with = "platform::timestamp")]
    timestamp: OffsetDateTime,
    data: &'a Value,
}

/// A fact to be added to the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Entry {
    /// User whom the fact names.
    pub(super) user: Option<UserId>,
    /// The item as JSON.
    pub(super) item: String,
}

/// Returns the entry for a new fact; `None` if the message is no fact of the log.
pub(super) fn entry(fact: &NewFact) -> serde_json::Result<Option<Entry>> {
    let Some((kind, data)) = describe(&fact.subject, &fact.payload)? else { return Ok(None) };
    let user = match kind {
        Kind::UserRegistered | Kind::UserDeleted => data["user_id"].as_i64().map(UserId),
        _ => None,
    };
    let id = webhooks::message_id(&outbox::id_of(fact.id, fact.created_at));
    let item = Item { id: &id, kind, timestamp: fact.created_at, data: &data };
    Ok(Some(Entry { user, item: serde_json::to_string(&item)? }))
}

/// Type and data of a message. The data is that of the webhook about the same message.
fn describe(subject: &str, payload: &Value) -> serde_json::Result<Option<(Kind, Value)>> {
    if [CREATED, CHANGED].contains(&subject) {
        let fact = MatchData::read(payload.clone())?;
        let kind = if subject == CREATED { Kind::EventCreated } else { Kind::EventChanged };
        let is_visible = kind == Kind::EventCreated || fact.changes_standing();
        return Ok(if is_visible { Some((kind, serde_json::to_value(fact)?)) } else { None });
    }
    let Some((kind, data)) = webhooks::announce_value(subject, payload.clone())? else { return Ok(None) };
    let kind = match kind {
        WebhookKind::Result => Kind::EventResult,
        WebhookKind::Sealed => Kind::EventSealed,
        WebhookKind::ScoresUpdated => Kind::ScoresUpdated,
        WebhookKind::UserRegistered => Kind::UserRegistered,
        WebhookKind::UserDeleted => Kind::UserDeleted,
        WebhookKind::StatusChanged | WebhookKind::RoundCompleted | WebhookKind::Test => return Ok(None),
    };
    Ok(Some((kind, data)))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn fact(subject: &str, payload: Value) -> NewFact {
        NewFact { id: 7, subject: subject.to_owned(), payload, created_at: datetime!(2026-11-20 15:00:00.5 UTC) }
    }

    fn item(subject: &str, payload: Value) -> Option<Value> {
        let entry = entry(&fact(subject, payload)).expect("readable")?;
        Some(serde_json::from_str(&entry.item).expect("JSON"))
    }

    fn a_match(status: &str, goals: i32, before: Option<&str>) -> Value {
        let before = before.map(
            |status| json!({"status": status, "start_time": "2026-11-20T15:00:00Z", "home_score": 1, "away_score": 0}),
        );
        json!({
            "event_id": 7, "tournament_id": 1, "status": status, "result_revision": 0, "start_time": "2026-11-20T15:00:00Z",
            "home_score": goals, "away_score": 0, "home_team": {"id": 1, "name": "Rovers"}, "away_team": {"id": 2, "name": "City"},
            "before": before,
        })
    }

    #[test]
    fn any_change_of_standing_is_a_fact() {
        let types = |subject: &str, payload| item(subject, payload).map(|item| item["type"].clone());
        assert_eq!(types(CREATED, a_match("scheduled", 1, None)), Some(json!("event.created")));
        assert_eq!(types(CHANGED, a_match("live", 1, Some("scheduled"))), Some(json!("event.changed")), "status");
        assert_eq!(types(CHANGED, a_match("live", 2, Some("live"))), Some(json!("event.changed")), "a goal");
        assert_eq!(types(CHANGED, a_match("live", 1, Some("live"))), None, "another venue");
        assert_eq!(types(RESULT, a_match("finished", 1, Some("live"))), Some(json!("event.result")));
        assert_eq!(types("fact.session.revoked", json!({})), None);
    }

    #[test]
    fn data_and_id_are_those_of_the_webhook() {
        let payload = a_match("finished", 1, Some("live"));
        let bytes = payload.to_string().into_bytes();
        for subject in [CHANGED, RESULT] {
            let (_, data) = webhooks::announce(subject, &bytes).expect("readable").expect("a message");
            let item = item(subject, payload.clone()).expect("a fact");
            assert_eq!(item["data"], data, "{subject}");
            assert_eq!(item["id"], "msg_7-1795186800500000");
            assert_eq!(item["timestamp"], "2026-11-20T15:00:00.500Z");
        }
    }

    #[test]
    fn facts_of_users_name_the_user() {
        let registered = json!({"user_id": 12, "username": "ada", "created_at": "2026-11-20T15:00:00.000Z"});
        for (subject, payload) in [(REGISTERED, registered), (DELETED, json!({"user_id": 12}))] {
            let entry = entry(&fact(subject, payload)).expect("readable").expect("a fact");
            assert_eq!(entry.user, Some(UserId(12)));
        }
        let entry = entry(&fact(RESULT, a_match("finished", 1, None))).expect("readable").expect("a fact");
        assert_eq!(entry.user, None);
    }

    #[test]
    fn malformed_positions_are_refused() {
        for text in ["", "yesterday", "-1", "1 2", "0", "AAAAAAAAAAA", "AAAAAAAAAAAAAAAA", "LATEST", "latest "] {
            assert_eq!(After::from_query(text), None, "{text}");
        }
        assert_eq!(After::from_query("latest"), Some(After::Latest));
        assert_eq!(Position::parse(&Position(-1).to_string()), None);
    }

    proptest! {
        #[test]
        fn position_round_trips(number in 0_i64..) {
            let text = Position(number).to_string();
            prop_assert!(text.bytes().all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte)), "safe in a URL");
            prop_assert_eq!(Position::parse(&text), Some(Position(number)));
        }

        #[test]
        fn parsed_position_is_canonical(text in prop_oneof![".*", "[A-Za-z0-9_-]{15,17}"]) {
            if let Some(position) = Position::parse(&text) {
                prop_assert_eq!(position.to_string(), text);
            }
        }

        #[test]
        fn changed_position_is_refused(number in 0_i64.., at in 0_usize..16, with in "[A-Za-z0-9_-]") {
            let text = Position(number).to_string();
            let mut changed = text.clone();
            changed.replace_range(at..=at, &with);
            prop_assume!(changed != text);
            prop_assert_eq!(Position::parse(&changed), None);
        }

        #[test]
        fn arbitrary_payloads_do_not_panic(subject in proptest::sample::select(SUBJECTS.to_vec()), text in ".*", number: i64) {
            for payload in [json!(text), json!({"user_id": number, "username": text}), json!({"event_id": number})] {
                let _ = entry(&fact(subject, payload));
            }
        }
    }
}
