//! Names and counts that leaderboards show for users.
//!
//! Requests that arrive while a query runs share the next one. Users are also cached for a few seconds, so at most so
//! long after a change a leaderboard shows the old name, also that of a deleted account. The number of counted predictions is
//! cached for one version of the leaderboard. The points of a view among followed users may be later than its version, so
//! its numbers can be too small until the next request, which finds another version. Blocks are never cached.

use std::{
    collections::{HashMap, HashSet},
    time::Duration,
};

use platform::{
    Core,
    batches::{Attempt, BatchError, Batches, Write},
    shards::Shards,
};
use sqlx::PgConnection;
use tokio::time::Instant;
use web::ids::UserId;

use super::{
    rules::Scope,
    store::{self, Player},
};
use crate::game::follows::service as follows;

/// Time for which a user is cached.
const CACHED_FOR: Duration = Duration::from_secs(5);
/// Number of cached users, about 20 MB.
const CACHED: usize = 100_000;
/// Number of requests that may wait for a query.
const WAITING: usize = 10_000;

pub(super) struct Players {
    cached: quick_cache::sync::Cache<(Scope, UserId), Cached>,
    lookups: Batches<Lookups>,
}

#[derive(Clone)]
struct Cached {
    player: Player,
    /// Version of the leaderboard when the user was read.
    version: String,
    read_at: Instant,
}

/// Looks up the users that many requests show.
struct Lookups;

/// Users to look up for one request.
#[derive(Clone)]
pub(super) struct Lookup {
    viewer: UserId,
    scope: Scope,
    users: Vec<UserId>,
    has_follows: bool,
}

/// Result of a [`Lookup`].
struct Found {
    players: Vec<Player>,
    /// Users whom the viewer has blocked.
    blocked: Vec<UserId>,
    /// Version of the viewer's follows, if it was requested; 0 for a viewer without follows.
    follows_version: Option<i64>,
}

/// Users as a leaderboard shows them.
pub(super) struct Shown {
    /// Without users whom the viewer has blocked.
    pub(super) players: HashMap<UserId, Player>,
    /// Version of the viewer's follows, if it was requested; 0 for a viewer without follows.
    pub(super) follows_version: Option<i64>,
}

impl Lookup {
    pub(super) fn new(scope: Scope, viewer: UserId, users: impl Iterator<Item = UserId>) -> Self {
        Self { viewer, scope, users: users.collect(), has_follows: false }
    }

    /// Also returns the version of the viewer's follows.
    pub(super) fn with_follows(self) -> Self {
        Self { has_follows: true, ..self }
    }
}

impl Players {
    pub(super) fn new(core: &Core) -> Self {
        Self {
            cached: quick_cache::sync::Cache::new(CACHED),
            // A request shows users of all shards, so its batch has no shard.
            lookups: Batches::start(&core.db, &Shards::one(), core.writer_settings, WAITING, vec![Lookups]),
        }
    }

    /// Returns users as a leaderboard of this version shows them.
    pub(super) async fn of(&self, version: Option<&str>, lookup: Lookup) -> Result<Shown, BatchError> {
        let (scope, viewer) = (lookup.scope, lookup.viewer);
        let (mut players, mut unknown) = (HashMap::new(), HashSet::new());
        for &user in &lookup.users {
            if players.contains_key(&user) || unknown.contains(&user) {
                continue;
            }
            match self.cached.get(&(scope, user)) {
                Some(cached) if Some(&*cached.version) == version && cached.read_at.elapsed() < CACHED_FOR => {
                    players.insert(user, cached.player);
                }
                _ => {
                    unknown.insert(user);
                }
            }
        }
        let read_at = Instant::now();
        let lookup = Lookup { users: unknown.into_iter().collect(), ..lookup };
        let found = self.lookups.write(viewer.0, lookup).await?;
        for player in found.players {
            if let Some(version) = version {
                let (player, version) = (player.clone(), version.to_owned());
                self.cached.insert((scope, player.user_id), Cached { player, version, read_at });
            }
            players.insert(player.user_id, player);
        }
        for blocked in found.blocked {
            players.remove(&blocked);
        }
        Ok(Shown { players, follows_version: found.follows_version })
    }
}

impl Write for Lookups {
    type Entry = Lookup;
    type Key = ();
    type Outcome = Found;

    const BATCHES: &'static str = "matchday_player_lookup_batches_total";

    fn key(_: &Lookup) -> Option<()> {
        None
    }

    async fn write(&self, connection: &mut PgConnection, lookups: &[Lookup], _: Attempt) -> sqlx::Result<Vec<Found>> {
        let mut viewers: Vec<i64> = lookups.iter().map(|lookup| lookup.viewer.0).collect();
        viewers.sort_unstable();
        viewers.dedup();
        let mut blocked: HashMap<UserId, Vec<UserId>> = HashMap::new();
        for (viewer, other) in store::blocked(&mut *connection, &viewers).await? {
            blocked.entry(viewer).or_default().push(other);
        }
        let mut following: Vec<i64> =
            lookups.iter().filter(|lookup| lookup.has_follows).map(|lookup| lookup.viewer.0).collect();
        following.sort_unstable();
        following.dedup();
        let versions =
            if following.is_empty() { HashMap::new() } else { follows::versions(&mut *connection, &following).await? };
        let mut users: Vec<i64> = lookups.iter().flat_map(|lookup| &lookup.users).map(|user| user.0).collect();
        users.sort_unstable();
        users.dedup();
        let (mut names, mut settled) = (HashMap::new(), HashMap::new());
        if !users.is_empty() {
            let scopes: HashSet<Scope> = lookups.iter().map(|lookup| lookup.scope).collect();
            let scopes: Vec<String> = scopes.iter().map(Scope::to_string).collect();
            names =
                store::names(&mut *connection, &users).await?.into_iter().map(|name| (name.user_id, name)).collect();
            for row in store::settled(&mut *connection, &users, &scopes).await? {
                settled.insert((row.scope, row.user_id), row.settled);
            }
        }
        let found = |lookup: &Lookup| {
            let scope = lookup.scope.to_string();
            let player = |user: &UserId| {
                let settled = settled.get(&(scope.clone(), *user)).copied();
                names.get(user).map(|name| Player { settled, ..name.clone() })
            };
            let blocked = blocked.get(&lookup.viewer).cloned().unwrap_or_default();
            let version = || versions.get(&lookup.viewer).copied().unwrap_or_default();
            let follows_version = lookup.has_follows.then(version);
            Found { players: lookup.users.iter().filter_map(player).collect(), blocked, follows_version }
        };
        Ok(lookups.iter().map(found).collect())
    }
}
