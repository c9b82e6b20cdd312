//! Selection of stream events for each listener; no I/O.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    str::FromStr,
    time::Duration,
};

use bytes::Bytes;
use platform::stream::StoredMessage;
use serde::{Deserialize, Serialize};
use web::{
    fields::FromQuery,
    ids::{MatchId, TournamentId, UserId},
};

use super::{
    lookups::Predicted,
    payloads::{
        Data as _, ResetPayload, StreamMatch, StreamPoints, StreamResult, StreamRound, StreamSeal, StreamTally,
    },
};
use crate::{
    catalogue::matches::{facts::MatchFact, service as events},
    game::{
        scores::{
            rounds::{self, RoundFact},
            service::{self as scores, ScoresFact},
        },
        seals::{rules::SealFact, service::SEALED},
    },
};

/// Subject of prediction tallies, published at most once a second for each match.
pub const TALLY: &str = "fact.tally.changed";

/// Subjects of the facts that listeners receive, or that change their ranks.
pub(super) const SUBJECTS: [&str; 8] = [
    events::CREATED,
    events::CHANGED,
    events::RESULT,
    TALLY,
    scores::UPDATED,
    scores::ANSWERED,
    rounds::COMPLETED,
    SEALED,
];

/// Longest pause before a client reconnects, in milliseconds.
const LONGEST_RETRY: u32 = 3_000;

/// A position in the fact stream, from which clients resume. A recreated stream counts from one again, so the position
/// includes its creation time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// Creation time of the stream, in milliseconds.
    pub made: i64,
    /// Sequence number of the message.
    pub sequence: u64,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.made, self.sequence)
    }
}

impl FromStr for Position {
    type Err = ();

    fn from_str(text: &str) -> Result<Self, ()> {
        let is_number = |text: &str| text.len() <= 18 && text.bytes().all(|byte| byte.is_ascii_digit());
        let number = |text: &str| is_number(text).then(|| text.parse().ok()).flatten();
        let (made, sequence) = text.split_once('-').ok_or(())?;
        let made = i64::try_from(number(made).ok_or(())?).map_err(|_| ())?;
        Ok(Self { made, sequence: number(sequence).ok_or(())? })
    }
}

impl FromQuery for Position {
    const EXPECTED: &'static str = "must be the id of a stream event";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// Matches whose events a listener receives.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only events of this match.
    pub event: Option<MatchId>,
    /// Only events of matches in this tournament.
    pub tournament: Option<TournamentId>,
    /// Only events of matches that the listener predicted.
    pub mine: bool,
}

impl Filter {
    /// Returns true if the match of a fact passes the filter. `frame_for` checks `mine`, because it depends on the
    /// user.
    fn takes(&self, fact: &Fact) -> bool {
        self.event.is_none_or(|event| event == fact.event())
            && self.tournament.is_none_or(|tournament| fact.tournament().is_none_or(|other| other == tournament))
    }
}

/// Prediction tally of a match.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TallyFact {
    pub event_id: MatchId,
    pub tournament_id: TournamentId,
    /// Number of predictions for a home win.
    pub home: i64,
    /// Number of predictions for a draw.
    pub draw: i64,
    /// Number of predictions for an away win.
    pub away: i64,
    /// Average confidence, in percent.
    pub average_confidence: f64,
}

/// A fact that listeners may receive.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    /// A match was created or changed.
    Event(MatchFact),
    /// A match has a new, corrected or withdrawn result.
    Result(MatchFact),
    /// The tally of a match changed.
    Tally(TallyFact),
    /// Scoring of a result is complete.
    Scores(ScoresFact),
    /// A round is complete.
    Round(RoundFact),
    /// A match is sealed.
    Sealed(SealFact),
}

impl Fact {
    /// Parses a message. An unreadable message comes from another version and is skipped.
    pub(super) fn read(message: &StoredMessage) -> Option<Self> {
        fn body<T: for<'a> Deserialize<'a>>(message: &StoredMessage) -> Option<T> {
            serde_json::from_slice(&message.payload).ok()
        }
        match message.subject.as_str() {
            events::CREATED | events::CHANGED => body(message).map(Self::Event),
            events::RESULT => body(message).map(Self::Result),
            TALLY => body(message).map(Self::Tally),
            scores::UPDATED => body(message).map(Self::Scores),
            rounds::COMPLETED => body(message).map(Self::Round),
            SEALED => body(message).map(Self::Sealed),
            _ => None,
        }
    }

    pub(super) fn event(&self) -> MatchId {
        match self {
            Self::Event(fact) | Self::Result(fact) => fact.event_id,
            Self::Tally(fact) => fact.event_id,
            Self::Scores(fact) => fact.event_id,
            Self::Round(fact) => fact.event_id,
            Self::Sealed(fact) => fact.seal.event_id,
        }
    }

    fn tournament(&self) -> Option<TournamentId> {
        match self {
            Self::Event(fact) | Self::Result(fact) => Some(fact.tournament_id),
            Self::Tally(fact) => Some(fact.tournament_id),
            Self::Round(fact) => Some(fact.tournament_id),
            Self::Sealed(fact) => Some(fact.tournament_id),
            Self::Scores(_) => None,
        }
    }

