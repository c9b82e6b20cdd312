//! Kinds of notifications, their subjects and the texts they need; no I/O.

use std::time::Duration;

use jiff::tz::TimeZone;
use phone_push::{Notification, SubjectId};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha1::Sha1;
use sha2::{Digest as _, Sha256};
use texts::{Args, Catalogue, Locale};
use time::OffsetDateTime;
use uuid::Uuid;
use web::ids::{LeagueId, MatchId, UserId};

/// Maximum number of characters of a name in a text. Longer ones are cut, so that a notification fits into the 4 KB that
/// push services accept.
const LONGEST_TEXT: usize = 120;

/// First pause before a notification is sent again, and the longest one.
const FIRST_PAUSE: Duration = Duration::from_secs(10);
const FIRST_PAUSE_LIMITED: Duration = Duration::from_mins(1);
const LONGEST_PAUSE: Duration = Duration::from_hours(1);
/// Limits of a pause that the provider names. No notification is kept for longer than a day.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_NAMED_PAUSE: Duration = Duration::from_hours(24);

/// Kind of a notification, which users switch on and off.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Kind {
    /// A match of the user's team starts soon.
    Reminder,
    /// A predicted match was moved, postponed or cancelled.
    Moved,
    /// The user has points for a match.
    Result,
    /// A corrected result changed the user's points.
    Correction,
    /// A result lowered the user's rank in a league.
    Passed,
    /// The user was invited to a room.
    Invitation,
    /// A message in a room mentions the user.
    Mention,
    /// The streak of daily bonuses ends at midnight.
    Streak,
}

impl Kind {
    pub const ALL: [Self; 8] = [
        Self::Reminder,
        Self::Moved,
        Self::Result,
        Self::Correction,
        Self::Passed,
        Self::Invitation,
        Self::Mention,
        Self::Streak,
    ];

    /// Name in the API, in the database, in metrics and in message ids.
    pub fn name(self) -> &'static str {
        match self {
            Self::Reminder => "reminder",
            Self::Moved => "moved",
            Self::Result => "result",
            Self::Correction => "correction",
            Self::Passed => "passed",
            Self::Invitation => "invitation",
            Self::Mention => "mention",
            Self::Streak => "streak",
        }
    }

    pub fn of_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.name() == name)
    }

    /// Whether users get this kind unless they switch it off.
    pub fn is_on_by_default(self) -> bool {
        !matches!(self, Self::Passed | Self::Streak)
    }

    /// Whether the device should show it at once, even while it saves power.
    pub fn is_urgent(self) -> bool {
        matches!(self, Self::Reminder | Self::Moved | Self::Invitation | Self::Mention)
    }

    fn place(self) -> usize {
        Self::ALL.iter().position(|kind| *kind == self).unwrap_or_default()
    }
}

/// Kinds that a user has switched on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kinds([bool; 8]);

impl Default for Kinds {
    fn default() -> Self {
        Self(Kind::ALL.map(Kind::is_on_by_default))
    }
}

impl Kinds {
    pub fn has(&self, kind: Kind) -> bool {
        self.0[kind.place()]
    }

    #[must_use]
    pub fn with(mut self, kind: Kind, is_on: bool) -> Self {
        self.0[kind.place()] = is_on;
        self
    }
}

/// What a notification is about, and where the app opens.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum About {
    Event(MatchId),
    League(LeagueId),
    /// A room, by its Matrix id.
    Room(String),
    Coins,
}

impl About {
    /// Subject of a claim.
    pub fn key(&self) -> String {
        match self {
            Self::Event(id) => id.to_string(),
            Self::League(id) => id.to_string(),
            Self::Room(id) => id.clone(),
            Self::Coins => String::new(),
        }
    }

    /// Path in the app.
    pub fn link(&self) -> String {
        match self {
            Self::Event(id) => format!("/events/{id}"),
            Self::League(id) => format!("/leagues/{id}"),
            Self::Room(id) => format!("/rooms/{id}"),
            Self::Coins => "/coins".to_owned(),
        }
    }

