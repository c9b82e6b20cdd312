//! Leaderboards in Redis: a sorted set for each table, for ranks among millions.
//!
//! A board holds nothing of its own. It is set from the scores in the database, to what they are and not by how much they
//! changed, so it can be set again and filled anew at any time.
//!
//! **How a board comes to equal the database, without versions.** Whoever changes scores calls [`LeaderboardCache::publish`] after
//! the commit. It reads the scores, writes them, and reads them again; what changed in between it writes and reads once
//! more, until nothing did. Take the last write to a place on a board: whoever made it has read the same score again
//! afterwards. A score that was committed after that reading is written later still, by whoever committed it, and then
//! the last write would be another one. So the last write is of the last score, whatever met whatever.
//!
//! Two things would break that, and are kept from it. A process that ends between writing and reading again leaves its
//! chunk unfinished, so the chunk is published again; a command that ends there has to be run again. And a write that nobody waits for any more could arrive late, after
//! the one that was made in its place: every write names a moment after which Redis refuses it, and whoever does not know
//! what became of theirs tries again only after that moment.
//!
//! **When a board is believed.** Beside each set is its state. While a board is filled, that names who fills it, and is
//! gone soon after they are; when all is in, it names the run of the Redis server that has it. A server that was started
//! again may have come back with less than it had, so what an earlier run had is filled anew. No state, no board: those
//! who publish pass it over, and whoever fills it later reads what they committed. Redis must keep what it has
//! (`maxmemory-policy noeviction`): a set that it threw away by itself would be an empty board.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use breaker::Breaker;
use platform::{
    Core,
    clock::Clock,
    random::{self, Random},
};
use redis::{FromRedisValue, RedisResult, aio::ConnectionManager};
use sqlx::PgPool;
use tokio::sync::{Semaphore, watch};
use web::ids::{MatchId, UserId};

use super::{
    rules::{self, Scope, Standing},
    store::{self, Chunk, ScoreRow},
};

/// How many places are set in one command. Lua takes no more than 8,000 values at once, and two make a place.
const BATCH: usize = 1_500;
/// How many such commands are sent together.
const PIPELINE: usize = 4;
/// How many places are read at once to fill a board.
const PAGE: i64 = 6_000;
/// How long Redis takes a write after it was made.
const WRITE_IS_GOOD_FOR: Duration = Duration::from_secs(5);
/// How long a board stays claimed by one who fills it and does not get on.
const CLAIM: Duration = Duration::from_secs(30);
/// How often one looks whether somebody else has filled a board.
const GLANCE: Duration = Duration::from_millis(50);
/// How long a request waits for a board to be filled.
const PATIENCE: Duration = Duration::from_millis(1_500);
/// How long the board of a month or week is kept after its end, for results that come late.
const KEPT_AFTER_THE_END: time::Duration = time::Duration::days(8);
/// The set outlives its state: a state without its set would be an empty board.
const SET_OUTLIVES_STATE: time::Duration = time::Duration::days(1);
/// How many places before and after a user's own are their neighbours.
pub const NEIGHBOURS: i64 = 5;

/// The run of the server, in Lua.
const RUN: &str = "local run = redis.call('INFO', 'server'):match('run_id:(%x+)')\n";

/// Everything an answer needs, as of one moment. `KEYS` are set and state, here as everywhere.
const LOOK: &str = r"
if redis.call('GET', KEYS[2]) ~= 'ready:' .. run then return { 0, 0, {}, 0, 0, {} } end
local top = redis.call('ZRANGE', KEYS[1], 0, ARGV[2] - 1, 'WITHSCORES')
local place = redis.call('ZRANK', KEYS[1], ARGV[1])
local first, ahead, around = 0, 0, {}
if place then
  first = math.max(place - ARGV[3], 0)
  around = redis.call('ZRANGE', KEYS[1], first, place + ARGV[3], 'WITHSCORES')
  local points = math.floor(-tonumber(around[2]) / 1073741824)
  ahead = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', -(points + 1) * 1073741824))
end
return { 1, redis.call('ZCARD', KEYS[1]), top, first, ahead, around }
";

