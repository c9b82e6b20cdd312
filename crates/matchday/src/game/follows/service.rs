//! Follows between users.

use std::{
    collections::{HashMap, HashSet},
    sync::Arc,
    time::Duration,
};

use futures_util::future::BoxFuture;
use platform::{
    Core,
    clock::Clock,
    database,
    rate_limit::{Decision, Limit, RateLimiter},
    reads::Reader,
    shards::Shards,
};
use sqlx::{PgConnection, PgPool};
use time::OffsetDateTime;
use web::ids::UserId;

use super::{
    rules::{self, FOLLOWING_SLOT, FollowCursor, FollowPaging},
    settings::Settings,
    store::{self, FollowRow},
};
use crate::{
    chat::{blocks, moderation::hooks::EndsFollows, visibility},
    identity::{
        account_deletion::hooks,
        accounts::{self, Person, UserSegment, service::Accounts},
    },
};

/// Follows of a deleted user that one transaction deletes.
const FORGOTTEN_AT_ONCE: i64 = 200;
/// Followers that one statement of an export reads.
const EXPORTED_AT_ONCE: i64 = 10_000;
/// Number of times that a page reads more rows, because the lists leave users out.
const READS_PER_PAGE: usize = 5;

/// Service for follows. Cheap to clone.
#[derive(Clone)]
pub struct Follows {
    inner: Arc<Inner>,
}

struct Inner {
    db: PgPool,
    shards: Shards,
    accounts: Accounts,
    clock: Arc<dyn Clock>,
    limiter: RateLimiter,
    limit: Limit,
    most: i64,
}

/// A follow, in a list of one of its users.
#[derive(Clone, Debug)]
pub struct Follow {
    /// The other user.
    pub person: Person,
    pub followed_at: OffsetDateTime,
    /// Whether the caller follows the other user.
    pub is_following: bool,
    /// Whether the other user follows the caller.
    pub follows_me: bool,
}

/// A page of a list of follows.
#[derive(Clone, Debug)]
pub struct FollowPage {
    pub follows: Vec<Follow>,
    pub next: Option<FollowCursor>,
    /// Number of all follows, including suspended users.
    pub total: i64,
}

/// Numbers of follows of a user.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FollowCounts {
    pub followers: i64,
    pub following: i64,
}

/// The lists of a user.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FollowList {
    /// Users whom the user follows.
    Following,
    /// Users who follow the user.
    Followers,
}

/// Users whom a user follows.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Followed {
    pub users: Vec<UserId>,
    /// Grows with each change of the list.
    pub version: i64,
}

#[derive(Debug, thiserror::Error)]
pub enum FollowError {
    /// The user does not exist, or is invisible to the caller.
    #[error("the user does not exist")]
    NoSuchUser,
    #[error("users cannot follow themselves")]
    SelfFollow,
    /// The caller follows the maximum number of users.
    #[error("the user follows too many users")]
    TooMany,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
}

impl Follows {
    pub fn new(core: &Core, accounts: Accounts, settings: &Settings) -> Self {
        let leniency = core.env.leniency();
        let limit = Limit { name: "follow", burst: 60 * leniency, every: Duration::from_secs(1) / leniency };
        Self::with_limit(core, accounts, settings, limit)
    }

    pub(super) fn with_limit(core: &Core, accounts: Accounts, settings: &Settings, limit: Limit) -> Self {
        let Core { db, shards, clock, limits: limiter, .. } = core.clone();
        Self { inner: Arc::new(Inner { db, shards, accounts, clock, limiter, limit, most: settings.max.into() }) }
    }

    /// Charges one request to the user's rate limit.
    pub async fn permit(&self, user: UserId) -> Decision {
        self.inner.limiter.take(self.inner.limit, &user.to_string()).await
    }

