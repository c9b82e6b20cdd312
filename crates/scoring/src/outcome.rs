//! The result of a match, as far as points depend on it.

/// Effect of a match on its predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The match has no result yet.
    Open,
    /// The match was played to this score.
    Result {
        /// Goals of the home team.
        home: i32,
        /// Goals of the away team.
        away: i32,
    },
    /// The match was cancelled, abandoned or awarded. Its predictions earn no points.
    Void,
}
