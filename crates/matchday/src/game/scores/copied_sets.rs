//! Sorted sets in Redis that are copied from the database: leaderboards of large rooms, tables of large leagues.
//!
//! A small group is sorted in the database on every request. For a large one that would cost more with every member, so
//! its standings are kept in Redis, where a request costs the same for any number of members.
//!
//! A copy is from a point in time, and is replaced as a whole. The first request that finds it due starts the next copy
//! in the background, and all requests are served from the old one meanwhile. A claim in Redis allows one copy at a time
//! over all processes, and the due time at most one per interval. A request waits only if the copy is missing or long
//! overdue. So a copy follows results and members within seconds, and one that is not requested costs nothing. A builder
//! that knows that nothing has changed keeps the present copy.
//!
//! A builder writes to sets of its own and renames them under its claim, so a slow builder cannot damage a newer copy.
//! Sets and due time change in one script and expire, so a Redis server that restarts with old data serves either a due
//! copy or none.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use breaker::Breaker;
use platform::{
    Core,
    random::{self, Random},
    single_flight::{Flight, SingleFlight},
};
use redis::{FromRedisValue, RedisResult, aio::ConnectionManager};
use tokio::sync::Semaphore;
use web::ids::UserId;

use super::{
    leaderboard_cache::{LeaderboardError, Place, milliseconds, places},
    rules::{self, Standing},
};

/// Users read from the database at once, and entries per write command.
pub const PAGE: i64 = 2_000;
/// Shortest pause between two copies.
const INTERVAL: Duration = Duration::from_secs(5);
/// A copy that is overdue by less than this is served without waiting for the next one.
const GRACE: Duration = Duration::from_secs(5);
/// Longest wait of a request for a copy.
const MAX_WAIT: Duration = Duration::from_millis(1_500);
/// Interval at which a process checks whether another process has finished a copy.
const POLL_INTERVAL: Duration = Duration::from_millis(50);
/// Expiry of a claim, and of a set that was not finished. Every written page extends both.
const CLAIM: Duration = Duration::from_mins(1);

/// Lua prelude that reads the time of the Redis server in milliseconds.
const NOW: &str = "local time = redis.call('TIME')\nlocal now = time[1] * 1000 + math.floor(time[2] / 1000)\n";

/// Claims the next copy, unless the present one is not due or another process holds the claim. Returns the time of the
/// claim, 0 if the copy is not due, or -1 if another process holds the claim. In the scripts of this module, `KEYS` are
/// the due time, the claim, the note, and for each set its key and that of the set in progress.
const BEGIN: &str = r"
local due = tonumber(redis.call('GET', KEYS[1]) or '')
if due and due > now then return 0 end
if redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) then return now end
return -1
";

/// Extends the claim while the copy makes progress.
const EXTEND: &str = r"
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('PEXPIRE', KEYS[1], ARGV[2])
";

/// Replaces the sets and the note, if the claim still holds.
const FINISH: &str = r"
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
for set = 4, #KEYS, 2 do
  redis.call('UNLINK', KEYS[set])
  if redis.call('EXISTS', KEYS[set + 1]) == 1 then
    redis.call('RENAME', KEYS[set + 1], KEYS[set])
    redis.call('PEXPIRE', KEYS[set], 2 * ARGV[3])
  end
end
redis.call('DEL', KEYS[3])
if ARGV[4] ~= '' then redis.call('SET', KEYS[3], ARGV[4], 'PX', 2 * ARGV[3]) end
redis.call('SET', KEYS[1], string.format('%.0f', now + ARGV[2]), 'PX', ARGV[3])
redis.call('DEL', KEYS[2])
return 1
";

/// Keeps the present copy until the next one is due, with a new note, if the claim still holds and there is a copy.
const KEEP: &str = r"
if redis.call('GET', KEYS[2]) ~= ARGV[1] or redis.call('EXISTS', KEYS[3]) == 0 then return 0 end
for set = 4, #KEYS, 2 do redis.call('PEXPIRE', KEYS[set], 2 * ARGV[3]) end
redis.call('SET', KEYS[3], ARGV[4], 'PX', 2 * ARGV[3])
redis.call('SET', KEYS[1], string.format('%.0f', now + ARGV[2]), 'PX', ARGV[3])
redis.call('DEL', KEYS[2])
return 1
";

/// Ends a claim early, after a failure.
const ABANDON: &str = r"
if redis.call('GET', KEYS[2]) == ARGV[1] then redis.call('PEXPIRE', KEYS[2], ARGV[2]) end
for set = 5, #KEYS, 2 do redis.call('UNLINK', KEYS[set]) end
return 1
";

/// Members of a sorted set with their keys.
pub type Listed = Vec<(Vec<u8>, f64)>;

/// Ranks consecutive members of a set. The first is at `position`, counted from 0, and `ahead` members have more points.
pub fn ranked(position: i64, ahead: i64, listed: &Listed) -> Vec<Place> {
    places(position, ahead, listed)
}

