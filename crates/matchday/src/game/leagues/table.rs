//! Tables of leagues. The table of a small league is summed from the scores of the members when it is read, and kept for
//! a second, so that many readers of one league share the work. Most leagues count the same matches, so these are kept
//! for a second too. The table of a large league is read from Redis.

use std::{
    collections::HashMap,
    sync::Arc,
    time::{Duration, Instant},
};

use platform::{Core, reads::Reader};
use redis::aio::ConnectionManager;
use sqlx::PgPool;
use time::OffsetDateTime;
use tokio::sync::Mutex;
use web::ids::{LeagueId, TournamentId, UserId};

use super::{
    large::{CopiedRanks, LargeTables},
    rules::{self, League, Position, TableRow},
    store,
    sums::{self, Member, Outline},
};
use crate::{
    game::scores::{leaderboard_cache::LeaderboardError, rounds::MOST_WINNERS},
    identity::accounts::Person,
};

/// Greatest age of a kept table, and of the matches that it counts.
const KEPT_FOR: Duration = Duration::from_secs(1);
/// Number of kept tables.
const KEPT: usize = 10_000;
/// Number of members of kept tables, about 100 MB. A request may name any round, so a large table can be kept many times.
const KEPT_MEMBERS: u64 = 500_000;
/// Number of kept outlines.
const KEPT_OUTLINES: usize = 1_000;
/// Number of locks that share the computation of tables. Two leagues may have the same one, and then wait for each other.
const LOCKS: i64 = 64;

/// Numbers of leagues and of their members whose tables are computed together.
pub(super) const LEAGUES_AT_ONCE: usize = 500;
const MEMBERS_AT_ONCE: i32 = 20_000;

/// Tables of many leagues, each with its latest round.
pub(super) type ManyTables = HashMap<LeagueId, (Option<i16>, Vec<TableRow>)>;

/// Members as tables show them. A deleted user is called `deleted-` and the id until a worker ends the membership.
pub(super) type Players = HashMap<UserId, Person>;

/// What decides the outline of a table: tournaments, first round, first time, and the round of the table.
type Counted = (Vec<TournamentId>, Option<i16>, Option<OffsetDateTime>, Option<i16>);

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

/// The table of a small league.
#[derive(Clone, Debug)]
struct LeagueTable {
    /// All members, in the order of the table.
    rows: Vec<TableRow>,
    players: Players,
    /// Whether the round is complete; `None` for the table of all rounds.
    round_complete: Option<bool>,
}

#[derive(Clone)]
struct Kept {
    table: Arc<LeagueTable>,
    members_version: i64,
    read_at: Instant,
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

#[derive(Clone)]
struct KeptOutline {
    outline: Arc<Outline>,
    read_at: Instant,
}

/// Computes and keeps tables.
pub(super) struct Tables {
    db: PgPool,
    large: LargeTables,
    /// A league that allows more members is large.
    large_from: i32,
    kept: quick_cache::sync::Cache<(LeagueId, Option<i16>), Kept, ByMembers>,
    locks: Vec<Mutex<()>>,
    outlines: quick_cache::sync::Cache<Counted, KeptOutline>,
    outline_lock: Mutex<()>,
}

impl Tables {
    pub(super) fn new(core: &Core, redis: ConnectionManager, prefix: &str, large_from: u16) -> Self {
        Self {
            db: core.db.clone(),
            large: LargeTables::new(core, redis, prefix),
            large_from: large_from.into(),
            kept: quick_cache::sync::Cache::with_weighter(KEPT, KEPT_MEMBERS, ByMembers),
            locks: (0..LOCKS).map(|_| Mutex::default()).collect(),
            outlines: quick_cache::sync::Cache::new(KEPT_OUTLINES),
            outline_lock: Mutex::default(),
        }
    }

    /// Whether the table of a league is in Redis. One that counts matches by time is always summed from predictions.
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
        let table = self.of(reader, league, page.round).await?;
        let shown = table.shown(page, own);
        let named = |user: i64| table.players.get(&UserId(user)).map(|player| (player.id, player.clone()));
        let players = shown.users().into_iter().filter_map(named).collect();
        Ok((shown, players))
    }

    /// Returns the ranks of these members.
    pub(super) async fn ranks(
        &self,
        reader: &Reader,
        league: &League,
        members: &[Member],
    ) -> Result<HashMap<UserId, Ranking>, LeaderboardError> {
        if self.is_large(league) {
            return Ok(self.large.ranks(league, members).await?.ranks);
        }
        let table = self.of(reader, league, None).await?;
        let wanted = |row: &&TableRow| members.iter().any(|(user, _)| *user == row.user);
        let ranking = |row: &TableRow| (row.user, Ranking { rank: row.rank, points: row.score.points });
        Ok(table.rows.iter().filter(wanted).map(ranking).collect())
    }

    /// Returns the ranks of these members of a large league, with the age of the copy.
    pub(super) async fn copied_ranks(
        &self,
        league: &League,
        members: &[Member],
    ) -> Result<CopiedRanks, LeaderboardError> {
        self.large.ranks(league, members).await
    }

