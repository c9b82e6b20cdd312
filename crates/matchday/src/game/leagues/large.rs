//! Tables of large leagues, copied to Redis (see [`crate::game::scores::copied_sets`]): the standings of all members, and
//! those before the latest round, from which movement follows. A read costs the same for any number of members.
//!
//! A copy is a few seconds old. A member who joined since has a row of their own, and a member who left is not shown.
//! Before the first result all members have zeros, and no copy is made: their order is that of their ids.

use std::{collections::HashMap, sync::Arc, time::Duration};

use platform::Core;
use redis::aio::ConnectionManager;
use serde::{Deserialize, Serialize};
use sqlx::PgPool;
use time::OffsetDateTime;
use web::ids::{LeagueId, UserId};

use super::{
    recent::Age,
    rules::{self, League, MemberScore, NEIGHBOURS, Position, TableRow},
    store,
    sums::{self, Member, Outline, Outlines},
    table::{Ranking, Shown, TablePage},
};
use crate::game::scores::{
    copied_sets::{self, CopiedSets, Filled, Kind, Listed, PAGE, SetWriter, Wanted, ranked},
    leaderboard_cache::LeaderboardError,
    rounds::MOST_WINNERS,
    rules::{Score, Standing, member},
};

/// Suffix of the set of standings before the latest round.
const BEFORE: &str = ":before";
const KIND: Kind = Kind { sets: &["", BEFORE], pause_factor: 3 };
/// Time for which a table is kept if it is not requested. A copy of a very large league takes seconds.
const RETENTION: Duration = Duration::from_hours(1);
/// The same for a table of one round, because a league has many rounds.
const ROUND_RETENTION: Duration = Duration::from_mins(10);
/// A copy older than this is replaced even if no result or membership has changed, because operators can repair scores.
/// In milliseconds.
const MAX_AGE: i64 = 10 * 60 * 1_000;

/// Lua functions: the number of members with more points than a key, the number of members up to a key and a member, and
/// consecutive members with their ranks before the latest round, 0 without one.
const FUNCTIONS: &str = r"
local counted = { {}, {} }
local function ahead(set, key)
  local points = math.floor(-tonumber(key) / 1073741824)
  local count = counted[set][points]
  if not count then
    local last = string.format('%.0f', -(points + 1) * 1073741824)
    count = redis.call('ZCOUNT', KEYS[set], '-inf', last)
    counted[set][points] = count
  end
  return count
end
local function is_less(one, other)
  for at = 1, 8 do
    local left, right = one:byte(at), other:byte(at)
    if left ~= right then return left < right end
  end
  return false
end
local function up_to(key, member)
  local low = redis.call('ZCOUNT', KEYS[1], '-inf', '(' .. key)
  local high = redis.call('ZCOUNT', KEYS[1], '-inf', key)
  while low < high do
    local middle = math.floor((low + high) / 2)
    if is_less(member, redis.call('ZRANGE', KEYS[1], middle, middle)[1]) then high = middle else low = middle + 1 end
  end
  return low