    fn id(&self) -> Option<(&'static str, SubjectId)> {
        match self {
            Self::Event(id) => Some(("event_id", SubjectId::Number(id.0))),
            Self::League(id) => Some(("league_id", SubjectId::Number(id.0))),
            Self::Room(id) => Some(("room_id", SubjectId::Text(id.clone()))),
            Self::Coins => None,
        }
    }
}

/// A value in the text of a notification.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Shown {
    Text(String),
    Number(i64),
    /// A time in seconds since 1970, shown in the time zone of the device.
    Time(i64),
}

/// A notification to all devices of a user.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alert {
    pub kind: Kind,
    pub about: About,
    /// A user gets a kind of notification about a subject once per revision.
    pub revision: String,
    pub values: Vec<(String, Shown)>,
    #[serde(with = "time::serde::rfc3339")]
    pub expires_at: OffsetDateTime,
    /// `data` of a reminder in browsers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reminder: Option<Value>,
    /// Sender of an invitation or a message, if it is a user of this service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sender: Option<UserId>,
}

/// Title and body in the language of a device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Texts {
    pub title: String,
    pub body: String,
}

impl Alert {
    pub fn new(kind: Kind, about: About, revision: impl Into<String>, expires_at: OffsetDateTime) -> Self {
        Self { kind, about, revision: revision.into(), values: Vec::new(), expires_at, reminder: None, sender: None }
    }

    #[must_use]
    pub fn sender(self, sender: Option<UserId>) -> Self {
        Self { sender, ..self }
    }

    #[must_use]
    pub fn text(self, name: &str, text: &str) -> Self {
        self.value(name, Shown::Text(text.chars().take(LONGEST_TEXT).collect()))
    }

    #[must_use]
    pub fn number(self, name: &str, number: i64) -> Self {
        self.value(name, Shown::Number(number))
    }

    #[must_use]
    pub fn time(self, name: &str, time: OffsetDateTime) -> Self {
        self.value(name, Shown::Time(time.unix_timestamp()))
    }

    fn value(mut self, name: &str, value: Shown) -> Self {
        self.values.retain(|(known, _)| known != name);
        self.values.push((name.to_owned(), value));
        self
    }

    /// A later notification with the same key replaces this one on the device. At most 32 characters of `[a-z0-9-]`.
    pub fn collapse_key(&self) -> String {
        // A correction replaces the result.
        let kind = if self.kind == Kind::Correction { Kind::Result } else { self.kind };
        match &self.about {
            About::Event(id) => format!("{}-{id}", kind.name()),
            About::League(id) => format!("{}-{id}", kind.name()),
            About::Room(id) => format!("{}-{}", kind.name(), &hex::encode(Sha256::digest(id))[..16]),
            About::Coins => kind.name().to_owned(),
        }
    }

    /// Renders the texts. Times are in the zone of the device, else in that of the quiet hours, else in UTC.
    pub fn texts(&self, catalogue: &Catalogue, locale: &Locale, zone: Option<&TimeZone>) -> Texts {
        let mut args = Args::new();
        for (name, value) in &self.values {
            args = match value {
                Shown::Text(text) => args.text(name, text.as_str()),
                Shown::Number(number) => args.number(name, *number),
                Shown::Time(seconds) => args.text(name, catalogue.time(locale, *seconds, zone)),
            };
        }
        // A room of two people has no name; its notifications have the name of the sender.
        if self.kind == Kind::Mention
            && !self.values.iter().any(|(name, _)| name == "room")
            && let Some((_, Shown::Text(user))) = self.values.iter().find(|(name, _)| name == "user")
        {
            args = args.text("room", user.as_str());
        }
        let text = |part: &str| catalogue.text(locale, &format!("push-{}-{part}", self.kind.name()), &args);
        Texts { title: text("title"), body: text("body") }
    }

