//! Message bodies, and the interpretation of responses; no I/O.

use std::{fmt, str::FromStr, time::Duration};

use http::StatusCode;
use scoring::Side;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::{MatchId, TournamentId};

use crate::{
    catalogue::matches::{
        facts::{MatchFact, Standing, TeamName},
        rules::{PublicStatus, Status},
        service::{CHANGED, RESULT},
    },
    game::{
        scores::{
            rounds::{COMPLETED, RoundFact},
            service::{ScoresFact, UPDATED},
        },
        seals::{rules::SealFact, service::SEALED},
    },
    identity::{
        account_deletion::service::{DELETED, Deleted},
        accounts::service::{REGISTERED, Registered},
    },
};

/// Upper bound for a pause, even if `Retry-After` requests more.
const LONGEST_PAUSE: Duration = Duration::from_hours(24);

/// Type of a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema)]
#[schema(as = WebhookType)]
pub enum Kind {
    /// The status of a match changed.
    #[serde(rename = "event.status_changed")]
    StatusChanged,
    /// A match has a new, corrected or withdrawn result.
    #[serde(rename = "event.result")]
    Result,
    /// The predictions of a match are sealed.
    #[serde(rename = "event.sealed")]
    Sealed,
    /// Scoring of a result is complete.
    #[serde(rename = "scores.updated")]
    ScoresUpdated,
    /// A round is complete, or its winners may have changed.
    #[serde(rename = "round.completed")]
    RoundCompleted,
    /// A user registered an account.
    #[serde(rename = "user.registered")]
    UserRegistered,
    /// A user deleted their account.
    #[serde(rename = "user.deleted")]
    UserDeleted,
    /// An operator tests an endpoint.
    #[serde(rename = "webhook.test")]
    Test,
}

impl Kind {
    /// All types that an endpoint can subscribe to.
    pub const ALL: [Self; 7] = [
        Self::StatusChanged,
        Self::Result,
        Self::Sealed,
        Self::ScoresUpdated,
        Self::RoundCompleted,
        Self::UserRegistered,
        Self::UserDeleted,
    ];

    /// Name in messages and on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::StatusChanged => "event.status_changed",
            Self::Result => "event.result",
            Self::Sealed => "event.sealed",
            Self::ScoresUpdated => "scores.updated",
            Self::RoundCompleted => "round.completed",
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

/// Error for a name that is not a message type.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "must be one of event.status_changed, event.result, event.sealed, scores.updated, round.completed, user.registered \
     and user.deleted"
)]
pub struct UnknownKind;

impl FromStr for Kind {
    type Err = UnknownKind;

    fn from_str(name: &str) -> Result<Self, UnknownKind> {
        Self::ALL.into_iter().find(|kind| kind.name() == name).ok_or(UnknownKind)
    }
}

/// Match data in messages.
#[derive(Serialize)]
pub(in crate::delivery) struct MatchData {
    event_id: MatchId,
    tournament_id: TournamentId,
    home_team: TeamName,
    away_team: TeamName,
    #[serde(flatten)]
    now: StandingData,
    result_revision: i64,
    before: Option<StandingData>,
}

#[derive(PartialEq, Eq, Serialize)]
struct StandingData {
    status: PublicStatus,
    status_detail: Status,
    #[serde(with = "platform::timestamp")]
    start_time: OffsetDateTime,
    home_score: Option<i32>,
    away_score: Option<i32>,
    advanced: Option<Side>,
}

impl From<Standing> for StandingData {
    fn from(standing: Standing) -> Self {
        Self {
            status: standing.status.public(),
            status_detail: standing.status,
            start_time: standing.start_time,
            home_score: standing.home_score,
            away_score: standing.away_score,
            advanced: standing.advanced,
        }
    }
}

