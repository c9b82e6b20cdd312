//! What is told of matches, to everybody who follows them: other processes, listeners, chat rooms, webhooks.
//!
//! A fact says what the match is now and what it was before, so that whoever hears it can tell a goal from a moved
//! kick-off without having heard of the match before.

use scoring::Outcome;
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::{EventId, TeamId, TournamentId};

use super::rules::Status;

/// A match, as it is and as it was.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct EventFact {
    /// The match.
    pub event_id: EventId,
    /// Its tournament.
    pub tournament_id: TournamentId,
    /// Who plays at home.
    pub home_team: TeamName,
    /// Who plays away.
    pub away_team: TeamName,
    /// How many results it has had; voids count too.
    pub result_revision: i64,
    /// What it is now.
    #[serde(flatten)]
    pub now: Standing,
    /// What it was; `None` for a new match.
    pub before: Option<Standing>,
}

/// A team, by name.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TeamName {
    /// The team.
    pub id: TeamId,
    /// What it is called.
    #[schema(example = "Harbour United")]
    pub name: String,
}

/// How a match stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    /// Its state.
    pub status: Status,
    /// When it starts, or started.
    #[serde(with = "time::serde::rfc3339")]
    pub start_time: OffsetDateTime,
    /// Goals of the home team.
    pub home_score: Option<i32>,
    /// Goals of the away team.
    pub away_score: Option<i32>,
}

impl Standing {
    /// Both scores, where there are some.
    pub fn scores(&self) -> Option<(i32, i32)> {
        self.home_score.zip(self.away_score)
    }

    /// What it means for predictions.
    pub fn outcome(&self) -> Outcome {
        self.status.outcome(self.scores())
    }
}

impl EventFact {
    /// Whether a result was there before and is another one now, or none any more.
    pub fn corrects_a_result(&self) -> bool {
        let before = self.before.map_or(Outcome::Open, |before| before.outcome());
        matches!(before, Outcome::Result { .. }) && before != self.now.outcome()
    }
}
