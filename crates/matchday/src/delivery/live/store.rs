//! SQL queries for the live stream.

use sqlx::PgExecutor;
use web::ids::{MatchId, TournamentId};

use super::rules::TallyFact;

/// Returns the prediction tallies of these matches.
pub(super) async fn tallies(executor: impl PgExecutor<'_>, events: &[MatchId]) -> sqlx::Result<Vec<TallyFact>> {
    let events: Vec<i64> = events.iter().map(|event| event.0).collect();
    sqlx::query_as!(
        TallyFact,
        r#"select e.id as "event_id: MatchId", e.tournament_id as "tournament_id: TournamentId",
                  sum(t.home)::bigint as "home!", sum(t.draw)::bigint as "draw!", sum(t.away)::bigint as "away!",
                  coalesce(sum(t.confidence) / nullif(sum(t.home + t.draw + t.away), 0), 0)::double precision
                    as "average_confidence!"
           from events e join event_tallies t on t.event_id = e.id
           where e.id = any($1)
           group by e.id"#,
        &events,
    )
    .fetch_all(executor)
    .await
}
