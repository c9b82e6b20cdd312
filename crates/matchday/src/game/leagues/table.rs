//! Tables of leagues. The table of a small league is summed from the scores of the members when it is read, and kept for
//! a second, so that many readers of one league share the work. Most leagues count the same matches, so these are kept
//! for a second too. The table of a large league is read from Redis.

use std::{
    collections::{BTreeSet, HashMap},
    sync::Arc,
    time::Instant,
};

use futures_util::future::join_all;
use platform::{Core, reads::Reader};
use redis::aio::ConnectionManager;
use sqlx::PgPool;
use tokio::sync::{Mutex, MutexGuard};
use web::ids::{LeagueId, UserId};

use super::{
    large::{CopiedRanks, LargeTables},
    recent::{Age, ReadAt},
    rules::{self, League, Position, TableRow},
    store,
    sums::{self, Member, Outline, Outlines},
};
use crate::{
    game::scores::{leaderboard_cache::LeaderboardError, rounds::MOST_WINNERS},
    identity::accounts::Person,
};

/// Number of kept tables.
const KEPT: usize = 10_000;
/// Number of members of kept tables, about 100 MB. A request may name any round, so a large table can be kept many times.
const KEPT_MEMBERS: u64 = 500_000;
/// Number of locks that share the computation of tables. Two leagues may have the same one, and then wait for each other.
const LOCKS: i64 = 1_024;

/// Numbers of leagues and of their members whose tables are computed together.
pub(super) const LEAGUES_AT_ONCE: usize = 500;
const MEMBERS_AT_ONCE: i32 = 20_000;

/// Members as tables show them. A deleted user is called `deleted-` and the id until a worker ends the membership.
pub(super) type Players = HashMap<UserId, Person>;

/// A league, and the membership of the user who reads it.
type Owned<'a> = (&'a League, Member);

/// Requested page of a table.
#[derive(Clone, Copy, Debug)]
pub struct TablePage {
    pub round: Option<i16>,
    pub after: Option<Position>,
    pub limit: i64,
}

/// Part of a table that a response shows.
#[derive(Clone, Debug)]
pub(super) struct Shown {
    pub(super) rows: Vec<TableRow>,
    pub(super) own: Option<TableRow>,
    pub(super) neighbours: Vec<TableRow>,
    /// Whether the round is complete; `None` for the table of all rounds.
    pub(super) round_complete: Option<bool>,
    /// First members of a complete round.
    pub(super) winners: Vec<TableRow>,
    pub(super) next: Option<Position>,
}

/// Rank and points of a member.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ranking {
    pub rank: i64,
    pub points: i32,
}

/// The table of a small league. That of a large league, without Redis, has only the first of its members.
#[derive(Clone, Debug)]
pub(super) struct LeagueTable {
    /// All members, in the order of the table.
    pub(super) rows: Vec<TableRow>,
    /// Names of the members; `None` for a table that was computed together with others.
    players: Option<Players>,
    /// Round of the table; `None` for the table of all rounds.
    round: Option<i16>,
    /// Latest round with a result, if the table shows movement.
    pub(super) latest: Option<i16>,
    /// Whether the round is complete; `None` for the table of all rounds.
    round_complete: Option<bool>,
    /// A table is as old as its oldest part.
    read_at: ReadAt,
}

#[derive(Clone)]
struct Kept {
    table: Arc<LeagueTable>,
    members_version: i64,
    /// Whether the primary was read. A caller who wrote gets no other table.
    of_primary: bool,
}

/// Counts the members of kept tables.
#[derive(Clone)]
struct ByMembers;

impl quick_cache::Weighter<(LeagueId, Option<i16>), Kept> for ByMembers {
    fn weight(&self, _: &(LeagueId, Option<i16>), kept: &Kept) -> u64 {
        kept.table.rows.len() as u64 + 1
    }
}

/// Which kept tables a caller accepts.
#[derive(Clone, Copy, Debug)]
enum Accepted {
    /// At most a second old, with the present members.
    WithMembers,
    /// With members who have left since, and without those who joined.
    Aged(Age),
}

/// Computes and keeps tables.
pub(super) struct Tables {
    db: PgPool,
    large: LargeTables,
    /// A league that allows more members is large.
    large_from: i32,
    kept: quick_cache::sync::Cache<(LeagueId, Option<i16>), Kept, ByMembers>,
    locks: Vec<Mutex<()>>,
    outlines: Arc<Outlines>,
}

impl Tables {
    pub(super) fn new(core: &Core, redis: ConnectionManager, prefix: &str, large_from: u16) -> Self {
        let outlines = Arc::new(Outlines::new(core));
        Self {
            db: core.db.clone(),
            large: LargeTables::new(core, redis, prefix, Arc::clone(&outlines)),
            large_from: large_from.into(),
            kept: quick_cache::sync::Cache::with_weighter(KEPT, KEPT_MEMBERS, ByMembers),
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            outlines,
        }
    }