    /// Returns the event that all listeners receive.
    fn public(&self) -> Option<String> {
        match self {
            Self::Event(fact) => Some(StreamMatch::new(fact).frame()),
            Self::Result(fact) => Some(StreamResult::new(fact).frame()),
            Self::Tally(fact) => Some(StreamTally::new(fact).frame()),
            Self::Round(fact) => Some(StreamRound::new(fact).frame()),
            Self::Sealed(fact) => Some(StreamSeal(&fact.seal).frame()),
            // Listeners receive only their rank; see `Personal`.
            Self::Scores(_) => None,
        }
    }
}

/// Event for listeners who missed facts that are no longer available.
pub(super) fn reset(position: Position) -> Bytes {
    ResetPayload {}.frame_at(position).into()
}

/// Adds the pause before the client reconnects to the last event of a frame. The pause is random for each connection, so
/// that the listeners of a process that stops do not reconnect all at once.
pub(super) fn with_retry(frame: &[u8], random: u32) -> Bytes {
    let milliseconds = u64::from(LONGEST_RETRY) * u64::from(random) / u64::from(u32::MAX);
    // An empty line ends an event.
    let fields = frame.strip_suffix(b"\n").unwrap_or(frame);
    [fields, format!("retry: {milliseconds}\n\n").as_bytes()].concat().into()
}

/// Lifetime of one connection: up to a quarter shorter than the longest one, at random, so that listeners who connected
/// together do not reconnect together.
pub(super) fn lifetime(longest: Duration, random: u32) -> Duration {
    longest.mul_f64(1.0 - f64::from(random) / f64::from(u32::MAX) / 4.0)
}

/// An event with the id of a position that the listener has reached.
pub(super) fn frame_at(position: Position, frame: &[u8]) -> Bytes {
    [format!("id: {position}\n").as_bytes(), frame].concat().into()
}

/// Heartbeat with the listener's position. Clients dispatch no event without data, but they store the id.
pub(super) fn beat(position: Position) -> Bytes {
    format!("id: {position}\n\n").into()
}

/// A fact, rendered for sending.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) position: Position,
    pub(super) fact: Fact,
    /// The public event, without and with the id.
    public: Option<(Bytes, Bytes)>,
    pub(super) personal: Personal,
}

/// Effect of a fact on the users who were listening.
#[derive(Debug, Default)]
pub(super) struct Personal {
    /// Users for whom the effect was determined.
    pub(super) known: HashSet<UserId>,
    /// Subset of `known` that predicted the match.
    pub(super) predicted: HashSet<UserId>,
    /// Personal events of each user.
    pub(super) frames: HashMap<UserId, Vec<String>>,
}

impl Personal {
    /// Effect on one user with this prediction of the match, if there is one. Ranks are left out.
    pub(super) fn of_user(fact: &Fact, user: UserId, predicted: Option<Predicted>) -> Self {
        let mut personal = Self { known: [user].into(), ..Self::default() };
        if let Some(Predicted { points: points_earned }) = predicted {
            personal.predicted.insert(user);
            if matches!(fact, Fact::Result(_)) {
                let frame = StreamPoints { event_id: fact.event(), points_earned }.frame();
                personal.frames.insert(user, vec![frame]);
            }
        }
        personal
    }
}

impl Item {
    pub(super) fn new(position: Position, fact: Fact, personal: Personal) -> Self {
        let public = fact.public().map(|text| {
            let with_id = format!("id: {position}\n{text}");
            (Bytes::from(text), Bytes::from(with_id))
        });
        Self { position, fact, public, personal }
    }

    /// Returns true if the effect on this user must be determined before sending.
    pub(super) fn lacks(&self, user: UserId, filter: &Filter) -> bool {
        let matters = filter.mine || matches!(self.fact, Fact::Result(_) | Fact::Scores(_));
        matters && filter.takes(&self.fact) && !self.personal.known.contains(&user)
    }

