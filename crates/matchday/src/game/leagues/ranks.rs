//! Ranks of many users in their leagues, for the live stream.

use std::{
    collections::{BTreeMap, HashMap},
    time::Instant,
};

use futures_util::{StreamExt as _, stream};
use web::ids::{LeagueId, MatchId, TournamentId, UserId};

use super::{
    rules::{League, TableRow},
    service::Leagues,
    store,
    sums::Member,
    table::LEAGUES_AT_ONCE,
};

/// Number of users whose memberships, and whose places in a large league, are read together.
const USERS_AT_ONCE: usize = 500;
/// Number of concurrent reads of large leagues.
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

/// How old the copies of large leagues were.
#[derive(Clone, Copy, Debug, Default)]
pub struct Copies {
    /// Time at which the oldest copy of a large league began or was last verified, in milliseconds by the clock of the
    /// Redis server; `None` without a large league.
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

    /// Reads the ranks of users in their leagues, and passes them to `report`, those of some leagues at a time. Each league is
    /// read once for all of its members. Small leagues are read together. A large league whose table cannot be read is left
    /// out, like one whose copy is old.
    pub async fn ranks_of(
        &self,
        users: &[UserId],
        wanted: Wanted<'_>,
        report: &impl Fn(Vec<LeagueRank>),
    ) -> sqlx::Result<Copies> {
        let (inner, since) = (&*self.inner, Instant::now());
        let tournaments: Option<Vec<i64>> = wanted.tournaments.map(|ids| ids.iter().map(|id| id.0).collect());
        let mut members: BTreeMap<LeagueId, Vec<Member>> = BTreeMap::new();
        for users in users.chunks(USERS_AT_ONCE) {
            let users: Vec<i64> = users.iter().map(|user| user.0).collect();
            for (league, member) in store::memberships(&inner.db, &users, tournaments.as_deref()).await? {
                members.entry(league).or_default().push(member);
            }
        }
        let ids: Vec<i64> = members.keys().map(|id| id.0).collect();
        let mut copies = Copies::default();
        for ids in ids.chunks(LEAGUES_AT_ONCE) {
            let leagues = store::leagues(&inner.db, ids).await?;
            let (large, small): (Vec<&League>, Vec<&League>) =
                leagues.iter().partition(|league| inner.tables.is_large(league));
            report(self.large_ranks(&large, &members, since, &mut copies).await);
            if wanted.only_large {
                continue;
            }
            let tables = inner.tables.many_since(&small, since).await?;
            let mut ranks = Vec::new();
            for league in small {
                let rows = tables.get(&league.id).map(|table| table.rows.as_slice()).unwrap_or_default();
                let of_league = members.get(&league.id).map(Vec::as_slice).unwrap_or_default();
                ranks.extend(small_ranks(league, rows, of_league));
            }
            report(ranks);
        }
        Ok(copies)
    }

    async fn large_ranks(
        &self,
        leagues: &[&League],
        members: &BTreeMap<LeagueId, Vec<Member>>,
        since: Instant,
        copies: &mut Copies,
    ) -> Vec<LeagueRank> {
        let mut ranks = Vec::new();
        let read = |(league, members): (League, Vec<Member>)| async move {
            (self.inner.tables.copied_ranks(&league, &members, since).await, league)
        };
        let some = |league: &&League| {
            let of_league = members.get(&league.id).map(Vec::as_slice).unwrap_or_default();
            of_league.chunks(USERS_AT_ONCE).map(|some| ((*league).clone(), some.to_vec())).collect::<Vec<_>>()
        };
        let reads: Vec<_> = leagues.iter().flat_map(some).map(read).collect();
        let mut reads = stream::iter(reads).buffer_unordered(LARGE_AT_ONCE);
        while let Some((found, league)) = reads.next().await {
            let found = match found {
                Ok(found) => found,
                Err(error) => {
                    tracing::debug!(%error, league = league.id.0, "ranks of a large league could not be read");
                    // Older than any read, so the caller reads the league again.
                    copies.copied_at = Some(0);
                    copies.read_at = copies.read_at.max(1);
                    continue;
                }
            };
            copies.copied_at = Some(copies.copied_at.map_or(found.copied_at, |oldest| oldest.min(found.copied_at)));
            copies.read_at = copies.read_at.max(found.read_at);
            let rank = |(user, ranking): (UserId, super::service::Ranking)| LeagueRank {
                league: league.id,
                tournaments: league.tournaments.clone(),
                user,
                rank: ranking.rank,
                points: ranking.points,
            };
            ranks.extend(found.ranks.into_iter().map(rank));
        }
        ranks
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
