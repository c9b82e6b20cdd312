//! Leaderboards of large rooms, copied to Redis (see [`super::copied_sets`]). Those of small rooms are sorted in the
//! database.

use std::time::Duration;

use platform::Core;
use redis::aio::ConnectionManager;
use sqlx::PgPool;
use web::ids::{MatchId, RoomId, UserId};

use super::{
    copied_sets::{self, CopiedSets, Filled, Kind, Listed, PAGE, SetWriter, Wanted, ranked},
    leaderboard_cache::{LeaderboardError, NEIGHBOURS, Place, READ, View},
    rules::{self, Scope, Standing},
    store::{self, ScoreRow},
};
use crate::chat::members;

const KIND: Kind = Kind { sets: &[""], pause_factor: 10 };
/// Time for which a leaderboard is kept if it is not requested.
const RETENTION: Duration = Duration::from_mins(10);

/// Reads everything that a response needs. `KEYS` are the set and its due time. The first value is -1 without a set, and
/// otherwise by how many milliseconds it is overdue.
const LOOK: &str = r"
local due = tonumber(redis.call('GET', KEYS[2]) or '')
if not due then return { -1, 0, {}, 0, 0, {} } end
return read(math.max(now - due, 0))
";

/// Reads and copies leaderboards of large rooms.
#[derive(Clone)]
pub struct RoomLeaderboards {
    db: PgPool,
    sets: CopiedSets,
    look: redis::Script,
}

/// A large room. The stands of a match are one room.
#[derive(Clone, Copy, Debug)]
pub struct LargeRoom {
    /// Id under which the leaderboards are stored.
    pub id: RoomId,
    /// The match, if the room is one of its stands.
    pub stand_of: Option<MatchId>,
}

impl View {
    /// Ranks these users, in any order, as seen by one user, with `top` entries at the top.
    pub(super) fn of(mut standings: Vec<(UserId, Standing)>, viewer: UserId, top: i64) -> Self {
        standings.sort_unstable_by_key(|(user, standing)| (standing.key(), user.0));
        let ranks = rules::ranks(0, 0, standings.iter().map(|(_, standing)| standing.points));
        let places: Vec<Place> =
            standings.into_iter().zip(ranks).map(|((user, standing), rank)| Place { user, rank, standing }).collect();
        let number = |count: i64| usize::try_from(count).unwrap_or_default();
        let around = match places.iter().position(|place| place.user == viewer) {
            None => Vec::new(),
            Some(own) => {
                let first = own.saturating_sub(number(NEIGHBOURS));
                places.iter().skip(first).take(own - first + 1 + number(NEIGHBOURS)).copied().collect()
            }
        };
        Self {
            total: i64::try_from(places.len()).unwrap_or(i64::MAX),
            top: places.into_iter().take(number(top)).collect(),
            around,
            version: None,
        }
    }
}

impl RoomLeaderboards {
    pub fn new(core: &Core, redis: ConnectionManager, prefix: &str) -> Self {
        Self {
            db: core.db.clone(),
            sets: CopiedSets::new(core, redis, prefix, KIND),
            look: copied_sets::script(&format!("{READ}{LOOK}")),
        }
    }

    /// Reads a room's leaderboard as seen by a user, with `top` entries at its top.
    pub async fn view(&self, room: LargeRoom, scope: Scope, user: UserId, top: i64) -> Result<View, LeaderboardError> {
        let name = format!("room:{}:{scope}", room.id.0);
        let found = self.look(&name, user, top).await?;
        let (wanted, db) = (Wanted { name: name.clone(), retention: RETENTION }, self.db.clone());
        let overdue = found.as_ref().map(|(_, overdue)| *overdue);
        let is_replaced = self.sets.refresh(wanted, overdue, move |writer| fill(db, room, scope, writer)).await;
        // If the copy takes longer than the wait for it, an old leaderboard is better than none.
        let current = if is_replaced { self.look(&name, user, top).await? } else { found };
        current.map(|(view, _)| view).ok_or(LeaderboardError::Rebuilding)
    }

    /// Returns the leaderboard and by how long it is overdue. Takes one round trip.
    async fn look(&self, name: &str, user: UserId, top: i64) -> Result<Option<(View, Duration)>, LeaderboardError> {
        let mut look = self.look.key(self.sets.set(name, ""));
        look.key(self.sets.due(name)).arg(&rules::member(user)[..]).arg(top).arg(NEIGHBOURS);
        let (overdue, total, top, first, ahead, around): (i64, i64, Listed, i64, i64, Listed) =
            self.sets.invoke(&look).await?;
        let view = || View { total, top: ranked(0, 0, &top), around: ranked(first, ahead, &around), version: None };
        Ok(u64::try_from(overdue).ok().map(|overdue| (view(), Duration::from_millis(overdue))))
    }
}

/// Writes the scores of all members. A member of several stands is written more than once, with the same result.
async fn fill(db: PgPool, room: LargeRoom, scope: Scope, writer: SetWriter) -> Result<Filled, LeaderboardError> {
    let scope = scope.to_string();
    for place in members::places(&db, room.id, room.stand_of).await? {
        let mut after = 0;
        loop {
            let users = members::members_after(&db, place, after, PAGE).await?;
            let Some(&last) = users.last() else { break };
            after = last;
            let scores = store::scores_of_users(&db, &scope, &users).await?;
            let standing = |row: &ScoreRow| Standing { points: row.points, exact: row.exact, correct: row.correct };
            let standings: Vec<(UserId, Standing)> =
                scores.iter().map(|row| (UserId(row.user_id), standing(row))).collect();
            writer.add(0, &standings).await?;
        }
    }
    Ok(Filled::Copied { note: String::new() })
}
