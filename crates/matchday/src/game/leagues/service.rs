//! Creates, finds and changes leagues.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use platform::{
    Core,
    clock::Clock,
    database,
    outbox::{self, Message},
    random::Random,
    rate_limit::{Decision, Limit, RateLimiter},
    reads::Reader,
    settings::CodeKey,
};
use redis::aio::ConnectionManager;
use serde_json::json;
use sqlx::{PgConnection, PgExecutor, PgPool, Postgres, Transaction};
use time::OffsetDateTime;
use tokio::sync::Notify;
use web::{
    ClientNetwork,
    fields::Search,
    ids::{LeagueId, TournamentId, UserId},
    paging::Paging,
};

pub use super::{
    codes::InviteCode,
    rules::{CountsFrom, League, LeagueName, Position, TableRow, Visibility},
    table::{Ranking, TablePage},
};
use super::{
    codes::{CodeVault, StoredCode},
    recent::{Age, Recent},
    settings::Settings,
    store::{self, NewLeague, StoredLeague},
    sums::Member,
    table::{Shown, Tables},
    work::{ROOM, RoomWork},
};
use crate::{
    chat::rooms::group_rooms,
    game::scores::leaderboard_cache::LeaderboardError,
    identity::{
        accounts::Person,
        idempotency::KeyedRequest,
        operators::{self, Operator, service::Action},
    },
};

/// Rate limit per user for creating leagues.
const CREATIONS: Limit = Limit { name: "league", burst: 20, every: Duration::from_mins(1) };
/// Rate limit per user for unknown codes. At one a minute, a user needs sixteen years on average to hit one of 100,000
/// codes.
const GUESSES: Limit = Limit { name: "league_guess", burst: 10, every: Duration::from_mins(1) };
/// Rate limit per network for unknown codes.
const NETWORK_GUESSES: Limit = Limit { name: "league_guess_network", burst: 100, every: Duration::from_secs(6) };

/// Number of searches for public leagues whose totals are kept.
const KEPT_TOTALS: usize = 1_000;
/// Greatest number of members of a league with a chat room. The room is encrypted, and members join it one after the other.
const MOST_CHAT_MEMBERS: i32 = 1_000;

/// Leagues of users. Cheap to clone.
#[derive(Clone)]
pub struct Leagues {
    pub(super) inner: Arc<Inner>,
}

pub(super) struct Inner {
    pub(super) db: PgPool,
    pub(super) clock: Arc<dyn Clock>,
    random: Arc<dyn Random>,
    limits: RateLimiter,
    leniency: u32,
    vault: CodeVault,
    pub(super) tables: Tables,
    /// Numbers of public leagues, by pattern, and whether they were read for a reader that is bound to the primary.
    public_totals: Recent<(bool, Option<String>), i64>,
    pub(super) settings: Settings,
    pub(super) outbox_written: Arc<Notify>,
}

/// A league as requested by its future owner.
#[derive(Clone, Debug)]
pub struct Wish {
    pub name: LeagueName,
    /// Distinct ids.
    pub tournaments: Vec<TournamentId>,
    pub from_round: Option<i16>,
    pub from: Option<OffsetDateTime>,
    pub max_members: i32,
    pub visibility: Visibility,
    pub counts_from: CountsFrom,
    pub chat: bool,
}

/// How a user joins a league.
#[derive(Clone, Debug)]
pub enum Invitation {
    Code(InviteCode),
    /// A public league.
    League(LeagueId),
}

/// A league as seen by one user.
#[derive(Clone, Debug)]
pub struct LeagueView {
    pub league: League,
    pub owner: Person,
    /// The following are for members only.
    pub code: Option<InviteCode>,
    /// Matrix id of the chat room, once it exists.
    pub room: Option<String>,
    pub own: Option<OwnPlace>,
}

/// Place of the caller in a league.
#[derive(Clone, Copy, Debug)]
pub struct OwnPlace {
    pub is_owner: bool,
    pub rank: i64,
    pub points: i32,
    pub joined_at: OffsetDateTime,
}