impl From<MatchFact> for MatchData {
    fn from(fact: MatchFact) -> Self {
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

impl MatchData {
    /// Reads the payload of a fact about a match.
    pub(in crate::delivery) fn read(payload: Value) -> serde_json::Result<Self> {
        Ok(Self::from(serde_json::from_value::<MatchFact>(payload)?))
    }

    /// Whether the fact changes anything that the message shows.
    pub(in crate::delivery) fn changes_standing(&self) -> bool {
        self.before.as_ref() != Some(&self.now)
    }
}

/// Subjects of facts that may cause a message: the first one, then the others, as `WorkSpec` expects them.
pub const FACTS: (&str, &[&str]) = (CHANGED, &[RESULT, SEALED, UPDATED, COMPLETED, REGISTERED, DELETED]);

/// Returns the message about a fact; `None` if the fact causes none.
pub fn announce(subject: &str, payload: &[u8]) -> serde_json::Result<Option<(Kind, Value)>> {
    let is_known = subject == FACTS.0 || FACTS.1.contains(&subject);
    if is_known { announce_value(subject, serde_json::from_slice(payload)?) } else { Ok(None) }
}

/// Like [`announce`], for a parsed payload.
pub(in crate::delivery) fn announce_value(subject: &str, payload: Value) -> serde_json::Result<Option<(Kind, Value)>> {
    Ok(match subject {
        CHANGED => {
            let fact: MatchFact = serde_json::from_value(payload)?;
            // Compare all eight states, because the message includes `status_detail`. A goal or a moved kick-off alone
            // causes no message.
            let changed = fact.before.is_some_and(|before| before.status != fact.now.status);
            if changed { Some((Kind::StatusChanged, serde_json::to_value(MatchData::from(fact))?)) } else { None }
        }
        RESULT => Some((Kind::Result, serde_json::to_value(MatchData::read(payload)?)?)),
        SEALED => {
            let SealFact { seal, .. } = serde_json::from_value(payload)?;
            Some((Kind::Sealed, serde_json::to_value(seal)?))
        }
        UPDATED => {
            let fact: ScoresFact = serde_json::from_value(payload)?;
            Some((Kind::ScoresUpdated, serde_json::to_value(fact)?))
        }
        COMPLETED => {
            let RoundFact { tournament_id, round, winners, points, .. } = serde_json::from_value(payload)?;
            let data = json!({"tournament_id": tournament_id, "round": round, "winners": winners, "points": points});
            Some((Kind::RoundCompleted, data))
        }
        REGISTERED => {
            let fact: Registered = serde_json::from_value(payload)?;
            Some((Kind::UserRegistered, serde_json::to_value(fact)?))
        }
        DELETED => {
            let fact: Deleted = serde_json::from_value(payload)?;
            Some((Kind::UserDeleted, serde_json::to_value(fact)?))
        }
        _ => None,
    })
}

/// Derives the message id from the id of the fact. It is the same for every endpoint, attempt and replay.
pub fn message_id(fact_id: &str) -> String {
    format!("msg_{fact_id}")
}

/// Returns the JSON body of a message.
pub fn body(kind: Kind, happened_at: OffsetDateTime, data: &Value) -> serde_json::Result<String> {
    #[derive(Serialize)]
    struct Body<'a> {
        #[serde(rename = "type")]
        kind: Kind,
        #[serde(with = "platform::timestamp")]
        timestamp: OffsetDateTime,
        data: &'a Value,
    }
    serde_json::to_string(&Body { kind, timestamp: happened_at, data })
}

/// Interpretation of a response to a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// The message was accepted.
    Taken,
    /// The endpoint accepts no more messages.
    Gone,
    /// Not accepted now. The retry respects `Retry-After`.
    Busy,
    Refused,
}

impl Verdict {
    /// Interprets a status. Redirects are not followed; the owner of the endpoint must give the new URL to the
    /// operator.
    pub fn of(status: StatusCode) -> Self {
        match status {
            status if status.is_success() => Self::Taken,
            StatusCode::GONE => Self::Gone,
            StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE => Self::Busy,
            _ => Self::Refused,
        }
    }