    /// Whether the table of a league is in Redis. One that counts matches by time is always summed.
    pub(super) fn is_large(&self, league: &League) -> bool {
        league.max_members > self.large_from && !league.is_exact()
    }

    /// Reads a page of the table of a league, as seen by `own`, or by a user who is not a member, and the names of its
    /// members. Members who have left since a table was copied have no name.
    pub(super) async fn shown(
        &self,
        reader: &Reader,
        league: &League,
        page: TablePage,
        own: Option<Member>,
    ) -> Result<(Shown, Players), LeaderboardError> {
        if self.is_large(league) {
            let shown = self.large.shown(league, page, own).await?;
            let players = store::named_members(&self.db, league.id, &shown.users()).await?;
            return Ok((shown, players));
        }
        let table = self.of(reader, league, page.round, Accepted::WithMembers).await?;
        let shown = table.shown(page, own);
        let users = shown.users();
        let players = match &table.players {
            Some(players) => {
                let named = |user: &i64| players.get(&UserId(*user)).map(|player| (player.id, player.clone()));
                users.iter().filter_map(named).collect()
            }
            None => reader.read(async |db| store::players(&db, &users).await).await?,
        };
        Ok((shown, players))
    }

    /// Returns the place of a user in each of these leagues, of which they are members since the given times. Small leagues
    /// are computed together.
    ///
    /// A place in a large league whose table cannot be read is estimated from the first `large_from` members, and exact if
    /// there are no more: the table is optional for everything except its own pages.
    pub(super) async fn places(
        &self,
        reader: &Reader,
        user: UserId,
        leagues: &[(&League, Member)],
    ) -> sqlx::Result<HashMap<LeagueId, Ranking>> {
        let (large, small): (Vec<&Owned<'_>>, Vec<&Owned<'_>>) =
            leagues.iter().partition(|(league, _)| self.is_large(league));
        let small: Vec<&League> = small.into_iter().map(|(league, _)| *league).collect();
        let mut tables = self.many(reader, &small, Age::Second).await?;
        let mut places = HashMap::new();
        let copied = large.iter().map(|(league, own)| self.large.ranks(league, std::slice::from_ref(own), Age::Second));
        for ((league, _), copied) in large.iter().zip(join_all(copied).await) {
            match copied {
                Ok(copied) => {
                    places.extend(copied.ranks.get(&user).map(|place| (league.id, *place)));
                }
                Err(LeaderboardError::Database(error)) => return Err(error),
                Err(error) => tracing::debug!(%error, league = league.id.0, "place in a large league was estimated"),
            }
            if !places.contains_key(&league.id) {
                tables.insert(league.id, self.of(reader, league, None, Accepted::Aged(Age::Second)).await?);
            }
        }
        for (league, own) in leagues {
            if let Some(table) = tables.get(&league.id) {
                places.insert(league.id, self.place_in(reader, league, table, *own).await?);
            }
        }
        Ok(places)
    }

    /// Returns the place of a member in a table, which may lack them.
    async fn place_in(
        &self,
        reader: &Reader,
        league: &League,
        table: &LeagueTable,
        (user, joined_at): Member,
    ) -> sqlx::Result<Ranking> {
        let points = if let Some(row) = table.rows.iter().find(|row| row.user == user) {
            row.score.points
        } else {
            let (outline, _) = self.outlines.of(league, None, Age::Second).await?;
            let own = [(user, league.start(joined_at))];
            let scores = reader.read(async |db| sums::sum(&db, &outline, &own).await).await?;
            scores.first().map_or(0, |(_, score)| score.all.points)
        };
        let ahead = table.rows.partition_point(|row| row.score.points > points);
        let (ahead, listed) = (i64::try_from(ahead).unwrap_or_default(), i64::try_from(table.rows.len()).unwrap_or(1));
        let members = i64::from(league.member_count);
        let is_part = self.is_large(league) && listed < members;
        let rank = if is_part { (ahead * members / listed.max(1) + 1).min(members) } else { ahead + 1 };
        Ok(Ranking { rank, points })
    }

    /// Returns the ranks of these members of a large league, with the age of the copy.
    pub(super) async fn copied_ranks(
        &self,
        league: &League,
        members: &[Member],
        since: Instant,
    ) -> Result<CopiedRanks, LeaderboardError> {
        self.large.ranks(league, members, Age::Since(since)).await
    }