end
local function list(first, last)
  if last < first then return { first, 0, {}, {} } end
  local listed, before = redis.call('ZRANGE', KEYS[1], first, last, 'WITHSCORES'), {}
  for at = 1, #listed, 2 do
    local key = redis.call('ZSCORE', KEYS[2], listed[at])
    before[#before + 1] = key and ahead(2, key) + 1 or 0
  end
  return { first, #listed > 0 and ahead(1, listed[2]) or 0, listed, before }
end
";

/// Reads everything that a response needs. `KEYS` are the set, the set before the latest round, the due time and the
/// note. `ARGV` are the number of members of a page, the key and member after which it begins or nothing, the caller or
/// nothing, the caller's keys if the set lacks the caller, the number of neighbours and the number of winners. The first
/// value is -1 without a copy, and otherwise by how many milliseconds it is overdue. The last ones are position, rank
/// and earlier rank of a caller whom the set lacks.
const LOOK: &str = r"
local due = tonumber(redis.call('GET', KEYS[3]) or '')
if not due then return { -1, '', 0, list(0, -1), list(0, -1), list(0, -1), -1, 0, 0 } end
local first = ARGV[2] == '' and 0 or up_to(ARGV[2], ARGV[3])
local around, place, rank, earlier = list(0, -1), -1, 0, 0
if ARGV[4] ~= '' then
  local found = redis.call('ZRANK', KEYS[1], ARGV[4])
  if found then
    around = list(math.max(found - ARGV[7], 0), found + ARGV[7])
  elseif ARGV[5] ~= '' then
    place, rank = up_to(ARGV[5], ARGV[4]), ahead(1, ARGV[5]) + 1
    around = list(math.max(place - ARGV[7], 0), place + ARGV[7] - 1)
    if redis.call('EXISTS', KEYS[2]) == 1 then earlier = ahead(2, ARGV[6]) + 1 end
  end
end
return { math.max(now - due, 0), redis.call('GET', KEYS[4]), redis.call('ZCARD', KEYS[1]),
  list(first, first + ARGV[1] - 1), around, list(0, ARGV[8] - 1), place, rank, earlier }
";

/// Reads the keys of members, empty for those whom the set lacks, and the number of members with more points than each.
/// `ARGV` are the number of members, the members, and keys for which only the latter is read. The first two values are as in
/// [`LOOK`] and the time.
const PLACES: &str = r"
local due = tonumber(redis.call('GET', KEYS[3]) or '')
if not due then return { -1, now, '', {}, {} } end
local keys, counts = {}, {}
for at = 2, ARGV[1] + 1 do
  local key = redis.call('ZSCORE', KEYS[1], ARGV[at])
  keys[#keys + 1] = key or ''
  counts[#counts + 1] = key and ahead(1, key) or 0
end
for at = ARGV[1] + 2, #ARGV do counts[#counts + 1] = ahead(1, ARGV[at]) end
return { math.max(now - due, 0), now, redis.call('GET', KEYS[4]), keys, counts }
";

/// Reads and copies tables of large leagues.
pub(super) struct LargeTables {
    db: PgPool,
    outlines: Arc<Outlines>,
    sets: CopiedSets,
    look: redis::Script,
    places: redis::Script,
}

/// Stored with a copy.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Note {
    /// Time at which the copy began, in milliseconds by the clock of the Redis server.
    began_at: i64,
    /// Time of the last check that found it up to date, or at which it began.
    verified_at: i64,
    /// Version of the members, number of results in the scores, and time of the latest one in nanoseconds. Together with
    /// the outline, they tell whether the table has changed.
    members_version: i64,
    results: i64,
    applied_at: Option<i128>,
    outline: Outline,
}

impl Note {
    /// Returns the note of the present copy, as verified now, if a copy with this note would equal it and it is not too old.
    fn verified(&self, present: &str) -> Option<Self> {
        let present: Self = serde_json::from_str(present).ok()?;
        let began_at = present.began_at;
        let is_like = Self { began_at: self.began_at, verified_at: self.verified_at, ..present } == *self;
        (is_like && self.began_at - began_at < MAX_AGE).then(|| Self { began_at, ..self.clone() })
    }
}

/// Ranks of members, read from a copy.
pub(super) struct CopiedRanks {
    pub(super) ranks: HashMap<UserId, Ranking>,
    /// Time at which the copy began or was last verified, and time of the read, in milliseconds by the clock of the Redis
    /// server.
    pub(super) copied_at: i64,
    pub(super) read_at: i64,
}

/// Response to [`PLACES`].
type LookedUp = (i64, i64, String, Vec<String>, Vec<i64>);

/// Consecutive members: position of the first, number of members with more points, members, and their ranks before.
type Listing = (i64, i64, Listed, Vec<i64>);

/// Response to [`LOOK`].
type Looked = (i64, String, i64, Listing, Listing, Listing, i64, i64, i64);

/// Part of a copy.
struct Copied {
    overdue: Duration,
    outline: Outline,
    total: i64,
    page: Listing,
    around: Listing,
    top: Listing,
    /// Place of a caller whom the set lacks.
    place: Option<LatePlace>,
}

/// Place of a member whom a copy lacks.
#[derive(Clone, Copy)]
struct LatePlace {
    position: i64,
    rank: i64,
    /// Rank before the latest round.
    earlier: Option<i64>,
}

impl LargeTables {
    pub(super) fn new(core: &Core, redis: ConnectionManager, prefix: &str, outlines: Arc<Outlines>) -> Self {
        Self {
            db: core.db.clone(),
            outlines,
            sets: CopiedSets::new(core, redis, prefix, KIND),
            look: copied_sets::script(&format!("{FUNCTIONS}{LOOK}")),
            places: copied_sets::script(&format!("{FUNCTIONS}{PLACES}")),
        }
    }

    /// Reads a page of a table as seen by `own`, or by a user who is not a member.
    pub(super) async fn shown(
        &self,
        league: &League,
        page: TablePage,
        own: Option<Member>,
    ) -> Result<Shown, LeaderboardError> {
        let name = name(league.id, page.round);
        let mut found = self.look(&name, page, own, None).await?;
        if found.is_none() {
            let (outline, _) = self.outlines.of(league, page.round, Age::Second).await?;
            if !outline.has_results {
                return Ok(self.shown_without_results(league, page, own, &outline).await?);
            }
        }
        if self.refresh(league, page.round, found.as_ref().map(|copied| copied.overdue)).await {
            found = self.look(&name, page, own, None).await?;
        }
        let mut copied = found.ok_or(LeaderboardError::Rebuilding)?;
        let mut late = None;
        if let Some(own) = own
            && copied.around.2.is_empty()
        {
            let score = self.score(&copied.outline, own).await?;
            copied = self.look(&name, page, Some(own), Some(score)).await?.ok_or(LeaderboardError::Rebuilding)?;
            late = Some(score.all);
        }
        self.with_settled(copied.shown(page, own, late)?).await
    }

    /// Returns the ranks of these members. `age` is that of the knowledge that there is no result yet.
    pub(super) async fn ranks(
        &self,
        league: &League,
        members: &[Member],
        age: Age,
    ) -> Result<CopiedRanks, LeaderboardError> {
        let name = name(league.id, None);
        let mut found = self.look_up(&name, members, &[]).await?;
        if found.is_none() && !self.outlines.of(league, None, age).await?.0.has_results {
            let ranks = members.iter().map(|(user, _)| (*user, Ranking { rank: 1, points: 0 })).collect();
            // These ranks are not from a copy, so they are never old.
            return Ok(CopiedRanks { ranks, copied_at: i64::MAX, read_at: 0 });
        }
        if self.refresh(league, None, found.as_ref().map(|(overdue, ..)| *overdue)).await {
            found = self.look_up(&name, members, &[]).await?;
        }
        let (_, outline, mut copied) = found.ok_or(LeaderboardError::Rebuilding)?;
        let late: Vec<Member> = members.iter().filter(|(user, _)| !copied.ranks.contains_key(user)).copied().collect();
        if !late.is_empty() {
            let scores = sums::sum(&self.db, &outline, &late).await?;
            let (_, _, found) = self.look_up(&name, &[], &scores).await?.ok_or(LeaderboardError::Rebuilding)?;
            copied.ranks.extend(found.ranks);
        }
        Ok(copied)
    }

    /// Starts the next copy if it is due. Returns true if the copy must be read again.
    async fn refresh(&self, league: &League, round: Option<i16>, overdue: Option<Duration>) -> bool {
        let retention = if round.is_some() { ROUND_RETENTION } else { RETENTION };
        let wanted = Wanted { name: name(league.id, round), retention };
        let (db, league) = (self.db.clone(), league.clone());
        self.sets.refresh(wanted, overdue, move |writer| fill(db, league, round, writer)).await
    }

    /// Reads the part of a copy that a response shows, in one round trip. `late` is the score of a caller whom the copy
    /// lacks.
    async fn look(
        &self,
        name: &str,
        page: TablePage,
        own: Option<Member>,
        late: Option<MemberScore>,
    ) -> Result<Option<Copied>, LeaderboardError> {
        let mut look = self.look.prepare_invoke();
        self.add_keys(&mut look, name);
        look.arg(page.limit);
        match page.after {
            Some(Position { key, user }) => look.arg(key).arg(&member(UserId(user))[..]),
            None => look.arg("").arg(""),
        };
        match own {
            Some((user, _)) => look.arg(&member(user)[..]),
            None => look.arg(""),
        };
        match late {
            Some(score) => look.arg(rules::standing(score.all).key()).arg(rules::standing(score.before()).key()),
            None => look.arg("").arg(""),
        };
        look.arg(NEIGHBOURS).arg(if page.round.is_some() { MOST_WINNERS } else { 0 });
        let (overdue, note, total, page, around, top, place, rank, earlier): Looked = self.sets.invoke(&look).await?;
        let Some((overdue, Note { outline, .. })) = read_note(overdue, &note) else { return Ok(None) };
        let earlier = (earlier > 0).then_some(earlier);
        let place = (place >= 0).then_some(LatePlace { position: place, rank, earlier });
        Ok(Some(Copied { overdue, outline, total, page, around, top, place }))
    }

    /// Reads the ranks of members, and of users with these scores whom the copy lacks.
    async fn look_up(
        &self,
        name: &str,
        members: &[Member],
        late: &[(UserId, MemberScore)],
    ) -> Result<Option<(Duration, Outline, CopiedRanks)>, LeaderboardError> {
        let mut places = self.places.prepare_invoke();
        self.add_keys(&mut places, name);
        places.arg(members.len());
        for (user, _) in members {
            places.arg(&member(*user)[..]);
        }
        for (_, score) in late {
            places.arg(rules::standing(score.all).key());
        }
        let (overdue, read_at, note, keys, ahead): LookedUp = self.sets.invoke(&places).await?;
        let Some((overdue, Note { verified_at, outline, .. })) = read_note(overdue, &note) else { return Ok(None) };
        let copied = members.iter().zip(keys).map(|((user, _), key)| (*user, key.parse().ok().map(points_of)));
        let late = late.iter().map(|(user, score)| (*user, Some(score.all.points)));
        let ranking = |((user, points), ahead): ((_, Option<i32>), i64)| {
            Some((user, Ranking { rank: ahead + 1, points: points? }))
        };
        let ranks = copied.chain(late).zip(ahead).filter_map(ranking).collect();
        Ok(Some((overdue, outline, CopiedRanks { ranks, copied_at: verified_at, read_at })))
    }

    fn add_keys(&self, script: &mut redis::ScriptInvocation<'_>, name: &str) {
        let sets = &self.sets;
        script.key(sets.set(name, "")).key(sets.set(name, BEFORE)).key(sets.due(name)).key(sets.note(name));
    }

    async fn score(&self, outline: &Outline, own: Member) -> sqlx::Result<MemberScore> {
        let scores = sums::sum(&self.db, outline, &[own]).await?;
        Ok(scores.first().map(|(_, score)| *score).unwrap_or_default())
    }

    /// Adds the numbers of settled predictions, which are not part of a standing.
    async fn with_settled(&self, (mut shown, outline): (Shown, Outline)) -> Result<Shown, LeaderboardError> {
        let rows = || shown.rows.iter().chain(&shown.neighbours);
        // Large leagues do not count from the time at which a member joined.
        let mut members: Vec<Member> = rows().map(|row| (row.user, OffsetDateTime::UNIX_EPOCH)).collect();
        members.sort_unstable();
        members.dedup();
        let scores: HashMap<UserId, MemberScore> = sums::sum(&self.db, &outline, &members).await?.into_iter().collect();
        let shown_rows = shown.rows.iter_mut().chain(&mut shown.neighbours).chain(&mut shown.own);
        for row in shown_rows {
            let settled = scores.get(&row.user).map_or(0, |score| score.all.settled);
            // It is read after the standing, so a correction in between can make it smaller.
            row.score.settled = settled.max(row.score.correct);
        }
        Ok(shown)
    }

    /// Reads a page of a table before the first result: all members share the first rank.
    async fn shown_without_results(
        &self,
        league: &League,
        page: TablePage,
        own: Option<Member>,
        outline: &Outline,
    ) -> sqlx::Result<Shown> {
        let row = |user: UserId| TableRow { user, rank: 1, score: Score::default(), movement: None };
        let zero = row(UserId(0)).position().key;
        let after = match page.after {
            Some(after) if after.key > zero => i64::MAX,
            Some(after) if after.key == zero => after.user,
            _ => i64::MIN,
        };
        let found = store::members_after(&self.db, league.id, after, page.limit + 1).await?;
        let limit = usize::try_from(page.limit).unwrap_or_default();
        let rows: Vec<TableRow> = found.iter().take(limit).map(|(user, _)| row(*user)).collect();
        let next = rows.last().filter(|_| found.len() > limit).map(TableRow::position);
        let mut neighbours = Vec::new();
        if let Some((user, _)) = own {
            let most = i64::try_from(NEIGHBOURS).unwrap_or_default();
            let before = store::members_before(&self.db, league.id, user, most).await?;
            let after = store::members_after(&self.db, league.id, user.0, most).await?;
            let after = after.into_iter().map(|(user, _)| user);
            neighbours = before.into_iter().rev().chain([user]).chain(after).map(row).collect();
        }
        Ok(Shown {
            rows,
            own: own.map(|(user, _)| row(user)),
            neighbours,
            round_complete: outline.round_complete,
            winners: Vec::new(),
            next,
        })
    }
}

impl Copied {
    /// Returns the rows to show. `late` is the score of a caller whom the copy lacks.
    fn shown(
        self,
        page: TablePage,
        own: Option<Member>,
        late: Option<Score>,
    ) -> Result<(Shown, Outline), LeaderboardError> {
        let rows = table_rows(&self.page);
        let end = self.page.0 + i64::try_from(self.page.2.len()).unwrap_or_default();
        let next = rows.last().filter(|_| end < self.total).map(TableRow::position);
        let mut neighbours = table_rows(&self.around);
        if let (Some((user, _)), Some(score), Some(LatePlace { position, rank, earlier })) = (own, late, self.place) {
            let at = usize::try_from(position - self.around.0).unwrap_or_default().min(neighbours.len());
            let row = TableRow { user, rank, score, movement: earlier.map(|earlier| earlier - rank) };
            neighbours.insert(at, row);
        }
        let own_row = own.and_then(|(user, _)| neighbours.iter().find(|row| row.user == user).copied());
        if own.is_some() && own_row.is_none() {
            // The member left the copy between two reads.
            return Err(LeaderboardError::Rebuilding);
        }
        let is_complete = self.outline.round_complete == Some(true) && page.round.is_some();
        let winners = table_rows(&self.top).into_iter().filter(|row| is_complete && row.rank == 1).collect();
        let round_complete = self.outline.round_complete;
        Ok((Shown { rows, own: own_row, neighbours, round_complete, winners, next }, self.outline))
    }
}

/// Writes the standings of all members, also of those without points, unless nothing has changed since the present copy.
async fn fill(db: PgPool, league: League, round: Option<i16>, writer: SetWriter) -> Result<Filled, LeaderboardError> {
    // Scores are read later, so they include all results that the note knows.
    let applied = store::applied(&db, &league.tournament_ids()).await?;
    let outline = sums::outline(&db, &league, round).await?;
    let note = Note {
        began_at: writer.began_at(),
        verified_at: writer.began_at(),
        members_version: league.members_version,
        results: applied.results,
        applied_at: applied.latest.map(OffsetDateTime::unix_timestamp_nanos),
        outline,
    };
    let text = |note: &Note| serde_json::to_string(note).map_err(|error| sqlx::Error::Encode(error.into()));
    if !applied.is_pending
        && let Some(verified) = note.verified(&writer.present_note().await?)
    {
        return Ok(Filled::Unchanged { note: text(&verified)? });
    }
    let outline = &note.outline;
    let mut after = i64::MIN;
    loop {
        let members = store::members_after(&db, league.id, after, PAGE).await?;
        let Some((last, _)) = members.last() else { break };
        after = last.0;
        let scores = sums::sum(&db, outline, &members).await?;
        let standings = |score: fn(&MemberScore) -> Score| -> Vec<(UserId, Standing)> {
            scores.iter().map(|(user, sums)| (*user, rules::standing(score(sums)))).collect()
        };
        writer.add(0, &standings(|sums| sums.all)).await?;
        if outline.latest.is_some() {
            writer.add(1, &standings(MemberScore::before)).await?;
        }
    }
    Ok(Filled::Copied { note: text(&note)? })
}

/// Name of the copy of a table.
fn name(league: LeagueId, round: Option<i16>) -> String {
    round.map_or_else(|| format!("league:{league}:all"), |round| format!("league:{league}:{round}"))
}

/// Reads by how long a copy is overdue, and its note. A note of another version is like no copy.
fn read_note(overdue: i64, note: &str) -> Option<(Duration, Note)> {
    let overdue = Duration::from_millis(u64::try_from(overdue).ok()?);
    Some((overdue, serde_json::from_str(note).ok()?))
}

fn points_of(key: f64) -> i32 {
    #[expect(clippy::cast_possible_truncation, reason = "keys are whole numbers of less than 53 bits")]
    Standing::of_key(key as i64).points
}

fn table_rows((first, ahead, listed, before): &Listing) -> Vec<TableRow> {
    let row = |(place, before): (crate::game::scores::leaderboard_cache::Place, &i64)| {
        let Standing { points, exact, correct } = place.standing;
        TableRow {
            user: place.user,
            rank: place.rank,
            score: Score { points, exact, correct, ..Score::default() },
            movement: (*before > 0).then(|| before - place.rank),
        }
    };
    ranked(*first, *ahead, listed).into_iter().zip(before).map(row).collect()
}
