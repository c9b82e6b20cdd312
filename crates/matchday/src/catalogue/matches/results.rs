//! Results of matches, as they are recorded for scores to follow.

use platform::outbox::Message;
use scoring::Outcome;
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::MatchId;

use super::store;

/// A match's scores are to be planned.
pub const PLANNED: &str = "work.score.planned";

#[derive(Serialize, Deserialize)]
pub struct Planned {
    pub event_id: MatchId,
}

/// A result that was just written to its match.
#[derive(Clone, Copy, Debug)]
pub struct NewResult {
    /// The match.
    pub event: MatchId,
    /// Its revision.
    pub revision: i64,
    /// What came of the match.
    pub outcome: Outcome,
    /// When it began, or is to begin.
    pub start_time: OffsetDateTime,
    /// Whether anybody can have predicted it.
    pub may_be_predicted: bool,
}

/// Takes note of results, in the transaction that wrote them and behind the closed gates of their matches.
pub async fn record(connection: &mut PgConnection, results: &[NewResult]) -> sqlx::Result<()> {
    if results.is_empty() {
        return Ok(());
    }
    store::insert_results(connection, results).await
}

/// What is told of a result that may have been predicted.
pub fn planned(event: MatchId) -> serde_json::Result<Message> {
    Message::new(PLANNED, format!("event:{event}"), &Planned { event_id: event })
}