    /// Computes the tables of many small leagues, each with its latest round with a result, if it shows movement. Leagues
    /// that count the same matches share their queries.
    pub(super) async fn of_many(
        &self,
        db: &PgPool,
        leagues: &[&League],
        age: Age,
    ) -> sqlx::Result<HashMap<LeagueId, LeagueTable>> {
        let mut tables = HashMap::new();
        for some in batches(leagues) {
            let ids: Vec<i64> = some.iter().map(|league| league.id.0).collect();
            let members = store::members_of_leagues(db, &ids).await?;
            let mut alike: HashMap<_, Vec<&League>> = HashMap::new();
            for &league in some {
                let counted = (&league.tournaments, league.from_round, league.from, league.is_exact());
                alike.entry(counted).or_default().push(league);
            }
            for group in alike.values() {
                self.add_tables(db, group, age, &members, &mut tables).await?;
            }
        }
        Ok(tables)
    }

    /// Adds the tables of leagues that count the same matches.
    async fn add_tables(
        &self,
        db: &PgPool,
        group: &[&League],
        age: Age,
        members: &HashMap<LeagueId, Vec<Member>>,
        tables: &mut HashMap<LeagueId, LeagueTable>,
    ) -> sqlx::Result<()> {
        let Some(first) = group.first() else { return Ok(()) };
        let (outline, ReadAt { began, .. }) = self.outlines.of(first, None, age).await?;
        let reading = Instant::now();
        let of_league = |league: &League| members.get(&league.id).map(Vec::as_slice).unwrap_or_default();
        let start = |league: &League, (user, joined_at): &Member| (*user, league.start(*joined_at));
        let all: Vec<Member> =
            group.iter().flat_map(|league| of_league(league).iter().map(move |member| start(league, member))).collect();
        let scores = sums::sum(db, &outline, &all).await?;
        let mut rest = scores.as_slice();
        for league in group {
            let (of_league, others) = rest.split_at(of_league(league).len());
            rest = others;
            let (rows, latest) = (rules::table(of_league, outline.latest.is_some()), outline.latest);
            let table = LeagueTable {
                rows,
                players: None,
                latest,
                round_complete: outline.round_complete,
                read_at: ReadAt { began, took: reading.elapsed() },
                round: None,
            };
            tables.insert(league.id, table);
        }
        Ok(())
    }

    /// Returns the tables of small leagues, of all rounds, none older than `since`.
    pub(super) async fn many_since(
        &self,
        leagues: &[&League],
        since: Instant,
    ) -> sqlx::Result<HashMap<LeagueId, Arc<LeagueTable>>> {
        self.many(&Reader::of_primary(self.db.clone()), leagues, Age::Since(since)).await
    }

    async fn many(
        &self,
        reader: &Reader,
        leagues: &[&League],
        age: Age,
    ) -> sqlx::Result<HashMap<LeagueId, Arc<LeagueTable>>> {
        let mut found = HashMap::new();
        let mut missing = self.take_kept(reader, leagues, age, &mut found);
        // One task of a process asks for tables since a time. Its many leagues must not block requests.
        let is_shared = !missing.is_empty() && matches!(age, Age::Second);
        let _turns = if is_shared { self.lock(&missing).await } else { Vec::new() };
        if is_shared {
            // Other requests may have computed some in the meantime.
            missing = self.take_kept(reader, &missing, age, &mut found);
        }
        if missing.is_empty() {
            return Ok(found);
        }
        let of_primary = reader.is_bound_to_primary();
        let mut tables = reader.read(async |db| self.of_many(&db, &missing, age).await).await?;
        for league in missing {
            if let Some(table) = tables.remove(&league.id) {
                found.insert(league.id, self.keep(league, table, of_primary));
            }
        }
        Ok(found)
    }