    /// The notification for FCM and APNs.
    pub fn notification(&self, Texts { title, body }: Texts) -> Notification {
        Notification {
            title,
            body,
            kind: self.kind.name(),
            link: self.about.link(),
            subject: self.about.id(),
            collapse_key: self.collapse_key(),
            high_priority: self.kind.is_urgent(),
            expires_at: self.expires_at,
        }
    }

    /// The payload for browsers that are devices.
    pub fn web_payload(&self, Notification { title, body, .. }: &Notification) -> Value {
        let (kind, data) = match &self.reminder {
            Some(data) if self.kind == Kind::Reminder => ("reminder.due", data.clone()),
            _ => {
                let mut data = Map::new();
                data.insert("kind".to_owned(), json!(self.kind.name()));
                match self.about.id() {
                    Some((name, SubjectId::Number(id))) => data.insert(name.to_owned(), json!(id)),
                    Some((name, SubjectId::Text(id))) => data.insert(name.to_owned(), json!(id)),
                    None => None,
                };
                data.insert("link".to_owned(), json!(self.about.link()));
                (self.kind.name(), Value::Object(data))
            }
        };
        json!({"type": kind, "title": title, "body": body, "data": data})
    }

    /// Id of the notification on one device: a `UUIDv5` of the claim and the device, the same for every attempt.
    pub fn id_on(&self, user: UserId, device: &str) -> Uuid {
        // Namespace of this service, chosen at random.
        const NAMESPACE: Uuid = Uuid::from_u128(0x5d1c_9a52_7f8e_4b0a_9d37_20c6_41be_e8f3);
        let claim = json!([user, self.kind, self.about.key(), self.revision, device]).to_string();
        let hash = Sha1::new().chain_update(NAMESPACE.as_bytes()).chain_update(claim).finalize();
        let mut bytes = [0; 16];
        bytes.copy_from_slice(&hash[..16]);
        uuid::Builder::from_sha1_bytes(bytes).into_uuid()
    }
}

/// Pause after `attempts` attempts. The provider may name it, up to a day. A shorter one than a second would repeat attempts
/// without a break.
pub fn pause(named: Option<Duration>, attempts: u32, is_limited: bool) -> Duration {
    named.map_or_else(|| backoff(attempts, is_limited), |named| named.clamp(SHORTEST_PAUSE, LONGEST_NAMED_PAUSE))
}