/// Sets places: so many values for `ZADD`, then who has none any more.
const WRITE: &str = r"
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then return -1 end
local state = redis.call('GET', KEYS[2])
if not state or (ARGV[2] ~= '' and state ~= ARGV[2]) then return 0 end
local values = tonumber(ARGV[5])
if values > 0 then redis.call('ZADD', KEYS[1], unpack(ARGV, 6, 5 + values)) end
if #ARGV > 5 + values then redis.call('ZREM', KEYS[1], unpack(ARGV, 6 + values)) end
if ARGV[3] ~= '0' then redis.call('EXPIRE', KEYS[1], ARGV[3]) end
if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[2], ARGV[4]) end
return 1
";

/// Claims the filling of a board, unless it is filled or somebody is at it.
const BEGIN: &str = r"
local state = redis.call('GET', KEYS[2])
if state == 'ready:' .. run then return 'ready' end
local claim = 'building:' .. run .. ':'
if state and state:sub(1, #claim) == claim then return 'busy' end
redis.call('SET', KEYS[2], claim .. ARGV[1], 'PX', ARGV[2])
redis.call('UNLINK', KEYS[1])
return claim .. ARGV[1]
";

/// Declares a board filled, if the claim still holds and the server is the one that has all of it.
const FINISH: &str = r"
local claim = 'building:' .. run .. ':'
if redis.call('GET', KEYS[2]) ~= ARGV[1] or ARGV[1]:sub(1, #claim) ~= claim then return 0 end
if ARGV[2] == '0' then
  redis.call('SET', KEYS[2], 'ready:' .. run)
else
  redis.call('SET', KEYS[2], 'ready:' .. run, 'EX', ARGV[2])
end
return 1
";

/// Gives a claim back.
const ABANDON: &str = r"
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 1
";

/// The leaderboards.
#[derive(Clone)]
pub struct LeaderboardCache {
    inner: Arc<Inner>,
}

struct Inner {
    redis: ConnectionManager,
    prefix: String,
    db: PgPool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    breaker: Breaker,
    look: redis::Script,
    begin: redis::Script,
    finish: redis::Script,
    abandon: redis::Script,
    /// The boards that this process fills, or waits for, and since when. Whoever holds the other end is at it.
    filling: Mutex<HashMap<Scope, (Instant, watch::Receiver<()>)>>,
    /// Filling reads much: requests need the database too.
    places_to_fill: Semaphore,
}

/// Whose places are to be set.
#[derive(Clone, Copy, Debug)]
pub enum Users {
    /// Everybody from one id up to another.
    Between {
        /// From this one.
        from: i64,
        /// Up to, and without, this one.
        until: i64,
    },
    /// Those among them who predicted a match.
    WhoPredicted {
        /// The match.
        event: MatchId,
        /// From this one.
        from: i64,
        /// Up to, and without, this one.
        until: i64,
    },
}

/// Scores that a transaction wrote.
pub(super) struct Written {
    /// The tables, by whose numbers the scores go.
    pub(super) scopes: Vec<Scope>,
    /// What they are now.
    pub(super) scores: Vec<ScoreRow>,
    /// What the rows call the transaction.
    pub(super) transaction: String,
}

/// A place on a board.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Whose.
    pub user: UserId,
    /// Equal points share a rank.
    pub rank: i64,
    /// What they have earned.
    pub standing: Standing,
}

/// A board as one user sees it.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// How many have a place.
    pub total: i64,
    /// The first of them.
    pub top: Vec<Place>,
    /// The user and those around; empty where the user has no place.
    pub around: Vec<Place>,
}

/// Why a board was not read or set.
#[derive(Debug, thiserror::Error)]
pub enum LeaderboardError {
    /// Redis failed so often that it is not asked at the moment.
    #[error("Redis is left alone for a moment")]
    Resting,
    /// Redis failed.
    #[error(transparent)]
    Redis(#[from] redis::RedisError),
    /// The database failed.
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// A write reached Redis too late to be taken.
    #[error("a write reached Redis too late")]
    Late,
    /// Somebody else fills the board.
    #[error("the claim to a board was lost")]
    ClaimLost,
    /// The board is being filled.
    #[error("the board is being filled")]
    Rebuilding,
}

impl LeaderboardCache {
    /// Leaderboards on this Redis, of the scores in this database.
    pub fn new(core: &Core, redis: ConnectionManager, prefix: &str) -> Self {
        let Core { db, clock, random, .. } = core.clone();
        let knowing_its_run = |script: &str| redis::Script::new(&format!("{RUN}{script}"));
        let inner = Inner {
            redis,
            prefix: prefix.to_owned(),
            db,
            clock,
            random,
            breaker: Breaker::new(2, Duration::from_secs(1)),
            look: knowing_its_run(LOOK),
            begin: knowing_its_run(BEGIN),
            finish: knowing_its_run(FINISH),
            abandon: redis::Script::new(ABANDON),
            filling: Mutex::default(),
            places_to_fill: Semaphore::new(2),
        };
        Self { inner: Arc::new(inner) }
    }