/// Builds a script that knows the time of the Redis server as `now`, in milliseconds.
pub fn script(text: &str) -> redis::Script {
    redis::Script::new(&format!("{NOW}{text}"))
}

/// How copies of one kind are made.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Suffixes of the keys of the sets that are copied together.
    pub sets: &'static [&'static str],
    /// The pause between two copies is at least this many times as long as a copy takes, to limit the load of very large
    /// groups.
    pub pause_factor: u32,
}

/// Copies sets of one kind, in the background.
#[derive(Clone)]
pub struct CopiedSets {
    inner: Arc<Inner>,
}

struct Inner {
    kind: Kind,
    redis: ConnectionManager,
    prefix: String,
    random: Arc<dyn Random>,
    breaker: Breaker,
    begin: redis::Script,
    finish: redis::Script,
    keep: redis::Script,
    abandon: redis::Script,
    copying: SingleFlight<String>,
    /// Limits concurrent copies, because they read many rows and requests need the database too.
    copying_slots: Semaphore,
}

/// A copy to be made.
#[derive(Clone, Debug)]
pub struct Wanted {
    /// Name of the copy, unique among all kinds.
    pub name: String,
    /// Time for which the copy is kept if it is not requested.
    pub retention: Duration,
}

/// What a builder did.
pub enum Filled {
    /// It wrote all sets. The note is stored with them, and can be empty.
    Copied { note: String },
    /// The present copy is up to date, and gets this note. Only for copies with a note.
    Unchanged { note: String },
}

/// Writes the sets of a copy in progress.
pub struct SetWriter {
    inner: Arc<Inner>,
    keys: Keys,
    token: String,
    began_at: i64,
}

struct Keys {
    due: String,
    claim: String,
    note: String,
    /// Key of each set, and of the set in progress.
    sets: Vec<(String, String)>,
}

impl CopiedSets {
    pub fn new(core: &Core, redis: ConnectionManager, prefix: &str, kind: Kind) -> Self {
        let inner = Inner {
            kind,
            redis,
            prefix: prefix.to_owned(),
            random: core.random.clone(),
            breaker: Breaker::new(2, Duration::from_secs(1)),
            begin: script(BEGIN),
            finish: script(FINISH),
            keep: script(KEEP),
            abandon: redis::Script::new(ABANDON),
            copying: SingleFlight::default(),
            copying_slots: Semaphore::new(2),
        };
        Self { inner: Arc::new(inner) }
    }

    /// Key of a set of a copy. The hash tag in braces puts all keys of a copy on the same shard of a Redis cluster.
    pub fn set(&self, name: &str, suffix: &str) -> String {
        format!("{}{suffix}", self.inner.tag(name))
    }

    /// Key of the time at which the next copy is due. Without it, there is no copy.
    pub fn due(&self, name: &str) -> String {
        format!("{}:due", self.inner.tag(name))
    }

    /// Key of the note that was stored with the copy.
    pub fn note(&self, name: &str) -> String {
        format!("{}:note", self.inner.tag(name))
    }

    /// Invokes a script, unless the circuit breaker is open.
    pub async fn invoke<T: FromRedisValue>(&self, script: &redis::ScriptInvocation<'_>) -> Result<T, LeaderboardError> {
        self.inner.call(script.invoke_async(&mut self.inner.redis.clone())).await
    }

    /// Starts the next copy if the present one is due: `overdue` is the time since then, or `None` without a copy. Waits
    /// for the copy only if there is none or it is long overdue. Returns true if the caller must read it again.
    ///
    /// `fill` writes the sets, or finds that the present copy is up to date.
    pub async fn refresh<Filling>(
        &self,
        wanted: Wanted,
        overdue: Option<Duration>,
        fill: impl FnOnce(SetWriter) -> Filling + Send + 'static,
    ) -> bool
    where
        Filling: Future<Output = Result<Filled, LeaderboardError>> + Send,
    {
        match overdue {
            Some(Duration::ZERO) => return false,
            Some(overdue) if overdue < GRACE => {
                self.start_copying(wanted, false, fill);
                return false;
            }
            _ => self.start_copying(wanted, true, fill).wait(MAX_WAIT).await,
        }
        true
    }

    /// Starts a copy, unless this process is running one. If another process is, the work lasts until that one has
    /// finished if `waits`, and ends at once otherwise.
    fn start_copying<Filling>(
        &self,
        wanted: Wanted,
        waits: bool,
        fill: impl FnOnce(SetWriter) -> Filling + Send + 'static,
    ) -> Flight
    where
        Filling: Future<Output = Result<Filled, LeaderboardError>> + Send,
    {
        let inner = Arc::clone(&self.inner);
        self.inner.copying.start(wanted.name.clone(), async move {
            if let Err(error) = inner.copy(&wanted, waits, fill).await {
                tracing::warn!(%error, leaderboard = wanted.name, "leaderboard not copied");
            }
        })
    }
}

