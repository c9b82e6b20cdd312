//! Member statistics of rooms.
//!
//! Computing statistics reads every member. A request for a *small* room computes them itself, so every change shows at
//! once. A request for a *large* room reads a stored row instead, and costs the same for any number of members.
//!
//! Requests keep the row up to date: the first one that finds it due starts a computation in the background, and all
//! requests are served from the row meanwhile. A claim in the row allows one computation at a time over all processes,
//! and `due_at` at most one per interval. A request waits only if the row is missing or long overdue, because the room
//! was not read for a while. So statistics of a large room are a few seconds old.

use std::{
    cmp::Ordering,
    collections::BTreeMap,
    sync::Arc,
    time::{Duration, Instant},
};

use serde::{Deserialize, Serialize};
use time::OffsetDateTime;
use web::ids::{MatchId, RoomId, UserId};

use super::{
    census,
    service::{Inner, Room, RoomError, Rooms},
    store,
};
use crate::chat::blocks;

/// Rooms with more members are large.
pub(super) const SMALL: i64 = 200;
/// Number of stands whose members are counted to find out whether a match's room is large. With more stands, it is.
const STANDS_COUNTED: i64 = 4;
/// A member with activity within this time counts as active.
const ACTIVE_FOR: time::Duration = time::Duration::days(7);
/// Number of top predictors in a response.
const TOP: usize = 10;
/// Number of top predictors that are computed, because a response leaves out those whom the caller has blocked. All
/// members of a small room are among them.
const RANKED: i64 = SMALL;

/// Shortest pause between two computations.
const INTERVAL: Duration = Duration::from_secs(5);
/// The pause is also this many times as long as the computation took, to limit the load of very large rooms.
const PAUSE_FACTOR: u32 = 10;
/// A row that is overdue by less than this is served without waiting for the next computation.
const GRACE: time::Duration = time::Duration::seconds(5);
/// Longest wait of a request for a computation.
const MAX_WAIT: Duration = Duration::from_millis(1_500);
/// Interval at which a process checks whether another process has finished a computation.
const POLL_INTERVAL: Duration = Duration::from_millis(100);
/// Expiry of a claim. No computation takes longer.
const CLAIM: Duration = Duration::from_mins(1);

/// Statistics about the members of a room as visible to one user.
#[derive(Clone, Debug)]
pub struct MemberStats {
    pub statistics: Statistics,
    /// Members with the most correct predictions.
    pub top_predictors: Vec<TopPredictor>,
}

/// Statistics about the members of a room.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Statistics {
    pub total_members: i64,
    /// Members who wrote, predicted or joined within the last week.
    pub active_members: i64,
    /// Predictions of members for the room's match.
    pub picks: Picks,
    /// Members per favourite team, by slug; `neutral` for all others.
    pub team_distribution: BTreeMap<String, i64>,
    /// Members with the most correct predictions, best first.
    pub(super) top: Vec<Predictor>,
}

/// Number of predictions of a match, by outcome.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Picks {
    pub home: i64,
    pub draw: i64,
    pub away: i64,
}

impl Picks {
    pub fn total(self) -> i64 {
        self.home + self.draw + self.away
    }

    pub(super) fn add(&mut self, pick: &str) {
        match pick {
            "home" => self.home += 1,
            "draw" => self.draw += 1,
            _ => self.away += 1,
        }
    }
}

/// A member's correct predictions. Contains no name, because names change and accounts are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Predictor {
    pub(super) user_id: UserId,
    pub(super) correct: i32,
    pub(super) settled: i32,
}

impl Predictor {
    /// Share of correct predictions among the settled ones, from 0 to 1.
    fn accuracy(&self) -> f64 {
        f64::from(self.correct) / f64::from(self.settled)
    }

    /// Orders by correct predictions, then by accuracy, best first.
    pub(super) fn by_merit(&self, other: &Self) -> Ordering {
        let correct = other.correct.cmp(&self.correct);
        correct.then(other.accuracy().total_cmp(&self.accuracy())).then(self.user_id.0.cmp(&other.user_id.0))
    }
}

/// A member with many correct predictions.
#[derive(Clone, Debug)]
pub struct TopPredictor {
    pub user_id: UserId,
    pub username: String,
    pub correct_predictions: i64,
    /// Share of correct predictions among the settled ones, from 0 to 1.
    pub accuracy: f64,
}

/// Size of a room, with its stored statistics.
pub(super) struct Size {
    pub(super) room: RoomId,
    pub(super) members: i64,
    pub(super) statistics: Option<serde_json::Value>,
    pub(super) due_at: Option<OffsetDateTime>,
}

/// A room with many members. The stands of a match are one room, named by the first of them.
struct LargeRoom {
    id: RoomId,
    stored: Option<Stored>,
}

struct Stored {
    statistics: Statistics,
    due_at: OffsetDateTime,
}

impl Room {
    /// The match, if the room is one of its stands.
    pub fn stand_of(&self) -> Option<MatchId> {
        self.event_id.filter(|_| self.stand.is_some())
    }
}

