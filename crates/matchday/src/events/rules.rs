//! The states of a match; no I/O.

use std::{fmt, str::FromStr};

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a match really is. The interface shows three states; this is the additive `status_detail`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize, ToSchema, sqlx::Type)]
#[serde(rename_all = "snake_case")]
#[sqlx(type_name = "text", rename_all = "snake_case")]
pub enum Status {
    /// To be played at its time.
    Scheduled,
    /// Being played.
    Live,
    /// Played to its end.
    Finished,
    /// To be played at a time not known yet.
    Postponed,
    /// Interrupted, to be resumed.
    Suspended,
    /// Broken off for good.
    Abandoned,
    /// Will not be played.
    Cancelled,
    /// Decided without being played to its end.
    Awarded,
}

/// The three states of the interface, in the order in which lists show them.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, ToSchema)]
#[serde(rename_all = "snake_case")]
#[schema(as = EventStatus)]
pub enum PublicStatus {
    /// Being played, or interrupted.
    Live,
    /// To come, or called off.
    Scheduled,
    /// Over.
    Finished,
}

/// What a match means for predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Not decided yet.
    Open,
    /// Played to this score.
    Result {
        /// Goals of the home team.
        home: i32,
        /// Goals of the away team.
        away: i32,
    },
    /// Called off, abandoned or awarded: nobody gains or loses by it.
    Void,
}

impl Status {
    /// All of them.
    pub const ALL: [Self; 8] = [
        Self::Scheduled,
        Self::Live,
        Self::Finished,
        Self::Postponed,
        Self::Suspended,
        Self::Abandoned,
        Self::Cancelled,
        Self::Awarded,
    ];

    /// As it is stored and shown.
    pub fn name(self) -> &'static str {
        match self {
            Self::Scheduled => "scheduled",
            Self::Live => "live",
            Self::Finished => "finished",
            Self::Postponed => "postponed",
            Self::Suspended => "suspended",
            Self::Abandoned => "abandoned",
            Self::Cancelled => "cancelled",
            Self::Awarded => "awarded",
        }
    }

    /// What the interface shows.
    pub fn public(self) -> PublicStatus {
        match self {
            Self::Live | Self::Suspended => PublicStatus::Live,
            Self::Scheduled | Self::Postponed | Self::Cancelled => PublicStatus::Scheduled,
            Self::Finished | Self::Abandoned | Self::Awarded => PublicStatus::Finished,
        }
    }

    /// Whether both scores must be known.
    pub fn needs_scores(self) -> bool {
        matches!(self, Self::Finished | Self::Awarded)
    }

    /// Whether a score would be nonsense.
    pub fn precedes_scores(self) -> bool {
        matches!(self, Self::Scheduled | Self::Postponed)
    }

    /// What the match means for predictions.
    pub fn outcome(self, scores: Option<(i32, i32)>) -> Outcome {
        match (self, scores) {
            (Self::Finished, Some((home, away))) => Outcome::Result { home, away },
            (Self::Abandoned | Self::Cancelled | Self::Awarded, _) => Outcome::Void,
            _ => Outcome::Open,
        }
    }
}

impl fmt::Display for Status {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A stored or given status that is none of the eight.
#[derive(Debug, thiserror::Error)]
#[error("`{0}` is no status of a match")]
pub struct UnknownStatus(String);

impl FromStr for Status {
    type Err = UnknownStatus;

    fn from_str(name: &str) -> Result<Self, UnknownStatus> {
        Self::ALL.into_iter().find(|status| status.name() == name).ok_or_else(|| UnknownStatus(name.to_owned()))
    }
}

impl TryFrom<String> for Status {
    type Error = UnknownStatus;

    fn try_from(name: String) -> Result<Self, UnknownStatus> {
        name.parse()
    }
}

impl PublicStatus {
    /// The column `events.phase`.
    pub fn phase(self) -> i16 {
        match self {
            Self::Live => 0,
            Self::Scheduled => 1,
            Self::Finished => 2,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_status_reads_back() {
        for status in Status::ALL {
            assert_eq!(status.name().parse::<Status>().expect("a status"), status);
            assert_eq!(serde_json::to_value(status).expect("JSON"), status.name());
        }
        assert!("lost".parse::<Status>().is_err());
    }

    #[test]
    fn only_a_finished_match_has_a_result() {
        let score = Some((2, 1));
        for status in Status::ALL {
            let expected = match status {
                Status::Finished => Outcome::Result { home: 2, away: 1 },
                Status::Abandoned | Status::Cancelled | Status::Awarded => Outcome::Void,
                _ => Outcome::Open,
            };
            assert_eq!(status.outcome(score), expected, "{status}");
        }
    }
}
