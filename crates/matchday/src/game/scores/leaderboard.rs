//! Leaderboards. Leaderboards of all users, of followed users and of large rooms are read from Redis, small rooms from the
//! database.

use std::{collections::HashMap, sync::Arc};

use platform::{Core, clock::Clock, reads::Reader};
use sqlx::PgPool;
use web::ids::{RoomId, TournamentId, UserId};

use super::{
    among::FollowedViews,
    leaderboard_cache::{LeaderboardCache, LeaderboardError, Place, View},
    players::{Lookup, Players},
    room_leaderboards::{LargeRoom, RoomLeaderboards},
    rules::{Scope, Standing},
    store::{self, Player, ScoreRow},
};
use crate::{
    chat::{members, rooms::service::Room},
    game::follows::service::Follows,
    identity::avatars::AvatarKey,
};

/// Reads leaderboards for users.
#[derive(Clone)]
pub struct Leaderboards {
    db: PgPool,
    boards: LeaderboardCache,
    room_boards: RoomLeaderboards,
    players: Arc<Players>,
    followed_views: Arc<FollowedViews>,
    clock: Arc<dyn Clock>,
}

/// Period that a leaderboard covers.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Period {
    #[default]
    All,
    /// The current month (UTC).
    Month,
    /// The current week (UTC), from Monday.
    Week,
}

/// Matches that a leaderboard covers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// All matches of a period.
    Of(Period),
    /// All matches of a tournament.
    OfTournament(TournamentId),
    /// All matches of a round of a tournament.
    OfRound(TournamentId, i16),
}

/// A leaderboard as seen by one user.
#[derive(Clone, Debug, Default)]
pub struct Leaderboard {
    /// Number of users on the leaderboard, including users that are not shown.
    pub total: i64,
    pub top: Vec<Entry>,
    /// The viewer's own entry.
    pub own: Option<Entry>,
    /// The viewer's entry and the entries around it.
    pub neighbours: Vec<Entry>,
}

/// A user on a leaderboard.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Users with equal points share a rank.
    pub rank: i64,
    pub user_id: UserId,
    pub username: String,
    /// `None` if the user hides it from the viewer.
    pub name: Option<String>,
    pub avatar: Option<AvatarKey>,
    pub points: i32,
    /// Number of exactly predicted scores.
    pub exact: i32,
    /// Number of correctly predicted outcomes.
    pub correct: i32,
    /// Number of predicted matches with a result.
    pub settled: i32,
}

