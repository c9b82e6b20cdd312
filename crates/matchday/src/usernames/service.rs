//! Finding out which usernames are free, and claiming them.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use matrix_appservice::{Error as MatrixError, Homeserver};
use platform::{
    Core,
    clock::Clock,
    random::{self, Random},
    rate_limit::{Decision, Limit, RateLimiter},
};
use sqlx::{PgConnection, PgPool};
use web::{ClientNetwork, ids::UserId};

use super::{
    rules::{self, Username},
    store,
};

/// How many suggestions an answer has.
const SUGGESTIONS: usize = 5;
/// How long the homeserver is asked whether it has an account of a name.
const PATIENCE: Duration = Duration::from_secs(1);

/// The usernames of everybody.
#[derive(Clone)]
pub struct Usernames {
    db: PgPool,
    limiter: RateLimiter,
    asking: Limit,
    /// The name of the service's own chat user.
    bot: String,
    homeserver: Option<Homeserver>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// Leave to ask one thing about usernames.
#[derive(Debug)]
pub struct NamePermit {
    /// What is left to the network.
    pub limit: Decision,
}

/// Whether a username can be had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    /// Nobody has or had it.
    Free,
    /// It cannot be had; these can.
    Taken(Vec<Username>),
}

impl Usernames {
    /// Usernames in this database.
    pub fn new(core: &Core, network_names: u32, bot: String, homeserver: Option<Homeserver>) -> Self {
        let Core { db, clock, random, limits: limiter, .. } = core.clone();
        let scale = core.env.leniency();
        let asking =
            Limit { name: "names", burst: network_names.saturating_mul(scale), every: Duration::from_secs(2) / scale };
        Self { db, limiter, asking, bot, homeserver, clock, random }
    }

    /// Whether a name is free, and if not which similar ones are.
    pub async fn check(&self, username: &Username, _: NamePermit) -> sqlx::Result<Availability> {
        let taken = self.is_reserved(username)
            || !store::taken(&self.db, &[username.as_str().to_owned()]).await?.is_empty()
            || self.is_foreign(username).await;
        if !taken {
            return Ok(Availability::Free);
        }
        Ok(Availability::Taken(self.free(username.as_str(), true).await?))
    }

    /// Free names made from anything.
    pub async fn suggest(&self, base: &str, numbers: bool, _: NamePermit) -> sqlx::Result<Vec<Username>> {
        self.free(base, numbers).await
    }

    /// Takes from what a network may ask: the names of all accounts could be listed this way.
    pub async fn permit(&self, network: ClientNetwork) -> Result<NamePermit, Decision> {
        let limit = network.take(&self.limiter, self.asking).await;
        if limit.allowed { Ok(NamePermit { limit }) } else { Err(limit) }
    }

    /// Names that are truly free: more and more candidates are tried until enough are.
    async fn free(&self, base: &str, numbers: bool) -> sqlx::Result<Vec<Username>> {
        let mut random = || u64::from_ne_bytes(random::bytes(&*self.random));
        let mut found: Vec<Username> = Vec::new();
        // Where even hundreds made from the base are taken, words of ours help out.
        for (base, count) in [(base, 10), (base, 50), (base, 200), ("", 200)] {
            let candidates = rules::suggest(base, numbers, &mut random, count);
            let names: Vec<String> = candidates.iter().map(|name| name.as_str().to_owned()).collect();
            let taken: HashSet<String> = store::taken(&self.db, &names).await?.into_iter().collect();
            let mut free: Vec<Username> =
                candidates.into_iter().filter(|name| !taken.contains(name.as_str()) && !found.contains(name)).collect();
            free.truncate(SUGGESTIONS);
            let foreign = join_all(free.iter().map(|name| self.is_foreign(name))).await;
            for (name, is_foreign) in free.into_iter().zip(foreign) {
                if !is_foreign && !found.contains(&name) {
                    found.push(name);
                }
            }
            if found.len() >= SUGGESTIONS {
                break;
            }
        }
        found.truncate(SUGGESTIONS);
        Ok(found)
    }

    /// Whether the homeserver has an account of a name that this service does not know: somebody had it there before, or
    /// a restored database has forgotten it. An account without devices was made by a call of ours whose response was
    /// lost. While the homeserver is unavailable, no name is foreign.
    pub async fn is_foreign(&self, name: &Username) -> bool {
        let Some(homeserver) = self.homeserver.as_ref().filter(|homeserver| !homeserver.is_resting()) else {
            return false;
        };
        match tokio::time::timeout(PATIENCE, homeserver.devices(name.as_str())).await {
            Ok(Ok(devices)) => !devices.is_empty(),
            Ok(Err(MatrixError::Deactivated(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Claims a name in the caller's transaction; returns whether it could be had.
    pub async fn claim_in(
        &self,
        connection: &mut PgConnection,
        username: &Username,
        user: UserId,
    ) -> sqlx::Result<bool> {
        if self.is_reserved(username) {
            return Ok(false);
        }
        store::claim(connection, username, user, self.clock.now()).await
    }

    /// Whether nobody may have the name. Whoever had that of the service's own chat user would be it.
    fn is_reserved(&self, name: &Username) -> bool {
        rules::is_reserved(name) || name.as_str() == self.bot
    }

    /// Claims a name for somebody who gave none.
    pub async fn claim_invented_in(&self, connection: &mut PgConnection, user: UserId) -> sqlx::Result<Username> {
        let mut random = || u64::from_ne_bytes(random::bytes(&*self.random));
        for attempt in 0.. {
            let username = rules::invent(attempt, &mut random);
            if !self.is_reserved(&username) && store::claim(connection, &username, user, self.clock.now()).await? {
                return Ok(username);
            }
        }
        // There are more names than attempts can count.
        Err(sqlx::Error::RowNotFound)
    }
}