    /// Value of the `outcome` label in metrics.
    pub fn label(self) -> &'static str {
        match self {
            Self::Taken => "taken",
            Self::Gone => "gone",
            Self::Busy => "busy",
            Self::Refused => "refused",
        }
    }
}

/// Returns the pause after a failed attempt, counted from 1. An endpoint can request a longer pause, but not a shorter
/// one, which would use up all attempts quickly.
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
    fn only_status_changes_cause_a_message() {
        let (kind, data) = announce(CHANGED, &fact("suspended", Some("live"))).expect("read").expect("a message");
        assert_eq!(kind, Kind::StatusChanged);
        assert_eq!(
            data,
            json!({
                "event_id": 7, "tournament_id": 1, "status": "live", "status_detail": "suspended",
                "start_time": "2026-11-20T15:00:00.000Z", "home_score": 1, "away_score": 0, "advanced": null,
                "result_revision": 0, "home_team": {"id": 1, "name": "Rovers"}, "away_team": {"id": 2, "name": "City"},
                "before": {"status": "live", "status_detail": "live", "start_time": "2026-11-20T15:00:00.000Z",
                           "home_score": null, "away_score": null, "advanced": null},
            })
        );
        assert_eq!(announce(CHANGED, &fact("live", Some("live"))).expect("read"), None, "a goal");
        assert_eq!(announce(CHANGED, &fact("live", None)).expect("read"), None);
        assert_eq!(
            announce(crate::catalogue::matches::service::CREATED, &fact("live", None)).expect("read"),
            None,
            "a new match"
        );
        assert_eq!(announce("fact.session.revoked", b"{}").expect("read"), None);
        let (kind, data) = announce(RESULT, &fact("finished", None)).expect("read").expect("a message");
        assert_eq!((kind, &data["before"]), (Kind::Result, &Value::Null));
        let winner = json!({"id": 3, "username": "ada", "name": null});
        let round = json!({"event_id": 7, "tournament_id": 1, "tournament": "Cup", "round": 4, "winners": [winner], "points": 90});
        let (kind, data) = announce(COMPLETED, round.to_string().as_bytes()).expect("read").expect("a message");
        assert_eq!(kind, Kind::RoundCompleted);
        assert_eq!(data, json!({"tournament_id": 1, "round": 4, "winners": [winner], "points": 90}));
        assert!(announce(CHANGED, b"not JSON").is_err());
        assert!(announce(RESULT, b"{}").is_err());
    }

    #[test]
    fn message_types_round_trip() {
        for kind in Kind::ALL {
            assert_eq!(kind.name().parse(), Ok(kind));
            assert_eq!(serde_json::to_value(kind).expect("JSON"), kind.name());
            assert!(UnknownKind.to_string().contains(kind.name()), "{kind}");
        }
        assert_eq!("webhook.test".parse::<Kind>(), Err(UnknownKind), "endpoints cannot subscribe to it");
        assert_eq!(serde_json::to_value(Kind::Test).expect("JSON"), Kind::Test.name());
    }

    #[test]
    fn body_has_type_timestamp_and_data() {
        let body = body(Kind::ScoresUpdated, datetime!(2026-11-20 15:00:00.5 UTC), &json!({"event_id": 7}));
        assert_eq!(
            body.expect("JSON"),
            r#"{"type":"scores.updated","timestamp":"2026-11-20T15:00:00.500Z","data":{"event_id":7}}"#
        );
    }

    #[test]
    fn response_status_maps_to_verdict() {
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
        fn requested_pause_is_bounded(attempt in 0_u64..50, asked in proptest::option::of(0_u64..1_000_000)) {
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
        fn announce_never_panics_on_any_payload(
            subject in proptest::sample::select([&[FACTS.0], FACTS.1].concat()),
            payload in proptest::collection::vec(any::<u8>(), 0..200),
        ) {
            let _ = announce(subject, &payload);
        }
    }
}