/// A user's scores, as in the leaderboards.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Record {
    /// Zeros before the first result.
    pub all: RecordScore,
    /// Highest id first.
    pub tournaments: Vec<TournamentRecord>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TournamentRecord {
    pub id: TournamentId,
    pub name: String,
    pub score: RecordScore,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct RecordScore {
    pub points: i32,
    pub exact: i32,
    pub correct: i32,
    pub settled: i32,
}

impl Leaderboards {
    pub fn new(core: &Core, boards: LeaderboardCache, room_boards: RoomLeaderboards) -> Self {
        let players = Arc::new(Players::new(core));
        let followed_views = Arc::new(FollowedViews::new());
        Self { db: core.db.clone(), boards, room_boards, players, followed_views, clock: core.clock.clone() }
    }

    /// Returns the leaderboard of all users.
    pub async fn global(&self, table: Table, viewer: UserId, top: i64) -> Result<Leaderboard, LeaderboardError> {
        let scope = self.scope(table);
        let view = self.view(scope, viewer, top).await?;
        self.named(view, scope, viewer).await
    }

    /// Returns the leaderboard of a large room's members, a few seconds old. `id` is the id under which the room's data
    /// is stored.
    pub async fn of_large_room(
        &self,
        table: Table,
        (id, room): (RoomId, &Room),
        viewer: UserId,
        top: i64,
    ) -> Result<Leaderboard, LeaderboardError> {
        let scope = self.scope(table);
        if !self.exists(scope).await? {
            return Ok(Leaderboard::default());
        }
        let view = self.room_boards.view(LargeRoom { id, stand_of: room.stand_of() }, scope, viewer, top).await?;
        self.named(view, scope, viewer).await
    }

    /// Adds names to a view, and leaves out users whom the viewer has blocked.
    async fn named(&self, view: View, scope: Scope, viewer: UserId) -> Result<Leaderboard, LeaderboardError> {
        if view.top.is_empty() && view.around.is_empty() {
            return Ok(Leaderboard { total: view.total, ..Leaderboard::default() });
        }
        let lookup = Lookup::new(scope, viewer, shown(&view));
        let players = self.players.of(view.version.as_deref(), lookup).await?.players;
        Ok(with_players(&view, &players, viewer))
    }

    async fn view(&self, scope: Scope, viewer: UserId, top: i64) -> Result<View, LeaderboardError> {
        if let Some(view) = self.boards.look(scope, viewer, top).await? {
            return Ok(view);
        }
        if !self.exists(scope).await? {
            return Ok(View::default());
        }
        let missing = self.boards.fill(scope).await;
        self.boards.look(scope, viewer, top).await?.ok_or(missing)
    }

    /// Whether all matches of a round have a result or are void, and the scores include all results.
    pub async fn is_complete(&self, tournament: TournamentId, round: i16) -> sqlx::Result<bool> {
        Ok(store::round_state(&self.db, tournament, round).await?.is_complete())
    }

    /// Whether a scope exists. Unknown tournaments and rounds must not create leaderboards in Redis.
    async fn exists(&self, scope: Scope) -> sqlx::Result<bool> {
        match scope {
            Scope::Tournament(id) => store::is_tournament(&self.db, id).await,
            Scope::Round { tournament, round } => store::is_round(&self.db, tournament, round).await,
            Scope::All | Scope::Month { .. } | Scope::Week { .. } => Ok(true),
        }
    }

    /// Returns the places of these users on the all-time leaderboard, and the number of users on it. Users who are not
    /// on it are left out.
    pub async fn places(&self, users: &[UserId]) -> Result<(Vec<Place>, i64), LeaderboardError> {
        if let Some(places) = self.boards.places(Scope::All, users).await? {
            return Ok(places);
        }
        let missing = self.boards.fill(Scope::All).await;
        self.boards.places(Scope::All, users).await?.ok_or(missing)
    }

    /// Returns the leaderboard of a small room's members. For a stand of a match, it covers the members of all its
    /// stands.
    pub async fn of_room(
        &self,
        reader: &Reader,
        table: Table,
        room: &Room,
        viewer: UserId,
        top: i64,
    ) -> Result<Leaderboard, LeaderboardError> {
        let scope = self.scope(table);
        let read = async |db: PgPool| {
            let users = members::all(&db, room.id, room.stand_of()).await?;
            store::scores_of_users(&db, &scope.to_string(), &users).await
        };
        let scores = reader.read(read).await?;
        self.named(View::of(standings(&scores), viewer, top), scope, viewer).await
    }

    /// Returns the leaderboard of the viewer and the users whom the viewer follows. It is read from the database while Redis
    /// is unavailable or lacks the leaderboard.
    pub async fn among_followed(
        &self,
        (follows, reader): (&Follows, &Reader),
        table: Table,
        viewer: UserId,
        top: i64,
    ) -> Result<Leaderboard, LeaderboardError> {
        let scope = self.scope(table);
        match self.view_followed(follows, scope, viewer, top).await {
            Err(error) if error.allows_fallback() => {
                let followed = follows.followed_by(reader, viewer).await?.users;
                let users: Vec<i64> = followed.into_iter().chain([viewer]).map(|user| user.0).collect();
                let read = async |db: PgPool| store::scores_of_accounts(&db, &scope.to_string(), &users).await;
                let scores = reader.read(read).await?;
                self.named(View::of(standings(&scores), viewer, top), scope, viewer).await
            }
            result => result,
        }
    }

    async fn view_followed(
        &self,
        follows: &Follows,
        scope: Scope,
        viewer: UserId,
        top: i64,
    ) -> Result<Leaderboard, LeaderboardError> {
        let Some(version) = self.boards.current_version(scope).await? else {
            if !self.exists(scope).await? {
                return Ok(Leaderboard::default());
            }
            self.boards.start_filling(scope);
            return Err(LeaderboardError::Rebuilding);
        };
        let kept = self.followed_views.get(viewer, scope, &version);
        if let Some(kept) = kept {
            let (leaderboard, follows_version) = self.named_followed(&kept.view, scope, viewer, top).await?;
            if follows_version == kept.follows_version {
                return Ok(leaderboard);
            }
        }
        // A replica may not have the change that made the kept view outdated.
        let followed = follows.followed_by(&Reader::of_primary(self.db.clone()), viewer).await?;
        let made = self.followed_views.make(&self.boards, (viewer, scope), followed).await?;
        Ok(self.named_followed(&made.view, scope, viewer, top).await?.0)
    }

    /// Adds names to a view of followed users. Also returns the current version of the viewer's follows. A deleted user is
    /// left out, although the follow still exists for some seconds.
    async fn named_followed(
        &self,
        view: &View,
        scope: Scope,
        viewer: UserId,
        top: i64,
    ) -> Result<(Leaderboard, i64), LeaderboardError> {
        let mut view = view.clone();
        view.top.truncate(usize::try_from(top).unwrap_or_default());
        let lookup = Lookup::new(scope, viewer, shown(&view)).with_follows();
        let mut found = self.players.of(view.version.as_deref(), lookup).await?;
        found.players.retain(|_, player| !player.is_deleted);
        Ok((with_players(&view, &found.players, viewer), found.follows_version.unwrap_or_default()))
    }

    /// Returns a user's scores of all time and of the tournaments with the highest ids, at most `most`.
    pub async fn record(&self, reader: &Reader, user: UserId, most: usize) -> sqlx::Result<Record> {
        let read = async |db: PgPool| {
            let mut record = Record::default();
            let mut tournaments = Vec::new();
            for row in store::records(&db, user).await? {
                let score =
                    RecordScore { points: row.points, exact: row.exact, correct: row.correct, settled: row.settled };
                match row.scope.strip_prefix("tournament:").and_then(|id| id.parse().ok()) {
                    Some(id) => tournaments.push((TournamentId(id), score)),
                    None => record.all = score,
                }
            }
            tournaments.sort_unstable_by_key(|(id, _)| std::cmp::Reverse(*id));
            tournaments.truncate(most);
            let ids: Vec<i64> = tournaments.iter().map(|(id, _)| id.0).collect();
            let mut names = store::tournament_names(&db, &ids).await?;
            let with_name = |(id, score)| Some(TournamentRecord { id, name: names.remove(&id)?, score });
            record.tournaments = tournaments.into_iter().filter_map(with_name).collect();
            Ok(record)
        };
        reader.read(read).await
    }

    /// Returns a user's all-time points; 0 before their first settled prediction.
    pub async fn points(&self, user: UserId) -> sqlx::Result<i32> {
        Ok(store::points(&self.db, user, &Scope::All.to_string()).await?.unwrap_or_default())
    }

    fn scope(&self, table: Table) -> Scope {
        match table {
            Table::OfTournament(id) => Scope::Tournament(id),
            Table::OfRound(tournament, round) => Scope::Round { tournament, round },
            Table::Of(Period::All) => Scope::All,
            Table::Of(Period::Month) => Scope::month_of(self.clock.now()),
            Table::Of(Period::Week) => Scope::week_of(self.clock.now()),
        }
    }
}

fn standings(scores: &[ScoreRow]) -> Vec<(UserId, Standing)> {
    let standing = |row: &ScoreRow| Standing { points: row.points, exact: row.exact, correct: row.correct };
    scores.iter().map(|row| (UserId(row.user_id), standing(row))).collect()
}

/// Users whom a view shows.
fn shown(view: &View) -> impl Iterator<Item = UserId> {
    view.top.iter().chain(&view.around).map(|place| place.user)
}

/// Adds names to a view. Blocked users have none: they are skipped, and the ranks of the others do not change.
fn with_players(view: &View, players: &HashMap<UserId, Player>, viewer: UserId) -> Leaderboard {
    let entry = |place: &Place| Some(entry(place, players.get(&place.user)?, viewer));
    let neighbours: Vec<Entry> = view.around.iter().filter_map(entry).collect();
    Leaderboard {
        total: view.total,
        top: view.top.iter().filter_map(entry).collect(),
        own: neighbours.iter().find(|entry| entry.user_id == viewer).cloned(),
        neighbours,
    }
}

fn entry(place: &Place, player: &Player, viewer: UserId) -> Entry {
    let standing = place.standing;
    Entry {
        rank: place.rank,
        user_id: place.user,
        username: player.username.clone(),
        name: player.name.clone().filter(|_| player.shows_name || place.user == viewer),
        avatar: player.avatar.clone(),
        points: standing.points,
        exact: standing.exact,
        correct: standing.correct,
        // A correction between the reads of `standing` and `settled` can make `settled` smaller. So can a view among followed
        // users: its points may be later than its version, for which `settled` is cached. The next request finds another
        // version. `settled` is never less than the number of correct outcomes.
        settled: player.settled.unwrap_or_default().max(standing.correct),
    }
}
