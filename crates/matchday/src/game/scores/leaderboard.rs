//! Leaderboards. Global leaderboards are read from Redis, room leaderboards from the database.

use std::sync::Arc;

use platform::{Core, clock::Clock};
use sqlx::PgPool;
use web::ids::{TournamentId, UserId};

use super::{
    leaderboard_cache::{LeaderboardCache, LeaderboardError, NEIGHBOURS, Place, View},
    players::Players,
    rules::Scope,
    store::{self, Player, RoomLine},
};
use crate::chat::rooms::service::Room;

/// Reads leaderboards for users.
#[derive(Clone)]
pub struct Leaderboards {
    db: PgPool,
    boards: LeaderboardCache,
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
    pub fn new(core: &Core, boards: LeaderboardCache) -> Self {
        Self { db: core.db.clone(), boards, players: Arc::new(Players::new(core)), clock: core.clock.clone() }
    }

    /// Returns the leaderboard of all users.
    pub async fn global(&self, table: Table, viewer: UserId, top: i64) -> Result<Leaderboard, LeaderboardError> {
        let scope = self.scope(table);
        let view = self.view(scope, viewer, top).await?;
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
        // Unknown tournament ids must not create leaderboards in Redis.
        if let Scope::Tournament(id) = scope
            && !store::is_tournament(&self.db, id).await?
        {
            return Ok(View::default());
        }
        self.boards.fill(scope).await;
        self.boards.look(scope, viewer, top).await?.ok_or(LeaderboardError::Rebuilding)
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

    /// Returns the leaderboard of a room's members. For a stand of a match, it covers the members of all its stands.
    pub async fn of_room(&self, table: Table, room: &Room, viewer: UserId, top: i64) -> sqlx::Result<Leaderboard> {
        let scope = self.scope(table).to_string();
        let lines = store::room_board(&self.db, room, &scope, viewer, top, NEIGHBOURS).await?;
        let mut board = Leaderboard { total: lines.first().map_or(0, |line| line.total), ..Leaderboard::default() };
        for line in lines {
            let (position, own_position) = (line.position, line.own_position);
            let (Some(position), Some(entry)) = (position, entry_of_room(line)) else { continue };
            if own_position == Some(position) {
                board.own = Some(entry.clone());
            }
            if own_position.is_some_and(|own| (own - position).abs() <= NEIGHBOURS) {
                board.neighbours.push(entry.clone());
            }
            if position <= top {
                board.top.push(entry);
            }
        }
        Ok(board)
    }

    /// Returns a user's all-time points; 0 before their first settled prediction.
    pub async fn points(&self, user: UserId) -> sqlx::Result<i32> {
        Ok(store::points(&self.db, user, &Scope::All.to_string()).await?.unwrap_or_default())
    }

    fn scope(&self, table: Table) -> Scope {
        match table {
            Table::OfTournament(id) => Scope::Tournament(id),
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

fn entry_of_room(line: RoomLine) -> Option<Entry> {
    Some(Entry {
        rank: line.rank?,
        user_id: line.user_id?,
        username: line.username?,
        name: line.name,
        points: line.points?,
        exact: line.exact?,
        correct: line.correct?,
        settled: line.settled?,
    })
}