    /// Adds the kept tables of leagues, and returns the leagues without one.
    fn take_kept<'a>(
        &self,
        reader: &Reader,
        leagues: &[&'a League],
        age: Age,
        found: &mut HashMap<LeagueId, Arc<LeagueTable>>,
    ) -> Vec<&'a League> {
        let mut missing = Vec::new();
        for league in leagues {
            match self.current(reader, league, None, Accepted::Aged(age)) {
                Some(table) => {
                    found.insert(league.id, table);
                }
                None => missing.push(*league),
            }
        }
        missing
    }

    /// Waits for requests that compute tables of these leagues. All tasks take the locks in the same order.
    async fn lock(&self, leagues: &[&League]) -> Vec<MutexGuard<'_, ()>> {
        let locks = leagues.iter().map(|league| usize::try_from(league.id.0.rem_euclid(LOCKS)).unwrap_or_default());
        let mut turns = Vec::new();
        for lock in locks.collect::<BTreeSet<usize>>() {
            turns.push(self.locks[lock].lock().await);
        }
        turns
    }

    /// Returns the table of a small league, of all rounds or of one. A change of the members is visible immediately if
    /// `accepted` says so, a result within a second after it is in the scores. A replica may delay both.
    async fn of(
        &self,
        reader: &Reader,
        league: &League,
        round: Option<i16>,
        accepted: Accepted,
    ) -> sqlx::Result<Arc<LeagueTable>> {
        if let Some(kept) = self.current(reader, league, round, accepted) {
            return Ok(kept);
        }
        let _turn = self.lock(&[league]).await;
        // Another request may have computed it in the meantime.
        if let Some(kept) = self.current(reader, league, round, accepted) {
            return Ok(kept);
        }
        let (outline, ReadAt { began, .. }) = self.outlines.of(league, round, Age::Second).await?;
        let of_primary = reader.is_bound_to_primary();
        let table = reader.read(async |db| self.compute(&db, league, &outline, began).await).await?;
        Ok(self.keep(league, table, of_primary))
    }

    async fn compute(
        &self,
        db: &PgPool,
        league: &League,
        outline: &Outline,
        began: Instant,
    ) -> sqlx::Result<LeagueTable> {
        let reading = Instant::now();
        let (scores, players) = if self.is_large(league) {
            let members = store::members_after(db, league.id, i64::MIN, self.large_from.into()).await?;
            (sums::sum(db, outline, &members).await?, None)
        } else if league.is_exact() {
            let members: Vec<Member> = store::members(db, league.id).await?;
            let starts: Vec<Member> = members.iter().map(|(user, joined)| (*user, league.start(*joined))).collect();
            let users: Vec<i64> = members.iter().map(|(user, _)| user.0).collect();
            (sums::sum(db, outline, &starts).await?, Some(store::players(db, &users).await?))
        } else {
            let (scores, players) = sums::of_league(db, league, outline).await?;
            (scores, Some(players))
        };
        let (rows, latest) = (rules::table(&scores, outline.latest.is_some()), outline.latest);
        let read_at = ReadAt { began, took: reading.elapsed() };
        Ok(LeagueTable { rows, players, latest, round_complete: outline.round_complete, read_at, round: outline.round })
    }

    fn keep(&self, league: &League, table: LeagueTable, of_primary: bool) -> Arc<LeagueTable> {
        let (round, table) = (table.round, Arc::new(table));
        let kept = Kept { table: Arc::clone(&table), members_version: league.members_version, of_primary };
        self.kept.insert((league.id, round), kept);
        table
    }

    fn current(
        &self,
        reader: &Reader,
        league: &League,
        round: Option<i16>,
        accepted: Accepted,
    ) -> Option<Arc<LeagueTable>> {
        let kept = self.kept.get(&(league.id, round))?;
        let is_accepted = match accepted {
            Accepted::WithMembers => {
                kept.members_version == league.members_version && Age::Second.allows(kept.table.read_at)
            }
            Accepted::Aged(age) => age.allows(kept.table.read_at),
        };
        (is_accepted && (kept.of_primary || !reader.is_bound_to_primary())).then_some(kept.table)
    }
}

/// Divides leagues, so that no batch has too many leagues or members.
fn batches<'a, 'b>(leagues: &'a [&'b League]) -> Vec<&'a [&'b League]> {
    let (mut batches, mut first, mut members) = (Vec::new(), 0, 0);
    for (at, league) in leagues.iter().enumerate() {
        if at > first && (at - first == LEAGUES_AT_ONCE || members + league.member_count > MEMBERS_AT_ONCE) {
            batches.push(&leagues[first..at]);
            (first, members) = (at, 0);
        }
        members += league.member_count;
    }
    batches.extend((first < leagues.len()).then(|| &leagues[first..]));
    batches
}

impl Shown {
    /// Ids of all users that it shows.
    fn users(&self) -> Vec<i64> {
        self.rows.iter().chain(&self.neighbours).chain(&self.winners).map(|row| row.user.0).collect()
    }
}

impl LeagueTable {
    fn shown(&self, page: TablePage, own: Option<Member>) -> Shown {
        let limit = usize::try_from(page.limit).unwrap_or_default();
        let (rows, next) = rules::page(&self.rows, page.after, limit);
        let winners = match self.round_complete {
            Some(true) => self.rows.iter().take_while(|row| row.rank == 1).take(MOST_WINNERS).copied().collect(),
            _ => Vec::new(),
        };
        let neighbours = own.map_or(&[][..], |(user, _)| rules::neighbours(&self.rows, user));
        Shown {
            rows: rows.to_vec(),
            own: own.and_then(|(user, _)| neighbours.iter().find(|row| row.user == user).copied()),
            neighbours: neighbours.to_vec(),
            round_complete: self.round_complete,
            winners,
            next,
        }
    }
}