    /// Computes the tables of many small leagues, each with its latest round with a result, if it shows movement. Leagues
    /// that count the same matches share their queries.
    pub(super) async fn of_many(&self, leagues: &[League]) -> sqlx::Result<ManyTables> {
        let mut tables = HashMap::new();
        for some in batches(leagues) {
            let ids: Vec<i64> = some.iter().map(|league| league.id.0).collect();
            let members = store::members_of_leagues(&self.db, &ids).await?;
            let mut alike: HashMap<_, Vec<&League>> = HashMap::new();
            for league in some {
                let counted = (&league.tournaments, league.from_round, league.from, league.is_exact());
                alike.entry(counted).or_default().push(league);
            }
            for group in alike.values() {
                self.add_tables(group, &members, &mut tables).await?;
            }
        }
        Ok(tables)
    }

    /// Adds the tables of leagues that count the same matches.
    async fn add_tables(
        &self,
        group: &[&League],
        members: &HashMap<LeagueId, Vec<Member>>,
        tables: &mut ManyTables,
    ) -> sqlx::Result<()> {
        let Some(first) = group.first() else { return Ok(()) };
        let outline = sums::outline(&self.db, first, None).await?;
        let of_league = |league: &League| members.get(&league.id).map(Vec::as_slice).unwrap_or_default();
        let mut shared = HashMap::new();
        if !first.is_exact() {
            let mut all: Vec<Member> = group.iter().flat_map(|league| of_league(league)).copied().collect();
            all.sort_unstable_by_key(|(user, _)| *user);
            all.dedup_by_key(|(user, _)| *user);
            shared.extend(sums::sum(&self.db, first, &outline, &all).await?);
        }
        for league in group {
            let scores = if league.is_exact() {
                sums::sum(&self.db, league, &outline, of_league(league)).await?
            } else {
                let score = |(user, _): &Member| (*user, shared.get(user).copied().unwrap_or_default());
                of_league(league).iter().map(score).collect()
            };
            tables.insert(league.id, (outline.latest, rules::table(&scores, outline.latest.is_some())));
        }
        Ok(())
    }

    /// Returns the table of a small league, of all rounds or of one. A change of the members is visible immediately, a result
    /// within a second after it is in the scores. A replica may delay both.
    async fn of(&self, reader: &Reader, league: &League, round: Option<i16>) -> sqlx::Result<Arc<LeagueTable>> {
        if let Some(kept) = self.current(reader, league, round) {
            return Ok(kept);
        }
        let lock = &self.locks[usize::try_from(league.id.0.rem_euclid(LOCKS)).unwrap_or_default()];
        let _turn = lock.lock().await;
        // Another request may have computed it in the meantime.
        if let Some(kept) = self.current(reader, league, round) {
            return Ok(kept);
        }
        // A table is as old as its oldest part.
        let KeptOutline { outline, read_at } = self.outline(league, round).await?;
        let of_primary = reader.is_bound_to_primary();
        let table = Arc::new(reader.read(async |db| compute(&db, league, &outline).await).await?);
        let kept = Kept { table: Arc::clone(&table), members_version: league.members_version, read_at, of_primary };
        self.kept.insert((league.id, round), kept);
        Ok(table)
    }

    fn current(&self, reader: &Reader, league: &League, round: Option<i16>) -> Option<Arc<LeagueTable>> {
        let kept = self.kept.get(&(league.id, round))?;
        let is_current = kept.members_version == league.members_version
            && kept.read_at.elapsed() < KEPT_FOR
            && (kept.of_primary || !reader.is_bound_to_primary());
        is_current.then_some(kept.table)
    }

    /// Returns the matches that count for a table. Requests that find none that is recent enough wait for the first.
    async fn outline(&self, league: &League, round: Option<i16>) -> sqlx::Result<KeptOutline> {
        let counted = (league.tournaments.clone(), league.from_round, league.from, round);
        let current = || self.outlines.get(&counted).filter(|kept| kept.read_at.elapsed() < KEPT_FOR);
        if let Some(kept) = current() {
            return Ok(kept);
        }
        let _turn = self.outline_lock.lock().await;
        if let Some(kept) = current() {
            return Ok(kept);
        }
        let read_at = Instant::now();
        let kept = KeptOutline { outline: Arc::new(sums::outline(&self.db, league, round).await?), read_at };
        self.outlines.insert(counted, kept.clone());
        Ok(kept)
    }
}

async fn compute(db: &PgPool, league: &League, outline: &Outline) -> sqlx::Result<LeagueTable> {
    let (scores, players) = if league.is_exact() {
        let members = store::members(db, league.id).await?;
        let users: Vec<i64> = members.iter().map(|(user, _)| user.0).collect();
        (sums::sum(db, league, outline, &members).await?, store::players(db, &users).await?)
    } else {
        sums::of_league(db, league, outline).await?
    };
    let rows = rules::table(&scores, outline.latest.is_some());
    Ok(LeagueTable { rows, players, round_complete: outline.round_complete })
}

/// Divides leagues, so that no batch has too many leagues or members.
fn batches(leagues: &[League]) -> Vec<&[League]> {
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