impl Rooms {
    /// Statistics about a room's members. Members whom this user has blocked are counted but not named.
    pub async fn member_stats(&self, user: UserId, room: &Room) -> Result<MemberStats, RoomError> {
        let inner = &*self.inner;
        let statistics = match self.large_room_statistics(room).await? {
            Some(statistics) => statistics,
            None => census::count(&inner.db, room, inner.clock.now() - ACTIVE_FOR, RANKED).await?,
        };
        if statistics.top.is_empty() {
            return Ok(MemberStats { statistics, top_predictors: Vec::new() });
        }
        let blocked = blocks::blocked_by(&inner.db, user).await?;
        let top = statistics.top.iter().filter(|predictor| !blocked.contains(&predictor.user_id.0));
        let top: Vec<Predictor> = top.take(TOP).copied().collect();
        let users: Vec<i64> = top.iter().map(|predictor| predictor.user_id.0).collect();
        let usernames = store::usernames(&inner.db, &users).await?;
        let named = |predictor: Predictor| {
            Some(TopPredictor {
                user_id: predictor.user_id,
                username: usernames.get(&predictor.user_id.0)?.clone(),
                correct_predictions: predictor.correct.into(),
                accuracy: predictor.accuracy(),
            })
        };
        let top_predictors = top.into_iter().filter_map(named).collect();
        Ok(MemberStats { statistics, top_predictors })
    }

    /// Predictions of a room's members for its match.
    pub async fn picks(&self, room: &Room) -> Result<Picks, RoomError> {
        let Some(event) = room.event_id else { return Ok(Picks::default()) };
        match self.large_room_statistics(room).await? {
            Some(statistics) => Ok(statistics.picks),
            None => Ok(census::count_picks(&self.inner.db, room, event).await?),
        }
    }

    /// Returns the id under which a large room's data is stored; `None` for a small room.
    pub async fn large_room(&self, room: &Room) -> sqlx::Result<Option<RoomId>> {
        Ok(self.find_large(room).await?.map(|large| large.id))
    }

    /// Statistics of a large room, a few seconds old; `None` for a small room.
    async fn large_room_statistics(&self, room: &Room) -> Result<Option<Statistics>, RoomError> {
        let Some(large) = self.find_large(room).await? else { return Ok(None) };
        let (id, now) = (large.id, self.inner.clock.now());
        let waits = match large.stored {
            Some(stored) if now < stored.due_at => return Ok(Some(stored.statistics)),
            Some(stored) if now < stored.due_at + GRACE => {
                self.start_computing(id, room, false);
                return Ok(Some(stored.statistics));
            }
            _ => self.start_computing(id, room, true),
        };
        waits.wait(MAX_WAIT).await;
        // If the computation takes longer, old statistics are better than none.
        let stored = self.find_large(room).await?.and_then(|large| large.stored);
        stored.map(|stored| Some(stored.statistics)).ok_or(RoomError::StatisticsPending)
    }

    async fn find_large(&self, room: &Room) -> sqlx::Result<Option<LargeRoom>> {
        let db = &self.inner.db;
        let sizes = match room.stand_of() {
            None => store::size(db, room.id).await?.into_iter().collect(),
            Some(event) => store::sizes_of_stands(db, event, STANDS_COUNTED + 1).await?,
        };
        let members: i64 = sizes.iter().map(|size| size.members).sum();
        let is_large = members > SMALL || i64::try_from(sizes.len()).is_ok_and(|stands| stands > STANDS_COUNTED);
        let Some(first) = sizes.into_iter().next().filter(|_| is_large) else { return Ok(None) };
        // A version that stored other fields may have written the row; it is computed again.
        let statistics = first.statistics.and_then(|json| serde_json::from_value(json).ok());
        let stored = statistics.zip(first.due_at).map(|(statistics, due_at)| Stored { statistics, due_at });
        Ok(Some(LargeRoom { id: first.room, stored }))
    }

    /// Starts a computation, unless this process is running one for the room. If another process is, the work lasts
    /// until that one has finished if `waits`, and ends at once otherwise.
    fn start_computing(&self, id: RoomId, room: &Room, waits: bool) -> platform::single_flight::Flight {
        let (inner, room) = (Arc::clone(&self.inner), room.clone());
        self.inner.computing.start(id, async move {
            if let Err(error) = inner.compute(id, &room, waits).await {
                tracing::warn!(%error, room = id.0, "room statistics not computed");
            }
        })
    }

    /// Deletes statistics that were not requested for an hour.
    pub async fn sweep(&self) -> sqlx::Result<u64> {
        let before = self.inner.clock.now() - time::Duration::hours(1);
        platform::database::sweep(|most| store::sweep_statistics(&self.inner.db, before, most)).await
    }
}

impl Inner {
    async fn compute(&self, id: RoomId, room: &Room, waits: bool) -> sqlx::Result<()> {
        // Limits the computations of this process, because requests need the database too.
        let Ok(_slot) = self.computing_slots.acquire().await else { return Ok(()) };
        let asked = Instant::now();
        let until = loop {
            let now = self.clock.now();
            let until = now + CLAIM;
            if store::claim_statistics(&self.db, id, now, until).await? {
                break until;
            }
            let gives_up = !waits || asked.elapsed() > MAX_WAIT;
            if gives_up || store::are_statistics_fresh(&self.db, id, now).await? {
                return Ok(());
            }
            tokio::time::sleep(POLL_INTERVAL).await;
        };
        let (began, now) = (Instant::now(), self.clock.now());
        match census::count(&self.db, room, now - ACTIVE_FOR, RANKED).await {
            Ok(statistics) => {
                let pause = INTERVAL.max(began.elapsed() * PAUSE_FACTOR);
                let json = serde_json::to_value(statistics).map_err(|error| sqlx::Error::Encode(error.into()))?;
                if !store::put_statistics(&self.db, id, until, &json, now + pause).await? {
                    tracing::warn!(room = id.0, "room statistics discarded because their claim expired");
                }
                Ok(())
            }
            Err(error) => {
                // The pause keeps requests from repeating a computation that overloads the database.
                store::shorten_claim(&self.db, id, until, self.clock.now() + INTERVAL).await?;
                Err(error)
            }
        }
    }
}
