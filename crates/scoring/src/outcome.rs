//! Result of a match, reduced to the facts that points depend on.

/// Outcome of a match for its predictions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// The match has no result yet.
    Open,
    /// The match was played and ended with this score.
    Result { home: i32, away: i32 },
    /// The match was cancelled, abandoned or awarded. Its predictions earn no points.
    Void,
}
