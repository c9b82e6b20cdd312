//! Leaderboards of large rooms in Redis: one sorted set per room and scope.
//!
//! A small room's leaderboard is sorted in the database on every request. For a large room that would cost more with
//! every member, so its leaderboard is kept in Redis, where a request costs the same for any number of members.
//!
//! A set is a copy from a point in time, and is replaced as a whole. The first request that finds it due starts the
//! next copy in the background, and all requests are served from the old set meanwhile. A claim in Redis allows one copy
//! at a time over all processes, and the due time at most one per interval. A request waits only if the set is missing
//! or long overdue. So a large room's leaderboard follows results and joins within seconds.
//!
//! A builder writes to a set of its own and renames it under its claim, so a slow builder cannot damage a newer set.
//! Set and due time change in one script and expire, so a Redis server that restarts with old data serves either a due
//! set or none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use breaker::Breaker;
use platform::{
    Core,
    random::{self, Random},
    single_flight::SingleFlight,
};
use redis::{FromRedisValue, RedisResult, aio::ConnectionManager};
use sqlx::PgPool;
use tokio::sync::Semaphore;
use web::ids::{MatchId, RoomId, UserId};

use super::{
    leaderboard_cache::{LeaderboardError, Listed, NEIGHBOURS, Place, READ, View, milliseconds, places},
    rules::{self, Scope, Standing},
    store,
};
use crate::chat::members;

/// Members read from the database at once, and entries per write command.
const PAGE: i64 = 2_000;
/// Shortest pause between two copies.
const INTERVAL: Duration = Duration::from_secs(5);
/// The pause is also this many times as long as the copy took, to limit the load of very large rooms.
const PAUSE_FACTOR: u32 = 10;
/// A set that is overdue by less than this is served without waiting for the next copy.
const GRACE: Duration = Duration::from_secs(5);
/// Longest wait of a request for a copy.
const MAX_WAIT: Duration = Duration::from_millis(1_500);
/// Interval at which a process checks whether another process has finished a copy.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Expiry of a claim, and of a set that was not finished. No copy takes longer.
const CLAIM: Duration = Duration::from_mins(1);
/// Time for which a set is kept if it is not requested.
const RETENTION: Duration = Duration::from_mins(10);

/// Lua prelude that reads the time of the Redis server in milliseconds.
const NOW: &str = "local time = redis.call('TIME')\nlocal now = time[1] * 1000 + math.floor(time[2] / 1000)\n";

/// Reads everything that a response needs. In every script, `KEYS` are the set, its due time, the claim and the set in
/// progress. The first value is -1 without a set, and otherwise by how many milliseconds it is overdue.
const LOOK: &str = r"
local due = tonumber(redis.call('GET', KEYS[2]) or '')
if not due then return { -1, 0, {}, 0, 0, {} } end
return read(math.max(now - due, 0))
";

/// Claims the next copy, unless the set is not due or another process holds the claim.
const BEGIN: &str = r"
local due = tonumber(redis.call('GET', KEYS[2]) or '')
if due and due > now then return 'ready' end
if redis.call('SET', KEYS[3], ARGV[1], 'NX', 'PX', ARGV[2]) then return 'claimed' end
return 'busy'
";

/// Replaces the set, if the claim still holds.
const FINISH: &str = r"
if redis.call('GET', KEYS[3]) ~= ARGV[1] then return 0 end
redis.call('UNLINK', KEYS[1])
if redis.call('EXISTS', KEYS[4]) == 1 then
  redis.call('RENAME', KEYS[4], KEYS[1])
  redis.call('PEXPIRE', KEYS[1], 2 * ARGV[3])
end
redis.call('SET', KEYS[2], string.format('%.0f', now + ARGV[2]), 'PX', ARGV[3])
redis.call('DEL', KEYS[3])
return 1
";

/// Ends a claim early, after a failure.
const ABANDON: &str = r"
if redis.call('GET', KEYS[3]) == ARGV[1] then redis.call('PEXPIRE', KEYS[3], ARGV[2]) end
redis.call('UNLINK', KEYS[4])
return 1
";

/// Reads and copies leaderboards of large rooms.
#[derive(Clone)]
pub struct RoomLeaderboards {
    inner: Arc<Inner>,
}