/// Pause after `attempts` attempts if the provider names none: doubled each time, up to an hour.
fn backoff(attempts: u32, is_limited: bool) -> Duration {
    let first = if is_limited { FIRST_PAUSE_LIMITED } else { FIRST_PAUSE };
    first.saturating_mul(2_u32.saturating_pow(attempts.saturating_sub(1))).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use time::macros::datetime;

    use super::*;

    fn any_about() -> impl Strategy<Value = About> {
        prop_oneof![
            (1..=i64::MAX).prop_map(|id| About::Event(MatchId(id))),
            (1..=i64::MAX).prop_map(|id| About::League(LeagueId(id))),
            "\\PC{1,255}".prop_map(About::Room),
            Just(About::Coins),
        ]
    }

    fn alert(kind: Kind, about: About) -> Alert {
        Alert::new(kind, about, "1", datetime!(2026-11-20 15:00 UTC))
    }

    #[test]
    fn kinds_have_keys_links_and_priorities() {
        let room = "!abc:example.org".to_owned();
        let (event, league, room, coins) =
            (About::Event(MatchId(7)), About::League(LeagueId(8)), About::Room(room), About::Coins);
        for (kind, about, key, link, urgent, default) in [
            (Kind::Reminder, &event, "reminder-7", "/events/7", true, true),
            (Kind::Moved, &event, "moved-7", "/events/7", true, true),
            (Kind::Result, &event, "result-7", "/events/7", false, true),
            (Kind::Correction, &event, "result-7", "/events/7", false, true),
            (Kind::Passed, &league, "passed-8", "/leagues/8", false, false),
            (Kind::Invitation, &room, "invitation-6d3b1ef1e6a4f0a1", "/rooms/!abc:example.org", true, true),
            (Kind::Mention, &room, "mention-6d3b1ef1e6a4f0a1", "/rooms/!abc:example.org", true, true),
            (Kind::Streak, &coins, "streak", "/coins", false, false),
        ] {
            let hash = &hex::encode(Sha256::digest("!abc:example.org"))[..16];
            let key = key.replace("6d3b1ef1e6a4f0a1", hash);
            assert_eq!(alert(kind, about.clone()).collapse_key(), key);
            assert_eq!(about.link(), link);
            assert_eq!((kind.is_urgent(), kind.is_on_by_default()), (urgent, default), "{kind:?}");
            assert_eq!(Kind::of_name(kind.name()), Some(kind));
        }
    }

    #[test]
    fn browser_gets_kind_and_data() {
        let texts = Texts { title: "A".to_owned(), body: "B".to_owned() };
        let result = alert(Kind::Result, About::Event(MatchId(7)));
        assert_eq!(
            result.web_payload(&result.notification(texts.clone())),
            json!({"type": "result", "title": "A", "body": "B",
                   "data": {"kind": "result", "event_id": 7, "link": "/events/7"}})
        );
        let reminder =
            Alert { reminder: Some(json!({"event_id": 7})), ..alert(Kind::Reminder, About::Event(MatchId(7))) };
        assert_eq!(
            reminder.web_payload(&reminder.notification(texts)),
            json!({"type": "reminder.due", "title": "A", "body": "B", "data": {"event_id": 7}})
        );
    }

    proptest! {
        #[test]
        fn collapse_key_is_short_and_plain(kind in proptest::sample::select(&Kind::ALL[..]), about in any_about()) {
            let key = alert(kind, about).collapse_key();
            prop_assert!((1..=32).contains(&key.len()), "{}", key);
            prop_assert!(key.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-'));
        }

        #[test]
        fn stored_alert_reads_back(kind in proptest::sample::select(&Kind::ALL[..]), about in any_about(), text in "\\PC*") {
            let alert = alert(kind, about).text("home", &text).number("points", -3).time("start", datetime!(2026-01-01 0:00 UTC));
            let read: Alert = serde_json::from_value(serde_json::to_value(&alert).expect("JSON")).expect("an alert");
            prop_assert_eq!(read, alert);
        }

        #[test]
        fn ids_differ_by_claim_and_device(user in 1..1_000_i64, device in "[a-z]{8}", other in "[a-z]{8}") {
            let alert = alert(Kind::Result, About::Event(MatchId(7)));
            let id = alert.id_on(UserId(user), &device);
            prop_assert_eq!(id, alert.id_on(UserId(user), &device));
            prop_assert_eq!(id.get_version_num(), 5);
            prop_assert_eq!(id == alert.id_on(UserId(user), &other), device == other);
            prop_assert_ne!(id, alert.id_on(UserId(user + 1), &device));
            let later = Alert { revision: "2".to_owned(), ..alert };
            prop_assert_ne!(id, later.id_on(UserId(user), &device));
        }

        #[test]
        fn backoff_grows_from_its_first_pause(attempts in 1..100_u32, limited: bool) {
            let first = if limited { 60 } else { 10 };
            prop_assert_eq!(backoff(1, limited), Duration::from_secs(first));
            prop_assert!(backoff(attempts + 1, limited) >= backoff(attempts, limited));
            prop_assert!(backoff(attempts, limited) <= LONGEST_PAUSE);
        }

        #[test]
        fn named_pause_is_limited(seconds: u64, attempts in 1..100_u32, limited: bool) {
            let named = pause(Some(Duration::from_secs(seconds)), attempts, limited);
            prop_assert_eq!(named, Duration::from_secs(seconds.clamp(1, 86_400)));
            prop_assert_eq!(pause(None, attempts, limited), backoff(attempts, limited));
        }
    }
}