    /// A board as a user sees it, with this many at its top; `None` where it must be filled first. One round trip.
    pub async fn look(&self, scope: Scope, user: UserId, top: i64) -> Result<Option<View>, LeaderboardError> {
        let mut look = self.inner.look.key(self.set(scope));
        look.key(self.state(scope)).arg(&rules::member(user)[..]).arg(top).arg(NEIGHBOURS);
        let (ready, total, top, first, ahead, around): (u8, i64, Listed, i64, i64, Listed) =
            self.ask(look.invoke_async(&mut self.inner.redis.clone())).await?;
        Ok((ready == 1).then(|| View { total, top: places(0, 0, &top), around: places(first, ahead, &around) }))
    }

    /// Has a board filled, and waits a moment for it. Whoever asks meanwhile waits for the same, up to the same moment: a
    /// board that takes long must not gather everybody who wants to see it.
    pub async fn fill(&self, scope: Scope) {
        let (since, mut filled) = self.being_filled(scope);
        // Whether it is there or the patience is gone, the next look tells.
        let _ = tokio::time::timeout(PATIENCE.saturating_sub(since.elapsed()), filled.changed()).await;
    }

    fn being_filled(&self, scope: Scope) -> (Instant, watch::Receiver<()>) {
        let mut filling = self.filling();
        if let Some((since, filled)) = filling.get(&scope)
            && filled.has_changed().is_ok()
        {
            return (*since, filled.clone());
        }
        let ((done, filled), since) = (watch::channel(()), Instant::now());
        filling.insert(scope, (since, filled.clone()));
        let boards = self.clone();
        // In a task, which outlives whoever asked: filling takes as long as it takes.
        tokio::spawn(async move {
            let _place = boards.inner.places_to_fill.acquire().await;
            if let Err(error) = boards.rebuild(scope).await {
                tracing::warn!(%error, %scope, "a leaderboard was not filled; the next who asks for it tries again");
            }
            boards.filling().remove(&scope);
            drop(done);
        });
        (since, filled)
    }

    fn filling(&self) -> MutexGuard<'_, HashMap<Scope, (Instant, watch::Receiver<()>)>> {
        self.inner.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the places of some users on some boards to the scores in the database. To be called after every commit that
    /// changed such scores, and until it succeeded. Leaderboards that nobody has asked for yet are passed over.
    pub async fn publish(&self, scopes: &[Scope], users: Users) -> Result<(), LeaderboardError> {
        let kept = self.kept(scopes).await?;
        if kept.is_empty() {
            return Ok(());
        }
        let read = self.read(&kept, users).await?;
        self.show(&kept, users, read, None).await
    }

    /// The same for scores that a chunk's transaction has just written and committed, without reading them first; returns
    /// whether that was all. If others changed some of them meanwhile, [`Self::publish`] has to be called: rows name the
    /// transaction that wrote them, so that is one cheap look.
    pub(super) async fn publish_written(&self, written: Written, chunk: &Chunk) -> Result<bool, LeaderboardError> {
        let kept = self.kept(&written.scopes).await?;
        if kept.is_empty() {
            return Ok(true);
        }
        let number = |scope: i32| {
            let scope = written.scopes.get(usize::try_from(scope - 1).ok()?)?;
            kept.iter().zip(1..).find_map(|(kept, number)| (kept == scope).then_some(number))
        };
        let numbers: Vec<Option<i32>> = (0..=4).map(number).collect();
        let renumbered = |row: ScoreRow| {
            let number = numbers.get(usize::try_from(row.scope).ok()?).copied().flatten()?;
            Some(ScoreRow { scope: number, ..row })
        };
        let mut rows: Vec<ScoreRow> = written.scores.into_iter().filter_map(renumbered).collect();
        rows.sort_unstable_by_key(ScoreRow::place);
        self.write(&kept, &rows, None).await?;
        let names: Vec<String> = kept.iter().map(Scope::to_string).collect();
        let (db, transaction) = (&self.inner.db, &written.transaction);
        Ok(!store::were_changed_after(db, transaction, &names, chunk.event, chunk.from_user, chunk.until_user).await?)
    }

