//! What is told of a fact, and what an answer means.

use std::{fmt, str::FromStr, time::Duration};

use http::StatusCode;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use time::OffsetDateTime;
use web::ids::{EventId, TournamentId};

use crate::{
    accounts::service::{REGISTERED, Registered},
    events::{
        facts::{EventFact, Standing, TeamName},
        rules::{PublicStatus, Status},
        service::{CHANGED, RESULT},
    },
    leaving::service::{DELETED, Deleted},
    scores::service::{ScoresFact, UPDATED},
};

/// Nobody is made to wait longer, whatever an endpoint asks for.
const LONGEST_PAUSE: Duration = Duration::from_hours(24);

/// What a message is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum Kind {
    /// A match is in another state.
    #[serde(rename = "event.status_changed")]
    StatusChanged,
    /// A match has a result, another one, or none any more.
    #[serde(rename = "event.result")]
    Result,
    /// A result is in all scores.
    #[serde(rename = "scores.updated")]
    ScoresUpdated,
    /// Somebody has an account.
    #[serde(rename = "user.registered")]
    UserRegistered,
    /// Somebody has deleted their account.
    #[serde(rename = "user.deleted")]
    UserDeleted,
    /// Nothing: an operator tries an endpoint out.
    #[serde(rename = "webhook.test")]
    Test,
}

impl Kind {
    /// All that an endpoint can want.
    pub const ALL: [Self; 5] =
        [Self::StatusChanged, Self::Result, Self::ScoresUpdated, Self::UserRegistered, Self::UserDeleted];

    /// What it is called.
    pub fn name(self) -> &'static str {
        match self {
            Self::StatusChanged => "event.status_changed",
            Self::Result => "event.result",
            Self::ScoresUpdated => "scores.updated",
            Self::UserRegistered => "user.registered",
            Self::UserDeleted => "user.deleted",
            Self::Test => "webhook.test",
        }
    }
}

impl fmt::Display for Kind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

/// A name that is none of an endpoint's types.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("it must be one of event.status_changed, event.result, scores.updated, user.registered and user.deleted")]
pub struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownKind)
    }
}

/// A match as receivers see it.
#[derive(Serialize)]
struct MatchData {
    event_id: EventId,
    tournament_id: TournamentId,
    home_team: TeamName,
    away_team: TeamName,
    #[serde(flatten)]
    now: StandingData,
    result_revision: i64,
    before: Option<StandingData>,
}

#[derive(Serialize)]
struct StandingData {
    status: PublicStatus,
    status_detail: Status,
    #[serde(with = "time::serde::rfc3339")]
    start_time: OffsetDateTime,
    home_score: Option<i32>,
    away_score: Option<i32>,
}

impl From<Standing> for StandingData {
    fn from(standing: Standing) -> Self {
        Self {
            status: standing.status.public(),
            status_detail: standing.status,
            start_time: standing.start_time,
            home_score: standing.home_score,
            away_score: standing.away_score,
        }
    }
}

impl From<EventFact> for MatchData {
    fn from(fact: EventFact) -> Self {
        Self {
            event_id: fact.event_id,
            tournament_id: fact.tournament_id,
            home_team: fact.home_team,
            away_team: fact.away_team,
            now: fact.now.into(),
            result_revision: fact.result_revision,
            before: fact.before.map(StandingData::from),
        }
    }
}

/// The facts that something may have to be told of: one, and the others.
pub const FACTS: (&str, &[&str]) = (CHANGED, &[RESULT, UPDATED, REGISTERED, DELETED]);

/// What is told of a fact; `None` where nobody needs to hear of it.
pub fn announce(subject: &str, payload: &[u8]) -> serde_json::Result<Option<(Kind, Value)>> {
    Ok(match subject {
        CHANGED => {
            let fact: EventFact = serde_json::from_slice(payload)?;
            // Each of the eight states shows in `status_detail`. A moved kick-off alone, or a goal, is no other state.
            let changed = fact.before.is_some_and(|before| before.status != fact.now.status);
            if changed { Some((Kind::StatusChanged, serde_json::to_value(MatchData::from(fact))?)) } else { None }
        }
        RESULT => {
            let fact: EventFact = serde_json::from_slice(payload)?;
            Some((Kind::Result, serde_json::to_value(MatchData::from(fact))?))
        }
        UPDATED => {
            let fact: ScoresFact = serde_json::from_slice(payload)?;
            Some((Kind::ScoresUpdated, serde_json::to_value(fact)?))
        }
        REGISTERED => {
            let fact: Registered = serde_json::from_slice(payload)?;
            Some((Kind::UserRegistered, serde_json::to_value(fact)?))
        }
        DELETED => {
            let fact: Deleted = serde_json::from_slice(payload)?;
            Some((Kind::UserDeleted, serde_json::to_value(fact)?))
        }
        _ => None,
    })
}

/// What a message is known by, made of its fact's id: the same for every endpoint, every attempt and every replay.
pub fn message_id(fact_id: &str) -> String {
    format!("msg_{fact_id}")
}

/// The body of a message.
pub fn body(kind: Kind, happened_at: OffsetDateTime, data: &Value) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Body<'a> {
        #[serde(rename = "type")]
        kind: Kind,
        #[serde(with = "time::serde::rfc3339")]
        timestamp: OffsetDateTime,
        data: &'a Value,
    }
    serde_json::to_string(&Body { kind, timestamp: happened_at, data })
}

