//! Facts about matches, published to other processes, live stream listeners, chat rooms and webhooks.
//!
//! A fact carries the current and the previous state of the match, so a consumer can distinguish a goal from a moved
//! kick-off without keeping state.

use scoring::{Outcome, Side};
use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use utoipa::ToSchema;
use web::ids::{MatchId, TeamId, TournamentId};

use super::rules::Status;

/// Current and previous state of a match.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct MatchFact {
    pub event_id: MatchId,
    pub tournament_id: TournamentId,
    #[serde(default)]
    pub round: Option<i16>,
    pub home_team: TeamName,
    pub away_team: TeamName,
    /// Number of results recorded so far, including voids.
    pub result_revision: i64,
    #[serde(flatten)]
    pub now: Standing,
    /// `None` for a new match.
    pub before: Option<Standing>,
}

/// Id and name of a team.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TeamName {
    pub id: TeamId,
    #[schema(example = "Harbour United")]
    pub name: String,
}

/// State of a match at one moment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Standing {
    pub status: Status,
    /// Scheduled or actual kick-off.
    #[serde(with = "time::serde::rfc3339")]
    pub start_time: OffsetDateTime,
    pub home_score: Option<i32>,
    pub away_score: Option<i32>,
    /// Team that advanced in a knockout match, once it is known.
    #[serde(default)]
    pub advanced: Option<Side>,
}

impl Standing {
    /// Returns (home, away) goals if both are known.
    pub fn scores(&self) -> Option<(i32, i32)> {
        self.home_score.zip(self.away_score)
    }

    /// Returns the outcome that predictions are scored against.
    pub fn outcome(&self) -> Outcome {
        self.status.outcome(self.scores(), self.advanced)
    }
}

impl MatchFact {
    /// Returns true if the match had a result before, and the result is now different or withdrawn.
    pub fn is_correction(&self) -> bool {
        let before = self.before.map_or(Outcome::Open, |before| before.outcome());
        matches!(before, Outcome::Result { .. }) && before != self.now.outcome()
    }
}
