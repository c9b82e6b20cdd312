//! Leaderboards in Redis: one sorted set per scope, to rank millions of users.
//!
//! A leaderboard contains only derived data. Every write sets a user to the score in the database instead of adding a
//! difference, so writes can be repeated and a leaderboard can be rebuilt at any time.
//!
//! # Convergence without versions
//!
//! After every commit that changes scores, the writer calls [`LeaderboardCache::publish`]. It reads the scores, writes
//! them to Redis, and reads them again. It repeats this for scores that changed in between, until none did.
//!
//! Redis therefore converges on the database. Consider the last write for a user: its publisher read the same score
//! again afterwards. A score committed after that second read would be published later still, by the writer that
//! committed it, so the write considered would not be the last. The last write therefore carries the last score, in any
//! interleaving.
//!
//! Two cases would break this argument, and are handled:
//!
//! - A process can stop between the write and the second read. Its chunk then remains unfinished and is published
//!   again. A command that stops there must be run again.
//! - A write whose caller stopped waiting could arrive after its replacement. Every write therefore carries a deadline
//!   after which Redis refuses it, and a publisher that does not know the outcome of a write retries only after that
//!   deadline.
//!
//! # Validity of a leaderboard
//!
//! Each sorted set has a state key. During a rebuild, the state names the claim of the process that rebuilds, and
//! expires soon after that process stops. After the rebuild, it contains the run id of the Redis server. A restarted
//! server may have lost data, so a leaderboard from an earlier run is rebuilt. A leaderboard without a state does not
//! exist: publishers skip it, and a later rebuild reads the scores that they committed. Redis must use
//! `maxmemory-policy noeviction`, because an evicted set would appear as an empty leaderboard. For the same reason, a set
//! expires a minute after its state.
//!
//! A user can request any past round, and nothing evicts its leaderboard. The leaderboard of a past round is therefore
//! kept for minutes, all of them together have a budget of entries, and one at a time is rebuilt.
//!
//! # Reading
//!
//! A request needs the user's position before it can read the neighbours, so it reads in two pipelines of plain
//! commands, which cost Redis half as much as a script. Every write changes the version of the leaderboard. If the
//! version differs between the pipelines, a script reads everything again in one atomic step. The run id of the server
//! is known from the connection. The top is kept in memory until the version changes.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::{Duration, Instant},
};

use breaker::Breaker;
use platform::{
    Core,
    batches::BatchError,
    clock::Clock,
    random::{self, Random},
    rate_limit::{Limit, RateLimiter},
    redis_client::{self, RunConnection},
};
use redis::{FromRedisValue, RedisResult, aio::ConnectionManager};
use sqlx::PgPool;
use tokio::sync::{Semaphore, watch};
use web::ids::UserId;

use super::{
    rules::{self, Scope, Source, Standing},
    store::{self, Chunk, ScoreRow},
};

/// Entries per write command. Lua unpacks at most 8,000 values at once, and an entry takes two.
const BATCH: usize = 1_500;
/// Write commands per pipeline.
const PIPELINE: usize = 4;
/// Approximate number of scores read from the database at once during a rebuild.
const PAGE: i64 = 6_000;
/// Maximum number of user ids that one query of a rebuild covers. Few of them may be on the leaderboard.
const MOST_IDS: i64 = 200_000;
/// Redis refuses a write that arrives later than this after it was built.
const WRITE_DEADLINE: Duration = Duration::from_secs(5);
/// Expiry of a rebuild's claim if the rebuild makes no progress.
const CLAIM: Duration = Duration::from_secs(30);
/// Interval at which a process checks whether another process has finished a rebuild.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Maximum time that a request waits for a rebuild.
const MAX_WAIT: Duration = Duration::from_millis(1_500);
/// Retention of a leaderboard after its month, week or round, for late results.
const RETENTION: time::Duration = time::Duration::days(8);
/// Retention of a leaderboard that is requested later than that.
const PAST_RETENTION: Duration = Duration::from_mins(10);
/// Approximate number of entries on leaderboards of past rounds that are made within [`PAST_RETENTION`]. A million take
/// 110 MB, and at most twice as many exist at the same time.
const PAST_ENTRIES: i64 = 4_000_000;
/// Key of the limit for [`PAST_ENTRIES`].
const PAST_KEY: &str = "all";
/// Number of neighbours shown before and after a user.
pub const NEIGHBOURS: i64 = 5;

/// Number of leaderboards whose top is kept in memory.
const MOST_TOPS: usize = 100;

/// Lua prelude that reads the run id of the Redis server.
const RUN: &str = "local run = redis.call('INFO', 'server'):match('run_id:(%x+)')\n";

/// Lua function that reads the top of a set, and the neighbours of a member. It returns the given state, the size of
/// the set, its top, the position of the first neighbour, the number of members with more points, and the neighbours.
pub(super) const READ: &str = r"
local function read(state)
  local top = redis.call('ZRANGE', KEYS[1], 0, ARGV[2] - 1, 'WITHSCORES')
  local place = redis.call('ZRANK', KEYS[1], ARGV[1])
  local first, ahead, around = 0, 0, {}
  if place then
    first = math.max(place - ARGV[3], 0)
    around = redis.call('ZRANGE', KEYS[1], first, place + ARGV[3], 'WITHSCORES')
    local points = math.floor(-tonumber(around[2]) / 1073741824)
    ahead = redis.call('ZCOUNT', KEYS[1], '-inf', string.format('%.0f', -(points + 1) * 1073741824))
  end
  return { state, redis.call('ZCARD', KEYS[1]), top, first, ahead, around }