/// What an answer means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message was taken.
    Taken,
    /// The endpoint wants nothing any more.
    Gone,
    /// Not now; `Retry-After` counts.
    Busy,
    /// Not taken.
    Refused,
}

impl Verdict {
    /// What this status means. A redirect is none: whoever moved tells the operator.
    pub fn of(status: StatusCode) -> Self {
        match status {
            status if status.is_success() => Self::Taken,
            StatusCode::GONE => Self::Gone,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Self::Busy,
            _ => Self::Refused,
        }
    }

    /// In one word, for metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Gone => "gone",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }
}

/// How long to wait after the first, second, … attempt failed. Who asks for more than is usual gets it; who asks for less
/// does not, or all attempts would be used up in no time.
pub fn pause_after(attempt: u64, pauses: &[Duration], asked: Option<Duration>) -> Duration {
    let at = usize::try_from(attempt.saturating_sub(1)).unwrap_or(usize::MAX);
    let usual = pauses.get(at).or(pauses.last()).copied().unwrap_or_default();
    asked.map_or(usual, |asked| asked.max(usual)).min(LONGEST_PAUSE)
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;
    use serde_json::json;
    use time::macros::datetime;

    use super::*;

    fn fact(status: &str, before: Option<&str>) -> Vec<u8> {
        let standing = |status: &str| json!({"status": status, "start_time": "2026-11-20T15:00:00Z", "home_score": null, "away_score": null});
        json!({
            "event_id": 7, "tournament_id": 1, "status": status, "result_revision": 0, "start_time": "2026-11-20T15:00:00Z",
            "home_score": 1, "away_score": 0, "home_team": {"id": 1, "name": "Rovers"}, "away_team": {"id": 2, "name": "City"},
            "before": before.map(standing),
        })
        .to_string()
        .into_bytes()
    }

    #[test]
    fn another_state_is_told_and_other_changes_are_not() {
        let (kind, data) = announce(CHANGED, &fact("suspended", Some("live"))).expect("read").expect("told");
        assert_eq!(kind, Kind::StatusChanged);
        assert_eq!(
            data,
            json!({
                "event_id": 7, "tournament_id": 1, "status": "live", "status_detail": "suspended",
                "start_time": "2026-11-20T15:00:00Z", "home_score": 1, "away_score": 0, "result_revision": 0,
                "home_team": {"id": 1, "name": "Rovers"}, "away_team": {"id": 2, "name": "City"},
                "before": {"status": "live", "status_detail": "live", "start_time": "2026-11-20T15:00:00Z",
                           "home_score": null, "away_score": null},
            })
        );
        assert_eq!(announce(CHANGED, &fact("live", Some("live"))).expect("read"), None, "a goal");
        assert_eq!(announce(CHANGED, &fact("live", None)).expect("read"), None);
        assert_eq!(announce(crate::events::service::CREATED, &fact("live", None)).expect("read"), None, "a new match");
        assert_eq!(announce("fact.session.revoked", b"{}").expect("read"), None);
        let (kind, data) = announce(RESULT, &fact("finished", None)).expect("read").expect("told");
        assert_eq!((kind, &data["before"]), (Kind::Result, &Value::Null));
        assert!(announce(CHANGED, b"no JSON").is_err());
        assert!(announce(RESULT, b"{}").is_err());
    }

    #[test]
    fn kinds_read_as_they_are_called() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.name());
            assert!(UnknownKind.to_string().contains(kind.name()), "{kind}");
        }
        assert_eq!("webhook.test".parse::<Kind>(), Err(UnknownKind), "nobody can want only that");
        assert_eq!(serde_json::to_value(Kind::Test).expect("JSON"), Kind::Test.name());
    }

    #[test]
    fn a_body_says_what_when_and_which() {
        let body = body(Kind::ScoresUpdated, datetime!(2026-11-20 15:00:00.5 UTC), &json!({"event_id": 7}));
        assert_eq!(
            body.expect("JSON"),
            r#"{"type":"scores.updated","timestamp":"2026-11-20T15:00:00.5Z","data":{"event_id":7}}"#
        );
    }

    #[test]
    fn answers_mean_what_they_say() {
        for (status, verdict) in [
            (200, Verdict::Taken),
            (204, Verdict::Taken),
            (301, Verdict::Refused),
            (400, Verdict::Refused),
            (404, Verdict::Refused),
            (410, Verdict::Gone),
            (429, Verdict::Busy),
            (500, Verdict::Refused),
            (503, Verdict::Busy),
        ] {
            assert_eq!(Verdict::of(StatusCode::from_u16(status).expect("a status")), verdict, "{status}");
        }
    }

    proptest! {
        #[test]
        fn pauses_are_at_least_the_usual_ones_and_at_most_a_day(attempt in 0_u64..50, asked in proptest::option::of(0_u64..1_000_000)) {
            let pauses = [5, 30, 120].map(Duration::from_secs);
            let pause = pause_after(attempt, &pauses, asked.map(Duration::from_secs));
            let usual = pauses[usize::try_from(attempt.max(1) - 1).expect("small").min(2)];
            prop_assert!(pause >= usual && pause <= LONGEST_PAUSE);
            match asked.map(Duration::from_secs) {
                Some(asked) if asked > usual => prop_assert_eq!(pause, asked.min(LONGEST_PAUSE)),
                _ => prop_assert_eq!(pause, usual),
            }
        }

        #[test]
        fn nothing_in_a_fact_makes_it_panic(subject in proptest::sample::select([&[FACTS.0], FACTS.1].concat()), payload in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = announce(subject, &payload);
        }
    }
}
