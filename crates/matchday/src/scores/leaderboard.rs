//! Who has earned the most: of everybody by the boards in Redis, of a room's members by the database.

use std::{collections::HashMap, sync::Arc};

use platform::{Core, clock::Clock};
use sqlx::PgPool;
use web::ids::{TournamentId, UserId};

use super::{
    boards::{BoardError, Boards, NEIGHBOURS, Place, View},
    rules::Scope,
    store::{self, Player, RoomLine},
};
use crate::rooms::service::Room;

/// The leaderboards, for those who look at them.
#[derive(Clone)]
pub struct Leaderboards {
    db: PgPool,
    boards: Boards,
    clock: Arc<dyn Clock>,
}

/// The time that a table is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Period {
    /// All of it.
    #[default]
    All,
    /// The present month by UTC.
    Month,
    /// The present week by UTC, from Monday.
    Week,
}

/// Which table is wanted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Table {
    /// Of all matches of a time.
    Of(Period),
    /// Of a tournament.
    OfTournament(TournamentId),
}

/// A leaderboard as one user sees it.
#[derive(Clone, Debug, Default)]
pub struct Leaderboard {
    /// How many have a place, also where they are not shown.
    pub total: i64,
    /// The first of them.
    pub top: Vec<Entry>,
    /// The user's own place.
    pub own: Option<Entry>,
    /// The places around the user's own, and that itself.
    pub neighbours: Vec<Entry>,
}

/// A place.
#[derive(Clone, Debug)]
pub struct Entry {
    /// Equal points share a rank.
    pub rank: i64,
    /// Whose.
    pub user_id: UserId,
    /// What they are called.
    pub username: String,
    /// The person's name.
    pub name: Option<String>,
    /// Points.
    pub points: i32,
    /// Scores that were right to the goal.
    pub exact: i32,
    /// Outcomes that were right.
    pub correct: i32,
    /// Matches with a result.
    pub settled: i32,
}

impl Leaderboards {
    /// Leaderboards of the scores in this database.
    pub fn new(core: &Core, boards: Boards) -> Self {
        Self { db: core.db.clone(), boards, clock: core.clock.clone() }
    }

    /// A table of everybody.
    pub async fn of_everybody(&self, table: Table, viewer: UserId, top: i64) -> Result<Leaderboard, BoardError> {
        let scope = self.scope(table);
        let view = self.view(scope, viewer, top).await?;
        let mut shown: Vec<i64> = view.top.iter().chain(&view.around).map(|place| place.user.0).collect();
        shown.sort_unstable();
        shown.dedup();
        if shown.is_empty() {
            return Ok(Leaderboard { total: view.total, ..Leaderboard::default() });
        }
        let players = store::players(&self.db, &shown, &scope.to_string(), viewer).await?;
        let players: HashMap<UserId, Player> = players.into_iter().map(|player| (player.user_id, player)).collect();
        // Who is not among the players is blocked, or is no more: their rank stays empty.
        let entry = |place: &Place| Some(entry(place, players.get(&place.user)?));
        let neighbours: Vec<Entry> = view.around.iter().filter_map(entry).collect();
        Ok(Leaderboard {
            total: view.total,
            top: view.top.iter().filter_map(entry).collect(),
            own: neighbours.iter().find(|entry| entry.user_id == viewer).cloned(),
            neighbours,
        })
    }

    async fn view(&self, scope: Scope, viewer: UserId, top: i64) -> Result<View, BoardError> {
        if let Some(view) = self.boards.look(scope, viewer, top).await? {
            return Ok(view);
        }
        // No board is filled for a tournament that somebody made up.
        if let Scope::Tournament(id) = scope
            && !store::is_tournament(&self.db, id).await?
        {
            return Ok(View::default());
        }
        self.boards.fill(scope).await;
        self.boards.look(scope, viewer, top).await?.ok_or(BoardError::Rebuilding)
    }

    /// A user's place among everybody in all matches, and how many have one.
    pub async fn place(&self, user: UserId) -> Result<Option<(Place, i64)>, BoardError> {
        let view = self.view(Scope::All, user, 1).await?;
        let place = view.around.into_iter().find(|place| place.user == user);
        Ok(place.map(|place| (place, view.total)))
    }

    /// A table of a room's members; for a match's own room, of all its stands.
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

    /// What a user has earned in all; 0 before anything.
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
        // Read a moment later than the rest, when it may be less; nobody is right more often than they predicted.
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