end
";

/// Reads everything that a response needs in one atomic step. In every script, `KEYS` are the set, the state and the
/// version.
const LOOK: &str = r"
if redis.call('GET', KEYS[2]) ~= 'ready:' .. run then return { 0, 0, {}, 0, 0, {} } end
return read(1)
";

/// Writes entries: `ARGV[4]` values for `ZADD`, then the members to remove.
const WRITE: &str = r"
local time = redis.call('TIME')
if time[1] * 1000 + time[2] / 1000 > tonumber(ARGV[1]) then return -1 end
local state = redis.call('GET', KEYS[2])
if not state or (ARGV[2] ~= '' and state ~= ARGV[2]) then return 0 end
local values = tonumber(ARGV[4])
if values > 0 then redis.call('ZADD', KEYS[1], unpack(ARGV, 5, 4 + values)) end
if #ARGV > 4 + values then redis.call('ZREM', KEYS[1], unpack(ARGV, 5 + values)) end
redis.call('SET', KEYS[3], time[1] .. '.' .. time[2])
if ARGV[2] ~= '' then redis.call('PEXPIRE', KEYS[2], ARGV[3]) end
local left = redis.call('PTTL', KEYS[2])
if left >= 0 then
  redis.call('PEXPIRE', KEYS[1], left + 60000)
  redis.call('PEXPIRE', KEYS[3], left + 60000)
end
return 1
";

