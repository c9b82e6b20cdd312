//! Members who lost places by a round, for notifications. Large leagues are skipped: their table is a copy, which may be
//! older than the round.

use web::ids::{LeagueId, TournamentId, UserId};

use super::{
    rules::{League, TableRow},
    service::Leagues,
    store,
    table::LEAGUES_AT_ONCE,
};

/// A member whose rank is worse than before a round.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlaceLost {
    pub league: LeagueId,
    /// Name of the league.
    pub name: String,
    pub user: UserId,
    pub rank: i64,
    pub previous_rank: i64,
    pub points: i32,
}

impl Leagues {
    /// Returns the last league of the next page of leagues that count a tournament; `None` after the last page.
    pub async fn page_end(&self, tournament: TournamentId, after: LeagueId) -> sqlx::Result<Option<LeagueId>> {
        let limit = i64::try_from(LEAGUES_AT_ONCE).unwrap_or(i64::MAX);
        store::page_of_tournament(&self.inner.db, tournament, after, limit).await
    }

    /// Returns the members who lost places by a round, in the leagues of a page: those with ids in `after..=until`
    /// (excluding `after`) that count the tournament, and whose latest round with a result is this one.
    pub async fn places_lost(
        &self,
        tournament: TournamentId,
        round: i16,
        (after, until): (LeagueId, LeagueId),
    ) -> sqlx::Result<Vec<PlaceLost>> {
        let inner = &*self.inner;
        let mut leagues = store::of_tournament(&inner.db, tournament, after, until).await?;
        leagues.retain(|league| !inner.tables.is_large(league));
        let tables = inner.tables.of_many(&leagues).await?;
        let mut lost = Vec::new();
        for league in &leagues {
            if let Some((latest, rows)) = tables.get(&league.id)
                && *latest == Some(round)
            {
                lost.extend(rows.iter().filter_map(|row| place_lost(league, row)));
            }
        }
        Ok(lost)
    }
}

fn place_lost(league: &League, row: &TableRow) -> Option<PlaceLost> {
    let movement = row.movement.filter(|movement| *movement < 0)?;
    Some(PlaceLost {
        league: league.id,
        name: league.name.clone(),
        user: row.user,
        rank: row.rank,
        previous_rank: row.rank + movement,
        points: row.score.points,
    })
}
