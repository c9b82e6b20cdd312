//! What is told to whom, and in which words; no I/O.

use std::{
    collections::{HashMap, HashSet},
    fmt,
    str::FromStr,
};

use bytes::Bytes;
use platform::stream::StoredMessage;
use serde::{Deserialize, Serialize};
use web::{
    fields::FromQuery,
    ids::{MatchId, TournamentId, UserId},
};

use super::payloads::{Data as _, Nothing, StreamMatch, StreamResult, StreamTally};
use crate::{
    catalogue::matches::{facts::MatchFact, service as events},
    game::scores::service::{self as scores, ScoresFact},
};

/// The subject on which it is told how a match is predicted, once a second at most.
pub const TALLY: &str = "fact.tally.changed";

/// What listeners are told of.
pub(super) const SUBJECTS: [&str; 5] = [events::CREATED, events::CHANGED, events::RESULT, TALLY, scores::UPDATED];

/// A place in the stream of facts, which clients give back to go on from there. A stream that was lost and made anew counts
/// from one again; when it was made tells the two apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Position {
    /// When the stream was made, in milliseconds.
    pub made: i64,
    /// Which of its messages.
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
    const EXPECTED: &'static str = "must be the id of an event of this stream";

    fn from_query(text: &str) -> Option<Self> {
        text.parse().ok()
    }
}

/// What a listener wants to hear.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// Only of this match.
    pub event: Option<MatchId>,
    /// Only of matches of this tournament.
    pub tournament: Option<TournamentId>,
    /// Only of matches that they predicted.
    pub mine: bool,
}

impl Filter {
    /// Whether a fact is of a match that is wanted, as far as the match itself says.
    fn takes(&self, fact: &Fact) -> bool {
        self.event.is_none_or(|event| event == fact.event())
            && self.tournament.is_none_or(|tournament| fact.tournament().is_none_or(|other| other == tournament))
    }
}

/// How a match is predicted.
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct TallyFact {
    /// The match.
    pub event_id: MatchId,
    /// Its tournament.
    pub tournament_id: TournamentId,
    /// How many say that the home team wins.
    pub home: i64,
    /// How many say that nobody does.
    pub draw: i64,
    /// How many say that the away team wins.
    pub away: i64,
    /// How sure they are on average, in percent.
    pub average_confidence: f64,
}

/// Something that happened.
#[derive(Clone, Debug)]
pub(super) enum Fact {
    /// A match is new or different.
    Event(MatchFact),
    /// A match has a result, another one, or none any more.
    Result(MatchFact),
    /// A match is predicted otherwise.
    Tally(TallyFact),
    /// A result is in all scores.
    Scores(ScoresFact),
}

impl Fact {
    /// A message as a fact. What cannot be read is from another version, and is passed over.
    pub(super) fn read(told: &StoredMessage) -> Option<Self> {
        fn body<T: for<'a> Deserialize<'a>>(told: &StoredMessage) -> Option<T> {
            serde_json::from_slice(&told.payload).ok()
        }
        match told.subject.as_str() {
            events::CREATED | events::CHANGED => body(told).map(Self::Event),
            events::RESULT => body(told).map(Self::Result),
            TALLY => body(told).map(Self::Tally),
            scores::UPDATED => body(told).map(Self::Scores),
            _ => None,
        }
    }

    pub(super) fn event(&self) -> MatchId {
        match self {
            Self::Event(fact) | Self::Result(fact) => fact.event_id,
            Self::Tally(fact) => fact.event_id,
            Self::Scores(fact) => fact.event_id,
        }
    }

    fn tournament(&self) -> Option<TournamentId> {
        match self {
            Self::Event(fact) | Self::Result(fact) => Some(fact.tournament_id),
            Self::Tally(fact) => Some(fact.tournament_id),
            Self::Scores(_) => None,
        }
    }

    /// What everybody is told of it.
    fn public(&self) -> Option<String> {
        match self {
            Self::Event(fact) => Some(StreamMatch::new(fact).frame()),
            Self::Result(fact) => Some(StreamResult::new(fact).frame()),
            Self::Tally(fact) => Some(StreamTally::new(fact).frame()),
            // Only what it means for oneself is worth telling.
            Self::Scores(_) => None,
        }
    }
}

/// What is told to those for whom something is missing that cannot be had any more.
pub(super) fn reset(position: Position) -> Bytes {
    Nothing {}.frame_at(position).into()
}