/// Claims the rebuild of a leaderboard, unless it is ready or another process holds the claim.
const BEGIN: &str = r"
local state = redis.call('GET', KEYS[2])
if state == 'ready:' .. run then return 'ready' end
local claim = 'building:' .. run .. ':'
if state and state:sub(1, #claim) == claim then return 'busy' end
redis.call('SET', KEYS[2], claim .. ARGV[1], 'PX', ARGV[2])
redis.call('UNLINK', KEYS[1], KEYS[3])
return claim .. ARGV[1]
";

/// Marks a leaderboard as ready for `ARGV[2]` milliseconds, or without end, if the claim still holds and the server did not
/// restart since the claim.
const FINISH: &str = r"
local claim = 'building:' .. run .. ':'
if redis.call('GET', KEYS[2]) ~= ARGV[1] or ARGV[1]:sub(1, #claim) ~= claim then return 0 end
if ARGV[2] == '0' then
  redis.call('SET', KEYS[2], 'ready:' .. run)
  redis.call('PERSIST', KEYS[1])
  redis.call('PERSIST', KEYS[3])
else
  redis.call('SET', KEYS[2], 'ready:' .. run, 'PX', ARGV[2])
  redis.call('PEXPIRE', KEYS[1], ARGV[2] + 60000)
  redis.call('PEXPIRE', KEYS[3], ARGV[2] + 60000)
end
return 1
";

/// Releases the claim of a rebuild.
const ABANDON: &str = r"
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('DEL', KEYS[2]) end
return 1
";

/// Reads, publishes and rebuilds leaderboards in Redis.
#[derive(Clone)]
pub struct LeaderboardCache {
    inner: Arc<Inner>,
}

struct Inner {
    redis: ConnectionManager,
    /// For reading, which needs the run id of the server.
    reader: RunConnection,
    prefix: String,
    db: PgPool,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    breaker: Breaker,
    look: redis::Script,
    begin: redis::Script,
    finish: redis::Script,
    abandon: redis::Script,
    /// Leaderboards that this process rebuilds or waits for, with the start time. The rebuild task owns the sender.
    filling: Mutex<HashMap<Scope, (Instant, watch::Receiver<Refused>)>>,
    /// Top of each leaderboard, at the version that was read last.
    tops: Mutex<HashMap<Scope, Arc<Top>>>,
    /// Limits concurrent rebuilds, because they read many rows and requests need the database too.
    rebuild_slots: Semaphore,
    /// Rounds have a separate slot: users can request many, and the other leaderboards must not wait for them.
    round_slot: Semaphore,
    limits: RateLimiter,
}

/// Time after which a rebuild can be requested again; `None` if it was not refused.
type Refused = Option<Duration>;

/// Top of a leaderboard at one version.
struct Top {
    version: String,
    /// Number of entries that were requested.
    asked: i64,
    /// Number of users on the leaderboard.
    total: i64,
    places: Vec<Place>,
}

/// Users whose leaderboard entries are published.
#[derive(Clone, Copy, Debug)]
pub enum Users {
    /// All users in an id range.
    Between {
        from: i64,
        /// Upper bound of user ids, exclusive.
        until: i64,
    },
    /// Users in an id range who predicted a match or answered a question.
    OfSource {
        source: Source,
        from: i64,
        /// Upper bound of user ids, exclusive.
        until: i64,
    },
}

/// Scores that a transaction has written.
pub(super) struct Written {
    /// Scopes that [`ScoreRow::scope`] refers to by position.
    pub(super) scopes: Vec<Scope>,
    /// Scores after the transaction.
    pub(super) scores: Vec<ScoreRow>,
    /// Number of the transaction, see [`store::next_write`].
    pub(super) write: i64,
    /// Number of repairs before the transaction, see [`store::repairs`].
    pub(super) repairs: i64,
}

/// A user's place on a leaderboard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    pub user: UserId,
    /// Users with equal points share a rank.
    pub rank: i64,
    pub standing: Standing,
}

/// A leaderboard as seen by one user.
#[derive(Clone, Debug, Default)]
pub struct View {
    /// Number of users on the leaderboard.
    pub total: i64,
    pub top: Vec<Place>,
    /// The user and their neighbours; empty if the user is not on the leaderboard.
    pub around: Vec<Place>,
    /// Version of the leaderboard; `None` if it is unknown.
    pub version: Option<String>,
}

/// Reason why a leaderboard could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum LeaderboardError {
    /// The circuit breaker is open after repeated Redis failures.
    #[error("the Redis circuit breaker is open")]
    BreakerOpen,
    #[error(transparent)]
    Redis(#[from] redis::RedisError),
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    /// The users on a leaderboard could not be looked up.
    #[error(transparent)]
    Players(#[from] BatchError),
    /// A write reached Redis after its deadline.
    #[error("a leaderboard write reached Redis after its deadline")]
    Late,
    /// The claim of the rebuild expired, or the Redis server restarted.
    #[error("the claim of a leaderboard rebuild was lost")]
    ClaimLost,
    /// The leaderboard is still being rebuilt.
    #[error("the leaderboard is being rebuilt")]
    Rebuilding,
    /// Many leaderboards of past rounds were requested recently. This one can be rebuilt after this time.
    #[error("too many leaderboards of past rounds were requested")]
    TooManyPast(Duration),
}

impl LeaderboardError {
    /// Whether the scores in the database can replace the leaderboard.
    pub(super) fn allows_fallback(&self) -> bool {
        !matches!(self, Self::Database(_) | Self::Players(_))
    }
}

impl LeaderboardCache {
    pub fn new(core: &Core, redis: ConnectionManager, settings: &redis_client::Settings) -> RedisResult<Self> {
        let Core { db, clock, random, limits, .. } = core.clone();
        let with_run_id = |script: &str| redis::Script::new(&format!("{RUN}{script}"));
        let inner = Inner {
            redis,
            reader: RunConnection::new(settings)?,
            prefix: settings.prefix.clone(),
            db,
            clock,
            random,
            breaker: Breaker::new(2, Duration::from_secs(1)),
            look: with_run_id(&format!("{READ}{LOOK}")),
            begin: with_run_id(BEGIN),
            finish: with_run_id(FINISH),
            abandon: redis::Script::new(ABANDON),
            filling: Mutex::default(),
            tops: Mutex::default(),
            rebuild_slots: Semaphore::new(2),
            round_slot: Semaphore::new(1),
            limits,
        };
        Ok(Self { inner: Arc::new(inner) })
    }

    /// Reads a leaderboard as seen by a user, with `top` entries at its top; `None` if it must be rebuilt first.
    pub async fn look(&self, scope: Scope, user: UserId, top: i64) -> Result<Option<View>, LeaderboardError> {
        let (set, member) = (self.set(scope), rules::member(user));
        let mut own = redis::pipe();
        own.cmd("MGET").arg(self.state(scope)).arg(self.version(scope));
        own.cmd("ZRANK").arg(&set).arg(&member[..]).cmd("ZSCORE").arg(&set).arg(&member[..]);
        let (((state, version), position, key), run): ((States, Option<i64>, Option<f64>), _) =
            self.call(self.inner.reader.query(&own)).await?;
        if !is_ready(state.as_deref(), &run) {
            return Ok(None);
        }
        let own = position.zip(key.map(standing_of));
        let view = match version {
            Some(version) => self.look_around(scope, own, top, version).await?,
            None => None,
        };
        match view {
            Some(view) => Ok(Some(view)),
            None => self.look_at_once(scope, user, top).await,
        }
    }

    /// Reads the top and the surroundings of a place; `None` if the leaderboard does not have this version any more.
    async fn look_around(
        &self,
        scope: Scope,
        own: Option<(i64, Standing)>,
        top: i64,
        version: String,
    ) -> Result<Option<View>, LeaderboardError> {
        let known = self.tops().get(&scope).filter(|known| known.version == version && known.asked >= top).cloned();
        let (set, none) = (self.set(scope), (Listed::new(), 0));
        let mut commands = redis::pipe();
        commands.get(self.version(scope));
        let first = own.map(|(position, _)| (position - NEIGHBOURS).max(0));
        if let (Some((position, standing)), Some(first)) = (own, first) {
            commands.cmd("ZRANGE").arg(&set).arg(first).arg(position + NEIGHBOURS).arg("WITHSCORES");
            commands.cmd("ZCOUNT").arg(&set).arg("-inf").arg(standing.ahead());
        }
        if known.is_none() {
            commands.cmd("ZRANGE").arg(&set).arg(0).arg(top - 1).arg("WITHSCORES").cmd("ZCARD").arg(&set);
        }
        let (after, (listed, mut ahead), read): (Option<String>, (Listed, i64), (Listed, i64)) =
            match (own.is_some(), known.is_some()) {
                (true, true) => {
                    let (after, listed, ahead) = self.read_now(&commands).await?;
                    (after, (listed, ahead), none)
                }
                (true, false) => {
                    let (after, listed, ahead, top, total) = self.read_now(&commands).await?;
                    (after, (listed, ahead), (top, total))
                }
                (false, true) => (Some(version.clone()), none.clone(), none),
                (false, false) => {
                    let (after, top, total) = self.read_now(&commands).await?;
                    (after, none, (top, total))
                }
            };
        if after.as_ref() != Some(&version) {
            return Ok(None);
        }
        let leader = listed.first().map(|(_, key)| standing_of(*key));
        if let (Some(leader), Some((_, standing))) = (leader, own)
            && leader.points != standing.points
        {
            let mut commands = redis::pipe();
            commands.get(self.version(scope)).cmd("ZCOUNT").arg(&set).arg("-inf").arg(leader.ahead());
            let (after, counted): (Option<String>, i64) = self.read_now(&commands).await?;
            if after.as_ref() != Some(&version) {
                return Ok(None);
            }
            ahead = counted;
        }
        let known = known.unwrap_or_else(|| {
            let (listed, total) = read;
            let version = version.clone();
            self.keep_top(scope, Top { version, asked: top, total, places: places(0, 0, &listed) })
        });
        Ok(Some(View {
            total: known.total,
            top: known.places.iter().take(usize::try_from(top).unwrap_or_default()).copied().collect(),
            around: places(first.unwrap_or_default(), ahead, &listed),
            version: Some(version),
        }))
    }

    async fn read_now<T: FromRedisValue>(&self, commands: &redis::Pipeline) -> Result<T, LeaderboardError> {
        Ok(self.call(self.inner.reader.query(commands)).await?.0)
    }

    /// Does the same as [`Self::look`] in one atomic step.
    pub(super) async fn look_at_once(
        &self,
        scope: Scope,
        user: UserId,
        top: i64,
    ) -> Result<Option<View>, LeaderboardError> {
        let mut look = self.inner.look.key(self.set(scope));
        look.key(self.state(scope)).arg(&rules::member(user)[..]).arg(top).arg(NEIGHBOURS);
        let (ready, total, top, first, ahead, around): (u8, i64, Listed, i64, i64, Listed) =
            self.call(look.invoke_async(&mut self.inner.redis.clone())).await?;
        let (top, around) = (places(0, 0, &top), places(first, ahead, &around));
        Ok((ready == 1).then_some(View { total, top, around, version: None }))
    }

    /// Returns the version of a leaderboard; `None` if it must be rebuilt first, and empty before its first score.
    pub(super) async fn current_version(&self, scope: Scope) -> Result<Option<String>, LeaderboardError> {
        let mut commands = redis::pipe();
        commands.cmd("MGET").arg(self.state(scope)).arg(self.version(scope));
        let (((state, version),), run): ((States,), _) = self.call(self.inner.reader.query(&commands)).await?;
        Ok(is_ready(state.as_deref(), &run).then(|| version.unwrap_or_default()))
    }

    /// Returns the version of a leaderboard, and the points of those among these users who are on it; `None` if it must be
    /// rebuilt first. The version is read first, so the points may be later than it, and never older.
    pub(super) async fn standings(
        &self,
        scope: Scope,
        users: &[UserId],
    ) -> Result<Option<(String, Vec<(UserId, Standing)>)>, LeaderboardError> {
        let mut commands = redis::pipe();
        commands.cmd("MGET").arg(self.state(scope)).arg(self.version(scope)).cmd("ZMSCORE").arg(self.set(scope));
        for &user in users {
            commands.arg(&rules::member(user)[..]);
        }
        let (((state, version), keys), run): ((States, Vec<Option<f64>>), _) =
            self.call(self.inner.reader.query(&commands)).await?;
        let found = users.iter().zip(keys).filter_map(|(&user, key)| Some((user, standing_of(key?))));
        Ok(is_ready(state.as_deref(), &run).then(|| (version.unwrap_or_default(), found.collect())))
    }

    /// Reads the places of many users and the number of users on the leaderboard, in two round trips; `None` if it must
    /// be rebuilt first. Users who are not on the leaderboard are left out.
    pub async fn places(&self, scope: Scope, users: &[UserId]) -> Result<Option<(Vec<Place>, i64)>, LeaderboardError> {
        let set = self.set(scope);
        let mut commands = redis::pipe();
        commands.get(self.state(scope)).cmd("ZCARD").arg(&set).cmd("ZMSCORE").arg(&set);
        for &user in users {
            commands.arg(&rules::member(user)[..]);
        }
        let ((state, total, keys), run): (PlacesRead, _) = self.call(self.inner.reader.query(&commands)).await?;
        if !is_ready(state.as_deref(), &run) {
            return Ok(None);
        }
        let found: Vec<(UserId, Standing)> =
            users.iter().zip(keys).filter_map(|(&user, key)| Some((user, standing_of(key?)))).collect();
        let mut points: Vec<i32> = found.iter().map(|(_, standing)| standing.points).collect();
        points.sort_unstable();
        points.dedup();
        if points.is_empty() {
            return Ok(Some((Vec::new(), total)));
        }
        let mut commands = redis::pipe();
        for &points in &points {
            commands.cmd("ZCOUNT").arg(&set).arg("-inf").arg(Standing { points, exact: 0, correct: 0 }.ahead());
        }
        let ahead: Vec<i64> = self.read_now(&commands).await?;
        let ahead: HashMap<i32, i64> = points.into_iter().zip(ahead).collect();
        let place = |(user, standing): (UserId, Standing)| {
            Some(Place { user, rank: ahead.get(&standing.points)? + 1, standing })
        };
        Ok(Some((found.into_iter().filter_map(place).collect(), total)))
    }

    fn keep_top(&self, scope: Scope, top: Top) -> Arc<Top> {
        let (mut tops, top) = (self.tops(), Arc::new(top));
        // Leaderboards of past weeks and months must not accumulate.
        if tops.len() >= MOST_TOPS {
            tops.clear();
        }
        tops.insert(scope, Arc::clone(&top));
        top
    }

    fn tops(&self) -> MutexGuard<'_, HashMap<Scope, Arc<Top>>> {
        self.inner.tops.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Starts a rebuild, unless one is running.
    pub(super) fn start_filling(&self, scope: Scope) {
        self.being_filled(scope);
    }

    /// Starts a rebuild, or joins a running one, and waits briefly for it. All requests wait until the same time after
    /// the start of the rebuild, so a slow rebuild does not accumulate waiting requests. Returns why the leaderboard cannot
    /// be read if the next read does not find it.
    pub async fn fill(&self, scope: Scope) -> LeaderboardError {
        let (since, mut filled) = self.being_filled(scope);
        // The next read shows whether the rebuild finished or the wait timed out.
        let _ = tokio::time::timeout(MAX_WAIT.saturating_sub(since.elapsed()), filled.changed()).await;
        let refused = *filled.borrow();
        refused.map_or(LeaderboardError::Rebuilding, LeaderboardError::TooManyPast)
    }

    fn being_filled(&self, scope: Scope) -> (Instant, watch::Receiver<Refused>) {
        let mut filling = self.filling();
        if let Some((since, filled)) = filling.get(&scope)
            && filled.has_changed().is_ok()
        {
            return (*since, filled.clone());
        }
        let ((done, filled), since) = (watch::channel(None), Instant::now());
        filling.insert(scope, (since, filled.clone()));
        let boards = self.clone();
        // Runs in a separate task, because a rebuild may outlast the request that started it.
        tokio::spawn(async move {
            let slots = match scope {
                Scope::Round { .. } => &boards.inner.round_slot,
                _ => &boards.inner.rebuild_slots,
            };
            let _slot = slots.acquire().await;
            let rebuilt = boards.rebuild(scope).await;
            boards.filling().remove(&scope);
            match rebuilt {
                Ok(()) => {}
                Err(LeaderboardError::TooManyPast(after)) => {
                    tracing::debug!(?after, %scope, "too many leaderboards of past rounds; this one is not rebuilt");
                    done.send_replace(Some(after));
                }
                Err(error) => tracing::warn!(%error, %scope, "leaderboard rebuild failed"),
            }
            drop(done);
        });
        (since, filled)
    }

    fn filling(&self) -> MutexGuard<'_, HashMap<Scope, (Instant, watch::Receiver<Refused>)>> {
        self.inner.filling.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Writes the database scores of these users to these leaderboards. Must be called after every commit that changed
    /// these scores, and repeated until it succeeds. Leaderboards without a state are skipped.
    pub async fn publish(&self, scopes: &[Scope], users: Users) -> Result<(), LeaderboardError> {
        let kept = self.kept(scopes).await?;
        if kept.is_empty() {
            return Ok(());
        }
        let read = self.read(&kept, users).await?;
        self.show(&kept, users, read, None).await
    }

    /// Like [`Self::publish`], for scores that a chunk's transaction has just committed, without reading them first.
    /// Returns false if other transactions may have changed some of them since; the caller must then call
    /// [`Self::publish`]. Chunks and repairs are numbered, so this check reads a few rows only.
    pub(super) async fn publish_written(&self, written: Written, chunk: &Chunk) -> Result<bool, LeaderboardError> {
        let kept = self.kept(&written.scopes).await?;
        if kept.is_empty() {
            return Ok(true);
        }
        let number = |scope: i32| {
            let scope = written.scopes.get(usize::try_from(scope - 1).ok()?)?;
            kept.iter().zip(1..).find_map(|(kept, number)| (kept == scope).then_some(number))
        };
        let last = i32::try_from(written.scopes.len()).unwrap_or(i32::MAX);
        let numbers: Vec<Option<i32>> = (0..=last).map(number).collect();
        let renumbered = |row: ScoreRow| {
            let number = numbers.get(usize::try_from(row.scope).ok()?).copied().flatten()?;
            Some(ScoreRow { scope: number, ..row })
        };
        let mut rows: Vec<ScoreRow> = written.scores.into_iter().filter_map(renumbered).collect();
        rows.sort_unstable_by_key(ScoreRow::place);
        self.write(&kept, &rows, None).await?;
        Ok(!store::were_changed_after(&self.inner.db, chunk, written.write, written.repairs).await?)
    }

    /// Returns the scopes whose leaderboards exist in Redis.
    async fn kept(&self, scopes: &[Scope]) -> Result<Vec<Scope>, LeaderboardError> {
        if scopes.is_empty() {
            return Ok(Vec::new());
        }
        let mut states = redis::pipe();
        for &scope in scopes {
            states.exists(self.state(scope));
        }
        let kept: Vec<bool> = self.call(states.query_async(&mut self.inner.redis.clone())).await?;
        Ok(scopes.iter().zip(kept).filter_map(|(&scope, kept)| kept.then_some(scope)).collect())
    }

    /// Rebuilds a leaderboard from the database, unless it is ready. Waits if another process is rebuilding it.
    pub async fn rebuild(&self, scope: Scope) -> Result<(), LeaderboardError> {
        loop {
            let token = hex::encode(random::bytes::<8>(&*self.inner.random));
            let mut begin = self.inner.begin.key(self.set(scope));
            begin.key(self.state(scope)).key(self.version(scope)).arg(token).arg(milliseconds(CLAIM));
            let claim: String = self.call(begin.invoke_async(&mut self.inner.redis.clone())).await?;
            match claim.as_str() {
                "ready" => return Ok(()),
                "busy" => tokio::time::sleep(POLL_INTERVAL).await,
                claim => match self.fill_claimed(scope, claim).await {
                    Ok(()) => {
                        metrics::counter!("matchday_leaderboards_filled_total").increment(1);
                        return Ok(());
                    }
                    Err(LeaderboardError::ClaimLost) => {}
                    Err(error) => {
                        // Best effort: the claim also expires.
                        let mut abandon = self.inner.abandon.key(self.set(scope));
                        abandon.key(self.state(scope)).arg(claim);
                        let _: Result<u8, _> = self.call(abandon.invoke_async(&mut self.inner.redis.clone())).await;
                        return Err(error);
                    }
                },
            }
        }
    }

    async fn fill_claimed(&self, scope: Scope, claim: &str) -> Result<(), LeaderboardError> {
        let retention = self.retention(scope).await?;
        if retention != Some(PAST_RETENTION) {
            return self.fill_set(scope, claim, retention).await;
        }
        let limit = past_limit(self.most_entries(scope).await?);
        let decision = self.inner.limits.take(limit, PAST_KEY).await;
        if !decision.allowed {
            return Err(LeaderboardError::TooManyPast(decision.retry_after));
        }
        let filled = self.fill_set(scope, claim, retention).await;
        if filled.is_err() {
            self.inner.limits.untake(limit, PAST_KEY).await;
        }
        filled
    }

    async fn fill_set(&self, scope: Scope, claim: &str, retention: Option<Duration>) -> Result<(), LeaderboardError> {
        let name = scope.to_string();
        let db = &self.inner.db;
        // Reading walks all scores of all users, so it is skipped for a week, month or tournament without results.
        let has_scores = scope == Scope::All || store::has_results(db, &name).await?;
        let users = if has_scores { store::users_with_scores(db).await? } else { None };
        // Users who get their first score later are published by the transaction that adds it.
        let (mut from, last) = users.unwrap_or((0, -1));
        let mut width = PAGE;
        while from <= last {
            let until = from.saturating_add(width);
            let page = store::scores_between(db, &name, from, until).await?;
            width = next_width(width, page.len());
            if page.is_empty() {
                // Extends the claim.
                self.write_batches(&[(scope, &[])], Some(claim)).await?;
            }
            self.show(&[scope], Users::Between { from, until }, page, Some(claim)).await?;
            from = until;
        }
        let mut finish = self.inner.finish.key(self.set(scope));
        finish.key(self.state(scope)).key(self.version(scope)).arg(claim).arg(retention.map_or(0, milliseconds));
        let finished: bool = self.call(finish.invoke_async(&mut self.inner.redis.clone())).await?;
        if finished { Ok(()) } else { Err(LeaderboardError::ClaimLost) }
    }

    async fn read(&self, scopes: &[Scope], users: Users) -> sqlx::Result<Vec<ScoreRow>> {
        let names: Vec<String> = scopes.iter().map(Scope::to_string).collect();
        let mut rows = match users {
            Users::OfSource { source, from, until } => {
                store::scores_of_source(&self.inner.db, &names, source, from, until).await?
            }
            Users::Between { from, until } => {
                let mut rows = Vec::new();
                for (name, number) in names.iter().zip(1..) {
                    let of_one = store::scores_between(&self.inner.db, name, from, until).await?;
                    rows.extend(of_one.into_iter().map(|row| ScoreRow { scope: number, ..row }));
                }
                rows
            }
        };
        rows.sort_unstable_by_key(ScoreRow::place);
        Ok(rows)
    }

    /// Writes the scores and reads them again, until the written scores equal the database.
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
        let batches: Vec<(Scope, &[ScoreRow])> = rows
            .chunk_by(|one, next| one.scope == next.scope)
            .flat_map(|of_one| of_one.chunks(BATCH))
            .filter_map(|batch| Some((*scopes.get(batch.first()?.scope_index())?, batch)))
            .collect();
        self.write_batches(&batches, claim).await?;
        metrics::counter!("matchday_leaderboard_places_total").increment(rows.len() as u64);
        Ok(())
    }

    async fn write_batches(
        &self,
        batches: &[(Scope, &[ScoreRow])],
        claim: Option<&str>,
    ) -> Result<(), LeaderboardError> {
        for batches in batches.chunks(PIPELINE) {
            let (seconds, micros): (u64, u64) =
                self.call(redis::cmd("TIME").query_async(&mut self.inner.redis.clone())).await?;
            let until = seconds * 1_000 + micros / 1_000 + milliseconds(WRITE_DEADLINE);
            let mut pipeline = redis::Pipeline::with_capacity(batches.len());
            for &(scope, batch) in batches {
                pipeline.add_command(self.written(scope, batch, until, claim));
            }
            let outcomes: RedisResult<Vec<i64>> =
                self.record(pipeline.query_async(&mut self.inner.redis.clone()).await);
            let outcomes = match outcomes {
                Ok(outcomes) => outcomes,
                Err(error) => {
                    // The write may still reach Redis. A rebuild abandons its claim, which makes the write invalid. Any
                    // other publisher waits until the deadline of the write has passed.
                    if claim.is_none() {
                        tokio::time::sleep(WRITE_DEADLINE).await;
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
        Ok(())
    }

    /// Builds the command that writes entries of one leaderboard.
    fn written(&self, scope: Scope, rows: &[ScoreRow], until: u64, claim: Option<&str>) -> redis::Cmd {
        let placed = || rows.iter().filter(|row| row.counts());
        let mut command = redis::Cmd::with_capacity(11 + 2 * rows.len(), WRITE.len() + 250 + 24 * rows.len());
        command.arg("EVAL").arg(WRITE).arg(3);
        command.arg(self.set(scope)).arg(self.state(scope)).arg(self.version(scope));
        command.arg(until).arg(claim.unwrap_or_default()).arg(milliseconds(CLAIM)).arg(2 * placed().count());
        for row in placed() {
            let standing = Standing { points: row.points, exact: row.exact, correct: row.correct };
            command.arg(standing.key()).arg(&rules::member(UserId(row.user_id))[..]);
        }
        for row in rows.iter().filter(|row| !row.counts()) {
            command.arg(&rules::member(UserId(row.user_id))[..]);
        }
        command
    }

    /// Time until a leaderboard that is made now expires; `None` if it does not expire.
    async fn retention(&self, scope: Scope) -> sqlx::Result<Option<Duration>> {
        let ends = match scope {
            Scope::Round { tournament, round } => {
                let ends = store::round_end(&self.inner.db, tournament, round).await?;
                // A round that has neither matches nor questions any more is a past one.
                Some(ends.unwrap_or_else(|| self.inner.clock.now() - RETENTION))
            }
            _ => scope.ends(),
        };
        let left = |ends: time::OffsetDateTime| {
            Duration::try_from(ends + RETENTION - self.inner.clock.now()).unwrap_or_default()
        };
        Ok(ends.map(|ends| left(ends).max(PAST_RETENTION)))
    }

    /// Returns an upper bound of the number of entries on a leaderboard that is cheaper to read than the scores: there are
    /// at most as many entries as ids of users with scores, and in a round as predictions and answers.
    async fn most_entries(&self, scope: Scope) -> sqlx::Result<i64> {
        let db = &self.inner.db;
        let ids = store::users_with_scores(db).await?.map_or(0, |(first, last)| last - first + 1);
        let players = match scope {
            Scope::Round { tournament, round } => store::most_players(db, tournament, round).await?,
            _ => ids,
        };
        Ok(ids.min(players))
    }

    /// The hash tag in braces puts all keys of a leaderboard on the same shard of a Redis cluster.
    fn set(&self, scope: Scope) -> String {
        format!("{{{}:board:{scope}}}", self.inner.prefix)
    }

    fn state(&self, scope: Scope) -> String {
        format!("{{{}:board:{scope}}}:state", self.inner.prefix)
    }

    fn version(&self, scope: Scope) -> String {
        format!("{{{}:board:{scope}}}:version", self.inner.prefix)
    }

    /// Runs a Redis command, unless the circuit breaker is open.
    async fn call<T>(&self, operation: impl Future<Output = RedisResult<T>>) -> Result<T, LeaderboardError> {
        if self.inner.breaker.admit().is_err() {
            return Err(LeaderboardError::BreakerOpen);
        }
        Ok(self.record(operation.await)?)
    }

    fn record<T>(&self, response: RedisResult<T>) -> RedisResult<T> {
        self.inner.breaker.record(response.is_ok());
        response
    }
}

/// Limit that takes this number of entries from the budget of leaderboards of past rounds.
fn past_limit(entries: i64) -> Limit {
    let burst = u32::try_from(PAST_ENTRIES / entries.max(1)).unwrap_or(u32::MAX).max(1);
    Limit { name: "past_leaderboards", burst, every: PAST_RETENTION / burst }
}

/// Members of a sorted set with their scores.
pub(super) type Listed = Vec<(Vec<u8>, f64)>;

/// State of a leaderboard, number of users, and the keys of some of them.
type PlacesRead = (Option<String>, i64, Vec<Option<f64>>);

/// State and version of a leaderboard.
type States = (Option<String>, Option<String>);

fn is_ready(state: Option<&str>, run: &str) -> bool {
    state.and_then(|state| state.strip_prefix("ready:")) == Some(run)
}

fn standing_of(key: f64) -> Standing {
    #[expect(clippy::cast_possible_truncation, reason = "keys are whole numbers of less than 53 bits")]
    Standing::of_key(key as i64)
}

pub(super) fn places(first: i64, ahead: i64, listed: &Listed) -> Vec<Place> {
    let found: Vec<(UserId, Standing)> =
        listed.iter().filter_map(|(member, key)| Some((rules::user_of(member)?, standing_of(*key)))).collect();
    let ranks = rules::ranks(first, ahead, found.iter().map(|(_, standing)| standing.points));
    found.into_iter().zip(ranks).map(|((user, standing), rank)| Place { user, rank, standing }).collect()
}

/// Returns rows of `now` that are new or differ from `before`. Both are sorted by [`ScoreRow::place`].
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

/// Returns the number of user ids for the next query of a rebuild, after a query over `width` ids found `found` scores.
fn next_width(width: i64, found: usize) -> i64 {
    match i64::try_from(found).unwrap_or(i64::MAX) {
        found if found < PAGE / 2 => (2 * width).min(MOST_IDS),
        found if found > PAGE => (width / 2).max(PAGE),
        _ => width,
    }
}

pub(super) fn milliseconds(time: Duration) -> u64 {
    u64::try_from(time.as_millis()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use platform::{
        Environment, clock::SystemClock, database::WriterSettings, random::SystemRandom, rate_limit::RateLimiter,
        reads::Reads, testing::settings,
    };

    use super::*;
    use crate::testing::redis_for_tests;

    fn row(scope: i32, user_id: i64, points: i32) -> ScoreRow {
        ScoreRow { scope, user_id, points, exact: 0, correct: 0, settled: 1, answered: 0 }
    }

    #[tokio::test]
    async fn write_past_deadline_or_without_claim_is_refused() {
        let (mut redis, prefix) = redis_for_tests();
        let unreachable = PgPool::connect_lazy("postgres://127.0.0.1:1/none").expect("an address");
        let core = Core {
            env: Environment::Testing,
            reads: Reads::from_primary(unreachable.clone()),
            db: unreachable,
            shards: platform::shards::Shards::default(),
            clock: Arc::new(SystemClock),
            random: Arc::new(SystemRandom),
            limits: RateLimiter::new(redis.clone(), &prefix, Arc::new(SystemClock)),
            outbox_written: Arc::default(),
            writer_settings: WriterSettings { statement_timeout: Duration::from_secs(1), transaction_pooling: false },
        };
        let settings = settings(&[("MATCHDAY_REDIS__PREFIX", &prefix)], redis_client::Settings::read);
        let boards = LeaderboardCache::new(&core, redis.clone(), &settings).expect("a valid URL");
        let (seconds, _): (u64, u64) = redis::cmd("TIME").query_async(&mut redis).await.expect("a time");
        let now = seconds * 1_000;
        let write = async |until: u64, claim: Option<&str>, points: i32| -> i64 {
            let command = boards.written(Scope::All, &[row(1, 7, points)], until, claim);
            command.query_async(&mut redis.clone()).await.expect("a response")
        };
        assert_eq!(write(now + 60_000, None, 1).await, 0, "the leaderboard does not exist");
        let set_state = redis::cmd("SET").arg(boards.state(Scope::All)).arg("building:1:mine").clone();
        set_state.exec_async(&mut redis.clone()).await.expect("set");
        assert_eq!(write(now + 60_000, Some("building:1:mine"), 2).await, 1);
        assert_eq!(write(now + 60_000, None, 3).await, 1, "publishing needs no claim");
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
        let keys = [boards.set(Scope::All), boards.state(Scope::All), boards.version(Scope::All)];
        redis::cmd("DEL").arg(&keys[..]).exec_async(&mut redis.clone()).await.expect("deleted");
    }

    #[test]
    fn rebuild_reads_more_ids_at_once_where_few_have_scores() {
        assert_eq!(next_width(PAGE, 0), 2 * PAGE);
        assert_eq!(next_width(MOST_IDS, 10), MOST_IDS);
        assert_eq!(next_width(MOST_IDS, 100_000), MOST_IDS / 2);
        assert_eq!(next_width(PAGE, 6_000), PAGE);
        assert_eq!(next_width(2 * PAGE, 6_000), 2 * PAGE);
    }

    #[test]
    fn only_changed_scores_are_written_again() {
        let before = [row(1, 1, 5), row(1, 2, 5), row(2, 1, 5), row(2, 3, 5)];
        let now = [row(1, 1, 5), row(1, 2, 6), row(1, 3, 5), row(2, 1, 5), row(2, 2, 5), row(2, 3, 5), row(2, 4, 1)];
        assert_eq!(changes(&before, &now), [row(1, 2, 6), row(1, 3, 5), row(2, 2, 5), row(2, 4, 1)]);
        assert_eq!(changes(&now, &now), []);
        assert_eq!(changes(&[], &before), before);
    }
}