    /// Which of these boards somebody has asked for.
    async fn kept(&self, scopes: &[Scope]) -> Result<Vec<Scope>, LeaderboardError> {
        if scopes.is_empty() {
            return Ok(Vec::new());
        }
        let mut states = redis::pipe();
        for &scope in scopes {
            states.exists(self.state(scope));
        }
        let kept: Vec<bool> = self.ask(states.query_async(&mut self.inner.redis.clone())).await?;
        Ok(scopes.iter().zip(kept).filter_map(|(&scope, kept)| kept.then_some(scope)).collect())
    }

    /// Fills a board from the database, unless it is filled; waits for another process that does.
    pub async fn rebuild(&self, scope: Scope) -> Result<(), LeaderboardError> {
        loop {
            let token = hex::encode(random::bytes::<8>(&*self.inner.random));
            let mut begin = self.inner.begin.key(self.set(scope));
            begin.key(self.state(scope)).arg(token).arg(milliseconds(CLAIM));
            let claim: String = self.ask(begin.invoke_async(&mut self.inner.redis.clone())).await?;
            match claim.as_str() {
                "ready" => return Ok(()),
                "busy" => tokio::time::sleep(GLANCE).await,
                claim => match self.fill_claimed(scope, claim).await {
                    Ok(()) => {
                        metrics::counter!("matchday_leaderboards_filled_total").increment(1);
                        return Ok(());
                    }
                    Err(LeaderboardError::ClaimLost) => {}
                    Err(error) => {
                        // A courtesy: the claim also runs out.
                        let mut abandon = self.inner.abandon.key(self.set(scope));
                        abandon.key(self.state(scope)).arg(claim);
                        let _: Result<u8, _> = self.ask(abandon.invoke_async(&mut self.inner.redis.clone())).await;
                        return Err(error);
                    }
                },
            }
        }
    }

    async fn fill_claimed(&self, scope: Scope, claim: &str) -> Result<(), LeaderboardError> {
        let name = scope.to_string();
        let mut from = i64::MIN;
        loop {
            let page = store::scores_from(&self.inner.db, &name, from, i64::MAX, PAGE).await?;
            let Some(last) = page.last() else { break };
            let until = last.user_id.saturating_add(1);
            self.show(&[scope], Users::Between { from, until }, page, Some(claim)).await?;
            from = until;
        }
        let mut finish = self.inner.finish.key(self.set(scope));
        finish.key(self.state(scope)).arg(claim).arg(self.seconds_left(scope, time::Duration::ZERO));
        let finished: bool = self.ask(finish.invoke_async(&mut self.inner.redis.clone())).await?;
        if finished { Ok(()) } else { Err(LeaderboardError::ClaimLost) }
    }

    async fn read(&self, scopes: &[Scope], users: Users) -> sqlx::Result<Vec<ScoreRow>> {
        let names: Vec<String> = scopes.iter().map(Scope::to_string).collect();
        let mut rows = match users {
            Users::WhoPredicted { event, from, until } => {
                store::scores_of_predictors(&self.inner.db, &names, event, from, until).await?
            }
            Users::Between { from, until } => {
                let mut rows = Vec::new();
                for (name, number) in names.iter().zip(1..) {
                    let of_one = store::scores_from(&self.inner.db, name, from, until, i64::MAX).await?;
                    rows.extend(of_one.into_iter().map(|row| ScoreRow { scope: number, ..row }));
                }
                rows
            }
        };
        rows.sort_unstable_by_key(ScoreRow::place);
        Ok(rows)
    }

    /// Writes what was read, and reads again, until what is shown is what is there.
    async fn show(
        &self,
        scopes: &[Scope],
        users: Users,
        first: Vec<ScoreRow>,
        claim: Option<&str>,
    ) -> Result<(), LeaderboardError> {
        let mut changed = first.clone();
        let mut shown = first;
        while !changed.is_empty() {
            self.write(scopes, &changed, claim).await?;
            let read = self.read(scopes, users).await?;
            changed = changes(&shown, &read);
            shown = read;
        }
        Ok(())
    }