impl Inner {
    async fn copy<Filling>(
        self: &Arc<Self>,
        wanted: &Wanted,
        waits: bool,
        fill: impl FnOnce(SetWriter) -> Filling,
    ) -> Result<(), LeaderboardError>
    where
        Filling: Future<Output = Result<Filled, LeaderboardError>>,
    {
        let Ok(_slot) = self.copying_slots.acquire().await else { return Ok(()) };
        let (asked, token) = (Instant::now(), hex::encode(random::bytes::<8>(&*self.random)));
        let keys = self.keys(&wanted.name, &token).all();
        let began_at = loop {
            let mut begin = self.begin.key(&keys);
            begin.arg(&token).arg(milliseconds(CLAIM));
            let claim: i64 = self.call(begin.invoke_async(&mut self.redis.clone())).await?;
            match claim {
                1.. => break claim,
                -1 if waits && asked.elapsed() < MAX_WAIT => tokio::time::sleep(POLL_INTERVAL).await,
                _ => return Ok(()),
            }
        };
        let began = Instant::now();
        let writer = SetWriter {
            inner: Arc::clone(self),
            keys: self.keys(&wanted.name, &token),
            token: token.clone(),
            began_at,
        };
        let filled = match fill(writer).await {
            Ok(filled) => filled,
            Err(error) => {
                // Best effort: the claim also expires. The pause keeps requests from repeating a copy that fails.
                let mut abandon = self.abandon.key(&keys);
                abandon.arg(&token).arg(milliseconds(INTERVAL));
                let _: Result<u8, _> = self.call(abandon.invoke_async(&mut self.redis.clone())).await;
                return Err(error);
            }
        };
        let pause = INTERVAL.max(began.elapsed() * self.kind.pause_factor);
        let (mut finish, note) = match filled {
            Filled::Copied { note } => (self.finish.key(&keys), note),
            Filled::Unchanged { note } => (self.keep.key(&keys), note),
        };
        finish.arg(&token).arg(milliseconds(pause)).arg(milliseconds(wanted.retention + pause)).arg(note);
        let finished: bool = self.call(finish.invoke_async(&mut self.redis.clone())).await?;
        if finished { Ok(()) } else { Err(LeaderboardError::ClaimLost) }
    }

    fn tag(&self, name: &str) -> String {
        format!("{{{}:board:{name}}}", self.prefix)
    }

    fn keys(&self, name: &str, token: &str) -> Keys {
        let tag = self.tag(name);
        let set = |suffix: &&str| (format!("{tag}{suffix}"), format!("{tag}:{token}{suffix}"));
        Keys {
            due: format!("{tag}:due"),
            claim: format!("{tag}:claim"),
            note: format!("{tag}:note"),
            sets: self.kind.sets.iter().map(set).collect(),
        }
    }

    /// Runs a Redis command, unless the circuit breaker is open.
    async fn call<T: FromRedisValue>(
        &self,
        operation: impl Future<Output = RedisResult<T>>,
    ) -> Result<T, LeaderboardError> {
        if self.breaker.admit().is_err() {
            return Err(LeaderboardError::BreakerOpen);
        }
        let response = operation.await;
        self.breaker.record(response.is_ok());
        Ok(response?)
    }
}

impl Keys {
    /// All keys, in the order in which scripts expect them.
    fn all(self) -> Vec<String> {
        let sets = self.sets.into_iter().flat_map(|(set, in_progress)| [set, in_progress]);
        [self.due, self.claim, self.note].into_iter().chain(sets).collect()
    }
}

impl SetWriter {
    /// Time at which the copy began, in milliseconds by the clock of the Redis server.
    pub fn began_at(&self) -> i64 {
        self.began_at
    }

    /// Note of the present copy; empty without a copy.
    pub async fn present_note(&self) -> Result<String, LeaderboardError> {
        let mut get = redis::cmd("GET");
        get.arg(&self.keys.note);
        let note: Option<String> = self.inner.call(get.query_async(&mut self.inner.redis.clone())).await?;
        Ok(note.unwrap_or_default())
    }

    /// Adds users to the set with this position in [`Kind::sets`]. A user who is added twice has the later standing.
    pub async fn add(&self, set: usize, standings: &[(UserId, Standing)]) -> Result<(), LeaderboardError> {
        let Some((_, set)) = self.keys.sets.get(set) else { return Ok(()) };
        let mut write = redis::pipe();
        if !standings.is_empty() {
            write.cmd("ZADD").arg(set);
            for (user, standing) in standings {
                write.arg(standing.key()).arg(&rules::member(*user)[..]);
            }
            write.ignore();
        }
        write.pexpire(set, i64::try_from(milliseconds(CLAIM)).unwrap_or(i64::MAX)).ignore();
        write.cmd("EVAL").arg(EXTEND).arg(1).arg(&self.keys.claim).arg(&self.token).arg(milliseconds(CLAIM));
        let (holds,): (bool,) = self.inner.call(write.query_async(&mut self.inner.redis.clone())).await?;
        if holds { Ok(()) } else { Err(LeaderboardError::ClaimLost) }
    }
}
