//! Rounds of a tournament: whether one is complete, who won it, and the fact about it.
//!
//! Every result that has reached the scores may complete a round. The consumer of these facts checks that after the
//! transaction that wrote them, so of two results that are applied at the same time, the later one finds both.

use async_nats::jetstream::message::PublishMessage;
use platform::stream::{Begin, Delivery, Failure, Stream, Streams, WorkSpec};
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use utoipa::ToSchema;
use web::ids::{MatchId, TournamentId, UserId};

use super::{
    leaderboard::{Entry, Leaderboards, Table},
    service::{ScoresFact, UPDATED},
    store::{self, RoundState},
};

/// Published when a round is complete, and again when a correction may have changed its winners.
pub const COMPLETED: &str = "fact.round.completed";

/// Greatest number of winners that are named.
pub const MOST_WINNERS: usize = 10;

/// A round that is complete.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct RoundFact {
    /// Match whose result completed or changed the round.
    pub event_id: MatchId,
    pub tournament_id: TournamentId,
    /// Name of the tournament.
    pub tournament: String,
    pub round: i16,
    /// Users with the most points, in the order of the leaderboard; empty if no user predicted a match of the round.
    pub winners: Vec<Winner>,
    /// Points of the winners in this round.
    pub points: Option<i32>,
}

/// A user who won a round.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(as = RoundWinner)]
pub struct Winner {
    pub id: UserId,
    #[schema(example = "swift_winger")]
    pub username: String,
    #[schema(required, example = "Ada Obi")]
    pub name: Option<String>,
}

impl From<&Entry> for Winner {
    fn from(entry: &Entry) -> Self {
        Self { id: entry.user_id, username: entry.username.clone(), name: entry.name.clone() }
    }
}

/// Announces complete rounds to other consumers.
#[derive(Clone)]
pub struct Rounds {
    pub db: PgPool,
    pub streams: Streams,
    pub leaderboards: Leaderboards,
}

/// Returns the first entries of a leaderboard that share the first rank.
pub(super) fn winners(top: &[Entry]) -> impl Iterator<Item = &Entry> {
    top.iter().take_while(|entry| entry.rank == 1).take(MOST_WINNERS)
}

impl RoundState {
    /// Whether the round has a match with a result, no match is open, and the scores include all results.
    pub(super) fn is_complete(self) -> bool {
        self.with_result > 0 && self.open == 0 && self.pending == 0
    }
}

impl Rounds {
    /// Describes the consumer of results that have reached the scores.
    pub fn work() -> WorkSpec {
        WorkSpec { begin: Begin::Now, ..WorkSpec::new("rounds", Stream::Facts, UPDATED) }
    }

    /// Publishes [`COMPLETED`] if the round of a match is complete. A repeated delivery publishes the same message id.
    pub async fn perform(&self, delivery: Delivery) -> Result<(), Failure> {
        let ScoresFact { event_id, .. } =
            serde_json::from_slice(&delivery.payload).map_err(|error| Failure::GiveUp(error.into()))?;
        let found = store::round_of(&self.db, event_id).await.map_err(Failure::retry)?;
        let Some((tournament_id, tournament, round)) = found else { return Ok(()) };
        let state = store::round_state(&self.db, tournament_id, round).await.map_err(Failure::retry)?;
        if !state.is_complete() {
            return Ok(());
        }
        // No user has this id, so no winner is left out as blocked, and hidden names stay hidden.
        let (table, viewer) = (Table::OfRound(tournament_id, round), UserId(0));
        let most = i64::try_from(MOST_WINNERS).unwrap_or(i64::MAX);
        let board = self.leaderboards.global(table, viewer, most).await.map_err(Failure::retry)?;
        let named: Vec<&Entry> = winners(&board.top).collect();
        let points = named.first().map(|entry| entry.points);
        let winners = named.into_iter().map(Winner::from).collect();
        let fact = RoundFact { event_id, tournament_id, tournament, round, winners, points };
        let payload = serde_json::to_vec(&fact).map_err(|error| Failure::GiveUp(error.into()))?;
        let id = format!("round-{tournament_id}-{round}-{}", state.revisions);
        let message = PublishMessage::build().message_id(id).payload(payload.into());
        let stored = self.streams.send(COMPLETED, message).await.map_err(Failure::retry)?;
        stored.await.map_err(Failure::retry)?;
        Ok(())
    }
}
