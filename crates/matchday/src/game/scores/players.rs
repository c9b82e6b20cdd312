//! Names and counts that leaderboards show for users.
//!
//! Requests that arrive while a query runs share the next one. Users are also cached for a few seconds, so at most so
//! long after a change a leaderboard shows the old name, or a deleted account. The number of counted predictions comes
//! with the version of the leaderboard, so it always fits the points. Blocks are never cached.

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

/// Users that one request shows.
#[derive(Clone)]
struct Lookup {
    viewer: UserId,
    scope: Scope,
    /// Users who are not cached.
    users: Vec<UserId>,
}

/// Result of a [`Lookup`].
struct Found {
    players: Vec<Player>,
    /// Users whom the viewer has blocked.
    blocked: Vec<UserId>,
}

impl Players {
    pub(super) fn new(core: &Core) -> Self {
        Self {
            cached: quick_cache::sync::Cache::new(CACHED),
            // A request shows users of all shards, so its batch has no shard.
            lookups: Batches::start(&core.db, &Shards::one(), core.writer_settings, WAITING, vec![Lookups]),
        }
    }

    /// Returns these users as a leaderboard of this version shows them. Leaves out deleted users and users whom the
    /// viewer has blocked.
    pub(super) async fn of(
        &self,
        scope: Scope,
        version: Option<&str>,
        users: impl IntoIterator<Item = UserId>,
        viewer: UserId,
    ) -> Result<HashMap<UserId, Player>, BatchError> {
        let (mut players, mut unknown) = (HashMap::new(), HashSet::new());
        for user in users {
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
        let lookup = Lookup { viewer, scope, users: unknown.into_iter().collect() };
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
        Ok(players)
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
            Found { players: lookup.users.iter().filter_map(player).collect(), blocked }
        };
        Ok(lookups.iter().map(found).collect())
    }
}
