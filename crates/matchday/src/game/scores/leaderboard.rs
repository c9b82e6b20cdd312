//! Leaderboards. Leaderboards of all users and of large rooms are read from Redis, small rooms from the database.

use std::sync::Arc;

use platform::{Core, clock::Clock, reads::Reader};
use sqlx::PgPool;
use web::ids::{RoomId, TournamentId, UserId};

use super::{
    leaderboard_cache::{LeaderboardCache, LeaderboardError, Place, View},
    players::Players,
    room_leaderboards::{LargeRoom, RoomLeaderboards},
    rules::{Scope, Standing},
    store::{self, Player, ScoreRow},
};
use crate::chat::{members, rooms::service::Room};

/// Reads leaderboards for users.
#[derive(Clone)]
pub struct Leaderboards {
    db: PgPool,
    boards: LeaderboardCache,
    room_boards: RoomLeaderboards,
    players: Arc<Players>,
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
    pub name: Option<String>,
    pub points: i32,
    /// Number of exactly predicted scores.
    pub exact: i32,
    /// Number of correctly predicted outcomes.
    pub correct: i32,
    /// Number of predicted matches with a result.
    pub settled: i32,
}

impl Leaderboards {
    pub fn new(core: &Core, boards: LeaderboardCache, room_boards: RoomLeaderboards) -> Self {
        let players = Arc::new(Players::new(core));
        Self { db: core.db.clone(), boards, room_boards, players, clock: core.clock.clone() }
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
        let shown = view.top.iter().chain(&view.around).map(|place| place.user);
        let players = self.players.of(scope, view.version.as_deref(), shown, viewer).await?;
        // Blocked and deleted users are missing from `players`. They are skipped, and the ranks of the others do not
        // change.
        let entry = |place: &Place| Some(entry(place, players.get(&place.user)?));
        let neighbours: Vec<Entry> = view.around.iter().filter_map(entry).collect();
        Ok(Leaderboard {
            total: view.total,
            top: view.top.iter().filter_map(entry).collect(),
            own: neighbours.iter().find(|entry| entry.user_id == viewer).cloned(),
            neighbours,
        })
    }

    async fn view(&self, scope: Scope, viewer: UserId, top: i64) -> Result<View, LeaderboardError> {
        if let Some(view) = self.boards.look(scope, viewer, top).await? {
            return Ok(view);
        }
        if !self.exists(scope).await? {
            return Ok(View::default());
        }
        self.boards.fill(scope).await;
        self.boards.look(scope, viewer, top).await?.ok_or(LeaderboardError::Rebuilding)
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
        self.boards.fill(Scope::All).await;
        self.boards.places(Scope::All, users).await?.ok_or(LeaderboardError::Rebuilding)
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
        let standing = |row: &ScoreRow| Standing { points: row.points, exact: row.exact, correct: row.correct };
        let standings = scores.iter().map(|row| (UserId(row.user_id), standing(row))).collect();
        self.named(View::of(standings, viewer, top), scope, viewer).await
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

fn entry(place: &Place, player: &Player) -> Entry {
    let standing = place.standing;
    Entry {
        rank: place.rank,
        user_id: place.user,
        username: player.username.clone(),
        name: player.name.clone(),
        points: standing.points,
        exact: standing.exact,
        correct: standing.correct,
        // `settled` is read after `standing`, so a correction in between can make it smaller. It is never less than the
        // number of correct outcomes.
        settled: player.settled.unwrap_or_default().max(standing.correct),
    }
}