    async fn write(&self, scopes: &[Scope], rows: &[ScoreRow], claim: Option<&str>) -> Result<(), LeaderboardError> {
        let batches: Vec<&[ScoreRow]> =
            rows.chunk_by(|one, next| one.scope == next.scope).flat_map(|of_one| of_one.chunks(BATCH)).collect();
        for batches in batches.chunks(PIPELINE) {
            let (seconds, micros): (u64, u64) =
                self.ask(redis::cmd("TIME").query_async(&mut self.inner.redis.clone())).await?;
            let until = seconds * 1_000 + micros / 1_000 + milliseconds(WRITE_IS_GOOD_FOR);
            let mut pipeline = redis::Pipeline::with_capacity(batches.len());
            for batch in batches {
                if let Some(&scope) = batch.first().and_then(|row| scopes.get(row.scope_index())) {
                    pipeline.add_command(self.written(scope, batch, until, claim));
                }
            }
            let outcomes: RedisResult<Vec<i64>> = self.heard(pipeline.query_async(&mut self.inner.redis.clone()).await);
            let outcomes = match outcomes {
                Ok(outcomes) => outcomes,
                Err(error) => {
                    // Nobody knows whether it arrives yet. A claim is not used again; for all others the time is waited
                    // out in which it could.
                    if claim.is_none() {
                        tokio::time::sleep(WRITE_IS_GOOD_FOR).await;
                    }
                    return Err(error.into());
                }
            };
            if outcomes.contains(&-1) {
                return Err(LeaderboardError::Late);
            }
            if claim.is_some() && outcomes.contains(&0) {
                return Err(LeaderboardError::ClaimLost);
            }
        }
        metrics::counter!("matchday_leaderboard_places_total").increment(rows.len() as u64);
        Ok(())
    }

    /// The command that sets some places of one board.
    fn written(&self, scope: Scope, rows: &[ScoreRow], until: u64, claim: Option<&str>) -> redis::Cmd {
        let placed = || rows.iter().filter(|row| row.settled > 0);
        let mut command = redis::Cmd::with_capacity(10 + 2 * rows.len(), WRITE.len() + 200 + 24 * rows.len());
        command.arg("EVAL").arg(WRITE).arg(2).arg(self.set(scope)).arg(self.state(scope));
        command.arg(until).arg(claim.unwrap_or_default()).arg(self.seconds_left(scope, SET_OUTLIVES_STATE));
        command.arg(milliseconds(CLAIM)).arg(2 * placed().count());
        for row in placed() {
            let standing = Standing { points: row.points, exact: row.exact, correct: row.correct };
            command.arg(standing.key()).arg(&rules::member(UserId(row.user_id))[..]);
        }
        for row in rows.iter().filter(|row| row.settled <= 0) {
            command.arg(&rules::member(UserId(row.user_id))[..]);
        }
        command
    }

    /// For how many seconds a board is kept, and that much longer; 0 stands for ever.
    fn seconds_left(&self, scope: Scope, longer: time::Duration) -> i64 {
        // At least a day: the table of a month that is over is asked for by those whose clock is behind.
        let left = scope.ends().map(|end| (end - self.inner.clock.now() + KEPT_AFTER_THE_END).max(time::Duration::DAY));
        left.map_or(0, |left| (left + longer).whole_seconds())
    }

    /// Both keys of a board are on the same shard of a cluster: what is in braces decides.
    fn set(&self, scope: Scope) -> String {
        format!("{{{}:board:{scope}}}", self.inner.prefix)
    }

    fn state(&self, scope: Scope) -> String {
        format!("{{{}:board:{scope}}}:state", self.inner.prefix)
    }

