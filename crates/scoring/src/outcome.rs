//! Result of a match, reduced to the facts that points depend on.

use crate::forecast::Side;

/// Outcome of a match for its predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The match has no result yet.
    Open,
    /// The match was played and ended with this score.
    Result {
        home: i32,
        away: i32,
        /// Team that advanced; `None` if it is not known yet, and for matches that are not knockout matches.
        advanced: Option<Side>,
    },
    /// The match was cancelled, abandoned or awarded. Its predictions earn no points.
    Void,
}

impl Outcome {
    /// Result of a match in which no team advances.
    pub fn result(home: i32, away: i32) -> Self {
        Self::Result { home, away, advanced: None }
    }
}
