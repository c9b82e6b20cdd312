//! Checks, suggests and claims usernames.

use std::{collections::HashSet, sync::Arc, time::Duration};

use futures_util::future::join_all;
use matrix_appservice::{CredentialIssuer, Error as MatrixError};
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

/// Number of suggestions in a response.
const SUGGESTIONS: usize = 5;
/// Timeout for the homeserver lookup of a name.
const LOOKUP_TIMEOUT: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Usernames {
    db: PgPool,
    limiter: RateLimiter,
    requests: Limit,
    /// Username of the service's bot in chat.
    bot: String,
    issuer: Option<Arc<dyn CredentialIssuer>>,
    clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
}

/// Permission for one username request. [`Usernames::check`] and [`Usernames::suggest`] require it as an argument, so
/// callers cannot skip the rate limit.
#[derive(Debug)]
pub struct NamePermit {
    /// Remaining allowance of the network.
    pub limit: Decision,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Availability {
    Free,
    /// Taken or reserved, with available alternatives.
    Taken(Vec<Username>),
}

impl Usernames {
    pub fn new(core: &Core, network_names: u32, bot: String, issuer: Option<Arc<dyn CredentialIssuer>>) -> Self {
        let Core { db, clock, random, limits: limiter, .. } = core.clone();
        let scale = core.env.leniency();
        let requests =
            Limit { name: "names", burst: network_names.saturating_mul(scale), every: Duration::from_secs(2) / scale };
        Self { db, limiter, requests, bot, issuer, clock, random }
    }

    /// Checks whether a name is available, and suggests similar names if it is not.
    pub async fn check(&self, username: &Username, _: NamePermit) -> sqlx::Result<Availability> {
        let taken = self.is_reserved(username)
            || !store::taken(&self.db, &[username.as_str().to_owned()]).await?.is_empty()
            || self.is_foreign(username).await;
        if !taken {
            return Ok(Availability::Free);
        }
        Ok(Availability::Taken(self.free(username.as_str(), true).await?))
    }

    /// Suggests available names based on any text.
    pub async fn suggest(&self, base: &str, numbers: bool, _: NamePermit) -> sqlx::Result<Vec<Username>> {
        self.free(base, numbers).await
    }

    /// Charges the network's limit, which prevents a caller from enumerating the names of all accounts.
    pub async fn permit(&self, network: ClientNetwork) -> Result<NamePermit, Decision> {
        let limit = network.take(&self.limiter, self.requests).await;
        if limit.allowed { Ok(NamePermit { limit }) } else { Err(limit) }
    }

    /// Generates increasing numbers of candidates until enough of them are available.
    async fn free(&self, base: &str, numbers: bool) -> sqlx::Result<Vec<Username>> {
        let mut random = || u64::from_ne_bytes(random::bytes(&*self.random));
        let mut found: Vec<Username> = Vec::new();
        // If hundreds of names made from the base are taken, fall back to generated names.
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

    /// Whether the homeserver has an account of this name that is unknown to this service: it existed there before, or
    /// a restored database has lost it. An account without devices was created by a request of ours whose response was
    /// lost, so it does not count. While the homeserver is unavailable, no name counts as foreign.
    pub async fn is_foreign(&self, name: &Username) -> bool {
        let Some(issuer) = self.issuer.as_ref().filter(|issuer| !issuer.is_breaker_open()) else { return false };
        match tokio::time::timeout(LOOKUP_TIMEOUT, issuer.devices(name.as_str())).await {
            Ok(Ok(devices)) => !devices.is_empty(),
            Ok(Err(MatrixError::Deactivated(_))) => true,
            Ok(Err(_)) | Err(_) => false,
        }
    }

    /// Claims a name in the caller's transaction. Returns whether the name was available.
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

    /// Whether users may not take the name. A user with the bot's name would become the bot in chat.
    fn is_reserved(&self, name: &Username) -> bool {
        rules::is_reserved(name) || name.as_str() == self.bot
    }

    /// Generates and claims a name for a user who chose none.
    pub async fn claim_invented_in(&self, connection: &mut PgConnection, user: UserId) -> sqlx::Result<Username> {
        let mut random = || u64::from_ne_bytes(random::bytes(&*self.random));
        for attempt in 0.. {
            let username = rules::invent(attempt, &mut random);
            if !self.is_reserved(&username) && store::claim(connection, &username, user, self.clock.now()).await? {
                return Ok(username);
            }
        }
        // Unreachable: there are more names than the counter has values.
        Err(sqlx::Error::RowNotFound)
    }
}