struct Inner {
    redis: ConnectionManager,
    prefix: String,
    db: PgPool,
    random: Arc<dyn Random>,
    breaker: Breaker,
    look: redis::Script,
    begin: redis::Script,
    finish: redis::Script,
    abandon: redis::Script,
    copying: SingleFlight<(RoomId, Scope)>,
    /// Limits concurrent copies, because they read many rows and requests need the database too.
    copying_slots: Semaphore,
}

/// A large room. The stands of a match are one room.
#[derive(Clone, Copy, Debug)]
pub struct LargeRoom {
    /// Id under which the leaderboards are stored.
    pub id: RoomId,
    /// The match, if the room is one of its stands.
    pub stand_of: Option<MatchId>,
}

impl View {
    /// Ranks these users, in any order, as seen by one user, with `top` entries at the top.
    pub(super) fn of(mut standings: Vec<(UserId, Standing)>, viewer: UserId, top: i64) -> Self {
        standings.sort_unstable_by_key(|(user, standing)| (standing.key(), user.0));
        let ranks = rules::ranks(0, 0, standings.iter().map(|(_, standing)| standing.points));
        let places: Vec<Place> =
            standings.into_iter().zip(ranks).map(|((user, standing), rank)| Place { user, rank, standing }).collect();
        let number = |count: i64| usize::try_from(count).unwrap_or_default();
        let around = match places.iter().position(|place| place.user == viewer) {
            None => Vec::new(),
            Some(own) => {
                let first = own.saturating_sub(number(NEIGHBOURS));
                places.iter().skip(first).take(own - first + 1 + number(NEIGHBOURS)).copied().collect()
            }
        };
        Self {
            total: i64::try_from(places.len()).unwrap_or(i64::MAX),
            top: places.into_iter().take(number(top)).collect(),
            around,
            version: None,
        }
    }
}

