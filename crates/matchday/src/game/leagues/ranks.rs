//! Ranks of many users in their leagues, for the live stream.

use std::collections::{BTreeMap, HashMap};

use futures_util::{StreamExt as _, stream};
use web::ids::{LeagueId, MatchId, TournamentId, UserId};

use super::{
    rules::{League, TableRow},
    service::Leagues,
    store,
    sums::Member,
};

/// Number of large leagues that are read concurrently.
const LARGE_AT_ONCE: usize = 4;

/// Rank of a user in a league.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeagueRank {
    pub league: LeagueId,
    /// Tournaments of the league.
    pub tournaments: Vec<TournamentId>,
    pub user: UserId,
    pub rank: i64,
    pub points: i32,
}

/// Which leagues are read.
#[derive(Clone, Copy, Debug)]
pub struct Wanted<'a> {
    /// Only leagues that count one of these tournaments.
    pub tournaments: Option<&'a [TournamentId]>,
    /// Only leagues whose table is a copy.
    pub only_large: bool,
}

/// Ranks of users.
#[derive(Clone, Debug, Default)]
pub struct Ranks {
    pub ranks: Vec<LeagueRank>,
    /// Time at which the oldest copy of a large league began, in milliseconds by the clock of the Redis server; `None`
    /// without a large league.
    pub copied_at: Option<i64>,
    /// Time of the last read of a copy.
    pub read_at: i64,
}

impl Leagues {
    /// Returns the tournaments of these matches.
    pub async fn tournaments_of(&self, matches: &[MatchId]) -> sqlx::Result<Vec<TournamentId>> {
        let ids: Vec<i64> = matches.iter().map(|id| id.0).collect();
        Ok(store::tournaments_of(&self.inner.db, &ids).await?.into_iter().map(TournamentId).collect())
    }

    /// Returns the ranks of users in their leagues. Small leagues are read together. A large league whose table cannot be
    /// read is left out, like one whose copy is old.
    pub async fn ranks_of(&self, users: &[UserId], wanted: Wanted<'_>) -> sqlx::Result<Ranks> {
        let inner = &*self.inner;
        let users: Vec<i64> = users.iter().map(|user| user.0).collect();
        let tournaments: Option<Vec<i64>> = wanted.tournaments.map(|ids| ids.iter().map(|id| id.0).collect());
        let mut members: BTreeMap<LeagueId, Vec<Member>> = BTreeMap::new();
        for (league, member) in store::memberships(&inner.db, &users, tournaments.as_deref()).await? {
            members.entry(league).or_default().push(member);
        }
        let ids: Vec<i64> = members.keys().map(|id| id.0).collect();
        let leagues = store::leagues(&inner.db, &ids).await?;
        let (large, small): (Vec<League>, Vec<League>) =
            leagues.into_iter().partition(|league| inner.tables.is_large(league));
        let mut found = self.large_ranks(&large, &members).await;
        if !wanted.only_large {
            let tables = inner.tables.of_many(&small).await?;
            for league in &small {
                let rows = tables.get(&league.id).map(|(_, rows)| rows.as_slice()).unwrap_or_default();
                let of_league = members.get(&league.id).map(Vec::as_slice).unwrap_or_default();
                found.ranks.extend(small_ranks(league, rows, of_league));
            }
        }
        Ok(found)
    }

    async fn large_ranks(&self, leagues: &[League], members: &BTreeMap<LeagueId, Vec<Member>>) -> Ranks {
        let mut found = Ranks::default();
        let read = |league: &League| {
            let (league, members) = (league.clone(), members.get(&league.id).cloned().unwrap_or_default());
            async move { (self.inner.tables.copied_ranks(&league, &members).await, league) }
        };
        let mut reads = stream::iter(leagues.iter().map(read).collect::<Vec<_>>()).buffer_unordered(LARGE_AT_ONCE);
        while let Some((copied, league)) = reads.next().await {
            let copied = match copied {
                Ok(copied) => copied,
                Err(error) => {
                    tracing::debug!(%error, league = league.id.0, "ranks of a large league could not be read");
                    found.copied_at = Some(0);
                    continue;
                }
            };
            found.copied_at = Some(found.copied_at.map_or(copied.copied_at, |oldest| oldest.min(copied.copied_at)));
            found.read_at = found.read_at.max(copied.read_at);
            let rank = |(user, ranking): (UserId, super::service::Ranking)| LeagueRank {
                league: league.id,
                tournaments: league.tournaments.clone(),
                user,
                rank: ranking.rank,
                points: ranking.points,
            };
            found.ranks.extend(copied.ranks.into_iter().map(rank));
        }
        found
    }
}

fn small_ranks<'a>(
    league: &'a League,
    rows: &'a [TableRow],
    members: &[Member],
) -> impl Iterator<Item = LeagueRank> + use<'a> {
    let by_user: HashMap<UserId, &TableRow> = rows.iter().map(|row| (row.user, row)).collect();
    let users: Vec<UserId> = members.iter().map(|(user, _)| *user).collect();
    users.into_iter().filter_map(move |user| {
        let row = by_user.get(&user)?;
        let (rank, points) = (row.rank, row.score.points);
        Some(LeagueRank { league: league.id, tournaments: league.tournaments.clone(), user, rank, points })
    })
}