    /// Asks Redis, unless it is left alone.
    async fn ask<T: FromRedisValue>(
        &self,
        asking: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, LeaderboardError> {
        if self.inner.breaker.admit().is_err() {
            return Err(LeaderboardError::Resting);
        }
        Ok(self.heard(asking.await)?)
    }

    fn heard<T>(&self, answer: RedisResult<T>) -> RedisResult<T> {
        self.inner.breaker.record(answer.is_ok());
        answer
    }
}

/// Members of a set with their keys.
type Listed = Vec<(Vec<u8>, f64)>;

fn places(first: i64, ahead: i64, listed: &Listed) -> Vec<Place> {
    let found: Vec<(UserId, Standing)> = listed
        .iter()
        .filter_map(|(member, key)| {
            #[expect(clippy::cast_possible_truncation, reason = "keys are whole numbers of less than 53 bits")]
            let key = *key as i64;
            Some((rules::user_of(member)?, Standing::of_key(key)))
        })
        .collect();
    let ranks = rules::ranks(first, ahead, found.iter().map(|(_, standing)| standing.points));
    found.into_iter().zip(ranks).map(|((user, standing), rank)| Place { user, rank, standing }).collect()
}

/// What is otherwise than it was, or new. Both are in the order of places.
fn changes(before: &[ScoreRow], now: &[ScoreRow]) -> Vec<ScoreRow> {
    let mut before = before.iter().peekable();
    now.iter()
        .filter(|row| {
            while before.next_if(|old| old.place() < row.place()).is_some() {}
            before.peek() != Some(row)
        })
        .copied()
        .collect()
}

fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use platform::{Environment, clock::SystemClock, random::SystemRandom, rate_limit::RateLimiter};

    use super::*;
    use crate::testing::redis_for_tests;

    fn row(scope: i32, user_id: i64, points: i32) -> ScoreRow {
        ScoreRow { scope, user_id, points, exact: 0, correct: 0, settled: 1 }
    }

    #[tokio::test]
    async fn a_write_that_comes_late_or_without_its_claim_is_refused() {
        let (mut redis, prefix) = redis_for_tests();
        let nowhere = PgPool::connect_lazy("postgres://127.0.0.1:1/none").expect("an address");
        let core = Core {
            env: Environment::Testing,
            db: nowhere,
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            limits: RateLimiter::new(redis.clone(), &prefix, Arc::new(SystemClock)),
            outbox_written: Arc::default(),
            statement_timeout: Duration::from_secs(1),
        };
        let boards = LeaderboardCache::new(&core, redis.clone(), &prefix);
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut redis).await.expect("a time");
        let now = seconds * 1_000;
        let write = async |until: u64, claim: Option<&str>, points: i32| -> i64 {
            let command = boards.written(Scope::All, &[row(1, 7, points)], until, claim);
            command.query_async(&mut redis.clone()).await.expect("an answer")
        };
        assert_eq!(write(now + 60_000, None, 1).await, 0, "nobody keeps this board");
        let set_state = redis::cmd("SET").arg(boards.state(Scope::All)).arg("building:1:mine").clone();
        set_state.exec_async(&mut redis.clone()).await.expect("set");
        assert_eq!(write(now + 60_000, Some("building:1:mine"), 2).await, 1);
        assert_eq!(write(now + 60_000, None, 3).await, 1, "who publishes needs no claim");
        assert_eq!(write(now + 60_000, Some("building:1:another"), 4).await, 0);
        assert_eq!(write(now - 1, None, 5).await, -1);
        let member = rules::member(UserId(7));
        let key: f64 = redis::cmd("ZSCORE")
            .arg(boards.set(Scope::All))
            .arg(&member[..])
            .query_async(&mut redis.clone())
            .await
            .expect("a place");
        assert_eq!(places(0, 0, &vec![(member.to_vec(), key)])[0].standing.points, 3);
        let both = [boards.set(Scope::All), boards.state(Scope::All)];
        redis::cmd("DEL").arg(&both[..]).exec_async(&mut redis.clone()).await.expect("deleted");
    }

    #[test]
    fn only_what_changed_is_written_again() {
        let before = [row(1, 1, 5), row(1, 2, 5), row(2, 1, 5), row(2, 3, 5)];
        let now = [row(1, 1, 5), row(1, 2, 6), row(1, 3, 5), row(2, 1, 5), row(2, 2, 5), row(2, 3, 5), row(2, 4, 1)];
        assert_eq!(changes(&before, &now), [row(1, 2, 6), row(1, 3, 5), row(2, 2, 5), row(2, 4, 1)]);
        assert_eq!(changes(&now, &now), []);
        assert_eq!(changes(&[], &before), before);
    }
}