/// Tells where a listener is, and that the connection lives. Clients dispatch nothing without data, but keep the id.
pub(super) fn beat(position: Position) -> Bytes {
    format!("id: {position}\n\n").into()
}

/// Something that happened, ready to be told.
#[derive(Debug)]
pub(super) struct Item {
    pub(super) position: Position,
    pub(super) fact: Fact,
    /// Without and with the id.
    public: Option<(Bytes, Bytes)>,
    pub(super) personal: Personal,
}

/// What it means for those who were listening.
#[derive(Debug, Default)]
pub(super) struct Personal {
    /// Of whom it was found out.
    pub(super) known: HashSet<UserId>,
    /// Who of them predicted the match.
    pub(super) predicted: HashSet<UserId>,
    /// What they are told for themselves.
    pub(super) told: HashMap<UserId, Vec<String>>,
}

impl Item {
    pub(super) fn new(position: Position, fact: Fact, personal: Personal) -> Self {
        let public = fact.public().map(|text| {
            let with_id = format!("id: {position}\n{text}");
            (Bytes::from(text), Bytes::from(with_id))
        });
        Self { position, fact, public, personal }
    }

    /// Whether what it means for this user must still be found out before they can be told.
    pub(super) fn lacks(&self, user: UserId, filter: &Filter) -> bool {
        let matters = filter.mine || matches!(self.fact, Fact::Result(_) | Fact::Scores(_));
        matters && filter.takes(&self.fact) && !self.personal.known.contains(&user)
    }

    /// What this user is told of it. Only the last part carries the id: whoever loses the connection in between is told all
    /// of it again.
    pub(super) fn told(&self, user: UserId, filter: &Filter, personal: &Personal) -> Option<Bytes> {
        if !filter.takes(&self.fact) || (filter.mine && !personal.predicted.contains(&user)) {
            return None;
        }
        let own = personal.told.get(&user).map(Vec::as_slice).unwrap_or_default();
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

    use super::{super::payloads::StreamPoints, *};

    fn told(subject: &str, payload: &Value) -> StoredMessage {
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
        let fact = Fact::read(&told(subject, payload)).expect("a fact");
        Item::new(Position { made: 9, sequence: 3 }, fact, personal)
    }

    fn told_to(item: &Item, user: i64, filter: Filter) -> Option<String> {
        let told = item.told(UserId(user), &filter, &item.personal)?;
        Some(String::from_utf8(told.to_vec()).expect("UTF-8"))
    }

    #[test]
    fn a_goal_is_told_to_everybody_in_the_words_of_the_interface() {
        let before = json!({"status": "live", "start_time": "2026-11-20T15:00:00Z", "home_score": 0, "away_score": 0});
        let goal = item(events::CHANGED, &event(&before), Personal::default());
        let text = told_to(&goal, 1, Filter::default()).expect("told");
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
            assert_eq!(told_to(&goal, 1, filter).is_some(), expected, "{filter:?}");
        }
    }

    #[test]
    fn what_is_ones_own_comes_last_and_carries_the_id() {
        let user = UserId(4);
        let personal = Personal {
            known: [user].into(),
            predicted: [user].into(),
            told: [(user, vec![StreamPoints { event_id: MatchId(7), points_earned: Some(40) }.frame()])].into(),
        };
        let result = item(events::RESULT, &event(&Value::Null), personal);
        let text = told_to(&result, 4, Filter { mine: true, ..Filter::default() }).expect("told");
        let parts: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(parts.len(), 2);
        assert!(parts[0].starts_with("event: result\n"), "{text}");
        assert_eq!(parts[1], "id: 9-3\nevent: points\ndata: {\"event_id\":7,\"points_earned\":40}");
        // Somebody else hears of the result only.
        let other = told_to(&result, 5, Filter::default()).expect("told");
        assert!(other.starts_with("id: 9-3\nevent: result\n") && !other.contains("points_earned"), "{other}");
        assert!(result.lacks(UserId(5), &Filter::default()) && !result.lacks(user, &Filter::default()));
    }

    proptest! {
        #[test]
        fn a_position_reads_back(made in 0..10i64.pow(18), sequence in 0..10u64.pow(18)) {
            let position = Position { made, sequence };
            prop_assert_eq!(position.to_string().parse(), Ok(position));
        }

        #[test]
        fn nothing_else_is_a_position(text in "\\PC{0,20}") {
            if let Ok(position) = text.parse::<Position>() {
                prop_assert!(text.bytes().all(|byte| byte.is_ascii_digit() || byte == b'-'), "{}", position);
            }
        }
    }
}
