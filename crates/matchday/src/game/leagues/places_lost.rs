//! Members who lost places by a round, for notifications. Large leagues are skipped: their table is a copy, which may be
//! older than the round.

use std::{
    collections::{HashMap, HashSet},
    time::Instant,
};

use time::OffsetDateTime;
use web::ids::{LeagueId, MatchId, TournamentId, UserId};

use super::{
    recent::Age,
    rules::{self, CountsFrom, League, MemberScore, TableRow},
    service::Leagues,
    store,
    sums::Member,
    table::LEAGUES_AT_ONCE,
};
use crate::game::scores::rules::Score;

/// Number of members whose points are read together.
const MEMBERS_AT_ONCE: usize = 5_000;

/// A result that has reached the scores.
#[derive(Clone, Copy, Debug)]
pub struct NewResult {
    pub event: MatchId,
    pub tournament: TournamentId,
    pub round: Option<i16>,
    pub start_time: OffsetDateTime,
    pub revision: i64,
    /// Result that it replaces; 0 for none.
    pub previous: i64,
}

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
        let wanted: Vec<&League> = leagues.iter().collect();
        let tables = inner.tables.of_many(&inner.db, &wanted, Age::Since(Instant::now())).await?;
        let mut lost = Vec::new();
        for league in &leagues {
            if let Some(table) = tables.get(&league.id)
                && table.latest == Some(round)
            {
                lost.extend(table.rows.iter().filter_map(|row| place_lost(league, row)));
            }
        }
        Ok(lost)
    }

    /// Returns the leagues among these that count the match of a result and have a table that is always current.
    pub async fn counting(&self, result: &NewResult, leagues: &[LeagueId]) -> sqlx::Result<Vec<League>> {
        let ids: Vec<i64> = leagues.iter().map(|league| league.0).collect();
        let mut leagues = store::leagues(&self.inner.db, &ids).await?;
        leagues.retain(|league| {
            let counts_round = league.from_round.is_none_or(|from| result.round.is_some_and(|round| round >= from));
            let counts_time = league.from.is_none_or(|from| result.start_time >= from);
            let counts_tournament = league.tournaments.contains(&result.tournament);
            counts_tournament && counts_round && counts_time && !self.inner.tables.is_large(league)
        });
        Ok(leagues)
    }

    /// Returns the members of these leagues whose rank is worse than without a result. Results of other matches count in
    /// both tables.
    pub async fn places_lost_by_result(&self, result: &NewResult, leagues: &[League]) -> sqlx::Result<Vec<PlaceLost>> {
        let inner = &*self.inner;
        let wanted: Vec<&League> = leagues.iter().collect();
        let tables = inner.tables.of_many(&inner.db, &wanted, Age::Since(Instant::now())).await?;
        let ids: Vec<i64> = leagues.iter().map(|league| league.id.0).collect();
        let members = store::members_of_leagues(&inner.db, &ids).await?;
        let users: HashSet<i64> = members.values().flatten().map(|(user, _)| user.0).collect();
        let users: Vec<i64> = users.into_iter().collect();
        let mut changes: HashMap<UserId, Score> = HashMap::new();
        for some in users.chunks(MEMBERS_AT_ONCE) {
            changes.extend(store::result_changes(&inner.db, result, some).await?);
        }
        let mut lost = Vec::new();
        for league in leagues {
            let Some(table) = tables.get(&league.id) else { continue };
            let of_league = members.get(&league.id).map(Vec::as_slice).unwrap_or_default();
            let rows = without(result, league, &table.rows, of_league, &changes);
            lost.extend(rows.iter().filter_map(|row| place_lost(league, row)));
        }
        Ok(lost)
    }
}

/// Computes a table whose movement is that of one result.
fn without(
    result: &NewResult,
    league: &League,
    rows: &[TableRow],
    members: &[Member],
    changes: &HashMap<UserId, Score>,
) -> Vec<TableRow> {
    let joined: HashMap<UserId, OffsetDateTime> = members.iter().copied().collect();
    let counts = |user: UserId| {
        league.counts_from == CountsFrom::LeagueStart
            || joined.get(&user).is_some_and(|joined| *joined <= result.start_time)
    };
    let member = |row: &TableRow| {
        let change = changes.get(&row.user).copied().filter(|_| counts(row.user)).unwrap_or_default();
        (row.user, MemberScore { all: row.score, latest_round: change })
    };
    rules::table(&rows.iter().map(member).collect::<Vec<_>>(), true)
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