    /// Follows a user. Repeating it changes nothing.
    pub async fn follow(&self, user: UserId, segment: &UserSegment) -> Result<Follow, FollowError> {
        let inner = &*self.inner;
        let found = visibility::find_visible(&inner.db, &inner.accounts, user, segment).await?;
        let other = found.ok_or(FollowError::NoSuchUser)?;
        if other.id == user {
            return Err(FollowError::SelfFollow);
        }
        let mut tx = database::begin(&inner.db).await?;
        // Serialises the follows of this user for the maximum. A block between the two users holds this lock too, so it
        // is found here, or deletes the follow.
        if !accounts::lock(&mut tx, user).await? || blocks::exists_between(&mut *tx, user, other.id).await? {
            return Err(FollowError::NoSuchUser);
        }
        let followed_at = if let Some(followed_at) = store::followed_at(&mut *tx, user, other.id).await? {
            followed_at
        } else {
            if store::counts(&mut *tx, user).await?.following >= inner.most {
                return Err(FollowError::TooMany);
            }
            let followed_at = store::insert(&mut tx, user, other.id, inner.clock.now()).await?;
            let shards = inner.shards.get(&mut tx).await?;
            for change in rules::count_changes(shards, [(user, other.id)], 1) {
                store::add_to_counts(&mut tx, change).await?;
            }
            followed_at
        };
        let follows_me = store::follows(&mut *tx, other.id, user).await?;
        tx.commit().await?;
        Ok(Follow { person: other.person(user), followed_at, is_following: true, follows_me })
    }

    /// Ends a follow, if there is one.
    pub async fn unfollow(&self, user: UserId, segment: &UserSegment) -> Result<(), FollowError> {
        let inner = &*self.inner;
        let other = inner.accounts.at(segment).await?.ok_or(FollowError::NoSuchUser)?.id;
        let mut tx = database::begin(&inner.db).await?;
        accounts::lock(&mut tx, user).await?;
        self.end_in(&mut tx, &[(user, other)]).await?;
        tx.commit().await?;
        Ok(())
    }

    /// Returns a page of a user's list, newest follows first.
    pub async fn list(
        &self,
        reader: &Reader,
        user: UserId,
        list: FollowList,
        paging: FollowPaging,
    ) -> sqlx::Result<FollowPage> {
        let now = self.inner.clock.now();
        reader.read(async |db| page(&db, user, list, paging, now).await).await
    }

    /// Returns the numbers of follows of a user.
    pub async fn counts(&self, reader: &Reader, user: UserId) -> sqlx::Result<FollowCounts> {
        reader.read(async |db| store::counts(&db, user).await).await
    }

    /// Whether one user follows the other.
    pub async fn is_following(&self, user: UserId, other: UserId) -> sqlx::Result<bool> {
        store::follows(&self.inner.db, user, other).await
    }

    /// Returns all users whom a user follows. Their number is limited.
    pub async fn followed_by(&self, reader: &Reader, user: UserId) -> sqlx::Result<Followed> {
        reader.read(async |db| store::followed_by(&db, user).await).await
    }

    /// Deletes follows, each given as the follower and the followed user, and subtracts those that existed from the counts.
    async fn end_in(&self, connection: &mut PgConnection, pairs: &[(UserId, UserId)]) -> sqlx::Result<()> {
        let mut ended = Vec::with_capacity(pairs.len());
        for &(follower, followed) in pairs {
            if store::delete(connection, follower, followed).await? {
                ended.push((follower, followed));
            }
        }
        let shards = self.inner.shards.get(connection).await?;
        for change in rules::count_changes(shards, ended, -1) {
            store::take_from_counts(connection, change).await?;
        }
        Ok(())
    }

    /// Deletes the follows of a deleted user, see [`hooks::Follows`].
    async fn forget_all(&self, user: UserId) -> sqlx::Result<()> {
        for list in [FollowList::Following, FollowList::Followers] {
            let mut after = UserId(0);
            // Each page starts after the previous one. Otherwise it would first skip all rows that were just deleted, as long
            // as an older snapshot prevents their removal from the index.
            while let Some(last) = self.forget_page(user, list, after).await? {
                after = last;
            }
        }
        store::delete_counts(&self.inner.db, user).await
    }