impl RoomLeaderboards {
    pub fn new(core: &Core, redis: ConnectionManager, prefix: &str) -> Self {
        let with_time = |script: &str| redis::Script::new(&format!("{NOW}{script}"));
        let inner = Inner {
            redis,
            prefix: prefix.to_owned(),
            db: core.db.clone(),
            random: core.random.clone(),
            breaker: Breaker::new(2, Duration::from_secs(1)),
            look: with_time(&format!("{READ}{LOOK}")),
            begin: with_time(BEGIN),
            finish: with_time(FINISH),
            abandon: redis::Script::new(ABANDON),
            copying: SingleFlight::default(),
            copying_slots: Semaphore::new(2),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Reads a room's leaderboard as seen by a user, with `top` entries at its top.
    pub async fn view(&self, room: LargeRoom, scope: Scope, user: UserId, top: i64) -> Result<View, LeaderboardError> {
        match self.inner.look(room, scope, user, top).await? {
            Some((view, Duration::ZERO)) => return Ok(view),
            Some((view, overdue)) if overdue < GRACE => {
                self.start_copying(room, scope, false);
                return Ok(view);
            }
            _ => self.start_copying(room, scope, true).wait(MAX_WAIT).await,
        }
        // If the copy takes longer, an old leaderboard is better than none.
        let copied = self.inner.look(room, scope, user, top).await?;
        copied.map(|(view, _)| view).ok_or(LeaderboardError::Rebuilding)
    }

    /// Starts a copy, unless this process is running one. If another process is, the work lasts until that one has
    /// finished if `waits`, and ends at once otherwise.
    fn start_copying(&self, room: LargeRoom, scope: Scope, waits: bool) -> platform::single_flight::Flight {
        let inner = Arc::clone(&self.inner);
        self.inner.copying.start((room.id, scope), async move {
            if let Err(error) = inner.copy(room, scope, waits).await {
                tracing::warn!(%error, room = room.id.0, %scope, "room leaderboard not copied");
            }
        })
    }
}

impl Inner {
    /// Returns the leaderboard and by how long it is overdue. Takes one round trip.
    async fn look(
        &self,
        room: LargeRoom,
        scope: Scope,
        user: UserId,
        top: i64,
    ) -> Result<Option<(View, Duration)>, LeaderboardError> {
        let keys = self.keys(room, scope, "");
        let mut look = self.look.key(&keys);
        look.arg(&rules::member(user)[..]).arg(top).arg(NEIGHBOURS);
        let (overdue, total, top, first, ahead, around): (i64, i64, Listed, i64, i64, Listed) =
            self.call(look.invoke_async(&mut self.redis.clone())).await?;
        let view = || View { total, top: places(0, 0, &top), around: places(first, ahead, &around), version: None };
        Ok(u64::try_from(overdue).ok().map(|overdue| (view(), Duration::from_millis(overdue))))
    }

    async fn copy(&self, room: LargeRoom, scope: Scope, waits: bool) -> Result<(), LeaderboardError> {
        let Ok(_slot) = self.copying_slots.acquire().await else { return Ok(()) };
        let (asked, token) = (Instant::now(), hex::encode(random::bytes::<8>(&*self.random)));
        let keys = self.keys(room, scope, &token);
        loop {
            let mut begin = self.begin.key(&keys);
            begin.arg(&token).arg(milliseconds(CLAIM));
            let claim: String = self.call(begin.invoke_async(&mut self.redis.clone())).await?;
            match claim.as_str() {
                "claimed" => break,
                "busy" if waits && asked.elapsed() < MAX_WAIT => tokio::time::sleep(POLL_INTERVAL).await,
                _ => return Ok(()),
            }
        }
        let began = Instant::now();
        if let Err(error) = self.fill(room, scope, &keys[3]).await {
            // Best effort: the claim also expires. The pause keeps requests from repeating a copy that fails.
            let mut abandon = self.abandon.key(&keys);
            abandon.arg(&token).arg(milliseconds(INTERVAL));
            let _: Result<u8, _> = self.call(abandon.invoke_async(&mut self.redis.clone())).await;
            return Err(error);
        }
        let pause = INTERVAL.max(began.elapsed() * PAUSE_FACTOR);
        let mut finish = self.finish.key(&keys);
        finish.arg(&token).arg(milliseconds(pause)).arg(milliseconds(RETENTION + pause));
        let finished: bool = self.call(finish.invoke_async(&mut self.redis.clone())).await?;
        if finished { Ok(()) } else { Err(LeaderboardError::ClaimLost) }
    }

    /// Writes the scores of all members to the set in progress. A member of several stands is written more than once,
    /// with the same result.
    async fn fill(&self, room: LargeRoom, scope: Scope, set: &str) -> Result<(), LeaderboardError> {
        let scope = scope.to_string();
        for place in members::places(&self.db, room.id, room.stand_of).await? {
            let mut after = 0;
            loop {
                let users = members::members_after(&self.db, place, after, PAGE).await?;
                let Some(&last) = users.last() else { break };
                after = last;
                let scores = store::scores_of_users(&self.db, &scope, &users).await?;
                if scores.is_empty() {
                    continue;
                }
                let mut add = redis::cmd("ZADD");
                add.arg(set);
                for row in scores {
                    let standing = Standing { points: row.points, exact: row.exact, correct: row.correct };
                    add.arg(standing.key()).arg(&rules::member(UserId(row.user_id))[..]);
                }
                let mut write = redis::pipe();
                write.add_command(add).ignore().pexpire(set, i64::try_from(milliseconds(CLAIM)).unwrap_or(i64::MAX));
                let _: (bool,) = self.call(write.query_async(&mut self.redis.clone())).await?;
            }
        }
        Ok(())
    }

    /// Set, due time, claim, and the set that the holder of `token` writes. The hash tag in braces puts all keys of a
    /// leaderboard on the same shard of a Redis cluster.
    fn keys(&self, room: LargeRoom, scope: Scope, token: &str) -> [String; 4] {
        let tag = format!("{{{}:board:room:{}:{scope}}}", self.prefix, room.id.0);
        [tag.clone(), format!("{tag}:due"), format!("{tag}:claim"), format!("{tag}:{token}")]
    }

    /// Runs a Redis command, unless the circuit breaker is open.
    async fn call<T: FromRedisValue>(
        &self,
        operation: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, LeaderboardError> {
        if self.breaker.admit().is_err() {
            return Err(LeaderboardError::BreakerOpen);
        }
        Ok(self.record(operation.await)?)
    }

    fn record<T>(&self, response: RedisResult<T>) -> RedisResult<T> {
        self.breaker.record(response.is_ok());
        response
    }
}