    /// Returns the events for this user. Only the last one carries the id, so a listener who is disconnected in between
    /// receives all of them again.
    pub(super) fn frame_for(&self, user: UserId, filter: &Filter, personal: &Personal) -> Option<Bytes> {
        if !filter.takes(&self.fact) || (filter.mine && !personal.predicted.contains(&user)) {
            return None;
        }
        let own = personal.frames.get(&user).map(Vec::as_slice).unwrap_or_default();
        match (&self.public, own) {
            (Some((_, with_id)), []) => Some(with_id.clone()),
            (None, []) => None,
            (public, [first @ .., last]) => {
                let mut text = public.as_ref().map_or_else(Vec::new, |(text, _)| text.to_vec());
                for part in first {
                    text.extend_from_slice(part.as_bytes());
                }
                text.extend_from_slice(format!("id: {}\n{last}", self.position).as_bytes());
                Some(text.into())
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::{Value, json};

    use super::*;

    fn message(subject: &str, payload: &Value) -> StoredMessage {
        StoredMessage { sequence: 3, subject: subject.to_owned(), id: None, payload: payload.to_string().into() }
    }

    fn event(before: &Value) -> Value {
        json!({
            "event_id": 7, "tournament_id": 1, "status": "live", "result_revision": 0,
            "start_time": "2026-11-20T15:00:00Z", "home_score": 1, "away_score": 0,
            "home_team": {"id": 1, "name": "Rovers"}, "away_team": {"id": 2, "name": "City"}, "before": before,
        })
    }

    fn item(subject: &str, payload: &Value, personal: Personal) -> Item {
        let fact = Fact::read(&message(subject, payload)).expect("a fact");
        Item::new(Position { made: 9, sequence: 3 }, fact, personal)
    }

    fn sent_to(item: &Item, user: i64, filter: Filter) -> Option<String> {
        let frame = item.frame_for(UserId(user), &filter, &item.personal)?;
        Some(String::from_utf8(frame.to_vec()).expect("UTF-8"))
    }

    #[test]
    fn goal_is_sent_to_all_in_api_format() {
        let before = json!({"status": "live", "start_time": "2026-11-20T15:00:00Z", "home_score": 0, "away_score": 0});
        let goal = item(events::CHANGED, &event(&before), Personal::default());
        let text = sent_to(&goal, 1, Filter::default()).expect("sent");
        let data = text.strip_prefix("id: 9-3\nevent: event\ndata: ").and_then(|rest| rest.strip_suffix("\n\n"));
        let data: Value = serde_json::from_str(data.expect("framed")).expect("JSON");
        assert_eq!(data["changed"], json!(["score"]));
        assert_eq!((&data["home_score"], &data["status"]), (&json!(1), &json!("live")));
    }

    #[test]
    fn filters_narrow_by_match_and_tournament() {
        let goal = item(events::CHANGED, &event(&Value::Null), Personal::default());
        for (filter, expected) in [
            (Filter { event: Some(MatchId(7)), ..Filter::default() }, true),
            (Filter { event: Some(MatchId(8)), ..Filter::default() }, false),
            (Filter { tournament: Some(TournamentId(1)), ..Filter::default() }, true),
            (Filter { tournament: Some(TournamentId(2)), ..Filter::default() }, false),
            (Filter { mine: true, ..Filter::default() }, false),
        ] {
            assert_eq!(sent_to(&goal, 1, filter).is_some(), expected, "{filter:?}");
        }
    }

    #[test]
    fn personal_event_comes_last_and_carries_id() {
        let user = UserId(4);
        let personal = Personal {
            known: [user].into(),
            predicted: [user].into(),
            frames: [(user, vec![StreamPoints { event_id: MatchId(7), points_earned: Some(40) }.frame()])].into(),
        };
        let result = item(events::RESULT, &event(&Value::Null), personal);
        let text = sent_to(&result, 4, Filter { mine: true, ..Filter::default() }).expect("sent");
        let parts: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(parts.len(), 2);
        assert!(parts[0].starts_with("event: result\n"), "{text}");
        assert_eq!(parts[1], "id: 9-3\nevent: points\ndata: {\"event_id\":7,\"points_earned\":40}");
        // Another user receives only the result.
        let other = sent_to(&result, 5, Filter::default()).expect("sent");
        assert!(other.starts_with("id: 9-3\nevent: result\n") && !other.contains("points_earned"), "{other}");
        assert!(result.lacks(UserId(5), &Filter::default()) && !result.lacks(user, &Filter::default()));
    }

    #[test]
    fn missed_result_has_points_of_those_who_predicted() {
        let result = item(events::RESULT, &event(&Value::Null), Personal::default());
        let text = |predicted: Option<Predicted>| {
            let personal = Personal::of_user(&result.fact, UserId(4), predicted);
            let frame = result.frame_for(UserId(4), &Filter::default(), &personal).expect("sent");
            String::from_utf8(frame.to_vec()).expect("UTF-8")
        };
        assert!(
            text(Some(Predicted { points: Some(40) })).ends_with("data: {\"event_id\":7,\"points_earned\":40}\n\n")
        );
        assert!(text(Some(Predicted { points: None })).ends_with("data: {\"event_id\":7,\"points_earned\":null}\n\n"));
        assert!(!text(None).contains("points_earned"));
    }

    #[test]
    fn lifetime_and_retry_are_spread_within_bounds() {
        let hour = Duration::from_hours(1);
        assert_eq!((lifetime(hour, 0), lifetime(hour, u32::MAX)), (hour, hour * 3 / 4));
        assert_eq!(with_retry(b"", 0), "retry: 0\n\n");
        assert_eq!(with_retry(&beat(Position { made: 9, sequence: 3 }), u32::MAX), "id: 9-3\nretry: 3000\n\n");
        let half = lifetime(hour, u32::MAX / 2);
        assert!(half > hour * 85 / 100 && half < hour * 90 / 100, "{half:?}");
    }

    proptest! {
        #[test]
        fn position_round_trips(made in 0..10i64.pow(18), sequence in 0..10u64.pow(18)) {
            let position = Position { made, sequence };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn position_parser_accepts_only_digits(text in "\\PC{0,20}") {
            if let Ok(position) = text.parse::<Position>() {
                prop_assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'), "{}", position);
            }
        }
    }
}