    /// Deletes a page of a deleted user's list, with few statements, because there can be millions of followers. Returns the
    /// last user of the page; `None` if the list has no user after `after`.
    async fn forget_page(&self, user: UserId, list: FollowList, after: UserId) -> sqlx::Result<Option<UserId>> {
        let inner = &*self.inner;
        let mut tx = database::begin(&inner.db).await?;
        // One process at a time deletes follows of this user: a statement for many rows locks them in no defined order.
        accounts::lock(&mut tx, user).await?;
        let page = match list {
            FollowList::Following => store::followed_after(&mut *tx, user, after, FORGOTTEN_AT_ONCE).await?,
            FollowList::Followers => store::followers_after(&mut *tx, user, after, FORGOTTEN_AT_ONCE).await?,
        };
        let Some(&end) = page.last() else { return Ok(None) };
        let others: Vec<i64> = page.iter().map(|other| other.0).collect();
        // Counts of the others only: those of the deleted user are deleted afterwards.
        let (ended, slot, change) = match list {
            FollowList::Following => {
                (store::delete_followed(&mut tx, user, &others).await?, rules::slot_of(user), (-1, 0))
            }
            FollowList::Followers => (store::delete_followers(&mut tx, user, &others).await?, FOLLOWING_SLOT, (0, -1)),
        };
        // In the same order as `rules::count_changes`. A statement can lock rows of one shard only.
        let groups = inner.shards.get(&mut tx).await?.group(&ended);
        for users in &groups {
            store::lock_counts(&mut tx, users, slot).await?;
            store::take_from_counts_of(&mut tx, users, slot, change).await?;
        }
        tx.commit().await?;
        Ok(Some(end))
    }
}

impl EndsFollows for Follows {
    fn end_between_in<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        one: UserId,
        other: UserId,
    ) -> BoxFuture<'a, sqlx::Result<()>> {
        // In the same order for both users, because both may block each other at the same time.
        let (first, second) = (one.min(other), one.max(other));
        Box::pin(async move { self.end_in(connection, &[(first, second), (second, first)]).await })
    }
}

impl hooks::Follows for Follows {
    fn forget(&self, user: UserId) -> BoxFuture<'_, sqlx::Result<()>> {
        Box::pin(self.forget_all(user))
    }

    fn followers<'a>(
        &'a self,
        connection: &'a mut PgConnection,
        user: UserId,
    ) -> BoxFuture<'a, sqlx::Result<Vec<UserId>>> {
        Box::pin(async move {
            let mut followers: Vec<UserId> = Vec::new();
            loop {
                let after = followers.last().copied().unwrap_or(UserId(0));
                let page = store::followers_after(&mut *connection, user, after, EXPORTED_AT_ONCE).await?;
                if page.is_empty() {
                    return Ok(followers);
                }
                followers.extend(page);
            }
        })
    }
}

/// Returns the versions of the lists of followed users, for users who have followed anyone.
pub async fn versions(connection: &mut PgConnection, users: &[i64]) -> sqlx::Result<HashMap<UserId, i64>> {
    store::versions(connection, users).await
}

/// Reads a page. Rows of deleted and suspended users are left out, so it may read several times. A page can be short and
/// still have a next one.
async fn page(
    db: &PgPool,
    user: UserId,
    list: FollowList,
    paging: FollowPaging,
    now: OffsetDateTime,
) -> sqlx::Result<FollowPage> {
    let limit = usize::try_from(paging.limit).unwrap_or(usize::MAX);
    let (mut follows, mut after, mut has_more) = (Vec::new(), paging.after, true);
    for _ in 0..READS_PER_PAGE {
        // Reads one row more than the page, to learn whether there is a next page.
        let mut rows = match list {
            FollowList::Following => store::list_followed(db, user, after, paging.limit + 1).await?,
            FollowList::Followers => store::list_followers(db, user, after, paging.limit + 1).await?,
        };
        has_more = rows.len() > limit;
        rows.truncate(limit);
        let ids: Vec<i64> = rows.iter().map(|row| row.user.0).collect();
        let mut people = accounts::people(db, &ids, now).await?;
        let mutual: HashSet<UserId> = match list {
            FollowList::Following => store::followers_among(db, user, &ids).await?,
            FollowList::Followers => store::followed_among(db, user, &ids).await?,
        };
        let mut rows = rows.into_iter();
        while follows.len() < limit
            && let Some(FollowRow { user: other, followed_at }) = rows.next()
        {
            after = Some(FollowCursor { followed_at, user: other });
            if let Some(person) = people.remove(&other) {
                let is_mutual = mutual.contains(&other);
                follows.push(Follow {
                    person: person.shown_to(user),
                    followed_at,
                    is_following: list == FollowList::Following || is_mutual,
                    follows_me: list == FollowList::Followers || is_mutual,
                });
            }
        }
        has_more |= rows.len() > 0;
        if !has_more || follows.len() == limit {
            break;
        }
    }
    let counts = store::counts(db, user).await?;
    let total = if list == FollowList::Following { counts.following } else { counts.followers };
    Ok(FollowPage { follows, next: after.filter(|_| has_more), total })
}