/// A page of the table of a league, as seen by one user.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TableView {
    pub rows: Vec<(TableRow, Person)>,
    pub own: Option<(TableRow, Person)>,
    pub neighbours: Vec<(TableRow, Person)>,
    pub total_members: i32,
    pub round_complete: Option<bool>,
    pub winners: Vec<Person>,
    pub next: Option<Position>,
}

/// Reason why a request about a league was refused.
#[derive(Debug, thiserror::Error)]
pub enum LeagueError {
    /// The league does not exist, or the caller must not know that it does.
    #[error("the league does not exist")]
    NotFound,
    #[error("the user does not exist in this league")]
    NoSuchMember,
    #[error("a tournament does not exist")]
    NoSuchTournament,
    /// The league may have at most this many members.
    #[error("max_members is more than {0}")]
    TooLarge(i32),
    /// A league with this many members counts no matches by time.
    #[error("max_members is more than {0}, which matches by time allow")]
    TooLargeForTimes(i32),
    /// A league with a chat room may have at most this many members.
    #[error("max_members is more than {0}, which a chat room allows")]
    TooLargeForChat(i32),
    #[error("the league has more members")]
    BelowMembers,
    #[error("the caller belongs to too many leagues")]
    TooMany,
    #[error("the caller is a member already")]
    AlreadyMember,
    #[error("the caller was removed")]
    Removed,
    #[error("the owner has blocked the caller")]
    Blocked,
    #[error("the league is full")]
    Full,
    #[error("the caller is not a member")]
    NotAMember,
    #[error("the caller is not the owner")]
    NotTheOwner,
    #[error("the owner cannot leave other members")]
    OwnerCannotLeave,
    #[error("the owner cannot be removed")]
    IsOwner,
    #[error("the new owner is not another member")]
    NotAnHeir,
    #[error("too many unknown codes")]
    Limited(Decision),
    #[error("the idempotency key belongs to another request")]
    KeyUsed,
    /// The account was deleted while the request ran.
    #[error("the account of the caller was deleted")]
    AccountDeleted,
    /// No key encrypts codes.
    #[error("codes.keys is not set: codes cannot be stored")]
    NoKey,
    #[error(transparent)]
    Database(#[from] sqlx::Error),
    #[error(transparent)]
    Message(#[from] serde_json::Error),
    /// The table of a large league could not be read.
    #[error(transparent)]
    Table(#[from] LeaderboardError),
}

impl Leagues {
    pub fn new(core: &Core, redis: ConnectionManager, prefix: &str, keys: &[CodeKey], settings: &Settings) -> Self {
        let Core { db, clock, random, limits, env, outbox_written, .. } = core.clone();
        let inner = Inner {
            tables: Tables::new(core, redis, prefix, settings.large_from),
            public_totals: Recent::new(KEPT_TOTALS),
            db,
            clock,
            random,
            limits,
            leniency: env.leniency(),
            vault: CodeVault::new(keys),
            settings: settings.clone(),
            outbox_written,
        };
        Self { inner: Arc::new(inner) }
    }

    /// Applies the rate limit for creating leagues.
    pub async fn take_creation(&self, user: UserId) -> Decision {
        self.inner.limits.take(CREATIONS, &user.to_string()).await
    }

    /// Creates a league with the caller as owner and first member. A repeated request returns the same league.
    pub async fn create(
        &self,
        user: UserId,
        wish: &Wish,
        request: Option<KeyedRequest>,
    ) -> Result<LeagueView, LeagueError> {
        let inner = &*self.inner;
        let by_time = wish.from.is_some() || wish.counts_from == CountsFrom::Joined;
        self.check_size(wish.max_members, by_time, wish.chat)?;
        let mut tournaments: Vec<i64> = wish.tournaments.iter().map(|id| id.0).collect();
        tournaments.sort_unstable();
        if store::existing_tournaments(&inner.db, &tournaments).await? != i64::try_from(tournaments.len()).unwrap_or(-1)
        {
            return Err(LeagueError::NoSuchTournament);
        }
        let code = self.new_code()?;
        let new = NewLeague {
            name: wish.name.as_str(),
            owner: user,
            visibility: wish.visibility,
            counts_from: wish.counts_from,
            tournaments: &tournaments,
            from_round: wish.from_round,
            from: wish.from,
            max_members: wish.max_members,
            has_chat: wish.chat,
        };
        let mut tx = database::begin(&inner.db).await?;
        self.lock_user(&mut tx, user).await?;
        let id = if let Some(id) = self.of_request(&mut *tx, user, request).await? {
            id
        } else {
            self.check_number(&mut tx, user).await?;
            let id = store::insert(&mut tx, &new, &code, inner.clock.now(), request).await?;
            if wish.chat {
                request_room(&mut tx, id, user).await?;
            }
            id
        };
        tx.commit().await?;
        inner.outbox_written.notify_one();
        self.get(user, id).await
    }

    /// Returns the league that this request created or joined before.
    async fn of_request(
        &self,
        executor: impl PgExecutor<'_>,
        user: UserId,
        request: Option<KeyedRequest>,
    ) -> Result<Option<LeagueId>, LeagueError> {
        let Some(request) = request else { return Ok(None) };
        match store::of_request(executor, user, request).await? {
            Some((_, false)) => Err(LeagueError::KeyUsed),
            found => Ok(found.map(|(league, _)| league)),
        }
    }

    /// Checks the greatest number of members against the settings.
    fn check_size(&self, max_members: i32, by_time: bool, has_chat: bool) -> Result<(), LeagueError> {
        let settings = &self.inner.settings;
        let (most, exact) = (i32::try_from(settings.max_members).unwrap_or(i32::MAX), i32::from(settings.exact_limit));
        match max_members {
            wanted if wanted > most => Err(LeagueError::TooLarge(most)),
            wanted if by_time && wanted > exact => Err(LeagueError::TooLargeForTimes(exact)),
            wanted if has_chat && wanted > MOST_CHAT_MEMBERS => Err(LeagueError::TooLargeForChat(MOST_CHAT_MEMBERS)),
            _ => Ok(()),
        }
    }

    fn new_code(&self) -> Result<StoredCode, LeagueError> {
        let random = &*self.inner.random;
        self.inner.vault.seal(random, &InviteCode::make(random)).ok_or(LeagueError::NoKey)
    }

    /// Requests of one user run one after the other, so that the number of leagues is exact. A deleted account would keep
    /// its membership, because the worker that ends memberships may have run already.
    async fn lock_user(&self, connection: &mut PgConnection, user: UserId) -> Result<(), LeagueError> {
        if store::lock_user(connection, user).await? { Ok(()) } else { Err(LeagueError::AccountDeleted) }
    }

    async fn check_number(&self, connection: &mut PgConnection, user: UserId) -> Result<(), LeagueError> {
        let number = store::count_of_user(connection, user).await?;
        if number >= i64::from(self.inner.settings.per_user) { Err(LeagueError::TooMany) } else { Ok(()) }
    }

    /// Returns a page of leagues and their number: the caller's own, or the public ones that the caller can see.
    pub async fn list(
        &self,
        reader: &Reader,
        user: UserId,
        public: bool,
        search: Option<&Search>,
        paging: Paging,
    ) -> Result<(Vec<LeagueView>, i64), LeagueError> {
        let pattern = search.map(Search::pattern);
        let pattern = pattern.as_deref();
        let (leagues, total) = if public {
            let read = async |db: PgPool| {
                let hidden = store::blocked_either_way(&db, user).await?;
                let leagues = store::public(&db, user, &hidden, pattern, paging).await?;
                Ok((leagues, hidden))
            };
            let (leagues, hidden) = reader.read(read).await?;
            let total = self.public_total(reader, user, &hidden, pattern, (paging, leagues.len())).await?;
            (leagues, total)
        } else {
            let read = async |db: PgPool| {
                let mut tx = database::begin(&db).await?;
                let listed = store::of_user(&mut tx, user, pattern, paging).await?;
                tx.commit().await?;
                Ok(listed)
            };
            reader.read(read).await?
        };
        Ok((self.views(reader, user, leagues).await?, total))
    }

    /// Returns the number of public leagues that a user can see. It is counted only if the page does not tell. Readers of
    /// the replica share a count for a second. A reader that is bound to the primary shares only a count that began after
    /// its request, so it includes what the caller has written.
    async fn public_total(
        &self,
        reader: &Reader,
        user: UserId,
        hidden: &[i64],
        pattern: Option<&str>,
        (paging, listed): (Paging, usize),
    ) -> sqlx::Result<i64> {
        let (offset, listed) = (paging.offset(), i64::try_from(listed).unwrap_or_default());
        if listed < paging.limit() && (listed > 0 || offset == 0) {
            return Ok(offset + listed);
        }
        let is_bound = reader.is_bound_to_primary();
        let age = if is_bound { Age::Since(Instant::now()) } else { Age::Second };
        let count = reader.read(async |db| store::count_public(&db, pattern).await);
        let key = (is_bound, pattern.map(str::to_owned));
        let (all, _) = Box::pin(self.inner.public_totals.get(&key, age, count)).await?;
        let not_shown = if hidden.is_empty() {
            0
        } else {
            reader.read(async |db| store::count_hidden(&db, user, hidden, pattern).await).await?
        };
        Ok((all - not_shown).max(if listed == 0 { 0 } else { offset + listed }))
    }

    pub async fn get(&self, user: UserId, id: LeagueId) -> Result<LeagueView, LeagueError> {
        let league = self.visible(user, id).await?;
        self.view(&self.primary_reader(), user, league).await
    }

    pub(super) fn primary_reader(&self) -> Reader {
        Reader::of_primary(self.inner.db.clone())
    }

    /// Returns a league that the user can see.
    async fn visible(&self, user: UserId, id: LeagueId) -> Result<StoredLeague, LeagueError> {
        let db = &self.inner.db;
        let found = store::find(db, user, id).await?.ok_or(LeagueError::NotFound)?;
        if found.joined_at.is_some() {
            return Ok(found);
        }
        let is_hidden = found.league.visibility == Visibility::Private
            || store::blocked_either_way(db, user).await?.contains(&found.league.owner.0);
        if is_hidden { Err(LeagueError::NotFound) } else { Ok(found) }
    }

    async fn view(&self, reader: &Reader, user: UserId, stored: StoredLeague) -> Result<LeagueView, LeagueError> {
        self.views(reader, user, vec![stored]).await?.pop().ok_or(LeagueError::NotFound)
    }

    /// Returns leagues as a user sees them. Their owners, and the places of the user, are read together.
    async fn views(
        &self,
        reader: &Reader,
        user: UserId,
        leagues: Vec<StoredLeague>,
    ) -> Result<Vec<LeagueView>, LeagueError> {
        let owners: Vec<i64> = leagues.iter().map(|found| found.league.owner.0).collect();
        let owners = reader.read(async |db| store::players(&db, &owners).await).await?;
        let own: Vec<(&League, Member)> =
            leagues.iter().filter_map(|found| Some((&found.league, (user, found.joined_at?)))).collect();
        let places = self.inner.tables.places(reader, user, &own).await?;
        let view = |stored: StoredLeague| {
            let StoredLeague { league, code, room, joined_at, .. } = stored;
            let owner = owners.get(&league.owner).cloned().unwrap_or_else(|| Person {
                id: league.owner,
                username: String::new(),
                name: None,
                shows_name: true,
                avatar: None,
            });
            let owner = owner.shown_to(user);
            let Some(joined_at) = joined_at else {
                return LeagueView { league, owner, code: None, room: None, own: None };
            };
            let place = places.get(&league.id);
            let own = OwnPlace {
                is_owner: league.owner == user,
                rank: place.map_or(1, |place| place.rank),
                points: place.map_or(0, |place| place.points),
                joined_at,
            };
            LeagueView { league, owner, code: self.inner.vault.open(&code), room, own: Some(own) }
        };
        Ok(leagues.into_iter().map(view).collect())
    }

    /// Joins a league. Unknown codes are limited, for the user and for the network.
    pub async fn join(
        &self,
        user: UserId,
        network: ClientNetwork,
        invitation: &Invitation,
        request: Option<KeyedRequest>,
    ) -> Result<LeagueView, LeagueError> {
        let found = match invitation {
            Invitation::Code(code) => self.find_by_code(user, network, code).await?,
            Invitation::League(id) => {
                let found = self.visible(user, *id).await?;
                // A private league is joined by its code only, also by its members.
                if found.league.visibility == Visibility::Private {
                    return Err(LeagueError::NotFound);
                }
                found
            }
        };
        let (inner, league) = (&*self.inner, &found.league);
        if self.of_request(&inner.db, user, request).await? == Some(league.id) {
            return self.get(user, league.id).await;
        }
        if found.joined_at.is_some() {
            return Err(LeagueError::AlreadyMember);
        }
        if store::was_removed(&inner.db, league.id, user).await? {
            return Err(LeagueError::Removed);
        }
        if store::blocked_by(&inner.db, league.owner).await?.contains(&user.0) {
            return Err(LeagueError::Blocked);
        }
        let mut tx = database::begin(&inner.db).await?;
        self.lock_user(&mut tx, user).await?;
        if store::is_member(&mut *tx, league.id, user).await? {
            return Err(LeagueError::AlreadyMember);
        }
        // Only a member can be removed, so this cannot change any more.
        if store::was_removed(&mut *tx, league.id, user).await? {
            return Err(LeagueError::Removed);
        }
        self.check_number(&mut tx, user).await?;
        if !store::insert_member(&mut tx, league.id, user, inner.clock.now(), request).await? {
            return Err(LeagueError::AlreadyMember);
        }
        if found.has_chat {
            request_room(&mut tx, league.id, user).await?;
        }
        // Last, because racing joins wait for each other from here to the commit.
        if !store::take_place(&mut tx, league.id).await? {
            // The last member may have left since the league was read, which deletes it.
            let is_full = store::lock(&mut tx, league.id).await?.is_some();
            return Err(if is_full { LeagueError::Full } else { LeagueError::NotFound });
        }
        tx.commit().await?;
        inner.outbox_written.notify_one();
        self.get(user, league.id).await
    }

    async fn find_by_code(
        &self,
        user: UserId,
        network: ClientNetwork,
        code: &InviteCode,
    ) -> Result<StoredLeague, LeagueError> {
        let inner = &*self.inner;
        let (of_user, of_network) = (user.to_string(), network.to_string());
        let lenient = Limit {
            burst: NETWORK_GUESSES.burst * inner.leniency,
            every: NETWORK_GUESSES.every / inner.leniency,
            ..NETWORK_GUESSES
        };
        let limits = [(GUESSES, &of_user), (lenient, &of_network)];
        for (limit, key) in limits {
            let decision = inner.limits.take(limit, key).await;
            if !decision.allowed {
                return Err(LeagueError::Limited(decision));
            }
        }
        let found = store::find_by_code(&inner.db, user, &inner.vault.digests(code)).await?;
        // Only unknown codes count.
        if found.is_some() {
            for (limit, key) in limits {
                inner.limits.untake(limit, key).await;
            }
        }
        found.ok_or(LeagueError::NotFound)
    }

    /// Leaves a league. Deletes it if the user was the last member.
    pub async fn leave(&self, user: UserId, id: LeagueId) -> Result<(), LeagueError> {
        let found = self.visible(user, id).await?;
        if found.joined_at.is_none() {
            return Err(LeagueError::NotAMember);
        }
        let mut tx = database::begin(&self.inner.db).await?;
        let (owner, members) = store::lock(&mut tx, id).await?.ok_or(LeagueError::NotFound)?;
        if owner == user && members > 1 {
            return Err(LeagueError::OwnerCannotLeave);
        }
        self.end_membership(&mut tx, id, user, &found).await?;
        tx.commit().await?;
        self.inner.outbox_written.notify_one();
        Ok(())
    }

    /// Ends a membership of a locked league, and deletes the league without members.
    async fn end_membership(
        &self,
        connection: &mut PgConnection,
        id: LeagueId,
        user: UserId,
        found: &StoredLeague,
    ) -> Result<(), LeagueError> {
        if !store::delete_member(connection, id, user).await? {
            return Err(LeagueError::NotAMember);
        }
        if found.has_chat {
            group_rooms::end_role_in(connection, id, user).await?;
            request_room(connection, id, user).await?;
        }
        if store::lock(connection, id).await?.is_some_and(|(_, members)| members == 0) {
            store::delete(connection, id).await?;
        }
        Ok(())
    }

    /// Begins a transaction that locks a league of the caller until it ends. Refuses a league that the caller does not
    /// own, or must not know. Whether they know it is read before: a request never waits for a second connection while
    /// it has one.
    async fn begin_as_owner(
        &self,
        user: UserId,
        id: LeagueId,
    ) -> Result<(Transaction<'static, Postgres>, StoredLeague), LeagueError> {
        let found = self.visible(user, id).await?;
        let mut tx = database::begin(&self.inner.db).await?;
        let (owner, _) = store::lock(&mut tx, id).await?.ok_or(LeagueError::NotFound)?;
        if owner == user { Ok((tx, found)) } else { Err(LeagueError::NotTheOwner) }
    }

    /// Removes a member, who cannot join again.
    pub async fn remove(&self, user: UserId, id: LeagueId, member: UserId) -> Result<(), LeagueError> {
        let (mut tx, found) = self.begin_as_owner(user, id).await?;
        if member == user {
            return Err(LeagueError::IsOwner);
        }
        if !store::is_member(&mut *tx, id, member).await? {
            return Err(LeagueError::NoSuchMember);
        }
        store::insert_removal(&mut tx, id, member, self.inner.clock.now()).await?;
        self.end_membership(&mut tx, id, member, &found).await?;
        tx.commit().await?;
        self.inner.outbox_written.notify_one();
        Ok(())
    }

    /// Checks that a league exists and has this member.
    pub async fn check_member(&self, id: LeagueId, member: UserId) -> Result<(), LeagueError> {
        let found = store::find(&self.inner.db, member, id).await?.ok_or(LeagueError::NotFound)?;
        if found.joined_at.is_some() { Ok(()) } else { Err(LeagueError::NoSuchMember) }
    }

    /// Removes a member for an operator. The member cannot join again.
    pub async fn remove_by(&self, id: LeagueId, member: UserId, operator: &Operator) -> Result<(), LeagueError> {
        let found = store::find(&self.inner.db, member, id).await?.ok_or(LeagueError::NotFound)?;
        let now = self.inner.clock.now();
        let mut tx = database::begin(&self.inner.db).await?;
        let (owner, _) = store::lock(&mut tx, id).await?.ok_or(LeagueError::NotFound)?;
        if !store::is_member(&mut *tx, id, member).await? {
            return Err(LeagueError::NoSuchMember);
        }
        if owner == member {
            return Err(LeagueError::IsOwner);
        }
        store::insert_removal(&mut tx, id, member, now).await?;
        self.end_membership(&mut tx, id, member, &found).await?;
        let action = Action::new("league.remove_member", format!("league:{id}")).with(json!({"user_id": member}));
        operators::service::record(&mut tx, operator, &action, now).await?;
        tx.commit().await?;
        self.inner.outbox_written.notify_one();
        Ok(())
    }

    /// Replaces the code. The old one stops working at once.
    pub async fn rotate(&self, user: UserId, id: LeagueId) -> Result<InviteCode, LeagueError> {
        let stored = self.new_code()?;
        let (mut tx, _) = self.begin_as_owner(user, id).await?;
        store::set_code(&mut tx, id, &stored).await?;
        tx.commit().await?;
        self.inner.vault.open(&stored.encrypted).ok_or(LeagueError::NoKey)
    }

    pub async fn change(
        &self,
        user: UserId,
        id: LeagueId,
        name: Option<&LeagueName>,
        max_members: Option<i32>,
    ) -> Result<LeagueView, LeagueError> {
        let (mut tx, found) = self.begin_as_owner(user, id).await?;
        if let Some(most) = max_members {
            self.check_size(most, found.league.is_exact(), found.has_chat)?;
        }
        if !store::change(&mut tx, id, name.map(LeagueName::as_str), max_members).await? {
            return Err(LeagueError::BelowMembers);
        }
        tx.commit().await?;
        self.get(user, id).await
    }

    /// Makes another member the owner.
    pub async fn hand_over(&self, user: UserId, id: LeagueId, heir: UserId) -> Result<LeagueView, LeagueError> {
        let (mut tx, found) = self.begin_as_owner(user, id).await?;
        if heir == user || !store::is_member(&mut *tx, id, heir).await? {
            return Err(LeagueError::NotAnHeir);
        }
        set_owner(&mut tx, id, heir, &found).await?;
        tx.commit().await?;
        self.inner.outbox_written.notify_one();
        self.get(user, id).await
    }

    /// Returns a page of the table. Leaves out users whom the caller has blocked; the ranks of the others stay.
    pub async fn table(
        &self,
        reader: &Reader,
        user: UserId,
        id: LeagueId,
        page: TablePage,
    ) -> Result<TableView, LeagueError> {
        let StoredLeague { league, joined_at, .. } = self.visible(user, id).await?;
        let own = joined_at.map(|joined_at| (user, joined_at));
        let (shown, players) = self.inner.tables.shown(reader, &league, page, own).await?;
        let Shown { rows, own, neighbours, round_complete, winners, next } = shown;
        let blocked = store::blocked_by(&self.inner.db, user).await?;
        let named = |row: &TableRow| {
            let player = players.get(&row.user).filter(|_| !blocked.contains(&row.user.0))?;
            Some((*row, player.clone().shown_to(user)))
        };
        Ok(TableView {
            rows: rows.iter().filter_map(named).collect(),
            own: own.iter().find_map(named),
            neighbours: neighbours.iter().filter_map(named).collect(),
            total_members: league.member_count,
            round_complete,
            winners: winners.iter().filter_map(named).map(|(_, player)| player).collect(),
            next,
        })
    }

    /// Returns the leagues with the highest ids, at most `most`, that have both users as members.
    pub async fn shared(
        &self,
        reader: &Reader,
        user: UserId,
        other: UserId,
        most: i64,
    ) -> sqlx::Result<Vec<(LeagueId, String)>> {
        reader.read(async |db| store::shared_leagues(&db, user, other, most).await).await
    }

    /// Ends all memberships of a user whose account was deleted. Their leagues go to the member who joined first.
    pub(super) async fn end_all(&self, user: UserId) -> Result<(), LeagueError> {
        let db = &self.inner.db;
        for id in store::leagues_of(db, user).await? {
            let mut tx = database::begin(db).await?;
            let Some((owner, _)) = store::lock(&mut tx, id).await? else { continue };
            let Some(found) = store::find(&mut *tx, user, id).await? else { continue };
            if owner == user
                && let Some(heir) = store::oldest_member(&mut tx, id, user).await?
            {
                set_owner(&mut tx, id, heir, &found).await?;
            }
            self.end_membership(&mut tx, id, user, &found).await?;
            tx.commit().await?;
        }
        self.inner.outbox_written.notify_one();
        Ok(())
    }
}

async fn set_owner(
    connection: &mut PgConnection,
    league: LeagueId,
    owner: UserId,
    found: &StoredLeague,
) -> sqlx::Result<()> {
    store::set_owner(connection, league, owner).await?;
    if found.has_chat {
        group_rooms::hand_over_in(connection, league, owner).await?;
    }
    Ok(())
}

/// Requests that the room of a league follows the membership of a user.
pub(super) async fn request_room(
    connection: &mut PgConnection,
    league: LeagueId,
    user: UserId,
) -> Result<(), LeagueError> {
    let work = RoomWork { league_id: league, user_id: Some(user) };
    outbox::enqueue(connection, &[Message::new(ROOM, format!("league:{league}"), &work)?]).await?;
    Ok(())
}
