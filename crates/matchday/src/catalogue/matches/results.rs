//! Match results, recorded for the score jobs.

use platform::outbox::Message;
use scoring::{Multiplier, Outcome};
use serde::{Deserialize, Serialize};
use sqlx::PgConnection;
use time::OffsetDateTime;
use web::ids::MatchId;

use super::{rules::Status, store};

/// Work subject that requests planning the score job of a match.
pub const PLANNED: &str = "work.score.planned";

#[derive(Serialize, Deserialize)]
pub struct Planned {
    pub event_id: MatchId,
}

/// A result that was just written to its match.
#[derive(Clone, Copy, Debug)]
pub struct NewResult {
    pub event: MatchId,
    pub revision: i64,
    pub outcome: Outcome,
    pub status: Status,
    /// Scheduled or actual kick-off.
    pub start_time: OffsetDateTime,
    pub round: Option<i16>,
    pub multiplier: Multiplier,
    pub is_knockout: bool,
    /// False if no prediction of the match can exist.
    pub may_be_predicted: bool,
}

/// Records results, in the transaction that wrote them and while the gates of their matches are closed.
pub async fn record(connection: &mut PgConnection, results: &[NewResult]) -> sqlx::Result<()> {
    if results.is_empty() {
        return Ok(());
    }
    store::insert_results(connection, results).await
}

/// Returns the message that requests a score job for a result that may have predictions.
pub fn planned(event: MatchId) -> serde_json::Result<Message> {
    Message::new(PLANNED, format!("event:{event}"), &Planned { event_id: event })
}
